"""A long table whose sets lie together -> pieces of whole choice sets, one after the other.

    column of set ids  ->  where each set begins  ->  cuts between sets  ->  the rows between two cuts

A Parquet file is decoded piece by piece, too: the first while set ids are read, and it is in use before the last is.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pcmcnet.arrays import Ints
from pcmcnet.data.distinct import is_text
from pcmcnet.data.file_errors import ending, one_sentence, require_columns
from pcmcnet.data.read_files import Parquet
from pcmcnet.data.schema import Schema
from pcmcnet.data.tabular import read_table
from pcmcnet.data.views import without_views

ROWS, VALUES = 3 * 2**16, 2**25  # of a piece, about: rows, and values in all columns, whichever are fewer (measured)
_AHEAD = 2  # pieces that are decoded before they are asked for (by choice)
_LONGEST = 2**31  # bytes of a column of text in one array

Rows: TypeAlias = Mapping[str, Any] | pa.Table  # columns, each an array of NumPy or Arrow or a series
Opened: TypeAlias = pa.Table | nw.DataFrame[Any] | Path


class Piece(NamedTuple):
    """Some rows of a larger table, all of the sets that they belong to."""

    sizes: Ints  # (S,) rows of each set
    rows: Callable[[], Rows]  # reads them


@dataclass(frozen=True)
class Pieces:
    """A table of whole choice sets, cut between some of them; a file is gone through once."""

    table: Rows | Decoder
    starts: Ints  # (S + 1,) first row of each set, then the number of rows
    cuts: Ints  # sets with which pieces begin, then the number of sets

    @classmethod
    def of(cls, table: Opened, schema: Schema, rows: int | None = None) -> Pieces | None:
        """Cut what :func:`opened` returns into pieces of about so many rows.

        None for a small table, and where sets do not lie together: these are to be read whole.
        """
        columns = list(schema.columns)
        rows = rows or max(min(ROWS, VALUES // len(columns)), 1)
        decoder = _decoder(table, schema, rows) if isinstance(table, Path) else None
        ids = _ids(table, schema)
        starts = set_starts(ids) if len(ids) > rows else None
        if starts is None:
            return None
        if isinstance(table, nw.DataFrame) and (table := _columns(table, columns)) is None:
            return None
        cuts = np.unique(np.searchsorted(starts, range(0, len(ids), rows), "right") - 1)
        starts, cuts = np.append(starts, len(ids)), np.append(cuts, len(starts))
        return cls(decoder or table, starts, cuts)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.starts[-1])

    def __iter__(self) -> Iterator[Piece]:
        sizes, at = np.diff(self.starts), self.starts[self.cuts].tolist()
        read = self.table.pieces(np.diff(at)) if isinstance(self.table, Decoder) else _slices(self.table, at)
        for (first, last), rows in zip(pairwise(self.cuts), read, strict=True):
            yield Piece(sizes[first:last], rows)


def opened(table: Any, schema: Schema) -> Opened:
    """Return a Parquet file or a data frame, which can be read piece by piece, and anything else as an Arrow table."""
    if isinstance(table, str | os.PathLike) and ending(Path(table)) == ".parquet":
        return Path(table)
    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame) and not isinstance(table, pa.Table):
        require_columns(schema.columns, frame.columns)
        return frame
    return read_table(table, schema.columns, text=schema.text_columns, ids=schema.id_columns, compact=True)


def _ids(table: Opened, schema: Schema) -> pa.ChunkedArray:
    """Read the column of set ids."""
    if isinstance(table, Path):
        with one_sentence(table):
            file = Parquet(table, mapped=True)
            return without_views(file.read([schema.choice_set], (), (), False))[schema.choice_set]
    return read_table(table, [schema.choice_set], ids=schema.id_columns)[schema.choice_set]


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


def _decoder(path: Path, schema: Schema, rows: int) -> Decoder | None:
    """Begin to decode a file, unless it is small."""
    with one_sentence(path):
        file = Parquet(path, mapped=True)
        require_columns(schema.columns, file.names, where=str(path))
        return Decoder(path, file, list(schema.columns), rows) if file.file.metadata.num_rows > rows else None


class Decoder:
    """Decodes a Parquet file of more than so many rows in a thread, two pieces ahead of what is asked for."""

    def __init__(self, path: Path, file: Parquet, columns: list[str], rows: int) -> None:
        self.path, self.batches = path, file.file.iter_batches(rows, columns=columns)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="pcmcnet-decode")
        self.begun = [self.thread.submit(next, self.batches) for _ in range(_AHEAD)]

    def pieces(self, lengths: Ints) -> Iterator[Callable[[], Rows]]:
        """Yield functions that return the next so many rows."""
        batches = chain(map(Future.result, self.begun), self.batches)
        between = _between((without_views(pa.Table.from_batches([batch])) for batch in batches), lengths)

        def following() -> pa.Table:
            with one_sentence(self.path):
                return next(between)

        ahead = deque(self.thread.submit(following) for _ in lengths[:_AHEAD])
        for _ in lengths[_AHEAD:]:
            ahead.append(self.thread.submit(following))
            yield ahead.popleft().result
        for piece in ahead:
            yield piece.result


def _between(tables: Iterator[pa.Table], lengths: Ints) -> Iterator[pa.Table]:
    """Put tables together and cut them anew, into parts of so many rows; nothing is copied."""
    rest = next(tables)
    for length in map(int, lengths):
        while rest.num_rows < length:
            rest = pa.concat_tables([rest, next(tables)])
        yield rest.slice(0, length)
        rest = rest.slice(length)


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
    if text:
        differ = pc.not_equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False)
    else:  # NumPy takes a fraction of the time
        differ = values.to_numpy()[1:] != values.to_numpy()[:-1]
    starts: Ints = np.append(0, np.flatnonzero(differ) + 1)
    return starts if pc.count_distinct(values.take(pa.array(starts))).as_py() == len(starts) else None
