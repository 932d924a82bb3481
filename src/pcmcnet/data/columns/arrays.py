"""Columns in memory: numbers as float32, categories as integer codes with their names beside them, and contents.

Contents are what one value is not enough for: a vector, a text, a picture. Each distinct one is kept once, and the rows
hold codes, so that memory does not grow with repeated content.
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

Curve = Literal["piecewise", "spline"]  # numbers, of which networks see a curve as well
CURVES: tuple[str, ...] = get_args(Curve)
MISSING_CODE = -1  # the code of a missing content


@dataclass(frozen=True, slots=True)
class Numeric:
    """Real numbers; NaN marks a missing one, and only where the schema admits it."""

    values: NDArray[np.float32]
    kind: str = "numeric"

    def __len__(self) -> int:
        return len(self.values)

    def take(self, index: Ints | slice) -> Numeric:
        """Take some rows."""
        return Numeric(self.values[index])

    def plain(self) -> NDArray[Any]:
        """Return the values as a person would write them."""
        return self.values


@dataclass(frozen=True, slots=True)
class Categorical:
    """Codes into ``categories``; the list may name more categories than the codes use."""

    codes: NDArray[np.int32]
    categories: tuple[str, ...]
    kind: str = "categorical"

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, index: Ints | slice) -> Categorical:
        """Take some rows; all categories stay."""
        return Categorical(self.codes[index], self.categories)

    def plain(self) -> NDArray[Any]:
        """Return the values as a person would write them."""
        return np.array(self.categories, dtype=object)[self.codes]


@dataclass(frozen=True, slots=True)
class Contents:
    """Codes into a table of distinct contents, ``MISSING_CODE`` if missing; the table may have unused entries."""

    codes: NDArray[np.int32]
    table: NDArray[Any]  # (U, ...) numbers, or (U,) objects; U rows differ
    kind: str  # a name in pcmcnet.data.kinds

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, index: Ints | slice) -> Contents:
        """Take some rows; the table is shared."""
        return Contents(self.codes[index], self.table, self.kind)

    def plain(self) -> NDArray[Any]:
        """Return each row's content: a row of numbers, or an object; None for a gap."""
        out = np.empty(len(self.codes), object)
        out[:] = [None if code == MISSING_CODE else self.table[code] for code in self.codes]
        return out

    def compact(self) -> Contents:
        """Keep only the contents in use, in the order of their first rows: equal for equal rows."""
        used, first, place = np.unique(self.codes, return_index=True, return_inverse=True)
        order = np.argsort(np.where(used == MISSING_CODE, -1, first), kind="stable")
        new = np.empty(len(used), np.int32)
        new[order] = np.arange(len(used), dtype=np.int32) - int((used == MISSING_CODE).any())
        return Contents(new[place], self.table[used[order][used[order] != MISSING_CODE]], self.kind)


Column = Numeric | Categorical | Contents
Columns = Mapping[str, Column]


def take(columns: Columns, index: Ints | slice) -> dict[str, Column]:
    """Take the same rows of every column."""
    return {name: column.take(index) for name, column in columns.items()}


def stored_values(column: Column) -> NDArray[Any]:
    """Return the stored numbers: values, or codes."""
    return column.values if isinstance(column, Numeric) else column.codes


def concat(first: Columns, second: Columns) -> dict[str, Column]:
    """Append the rows of columns with the same names and kinds."""
    return {name: concat_column(column, second[name]) for name, column in first.items()}


def concat_column(first: Column, second: Column) -> Column:
    """Append one column to another; categories are joined by name."""
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
    """Number equal contents alike, by their first rows: (n,) codes, and the first row of each."""
    keys = [row.tobytes() for row in table] if table.ndim > 1 else table.tolist()
    place: dict[Any, int] = {}
    codes = np.array([place.setdefault(key, len(place)) for key in keys], np.int32)
    first = np.full(len(place), len(codes))
    np.minimum.at(first, codes, np.arange(len(codes)))
    return codes, first


def _concat_contents(first: Contents, second: Contents) -> Contents:
    """Append rows; what both tables hold is kept once."""
    if first.table is second.table:
        return Contents(np.concatenate([first.codes, second.codes]), first.table, first.kind)
    if first.table.shape[1:] != second.table.shape[1:]:
        sizes = f"{first.table.shape[1:]} and {second.table.shape[1:]}"
        raise SchemaError(f"only vectors of one size can be joined, got {sizes}.")
    joined = np.concatenate([first.table, second.table])
    codes, rows = content_codes(joined)
    moved = np.append(codes, np.int32(MISSING_CODE))  # the last entry is for the gaps' -1
    ours, theirs = moved[first.codes], np.append(codes[len(first.table) :], np.int32(MISSING_CODE))[second.codes]
    return Contents(np.concatenate([ours, theirs]), joined[rows], first.kind)


# -- Arrow numbers -----------------------------------------------------------------------------------------------------
# To numpy and back. Numbers without gaps are looked at where they lie: Arrow's own conversions load pandas wherever it
# is installed, which takes a quarter of a second.


def is_number(kind: pa.DataType) -> bool:
    """Tell a type of numbers, of truth values, or of nothing but gaps."""
    t = pa.types
    return any(test(kind) for test in (t.is_integer, t.is_floating, t.is_boolean, t.is_decimal, t.is_null))


def to_numpy(values: pa.ChunkedArray) -> NDArray[Any]:
    """Numbers as they are, with NaN for gaps."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    elif pa.types.is_decimal(values.type) or pa.types.is_null(values.type):
        values = values.cast(pa.float64(), safe=False)
    return array_to_numpy(values.chunk(0) if values.num_chunks == 1 else values.combine_chunks())


def to_float32(values: pa.ChunkedArray) -> NDArray[np.float32]:
    """Numbers as float32, chunk by chunk: no wider copy is made."""
    narrow = np.empty(len(values), np.float32)
    at = 0
    with np.errstate(over="ignore"):
        for chunk in values.chunks:
            narrow[at : at + len(chunk)] = array_to_numpy(chunk)
            at += len(chunk)
    return narrow


def array_to_numpy(values: pa.Array) -> NDArray[Any]:
    """Values of one chunk, with NaN for gaps; numbers without gaps are not copied."""
    kind = values.type
    if values.null_count or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return np.asarray(values.to_numpy(zero_copy_only=False))
    return np.from_dlpack(values)


def array_from_numpy(values: NDArray[Any]) -> pa.Array:
    """Numbers where they lie."""
    lying = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(lying.dtype), len(lying), [None, pa.py_buffer(lying)])
