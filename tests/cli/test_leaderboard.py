import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

from choice_tables import london_trips

Run = Callable[..., Any]

TABLES = ["--tables", "mlba,rock-paper-scissors", "--sets", 60, "--folds", 2]
QUICK = ["leaderboard", *TABLES, "--models", "uniform,mnl,bradley-terry"]


@pytest.mark.parametrize("how", ["cli_with_log", pytest.param("program", marks=pytest.mark.slow)])
def test_tables_and_models_become_a_folder_of_results(how: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The slow variant runs in a separate process."""
    status, out, err = request.getfixturevalue(how)(*QUICK, "-o", tmp_path / "board")
    assert status == 0, err
    names = [path.name for path in sorted((tmp_path / "board").iterdir())]
    assert names == ["leaderboard.html", "leaderboard.json", "leaderboard.md", "leaderboard.png", "tables"]
    assert out.startswith("3 models on 2 tables, 2-fold cross-validation, seed 0; at most 60 choice sets per table")
    assert re.search(r"^rock-paper-scissors +simulated +60 +0\.\d{4} ", out, re.MULTILINE)
    assert "bradley-terry on mlba: this model identifies alternatives by their labels" in out
    assert out.splitlines()[-1].startswith("written: ")
    assert re.findall(r"^table \d of 2: (\S+)$", err, re.MULTILINE) == ["mlba", "rock-paper-scissors"]
    assert re.search(r"^fold 2/2, mnl: NLL \d\.\d+", err, re.MULTILINE)


def test_a_second_run_reuses_the_results(cli: Run, tmp_path: Path) -> None:
    status, out, err = cli(*QUICK, "--json", "-o", tmp_path)
    assert status == 0, err
    result = json.loads(out)
    assert result.pop("files") == [str(tmp_path / f"leaderboard.{kind}") for kind in ("json", "md", "png", "html")]
    assert result == json.loads((tmp_path / "leaderboard.json").read_text())
    cells = {path: path.stat().st_mtime_ns for path in tmp_path.glob("tables/*/cells/*.safetensors")}
    assert len(cells) == 4 + 6
    again = json.loads(cli(*QUICK, "--json", "-o", tmp_path).out)
    assert again["standings"] == result["standings"]
    assert all(path.stat().st_mtime_ns == changed for path, changed in cells.items())


def test_the_status_is_1_if_no_model_has_a_loss(cli: Run, tmp_path: Path) -> None:
    words = ["--tables", "mlba", "--models", "pcmc,thurstone", "--sets", 40, "--folds", 2]
    assert cli("leaderboard", *words, "-o", tmp_path).status == 1


def test_a_london_file_adds_its_published_split(cli: Run, tmp_path: Path) -> None:
    file = tmp_path / "london.csv"
    pa.csv.write_csv(pa.table(london_trips(10)), file)
    words = ["--tables", "lpmc", "--lpmc", file, "--models", "uniform"]
    status, out, err = cli("leaderboard", *words, "-o", tmp_path / "board")
    assert status == 0, err
    assert re.search(r"^lpmc +judged +10 +1\.3863 best", out, re.MULTILINE)
    assert "lpmc: one fit, tested on the 10 choice sets of the given test part" in out


CASES = {
    "lpmc without its file": (["--tables", "lpmc"], "table 'lpmc' is not part of a package: give its file"),
    "no file": (["--lpmc", "missing.csv"], r"missing\.csv"),
    "unknown table": (["--tables", "mlbaa"], r"unknown table 'mlbaa'. Did you mean 'mlba'\?"),
    "unknown model": ([*TABLES, "--models", "mnll"], r"unknown model 'mnll'. Did you mean 'mnl'\?"),
    "unknown use": (["--use", "mine"], r"use must be one of 'development', 'judged', 'simulated'"),
    "one fold": ([*TABLES, "--folds", "1"], "folds must be a whole number of at least 2"),
    "no time": ([*TABLES, "--seconds", "0"], "seconds must be a number above 0"),
    "unknown device": ([*TABLES, "--device", "abacus"], "device 'abacus' is not available"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_gives_one_line_and_writes_nothing(cli: Run, case: str, tmp_path: Path) -> None:
    words, message = CASES[case]
    result = cli("leaderboard", "-o", tmp_path / "out", *words)
    assert re.search(message, result.message)
    assert list(tmp_path.iterdir()) == []
