"""``pcmcnet optimise``: offers, prices and many individuals, with the results of the library."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import pcmcnet as pn
from choice_tables import logit_choices, read

Run = Callable[..., Any]
CATALOGUE = "mode,x,price,margin\nA,0,0,\nB,1,2,3\nC,-1,1,2\nD,0.5,3,2.5\n"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = logit_choices(200, {"x": 1.0, "price": -0.8}, sizes=(2, 4))
    table["income"] = table["trip"] % 3
    data = read(table, alternative="mode", individual=["income"], features=["x", "price"])
    return pn.MNL(formula="x + price + x:income | 0").fit(data).save(tmp_path_factory.mktemp("optimise") / "model")


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    path = tmp_path / "catalogue.csv"
    path.write_text(CATALOGUE)
    return path


def test_the_offer_equals_that_of_the_library(cli: Run, fitted: Path, catalogue: Path, tmp_path: Path) -> None:
    words = ["--revenue", "margin", "--outside", "A", "--individual", "income=2", "--size", "1..2", "--never", "D"]
    result = cli("optimise", fitted, catalogue, *words, "--current", "C", "-o", tmp_path / "offer", "--json")
    assert (result.status, result.err) == (0, "")
    limits = pn.Constraints(size=(1, 2), never=["D"])
    expected = pn.optimise_offer(
        pn.load(fitted), catalogue, "margin", outside="A", individual={"income": 2}, constraints=limits, current=["C"]
    )
    printed = json.loads(result.out)
    assert {**printed, "seconds": 0} == {**json.loads(json.dumps(expected.to_dict())), "seconds": 0}
    assert json.loads((tmp_path / "offer" / "result.json").read_text()) == printed
    shown = cli("optimise", fitted, catalogue, *words, "-o", tmp_path / "again")
    assert "proven to be the best offer" in shown.out


def test_prices_are_chosen_from_a_ladder(cli: Run, fitted: Path, catalogue: Path, tmp_path: Path) -> None:
    words = ["--price", "price", "--outside", "A", "--individual", "income=1", "--ladder", "1,2,3"]
    result = cli("optimise", fitted, catalogue, *words, "-o", tmp_path / "prices", "--json")
    assert result.status == 0, result.err
    printed = json.loads(result.out)
    assert printed["exact"]
    assert set(printed["after"]) <= {1.0, 2.0, 3.0}
    assert "treats 'price' as exogenous" in printed["notes"][-1]
    again = cli("optimise", fitted, catalogue, *words, "--exogenous", "-o", tmp_path / "again", "--json")
    assert json.loads(again.out)["notes"] == printed["notes"][:-1]


def test_prices_respect_the_stock(cli: Run, fitted: Path, catalogue: Path, tmp_path: Path) -> None:
    rows = catalogue.read_text().splitlines()
    catalogue.write_text(
        "\n".join(f"{row},{stock}" for row, stock in zip(rows, ["stock", "", "5", "", ""], strict=True))
    )
    words = ["--price", "price", "--outside", "A", "--individual", "income=1", "--bounds", "0.5..20"]
    stock = ["--inventory", "stock", "--customers", "100"]
    result = cli("optimise", fitted, catalogue, *words, *stock, "-o", tmp_path / "prices", "--json")
    assert result.status == 0, result.err
    printed = json.loads(result.out)
    assert 100 * printed["probabilities"][0] == pytest.approx(5.0)
    assert printed["shadow_prices"][0] > 0


def test_offers_are_written_for_many_individuals(cli: Run, fitted: Path, catalogue: Path, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("income\n0\n1\n2\n")
    words = ["--revenue", "margin", "--outside", "A", "--individuals", tmp_path / "people.csv"]
    result = cli("optimise", fitted, catalogue, *words, "-o", tmp_path / "offers")
    assert result.status == 0, result.err
    assert pq.read_table(tmp_path / "offers" / "offers.parquet").num_rows == 3


def test_offers_note_a_wrong_sign(cli: Run, catalogue: Path, tmp_path: Path) -> None:
    table = logit_choices(100, {"x": 1.0, "price": 0.8}, sizes=(2, 4))
    data = read({**table, "z": table["trip"] % 3}, features=["x", "price"], individual=["z"])
    model = pn.MNL(formula="x + price | 0").fit(data)
    (sentence,) = model.sign_caveats.values()
    (tmp_path / "people.csv").write_text("z\n0\n1\n")
    for number, who in enumerate((["--individual", "z=1"], ["--individuals", tmp_path / "people.csv"])):
        folder = tmp_path / f"offer {number}"
        result = cli("optimise", model.save(folder / "model"), catalogue, "--revenue", "price", *who, "-o", folder)
        assert result.status == 0, result.err
        assert sentence[:40] in result.out
        assert json.loads((folder / "result.json").read_text())["notes"] == [sentence]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected either --revenue COLUMN to optimise the offer or --price COLUMN"),
        (["--revenue", "margin", "--price", "price"], "expected either --revenue"),
        (["--revenue", "margin", "--ladder", "1,2"], "--ladder applies only to prices: add --price"),
        (["--revenue", "margin", "--inventory", "x"], "--inventory applies only to prices: add --price"),
        (["--revenue", "margin", "--size", "few"], "--size: expected a number, got 'few'"),
        (["--revenue", "margin", "--individual", "income"], "--individual: expected NAME=VALUE, got 'income'"),
        (["--revenue", "margin", "--at-least", "x=1"], "--at-least: expected COLUMN=VALUE:COUNT"),
        (["--price", "price", "--bounds", "5"], "--bounds: expected a lowest and a highest price"),
        (["--price", "price", "--individuals", "people.csv"], "--individuals optimises offers only"),
        (["--revenue", "margin", "--exogenous"], "--exogenous applies only to prices: add --price"),
        (
            ["--revenue", "margin", "--individual", "income=1", "--size", "9.."],
            "expected a minimum of at most 3",
        ),
    ],
)
def test_bad_input_gives_a_one_line_error(
    cli: Run, fitted: Path, catalogue: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    result = cli("optimise", fitted, catalogue, "--outside", "A", *words, "-o", tmp_path / "out")
    assert result.status == 2
    assert message in result.err
    assert result.err.count("\n") == 1
