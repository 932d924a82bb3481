"""A long table whose sets lie together -> pieces of whole choice sets, which threads can read side by side.

    column of set ids  ->  where each set begins  ->  cuts between sets  ->  the rows between two cuts, piece by piece

A Parquet file is decoded, and a data frame converted, piece by piece, too: the first is in use before the last is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, TypeAlias

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pcmcnet.arrays import Ints
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.column_reader import Part
from pcmcnet.data.distinct import is_text
from pcmcnet.data.file_errors import one_sentence, require_columns
from pcmcnet.data.float32_resolution import Span
from pcmcnet.data.long import read
from pcmcnet.data.read_files import Parquet, open_source
from pcmcnet.data.schema import Schema
from pcmcnet.data.tabular import read_table
from pcmcnet.data.views import without_views

ROWS, VALUES = 2**16, 2**23  # of a piece, about: rows, and values in all columns, whichever are fewer
_LONGEST = 2**31  # bytes of a column of text in one array

_Tables: TypeAlias = Iterator[Callable[[], pa.Table]]  # what reads each piece into Arrow
Opened: TypeAlias = pa.Table | Path | nw.DataFrame[Any]


@dataclass(frozen=True)
class Pieces:
    """A table of whole choice sets, cut between some of them."""

    schema: Schema
    cuts: list[int]  # first row of each piece, then the number of rows
    tables: Callable[[list[int]], _Tables]  # of the pieces between such cuts
    spans: list[dict[str, Span]] = field(default_factory=list)  # of columns of the pieces that are read

    @classmethod
    def of(cls, table: Opened, schema: Schema, rows: int | None = None) -> Pieces | None:
        """Cut what :func:`opened` returns into pieces of about so many rows; None where it is to be read whole.

        That is a small table, one whose sets do not lie together, a wide one, and one with contents such as texts, or
        with outside options, which stand behind all rows.
        """
        if schema.contents or schema.outside is not None or schema.wide:
            return None
        ids = read_table(table, [schema.choice_set], ids=schema.id_columns)[schema.choice_set]
        cuts = _cuts(ids, rows or max(min(ROWS, VALUES // len(schema.columns)), 1))
        if cuts is None:
            return None
        ways: dict[type, Callable[..., _Tables]] = {pa.Table: _slices, nw.DataFrame: _converted}
        return cls(schema, cuts, partial(ways.get(type(table), _decoded), table, schema))

    def __iter__(self) -> Iterator[Piece]:
        for (begin, end), table in zip(pairwise(self.cuts), self.tables(self.cuts), strict=True):
            self.spans.append({})
            yield Piece(self.schema, table, Part(np.arange(begin, end), self.spans[-1]))

    def judge(self) -> None:
        """Refuse columns that no single piece can be judged by, once all are read: see ``float32_resolution``."""
        everything = Part(np.empty(0, np.int64))
        for name, span in chain.from_iterable(spans.items() for spans in self.spans):
            everything.add(name, span)
        for name, span in everything.spans.items():
            span.require_steps(name)


@dataclass(frozen=True)
class Piece:
    """Some rows of a larger table, all of the sets that they belong to; not read yet."""

    schema: Schema
    table: Callable[[], pa.Table]
    part: Part

    def read(self) -> ChoiceData:
        """Read and check them; what can only be judged of all pieces is in the part."""
        return ChoiceData(**read(self.table(), self.schema, self.part))


def opened(table: Any, schema: Schema) -> Opened:
    """Return a Parquet file or a data frame, which can be read piece by piece, and anything else as an Arrow table."""
    if isinstance(table, str | os.PathLike) and isinstance(open_source(Path(table)), Parquet):
        return Path(table)
    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame) and not isinstance(table, pa.Table):
        require_columns(schema.columns, frame.columns)
        if (
            nw.Object not in frame[list(schema.columns)].schema.dtypes()
        ):  # of which each piece may be read in its own way
            return frame
    return read_table(table, schema.columns, text=schema.text_columns, ids=schema.id_columns, compact=True)


def _slices(table: pa.Table, schema: Schema, cuts: list[int]) -> _Tables:
    for begin, end in pairwise(cuts):
        yield partial(table.slice, begin, end - begin)


def _converted(frame: nw.DataFrame[Any], schema: Schema, cuts: list[int]) -> _Tables:
    for begin, end in pairwise(cuts):
        yield partial(read_table, frame[begin:end], schema.columns)


def _decoded(path: Path, schema: Schema, cuts: list[int]) -> _Tables:
    """Decode one piece after the other in a thread, each as soon as it is asked for."""
    columns = list(schema.columns)
    with one_sentence(path):
        batches = Parquet(path).file.iter_batches(cuts[1], columns=columns)
    between = _between((without_views(pa.Table.from_batches([b]).select(columns)) for b in batches), np.diff(cuts))

    def following() -> pa.Table:
        with one_sentence(path):
            return next(between)

    with ThreadPoolExecutor(1, thread_name_prefix="pcmcnet-decode") as thread:
        for _ in pairwise(cuts):
            yield thread.submit(following).result


def _between(tables: Iterator[pa.Table], lengths: Ints) -> Iterator[pa.Table]:
    """Put tables together and cut them anew, into parts of so many rows; nothing is copied."""
    rest = next(tables)
    for length in map(int, lengths):
        while rest.num_rows < length:
            rest = pa.concat_tables([rest, next(tables)])
        yield rest.slice(0, length)
        rest = rest.slice(length)


def _cuts(ids: pa.ChunkedArray, rows: int) -> list[int] | None:
    """Return where pieces of whole sets begin, and where the last one ends; None for a single piece."""
    starts = set_starts(ids) if len(ids) > rows else None
    if starts is None:
        return None
    at = np.append(starts, len(ids))
    cuts: list[int] = np.unique(at[np.searchsorted(at, [*range(0, len(ids), rows), len(ids)])]).tolist()
    return cuts


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
    runs = pc.run_end_encode(ids.combine_chunks(), run_end_type=pa.int64())
    if pc.count_distinct(runs.values).as_py() < len(runs.values):
        return None
    starts: Ints = np.append(0, runs.run_ends.to_numpy()[:-1])
    return starts
