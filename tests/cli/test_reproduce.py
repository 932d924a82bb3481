"""Each experiment of the paper by one command, in an empty folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pcmcnet.data.files.write_files import write_table
from pcmcnet.datasets import mlba

Run = Callable[..., Any]
SMALL = ["--sets", "60", "--epochs", "1"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("how", ["cli_with_log", pytest.param("program", marks=pytest.mark.slow)])
def test_table_1_is_printed_and_written(how: str, request: pytest.FixtureRequest) -> None:
    result = request.getfixturevalue(how)("reproduce", "table1", *SMALL, "--fresh", 50, "--seeds", 1, "-o", "out/here")
    assert result.status == 0, result.err
    lines = result.out.splitlines()
    assert lines[-1] == "written: out/here/report.md, out/here/report.html, out/here/result.json"
    (row,) = [line for line in lines if line.startswith("PCMC-Net 3x16")]
    assert row.split()[2:4] == ["641", "0.009"]
    assert "PCMC-Net 3x16, fit 1 of 1: KL" in result.err
    text = Path("out/here/report.html").read_text("utf-8")
    assert "://" not in text
    assert "reproduce table1 --sets 60" in text


def test_printed_json_equals_the_file(cli: Run) -> None:
    write_table(mlba.simulate(50, seed=1), "train.parquet")
    words = ["--data", "train.parquet", "--epochs", 1, "--fresh", 50, "--seeds", 1, "--json"]
    result = cli("reproduce", "table1", *words, "-o", "out")
    assert result.status == 0, result.err
    printed = json.loads(result.out)
    files = printed.pop("files")
    assert printed == json.loads(Path("out/result.json").read_text("utf-8"))
    assert files == ["out/report.md", "out/report.html", "out/result.json"]
    assert printed["facts"]["training sets"].startswith("50 (train.parquet, SHA-256")


@pytest.mark.slow
def test_figure_2_is_drawn(cli: Run) -> None:
    result = cli("reproduce", "figure2", *SMALL, "--cells", 8, "-o", "out")
    assert result.status == 0, result.err
    assert result.out.splitlines()[-1].endswith("out/result.json, out/figure2.png")
    assert "://" not in Path("out/report.html").read_text("utf-8")


def test_table_3_names_its_missing_files(cli: Run) -> None:
    result = cli("reproduce", "table3", "--data", "nowhere", "-o", "out")
    assert result.status == 2
    assert "expected a folder with data_train_50alternatives" in result.message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table1", "-o", "out", "--device", "abacus"], "abacus"),
        (["table1", "-o", "file"], "folder file cannot be created"),
        (["table1", "-o", "out", "--data", "nowhere.csv"], "nowhere.csv"),
        (["table3", "-o", "out", "--sets", "100"], "sets is the size of a simulated table"),
        (["table3", "-o", "out", "--simulated", "--data", "."], "mutually exclusive"),
        (["table2", "-o", "out"], "table2"),
        (["table1"], "--output"),
    ],
)
def test_bad_input_gives_a_one_line_error(words: list[str], message: str, cli: Run) -> None:
    Path("file").touch()
    assert message in cli("reproduce", *words).message


def test_help_lists_the_experiments(cli: Run) -> None:
    result = cli("reproduce", "--help")
    assert result.status == 0
    for name in ("table1", "figure2", "table3"):
        assert name in result.out
