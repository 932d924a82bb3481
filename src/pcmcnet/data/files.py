"""Files written beside their place and renamed into it: a reader sees the old file or the new one, never half."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pcmcnet.data.formats import FOLDER
from pcmcnet.errors import ArtifactError, InputError

_SPACE = "Free some space, or choose another place, and try again; what was there before is as it was."
_RIGHTS = "Ask for the right to write there, or choose another place."
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _SPACE),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _RIGHTS),
}


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
    """Return what a JSON text says.

    Raises
    ------
    ValueError
        When it is no JSON, or nested deeper than anything that pcmcnet writes.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def write_bytes(path: str | Path, content: bytes, named: object = None) -> None:
    """Write a whole file atomically; see :func:`replacing`."""
    with replacing(path, named) as beside:
        beside.write_bytes(content)


def write_table(table: pa.Table, path: str | Path) -> None:
    """Write a table atomically, in the format that the file's ending names."""
    target = Path(path)
    noted = {key: note for key, note in (table.schema.metadata or {}).items() if key != FOLDER}
    table = table.replace_schema_metadata(noted or None)
    with replacing(require_table_path(target)) as beside, beside.open("wb") as sink:  # pyarrow opens UTF-8 names alone
        if target.suffix == ".parquet":
            pyarrow.parquet.write_table(table, sink, write_page_checksum=True)
        elif target.suffix == ".csv":
            pyarrow.csv.write_csv(table, sink)
        else:
            with pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)


def writable(table: pa.Table, path: Path) -> pa.Table:
    """Return a table as the file's ending can hold it: in a CSV, lists are written as JSON, as they are read.

    Raises
    ------
    InputError
        When a CSV cannot hold a column, such as one of pictures.
    """
    if path.suffix != ".csv":
        return table
    return pa.table({name: _as_text(name, table[name]) for name in table.column_names})


def _as_text(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    types, kind = pa.types, column.type
    try:
        if types.is_binary(kind) or types.is_large_binary(kind):
            return column.cast(pa.string())
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            texts = [None if value is None else json.dumps(value, ensure_ascii=False) for value in column.to_pylist()]
            return pa.chunked_array([pa.array(texts, pa.string())])
    except (pa.ArrowInvalid, TypeError, ValueError):
        pass
    else:
        if not types.is_nested(kind):
            return column
    raise InputError(
        f"column {name!r} has the type {kind}, which a CSV file cannot hold: write .parquet or .arrow instead."
    )


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
