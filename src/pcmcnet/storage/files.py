"""Files written beside their place and renamed into it: a reader sees the old file or the new one, never half.

Beside that: JSON in and out, how two JSON objects differ, and which version of a package is installed.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pcmcnet.errors import ArtifactError, InputError

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
def replacing(path: str | Path, named: object = None) -> Iterator[Path]:
    """Yield a path beside ``path`` to write to; it takes the place of ``path`` only if the block succeeds.

    ``named`` is what an error calls it, in place of its path.

    Raises
    ------
    ArtifactError
        When there is no space for it, or no right to write there.
    """
    target = Path(path)
    beside = target.with_name(f".{os.getpid()}.{target.name}")  # keeps the ending, which some writers go by
    with writing(named or target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield beside
            to_disk(beside)
            beside.replace(target)
            to_disk(target.parent)  # so that the new name outlives a power cut
        finally:
            with suppress(OSError):  # what went wrong before is what to hear of
                beside.unlink(missing_ok=True)


@contextmanager
def writing(place: object) -> Iterator[None]:
    """Say in one sentence why a file or folder cannot be written, and what to do."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        remedy = _REMEDIES.get(error.errno or 0, "Choose another place.")
        raise ArtifactError(f"{place} cannot be written: {reason}. {remedy}") from error


def to_disk(path: Path) -> None:
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
    """Write a whole file atomically; see :func:`replacing`."""
    with replacing(path, named) as beside:
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
