"""A table -> chunks: consecutive rows that hold whole choice sets, one chunk after the other.

    column of set ids  ->  first row of each set  ->  cuts between sets  ->  the rows between two cuts

A source goes once through a table, in the order of its rows:

    FrameChunks     a data frame or an Arrow table in memory, cut into views of it
    ParquetChunks   one Parquet file, read once and cut as it is decoded: for tables that fit into memory
    FileChunks      a folder or a file of typed columns, in bounded memory: the ids are read first, by themselves

A scanned table needs no such source: each of its shards holds whole choice sets already (:mod:`pcmcnet.data.scan`).

A table that cannot be cut has no source: ``of`` returns None. What only shows on the way, such as a set that goes on
further down a file, is yielded as a :class:`ChunkProblem`, and the source ends with it. Either way the caller reads the
table whole, with all checks.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pcmcnet.arrays import Ints
from pcmcnet.concurrency import read_ahead
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns.distinct import Keys, is_text, keys_of
from pcmcnet.data.columns.statistics import Span
from pcmcnet.data.files.read_files import (
    ParquetFile,
    as_schema_errors,
    ending,
    require_columns,
    require_path,
    without_views,
)
from pcmcnet.data.files.sources import TableStream
from pcmcnet.data.files.tabular import read_table
from pcmcnet.data.schema import Schema
from pcmcnet.data.subsets import sets_between

CHUNK_ROWS = 3 * 2**16  # rows of a chunk, about (measured)
CHUNK_VALUES = 2**25  # values of a chunk in all columns, about: wide tables have fewer rows in a chunk (measured)
MAX_TEXT_BYTES = 2**31  # bytes of a column of text in one Arrow array
KEY_COPIES = 3  # copies of the keys of sets in memory, while they are put together and sorted

Rows: TypeAlias = Mapping[str, Any] | pa.Table  # columns: arrays of NumPy or Arrow, or series
InMemory: TypeAlias = pa.Table | nw.DataFrame[Any]


class Chunk(NamedTuple):
    """Consecutive rows of a table that hold whole choice sets."""

    rows: Rows
    sizes: Ints  # (S,) rows of each set


@dataclass(frozen=True)
class ChunkProblem:
    """Why a table has to be read whole: something that chunks cannot show, or cannot word for all rows."""

    reason: str


def too_fine_columns(spans: Mapping[str, Span]) -> list[ChunkProblem]:
    """Return a problem for each column whose numbers 32 bits cannot tell apart, which only all chunks together show."""
    reason = "32 bits may not tell the numbers of column {!r} apart"
    return [ChunkProblem(reason.format(name)) for name, span in spans.items() if span.is_too_fine_for_float32]


Chunks: TypeAlias = Generator[Chunk | ChunkProblem, None, None]


class ChunkSource(Protocol):
    """A table that can be cut between choice sets."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    def chunks(self) -> Chunks:
        """Go once through all rows; a problem ends it."""


def open_table(table: Any, schema: Schema) -> InMemory | Path:
    """Return a Parquet file or a data frame as it is, and read anything else into an Arrow table."""
    if isinstance(table, str | os.PathLike) and ending(Path(table)) == ".parquet":
        return Path(table)
    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame) and not isinstance(table, pa.Table):
        require_columns(schema.columns, frame.columns)
        return frame
    return read_table(table, schema.columns, text=schema.text_columns, ids=schema.id_columns, compact=True)


def chunk_source(table: InMemory | Path, schema: Schema, rows: int | None = None) -> ChunkSource | None:
    """Cut what :func:`open_table` returned into chunks of about ``rows`` rows; None if it is to be read whole."""
    rows = rows or max(min(CHUNK_ROWS, CHUNK_VALUES // len(schema.columns)), 1)
    if isinstance(table, Path):
        return ParquetChunks.of(table, schema, rows)
    return FrameChunks.of(table, schema, rows)


# -- tables in memory -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FrameChunks:
    """A table in memory, cut between some of its choice sets."""

    table: Rows
    starts: Ints  # (S + 1,) first row of each set, then the number of rows
    cuts: Ints  # sets with which chunks begin, then the number of sets

    @classmethod
    def of(cls, table: InMemory, schema: Schema, rows: int) -> FrameChunks | None:
        """Cut a table; None if it is small, if rows of a set lie apart, or if a column holds several types."""
        ids = read_table(table, [schema.choice_set], ids=schema.id_columns)[schema.choice_set]
        starts = set_starts(ids) if len(ids) > rows else None
        if starts is None:
            return None
        columns = _columns(table, schema) if isinstance(table, nw.DataFrame) else table
        if columns is None:
            return None
        # each multiple of ``rows`` moves back to the first row of the set that it lies in
        cuts = np.unique(np.searchsorted(starts, range(0, len(ids), rows), "right") - 1)
        return cls(columns, np.append(starts, len(ids)), np.append(cuts, len(starts)))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.starts[-1])

    def chunks(self) -> Chunks:
        """Yield views of the rows; nothing is copied."""
        sizes = np.diff(self.starts)
        for first, last in pairwise(self.cuts.tolist()):
            rows = slice(*self.starts[[first, last]].tolist())
            if isinstance(self.table, pa.Table):
                yield Chunk(self.table[rows], sizes[first:last])
            else:
                yield Chunk({name: column[rows] for name, column in self.table.items()}, sizes[first:last])


def sets_in_chunks(data: ChoiceData, rows: int) -> Iterator[ChoiceData]:
    """Yield choice data in chunks of about ``rows`` alternatives; nothing is copied."""
    cuts = sorted({*np.searchsorted(data.offsets, range(0, len(data.rows), rows)).tolist(), len(data)})
    return (replace(data, **sets_between(data, begin, end)) for begin, end in pairwise(cuts))


def _columns(frame: nw.DataFrame[Any], schema: Schema) -> dict[str, Any] | None:
    """Take the columns of a frame; None if one holds several types, of which each chunk could be read in its own way.

    Numbers of pandas become arrays at once: it takes long to cut a series, and to get at its numbers.
    """
    columns: dict[str, Any] = {name: frame[name] for name in schema.columns}
    if nw.Object in {column.dtype for column in columns.values()}:
        return None
    if frame.implementation.is_pandas_like():
        columns |= {name: column.to_numpy() for name, column in columns.items() if column.dtype.is_numeric()}
    return columns


# -- files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParquetChunks:
    """A Parquet file, mapped into memory and read once. Its ids are not read ahead: that takes longer on a GPU."""

    path: Path
    file: ParquetFile
    schema: Schema
    rows: int

    @classmethod
    def of(cls, path: Path, schema: Schema, rows: int) -> ParquetChunks | None:
        """Open a file; None if it is small."""
        require_path(path)
        with as_schema_errors(path):
            file = ParquetFile(path, mapped=True)
            require_columns(schema.columns, file.names, where=str(path))
        return cls(path, file, schema, rows) if file.file.metadata.num_rows > rows else None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.file.file.metadata.num_rows)

    def chunks(self) -> Chunks:
        """Decode chunks in a thread."""
        return read_ahead(self._decoded())

    def _decoded(self) -> Iterator[Chunk | ChunkProblem]:
        apart = ChunkProblem(f"{self.path}: rows of a choice set may lie apart")
        rest, rows_read, ids, id_column = None, 0, [], self.schema.choice_set
        with as_schema_errors(self.path):
            for batch in self.file.file.iter_batches(self.rows, columns=list(self.schema.columns)):
                # put the rows that were left over before the new ones, and see where sets begin among them
                table = without_views(pa.Table.from_batches([batch]))
                rest = table if rest is None else pa.concat_tables([rest, table])
                rows_read += len(table)
                starts = set_starts(rest[id_column])
                if starts is None:
                    yield apart
                    return
                # the last set may go on in the next batch: its rows are left over, unless these are the last
                if rows_read == self.n_rows:
                    starts = np.append(starts, len(rest))
                if len(starts) > 1:
                    chunk = rest.slice(0, starts[-1])
                    ids += chunk[id_column].take(pa.array(starts[:-1])).chunks
                    yield Chunk(chunk, np.diff(starts))
                    rest = rest.slice(starts[-1])
        # no set of one chunk may go on in another
        if not all_differ(pa.chunked_array(ids)):
            yield apart


@dataclass(frozen=True)
class FileChunks:
    """A folder or a file of typed columns, of which a few chunks are in memory at a time."""

    stream: TableStream
    choice_set: str
    lengths: Ints  # (C,) rows of each chunk
    rows: int  # decoded at a time

    @classmethod
    def of(cls, stream: TableStream, choice_set: str, rows: int, key_bytes: int) -> FileChunks | None:
        """Read the ids, and cut between sets; None as for :func:`chunk_lengths`."""
        lengths = chunk_lengths(stream.only(choice_set), rows, key_bytes)
        return None if lengths is None else cls(stream, choice_set, lengths, rows)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.lengths.sum())

    def chunks(self) -> Chunks:
        """Decode chunks in a thread."""
        return read_ahead(self._decoded())

    def _decoded(self) -> Iterator[Chunk | ChunkProblem]:
        words = [field.name for field in self.stream.schema if is_text(field.type) and field.name != self.choice_set]
        batches = self.stream.batches(self.rows, coded=words)
        tables = (_with_codes(pa.Table.from_batches([batch]), words) for batch in batches)
        rest = next(tables, None)
        for length in map(int, self.lengths):
            # put batches together until they hold the chunk; nothing is copied
            while rest is None or rest.num_rows < length:
                table = next(tables, None)
                if rest is None or table is None:
                    yield ChunkProblem(f"{self.stream.path} has lost rows while it was read")
                    return
                rest = pa.concat_tables([rest, table])
            # the sets are as long as their ids are equal: that no set comes twice is known
            chunk, rest = rest.slice(0, length), rest.slice(length)
            ids = _plain(chunk[self.choice_set]).combine_chunks()
            yield Chunk(chunk, np.diff(np.concatenate([[0], id_changes(ids), [length]])))


def _with_codes(table: pa.Table, words: list[str]) -> pa.Table:
    """Return a table with text as codes, as it comes from those files of a folder that are read as they are."""
    for name in words:
        if not pa.types.is_dictionary(table.schema.field(name).type):
            table = table.set_column(table.column_names.index(name), name, table[name].dictionary_encode())
    return table


def chunk_lengths(ids: TableStream, rows: int, key_bytes: int) -> Ints | None:
    """Return the numbers of rows of chunks, each of about ``rows`` rows, from the column of set ids.

    None if rows of a set lie apart, if ids are missing or of other types than whole numbers and text, or if there are
    so many sets that their keys, 8 bytes each, take more than ``key_bytes``.
    """
    keys, cuts = [np.empty(0, np.uint64)], [np.zeros(1, np.int64)]
    last_start = rows_read = 0  # row at which the last set begins; rows read so far
    last_id: Any = None
    for batch in ids.batches(rows):
        column = _plain(batch.column(0))
        if column.null_count or not (pa.types.is_integer(column.type) or is_text(column.type)):
            return None
        # note the keys of the sets that begin here
        begins = id_changes(column)
        if column[0].as_py() != last_id:
            begins = np.append(0, begins)
        keys.append(keys_of(column.take(pa.array(begins))))
        key_bytes -= KEY_COPIES * keys[-1].nbytes
        if key_bytes < 0 or _has_repeats(keys[-1]):
            return None
        # each multiple of ``rows`` moves back to the first row of the set that it lies in
        starts = np.append(last_start, rows_read + begins)
        grid = np.arange(-(-rows_read // rows) * rows, rows_read + len(column), rows)
        cuts.append(starts[np.searchsorted(starts, grid, "right") - 1])
        last_start, rows_read, last_id = int(starts[-1]), rows_read + len(column), column[-1].as_py()
    if _has_repeats(np.concatenate(keys)):
        return None
    return np.diff(np.unique(np.concatenate([*cuts, [rows_read]])))


def _plain(column: Any) -> Any:
    """Return ids as numbers or text where a file has them as codes."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _has_repeats(keys: Keys) -> bool:
    ordered = np.sort(keys)
    return bool((ordered[1:] == ordered[:-1]).any())


# -- where sets begin -------------------------------------------------------------------------------------------------


def set_starts(ids: pa.ChunkedArray) -> Ints | None:
    """Return the first row of each set; None if rows of a set lie apart, or ids are missing or of other types.

    Examples
    --------
    >>> set_starts(pa.chunked_array([[7, 7, 3], [3, 5]]))
    array([0, 2, 4])
    >>> set_starts(pa.chunked_array([[7, 3, 7]]))
    """
    text = is_text(ids.type)
    if ids.null_count or not (pa.types.is_integer(ids.type) or (text and ids.nbytes < MAX_TEXT_BYTES)):
        return None
    values = ids.chunk(0) if ids.num_chunks == 1 else ids.combine_chunks()
    starts: Ints = np.append(0, id_changes(values))
    return starts if all_differ(values.take(pa.array(starts))) else None


def id_changes(ids: pa.Array) -> Ints:
    """Return the rows, except the first, whose id is not that of the row before; ids are whole numbers or text."""
    if is_text(ids.type):
        return np.flatnonzero(pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)) + 1
    numbers = ids.to_numpy()  # NumPy takes a fraction of the time
    return np.flatnonzero(numbers[1:] != numbers[:-1]) + 1


def all_differ(ids: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether no id comes twice; rising numbers need no look-up."""
    if pa.types.is_integer(ids.type):
        numbers = ids.to_numpy()
        if (numbers[1:] > numbers[:-1]).all():
            return True
    return bool(pc.count_distinct(ids).as_py() == len(ids))
