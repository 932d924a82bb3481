"""Conversion of any table to an Arrow table with the requested columns.

A table may be a path (see ``read_files``), a mapping of arrays, or a data frame of any library that narwhals supports.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence, Set
from datetime import datetime
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pcmcnet.data.files.read_files import FOLDER, column_names, one_line, read_path, require_columns, without_views
from pcmcnet.errors import SchemaError


def read_table(
    table: Any,
    columns: Sequence[str] | None = None,
    *,
    text: Collection[str] = (),
    ids: Collection[str] = (),
    compact: bool = False,
) -> pa.Table:
    """Read a table into Arrow.

    Parameters
    ----------
    table
        A path, a mapping from column names to arrays, or a data frame.
    columns
        Columns to read, in the given order. If None (default), all columns are read.
    text
        Columns that hold names (none by default). In a source without types, such as a CSV file, names are read exactly
        as they are written.
    ids
        Columns that hold ids (none by default). In a source without types, ids are read as integers if all of them are
        written as integers (7, not 007 or 7.0), otherwise as text.
    compact
        Whether a source without types may be read into compact types (dictionaries for text, and 32-bit integers),
        False by default.

    Returns
    -------
    pyarrow.Table

    Raises
    ------
    SchemaError
        If the table cannot be read or lacks a column.
    """
    if isinstance(table, str | os.PathLike):
        arrow = read_path(Path(table), columns, text=text, ids=ids, compact=compact)
        return arrow.replace_schema_metadata({**(arrow.schema.metadata or {}), FOLDER: str(folder_of(table))})
    if isinstance(table, pa.Table):
        requested = table.column_names if columns is None else list(columns)
        require_columns(requested, table.column_names)
        return without_views(table.select(requested))
    read = _from_mapping if isinstance(table, Mapping) else _from_frame
    return without_views(read(table, columns, {*text, *ids}))


def names_of(table: Any) -> list[str]:
    """Return the column names of a table, without reading the rows of a file."""
    if isinstance(table, str | os.PathLike):
        return column_names(Path(table))
    if isinstance(table, pa.Table):
        return list(table.column_names)
    if isinstance(table, Mapping):
        return [name for name in table if isinstance(name, str)]
    return list(read_table(table).column_names)


def folder_of(table: Any) -> Path | None:
    """Return the folder that paths in a table are relative to, or None for a table in memory."""
    if isinstance(table, str | os.PathLike):
        return Path(table) if Path(table).is_dir() else Path(table).parent
    folder = (table.schema.metadata or {}).get(FOLDER) if isinstance(table, pa.Table) else None
    return None if folder is None else Path(folder.decode())


def _from_mapping(table: Mapping[Any, Any], columns: Sequence[str] | None, names: Set[str]) -> pa.Table:
    present = [name for name in table if isinstance(name, str)]
    requested = present if columns is None else list(columns)
    require_columns(requested, present)
    arrays = {name: _to_arrow(name, table[name], name in names) for name in requested}
    lengths = {len(array): name for name, array in arrays.items()}
    if len(lengths) > 1:
        listed = ", ".join(f"{name!r} has {length}" for length, name in lengths.items())
        raise SchemaError(f"the columns of a table must have the same number of rows, but {listed}.")
    return pa.table(arrays)


def _from_frame(table: Any, columns: Sequence[str] | None, names: Set[str]) -> pa.Table:
    import narwhals as nw  # files are read without it

    try:
        frame = nw.from_native(table, pass_through=True)
        if not isinstance(frame, nw.DataFrame | nw.LazyFrame):
            raise SchemaError(
                f"expected a path, a mapping of arrays or a data frame (pandas, polars, pyarrow, ...), "
                f"got {type(table).__name__}.{_as_a_frame(table)}"
            )
        present = [name for name in frame.collect_schema().names() if isinstance(name, str)]
        requested = present if columns is None else list(columns)
        _require_outside_index(requested, present, table)
        require_columns(requested, present)
        frame = frame.select(*requested)
        eager = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
        if nw.Object not in eager.collect_schema().dtypes():
            return eager.to_arrow()
        arrays = {}
        for name in requested:
            is_object = eager[name].dtype == nw.Object
            arrays[name] = (
                _to_arrow(name, eager[name].to_list(), name in names) if is_object else eager[name].to_arrow()
            )
        return pa.table(arrays)
    except SchemaError:
        raise
    except Exception as error:  # each library has its own exceptions
        remedy = " Rename or drop all but one." if "unique column names" in str(error) else ""
        raise SchemaError(f"the data frame cannot be read: {one_line(error)}.{remedy}") from error


def _as_a_frame(table: Any) -> str:
    """Return a sentence on how to make a data frame of an object, or an empty string."""
    if isinstance(table, list | tuple):
        return " Write pandas.DataFrame(rows), with a name for each column."
    if isinstance(table, np.ndarray):
        return " Write pandas.DataFrame(array, columns=[...]), with the names of the columns."
    return " Write data.to_frame()." if hasattr(table, "to_frame") else ""


def _require_outside_index(columns: Sequence[str], present: Sequence[str], table: Any) -> None:
    """Raise SchemaError if a column that is needed is a level of the index of a pandas data frame."""
    levels = getattr(getattr(table, "index", None), "names", None) or ()
    for name in columns:
        if name in levels and name not in present:
            raise SchemaError(
                f"the table has no column {name!r}, but its index has this name: pass table.reset_index()."
            )


def _to_arrow(name: str, values: Any, is_name: bool) -> Any:
    """Convert a column of any array type to Arrow.

    Objects of mixed types, and names that are integers of more than 64 bits, become text.
    """
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__getitem__"):
        raise SchemaError(f"column {name!r}: expected a list or an array, got {type(values).__name__}.")
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.shape[1] and values.dtype.kind in "fiu":
        return pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(values).ravel(), values.shape[1])
    kind = values.dtype.kind if isinstance(values, np.ndarray) else ""
    if kind == "M" and np.datetime_data(values.dtype)[0] in ("Y", "M", "W", "h", "m"):
        values = values.astype("datetime64[s]")  # units that Arrow does not support
    if kind == "S":
        values = values.tolist()  # Arrow would cut each value at its first zero byte, for example in images
    try:
        return _keep_time_zones(pa.array(values, from_pandas=True), values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        array = _from_objects(values, is_name)
        if array is None:
            raise SchemaError(f"column {name!r} cannot be read: {one_line(error)}.") from error
        return array


def _keep_time_zones(array: pa.Array, values: Any) -> pa.Array:
    """Return timestamps of several time zones as text in local time, because Arrow would keep only one time zone."""
    if not pa.types.is_timestamp(array.type) or (isinstance(values, np.ndarray) and values.dtype.kind == "M"):
        return array
    instants = [value if isinstance(value, datetime) and not _is_missing(value) else None for value in values]
    if len({instant.tzinfo for instant in instants if instant is not None}) < 2:
        return array
    return pa.array([None if instant is None else instant.isoformat() for instant in instants])


def _from_objects(values: Any, is_name: bool) -> pa.Array | None:
    """Return Python objects as an Arrow array of float64 or text, or None if they are neither numbers nor text."""
    try:
        items = [None if _is_missing(value) else value for value in values]
        present = [value for value in items if value is not None]
        if all(isinstance(value, Real | Decimal) for value in present) and not is_name:
            return pa.array([None if value is None else float(value) for value in items], pa.float64())
        if all(isinstance(value, Real | Decimal | np.bool_ | str) for value in present):
            return pa.array([None if value is None else str(value) for value in items], pa.string())
    except (TypeError, ValueError, OverflowError):
        pass
    return None


def _is_missing(value: Any) -> bool:
    """Return True for None, NaN, and the pandas values NA and NaT."""
    is_nan = isinstance(value, float) and value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType") or is_nan
