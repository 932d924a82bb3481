"""A table larger than memory -> the same table with the probability of each row, file by file.

    scan  ->  probabilities of one shard after the other, each at its row's place  ->  files with one more column

Where sets lie together there is a shorter way: :mod:`pcmcnet.models.interface.one_pass_prediction`. Choice sets may go
across files. No file of the result is in its place before all are written.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.data import ScannedData, Schema
from pcmcnet.data.kinds.category import reported_together
from pcmcnet.data.read_files import column_names
from pcmcnet.data.scan.cache import sources_of
from pcmcnet.data.scan.sizes import bytes_of
from pcmcnet.data.scan.sources import Stream, open_copy, open_stream
from pcmcnet.errors import InputError, SchemaError
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.one_pass_prediction import Copies, File, predict_in_one_pass
from pcmcnet.storage.files import require_folder, writing

_SCAN = ".scan"  # in the folder of the result, until it is complete
_ROWS = 2**16  # written at once, at most
_LOOKED = 256  # by which the size of the others is judged
_SHARES = 16  # of the memory, one of which these may take


def predict_folder(
    model: ChoiceModel,
    table: Path,
    output: Path,
    *,
    column: str = "probability",
    cache: Path | None = None,
    memory: str | int = "1 GiB",
) -> int:
    """Write a table with the probability of each row as one more column, a Parquet file for each file of the table.

    Parameters
    ----------
    model
        A fitted model.
    table
        A folder of Parquet, or a file: see ``ChoiceData.scan``.
    output
        Folder of the result. Files keep their names and rows their order.
    column
        Name of the new column.
    cache, memory
        See ``ChoiceData.scan``; without a cache, a table is scanned only where it has to be, and the converted one
        removed at the end.

    Returns
    -------
    int
        Number of rows written.

    Raises
    ------
    SchemaError
        When the table does not fit the model, has such a column already, holds the folder of the result, or is changed
        meanwhile.
    InputError
        When the folder of the result holds other tables.
    """
    schema = model.schema.for_prediction()
    if output.resolve().is_relative_to(table.resolve()):
        raise SchemaError(f"{output} lies within the table: choose another folder for the result.")
    if column in column_names(table):
        raise SchemaError(f"{table} already has a column {column!r}: choose another name by --column.")
    allowed, before = bytes_of(memory), _sources(table)
    files = partial(_files, table, output, model.schema, allowed)
    _require_no_others(output, _places(table, output), column)
    scratch = require_folder(output) / _SCAN
    try:
        with Copies(files, column, scratch / "files") as copies:
            done = predict_in_one_pass(model, table, copies, memory=allowed) if cache is None else None
            if done is None:
                data = ScannedData.of(table, schema, cache=cache or scratch, memory=allowed)
                done = _predict_shards(model, data, copies, scratch / "probabilities")
            if done is None or _sources(table) != before:
                raise SchemaError(f"{table} was changed while it was read: try again.")
            copies.put_in_place()
        shutil.rmtree(scratch, ignore_errors=True)
    finally:
        with suppress(OSError):  # it holds a converted table, which another attempt finds
            scratch.rmdir()
    return done


def _sources(table: Path) -> list[dict[str, Any]]:
    """Say by what it is known that a table has changed."""
    return sources_of(open_stream(table, ()).files, table)


def _predict_shards(model: ChoiceModel, data: ScannedData, copies: Copies, place: Path) -> int | None:
    """Put the probabilities of one shard after the other at the places of their rows, and then copy the files.

    Returns the number of rows; None where there are others now.
    """
    rows = data.n_rows
    with _room(place, rows), reported_together():
        for shard in data.shards():
            found = shard.data.to_rows(np.exp(model._checked_log_proba(shard.data)))
            _opened(place, rows)[shard.table_rows] = found
        with closing(copies.written()) as writer:
            complete = next(writer)
            for begin in range(0, rows, _ROWS):
                complete = writer.send(np.array(_opened(place, rows)[begin : begin + _ROWS]))
    return rows if complete else None


def _require_no_others(output: Path, places: Mapping[Path, Path], column: str) -> None:
    """Refuse a folder with files that would be taken for a part of the result, or be lost to it."""
    for file, target in places.items():
        if target.exists() and target.samefile(file):
            raise SchemaError(f"{target} is the table itself: choose another folder for the result.")
    targets = set(places.values())
    for path in sorted(path for path in output.rglob("*.parquet") if not path.name.startswith(".")):
        if path not in targets or column not in column_names(path):
            raise InputError(f"{path} is no part of this result: choose another folder, or empty this one.")


@contextmanager
def _room(place: Path, rows: int) -> Iterator[None]:
    """Make room on the disk for a probability of each row, as long as it is needed.

    Else the system would end the process where the disk is full: to write to a map of a file cannot fail.
    """
    require_folder(place.parent)
    try:
        with writing(place), place.open("wb") as file:
            if rows and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, 8 * rows)
            file.truncate(8 * rows)
        yield
    finally:
        place.unlink(missing_ok=True)


def _opened(place: Path, rows: int) -> NDArray[np.float64]:
    """Map the file of probabilities into memory, for as long as it is used: pages in use count as memory."""
    return np.memmap(place, np.float64, "r+", shape=rows) if rows else np.empty(0)


def _places(table: Path, output: Path) -> dict[Path, Path]:
    """Return the files of a table, each with the place of its result."""
    if table.is_dir():
        return {file: output / file.relative_to(table) for file in open_stream(table, ()).files}
    return {table: (output / table.name.removesuffix(".gz")).with_suffix(".parquet")}


def _files(table: Path, output: Path, schema: Schema, memory: int) -> Iterator[File]:
    """Open the table's files one by one, as they are written."""
    for file, target in _places(table, output).items():
        stream = open_copy(file, schema.number_columns, schema.name_columns)
        yield File(stream, target, max(min(_ROWS, memory // _SHARES // _copied_bytes(stream)), 1))


def _copied_bytes(stream: Stream) -> int:
    """Return about how many bytes a row takes, by the first ones."""
    some = next(stream.batches(_LOOKED), None)
    return 1 if some is None else max(some.nbytes // max(some.num_rows, 1), 1)
