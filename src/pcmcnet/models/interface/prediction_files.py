"""A table larger than memory -> the same table with the probability of each row, file by file.

    scan  ->  probabilities of one shard after the other, each at its row's place  ->  files with one more column

Where sets lie together there is a shorter way: :mod:`pcmcnet.models.interface.one_pass_prediction`. Choice sets may go
across files. Each file of the result is written beside its place and renamed, so that those that are
there are whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pcmcnet.data import ScannedData, Schema
from pcmcnet.data.kinds.category import reported_together
from pcmcnet.data.read_files import column_names
from pcmcnet.data.scan.contents import row_bytes
from pcmcnet.data.scan.sizes import bytes_of
from pcmcnet.data.scan.sources import open_copy, open_stream
from pcmcnet.data.write_files import appending
from pcmcnet.errors import InputError, SchemaError
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.interface.one_pass_prediction import File, predict_in_one_pass
from pcmcnet.storage.files import replacing, require_folder

_SCAN = ".scan"  # in the folder of the result, until it is complete
_ROWS = 2**16  # written at once, at most
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
        When the table does not fit the model, or has such a column already, or holds the folder of the result.
    InputError
        When the folder of the result holds other tables.
    """
    schema = model.schema.for_prediction()
    if output.resolve().is_relative_to(table.resolve()):
        raise SchemaError(f"{output} lies within the table: choose another folder for the result.")
    if column in column_names(table):
        raise SchemaError(f"{table} already has a column {column!r}: choose another name by --column.")
    allowed = bytes_of(memory)
    files = partial(_files, table, output, model.schema, allowed)
    _require_no_others(output, [file.target for file in files()])
    scratch = require_folder(output) / _SCAN
    done = None
    if cache is None:
        done = predict_in_one_pass(model, table, files(), column, memory=allowed, scratch=scratch)
    if done is None:
        data = ScannedData.of(table, schema, cache=cache or scratch, memory=allowed)
        done = _predict_shards(model, data, files(), column, scratch)
    shutil.rmtree(scratch, ignore_errors=True)
    return done


def _predict_shards(model: ChoiceModel, data: ScannedData, files: Iterable[File], column: str, scratch: Path) -> int:
    """Put the probabilities of one shard after the other at the places of their rows, and then copy the files."""
    scratch.mkdir(exist_ok=True)
    place, done = scratch / "probabilities", 0
    with reported_together():
        for shard in data.shards():
            found = shard.data.to_rows(np.exp(model._checked_log_proba(shard.data)))
            _opened(place, data.n_rows)[shard.table_rows] = found
    for file in files:
        done += _append(file, column, _opened(place, data.n_rows)[done:])
    return done


def _require_no_others(output: Path, targets: list[Path]) -> None:
    """Refuse a folder with files that would be taken for a part of the result."""
    others = sorted({path for path in output.rglob("*.parquet") if not path.name.startswith(".")}.difference(targets))
    if others:
        raise InputError(f"{others[0]} is no part of this result: choose another folder, or empty this one.")


def _opened(place: Path, rows: int) -> NDArray[np.float64]:
    """Map the file of probabilities into memory, for as long as it is used: pages in use count as memory."""
    if not rows:
        return np.empty(0)
    return np.memmap(
        place, np.float64, "r+" if place.exists() and place.stat().st_size == 8 * rows else "w+", shape=rows
    )


def _files(table: Path, output: Path, schema: Schema, memory: int) -> Iterator[File]:
    """Open the table's files one by one, as they are written; each with the place of its result."""
    places = {table: (output / table.name.removesuffix(".gz")).with_suffix(".parquet")}
    if table.is_dir():
        places = {file: output / file.relative_to(table) for file in open_stream(table, ()).files}
    for file, target in places.items():
        stream = open_copy(file, schema.number_columns, schema.name_columns)
        yield File(stream, target, max(min(_ROWS, memory // _SHARES // row_bytes(stream, schema)), 1))


def _append(file: File, column: str, probabilities: NDArray[np.float64]) -> int:
    """Copy a file with the new column; returns its number of rows."""
    done = 0
    with replacing(file.target) as beside, appending(beside, file.stream.schema, column) as append:
        for batch in file.stream.batches(file.at_once):
            append(batch, probabilities[done : done + batch.num_rows])
            done += batch.num_rows
    return done
