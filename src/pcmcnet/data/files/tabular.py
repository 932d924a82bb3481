"""Anything tabular -> an Arrow table of the columns asked for.

Paths (see ``read_files``), mappings of arrays, and every data frame that narwhals knows.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence, Set
from datetime import datetime
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import narwhals as nw
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
    """Read a path, a mapping from names to arrays or a data frame into Arrow; SchemaError if that is not possible.

    Parameters
    ----------
    columns
        The columns to read, in this order; None reads all.
    text
        Columns whose values are names: where the source has no types, they are read as they are written.
    ids
        Likewise columns of ids, which are whole numbers where all are written as such: 7, not 007 nor 7.0.
    compact
        Whether a source without types may be read into narrower ones: dictionaries for text, 32-bit integers.
    """
    if isinstance(table, str | os.PathLike):
        found = read_path(Path(table), columns, text=text, ids=ids, compact=compact)
        return found.replace_schema_metadata({**(found.schema.metadata or {}), FOLDER: str(folder_of(table))})
    if isinstance(table, pa.Table):
        wanted = table.column_names if columns is None else list(columns)
        require_columns(wanted, table.column_names)
        return without_views(table.select(wanted))
    read = _from_mapping if isinstance(table, Mapping) else _from_frame
    return without_views(read(table, columns, {*text, *ids}))


def names_of(table: Any) -> list[str]:
    """Return the names of a table's columns, reading as little of it as possible."""
    if isinstance(table, str | os.PathLike):
        return column_names(Path(table))
    if isinstance(table, pa.Table):
        return list(table.column_names)
    if isinstance(table, Mapping):
        return [name for name in table if isinstance(name, str)]
    return list(read_table(table).column_names)


def folder_of(table: Any) -> Path | None:
    """Return the folder that paths in a table count from: that of its file, or none for a table made in memory."""
    if isinstance(table, str | os.PathLike):
        return Path(table) if Path(table).is_dir() else Path(table).parent
    noted = (table.schema.metadata or {}).get(FOLDER) if isinstance(table, pa.Table) else None
    return None if noted is None else Path(noted.decode())


def _from_mapping(table: Mapping[Any, Any], columns: Sequence[str] | None, names: Set[str]) -> pa.Table:
    present = [name for name in table if isinstance(name, str)]
    wanted = present if columns is None else list(columns)
    require_columns(wanted, present)
    arrays = {name: _to_arrow(name, table[name], name in names) for name in wanted}
    lengths = {len(array): name for name, array in arrays.items()}
    if len(lengths) > 1:
        found = ", ".join(f"{name!r} has {length}" for length, name in lengths.items())
        raise SchemaError(f"the columns of a table must have the same number of rows, but {found}.")
    return pa.table(arrays)


def _from_frame(table: Any, columns: Sequence[str] | None, names: Set[str]) -> pa.Table:
    try:
        frame = nw.from_native(table, pass_through=True)
        if not isinstance(frame, nw.DataFrame | nw.LazyFrame):
            raise SchemaError(
                f"expected a path, a mapping of arrays or a data frame (pandas, polars, pyarrow, ...), "
                f"got {type(table).__name__}."
            )
        present = [name for name in frame.collect_schema().names() if isinstance(name, str)]
        wanted = present if columns is None else list(columns)
        require_columns(wanted, present)
        frame = frame.select(*wanted)
        eager = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
        if nw.Object not in eager.collect_schema().dtypes():
            return eager.to_arrow()
        return pa.table({name: _from_series(name, eager[name], name in names) for name in wanted})
    except SchemaError:
        raise
    except Exception as error:  # each library has its own exceptions
        raise SchemaError(f"the data frame cannot be read: {one_line(error)}.") from error


def _from_series(name: str, series: Any, is_name: bool) -> Any:
    return _to_arrow(name, series.to_list(), is_name) if series.dtype == nw.Object else series.to_arrow()


def _to_arrow(name: str, values: Any, is_name: bool) -> Any:
    """Convert one column of any array type; Python objects of several types, and names beyond 64 bits, become text."""
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__getitem__"):
        raise SchemaError(f"column {name!r}: expected a list or an array, got {type(values).__name__}.")
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.shape[1] and values.dtype.kind in "fiu":
        return pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(values).ravel(), values.shape[1])
    kind = values.dtype.kind if isinstance(values, np.ndarray) else ""
    if kind == "M" and np.datetime_data(values.dtype)[0] in ("Y", "M", "W", "h", "m"):
        values = values.astype("datetime64[s]")  # Arrow knows days and seconds, and nothing between or above
    if kind == "S":
        values = values.tolist()  # Arrow would end each at its first zero byte, and pictures have such
    try:
        return _by_the_clock(pa.array(values, from_pandas=True), values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        array = _from_objects(values, is_name)
        if array is None:
            raise SchemaError(f"column {name!r} cannot be read: {one_line(error)}.") from error
        return array


def _by_the_clock(array: pa.Array, values: Any) -> pa.Array:
    """Write instants of several time zones as text, each by its own clock: Arrow takes all to the zone of the first."""
    if not pa.types.is_timestamp(array.type) or (isinstance(values, np.ndarray) and values.dtype.kind == "M"):
        return array
    instants = [value if isinstance(value, datetime) and not _is_gap(value) else None for value in values]
    if len({instant.tzinfo for instant in instants if instant is not None}) < 2:
        return array
    return pa.array([None if instant is None else instant.isoformat() for instant in instants])


def _from_objects(values: Any, is_name: bool) -> pa.Array | None:
    """Numbers as float64 (names as text), numbers and text as text, anything else as None."""
    try:
        items = [None if _is_gap(value) else value for value in values]
        present = [value for value in items if value is not None]
        if all(isinstance(value, Real | Decimal) for value in present) and not is_name:
            return pa.array([None if value is None else float(value) for value in items], pa.float64())
        if all(isinstance(value, Real | Decimal | np.bool_ | str) for value in present):
            return pa.array([None if value is None else str(value) for value in items], pa.string())
    except (TypeError, ValueError, OverflowError):
        pass
    return None


def _is_gap(value: Any) -> bool:
    """Tell None, NaN, pandas' NA and NaT."""
    is_nan = isinstance(value, float) and value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType") or is_nan
