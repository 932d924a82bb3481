"""kill -9 at any moment leaves only complete files, and the same command resumes to the same result."""

import json
import re
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from pcmcnet.models import load

FIT = ["--set=hidden=4", "--set=epochs=6", "--set=batch_size=24", "--set=dropout=0.2", "--valid=0.25"]
FIT += ["--set=patience=6", "--set=refit=true", "--set=members=1"]


SLOW = pytest.mark.slow


def fitted_files(folder: Path) -> dict[str, bytes]:
    """Return the files of the model without those that depend on the time."""
    names = ["weights.safetensors", "encoder.json", "config.json", "schema.json"]
    return {name: (folder / name).read_bytes() for name in names}


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


# -- the trainer ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def undisturbed(server: Any, table: Path, roles: list[str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the model of an undisturbed fit, its seconds, and its number of file-system steps."""
    folder = tmp_path_factory.mktemp("undisturbed") / "model"
    words = ["fit", table, *roles, *FIT, "-o", folder]
    ended = server.run(*words, watch=folder.parent)
    assert ended.status == 0, ended.log
    return fitted_files(folder), ended.seconds, ended.steps


def disturb(server: Any, words: list[Any], folder: Path, sound: Any, rng: np.random.Generator, seconds: float) -> int:
    """Kill a fit, and some fits that resume it, at random moments; return the number of kills."""
    kills, more = 0, []
    while kills == 0 or rng.random() < 0.3:
        run = server.start(*words, *more)
        threading.Event().wait(rng.uniform(0, seconds))
        kills += run.kill().status == -signal.SIGKILL
        sound(folder)
        more = ["--resume"]
        if (folder / "model.json").exists():
            break
    return kills


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=SLOW)])
def test_a_fit_killed_at_random_moments_gives_the_same_model(
    kills: int, server: Any, undisturbed: Any, table: Path, roles: list[str], sound: Any, tmp_path: Path
) -> None:
    files, seconds, _ = undisturbed
    rng, folder, done = np.random.default_rng(kills), tmp_path / "model", 0
    words = ["fit", table, *roles, *FIT, "-o", folder]
    while done < kills:
        done += disturb(server, words, folder, sound, rng, seconds)
        ended = server.run(*words, "--resume")
        assert ended.status == 0 or "already holds a model" in ended.message, ended.log
        assert fitted_files(folder) == files
        assert hidden(folder) == hidden(tmp_path) == []
        shutil.rmtree(folder)


@pytest.mark.parametrize("share", [0.3, 0.97, 0.99])
def test_a_fit_killed_between_file_system_steps_gives_the_same_model(
    share: float, server: Any, undisturbed: Any, table: Path, roles: list[str], sound: Any, tmp_path: Path
) -> None:
    """The last steps save the model; a random moment rarely hits them."""
    files, _, steps = undisturbed
    folder = tmp_path / "model"
    words = ["fit", table, *roles, *FIT, "-o", folder]
    ended = server.run(*words, watch=tmp_path, die=round(share * steps))
    assert ended.status == -signal.SIGKILL
    sound(folder)
    ended = server.run(*words, "--resume")
    assert ended.status == 0 or "already holds a model" in ended.message, ended.log
    assert fitted_files(folder) == files


@pytest.mark.slow
def test_a_fit_killed_while_saving_gives_the_same_model(
    server: Any, undisturbed: Any, table: Path, roles: list[str], sound: Any, tmp_path: Path
) -> None:
    files, _, steps = undisturbed
    folder = tmp_path / "model"
    words = ["fit", table, *roles, *FIT, "-o", folder]
    for step in range(steps - 60, steps + 1):
        assert server.run(*words, watch=tmp_path, die=step).status == -signal.SIGKILL
        sound(folder)
        ended = server.run(*words, "--resume")
        assert ended.status == 0 or "already holds a model" in ended.message, ended.log
        assert fitted_files(folder) == files
        shutil.rmtree(folder)


# -- predictions and reports ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "stride"), [("parquet", 4), *(pytest.param(e, 1, marks=SLOW) for e in ("parquet", "csv", "arrow"))]
)
def test_a_killed_prediction_leaves_no_partial_file(
    ending: str, stride: int, server: Any, model: Path, table: Path, tmp_path: Path
) -> None:
    out = tmp_path / "deep" / f"out.{ending}"
    words = ["predict", model, table, "-o", out]
    undisturbed = server.run(*words, watch=tmp_path)
    assert undisturbed.status == 0, undisturbed.log
    content = out.read_bytes()
    for step in range(undisturbed.steps, 0, -stride):
        shutil.rmtree(out.parent, ignore_errors=True)
        assert server.run(*words, watch=tmp_path, die=step).status == -signal.SIGKILL
        assert not out.exists() or out.read_bytes() == content
    assert server.run(*words).status == 0
    assert out.read_bytes() == content
    assert [path.name for path in out.parent.iterdir()] == [out.name]  # files of the killed processes are removed


@pytest.mark.slow
def test_a_killed_prediction_leaves_the_old_or_the_new_file(
    server: Any, model: Path, table: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.parquet"
    words = ["predict", model, table, "-o", out]
    out.write_bytes(b"an older one")
    steps = server.run(*words, watch=tmp_path).steps
    content, versions = out.read_bytes(), set()
    for step in range(1, steps + 1):
        out.write_bytes(b"an older one")
        server.run(*words, watch=tmp_path, die=step)
        versions.add(out.read_bytes())
    assert versions == {b"an older one", content}


@pytest.mark.slow
def test_a_killed_report_leaves_complete_files(server: Any, model: Path, table: Path, tmp_path: Path) -> None:
    parts = ["importance", "elasticities", "context", "axioms", "examples"]
    words = ["explain", model, table, "-o", tmp_path / "report", "--baseline", "none", "--sets", 10]
    words += [word for part in parts for word in ("--skip", part)]
    undisturbed = server.run(*words, watch=tmp_path)
    assert undisturbed.status == 0, undisturbed.log
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "report").iterdir()}
    for step in range(max(1, undisturbed.steps - 12), undisturbed.steps + 1, 3):
        shutil.rmtree(tmp_path / "report", ignore_errors=True)
        assert server.run(*words, watch=tmp_path, die=step).status == -signal.SIGKILL
        for path in (tmp_path / "report").iterdir():
            assert path.name.startswith(".") or path.stat().st_size == sizes[path.name]
            if path.name == "explanation.json":
                json.loads(path.read_bytes())
    assert server.run(*words).status == 0


# -- the search ----------------------------------------------------------------------------------------------------

TUNE = ["--search", "lr=log:1e-3:1e-1", "--set=hidden=2", "--set=epochs=1", "--trials", "4"]


def essence(folder: Path) -> Any:
    result = json.loads((folder / "tuning.json").read_bytes())
    for trial in result["trials"]:
        del trial["seconds"]
    return result["best"], result["trials"]


@pytest.mark.slow
@pytest.mark.parametrize("kills", [10])
def test_a_killed_search_gives_the_same_result(
    kills: int, server: Any, table: Path, roles: list[str], tmp_path: Path
) -> None:
    first = server.run("tune", table, *roles, *TUNE, "-o", tmp_path / "undisturbed", watch=tmp_path)
    assert first.status == 0, first.log
    words, rng = ["tune", table, *roles, *TUNE, "-o", tmp_path / "study"], np.random.default_rng(kills)
    for _ in range(kills):
        server_run = server.start(*words)
        threading.Event().wait(rng.uniform(0, first.seconds))
        server_run.kill()
        ended = server.run(*words)
        assert ended.status == 0, ended.log
        assert essence(tmp_path / "study") == essence(tmp_path / "undisturbed")
        load(tmp_path / "study" / "model")
        shutil.rmtree(tmp_path / "study")


# -- the service ---------------------------------------------------------------------------------------------------

QUESTION = {"sets": [{"alternatives": [{"price": 3.0, "comfort": "low"}, {"price": 9.0, "comfort": "high"}]}]}


def serve(server: Any, model: Path) -> tuple[Any, str]:
    """Start a service, and return it with its address."""
    run = server.start("serve", model, "--port", "0")
    run.wait_for("(Ctrl+C stops)")
    address = re.search(r"http://\S+", run.log.read_text())
    assert address
    return run, address[0]


def test_a_restarted_service_gives_the_same_answers(server: Any, model: Path) -> None:
    run, address = serve(server, model)
    answer = httpx.post(f"{address}/predict", json=QUESTION).json()
    outcomes: list[str] = []
    barrier = threading.Barrier(5)

    def client() -> None:
        barrier.wait()
        while True:
            try:
                unchanged = httpx.post(f"{address}/predict", json=QUESTION, timeout=60).json() == answer
                outcomes.append("same" if unchanged else "other")
            except httpx.TransportError:
                outcomes.append("connection")
                return

    clients = [threading.Thread(target=client) for _ in range(4)]
    for thread in clients:
        thread.start()
    barrier.wait()
    while len(outcomes) < 8:  # all requests are in progress
        threading.Event().wait(0.01)
    assert run.kill().status == -signal.SIGKILL
    for thread in clients:
        thread.join()
    assert sorted(set(outcomes)) == ["connection", "same"]
    assert outcomes.count("connection") == 4  # each client got an error, and none a wrong answer

    again, address = serve(server, model)
    assert httpx.post(f"{address}/predict", json=QUESTION).json() == answer
    again.kill()
