"""Atomic writes, locks that allow only one writer, JSON, and installed versions.

A file is written under a temporary name in the same folder and then renamed, so a reader sees either the old or the new
file, never an incomplete one.
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

_MAX_SHOWN_CHARACTERS = 60  # longer values, such as hashes, do not help a reader
_FREE_SPACE = "Free some space or choose another location, then try again; existing files are unchanged."
_GET_PERMISSION = "Get write permission, or choose another location."
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _FREE_SPACE),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _GET_PERMISSION),
}


def as_path(folder: Any) -> Path:
    """Return a folder as a Path. Raise InputError if the value is not a path."""
    if not isinstance(folder, str | os.PathLike):
        raise InputError(f"expected the path of a folder, got {type(folder).__name__}.")
    return Path(folder)


@contextmanager
def atomic_write(path: str | Path, named: object = None) -> Iterator[Path]:
    """Yield a temporary path to write to. The temporary file replaces ``path`` if the block succeeds.

    Parameters
    ----------
    path
        The file to write.
    named
        Name of the file in error messages (default: its path).

    Raises
    ------
    ArtifactError
        If there is no space or no write permission.
    """
    target = Path(path)
    temporary = target.with_name(f".{os.getpid()}.{target.name}")  # same suffix: some writers choose the format by it
    with explain_write_errors(named or target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            flush_to_disk(temporary)
            temporary.replace(target)
            flush_to_disk(target.parent)  # the new name survives a power failure
        finally:
            with suppress(OSError):  # the first error is the one to report
                temporary.unlink(missing_ok=True)


@contextmanager
def explain_write_errors(target: object) -> Iterator[None]:
    """Convert an OSError in the block to an ArtifactError that explains why ``target`` cannot be written."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        remedy = _REMEDIES.get(error.errno or 0, "Choose another location.")
        raise ArtifactError(f"{target} cannot be written: {reason}. {remedy}") from error


def flush_to_disk(path: Path) -> None:
    """Wait until a file, or the list of files in a folder, is stored on disk (fsync)."""
    on_windows = sys.platform == "win32"
    if on_windows and path.is_dir():
        return  # Windows cannot open a folder as a file, and stores names itself
    descriptor = os.open(path, os.O_RDWR if on_windows else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems do not support fsync for a folder
            raise
    finally:
        os.close(descriptor)


def json_bytes(value: Any) -> bytes:
    """Return a value as the content of an indented JSON file."""
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON text. Raise ValueError if the text is not valid JSON or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def write_bytes(path: str | Path, content: bytes, named: object = None) -> None:
    """Write a whole file atomically, with :func:`atomic_write`."""
    with atomic_write(path, named) as temporary:
        temporary.write_bytes(content)


def require_folder(folder: str | os.PathLike[str]) -> Path:
    """Create the folder for a result before the computation starts. Raise InputError if that fails."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"folder {path} cannot be created: {error.strerror or error}. Choose another one.") from error
    return path


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any], *, prefix: str = "") -> list[str]:
    """Return the names of differing entries (for nested entries, the path), with both values if they are short.

    Examples
    --------
    >>> differences({"seed": 0, "options": {"lr": 0.1, "hidden": [8]}}, {"seed": 1, "options": {"lr": 0.1}})
    ['seed (0 there, 1 here)', 'options.hidden ([8] there, null here)']
    """
    differing: list[str] = []
    for name in {**ours, **theirs}:
        theirs_value, our_value = theirs.get(name), ours.get(name)
        if isinstance(theirs_value, Mapping) and isinstance(our_value, Mapping):
            differing += differences(theirs_value, our_value, prefix=f"{prefix}{name}.")
        elif theirs_value != our_value:
            values = [json.dumps(value) for value in (theirs_value, our_value)]
            both = "" if max(map(len, values)) > _MAX_SHOWN_CHARACTERS else f" ({values[0]} there, {values[1]} here)"
            differing.append(f"{prefix}{name}{both}")
    return differing


def package_version(name: str) -> str:
    """Return the version of an installed distribution. A source tree on the path does not count as installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed as a package"


# -- Locks -------------------------------------------------------------------------------------------------------------
#
# One writer at a time: a process that writes a folder or a file holds a lock on it. A second process gets an error
# that names the first.
#
#     .<name>.lock    next to the folder or file while it is written: process, machine and command of the writer
#
# The lock belongs to the operating system (``flock``, or ``locking`` on Windows). It ends with its process, so the lock
# file of a killed process does not block anyone. A file system without locks is used without locking.
#
# Many readers: a reader holds a shared lock on one file of a folder, and a folder with a locked file is not removed.

fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None
msvcrt: Any = import_module("msvcrt") if find_spec("msvcrt") else None  # on Windows

_LOCKED_BYTE = 2**30  # position of the locked byte on Windows, beyond the content, which others must be able to read
_held: set[tuple[int, int, Path]] = set()  # process, thread and path: a writer may lock its path a second time


@contextmanager
def sole_writer(path: str | os.PathLike[str]) -> Iterator[None]:
    """Lock a folder or file for writing, and remove temporary files left by killed writers.

    Raises
    ------
    ArtifactError
        If another process or thread, which the message names, is writing to the path.
    InputError
        If the path is the root of a disk.
    """
    target = Path(path).resolve()
    if not target.name:
        raise InputError(f"{path}: expected the name of a folder or file to write, got a root folder.")
    key = (os.getpid(), threading.get_ident(), target)
    if (fcntl or msvcrt) is None or key in _held:
        yield
        return
    new_folders = [folder for folder in target.parents if not folder.exists()]  # the deepest first
    with suppress(OSError):  # the writer of the block reports it with more context
        target.parent.mkdir(parents=True, exist_ok=True)
    lock = _acquire(target)
    _held.add(key)
    try:
        remove_leftovers(target)
        yield
        _remove_leftovers_within(target)
    finally:
        _held.discard(key)
        if lock is not None:
            _release(lock, target)
        for folder in new_folders:  # rmdir succeeds only for folders that stayed empty
            with suppress(OSError):
                folder.rmdir()


class SharedLock:
    """Shared lock on a file, held while this object exists, so that :func:`remove_if_unlocked` keeps its folder."""

    def __init__(self, file: Path) -> None:
        self.file = file
        with suppress(OSError):  # the reader of the file reports the error
            descriptor = os.open(file, os.O_RDONLY)
            weakref.finalize(self, os.close, descriptor)
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_SH)

    def __reduce__(self) -> tuple[type[SharedLock], tuple[Path]]:
        return SharedLock, (self.file,)  # unpickling in another process locks it there, too


def remove_if_unlocked(file: Path) -> None:
    """Remove the folder of a file, unless the file is locked or the operating system does not support locks."""
    with suppress(OSError):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                removed = file.parent.with_name(f".{socket.gethostname()}.{os.getpid()}.{file.parent.name}")
                file.parent.rename(removed)
                shutil.rmtree(removed, ignore_errors=True)
        finally:
            os.close(descriptor)


def remove_leftovers(target: Path) -> None:
    """Remove the temporary files and folders of a target if their writers have ended."""
    temporary_name = re.compile(rf"\.(\d+)\.{re.escape(target.name)}")
    for path in target.parent.iterdir() if target.parent.is_dir() else ():
        match = temporary_name.fullmatch(path.name)
        if match and not is_alive(int(match[1])):
            with suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _remove_leftovers_within(folder: Path) -> None:
    """Remove, below a folder, the temporary files whose writers have ended and whose targets are complete."""
    for path in folder.rglob(".*") if folder.is_dir() else ():
        match = re.fullmatch(r"\.(\d+)\.(.+)", path.name)
        if match and path.with_name(match[2]).is_file() and not is_alive(int(match[1])):
            with suppress(OSError):
                path.unlink()


class _Lock(NamedTuple):
    descriptor: int
    file: Path


def _acquire(target: Path) -> _Lock | None:
    """Return a lock on a target, or None if locks are not supported. Raise ArtifactError if the target is locked."""
    while True:
        lock = _open(target)
        if lock is None:
            return None
        try:
            _lock(lock.descriptor)
        except OSError as error:
            holder = _holder(lock.descriptor)
            os.close(lock.descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                log.warning(
                    "%s: the file system does not support locks: make sure that no other process writes there", target
                )
                return None
            raise ArtifactError(
                f"{target} is being written by {holder}: wait until the writer has finished, "
                f"or choose another location."
            ) from error
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.descriptor), lock.file.stat()):
                _write_holder(lock)
                return lock
        os.close(lock.descriptor)  # the previous holder removed the file after it was opened here: try again


def _open(target: Path) -> _Lock | None:
    """Open the lock file next to a target or, if it cannot be created and the target is a folder, the target itself."""
    file = target.with_name(f".{target.name}.lock")
    for path, flags in ((file, os.O_RDWR | os.O_CREAT), (target, os.O_RDONLY)):
        with suppress(OSError):
            if path == file or target.is_dir():
                return _Lock(os.open(path, flags, 0o666), path)
    return None


def _lock(descriptor: int) -> None:
    """Lock an open file. Raise OSError immediately if the file is already locked."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)


def _release(lock: _Lock, target: Path) -> None:
    """Remove the lock file, then release the lock. The order is reversed on Windows, which cannot remove open files."""
    if fcntl is None:
        os.close(lock.descriptor)
    with suppress(OSError):  # on Windows, another process may have opened it
        if lock.file != target:
            lock.file.unlink(missing_ok=True)
    if fcntl is not None:
        os.close(lock.descriptor)


def _write_holder(lock: _Lock) -> None:
    """Write this process, its machine and its command into the lock file."""
    note = {"process": os.getpid(), "machine": socket.gethostname(), "command": " ".join(sys.argv)[:200]}
    with suppress(OSError):  # the lock works without the note, for example on a full disk
        os.ftruncate(lock.descriptor, 0)
        os.lseek(lock.descriptor, 0, os.SEEK_SET)
        os.write(lock.descriptor, json.dumps(note).encode())


def _holder(descriptor: int) -> str:
    """Return a description of the process that holds a lock, read from the lock file."""
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        note = parse_json(os.read(descriptor, 4096))
        if note["process"] == os.getpid():
            return "another thread of this process"
        return f"process {note['process']} on {note['machine']} ({note['command']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def is_alive(process: int) -> bool:
    """Return True if a process is running on this machine, or if this cannot be determined, as on Windows."""
    if sys.platform == "win32":
        return True  # os.kill(process, 0) would send Ctrl-C there
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
