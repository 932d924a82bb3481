"""``pcmcnet design``: the table of the library, options of the file and of the command, and bad input."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pcmcnet as pn

Run = Callable[..., Any]

FILE = """
tasks = 6
none = true

[attributes]
price = [10, 15, 20]
brand = ["a", "b", "c"]

[prior]
price = [-0.1, 0.03]
"brand[b]" = 0.3

[[prohibited]]
brand = "c"
price = [10]
"""


@pytest.fixture
def attributes(tmp_path: Path) -> Path:
    path = tmp_path / "attributes.toml"
    path.write_text(FILE)
    return path


def test_the_table_and_the_report_are_those_of_the_library(attributes: Path, cli: Run, tmp_path: Path) -> None:
    out = tmp_path / "design.csv"
    words = ("--versions", 2, "--starts", 2, "--seed", 1, "-o", out)
    result = cli("design", attributes, *words)
    assert (result.status, result.err) == (0, "")
    expected = pn.design(
        {"price": [10, 15, 20], "brand": ["a", "b", "c"]},
        prior={"price": (-0.1, 0.03), "brand[b]": 0.3},
        prohibited=[{"brand": "c", "price": [10]}],
        tasks=6,
        versions=2,
        none=True,
        starts=2,
        seed=1,
    )
    assert result.out == f"{expected}\n\nwritten: {out}\n"
    expected.save(tmp_path / "expected.csv")
    assert out.read_bytes() == (tmp_path / "expected.csv").read_bytes()
    plan = json.loads(cli("design", attributes, *words, "--json").out)
    assert plan["d_error"] == pytest.approx(expected.d_error)
    assert plan["standard_errors"] == pytest.approx(expected.standard_errors())
    assert plan["level_counts"]["brand"] == expected.level_counts()["brand"]


def test_the_seed_of_the_command_takes_precedence(attributes: Path, cli: Run, tmp_path: Path) -> None:
    attributes.write_text("seed = 3\n" + FILE)

    def table(*words: object) -> bytes:
        assert cli("design", attributes, "--starts", 1, "-o", tmp_path / "design.csv", *words).status == 0
        return (tmp_path / "design.csv").read_bytes()

    of_file = table()
    assert table("--seed", 3) == of_file
    assert table("--seed", 4) != of_file


def test_a_saved_model_is_the_prior(attributes: Path, cli: Run, tmp_path: Path) -> None:
    plan = pn.design({"price": [10, 15, 20], "brand": ["a", "b", "c"]}, none=True, tasks=6, starts=1)
    logit = pn.MNL().fit(plan.to_choice_data(plan.simulate(30)), progress=False)
    logit.save(tmp_path / "pilot")
    words = ("--model", tmp_path / "pilot", "--criterion", "Db", "--starts", 1, "--json")
    result = json.loads(cli("design", attributes, *words, "-o", tmp_path / "design.csv").out)
    assert result["criterion"] == "Db"


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        (FILE, ["-o", "design.txt"], "design.txt: unknown file format"),
        (FILE, ["-o", "design.csv", "--criterion", "best"], "unknown criterion 'best'"),
        ("x = [1, 2]", ["-o", "design.csv"], r"expected a table \[attributes\]"),
        ("[attributes", ["-o", "design.csv"], "expected a TOML file"),
        ("task = 3\n[attributes]\nx = [1, 2]", ["-o", "design.csv"], "unknown option 'task'. Did you mean 'tasks'"),
        (None, ["-o", "design.csv"], "cannot be read: No such file"),
        ("[attributes]\nx = [1, 2]", ["-o", "design.csv", "--criterion", "Db"], r"\[prior\] price = \[-0.5, 0.2\]"),
        ("[attributes]\nx = [1, 2]", ["-o", "design.csv", "--dominated", "avoid"], r'\[signs\] price = "-"'),
    ],
)
def test_bad_input_is_one_line(text: str | None, words: list[str], message: str, cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "attributes.toml"
    if text is not None:
        path.write_text(text)
    words = [str(tmp_path / word) if word.startswith("design.") else word for word in words]
    assert re.search(message, cli("design", path, *words).message)
