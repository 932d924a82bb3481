"""Features of pairs of a chooser and an item, such as a distance, computed when choice sets are formed.

A pair feature is a function of two mappings, which have one value per pair: the columns of the choosers and those of
the items. :class:`PairTable` looks the values up in a table, for example of the distances between zones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data.columns.arrays import is_number, to_numpy
from pcmcnet.data.files.tabular import read_table
from pcmcnet.errors import InputError, PcmcNetError, SchemaError, did_you_mean

PairFeature = Callable[[Mapping[str, NDArray[Any]], Mapping[str, NDArray[Any]]], Any]


class PairColumns(Mapping[str, NDArray[Any]]):
    """The columns of a table, with one value per pair: numbers as float64, and anything else as objects.

    Parameters
    ----------
    table
        Table of the choosers or of the items.
    role
        Name of the table in messages.
    rows
        Row of the table for each pair.
    cache
        Values of the columns by table row, which are converted once for all chunks.
    """

    def __init__(self, table: pa.Table, role: str, rows: Ints, cache: dict[Any, NDArray[Any]]) -> None:
        self.table, self.role, self.rows, self._cache = table, role, rows, cache

    def __getitem__(self, name: str) -> NDArray[Any]:
        values: NDArray[Any] = self._values(name)[self.rows]
        return values

    def __iter__(self) -> Iterator[str]:
        return iter(self.table.column_names)

    def __len__(self) -> int:
        return int(self.table.num_columns)

    def _values(self, name: str) -> NDArray[Any]:
        """Return the values of a column by table row."""
        if name not in self.table.column_names:
            raise SchemaError(
                f"a pair feature reads column {name!r}, but the table of the {self.role} has no such column."
                + did_you_mean(str(name), self.table.column_names)
            )
        if name not in self._cache:
            self._cache[name] = plain_values(self.table[name])
        return self._cache[name]

    def positions(self, name: str, index: Mapping[Any, int]) -> Ints:
        """Return the position of each pair's value in an index of the column, or -1 if it is not in the index."""
        key = name, id(index)
        if key not in self._cache:
            self._cache[key] = positions_in(self._values(name), index)
        return self._cache[key][self.rows]


def plain_values(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column as float64 numbers, or as objects if it does not hold numbers."""
    if is_number(column.type):
        return to_numpy(column).astype(np.float64)
    return np.array([*column.to_pylist(), None], dtype=object)[:-1]  # the extra entry keeps equal lists from nesting


def positions_in(values: NDArray[Any], index: Mapping[Any, int]) -> Ints:
    """Return the position of each value in an index, or -1 if it is not in the index."""
    return np.fromiter((index.get(value, -1) for value in values.tolist()), np.int64, len(values))


@dataclass(frozen=True, eq=False)
class PairTable:
    """Pair feature that is looked up in a table.

    Parameters
    ----------
    table : path, mapping of arrays, or data frame
        Table with one row per pair.
    chooser : str
        Column of the choosers' table and of ``table`` that identifies the chooser, or its group, such as a home zone.
    item : str
        Column of the catalogue and of ``table`` that identifies the item, or its group, such as a zone.
    value : str
        Column of ``table`` with the value of the pair.
    default : float, optional
        Value of pairs that are not in the table. If None (default), such a pair is an error.

    Raises
    ------
    SchemaError
        If the table cannot be read, lacks a column, or has two rows for a pair.

    Examples
    --------
    >>> km = PairTable({"home": ["a", "a"], "shop": [1, 2], "km": [0.5, 3.0]}, chooser="home", item="shop", value="km")
    >>> km({"home": np.array(["a", "a"], object)}, {"shop": np.array([2, 1])})
    array([3. , 0.5])
    """

    table: Any = field(repr=False)
    chooser: str
    item: str
    value: str
    default: float | None = None
    _choosers: dict[Any, int] = field(init=False, repr=False)  # position of each value of the column ``chooser``
    _items: dict[Any, int] = field(init=False, repr=False)
    _pairs: Ints = field(init=False, repr=False)  # numbers of the pairs in the table, ascending
    _values: Floats = field(init=False, repr=False)  # their values

    def __post_init__(self) -> None:
        arrow = read_table(self.table, [self.chooser, self.item, self.value])
        if not is_number(arrow[self.value].type):
            raise SchemaError(f"pair table, column {self.value!r}: expected numbers, got {arrow[self.value].type}.")
        # 1. Number the choosers and the items, and with them the pairs.
        columns = [plain_values(arrow[name]) for name in (self.chooser, self.item)]
        choosers, items = ({key: k for k, key in enumerate(dict.fromkeys(values.tolist()))} for values in columns)
        pairs = positions_in(columns[0], choosers) * len(items) + positions_in(columns[1], items)
        # 2. Sort the pairs, which must be distinct.
        order = np.argsort(pairs, kind="stable")
        repeated = order[1:][pairs[order][1:] == pairs[order][:-1]]
        if repeated.size:
            row = int(repeated.min())
            first, second = (_shown(values[row]) for values in columns)
            raise SchemaError(
                f"pair table, row {row}: the pair {self.chooser}={first}, {self.item}={second} has an earlier row. "
                f"Each pair needs one value."
            )
        values = to_numpy(arrow[self.value]).astype(np.float64)[order]
        for name, entry in (("_choosers", choosers), ("_items", items), ("_pairs", pairs[order]), ("_values", values)):
            object.__setattr__(self, name, entry)
        object.__setattr__(self, "table", None)  # not needed any more

    def __call__(self, choosers: Mapping[str, NDArray[Any]], items: Mapping[str, NDArray[Any]]) -> Floats:
        """Return the value of each pair."""
        first = _positions(choosers, self.chooser, self._choosers)
        second = _positions(items, self.item, self._items)
        # an unknown chooser or item, and a pair between the numbers of two others, are not in the table
        pairs = np.where((first < 0) | (second < 0), -1, first * len(self._items) + second)
        at = np.minimum(np.searchsorted(self._pairs, pairs), max(len(self._pairs) - 1, 0))
        is_listed = self._pairs[at] == pairs if len(self._pairs) else np.zeros(len(pairs), bool)
        if not is_listed.all():
            if self.default is None:
                row = int(np.argmin(is_listed))
                a, b = choosers[self.chooser][row], items[self.item][row]
                raise SchemaError(
                    f"pair table of {self.value!r}: there is no row for {self.chooser}={_shown(a)} and "
                    f"{self.item}={_shown(b)}. Add the row, or give default=<number>."
                )
            if not len(self._pairs):
                return np.full(len(pairs), float(self.default))
        return self._values[at] if self.default is None else np.where(is_listed, self._values[at], self.default)


def _positions(columns: Mapping[str, NDArray[Any]], name: str, index: Mapping[Any, int]) -> Ints:
    """Return the position of each pair's value in an index, or -1."""
    return columns.positions(name, index) if isinstance(columns, PairColumns) else positions_in(columns[name], index)


def _shown(key: Any) -> str:
    """Return an id as text, with whole numbers written as integers."""
    return str(int(key)) if isinstance(key, float) and key.is_integer() else repr(key)


def pair_values(name: str, feature: PairFeature, choosers: PairColumns, items: PairColumns) -> NDArray[np.float32]:
    """Return the checked values of a pair feature, or raise InputError if its function does not return numbers."""
    n = len(items.rows)
    try:
        values = np.asarray(feature(choosers, items), dtype=np.float64)
    except PcmcNetError:
        raise
    except Exception as error:  # the function is the caller's, so it may raise anything
        raise InputError(
            f"pair feature {name!r}: expected one number per pair, but the function raised {type(error).__name__}: "
            f"{error}. It gets two mappings from column names to arrays with one value per pair: "
            f"lambda choosers, items: choosers['x'] - items['y'], for example."
        ) from error
    if values.shape != (n,):
        raise InputError(
            f"pair feature {name!r}: expected one number per pair, shape ({n},), got shape {values.shape}. The "
            f"function gets arrays with one value per pair, and must return such an array."
        )
    with np.errstate(over="ignore"):
        rounded: NDArray[np.float32] = values.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(rounded))
    if bad.size:
        raise InputError(
            f"pair feature {name!r}, row {choosers.rows[bad[0]]} of the choosers and row {items.rows[bad[0]]} of the "
            f"catalogue: expected a finite number, got {values[bad[0]]}; {bad.size} such pairs."
        )
    return rounded
