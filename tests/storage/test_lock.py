"""A path has one writer at a time, and files of a dead writer do not block it."""

import errno
import json
import multiprocessing as mp
import os
import re
import signal
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import pytest

from pcmcnet import storage
from pcmcnet.errors import ArtifactError, InputError
from pcmcnet.storage import sole_writer, write_bytes


def hold(place: Path, ready: Connection) -> None:
    """Hold the lock of a path until killed."""
    with sole_writer(place):
        ready.send("held")
        signal.pause()


@pytest.fixture
def other(tmp_path: Path) -> mp.context.ForkProcess:
    """Start another process that holds the lock of ``tmp_path / "run"``."""
    ours, theirs = mp.Pipe()
    process = mp.get_context("fork").Process(target=hold, args=(tmp_path / "run", theirs))
    process.start()
    assert ours.recv() == "held"
    yield process
    process.kill()
    process.join()


def test_a_second_writer_learns_the_process_of_the_first(other: mp.context.ForkProcess, tmp_path: Path) -> None:
    message = rf"{re.escape(str(tmp_path / 'run'))} is being written by process {other.pid} on .+ \(.+\): wait until"
    with pytest.raises(ArtifactError, match=message), sole_writer(tmp_path / "run"):
        raise AssertionError("two writers")
    with sole_writer(tmp_path / "another"):
        pass


def test_the_lock_of_a_killed_process_is_released(other: mp.context.ForkProcess, tmp_path: Path) -> None:
    other.kill()
    other.join()
    assert [path.name for path in tmp_path.iterdir()] == [".run.lock"]
    with sole_writer(tmp_path / "run"):
        assert json.loads((tmp_path / ".run.lock").read_bytes())["process"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_a_link_shares_the_lock_of_its_target(other: mp.context.ForkProcess, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to("run")
    with pytest.raises(ArtifactError, match=f"process {other.pid}"), sole_writer(tmp_path / "link"):
        raise AssertionError("two writers")


def test_a_lock_can_be_taken_again_by_its_holder(tmp_path: Path) -> None:
    with sole_writer(tmp_path / "run"):
        with sole_writer(tmp_path / "run"):
            pass
        assert (tmp_path / ".run.lock").exists()


def test_another_thread_is_another_writer(tmp_path: Path) -> None:
    messages: list[str] = []

    def write() -> None:
        try:
            with sole_writer(tmp_path / "run"):
                messages.append("two writers")
        except ArtifactError as error:
            messages.append(str(error))

    with sole_writer(tmp_path / "run"):
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
    assert "is being written by another thread of this process" in messages[0]


def test_folders_created_for_the_lock_are_removed(tmp_path: Path) -> None:
    with sole_writer(tmp_path / "a" / "b" / "run"):
        pass
    assert list(tmp_path.iterdir()) == []
    with sole_writer(tmp_path / "a" / "b" / "run"):
        (tmp_path / "a" / "b" / "run").write_text("a result")
    assert (tmp_path / "a" / "b" / "run").read_text() == "a result"


def test_a_folder_in_a_read_only_folder_is_locked_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions do not stop root, so the refusal is simulated."""
    real = os.open

    def refuse(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            raise PermissionError
        return real(path, flags, mode)

    (tmp_path / "run").mkdir()
    monkeypatch.setattr(os, "open", refuse)
    messages: list[str] = []

    def write() -> None:
        try:
            with sole_writer(tmp_path / "run"):
                messages.append("two writers")
        except ArtifactError as error:
            messages.append(str(error))

    with sole_writer(tmp_path / "run"):
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
    assert "is being written by another process" in messages[0]
    with sole_writer(tmp_path / "run"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_only_files_of_dead_writers_are_removed(tmp_path: Path) -> None:
    process = mp.get_context("fork").Process(target=int)
    process.start()
    process.join()
    dead, living = process.pid, os.getppid()
    names = [f".{dead}.out.csv", f".{living}.out.csv", f".{dead}.other.csv", ".x.out.csv", "out.csv"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / f".{dead}.model").mkdir()
    (tmp_path / f".{dead}.model" / "config.json").touch()
    for place in ("out.csv", "model"):
        with sole_writer(tmp_path / place):
            pass
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])


def test_temporary_files_of_dead_writers_inside_a_folder_are_removed(
    other: mp.context.ForkProcess, tmp_path: Path
) -> None:
    other.kill()
    other.join()
    folder, dead = tmp_path / "results", other.pid
    (folder / "below").mkdir(parents=True)
    for name in ("a.json", "below/b.json", f".{dead}.a.json", f"below/.{dead}.b.json", f".{os.getpid()}.a.json"):
        (folder / name).touch()
    for name in (f".{dead}.missing.json", ".notes", f"{dead}.a.json"):
        (folder / name).touch()
    with pytest.raises(KeyError), sole_writer(folder):
        raise KeyError("the files may be incomplete")
    assert (folder / f".{dead}.a.json").exists()
    with sole_writer(folder):
        pass
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    expected = {f".{os.getpid()}.a.json", f".{dead}.missing.json", ".notes", f"{dead}.a.json"}
    assert files == {"a.json", "below/b.json"} | expected


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """Simulate Windows: only ``locking``, folders cannot be opened, open files cannot be removed.

    Returns the descriptors that are open.
    """
    real_open, real_close, real_unlink, flock = os.open, os.close, Path.unlink, storage.fcntl.flock
    opened: dict[int, str] = {}

    def open_file(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if Path(path).is_dir():
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        descriptor = real_open(path, flags, mode)
        opened[descriptor] = str(path)
        return descriptor

    def close(descriptor: int) -> None:
        opened.pop(descriptor, None)
        real_close(descriptor)

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if str(path) in opened.values():
            raise PermissionError(errno.EACCES, "in use by another process", str(path))
        real_unlink(path, missing_ok)

    def locking(descriptor: int, mode: int, count: int) -> None:
        assert (mode, count) == (2, 1)
        assert (
            os.lseek(descriptor, 0, os.SEEK_CUR) > 4096
        )  # beyond the note, which other processes must be able to read
        try:
            flock(descriptor, 2 | 4)
        except OSError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    monkeypatch.setattr(storage, "fcntl", None)
    monkeypatch.setattr(storage, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "open", open_file)
    monkeypatch.setattr(os, "close", close)
    monkeypatch.setattr(Path, "unlink", unlink)
    for name in ("pread", "pwrite"):
        monkeypatch.delattr(os, name)
    monkeypatch.setattr(os, "kill", lambda process, number: pytest.fail("a signal 0 is a Ctrl-C on Windows"))
    return opened


def test_a_second_writer_is_refused_on_windows(tmp_path: Path, windows: dict[int, str]) -> None:
    messages: list[str] = []

    def write() -> None:
        try:
            with sole_writer(tmp_path / "run"):
                messages.append("two writers")
        except ArtifactError as error:
            messages.append(str(error))

    (tmp_path / ".12345.run").touch()  # of a process that may still run
    with sole_writer(tmp_path / "run"):
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
        write_bytes(tmp_path / "run" / "result.json", b"{}")
    assert "is being written by another thread of this process" in messages[0]
    with sole_writer(tmp_path / "run"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [".12345.run", "run"]
    assert (tmp_path / "run" / "result.json").read_bytes() == b"{}"
    assert windows == {}


def test_a_system_without_locks_is_supported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "fcntl", None)
    with sole_writer(tmp_path / "run"):
        assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(storage.fcntl, "flock", refuse)
    with sole_writer(tmp_path / "run"):
        pass
    assert "the file system does not support locks" in caplog.text


def test_the_root_folder_is_refused() -> None:
    with pytest.raises(InputError, match="expected the name of a folder or file to write"), sole_writer(Path("/")):
        pass
