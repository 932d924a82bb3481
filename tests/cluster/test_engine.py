"""Which Ray is used, and the messages without Ray."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

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
def test_without_ray_commands_say_what_to_install(command: list[str]) -> None:
    run = CliRunner().invoke(app, [*command, "--engine", "ray"])
    assert isinstance(run.exception, ConfigError)
    assert str(run.exception) == "Ray is not installed: pip install 'pcmcnet[ray]'."


@pytest.mark.usefixtures("without_ray")
def test_without_ray_functions_say_what_to_install(data: pn.ChoiceData) -> None:
    with pytest.raises(ConfigError, match=r"pip install 'pcmcnet\[ray\]'"):
        cluster.fit(pn.PCMCNet(), data)


def test_workers_need_an_engine_with_workers() -> None:
    run = CliRunner().invoke(app, ["predict", "model", "table", "-o", "out", "--workers", "2"])
    assert "--workers needs --engine ray" in str(run.exception)
    run = CliRunner().invoke(app, ["predict", "model", "table", "-o", "out", "--engine", "rey"])
    assert "unknown engine 'rey'. Did you mean 'ray'?" in str(run.exception)


@pytest.mark.usefixtures("local_ray")
def test_more_workers_than_cpus_are_rejected(data: pn.ChoiceData) -> None:
    with pytest.raises(ConfigError, match="9 workers need 9 CPUs, but Ray has 2"):
        cluster.fit(pn.PCMCNet(), data, workers=9)
    with pytest.raises(ConfigError, match="workers must be a whole number of at least 1"):
        cluster.tune("pcmc-linear", data, workers=0)


@pytest.mark.usefixtures("local_ray")
def test_a_local_ray_listens_only_on_the_loopback(listening: Callable[[], set[tuple[str, str]]]) -> None:
    ray = engine.require_ray()
    assert ray.get(ray.remote(lambda: "done").remote()) == "done"
    assert engine.is_on_loopback(ray)
    with socket.create_server(("", 0)):
        assert listening() == {("0.0.0.0", "this process")}  # an open port is detected
    assert listening() == set()


def test_a_ray_that_listens_to_other_machines_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    stubborn = SimpleNamespace(
        __version__="9.9",
        _private=SimpleNamespace(ray_constants=SimpleNamespace(ENABLE_RAY_CLUSTER=True)),
        util=SimpleNamespace(get_node_ip_address=lambda: "192.0.2.7"),
        init=lambda **options: calls.append(os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"]),
        shutdown=lambda: calls.append("stopped"),
    )
    monkeypatch.setattr(engine, "ensure_private_token", lambda: None)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    with pytest.raises(ConfigError, match=r"Ray 9\.9 would accept connections from other machines"):
        engine.start_local_ray(stubborn, 1)
    assert calls == ["0", "stopped"]
    assert stubborn._private.ray_constants.ENABLE_RAY_CLUSTER
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in os.environ
    assert os.environ["GLOO_SOCKET_IFNAME"] == "eth7"


def test_only_the_owner_can_read_the_token_of_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    token = tmp_path / ".ray" / "auth_token"
    engine.ensure_private_token()
    first = token.read_text()
    assert len(first) == 64
    assert token.stat().st_mode & 0o777 == 0o600
    token.chmod(0o644)  # the mode that Ray uses
    engine.ensure_private_token()
    assert token.read_text() == first
    assert token.stat().st_mode & 0o777 == 0o600
    token.unlink()
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    engine.ensure_private_token()
    assert not token.exists()


def test_workers_import_from_the_working_folder_only_if_this_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray adds the folder of the script and the working folder to the import path of its workers."""
    pytest.importorskip("ray")
    script, working = str(tmp_path / "script"), str(tmp_path)
    monkeypatch.chdir(tmp_path)
    for path, expected in (([script], [script]), ([script, ""], [script, working]), ([working], [working])):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", [*path, *sys.path])
            folders = engine._job_config()._py_driver_sys_path
            folders.extend([script, working])
            assert folders == expected


def test_an_address_without_ray_is_named() -> None:
    code = "from pcmcnet.cluster.engine import ray_connection\nwith ray_connection(1): pass"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "RAY_ADDRESS": "not an address"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert "ConfigError: cannot connect to Ray at RAY_ADDRESS=not an address" in run.stderr


@pytest.mark.slow
def test_a_command_starts_its_own_ray_and_stops_it(table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "trips.parquet")
    options = ["--choice-set", "individual", "--chosen", "choice", "--features", "totalPrice,nFlights"]
    options += ["--set", "hidden=8", "--set", "epochs=2", "--engine", "ray", "--workers", "2", "-o", "model"]
    command = [sys.executable, "-P", "-c", "from pcmcnet.cli import main; main()", "fit", "trips.parquet", *options]
    (tmp_path / "pcmcnet.py").write_text("raise SystemExit('a worker ran a file of the working folder')")
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "RAY_TMPDIR": folder}
        environment.pop("RAY_ADDRESS", None)
        run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
        assert run.returncode == 0, run.stderr
        assert "epoch 2/2" in run.stderr
        commands = [file.read_bytes().decode(errors="replace") for file in running_processes()]
        assert not [command for command in commands if folder in command]
    assert pn.load(tmp_path / "model").predict_proba(table).sum() == pytest.approx(200)


def running_processes() -> list[Path]:
    return [file for file in Path("/proc").glob("[0-9]*/cmdline") if file.exists()]
