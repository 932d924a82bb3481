"""Distribution of rows, in any order, to partitions on disk that fit into memory and hold whole choice sets.

The hash of the set id determines the partition of a row. Rows keep their order within a partition, so that the
partition can be read like a table. Each row is stored with its row number in the whole table. Text columns are written
as word codes. Content columns, whose values may all differ, are written unchanged.

Each worker distributes the rows of one chunk of the table, and numbers the words in the order in which they occur in
the chunk. Combining the chunks in order gives the same partitions and codes as if one worker had read the table from
the first row to the last. The result therefore does not depend on the number of chunks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pcmcnet.data.column_reader import AS_OTHERS, CORRECT, mistaken_text
from pcmcnet.data.columns.distinct import (
    UNREADABLE,
    Keys,
    distinct,
    first_rows,
    is_text,
    keys_of,
    partition_numbers,
    renumber_by_first_row,
    value_type,
)
from pcmcnet.data.files.csv_files import ENCODED_TEXT
from pcmcnet.data.files.sources import TableStream, Units
from pcmcnet.data.scan.workers import Workers
from pcmcnet.errors import SchemaError, such_rows

# -- Vocabulary --------------------------------------------------------------------------------------------------------
# The words of a text column, numbered in the order in which they occur. Partitions store these codes.


class Vocabulary:
    """Words of a text column, with their codes, counts and first rows."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.counts: list[int] = []
        self.rows: list[int] = []

    def encode(self, column: pa.Array, first_row: int) -> pa.Array:
        """Return the codes of words, and add new words to the vocabulary. Missing values stay missing."""
        coded = distinct(pa.chunked_array([column]))
        codes, values = renumber_by_first_row(coded) if pa.types.is_dictionary(column.type) else coded
        counts = np.bincount(codes + 1, minlength=len(values) + 1)[1:]  # without the -1 of missing values
        first = first_rows(codes, len(values))
        new_codes = np.empty(len(values) + 1, np.int32)  # the last entry belongs to the -1 of missing values
        for k, word in enumerate(values.to_pylist()):
            new_codes[k] = self._add_word(word, int(counts[k]), first_row + int(first[k]))
        is_missing = codes < 0
        return pa.array(new_codes[codes], mask=is_missing if is_missing.any() else None)

    def add(self, later: Vocabulary) -> NDArray[np.int32]:
        """Add the vocabulary of later rows, and return the new codes of its words."""
        new_codes = np.empty(len(later.codes), np.int32)
        for k, (word, count, row) in enumerate(zip(later.codes, later.counts, later.rows, strict=True)):
            new_codes[k] = self._add_word(word, count, row)
        return new_codes

    def _add_word(self, word: str, count: int, row: int) -> int:
        """Count a word and return its code. ``row`` is the first row with the word."""
        code = self.codes.setdefault(word, len(self.codes))
        if code == len(self.counts):
            self.counts.append(0)
            self.rows.append(row)
        self.counts[code] += count
        return code

    @property
    def words(self) -> pa.Array:
        """All words, in the order of their codes."""
        return pa.array(list(self.codes), pa.string())

    def require_no_stray_text(self, column: str, name_set: Callable[[int], str]) -> None:
        """Raise SchemaError if a few values in a column of numbers are text, as for a table in memory."""
        values, counts, rows = self.words, np.array(self.counts), np.array(self.rows)
        mistakes = mistaken_text(column, values, counts)
        if mistakes.any():
            bad_words = np.flatnonzero(mistakes)
            first = bad_words[np.argmin(rows[bad_words])]
            row = int(rows[first])
            raise SchemaError(
                f"column {column!r}, row {row} (choice set {name_set(row)}): {AS_OTHERS}, "
                f"got {values[int(first)].as_py()!r}; {such_rows(counts[bad_words].sum())}. {CORRECT}"
            )


# -- Partitions --------------------------------------------------------------------------------------------------------

_MAX_BATCH_ROWS = 2**18  # read in one step
_CHUNKS_PER_WORKER = 8  # so that slower workers can process fewer chunks
_WRITE_BUFFER = 2**18  # bytes; one batch may have only some hundred bytes of a column for a partition
_FILES_PER_CHUNK = 16  # each has several consecutive partitions, and is removed when all of them are shards


class ScanChunk(NamedTuple):
    """A chunk of consecutive units (row groups or blocks) of a table: chunk number, units, and first row."""

    number: int
    units: Units
    first: int


def cut_into_chunks(units: Sequence[int], count: int) -> list[ScanChunk]:
    """Cut a table into at most ``count`` chunks of decreasing size. ``units`` are the row counts of the table's units.

    After k chunks, the share (1 - k/count)^2 of the rows is left. The last chunks are short, so that no worker waits
    long at the end. The first chunks are long, so that there are few chunks to combine.

    Examples
    --------
    >>> [(chunk.units, chunk.first) for chunk in cut_into_chunks([5, 5, 5, 5], 2)]
    [(range(0, 3), 0), (range(3, 4), 15)]
    """
    if count == 1 or len(units) < 2:
        return [ScanChunk(0, None, 0)]
    ends = np.cumsum([0, *units])
    bounds = np.unique(np.searchsorted(ends, [ends[-1] * (1 - (1 - k / count) ** 2) for k in range(count + 1)]))
    return [ScanChunk(k, range(a, b), int(ends[a])) for k, (a, b) in enumerate(pairwise(bounds.tolist()))]


@dataclass
class SpilledChunk:
    """Result of distributing a chunk: vocabularies, row counts, and the batch numbers of each partition in its file."""

    vocabularies: dict[str, Vocabulary]
    rows: int = 0
    missing_ids: int = 0
    first_missing_id: int = 0  # row
    batches: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True)
class RowSpiller:
    """Distributes the rows of a chunk to partitions."""

    folder: Path
    open_table: Callable[[], TableStream]
    choice_set: str
    count: int  # of partitions
    text: Collection[str]  # columns whose words are written as codes
    at_once: int  # rows read in one step

    def __call__(self, chunk: ScanChunk) -> SpilledChunk:
        """Read a chunk once and write its rows to the files of the partitions."""
        spilled, stream = SpilledChunk({name: Vocabulary() for name in self.text}), self.open_table()
        with ExitStack() as stack:
            writers: dict[int, Any] = {}
            written: dict[int, int] = defaultdict(int)
            for batch in stream.batches(self.at_once, chunk.units, self.text):
                keys, missing = self._keys(batch.column(self.choice_set))
                begin = chunk.first + spilled.rows
                if missing.any():  # count all missing ids for the message; nothing more is written
                    if not spilled.missing_ids:
                        spilled.first_missing_id = begin + int(np.argmax(missing))
                    spilled.missing_ids += int(missing.sum())
                elif not spilled.missing_ids:
                    coded = _coded(stream.columns, batch, spilled.vocabularies, begin)
                    for partition, rows in _by_partition(coded, partition_numbers(keys, self.count), self.count):
                        file = _file_number(partition, self.count)
                        if file not in writers:
                            path = str(_path(self.folder, chunk.number, file))
                            sink = stack.enter_context(pa.output_stream(path, None, _WRITE_BUFFER))
                            writers[file] = stack.enter_context(pa.ipc.new_file(sink, rows.schema))
                        writers[file].write_batch(rows)
                        spilled.batches[partition].append(written[file])
                        written[file] += 1
                spilled.rows += batch.num_rows
        return spilled

    def _keys(self, ids: pa.Array) -> tuple[Keys, NDArray[np.bool_]]:
        """Return the keys of a batch of ids, and the mask of missing ids. If any id is missing, the keys are empty."""
        try:
            missing = np.asarray(pc.is_null(ids, nan_is_null=True))
            return (np.empty(0, np.uint64) if missing.any() else keys_of(ids)), missing
        except UNREADABLE as error:
            raise SchemaError(
                f"column {self.choice_set!r} has the type {ids.type}, which is not supported for choice-set ids."
            ) from error


@dataclass(frozen=True)
class Partitions:
    """The partitions of a table on disk, and the vocabularies of its text columns."""

    folder: Path
    columns: Sequence[str]
    count: int
    rows: int
    vocabularies: Mapping[str, Vocabulary]
    names: Mapping[str, tuple[pa.Array, list[pa.Array]]]  # by column: all words, and the codes of each chunk's words
    batches: Sequence[Mapping[int, Sequence[int]]]  # by chunk: the batches of each partition

    @property
    def numbers(self) -> list[int]:
        """Indices of the partitions that have rows."""
        return sorted(set().union(*self.batches))

    def read(self, partition: int) -> tuple[pa.Table, NDArray[np.int64]]:
        """Return the rows of a partition as a table, and their row numbers in the whole table."""
        # 1. Read the batches of all chunks.
        chunks = [k for k, batches in enumerate(self.batches) if partition in batches]
        tables = []
        for k in chunks:
            with pa.OSFile(str(_path(self.folder, k, _file_number(partition, self.count)))) as file:
                reader = pa.ipc.open_file(file)
                batches = [reader.get_batch(batch) for batch in self.batches[k][partition]]
                tables.append(pa.Table.from_batches(batches))
        # 2. Join their columns; codes of a chunk become codes of the whole table.
        columns = {}
        for position, name in enumerate(self.columns):
            arrays = [table.column(position) for table in tables]
            if name in self.names:
                words, new_codes = self.names[name]
                codes = [pc.take(new_codes[k], codes.combine_chunks()) for k, codes in zip(chunks, arrays, strict=True)]
                columns[name] = pa.DictionaryArray.from_arrays(pa.concat_arrays(codes), words)
            else:
                columns[name] = pa.chunked_array([chunk for array in arrays for chunk in array.chunks])
        rows = np.concatenate([table.column(table.num_columns - 1).to_numpy() for table in tables])
        return pa.table(columns).replace_schema_metadata(ENCODED_TEXT), rows

    def remove(self, partition: int) -> None:
        """Remove the files that no partition after the given one needs, because partitions are read in order."""
        file = _file_number(partition, self.count)
        if partition + 1 < self.count and _file_number(partition + 1, self.count) == file:
            return
        for chunk in range(len(self.batches)):
            _path(self.folder, chunk, file).unlink(missing_ok=True)


def spill_rows(
    folder: Path,
    stream: TableStream,
    open_table: Callable[[], TableStream],
    choice_set: str,
    count: int,
    *,
    contents: Collection[str],
    at_once: int,
    workers: Workers,
) -> Partitions:
    """Read a table once, chunk by chunk, and distribute its rows to ``count`` partitions."""
    # 1. Spill the chunks in parallel; a single chunk uses the stream that is already open.
    plain = {choice_set, *contents}
    text = [f.name for f in stream.schema if f.name not in plain and is_text(value_type(f.type))]
    units = stream.units if workers.count > 1 else ()
    chunks = cut_into_chunks(units, _CHUNKS_PER_WORKER * workers.count)
    opener = open_table if len(chunks) > 1 else lambda: stream
    spiller = RowSpiller(folder, opener, choice_set, count, tuple(text), max(min(at_once, _MAX_BATCH_ROWS), 1))
    spilled = list(workers.map(spiller, chunks) if len(chunks) > 1 else map(spiller, chunks))
    missing_ids = sum(chunk.missing_ids for chunk in spilled)
    if missing_ids:
        first = next(chunk.first_missing_id for chunk in spilled if chunk.missing_ids)
        raise SchemaError(
            f"column {choice_set!r}, row {first}: expected the id of a choice set, got nothing; "
            f"{such_rows(missing_ids)}. Drop them or fill in the id."
        )
    # 2. Number the words as if one worker had read the table from the first row to the last.
    merged = {name: Vocabulary() for name in text}
    new_codes = {name: [pa.array(merged[name].add(chunk.vocabularies[name])) for chunk in spilled] for name in text}
    names = {name: (merged[name].words, new_codes[name]) for name in text}
    rows, batches = sum(chunk.rows for chunk in spilled), [dict(chunk.batches) for chunk in spilled]
    return Partitions(folder, tuple(stream.columns), count, rows, merged, names, batches)


def choice_set_of_row(stream: TableStream, choice_set: str, row: int) -> str:
    """Return the choice-set id of a row, reading the table up to that row."""
    begin = 0
    for batch in stream.batches(_MAX_BATCH_ROWS):
        if row < begin + batch.num_rows:
            return str(batch.column(choice_set)[row - begin].as_py())
        begin += batch.num_rows
    raise AssertionError(row)


def _file_number(partition: int, count: int) -> int:
    return partition * _FILES_PER_CHUNK // count


def _path(folder: Path, chunk: int, file: int) -> Path:
    return folder / f"partition-{chunk:05d}-{file:02d}"


def _coded(
    columns: Sequence[str], batch: pa.RecordBatch, vocabularies: Mapping[str, Vocabulary], begin: int
) -> pa.RecordBatch:
    """Return a batch with word codes, and row numbers in the last column.

    Columns of the batch are named by their position.
    """
    arrays = [
        vocabularies[name].encode(column, begin) if name in vocabularies else column.cast(value_type(column.type))
        for name, column in zip(columns, batch.columns, strict=True)
    ]
    arrays.append(pa.array(np.arange(begin, begin + batch.num_rows)))
    return pa.RecordBatch.from_arrays(arrays, [str(k) for k in range(len(arrays))])


def _by_partition(
    batch: pa.RecordBatch, partitions: NDArray[np.int64], count: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the number of each partition that has rows in a batch, with its rows in table order."""
    order = np.argsort(partitions.astype(np.uint16), kind="stable")  # NumPy uses a radix sort for 16-bit integers
    ordered = pc.take(batch, pa.array(order), boundscheck=False)
    ends = np.cumsum(np.bincount(partitions, minlength=count))
    begin = 0
    for k, end in enumerate(ends.tolist()):
        if end > begin:
            yield k, ordered.slice(begin, end - begin)
        begin = end
