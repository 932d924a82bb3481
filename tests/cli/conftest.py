"""Run the program: its ``main`` in this process, or the program in a separate process."""

import contextlib
import io
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pyarrow as pa
import pyarrow.csv
import pytest

from choice_tables import trips
from pcmcnet.cli import main

SRC = Path(__file__).parents[2] / "src"

ROLES = ["--choice-set", "trip", "--chosen", "took", "--individual", "income", "--features", "price,comfort"]
QUICK = [
    f"--set={option}" for option in ("hidden=8", "epochs=3", "batch_size=8", "dropout=0.2", "lr=0.02", "weight_decay=0")
]


class Result(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """Return the single line of standard error that bad input causes."""
        assert self.status in (1, 2), self
        assert self.out == ""
        assert "Traceback" not in self.err
        *_, line = self.err.splitlines()
        assert line.startswith("error: ")
        assert self.err.count("error: ") == 1
        return line.removeprefix("error: ")


Run = Callable[..., Result]


def call(*words: object) -> Result:
    """Run ``main`` in this process."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["pcmcnet", *map(str, words)]
    with (
        mock.patch.object(sys, "argv", argv),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as stop,
    ):
        main()
    return Result(int(stop.value.code or 0), out.getvalue(), err.getvalue())


def call_with_log(*words: object) -> Result:
    """Run ``main`` in this process with messages on standard error, as in a separate process."""
    level = logging.root.level
    try:
        with mock.patch.object(logging.root, "handlers", []):  # otherwise the handlers of pytest take the messages
            return call(*words)
    finally:
        logging.root.setLevel(level)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", "COLUMNS": "120", "TERM": "dumb"}


def spawn(*words: object) -> Result:
    """Run the program in a separate process."""
    run = subprocess.run(
        [sys.executable, "-m", "pcmcnet", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    return Result(run.returncode, run.stdout, run.stderr)


@pytest.fixture(scope="session")
def cli() -> Run:
    return call


@pytest.fixture(scope="session")
def cli_with_log() -> Run:
    return call_with_log


@pytest.fixture(scope="session")
def program() -> Run:
    return spawn


@pytest.fixture(scope="session")
def start() -> Callable[..., subprocess.Popen[bytes]]:
    """Start the program with standard error in a pipe of one page: it blocks soon if it is not read."""

    def popen(*words: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "pcmcnet", *map(str, words)]
        return subprocess.Popen(command, stderr=subprocess.PIPE, bufsize=0, pipesize=4096, env=environment())

    return popen


@pytest.fixture(scope="session")
def roles() -> list[str]:
    """Return the options that give the roles of the columns of ``table``."""
    return ROLES


@pytest.fixture(scope="session")
def quick() -> list[str]:
    """Return options for a fit that takes a fraction of a second."""
    return QUICK


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a table of trips. Tests must not change it."""
    path = tmp_path_factory.mktemp("tables") / "trips.csv"
    pyarrow.csv.write_csv(pa.table(trips(24, sizes=(2, 4), mixed=True)), path)
    return path


@pytest.fixture(scope="session")
def model(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a model fitted to ``table``. Tests must not change it."""
    folder = tmp_path_factory.mktemp("models") / "model"
    result = call("fit", table, *ROLES, *QUICK, "-o", folder)
    assert result.status == 0, result.err
    return folder
