"""A table larger than memory -> the same table with the probability of each row, file by file.

    scan  ->  probabilities of one shard after the other, each at its row's place  ->  files with one more column

Choice sets may go across files. Each file of the result is written beside its place and renamed, so that those that are
there are whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from pcmcnet.data import ScannedData
from pcmcnet.data.read_files import column_names
from pcmcnet.data.scan.contents import row_bytes
from pcmcnet.data.scan.sources import Stream, open_copy, open_stream
from pcmcnet.errors import InputError, SchemaError
from pcmcnet.models.interface.choice_model import ChoiceModel
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
        See ``ChoiceData.scan``; without a cache, the converted table is removed at the end.

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
    numbers, names = model.schema.number_columns, model.schema.name_columns
    _require_no_others(output, [target for _, target in _files(table, output, numbers, names)])
    scratch = require_folder(output) / _SCAN
    data = ScannedData.of(table, schema, cache=cache or scratch, memory=memory)
    scratch.mkdir(exist_ok=True)
    place = scratch / "probabilities"
    for shard in data.shards():
        found = shard.data.to_rows(np.exp(model._checked_log_proba(shard.data)))
        _opened(place, data.n_rows)[shard.table_rows] = found
    done = 0
    for stream, target in _files(table, output, numbers, names):
        at_once = max(min(_ROWS, data.memory // _SHARES // row_bytes(stream, schema)), 1)
        done += _append(stream, target, column, _opened(place, data.n_rows)[done:], at_once)
    shutil.rmtree(scratch)
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


def _files(table: Path, output: Path, numbers: frozenset[str], names: frozenset[str]) -> Iterator[tuple[Stream, Path]]:
    """Open the table's files one by one, as they are written; each with the place of its result."""
    if table.is_dir():
        for file in open_stream(table, ()).files:
            yield open_copy(file, numbers, names), output / file.relative_to(table)
    else:
        name = table.name.removesuffix(".gz")
        yield open_copy(table, numbers, names), (output / name).with_suffix(".parquet")


def _append(stream: Stream, target: Path, column: str, probabilities: NDArray[np.float64], at_once: int) -> int:
    """Copy a file with the new column, so many rows at once; returns its number of rows."""
    schema, done = stream.schema.append(pa.field(column, pa.float64())), 0
    with replacing(target) as beside, pyarrow.parquet.ParquetWriter(beside, schema, write_page_checksum=True) as writer:
        for batch in stream.batches(at_once):
            values = pa.array(probabilities[done : done + batch.num_rows])
            writer.write_batch(pa.RecordBatch.from_arrays([*batch.columns, values], schema=schema))
            done += batch.num_rows
    return done
