import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.csv
import pytest

from pcmcnet.insight.explanation import explain
from pcmcnet.models import load

Run = Callable[..., Any]

pytestmark = pytest.mark.skipif(importlib.util.find_spec("plotly") is None, reason="needs plotly: pip install plotly")
QUICK = ["--sets", "5", "--skip", "elasticities"]


def test_the_report_equals_that_of_the_library(cli: Run, model: Path, table: Path, tmp_path: Path) -> None:
    result = cli("explain", model, table, "-o", tmp_path / "r", *QUICK, "--seed", 3, "--json")
    assert result.status == 0, result.err
    summary = json.loads(result.out)
    expected = explain(
        load(model), table, 3, sets=5, skip=["elasticities"], title="PCMCNet on trips.csv", progress=False
    )
    assert {name: summary[name] for name in ("title", "found", "left_out")} == expected.summary()
    assert [Path(file).name for file in summary["files"]] == ["report.html", "report.md", "explanation.json"]
    written = json.loads((tmp_path / "r" / "explanation.json").read_text("utf-8"))
    same = json.loads(json.dumps(expected.to_dict()))
    for part in ("table", "model", "calibration", "importance", "context", "axioms", "examples", "left_out"):
        assert written[part] == same[part]
    assert written["fit"]["model"] == same["fit"]["model"]


def test_the_output_starts_with_findings(cli: Run, model: Path, table: Path, tmp_path: Path) -> None:
    result = cli("explain", model, table, "-o", tmp_path / "r", *QUICK, "--baseline", "none")
    assert result.status == 0
    assert result.out.startswith("PCMCNet on trips.csv\n\n- ")  # findings first
    assert "\n\nchoice_sets: 24\n" in result.out
    assert "seen_in_training: all" in result.out
    assert "left out: elasticities (skipped)" in result.out
    assert f"written: {tmp_path / 'r' / 'report.html'}" in result.out
    assert json.loads((tmp_path / "r" / "explanation.json").read_text("utf-8"))["fit"]["baselines"] is None


def test_a_table_without_choices_can_be_explained(cli: Run, model: Path, table: Path, tmp_path: Path) -> None:
    pyarrow.csv.write_csv(pyarrow.csv.read_csv(table).drop_columns(["took"]), tmp_path / "new.csv")
    result = cli("explain", model, tmp_path / "new.csv", "-o", tmp_path / "r", *QUICK)
    assert result.status == 0
    for part in ("fit", "calibration", "importance"):
        assert f"left out: {part} (the table has no choices)" in result.out
    page = (tmp_path / "r" / "report.html").read_text("utf-8")
    assert "no section on calibration" in page
    assert 'id="examples"' in page


# Bad input by name: the arguments, and the expected message.
CASES = {
    "no model": (["{here}", "{table}"], r"is not a saved model: model.json is missing"),
    "missing file": (["{model}", "nowhere.csv"], r"nowhere.csv: no such file or folder"),
    "unknown part": (
        ["{model}", "{table}", "--skip", "axiom"],
        r"skip: unknown part 'axiom'. Did you mean 'axioms'\?",
    ),
    "unknown baseline": (["{model}", "{table}", "--baseline", "mln"], r"mln.*Did you mean 'mnl'\?"),
    "no baseline": (["{model}", "{table}", "--baseline", ","], r"--baseline: expected at least one model"),
    "no sets": (["{model}", "{table}", "--sets", "0"], r"--sets"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_gives_a_one_line_error(case: str, cli: Run, model: Path, table: Path, tmp_path: Path) -> None:
    words, message = CASES[case]
    arguments = [word.format(here=tmp_path, model=model, table=table) for word in words]
    result = cli("explain", *arguments, "-o", tmp_path / "r")
    assert re.search(message, result.message), result.message
    assert not (tmp_path / "r" / "report.html").exists()


def test_a_file_as_output_folder_is_rejected_early(cli: Run, model: Path, table: Path, tmp_path: Path) -> None:
    (tmp_path / "r").write_text("")
    assert "cannot be created" in cli("explain", model, table, "-o", tmp_path / "r").message
