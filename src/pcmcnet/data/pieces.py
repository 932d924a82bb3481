"""A long table in memory whose sets lie together -> pieces of whole choice sets, one after the other.

    column of set ids  ->  where each set begins  ->  cuts between sets  ->  the rows between two cuts

``parquet_pieces`` has those of a file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pcmcnet.arrays import Ints
from pcmcnet.data.distinct import is_text
from pcmcnet.data.file_errors import ending, require_columns
from pcmcnet.data.schema import Schema
from pcmcnet.data.tabular import read_table

ROWS, VALUES = 3 * 2**16, 2**25  # of a piece, about: rows, and values in all columns, whichever are fewer (measured)
_LONGEST = 2**31  # bytes of a column of text in one array

Rows: TypeAlias = Mapping[str, Any] | pa.Table  # columns, each an array of NumPy or Arrow or a series
InMemory: TypeAlias = pa.Table | nw.DataFrame[Any]


class Piece(NamedTuple):
    """Some rows of a larger table, all of the sets that they belong to."""

    sizes: Ints  # (S,) rows of each set
    rows: Callable[[], Rows]  # reads them


@dataclass(frozen=True)
class Pieces:
    """A table of whole choice sets, cut between some of them."""

    table: Rows
    starts: Ints  # (S + 1,) first row of each set, then the number of rows
    cuts: Ints  # sets with which pieces begin, then the number of sets

    @classmethod
    def of(cls, table: InMemory, schema: Schema, rows: int | None = None) -> Pieces | None:
        """Cut a table into pieces of about so many rows.

        None for a small table, and where sets do not lie together: these are to be read whole.
        """
        columns = list(schema.columns)
        rows = rows or rows_of_a_piece(schema)
        ids = read_table(table, [schema.choice_set], ids=schema.id_columns)[schema.choice_set]
        starts = set_starts(ids) if len(ids) > rows else None
        if starts is None:
            return None
        if isinstance(table, nw.DataFrame) and (table := _columns(table, columns)) is None:
            return None
        cuts = np.unique(np.searchsorted(starts, range(0, len(ids), rows), "right") - 1)
        starts, cuts = np.append(starts, len(ids)), np.append(cuts, len(starts))
        return cls(table, starts, cuts)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.starts[-1])

    def __iter__(self) -> Iterator[Piece]:
        sizes, at = np.diff(self.starts), self.starts[self.cuts].tolist()
        for (first, last), rows in zip(pairwise(self.cuts), _slices(self.table, at), strict=True):
            yield Piece(sizes[first:last], rows)


def rows_of_a_piece(schema: Schema) -> int:
    """Return about how many rows a piece has, unless one asks for others."""
    return max(min(ROWS, VALUES // len(schema.columns)), 1)


def opened(table: Any, schema: Schema) -> InMemory | Path:
    """Return a Parquet file or a data frame, which can be read piece by piece, and anything else as an Arrow table."""
    if isinstance(table, str | os.PathLike) and ending(Path(table)) == ".parquet":
        return Path(table)
    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame) and not isinstance(table, pa.Table):
        require_columns(schema.columns, frame.columns)
        return frame
    return read_table(table, schema.columns, text=schema.text_columns, ids=schema.id_columns, compact=True)


def _columns(frame: nw.DataFrame[Any], names: list[str]) -> dict[str, Any] | None:
    """Take columns from a frame; None where one is of several types, of which each piece could be read in its own way.

    Numbers of pandas become arrays at once: it takes long to cut a series, and to get at its numbers.
    """
    columns: dict[str, Any] = {name: frame[name] for name in names}
    if nw.Object in {column.dtype for column in columns.values()}:
        return None
    if frame.implementation.is_pandas_like():
        columns |= {name: column.to_numpy() for name, column in columns.items() if column.dtype.is_numeric()}
    return columns


def _slices(table: Rows, at: list[int]) -> Iterator[Callable[[], Rows]]:
    """Cut a table; nothing is copied."""
    cut = table.__getitem__ if isinstance(table, pa.Table) else partial(_cut, table)
    for begin, end in pairwise(at):
        yield partial(cut, slice(begin, end))


def _cut(columns: Mapping[str, Any], rows: slice) -> Rows:
    return {name: column[rows] for name, column in columns.items()}


def set_starts(ids: pa.ChunkedArray) -> Ints | None:
    """Return the first row of each set; None where rows of a set are apart, or ids are gaps or of other types.

    Examples
    --------
    >>> set_starts(pa.chunked_array([[7, 7, 3], [3, 5]]))
    array([0, 2, 4])
    >>> set_starts(pa.chunked_array([[7, 3, 7]]))
    """
    text = is_text(ids.type)
    if ids.null_count or not (pa.types.is_integer(ids.type) or (text and ids.nbytes < _LONGEST)):
        return None
    values = ids.chunk(0) if ids.num_chunks == 1 else ids.combine_chunks()
    starts: Ints = np.append(0, changes(values))
    return starts if all_differ(values.take(pa.array(starts))) else None


def changes(ids: pa.Array) -> Ints:
    """Return the rows, but the first, whose id is not that of the row before; ids are whole numbers or text."""
    if is_text(ids.type):
        return np.flatnonzero(pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)) + 1
    numbers = ids.to_numpy()  # NumPy takes a fraction of the time
    return np.flatnonzero(numbers[1:] != numbers[:-1]) + 1


def all_differ(ids: pa.Array | pa.ChunkedArray) -> bool:
    """Tell whether no id stands twice; of numbers that only rise none does."""
    if pa.types.is_integer(ids.type):
        numbers = ids.to_numpy()
        if (numbers[1:] > numbers[:-1]).all():
            return True
    return bool(pc.count_distinct(ids).as_py() == len(ids))
