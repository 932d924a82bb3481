"""Tables written to files, by the ending of their name."""

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

# Distinct values of a column are listed up to so many bytes. To list all of them takes most of the time of writing
# numbers, and room: 877,077 rows of 99 of them take 1.3 seconds instead of 2.8, and 168 MB instead of 218 (measured).
_PARQUET = {"write_page_checksum": True, "dictionary_pagesize_limit": 2**16}


def write_table(table: pa.Table, path: str | Path) -> None:
    """Write a table atomically, in the format that the file's ending names."""
    target = Path(path)
    noted = {key: note for key, note in (table.schema.metadata or {}).items() if key != FOLDER}
    table = table.replace_schema_metadata(noted or None)
    with (
        atomic_write(require_table_path(target)) as beside,
        beside.open("wb") as sink,
    ):  # pyarrow opens UTF-8 names alone
        if target.suffix == ".parquet":
            pyarrow.parquet.write_table(table, sink, **_PARQUET)
        elif target.suffix == ".csv":
            pyarrow.csv.write_csv(table, sink)
        else:
            with pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)


@contextmanager
def parquet_appender(path: Path, schema: pa.Schema, column: str) -> Iterator[Callable[[pa.RecordBatch, Floats], None]]:
    """Yield a function that writes batches to a Parquet file, with values of one more column."""
    longer = schema.append(pa.field(column, pa.float64()))
    with pyarrow.parquet.ParquetWriter(path, longer, **_PARQUET) as writer:

        def append(batch: pa.RecordBatch, values: Floats) -> None:
            writer.write_batch(pa.RecordBatch.from_arrays([*batch.columns, pa.array(values)], schema=longer))

        yield append


def writable_table(table: pa.Table, path: Path) -> pa.Table:
    """Return a table as the file's ending can hold it: a CSV has lists as JSON. InputError if it cannot."""
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
