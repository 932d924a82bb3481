"""Checkpoints at an address: any folder, or what fsspec knows; here its file system in memory."""

from pathlib import Path

import pytest

from pcmcnet.cluster.run_folder import SharedFolder
from pcmcnet.errors import ArtifactError, InputError
from pcmcnet.training.checkpoint import CHECKPOINT
from pcmcnet.training.run_folder import REFIT


@pytest.fixture(params=["path", "file", "memory"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    places = {"path": str(tmp_path / "a b[1]"), "file": f"file://{tmp_path}/run", "memory": f"memory://{tmp_path.name}"}
    return places[request.param]


def test_what_one_worker_leaves_another_finds(address: str) -> None:
    with SharedFolder.opened(address) as first:
        assert not first.holds_checkpoints()
        first.pull()  # nothing there yet
        (first.own / "member-2").mkdir()
        (first.own / CHECKPOINT).write_bytes(b"one")
        (first.own / "member-2" / REFIT).write_bytes(b"two")
        (first.own / "other").write_bytes(b"not for others")
        first.push()
        assert first.holds_checkpoints()
    assert not first.own.exists()
    with SharedFolder.opened(address) as second:
        second.pull()
        found = {str(file.relative_to(second.own)) for file in second.own.rglob("*") if file.is_file()}
        assert found == {CHECKPOINT, f"member-2/{REFIT}"}
        assert (second.own / CHECKPOINT).read_bytes() == b"one"
        (second.own / "new").write_bytes(b"newer")
        (second.own / "new").replace(second.own / CHECKPOINT)
        second.push()
    with SharedFolder.opened(address) as third:
        third.pull()
        assert (third.own / CHECKPOINT).read_bytes() == b"newer"


def test_an_address_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be a shared folder"), SharedFolder.opened("nowhere://x"):
        pass


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with SharedFolder.opened(str(tmp_path / "file" / "run")) as folder:
        (folder.own / CHECKPOINT).write_bytes(b"one")
        with pytest.raises(ArtifactError, match=r"run/checkpoint\.safetensors cannot be written"):
            folder.push()
