"""Which Ray is used, and what is said where there is none."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import pcmcnet as pn
from pcmcnet import cluster
from pcmcnet.cli.app import app
from pcmcnet.cluster import engine
from pcmcnet.errors import ConfigError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: None)


@pytest.mark.usefixtures("without_ray")
@pytest.mark.parametrize(
    "command",
    [
        ["fit", "none.csv", "--choice-set", "a", "--chosen", "b", "-o", "model"],
        ["predict", "model", "none", "-o", "out"],
        ["tune", "none.csv", "--choice-set", "a", "--chosen", "b", "-o", "study"],
        ["serve", "model"],
    ],
    ids=lambda command: command[0],
)
def test_without_ray_one_line_says_what_to_install(command: list[str]) -> None:
    run = CliRunner().invoke(app, [*command, "--engine", "ray"])
    assert isinstance(run.exception, ConfigError)
    assert str(run.exception) == "Ray is not installed, and this needs it: pip install 'pcmcnet[ray]'."


@pytest.mark.usefixtures("without_ray")
def test_without_ray_the_functions_say_so_too(data: pn.ChoiceData) -> None:
    with pytest.raises(ConfigError, match=r"pip install 'pcmcnet\[ray\]'"):
        cluster.fit(pn.PCMCNet(), data)


def test_workers_are_for_an_engine_that_has_them() -> None:
    run = CliRunner().invoke(app, ["predict", "model", "table", "-o", "out", "--workers", "2"])
    assert "--workers is for --engine ray" in str(run.exception)
    run = CliRunner().invoke(app, ["predict", "model", "table", "-o", "out", "--engine", "rey"])
    assert "unknown engine 'rey'. Did you mean 'ray'?" in str(run.exception)


@pytest.mark.usefixtures("local_ray")
def test_more_workers_than_there_is_room_for_are_refused(data: pn.ChoiceData) -> None:
    with pytest.raises(ConfigError, match="9 workers need as many CPUs, and this Ray has 4"):
        cluster.fit(pn.PCMCNet(), data, workers=9)
    with pytest.raises(ConfigError, match="workers must be a whole number of at least 1"):
        cluster.tune("pcmc-linear", data, workers=0)


def test_an_address_where_no_ray_is_is_named() -> None:
    code = "from pcmcnet.cluster.engine import connected\nwith connected(1): pass"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "RAY_ADDRESS": "not an address"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert "ConfigError: cannot connect to the Ray that RAY_ADDRESS=not an address names" in run.stderr


@pytest.mark.slow
def test_a_command_starts_its_own_ray_and_leaves_no_process(table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "trips.parquet")
    options = ["--choice-set", "individual", "--chosen", "choice", "--features", "totalPrice,nFlights"]
    options += ["--set", "hidden=8", "--set", "epochs=2", "--engine", "ray", "--workers", "2", "-o", "model"]
    command = [sys.executable, "-c", "from pcmcnet.cli import main; main()", "fit", "trips.parquet", *options]
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "RAY_TMPDIR": folder}
        environment.pop("RAY_ADDRESS", None)
        run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
        assert run.returncode == 0, run.stderr
        assert "epoch 2/2" in run.stderr
        commands = [file.read_bytes().decode(errors="replace") for file in running()]
        assert not [command for command in commands if folder in command]
    assert pn.load(tmp_path / "model").predict_proba(table).sum() == pytest.approx(200)


def running() -> list[Path]:
    return [file for file in Path("/proc").glob("[0-9]*/cmdline") if file.exists()]
