"""The files of a saved model's folder: which of them are read, and how large they may be.

A folder may come from anyone. So only plain files inside it are opened: no pipe or device, which may never end, and no
link that leads out of it. None is read beyond the size that was noted when it was saved, or beyond the limits below.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcmcnet.errors import ArtifactError

LARGEST_JSON = 64 << 20  # bytes; once read, they may take 25 times as many
LARGEST = 8 << 30  # bytes of all files together
# A pipe that took a file's place after it was looked at would be waited for, and a link followed.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def read_file(folder: Path, name: str, size: Any = None, *, room: int = LARGEST) -> bytes:
    """Read a file of the folder, of ``size`` bytes where that was noted, and of no more than ``room``."""
    if Path(name).name != name:
        raise ArtifactError(f"{folder}: the file {name!r} is named, which is not a plain file name.")
    try:
        place = (folder / name).resolve(strict=True)
        if not place.is_relative_to(folder.resolve()):
            raise ArtifactError(
                f"{folder}: {name} is a link that leads out of the folder: copy the model with the files that its "
                f"links name (cp -rL)."
            )
        found = place.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ArtifactError(f"{folder}: {name} is no plain file.")
        _require_size(folder, name, found.st_size, room)
        if size not in (None, found.st_size):
            raise ArtifactError(
                f"{folder}: file {name} is truncated or altered since it was saved. Save the model again."
            )
        with os.fdopen(os.open(place, _FLAGS), "rb") as file:
            return file.read(found.st_size + 1)  # one that grew does not fit its hash
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, ArtifactError):
            raise
        why = getattr(error, "strerror", None) or error
        raise ArtifactError(f"{folder}: file {name} is missing or unreadable ({why}).") from error


def require_sizes(folder: Path, files: Mapping[str, bytes]) -> None:
    """Refuse to save what would be refused when it is read."""
    room = LARGEST
    for name, content in files.items():
        _require_size(folder, name, len(content), room)
        room -= len(content)


def _require_size(folder: Path, name: str, size: int, room: int) -> None:
    most = min(LARGEST_JSON, room) if name.endswith(".json") else room
    if size > most:
        limit = f"{most >> 20:,} MiB" if most < room else f"{LARGEST >> 30} GiB for all files together"
        raise ArtifactError(f"{folder}: file {name} has {size:,} bytes, and at most {limit} are saved and read.")
