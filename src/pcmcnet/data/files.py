"""Files written beside their place and renamed into it: a reader sees the old file or the new one, never half."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a path beside ``path`` to write to; it takes the place of ``path`` only if the block succeeds."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{os.getpid()}.{target.name}")  # keeps the ending, which some writers go by
    try:
        yield beside
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a whole file atomically."""
    with replacing(path) as beside:
        beside.write_bytes(content)
