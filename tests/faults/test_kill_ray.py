"""kill -9 of a command that uses Ray ends its workers, and the same command resumes."""

import os
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from pcmcnet.models import load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
    pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra ray"),
]
PATIENCE = 180  # seconds until Ray has ended without its command
FIT = ["--set=hidden=4", "--set=epochs=150", "--set=batch_size=24", "--set=schedule=constant"]
RAY = ["--engine=ray", "--workers=2"]


class Marked:
    """The processes of one Ray instance: all inherit an environment variable."""

    def __init__(self, folder: str) -> None:
        self.mark = uuid.uuid4().hex
        settings = {"RAY_TMPDIR": folder, "PCMCNET_TEST_MARK": self.mark, "RAY_BACKEND_LOG_LEVEL": "fatal"}
        settings |= {"RAY_TRAIN_METRICS_ENABLED": "0", "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0"}
        self.before = f"import os\nos.environ.update({settings!r})\nos.environ.pop('RAY_ADDRESS', None)"

    def alive(self) -> list[str]:
        """Return the commands of running processes."""
        commands = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                with suppress(OSError):
                    if self.mark.encode() in (folder / "environ").read_bytes():
                        commands.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return commands

    def wait(self) -> float:
        """Wait until all have ended; return the seconds."""
        began = time.monotonic()
        while running := self.alive():
            assert time.monotonic() - began < PATIENCE, running
            time.sleep(0.05)
        return time.monotonic() - began


@pytest.fixture
def ray() -> Iterator[Marked]:
    """Mark the Ray processes of a command to distinguish them from others, and check that none remain."""
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:
        marked = Marked(folder)
        yield marked
        marked.wait()


def until(condition: Any, run: Any) -> None:
    """Wait until a condition holds while a command runs."""
    ends = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < ends, run.log.read_text()
        time.sleep(0.005)


def test_a_killed_distributed_fit_resumes_to_the_same_model(
    server: Any, ray: Marked, table: Path, roles: list[str], sound: Any, tmp_path: Path
) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "model"
    undisturbed = server.run("fit", table, *roles, *FIT, *RAY, "-o", whole, before=ray.before)
    assert undisturbed.status == 0, undisturbed.log
    words = ["fit", table, *roles, *FIT, *RAY, "-o", folder]
    run = server.start(*words, before=ray.before)
    until((folder / "checkpoint.safetensors").exists, run)
    assert len(ray.alive()) > 3
    run.kill()
    sound(folder)
    assert not (folder / "model.json").exists()
    ray.wait()
    sound(folder)
    refused = server.run(*words, before=ray.before)
    assert "holds an unfinished run" in refused.message
    ended = server.run(*words, "--resume", before=ray.before)
    assert ended.status == 0, ended.log
    for name in ("weights.safetensors", "encoder.json"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    assert len(load(folder).history) == 150


def test_a_killed_distributed_prediction_resumes_with_its_files(
    server: Any, ray: Marked, model: Path, table: Path, tmp_path: Path
) -> None:
    source, target, files = tmp_path / "in", tmp_path / "out", 120
    source.mkdir()
    rows = pq.read_table(table)
    for k in range(files):
        ids = rows["trip"].to_numpy() + 1000 * k
        pq.write_table(rows.set_column(0, "trip", [ids]), source / f"{k:03}.parquet")
    words = ["predict", model, source, *RAY, "-o", target]
    run = server.start(*words, before=ray.before)
    until(lambda: len(list(target.glob("[!.]*.parquet"))) >= 5, run)
    run.kill()
    ray.wait()
    finished = {path: path.stat().st_mtime_ns for path in target.glob("[!.]*.parquet")}
    assert 5 <= len(finished) < files
    expected = load(model).predict_proba(rows)
    for path in finished:
        np.testing.assert_allclose(pq.read_table(path)["probability"].to_numpy(), expected, rtol=0, atol=1e-7)
    ended = server.run(*words, before=ray.before)
    assert ended.status == 0, ended.log
    assert ended.log.count("already predicted") == len(finished)
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert sorted(path.name for path in target.iterdir()) == [f"{k:03}.parquet" for k in range(files)]
    for k in range(files):
        predictions = pq.read_table(target / f"{k:03}.parquet")
        assert predictions.drop_columns("probability").equals(pq.read_table(source / f"{k:03}.parquet"))
        np.testing.assert_allclose(predictions["probability"].to_numpy(), expected, rtol=0, atol=1e-7)
