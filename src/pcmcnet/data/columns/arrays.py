"""Columns in memory: numbers as float32, categories as integer codes with a list of names, and content columns.

The values of content columns are neither numbers nor categories, but for example vectors, texts or images. Each
distinct value is stored once and the rows hold codes, so repeated values take no extra memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.arrays import Ints
from pcmcnet.errors import SchemaError

Curve = Literal["piecewise", "spline"]  # kinds of numbers that networks also see through a curve
CURVES: tuple[str, ...] = get_args(Curve)
MISSING_CODE = -1  # code of a missing content


@dataclass(frozen=True, slots=True)
class Numeric:
    """Column of real numbers. NaN marks a missing value, if the schema allows missing values."""

    values: NDArray[np.float32]
    kind: str = "numeric"

    def __len__(self) -> int:
        return len(self.values)

    def take(self, index: Ints | slice) -> Numeric:
        """Return the given rows."""
        return Numeric(self.values[index])

    def plain(self) -> NDArray[Any]:
        """Return the values."""
        return self.values


@dataclass(frozen=True, slots=True)
class Categorical:
    """Column of category codes, which are positions in ``categories``. Some categories may be unused."""

    codes: NDArray[np.int32]
    categories: tuple[str, ...]
    kind: str = "categorical"

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, index: Ints | slice) -> Categorical:
        """Return the given rows, with the complete list of categories."""
        return Categorical(self.codes[index], self.categories)

    def plain(self) -> NDArray[Any]:
        """Return the name of each row's category."""
        return np.array(self.categories, dtype=object)[self.codes]


@dataclass(frozen=True, slots=True)
class Contents:
    """Positions in a table of distinct values, or ``MISSING_CODE`` if missing. The table may have unused entries."""

    codes: NDArray[np.int32]
    table: NDArray[Any]  # (U, ...) numbers, or (U,) objects, all different
    kind: str  # a name in pcmcnet.data.kinds

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, index: Ints | slice) -> Contents:
        """Return the given rows, which share the table of distinct values."""
        return Contents(self.codes[index], self.table, self.kind)

    def plain(self) -> NDArray[Any]:
        """Return each row's value: an array of numbers, an object, or None if the value is missing."""
        out = np.empty(len(self.codes), object)
        out[:] = [None if code == MISSING_CODE else self.table[code] for code in self.codes]
        return out

    def compact(self) -> Contents:
        """Return a copy with only the values in use, ordered by first row, so that equal rows give equal copies."""
        used, first, place = np.unique(self.codes, return_index=True, return_inverse=True)
        order = np.argsort(np.where(used == MISSING_CODE, -1, first), kind="stable")
        new = np.empty(len(used), np.int32)
        new[order] = np.arange(len(used), dtype=np.int32) - int((used == MISSING_CODE).any())
        return Contents(new[place], self.table[used[order][used[order] != MISSING_CODE]], self.kind)


Column = Numeric | Categorical | Contents
Columns = Mapping[str, Column]


def take(columns: Columns, index: Ints | slice) -> dict[str, Column]:
    """Return the given rows of every column."""
    return {name: column.take(index) for name, column in columns.items()}


def stored_values(column: Column) -> NDArray[Any]:
    """Return the stored array: the values of a numeric column, or the codes of any other column."""
    return column.values if isinstance(column, Numeric) else column.codes


def concat(first: Columns, second: Columns) -> dict[str, Column]:
    """Append the rows of other columns with the same names and kinds."""
    return {name: concat_column(column, second[name]) for name, column in first.items()}


def concat_column(first: Column, second: Column) -> Column:
    """Append one column to another. Categories are matched by name."""
    if isinstance(first, Numeric) and isinstance(second, Numeric):
        return Numeric(np.concatenate([first.values, second.values]))
    if isinstance(first, Contents) and isinstance(second, Contents):
        return _concat_contents(first, second)
    assert isinstance(first, Categorical)
    assert isinstance(second, Categorical)
    categories = tuple(dict.fromkeys(first.categories + second.categories))
    place = {category: k for k, category in enumerate(categories)}
    moved = np.array([place[c] for c in second.categories], np.int32)
    return Categorical(np.concatenate([first.codes, moved[second.codes]]), categories)


def content_codes(table: NDArray[Any]) -> tuple[NDArray[np.int32], Ints]:
    """Return the codes of values (n,), numbered by first occurrence, and the first row of each distinct value."""
    keys = [row.tobytes() for row in table] if table.ndim > 1 else table.tolist()
    place: dict[Any, int] = {}
    codes = np.array([place.setdefault(key, len(place)) for key in keys], np.int32)
    first = np.full(len(place), len(codes))
    np.minimum.at(first, codes, np.arange(len(codes)))
    return codes, first


def _concat_contents(first: Contents, second: Contents) -> Contents:
    """Append one content column to another. Values that occur in both columns are stored only once."""
    if first.table is second.table:
        return Contents(np.concatenate([first.codes, second.codes]), first.table, first.kind)
    if first.table.shape[1:] != second.table.shape[1:]:
        sizes = f"{first.table.shape[1:]} and {second.table.shape[1:]}"
        raise SchemaError(f"expected vectors of the same size in both tables, got {sizes}.")
    joined = np.concatenate([first.table, second.table])
    codes, rows = content_codes(joined)
    moved = np.append(codes, np.int32(MISSING_CODE))  # the last entry is for missing contents
    first_codes = moved[first.codes]
    second_codes = np.append(codes[len(first.table) :], np.int32(MISSING_CODE))[second.codes]
    return Contents(np.concatenate([first_codes, second_codes]), joined[rows], first.kind)


# -- Arrow numbers -----------------------------------------------------------------------------------------------------
# Conversion to NumPy and back. Numbers without missing values become views through DLPack, and NumPy arrays become
# buffers. Arrow's own functions (``to_numpy``, ``pa.array``, ``pa.scalar``) import pandas if it is installed, which
# takes as long as reading a table of many thousand rows.


def is_number(kind: pa.DataType) -> bool:
    """Return True for numeric and boolean types, and for the null type of columns without values."""
    t = pa.types
    return any(test(kind) for test in (t.is_integer, t.is_floating, t.is_boolean, t.is_decimal, t.is_null))


def to_numpy(values: pa.ChunkedArray) -> NDArray[Any]:
    """Return numbers without rounding, with NaN for missing values."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    elif pa.types.is_decimal(values.type) or pa.types.is_null(values.type):
        values = values.cast(pa.float64(), safe=False)
    return array_to_numpy(values.chunk(0) if values.num_chunks == 1 else values.combine_chunks())


def to_float32(values: pa.ChunkedArray) -> NDArray[np.float32]:
    """Return numbers as float32. Arrow chunks are converted one by one, so that no wider copy of the column is made."""
    narrow = np.empty(len(values), np.float32)
    at = 0
    with np.errstate(over="ignore"):
        for chunk in values.chunks:
            narrow[at : at + len(chunk)] = array_to_numpy(chunk)
            at += len(chunk)
    return narrow


def array_to_numpy(values: pa.Array) -> NDArray[Any]:
    """Return the values of an Arrow array, with NaN for missing values. If no value is missing, nothing is copied."""
    kind = values.type
    if values.null_count or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return np.asarray(values.to_numpy(zero_copy_only=False))
    return np.from_dlpack(values)


def array_from_numpy(values: NDArray[Any], is_missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return a NumPy array of numbers as an Arrow array that shares its memory, with missing values where marked."""
    array = np.ascontiguousarray(values)
    buffers = [None if is_missing is None else pa.py_buffer(np.packbits(~is_missing, bitorder="little"))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(array.dtype), len(array), [*buffers, pa.py_buffer(array)])
