"""Functions that write Arrow tables to files, in the format given by the file ending."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pcmcnet.arrays import Floats
from pcmcnet.data.files.read_files import FOLDER
from pcmcnet.errors import InputError
from pcmcnet.storage import atomic_write

# Dictionaries of distinct values are limited to 64 KiB per column: writing 877,077 rows of 99 numeric columns takes 1.3
# seconds and 168 MB with the limit, and 2.8 seconds and 218 MB without it (measured).
_PARQUET = {"write_page_checksum": True, "dictionary_pagesize_limit": 2**16}


def write_table(table: pa.Table, path: str | Path) -> None:
    """Write a table atomically: readers see either the old file or the complete new file.

    Parameters
    ----------
    table : pyarrow.Table
        The table.
    path : path
        Target file. The ending (.parquet, .csv or .arrow) determines the format.

    Raises
    ------
    InputError
        If the ending is unknown.
    """
    target = Path(path)
    metadata = {key: value for key, value in (table.schema.metadata or {}).items() if key != FOLDER}
    table = table.replace_schema_metadata(metadata or None)
    # pass an open file: pyarrow itself opens only paths in UTF-8
    with atomic_write(require_table_path(target)) as temporary, temporary.open("wb") as sink:
        if target.suffix == ".parquet":
            pyarrow.parquet.write_table(table, sink, **_PARQUET)
        elif target.suffix == ".csv":
            pyarrow.csv.write_csv(table, sink)
        else:
            with pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)


@contextmanager
def parquet_appender(path: Path, schema: pa.Schema, column: str) -> Iterator[Callable[[pa.RecordBatch, Floats], None]]:
    """Yield a function that writes a batch of rows and the values of an additional column to a Parquet file."""
    longer = schema.append(pa.field(column, pa.float64()))
    with pyarrow.parquet.ParquetWriter(path, longer, **_PARQUET) as writer:

        def append(batch: pa.RecordBatch, values: Floats) -> None:
            writer.write_batch(pa.RecordBatch.from_arrays([*batch.columns, pa.array(values)], schema=longer))

        yield append


def writable_table(table: pa.Table, path: Path) -> pa.Table:
    """Return a table that can be written to ``path``. For a CSV file, lists become JSON text.

    Raises InputError if a CSV file cannot represent a column.
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
        f"column {name!r}: the type {kind} is not supported by CSV files: write .parquet or .arrow instead."
    )


def require_table_path(path: Path) -> Path:
    """Return the path of a table to write, or raise InputError if its ending is unknown."""
    if path.suffix not in (".parquet", ".csv", ".arrow"):
        raise InputError(f"{path}: unknown file format. Expected a name that ends in .parquet, .csv or .arrow.")
    return path
