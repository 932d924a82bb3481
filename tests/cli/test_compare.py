import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.csv
import pytest

from pcmcnet.cli.model_specs import parse_models
from pcmcnet.data import ChoiceData
from pcmcnet.evaluation import compare
from pcmcnet.models import MNL

Run = Callable[..., Any]
Start = Callable[..., subprocess.Popen[bytes]]

MODELS = "uniform,Cheapest=rank-by:price,Wrong=rank-by:comfort,pcmcnet"
SETTINGS = [f"pcmcnet.{option}" for option in ("hidden=8", "epochs=2", "batch_size=8", "weight_decay=0")]
QUICK = ["--models", MODELS, *(f"--set={setting}" for setting in SETTINGS), "--folds", 2]
RESULTS = ["comparison.html", "comparison.json", "comparison.md", "comparison.png"]


def data(table: Path) -> ChoiceData:
    return ChoiceData.from_long(
        table, choice_set="trip", chosen="took", individual=["income"], features=["price", "comfort"]
    )


# -- results -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cli_with_log", pytest.param("program", marks=pytest.mark.slow)])
def test_a_table_becomes_a_folder_of_results(
    how: str,
    request: pytest.FixtureRequest,
    table: Path,
    roles: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs in an empty folder; the slow variant in a separate process."""
    monkeypatch.chdir(tmp_path)
    status, out, err = request.getfixturevalue(how)("compare", table, *roles, *QUICK, "--top", "1,2", "-o", "out")
    assert status == 0, err
    assert sorted(path.name for path in Path("out").iterdir()) == ["cells", *RESULTS]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    expected = compare(parse_models(MODELS, SETTINGS), data(table), folds=2, top=(1, 2), progress=False)
    result = json.loads(Path("out/comparison.json").read_text())
    assert [row["values"] for row in result["rows"]] == [row["values"] for row in expected.to_dict()["rows"]]
    assert [row["label"] for row in result["rows"]] == ["uniform", "Cheapest", "Wrong", "pcmcnet"]
    lines = out.splitlines()
    assert lines[0] == expected.how
    assert re.search(r"^uniform +\d\.\d{4} \[", out, re.MULTILINE)
    assert re.search(r"^Cheapest +-  1\.000 \[1\.000, 1\.000\]", out, re.MULTILINE)  # the choices are the cheapest
    assert re.search(r"^Wrong +failed: expected a numeric feature to rank by, got 'comfort'", out, re.MULTILINE)
    assert lines[-1] == "written: out/comparison.json, out/comparison.md, out/comparison.html, out/comparison.png"
    assert re.findall(r"^fold (\d)/2, pcmcnet: NLL \d\.\d+, \d+\.\d s to fit$", err, re.MULTILINE) == ["1", "2"]
    page = Path("out/comparison.html").read_text()
    assert "Models on trips.csv" in page
    assert "://" not in page


def test_standard_output_contains_only_the_json_result(cli: Run, table: Path, roles: list[str], tmp_path: Path) -> None:
    status, out, err = cli("compare", table, *roles, *QUICK, "--json", "-o", tmp_path / "out")
    assert status == 0, err
    result = json.loads(out)
    assert result.pop("files") == [
        str(tmp_path / "out" / f"comparison.{kind}") for kind in ("json", "md", "html", "png")
    ]
    assert result == json.loads((tmp_path / "out" / "comparison.json").read_text())


def test_a_repeated_command_continues_and_may_add_models(
    cli: Run, table: Path, roles: list[str], tmp_path: Path
) -> None:
    words = ["compare", table, *roles, "--folds", 2, "-o", tmp_path, "--json"]
    first = json.loads(cli(*words, "--models", "uniform,rank-by:price").out)
    cells = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    assert len(cells) == 1 + 4
    second = json.loads(
        cli(*words, "--models", "Cheapest=rank-by:price,uniform,Dear=rank-by:price", *["--set=Dear.ascending=0"]).out
    )
    assert len(list((tmp_path / "cells").iterdir())) == 1 + 6
    assert all((tmp_path / "cells" / name).stat().st_mtime_ns == time for name, time in cells.items())
    assert second["rows"][1] == first["rows"][0]


@pytest.mark.parametrize("option", ["--by", "--person"])
def test_splits_groups_and_validation_parts(
    option: str, cli: Run, table: Path, roles: list[str], tmp_path: Path
) -> None:
    rows = pyarrow.csv.read_csv(table)
    person = pyarrow.array([trip // 3 for trip in rows["trip"].to_pylist()])
    pyarrow.csv.write_csv(rows.append_column("person", person), tmp_path / "trips.csv")
    words = [tmp_path / "trips.csv", *roles, "--models", "uniform", "--split", 0.25, option, "person", "--valid", 0.2]
    result = json.loads(cli("compare", *words, "--seed", 3, "--json", "-o", tmp_path / "out").out)
    design = result["design"]
    assert (design["split"], design["by"], design["valid"], design["seed"]) == ([0.75, 0.25], "person", 0.2, 3)
    assert (result["n_sets"], design["folds"]) == (6, 1)


def test_the_status_is_1_if_every_model_fails(cli: Run, table: Path, roles: list[str], tmp_path: Path) -> None:
    result = cli("compare", table, *roles, "--models", "rank-by:comfort", "--folds", 2, "-o", tmp_path)
    assert result.status == 1
    assert "failed: expected a numeric feature to rank by, got 'comfort'" in result.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cells", *RESULTS[:3]]


# -- bad input -----------------------------------------------------------------------------------------------------

FINE = ["{table}", "--choice-set", "trip", "--chosen", "took", "--features", "price", "--models", "uniform"]
CASES = {
    "missing file": (["nowhere.csv", *FINE[1:]], r"nowhere.csv: no such file or folder"),
    "unknown model": ([*FINE, "--models", "uniform,pcmcnett"], r"unknown model 'pcmcnett'. Did you mean 'pcmcnet'\?"),
    "twice": ([*FINE, "--models", "uniform,uniform"], r"--models: 'uniform' occurs twice"),
    "no models": (FINE[:-2], r"pcmcnet compare needs --models .*See pcmcnet compare --help"),
    "unknown option": ([*FINE, "--set", "uniform.hidden=3"], r"unknown option 'hidden'"),
    "no chosen column": (
        ["{table}", "--choice-set", "trip", "--models", "uniform"],
        r"comparing needs the choices: add --chosen COLUMN",
    ),
    "no choice set": (
        ["{table}", "--chosen", "took", "--models", "uniform"],
        r"no column with choice-set ids was given",
    ),
    "folds and split": ([*FINE, "--folds", "3", "--split", "0.2"], r"--folds and --split cannot be combined"),
    "one fold": ([*FINE, "--folds", "1"], r"the number of folds must be between 2 and 24"),
    "split of all": ([*FINE, "--split", "1"], r"--split must be a number above 0 and below 1"),
    "share above 1": ([*FINE, "--valid", "2"], r"--valid must be a number of at least 0 and below 1"),
    "missing group": ([*FINE, "--by", "persn"], r"has no column 'persn'"),
    "unknown device": ([*FINE, "--device", "abacus"], r"device 'abacus' is not available"),
    "top of words": ([*FINE, "--top", "one"], r"--top: expected comma-separated integers such as 1,5; got 'one'"),
    "output exists": ([*FINE, "-o", "{here}/occupied"], r"occupied exists but contains no comparison: choose another"),
    "output in a file": ([*FINE, "-o", "{table}/out"], r"cannot be written"),
}


@pytest.mark.parametrize("how", ["cli", pytest.param("program", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES)
def test_bad_input_gives_one_line_and_writes_nothing(
    case: str, how: str, table: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "thesis.tex").touch()
    before = sorted(tmp_path.rglob("*"))
    words, message = CASES[case]
    filled = [word.format(table=table, here=tmp_path) for word in words]
    result = request.getfixturevalue(how)("compare", "-o", tmp_path / "out", *filled)
    assert re.search(message, result.message)
    assert result.status == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_with_another_comparison_is_rejected(cli: Run, table: Path, roles: list[str], tmp_path: Path) -> None:
    words = ["compare", table, *roles, "--models", "uniform", "--folds", 2, "-o", tmp_path]
    assert cli(*words).status == 0
    message = cli(*words, "--seed", 1).message
    assert "contains a comparison with different settings: seed (0 there, 1 here)" in message


# -- interruption --------------------------------------------------------------------------------------------------


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Make child processes receive an interrupt, as in a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_keeps_results_and_says_how_to_continue(
    cli: Run, table: Path, roles: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    words = ["compare", table, *roles, "--models", "uniform,net=mnl", "--folds", 2, "-o", tmp_path / "out"]
    with monkeypatch.context() as patch:
        patch.setattr(MNL, "fit", interrupted)
        status, _, err = cli(*words)
    assert status == 130
    require_advice(err, tmp_path / "out")
    (kept,) = (tmp_path / "out" / "cells").glob("uniform-*-1.safetensors")
    time = kept.stat().st_mtime_ns
    assert cli(*words).status == 0
    assert kept.stat().st_mtime_ns == time


def require_advice(err: str, folder: Path) -> None:
    last = f"interrupted; to continue, run the same command again (state in {folder})."
    assert err.splitlines()[-1] == last
    assert "Traceback" not in err


@pytest.mark.slow
def test_an_interrupt_by_a_signal_keeps_results(
    interruptible: None, start: Start, cli: Run, table: Path, roles: list[str], tmp_path: Path
) -> None:
    """A network of 2,000,000 epochs cannot finish before the interrupt; the second command has fewer epochs."""
    words = ["compare", table, *roles, "--models", "uniform,net=pcmcnet", "--folds", 2, "-o", tmp_path / "out"]
    with start(*words, "--set", "net.epochs=2000000", "--set", "net.hidden=4") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith(b"fold 1/2, uniform: "):
                break
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    require_advice(err.decode(), tmp_path / "out")
    (kept,) = (tmp_path / "out" / "cells").glob("uniform-*-1.safetensors")
    time = kept.stat().st_mtime_ns
    assert cli(*words, "--set", "net.epochs=2", "--set", "net.hidden=4").status == 0
    assert kept.stat().st_mtime_ns == time
