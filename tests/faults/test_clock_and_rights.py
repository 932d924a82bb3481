"""A clock that runs backwards changes nothing; a read-only folder is reported, and nothing is lost."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pcmcnet.models import Boosted, load
from pcmcnet.tuning import tune

# Each reading of the clock is an hour earlier than the last.
BACKWARDS = """
    import time

    hour = [2_000_000_000.0]

    def earlier():
        hour[0] -= 3600
        return hour[0]

    time.time = earlier
    time.time_ns = lambda: int(earlier() * 1e9)
"""
FIT = ["--set=hidden=4", "--set=epochs=4", "--set=dropout=0.2", "--set=weight_decay=0"]
DIE = """
    import os, signal
    from pcmcnet.training.checkpoint import Checkpoint

    real, count = Checkpoint.write, [0]

    def write(self, state):
        real(self, state)
        count[0] += 1
        if count[0] == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    Checkpoint.write = write
"""


def weights(folder: Path) -> bytes:
    return (folder / "weights.safetensors").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(server: Any, table: Path, roles: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "model"
    assert server.run("fit", table, *roles, *FIT, "-o", folder).status == 0
    return folder


def test_a_clock_that_runs_backwards_changes_no_model(
    server: Any, undisturbed: Path, table: Path, roles: list[str], tmp_path: Path
) -> None:
    words = ["fit", table, *roles, *FIT, "-o", tmp_path / "model"]
    server.run(*words, before=BACKWARDS + DIE, every_state=True)
    for path in (tmp_path / "model").iterdir():
        os.utime(path, (1, 1))  # the modification time of files does not matter
    ended = server.run(*words, "--resume", before=BACKWARDS)
    assert ended.status == 0, ended.log
    assert "resuming after epoch 2" in ended.log
    assert weights(tmp_path / "model") == weights(undisturbed)
    assert all(entry["seconds"] > 0 for entry in load(tmp_path / "model").history)


def test_a_search_resumes_although_its_trials_are_in_the_future(
    table: Path, server: Any, roles: list[str], tmp_path: Path
) -> None:
    from pcmcnet.data import ChoiceData

    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["price", "comfort"])

    def search(folder: Path, trials: int) -> list[Any]:
        result = tune(Boosted(trees=4), data, space={"trees": (2, 9)}, trials=trials, folder=folder, progress=False)
        return [(trial.number, trial.value, trial.options) for trial in result.trials]

    search(tmp_path / "study", 1)
    with sqlite3.connect(tmp_path / "study" / "study.db") as connection:
        connection.execute("UPDATE trials SET datetime_start = '2999-01-01', datetime_complete = '2998-01-01'")
    connection.close()
    assert search(tmp_path / "study", 2) == search(tmp_path / "undisturbed", 2)


# -- read-only folders ---------------------------------------------------------------------------------------------


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Any]:
    """Make a folder read-only. Permissions do not stop root, so root mounts a read-only file system."""
    mounted: list[Path] = []

    def make(folder: Path) -> None:
        if os.geteuid():
            folder.chmod(0o555)
            return
        mount = shutil.which("mount") or "no mount"
        done = subprocess.run([mount, "--bind", str(folder), str(folder)], check=False, capture_output=True)
        if done.returncode:
            pytest.skip("nothing can be mounted here, and no rights stop root from writing")
        mounted.append(folder)
        subprocess.run([mount, "-o", "remount,ro,bind", str(folder)], check=True)

    yield make
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)
    tmp_path.chmod(0o755)


def test_a_read_only_folder_is_reported_before_and_during_a_fit(
    server: Any, model: Path, table: Path, roles: list[str], tmp_path: Path, read_only: Any
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    out = place / "out.csv"
    out.write_bytes(b"an earlier one")
    read_only(place)
    remedy = "Get write permission, or choose another location"
    commands: list[list[Any]] = [
        ["fit", table, *roles, *FIT, "-o", place / "model"],
        ["predict", model, table, "-o", out],
        ["tune", table, *roles, "--search", "lr=0.01,0.02", *FIT, "-o", place / "study"],
        ["compare", table, *roles, "--models", "uniform", "-o", place / "comparison"],
        ["simulate", "mlba", "--sets", 2, "-o", place / "table.csv"],
    ]
    for words in commands:
        message = server.run(*words).message
        assert "cannot be written: " in message
        assert remedy in message, message
    assert out.read_bytes() == b"an earlier one"
    assert [path.name for path in place.iterdir()] == ["out.csv"]


def test_a_run_in_a_read_only_folder_continues_elsewhere(
    server: Any, undisturbed: Path, table: Path, roles: list[str], tmp_path: Path, read_only: Any
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    server.run("fit", table, *roles, *FIT, "-o", place / "model", before=DIE, every_state=True)
    read_only(place)
    ended = server.run("fit", table, *roles, *FIT, "-o", place / "model", "--resume")
    assert "cannot be written: " in ended.message
    shutil.copytree(place / "model", tmp_path / "copy")
    ended = server.run("fit", table, *roles, *FIT, "-o", tmp_path / "copy", "--resume")
    assert ended.status == 0, ended.log
    assert weights(tmp_path / "copy") == weights(undisturbed)
