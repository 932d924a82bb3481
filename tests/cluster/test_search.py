"""Parallel trials in one study: none is lost or repeated if workers die."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

import pcmcnet as pn
from pcmcnet import cluster

SPACE = {"lr": [0.001, 0.002, 0.003, 0.004, 0.005]}  # too few for pruning
OPTIONS: dict[str, Any] = {"hidden": (4,), "epochs": 1, "weight_decay": 1.0, "lr": 0.001}
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests


class Fragile(pn.PCMCNet):
    """A network whose first fit with a learning rate of 0.004 kills its worker."""

    marker = ""

    def _fit(self, *given: Any) -> Any:
        marker = Path(type(self).marker)
        if self.config.lr == 0.004 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._fit(*given)


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("tried", [3, pytest.param(5, marks=pytest.mark.slow)])  # the fourth, 0.004, kills the worker
def test_every_configuration_is_tried_once_if_a_worker_is_killed(
    tried: int, data: pn.ChoiceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fragile, "marker", str(tmp_path / "killed"))
    part, folder, space = data.subset(range(40)), tmp_path / "study", {"lr": SPACE["lr"][:tried]}
    search: dict[str, Any] = {"space": space, "folder": folder, "progress": False}
    first = cluster.tune(Fragile(**OPTIONS), part, workers=min(tried - 2, 2), trials=tried - 2, **search)
    assert len(first.trials) == tried - 2
    whole = cluster.tune(Fragile(**OPTIONS), part, workers=2, trials=tried, **search)
    assert Path(Fragile.marker).exists() == (tried == 5)
    assert [trial.state for trial in whole.trials] == ["complete"] * tried
    assert sorted(trial.options["lr"] for trial in whole.trials) == space["lr"]
    assert whole.trials[: tried - 2] == first.trials
    alone = pn.tune(pn.PCMCNet(**OPTIONS), part, space=space, trials=tried, progress=False)
    values = {trial.options["lr"]: trial.value for trial in alone.trials}
    assert {trial.options["lr"]: trial.value for trial in whole.trials} == pytest.approx(values, abs=1e-6)
    assert whole.best == alone.best
    assert whole.kept_options == alone.kept_options
    assert [trial.defaults for trial in whole.trials] == [True] + [False] * (tried - 1)


@pytest.mark.usefixtures("local_ray")
@pytest.mark.slow
def test_pruning_and_failures_are_the_same_as_in_one_process(data: pn.ChoiceData, tmp_path: Path) -> None:
    options = {"hidden": (8,), "epochs": 6, "schedule": "constant", "batch_size": 40, "weight_decay": 0.0, "lr": 1e-3}
    space = {"lr": [1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 1e-7, 1e-8], "rate": ["exp", "relu"]}  # relu needs an epsilon
    result = cluster.tune(
        pn.PCMCNet(**options), data, workers=2, space=space, trials=14, folder=tmp_path, progress=False
    )
    failed = [trial for trial in result.trials if trial.state == "failed"]
    assert {trial.options["rate"] for trial in failed} == {"relu"}
    assert len(failed) == 7
    assert all("epsilon" in str(trial.message) for trial in failed)
    for trial in result.trials:
        if trial.state == "pruned":
            assert trial.epochs is None
            assert "after the first fold" in str(trial.message)
    assert len({tuple(trial.options.values()) for trial in result.trials}) == 14


@pytest.mark.slow
def test_a_killed_search_resumes_its_running_trials(table: pa.Table, tmp_path: Path) -> None:
    """The command is killed with kill -9 twice, after some trials; its Ray ends too."""
    pq.write_table(table, tmp_path / "trips.parquet")
    folder = tmp_path / "study"
    options = ["--choice-set", "individual", "--chosen", "choice", "--features", "totalPrice,nFlights"]
    options += ["--set", "hidden=8", "--set", "epochs=40", "--set", "weight_decay=1"]
    options += ["--search", "lr=0.001,0.002,0.003,0.004,0.005,0.006"]
    options += ["--trials", "6", "--engine", "ray", "--workers", "2", "-o", str(folder)]
    code = "from pcmcnet.cli import main; main()"
    command = [sys.executable, "-c", code, "tune", str(tmp_path / "trips.parquet"), *options]
    short = tempfile.TemporaryDirectory(prefix="ray", dir="/tmp")  # names of sockets must be short
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "RAY_TMPDIR": short.name}
    environment.pop("RAY_ADDRESS", None)
    for wanted in (1, 3):
        log = (tmp_path / f"log-{wanted}").open("w+")
        running = subprocess.Popen(command, stderr=log, stdout=log, env=environment)
        until = time.monotonic() + 300
        while running.poll() is None and (tmp_path / f"log-{wanted}").read_text().count("trial ") < wanted:
            assert time.monotonic() < until
            time.sleep(0.1)
        running.kill()
        running.wait()
        log.close()
        while any(short.name in command for command in commands()):
            assert time.monotonic() < until
            time.sleep(0.1)
    run = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr
    short.cleanup()
    trials = json.loads(run.stdout)["trials"]
    assert sorted(trial["options"]["lr"] for trial in trials) == [0.001, 0.002, 0.003, 0.004, 0.005, 0.006]


def commands() -> list[str]:
    """Return the commands of all processes on this machine."""
    result = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended in the meantime
            result.append(file.read_bytes().decode(errors="replace"))
    return result
