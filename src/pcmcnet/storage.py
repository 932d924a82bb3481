"""Files written whole or not at all, and locks: one writer at a time.

A file is written beside its place and renamed into it, so a reader sees the old file or the new one, never half. In
addition: JSON in and out, how two JSON objects differ, and which version of a package is installed.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
import socket
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from pcmcnet.errors import ArtifactError, InputError

log = logging.getLogger("pcmcnet")

_SHORT = 60  # characters: a longer value, such as a hash, says nothing to a person
_SPACE = "Free some space, or choose another place, and try again; what was there before is as it was."
_RIGHTS = "Ask for the right to write there, or choose another place."
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _SPACE),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _RIGHTS),
}


def as_path(folder: Any) -> Path:
    """Take the path of a folder, refusing what is none."""
    if not isinstance(folder, str | os.PathLike):
        raise InputError(f"expected the path of a folder, got {type(folder).__name__}.")
    return Path(folder)


@contextmanager
def atomic_write(path: str | Path, named: object = None) -> Iterator[Path]:
    """Yield a path beside ``path`` to write to; it takes the place of ``path`` only if the block succeeds.

    ``named`` is what an error calls it, in place of its path.

    Raises
    ------
    ArtifactError
        When there is no space for it, or no right to write there.
    """
    target = Path(path)
    beside = target.with_name(f".{os.getpid()}.{target.name}")  # keeps the ending, which some writers go by
    with explain_write_errors(named or target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield beside
            flush_to_disk(beside)
            beside.replace(target)
            flush_to_disk(target.parent)  # so that the new name outlives a power cut
        finally:
            with suppress(OSError):  # what went wrong before is what to hear of
                beside.unlink(missing_ok=True)


@contextmanager
def explain_write_errors(place: object) -> Iterator[None]:
    """Say in one sentence why a file or folder cannot be written, and what to do."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        remedy = _REMEDIES.get(error.errno or 0, "Choose another place.")
        raise ArtifactError(f"{place} cannot be written: {reason}. {remedy}") from error


def flush_to_disk(path: Path) -> None:
    """Wait until a file or the names in a folder are on the disk."""
    windows = sys.platform == "win32"
    if windows and path.is_dir():
        return  # it opens no folders, and sees to names by itself
    descriptor = os.open(path, os.O_RDWR if windows else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot do that for a folder
            raise
    finally:
        os.close(descriptor)


def json_bytes(value: Any) -> bytes:
    """Return the content of a JSON file that a person can read."""
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON text says; ValueError if it is no JSON, or nested deeper than anything pcmcnet writes."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def write_bytes(path: str | Path, content: bytes, named: object = None) -> None:
    """Write a whole file atomically; see :func:`atomic_write`."""
    with atomic_write(path, named) as beside:
        beside.write_bytes(content)


def require_folder(folder: str | os.PathLike[str]) -> Path:
    """Make the folder of a result, or say why it cannot be one, before any work is done for it."""
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{place} cannot be a folder: {error.strerror or error}. Choose another one.") from error
    return place


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any], *, prefix: str = "") -> list[str]:
    """Name what differs, entries of entries by their path, with both values where a person can tell them apart.

    Examples
    --------
    >>> differences({"seed": 0, "options": {"lr": 0.1, "hidden": [8]}}, {"seed": 1, "options": {"lr": 0.1}})
    ['seed (0 there, 1 here)', 'options.hidden ([8] there, null here)']
    """
    found: list[str] = []
    for name in {**ours, **theirs}:
        there, here = theirs.get(name), ours.get(name)
        if isinstance(there, Mapping) and isinstance(here, Mapping):
            found += differences(there, here, prefix=f"{prefix}{name}.")
        elif there != here:
            values = [json.dumps(value) for value in (there, here)]
            both = "" if max(map(len, values)) > _SHORT else f" ({values[0]} there, {values[1]} here)"
            found.append(f"{prefix}{name}{both}")
    return found


def package_version(name: str) -> str:
    """Return the version of an installed distribution; a source tree on the path is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed as a package"


# -- Locks -------------------------------------------------------------------------------------------------------------
#
# One writer at a time: whoever writes a folder or a file holds a lock on it, and others are told who that is.
#
#     .<name>.lock    beside the folder or file, while it is written: the process, its machine and its command
#
# The system holds the lock (``flock``, or ``locking`` on Windows), not the file: it ends with its process, however
# that ends, so what a killed process leaves is no obstacle. Where the system has no locks, there are none.
#
# Many may read: a folder that is in use is held by one of its files, and is not removed as long as anybody holds it.

fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None
msvcrt: Any = import_module("msvcrt") if find_spec("msvcrt") else None  # on Windows

_FAR = 2**30  # the byte that is locked on Windows, where nobody else may read what is
_held: set[tuple[int, int, Path]] = set()  # process, thread and place: a writer may call another for the same place


@contextmanager
def sole_writer(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the right to write a folder or file, and sweep away what killed writers left beside it and within it.

    Raises
    ------
    ArtifactError
        When another process, or another thread, is writing there; the message says which.
    InputError
        When it is the root of a disk.
    """
    place = Path(path).resolve()
    if not place.name:
        raise InputError(f"{path}: expected the name of a folder or file to write, got the root of a disk.")
    key = (os.getpid(), threading.get_ident(), place)
    if (fcntl or msvcrt) is None or key in _held:
        yield
        return
    made = [folder for folder in place.parents if not folder.exists()]  # the deepest first
    with suppress(OSError):  # who writes there says better what is wrong
        place.parent.mkdir(parents=True, exist_ok=True)
    lock = _acquire(place)
    _held.add(key)
    try:
        sweep(place)
        yield
        _sweep_within(place)
    finally:
        _held.discard(key)
        if lock is not None:
            _release(lock, place)
        for folder in made:  # where nothing came of it, nothing is left
            with suppress(OSError):
                folder.rmdir()


class SharedLock:
    """A file in use, for as long as this object lives: nobody removes its folder by :func:`remove_if_unlocked`."""

    def __init__(self, file: Path) -> None:
        self.file = file
        with suppress(OSError):  # whoever reads says what is wrong
            descriptor = os.open(file, os.O_RDONLY)
            weakref.finalize(self, os.close, descriptor)
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_SH)

    def __reduce__(self) -> tuple[type[SharedLock], tuple[Path]]:
        return SharedLock, (self.file,)  # another process holds it as well


def remove_if_unlocked(file: Path) -> None:
    """Remove the folder of a file, unless the file is held or that cannot be known."""
    with suppress(OSError):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                gone = file.parent.with_name(f".{socket.gethostname()}.{os.getpid()}.{file.parent.name}")
                file.parent.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
        finally:
            os.close(descriptor)


def sweep(place: Path) -> None:
    """Remove half-written files and folders beside a place, whose writers are dead."""
    left = re.compile(rf"\.(\d+)\.{re.escape(place.name)}")
    for path in place.parent.iterdir() if place.parent.is_dir() else ():
        match = left.fullmatch(path.name)
        if match and not is_alive(int(match[1])):
            with suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _sweep_within(folder: Path) -> None:
    """Remove half-written files of dead writers below a folder, each of which has been written whole since."""
    for path in folder.rglob(".*") if folder.is_dir() else ():
        match = re.fullmatch(r"\.(\d+)\.(.+)", path.name)
        if match and path.with_name(match[2]).is_file() and not is_alive(int(match[1])):
            with suppress(OSError):
                path.unlink()


class _Lock(NamedTuple):
    descriptor: int
    file: Path


def _acquire(place: Path) -> _Lock | None:
    """Lock a place, or say who has; None where there are no locks, or no right to make one."""
    while True:
        lock = _open(place)
        if lock is None:
            return None
        try:
            _take(lock.descriptor)
        except OSError as error:
            holder = _holder(lock.descriptor)
            os.close(lock.descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                log.warning("%s: this file system has no locks; see that no other process writes there", place)
                return None
            raise ArtifactError(
                f"{place} is being written by {holder}: wait until it has ended, or choose another place."
            ) from error
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.descriptor), lock.file.stat()):
                _sign(lock)
                return lock
        os.close(lock.descriptor)  # the former holder removed the file after it was opened here: again


def _open(place: Path) -> _Lock | None:
    """Open what is to be locked: a file beside the place, or a folder itself where none can be made beside it."""
    file = place.with_name(f".{place.name}.lock")
    for path, flags in ((file, os.O_RDWR | os.O_CREAT), (place, os.O_RDONLY)):
        with suppress(OSError):
            if path == file or place.is_dir():
                return _Lock(os.open(path, flags, 0o666), path)
    return None


def _take(descriptor: int) -> None:
    """Lock an open file, or raise an ``OSError`` at once."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)


def _release(lock: _Lock, place: Path) -> None:
    """End a lock and remove its file: before others can have it, or on Windows after, as it removes no open file."""
    if fcntl is None:
        os.close(lock.descriptor)
    with suppress(OSError):  # another process has it open already
        if lock.file != place:
            lock.file.unlink(missing_ok=True)
    if fcntl is not None:
        os.close(lock.descriptor)


def _sign(lock: _Lock) -> None:
    """Write down who holds a lock."""
    note = {"process": os.getpid(), "machine": socket.gethostname(), "command": " ".join(sys.argv)[:200]}
    with suppress(OSError):  # a full disk is no reason to have no lock
        os.ftruncate(lock.descriptor, 0)
        os.lseek(lock.descriptor, 0, os.SEEK_SET)
        os.write(lock.descriptor, json.dumps(note).encode())


def _holder(descriptor: int) -> str:
    """Name the process that holds a lock, as it wrote itself down."""
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        note = parse_json(os.read(descriptor, 4096))
        if note["process"] == os.getpid():
            return "another thread of this process"
        return f"process {note['process']} on {note['machine']} ({note['command']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def is_alive(process: int) -> bool:
    """Return whether a process of this machine runs; also True if it may not be asked, as on Windows."""
    if sys.platform == "win32":
        return True  # there, the question below would be a Ctrl-C
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
