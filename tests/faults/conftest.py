"""Run the program in processes that can be killed at any moment or run out of disk space.

A server process has imported everything and forks a child for each run, which avoids the cost of fifty starts. A
child dies at its n-th file-system operation, or is killed from outside at any moment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet
import pytest
from safetensors import safe_open

from choice_tables import trips
from pcmcnet.errors import ArtifactError
from pcmcnet.models import load
from pcmcnet.models.interface.saving import MANIFEST
from pcmcnet.selection import TrialLog
from pcmcnet.training.checkpoint import Checkpoint
from pcmcnet.training.run_folder import SEARCH, checkpoint_files

SRC = Path(__file__).parents[2] / "src"
TIMEOUT = 120  # seconds, for a busy machine

SERVER = """
    import gc, json, os, resource, signal, sys

    import torch

    torch.set_num_threads(1)
    import jinja2, matplotlib.backends.backend_agg, matplotlib.pyplot, optuna, pandas, sklearn.ensemble
    from pydantic import TypeAdapter
    import pcmcnet.cli.app, pcmcnet.insight.explanation, pcmcnet.plots, pcmcnet.tuning.study
    import pcmcnet
    from pcmcnet.cli import main

    tiny = {"s": [0, 0, 1, 1], "y": [1, 0, 0, 1], "x": [1.0, 2.0, 1.0, 3.0]}  # a fit loads what is loaded on demand
    data = pcmcnet.ChoiceData.from_long(tiny, choice_set="s", chosen="y", features=["x"])
    for dropout in (0.0, 0.2):  # by compiled steps, and by those of PyTorch
        pcmcnet.PCMCNet(hidden=(2,), epochs=1, dropout=dropout, weight_decay=0.0).fit(data, data, progress=False)

    STEPS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")

    def watch(place, die):  # count steps in the file system below a place; die just before the n-th
        steps = [0]

        def hook(event, arguments):
            if event in STEPS and isinstance(arguments[0], str | os.PathLike) and place in str(arguments[0]):
                steps[0] += 1
                if steps[0] == die:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        return steps

    def run(job):
        log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(job["folder"])
        if job["before"]:
            exec(job["before"], {})
        steps = watch(job["watch"], job["die"]) if job["watch"] else [0]
        if job["limit"] is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (job["limit"], job["limit"]))
        sys.argv = ["pcmcnet", *job["words"]]
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        except BaseException:
            import traceback

            traceback.print_exc()
            code = 99
        sys.stdout.flush()
        sys.stderr.flush()
        if job["watch"]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            with open(job["log"] + ".steps", "w") as file:
                file.write(str(steps[0]))
        os._exit(code)

    gc.freeze()  # children share what is there, and do not search it for garbage
    for line in sys.stdin:
        job = json.loads(line)
        if "wait" in job:
            answer = os.waitstatus_to_exitcode(os.waitpid(job["wait"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                run(job)
        print(answer, flush=True)
"""


EVERY_STATE = """
    from pcmcnet.training.checkpoint import CheckpointWriter

    save = CheckpointWriter.save

    def save_every_state(self, state):
        save(self, state)
        self.wait()

    CheckpointWriter.save = save_every_state
"""


class Ended(NamedTuple):
    """The result of a run."""

    status: int
    log: str
    seconds: float
    steps: int = 0

    @property
    def message(self) -> str:
        """Return the single line of the error."""
        assert self.status in (1, 2), self
        assert "Traceback" not in self.log, self.log
        *_, line = self.log.splitlines()
        assert line.startswith("error: "), self.log
        return line.removeprefix("error: ")


class Run:
    """A running program."""

    def __init__(self, server: Server, pid: int, log: Path) -> None:
        self.server, self.pid, self.log, self.began = server, pid, log, time.perf_counter()

    def kill(self) -> Ended:
        """Kill the process with SIGKILL, which it cannot handle."""
        os.kill(self.pid, signal.SIGKILL)  # at worst a zombie that the server has not reaped yet
        return self.end()

    def wait_for(self, words: str) -> None:
        """Wait until the program has printed these words."""
        until = time.monotonic() + TIMEOUT
        while words not in self.log.read_text():
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.01)

    def end(self) -> Ended:
        status = self.server.ask({"wait": self.pid})
        steps = Path(f"{self.log}.steps")
        counted = int(steps.read_text()) if steps.exists() else 0
        return Ended(status, self.log.read_text(), time.perf_counter() - self.began, counted)


class Server:
    """A process that forks children to run the program."""

    def __init__(self, folder: Path) -> None:
        more = {"PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "CUDA_VISIBLE_DEVICES": ""}
        self.folder, self.count = folder, 0
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **more},
        )

    def ask(self, job: dict[str, Any]) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def start(
        self,
        *words: object,
        before: str = "",
        every_state: bool = False,
        watch: object = "",
        die: int = 0,
        limit: int | None = None,
    ) -> Run:
        """Run the program; ``before`` is Python to run first, ``limit`` the size in bytes that a file may have.

        With ``every_state``, each epoch waits until its state is written; otherwise timing decides which are written.
        """
        self.count += 1
        log = self.folder / f"log-{self.count}"
        log.touch()
        job = {"words": [str(word) for word in words], "log": str(log), "folder": str(self.folder)}
        first = EVERY_STATE if every_state or watch else ""  # counted steps must be the same in every run
        before = textwrap.dedent(first) + textwrap.dedent(before)
        job |= {"before": before, "watch": str(watch), "die": die, "limit": limit}
        return Run(self, self.ask(job), log)

    def run(self, *words: object, **options: Any) -> Ended:
        return self.start(*words, **options).end()

    def stop(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(TIMEOUT)
        self.process.stdout.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


ROLES = ["--choice-set", "trip", "--chosen", "took", "--features", "price,comfort"]


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a table that tests only read."""
    path = tmp_path_factory.mktemp("tables") / "trips.parquet"
    pyarrow.parquet.write_table(pa.table(trips(48, sizes=(2, 4), slope=-1 / 5)), path, write_page_checksum=True)
    return path


@pytest.fixture(scope="session")
def roles() -> list[str]:
    return ROLES


@pytest.fixture(scope="session")
def model(server: Server, table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fit a model that tests only read."""
    folder = tmp_path_factory.mktemp("models") / "model"
    ended = server.run("fit", table, *ROLES, "--set=hidden=4", "--set=epochs=2", "--set=weight_decay=0", "-o", folder)
    assert ended.status == 0, ended.log
    return folder


def require_sound(folder: Path) -> None:
    """Check that nothing in a run's folder is damaged: models load, and every checkpoint can be read."""
    if not folder.exists():
        return
    if (folder / MANIFEST).exists():
        load(folder)
        return
    for path in checkpoint_files(folder):
        if path.name == SEARCH:
            entries = json.loads(path.read_bytes())
            assert TrialLog.open(path, entries["identity"], resume=True).losses == entries["losses"]
            continue
        with safe_open(path, framework="pt") as file:
            identity = json.loads(file.metadata()["state"])["identity"]
        assert Checkpoint(path, identity, resume=True).read() is not None
    with pytest.raises(ArtifactError, match=r"with fit --resume|is not a saved model"):
        load(folder)


@pytest.fixture(scope="session")
def sound() -> Any:
    return require_sound
