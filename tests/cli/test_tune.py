import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pcmcnet as pn

Run = Callable[..., Any]
Start = Callable[..., subprocess.Popen[bytes]]

QUICK = [
    "--set",
    "epochs=2",
    "--set",
    "batch_size=8",
    "--set",
    "weight_decay=1",
    "--search",
    "lr=log:1e-3:1e-1",
    "--search",
    "hidden=2/4,4",
]
SPACE = {"lr": (1e-3, 1e-1, "log"), "hidden": [(2,), (4, 4)]}


def losses(study: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(trial["number"], trial["state"], trial["value"], trial["options"]) for trial in study["trials"]]


@pytest.fixture(scope="module")
def expected(table: Path) -> pn.Tuning:
    data = pn.ChoiceData.from_long(
        table, choice_set="trip", chosen="took", individual=["income"], features=["price", "comfort"]
    )
    return pn.tune(pn.PCMCNet(epochs=2, batch_size=8, weight_decay=1.0), data, space=SPACE, trials=3, progress=False)


@pytest.mark.parametrize("how", ["cli_with_log", pytest.param("program", marks=pytest.mark.slow)])
def test_a_table_becomes_a_folder_with_the_result_and_the_model(
    how: str,
    request: pytest.FixtureRequest,
    table: Path,
    roles: list[str],
    tmp_path: Path,
    expected: pn.Tuning,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs in an empty folder; the slow variant in a separate process."""
    program: Run = request.getfixturevalue(how)
    monkeypatch.chdir(tmp_path)
    status, out, err = program("tune", table, *roles, *QUICK, "--trials", 3, "-o", "study")
    assert status == 0, err
    files = ["model", "search.png", "study.db", "tuning.json", "tuning.md"]
    assert sorted(path.name for path in Path("study").iterdir()) == files
    assert losses(json.loads(Path("study/tuning.json").read_text())) == losses(expected.to_dict())
    lines = out.splitlines()
    assert lines[0] == expected.how
    assert lines[-1] == "written: study/tuning.json, study/tuning.md, study/search.png, study/model"
    ended = re.findall(r"^trial (\d)/3: (the defaults, )?NLL \d\.\d{4}, best \d\.\d{4}, \d+\.\d s$", err, re.MULTILINE)
    assert ended == [("1", "the defaults, "), ("2", ""), ("3", "")]
    assert lines[-3] == expected.why
    assert "Warning" not in err
    assert not re.search(r"^\[[IW] ", err, re.MULTILINE)  # the start of messages of Optuna
    assert pn.load("study/model").config == expected.model.config
    assert program("predict", "study/model", table, "-o", "predicted.csv").status == 0


def test_a_repeated_command_continues_and_prints_json(
    cli: Run, table: Path, roles: list[str], tmp_path: Path, expected: pn.Tuning
) -> None:
    words = ["tune", table, *roles, *QUICK, "-o", tmp_path / "study", "--json"]
    first = json.loads(cli(*words, "--trials", 1).out)
    result = cli(*words, "--trials", 3)
    assert result.status == 0, result.err
    second = json.loads(result.out)
    assert second["trials"][:1] == first["trials"]
    assert losses(second) == losses(expected.to_dict())
    assert second.pop("files")[-1] == str(tmp_path / "study" / "model")
    assert second == json.loads((tmp_path / "study" / "tuning.json").read_text())
    assert [trial["defaults"] for trial in second["trials"]] == [True, False, False]
    assert second["why"] == expected.why


@pytest.mark.slow
def test_a_killed_search_continues(
    start: Start, cli: Run, table: Path, roles: list[str], tmp_path: Path, expected: pn.Tuning
) -> None:
    words = ["tune", table, *roles, *QUICK, "--trials", 3, "-o", tmp_path / "study"]
    process = start(*words)
    assert process.stderr is not None
    with process:
        while not (line := process.stderr.readline()).startswith(b"trial 1/3"):
            assert line, "the command ended early"
        process.kill()
    assert process.returncode == -signal.SIGKILL
    result = cli(*words, "--json")
    assert result.status == 0, result.err
    assert losses(json.loads(result.out)) == losses(expected.to_dict())


def test_named_spaces_combine_with_fixed_and_searched_options(
    cli: Run, table: Path, roles: list[str], tmp_path: Path
) -> None:
    fixed = ["--set", "hidden=2", "--set", "epochs=1", "--set", "batch_size=8", "--set", "weight_decay=1"]
    result = cli(
        *("tune", table, *roles, *fixed, "--space", "paper", "--search", "lr=0.01,0.1", "--search", "dropout=0:0.5"),
        *("--trials", 1, "-o", tmp_path / "study", "--json"),
    )
    assert result.status == 0, result.err
    design = json.loads(result.out)["design"]
    assert list(design["space"]) == ["activation", "lr", "dropout"]
    assert design["space"]["lr"] == {"values": [0.01, 0.1]}
    assert design["options"]["hidden"] == [2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "uniform"], "uniform has no options: there is nothing to tune."),
        (["--model", "pcmnet"], "unknown model 'pcmnet'. Did you mean 'pcmcnet'?"),
        (["--search", "lr"], "--search: expected name=low:high, name=log:low:high or name=a,b,c; got 'lr'."),
        (["--search", "lr=1:2", "--set", "lr=1"], "lr is both fixed with --set and searched with --search"),
        (["--space", "huge"], "unknown space 'huge'. Known: default, paper, wide."),
        (["--trials", "0"], "trials must be a whole number of at least 1"),
        (["--valid", "0"], "valid must be a number above 0 and below 1"),
        (["--by", "home"], "home"),
        (["--person", "income"], "'income' is declared as person and also as a model input"),
        (["--model", "pcmc-linear", "--set", "l2=1"], "expected at least one option to search"),
        (["--model", "rank-by", "--set", "column=price"], "rank-by has no default space"),
    ],
)
def test_bad_input_gives_a_one_line_error(
    words: list[str], message: str, cli: Run, table: Path, roles: list[str], tmp_path: Path
) -> None:
    result = cli("tune", table, *roles, *words, "-o", tmp_path / "study")
    assert message in result.message
    assert not (tmp_path / "study").exists()


def test_choices_are_needed(cli: Run, table: Path, tmp_path: Path) -> None:
    result = cli("tune", table, "--choice-set", "trip", "--features", "price", "-o", tmp_path / "study")
    assert result.message == "tuning needs the choices: add --chosen COLUMN, --rank COLUMN or --counts COLUMN."


def test_a_folder_with_other_content_is_rejected(cli: Run, table: Path, roles: list[str], tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("Dear diary")
    assert "exists but contains no search" in cli("tune", table, *roles, *QUICK, "-o", tmp_path).message


def test_an_interrupt_says_how_to_continue(
    cli: Run, table: Path, roles: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pcmcnet.tuning.study.run_trial", interrupted)
    status, out, err = cli("tune", table, *roles, *QUICK, "-o", tmp_path / "study")
    assert (status, out) == (130, "")
    assert "interrupted; to continue, run the same command again" in err
