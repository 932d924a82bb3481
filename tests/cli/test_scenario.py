"""``pcmcnet scenario``: printed and written results, and one line for bad input."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.csv
import pytest


@pytest.fixture(scope="module")
def model(cli: Callable[..., Any], table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "mnl"
    roles = "--choice-set trip --chosen took --alternative mode --features price,minutes --individual income"
    fit = cli("fit", table, *roles.split(), "--model", "mnl", "--set", "formula=price + minutes", "-o", folder)
    assert fit.status == 0, fit
    return folder


def test_shares_are_printed(cli: Callable[..., Any], model: Path, table: Path) -> None:
    result = cli("scenario", model, table, "--change", "price += 5 where mode == 'car'", "--cost", "price")
    assert result.status == 0
    assert result.out.startswith("Scenario: MNL on 24 choice sets\n")
    assert "price += 5 where mode == 'car': " in result.out
    assert "consumer surplus  -" in result.out


def test_several_changes_and_output_files(cli: Callable[..., Any], model: Path, table: Path, tmp_path: Path) -> None:
    """A change may use a column that the model does not: comfort."""
    words = ["scenario", model, table, "--change", "remove where mode == 'bike' and comfort == 'low'"]
    words += ["--change", "add tram like bus with price *= 0.5", "--revenue", "price", "--no-intervals"]
    result = cli(*words, "--json", "-o", tmp_path / "effects.csv")
    assert result.status == 0, result
    printed = json.loads(result.out)
    assert [step["text"] for step in printed["changes"]][1] == "add tram like bus with price *= 0.5"
    assert printed["shares"]["tram"]["after"] > 0
    rows = pyarrow.csv.read_csv(tmp_path / "effects.csv").to_pylist()
    assert [row["mode"] for row in rows] == list(printed["shares"])
    for ending in ("md", "json", "parquet"):
        assert cli(*words, "-o", tmp_path / f"effects.{ending}").status == 0
    assert (tmp_path / "effects.md").read_text("utf-8").startswith("# Scenario: MNL")
    assert json.loads((tmp_path / "effects.json").read_text("utf-8")) == printed


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--change", "prize = 1"], "change 'prize = 1': there is no feature or individual-level column 'prize'"),
        (["--change", "price = 1 where mode == 'plane'"], "the condition selects none of"),
        (["--change", "took = 1"], "column 'took' holds the choices"),
        (["--change", "price ="], "expected a number, a word in quotes or a column name, found the end"),
        (["--change", "price = 1", "-o", "x.xls"], "expected a file name that ends in .csv"),
        (["--change", "price = 1", "--by", "colour"], "no column 'colour'"),
    ],
)
def test_bad_input_gives_a_one_line_error(
    words: list[str], problem: str, cli: Callable[..., Any], model: Path, table: Path
) -> None:
    assert problem in cli("scenario", model, table, *words).message
