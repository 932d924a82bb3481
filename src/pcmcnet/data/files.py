"""Files written beside their place and renamed into it: a reader sees the old file or the new one, never half."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pcmcnet.errors import InputError


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


def json_bytes(value: Any) -> bytes:
    """Return the content of a JSON file that a person can read."""
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a whole file atomically."""
    with replacing(path) as beside:
        beside.write_bytes(content)


def write_table(table: pa.Table, path: str | Path) -> None:
    """Write a table atomically, in the format that the file's ending names."""
    target = Path(path)
    with replacing(require_table_path(target)) as beside:
        if target.suffix == ".parquet":
            pyarrow.parquet.write_table(table, beside)
        elif target.suffix == ".csv":
            pyarrow.csv.write_csv(table, beside)
        else:
            with pa.OSFile(str(beside), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)


def require_table_path(path: Path) -> Path:
    """Refuse a file whose ending names no format, before any work is done for it."""
    if path.suffix not in (".parquet", ".csv", ".arrow"):
        raise InputError(f"{path}: unknown kind of file. Expected a name that ends in .parquet, .csv or .arrow.")
    return path


def require_folder(folder: str | os.PathLike[str]) -> Path:
    """Make the folder of a result, or say why it cannot be one, before any work is done for it."""
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{place} cannot be a folder: {error.strerror or error}. Choose another one.") from error
    return place
