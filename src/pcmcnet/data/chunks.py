"""Division of a table into chunks: consecutive rows that hold whole choice sets.

    column of set ids  ->  first row of each set  ->  cuts between sets  ->  the rows between two cuts

A chunk source reads a table once, in the order of its rows:

    FrameChunks     a data frame or an Arrow table in memory, cut into views
    ParquetChunks   one Parquet file, read once and cut while it is decoded: for tables that fit into memory
    FileChunks      a folder or a file of typed columns, in bounded memory: a first pass reads only the ids

A scanned table needs no source: each of its shards holds whole choice sets (:mod:`pcmcnet.data.scan`).

If a table cannot be divided into chunks, the method ``of`` returns None. If a problem is detected only later, for
example because more rows of a set follow further down in a file, the source yields a :class:`ChunkProblem` and ends. In
both cases, the caller reads the whole table and performs all checks.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

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

if TYPE_CHECKING:
    import narwhals as nw

CHUNK_ROWS = 3 * 2**16  # approximate rows per chunk (fastest of the sizes measured)
CHUNK_VALUES = 2**25  # approximate values per chunk in all columns: chunks of wide tables have fewer rows (measured)
MAX_TEXT_BYTES = 2**31  # capacity of a text column in one Arrow array
KEY_COPIES = 3  # copies of the set keys in memory while they are concatenated and sorted

Rows: TypeAlias = Mapping[str, Any] | pa.Table  # columns as NumPy arrays, Arrow arrays or series
InMemory: TypeAlias = "pa.Table | nw.DataFrame[Any]"  # narwhals is imported for data frames only


class Chunk(NamedTuple):
    """Consecutive rows of a table that hold whole choice sets."""

    rows: Rows
    sizes: Ints  # (S,) rows of each set


@dataclass(frozen=True)
class ChunkProblem:
    """Reason why a table must be read as a whole instead of in chunks."""

    reason: str


def too_fine_columns(spans: Mapping[str, Span]) -> list[ChunkProblem]:
    """Return a problem for each column whose values float32 cannot distinguish. ``spans`` must cover all chunks."""
    reason = "column {!r}: float32 may not resolve the differences between its values"
    return [ChunkProblem(reason.format(name)) for name, span in spans.items() if span.is_too_fine_for_float32]


Chunks: TypeAlias = Generator[Chunk | ChunkProblem, None, None]


class ChunkSource(Protocol):
    """A table that can be cut between choice sets."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    def chunks(self) -> Chunks:
        """Yield all rows once, in chunks. The iteration ends after a ChunkProblem."""


def open_table(table: Any, schema: Schema) -> InMemory | Path:
    """Return a Parquet path or a data frame unchanged, and read any other table into Arrow."""
    if isinstance(table, str | os.PathLike) and ending(Path(table)) == ".parquet":
        return Path(table)
    if not isinstance(table, str | os.PathLike | Mapping | pa.Table):
        import narwhals as nw  # files are read without it

        frame = nw.from_native(table, eager_only=True, pass_through=True)
        if isinstance(frame, nw.DataFrame):
            require_columns(schema.columns, frame.columns)
            return frame
    return read_table(table, schema.columns, text=schema.text_columns, ids=schema.id_columns, compact=True)


def chunk_source(table: InMemory | Path, schema: Schema, rows: int | None = None) -> ChunkSource | None:
    """Return a source of chunks of about ``rows`` rows, or None if the table must be read as a whole."""
    rows = rows or max(min(CHUNK_ROWS, CHUNK_VALUES // len(schema.columns)), 1)
    if isinstance(table, Path):
        return ParquetChunks.of(table, schema, rows)
    return FrameChunks.of(table, schema, rows)


# -- tables in memory -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FrameChunks:
    """A table in memory, cut into chunks between choice sets."""

    table: Rows
    starts: Ints  # (S + 1,) first row of each set, then the number of rows
    cuts: Ints  # sets with which chunks begin, then the number of sets

    @classmethod
    def of(cls, table: InMemory, schema: Schema, rows: int) -> FrameChunks | None:
        """Cut a table into chunks, or return None if the table is small or cannot be cut between choice sets."""
        ids = read_table(table, [schema.choice_set], ids=schema.id_columns)[schema.choice_set]
        starts = set_starts(ids) if len(ids) > rows else None
        if starts is None:
            return None
        columns = table if isinstance(table, pa.Table) else _columns(table, schema)
        if columns is None:
            return None
        # move each multiple of ``rows`` back to the first row of its set
        cuts = np.unique(np.searchsorted(starts, range(0, len(ids), rows), "right") - 1)
        return cls(columns, np.append(starts, len(ids)), np.append(cuts, len(starts)))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.starts[-1])

    def chunks(self) -> Chunks:
        """Yield chunks that are views of the table, without a copy."""
        sizes = np.diff(self.starts)
        for first, last in pairwise(self.cuts.tolist()):
            rows = slice(*self.starts[[first, last]].tolist())
            if isinstance(self.table, pa.Table):
                yield Chunk(self.table[rows], sizes[first:last])
            else:
                yield Chunk({name: column[rows] for name, column in self.table.items()}, sizes[first:last])


def sets_in_chunks(data: ChoiceData, rows: int) -> Iterator[ChoiceData]:
    """Yield choice data in chunks of about ``rows`` alternatives, without a copy."""
    cuts = sorted({*np.searchsorted(data.offsets, range(0, len(data.rows), rows)).tolist(), len(data)})
    return (replace(data, **sets_between(data, begin, end)) for begin, end in pairwise(cuts))


def _columns(frame: nw.DataFrame[Any], schema: Schema) -> dict[str, Any] | None:
    """Return the columns of a frame, or None if a column of mixed types might change its type between chunks.

    Numeric pandas columns become arrays, because slicing a series for each chunk is slow.
    """
    import narwhals as nw

    columns: dict[str, Any] = {name: frame[name] for name in schema.columns}
    if nw.Object in {column.dtype for column in columns.values()}:
        return None
    if frame.implementation.is_pandas_like():
        columns |= {name: column.to_numpy() for name, column in columns.items() if column.dtype.is_numeric()}
    return columns


# -- files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParquetChunks:
    """A Parquet file, mapped into memory and read once.

    A separate pass over the ids would slow down prediction on a GPU.
    """

    path: Path
    file: ParquetFile
    schema: Schema
    rows: int

    @classmethod
    def of(cls, path: Path, schema: Schema, rows: int) -> ParquetChunks | None:
        """Open a file, or return None if it has at most ``rows`` rows."""
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
        """Yield chunks that a background thread decodes."""
        return read_ahead(self._decoded())

    def _decoded(self) -> Iterator[Chunk | ChunkProblem]:
        not_adjacent = ChunkProblem(f"{self.path}: rows of a choice set may not be adjacent")
        rest, rows_read, ids, id_column = None, 0, [], self.schema.choice_set
        with as_schema_errors(self.path):
            for batch in self.file.file.iter_batches(self.rows, columns=list(self.schema.columns)):
                # prepend the rows left over from the last batch, and find where sets begin
                table = without_views(pa.Table.from_batches([batch]))
                rest = table if rest is None else pa.concat_tables([rest, table])
                rows_read += len(table)
                starts = set_starts(rest[id_column])
                if starts is None:
                    yield not_adjacent
                    return
                # the last set may continue in the next batch: keep its rows back, unless this is the last batch
                if rows_read == self.n_rows:
                    starts = np.append(starts, len(rest))
                if len(starts) > 1:
                    chunk = rest.slice(0, starts[-1])
                    ids += chunk[id_column].take(pa.array(starts[:-1])).chunks
                    yield Chunk(chunk, np.diff(starts))
                    rest = rest.slice(starts[-1])
        # a set id that occurs in two chunks means rows that are not adjacent
        if not all_differ(pa.chunked_array(ids)):
            yield not_adjacent


@dataclass(frozen=True)
class FileChunks:
    """A file or folder whose columns have declared types. Only a few chunks are in memory at the same time."""

    stream: TableStream
    choice_set: str
    lengths: Ints  # (C,) rows of each chunk
    rows: int  # rows decoded at a time

    @classmethod
    def of(cls, stream: TableStream, choice_set: str, rows: int, key_bytes: int) -> FileChunks | None:
        """Read the ids and cut the table between sets. Return None if :func:`chunk_lengths` returns None."""
        lengths = chunk_lengths(stream.only(choice_set), rows, key_bytes)
        return None if lengths is None else cls(stream, choice_set, lengths, rows)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.lengths.sum())

    def chunks(self) -> Chunks:
        """Yield chunks that a background thread decodes."""
        return read_ahead(self._decoded())

    def _decoded(self) -> Iterator[Chunk | ChunkProblem]:
        text = [field.name for field in self.stream.schema if is_text(field.type) and field.name != self.choice_set]
        batches = self.stream.batches(self.rows, coded=text)
        tables = (_dictionary_encoded(pa.Table.from_batches([batch]), text) for batch in batches)
        rest = next(tables, None)
        for length in map(int, self.lengths):
            # concatenate batches until they hold the chunk; nothing is copied
            while rest is None or rest.num_rows < length:
                table = next(tables, None)
                if rest is None or table is None:
                    yield ChunkProblem(f"{self.stream.path} lost rows while it was read")
                    return
                rest = pa.concat_tables([rest, table])
            # a set is a run of equal ids: chunk_lengths made sure that no id has two runs
            chunk, rest = rest.slice(0, length), rest.slice(length)
            ids = _plain(chunk[self.choice_set]).combine_chunks()
            yield Chunk(chunk, np.diff(np.concatenate([[0], id_changes(ids), [length]])))


def _dictionary_encoded(table: pa.Table, columns: list[str]) -> pa.Table:
    """Dictionary-encode text columns, because some files of a folder may already store them in this form."""
    for name in columns:
        if not pa.types.is_dictionary(table.schema.field(name).type):
            table = table.set_column(table.column_names.index(name), name, table[name].dictionary_encode())
    return table


def chunk_lengths(ids: TableStream, rows: int, key_bytes: int) -> Ints | None:
    """Return the number of rows in each chunk, about ``rows``, computed from the column of set ids.

    Returns None if rows of a set are not adjacent, if an id is missing, if ids are neither integers nor text, or if the
    hash keys of all sets would take more than ``key_bytes``.
    """
    keys, cuts = [np.empty(0, np.uint64)], [np.zeros(1, np.int64)]
    last_start = rows_read = 0  # first row of the last set; number of rows read
    last_id: Any = None
    for batch in ids.batches(rows):
        column = _plain(batch.column(0))
        if column.null_count or not (pa.types.is_integer(column.type) or is_text(column.type)):
            return None
        # collect the keys of the sets that begin in this batch
        begins = id_changes(column)
        if column[0].as_py() != last_id:
            begins = np.append(0, begins)
        keys.append(keys_of(column.take(pa.array(begins))))
        key_bytes -= KEY_COPIES * keys[-1].nbytes
        if key_bytes < 0 or _has_repeats(keys[-1]):
            return None
        # move each multiple of ``rows`` back to the first row of its set
        starts = np.append(last_start, rows_read + begins)
        grid = np.arange(-(-rows_read // rows) * rows, rows_read + len(column), rows)
        cuts.append(starts[np.searchsorted(starts, grid, "right") - 1])
        last_start, rows_read, last_id = int(starts[-1]), rows_read + len(column), column[-1].as_py()
    if _has_repeats(np.concatenate(keys)):
        return None
    return np.diff(np.unique(np.concatenate([*cuts, [rows_read]])))


def _plain(column: Any) -> Any:
    """Decode ids that a file stores as a dictionary."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _has_repeats(keys: Keys) -> bool:
    ordered = np.sort(keys)
    return bool((ordered[1:] == ordered[:-1]).any())


# -- where sets begin -------------------------------------------------------------------------------------------------


def set_starts(ids: pa.ChunkedArray) -> Ints | None:
    """Return the first row of each set, or None if the table cannot be cut between sets.

    Returns None if rows of a set are not adjacent, if an id is missing, or if ids are neither integers nor text.

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
    """Return the rows whose id, an integer or text, differs from the id of the previous row."""
    if is_text(ids.type):
        return np.flatnonzero(pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)) + 1
    numbers = ids.to_numpy()  # NumPy compares integers several times faster than Arrow
    return np.flatnonzero(numbers[1:] != numbers[:-1]) + 1


def all_differ(ids: pa.Array | pa.ChunkedArray) -> bool:
    """Return True if no id occurs twice."""
    if pa.types.is_integer(ids.type):
        numbers = ids.to_numpy()
        if (numbers[1:] > numbers[:-1]).all():  # increasing ids need no hash table
            return True
    return bool(pc.count_distinct(ids).as_py() == len(ids))
