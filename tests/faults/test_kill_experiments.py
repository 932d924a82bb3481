"""kill -9 of a comparison or of the paper's experiments keeps finished results, which are not computed again."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcmcnet.models import load

SLOW = pytest.mark.slow
MODELS = ["--models", "uniform,mnl,pcmcnet", "--set=pcmcnet.hidden=4", "--set=pcmcnet.epochs=2", "--folds=2"]


def without_times(value: Any) -> Any:
    """Remove values that depend on the time or on the speed of the machine."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if "seconds" not in k and k not in ("date", "command")}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def dated(folder: Path, pattern: str) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.glob(pattern)}


def dates(stored: dict[str, int], known: dict[str, int]) -> dict[str, int]:
    return {name: stored[name] for name in known}


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=SLOW)])
def test_a_killed_comparison_resumes_with_its_finished_cells(
    kills: int, server: Any, table: Path, roles: list[str], tmp_path: Path
) -> None:
    undisturbed, folder = tmp_path / "undisturbed", tmp_path / "comparison"
    first = server.run("compare", table, *roles, *MODELS, "-o", undisturbed, watch=undisturbed)
    assert first.status == 0, first.log
    expected = without_times(json.loads((undisturbed / "comparison.json").read_bytes()))
    words, cells = ["compare", table, *roles, *MODELS, "-o", folder], len(dated(undisturbed, "cells/[!.]*.safetensors"))
    assert cells == 6
    for step in np.linspace(first.steps // 2, first.steps, kills).round().astype(int).tolist():
        killed = server.run(*words, watch=folder, die=step)
        assert killed.status == -signal.SIGKILL
        finished = dated(folder, "cells/[!.]*.safetensors")
        ended = server.run(*words)
        assert ended.status == 0, ended.log
        assert ended.log.count("already computed") == len(finished)
        assert dates(dated(folder, "cells/[!.]*.safetensors"), finished) == finished
        assert len(dated(folder, "cells/[!.]*.safetensors")) == cells
        assert without_times(json.loads((folder / "comparison.json").read_bytes())) == expected
        assert not [path for path in folder.rglob(".*") if path.is_file()]
        shutil.rmtree(folder)


# -- the paper's experiments ---------------------------------------------------------------------------------------

TABLE3 = ["reproduce", "table3", "--simulated", "--sets=60", "--epochs=2", "--device=cpu"]


@pytest.mark.slow
def test_a_killed_table_3_resumes_with_its_fitted_models(server: Any, sound: Any, tmp_path: Path) -> None:
    undisturbed, folder = tmp_path / "undisturbed", tmp_path / "table3"
    first = server.run(*TABLE3, "-o", undisturbed, watch=undisturbed)
    assert first.status == 0, first.log
    expected = without_times(json.loads((undisturbed / "result.json").read_bytes()))
    words, models = [*TABLE3, "-o", folder], len(dated(undisturbed, "**/model.json"))
    assert models == 8
    for step in np.linspace(first.steps // 4, first.steps - 1, 5).round().astype(int).tolist():
        assert server.run(*words, watch=folder, die=step).status == -signal.SIGKILL
        finished = dated(folder, "**/model.json")
        for path in folder.rglob("model.json"):
            load(path.parent)
        ended = server.run(*words)
        assert ended.status == 0, ended.log
        assert ended.log.count("already fitted") == len(finished)
        assert dates(dated(folder, "**/model.json"), finished) == finished
        assert len(dated(folder, "**/model.json")) == models
        assert without_times(json.loads((folder / "result.json").read_bytes())) == expected
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["table1", "--sets=60", "--epochs=1", "--fresh=50", "--seeds=1"],
        ["figure2", "--sets=60", "--epochs=1", "--cells=8"],
    ],
    ids=["table1", "figure2"],
)
def test_killed_short_experiments_leave_complete_files(words: list[str], server: Any, tmp_path: Path) -> None:
    undisturbed, folder = tmp_path / "undisturbed", tmp_path / "out"
    first = server.run("reproduce", *words, "--device=cpu", "-o", undisturbed, watch=undisturbed)
    assert first.status == 0, first.log
    expected = without_times(json.loads((undisturbed / "result.json").read_bytes()))
    for step in np.linspace(1, first.steps, 5).round().astype(int).tolist():
        command = ["reproduce", *words, "--device=cpu", "-o", folder]
        assert server.run(*command, watch=folder, die=step).status == -signal.SIGKILL
        for path in folder.glob("[!.]*.json"):
            json.loads(path.read_bytes())
        ended = server.run(*command)
        assert ended.status == 0, ended.log
        assert without_times(json.loads((folder / "result.json").read_bytes())) == expected
        assert not [path for path in folder.iterdir() if path.name.startswith(".")]
        shutil.rmtree(folder)
