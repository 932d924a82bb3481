"""Rows in any order -> piles on disk, all rows of a choice set on one pile, and each pile small enough for memory.

A row goes to the pile that the hash of its set's id names. Within a pile rows keep their order, so that each can be
read as a table of its own; the rows' numbers in the whole table go along. Names are written as numbers; contents, which
may all differ, as they are.

Each worker sorts a piece of the table, and numbers the names as they come there. Pieces put together in their order
give the piles, and the numbers, of the table read from first to last: how many pieces there are is nothing to see.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
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
from pcmcnet.errors import SchemaError

# -- Vocabulary --------------------------------------------------------------------------------------------------------
# The words of a text column, numbered as they come: what is written to disk is numbers.


class Vocabulary:
    """Words with their counts and first rows."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.counts: list[int] = []
        self.rows: list[int] = []

    def encode(self, column: pa.Array, first_row: int) -> pa.Array:
        """Turn words into their numbers, taking in new ones; gaps stay gaps."""
        found = distinct(pa.chunked_array([column]))
        codes, values = renumber_by_first_row(found) if pa.types.is_dictionary(column.type) else found
        counts = np.bincount(codes + 1, minlength=len(values) + 1)[1:]  # without the gaps' -1
        first = first_rows(codes, len(values))
        known = np.empty(len(values) + 1, np.int32)  # the last entry is for the gaps' -1
        for k, word in enumerate(values.to_pylist()):
            known[k] = self._take(word, int(counts[k]), first_row + int(first[k]))
        gaps = codes < 0
        return pa.array(known[codes], mask=gaps if gaps.any() else None)

    def add(self, later: Vocabulary) -> NDArray[np.int32]:
        """Take in the words of later rows; returns the numbers here of those that had others there."""
        known = np.empty(len(later.codes), np.int32)
        for k, (word, count, row) in enumerate(zip(later.codes, later.counts, later.rows, strict=True)):
            known[k] = self._take(word, count, row)
        return known

    def _take(self, word: str, count: int, row: int) -> int:
        """Count a word, and number it if it is new; ``row`` is the first that has it."""
        code = self.codes.setdefault(word, len(self.codes))
        if code == len(self.counts):
            self.counts.append(0)
            self.rows.append(row)
        self.counts[code] += count
        return code

    @property
    def words(self) -> pa.Array:
        """All words, in the order of their numbers."""
        return pa.array(list(self.codes), pa.string())

    def require_plain(self, column: str, name_set: Callable[[int], str]) -> None:
        """Refuse a column of numbers with some text among them, as a table in memory is refused."""
        values, counts, rows = self.words, np.array(self.counts), np.array(self.rows)
        mistakes = mistaken_text(column, values, counts)
        if mistakes.any():
            at = np.flatnonzero(mistakes)
            first = at[np.argmin(rows[at])]
            row = int(rows[first])
            raise SchemaError(
                f"column {column!r}, row {row} (choice set {name_set(row)}): {AS_OTHERS}, "
                f"got {values[int(first)].as_py()!r}; {counts[at].sum()} such rows. {CORRECT}"
            )


# -- Piles -------------------------------------------------------------------------------------------------------------

_ROWS = 2**18  # read at once, at most
_PIECES = 8  # for each worker: whoever begins later, or is slower, takes fewer
_BUFFER = 2**18  # bytes that are written to a file at once: of a column, a batch may have but some hundred for a pile
_FILES = 16  # of a piece, each of some neighbouring piles: removed once all of these are taken


class ScanChunk(NamedTuple):
    """Neighbouring units of a table: their number among the pieces, and their first row."""

    number: int
    units: Units
    first: int


def cut_into_chunks(units: Sequence[int], count: int) -> list[ScanChunk]:
    """Cut a table of units with so many rows into no more than ``count`` pieces, the later the smaller.

    So the last ones, for which some wait at the end, are short, and few have to be put together: of the rows the part
    (1 - k/count)^2 is left after k pieces.

    Examples
    --------
    >>> [(piece.units, piece.first) for piece in cut_into_chunks([5, 5, 5, 5], 2)]
    [(range(0, 3), 0), (range(3, 4), 15)]
    """
    if count == 1 or len(units) < 2:
        return [ScanChunk(0, None, 0)]
    ends = np.cumsum([0, *units])
    bounds = np.unique(np.searchsorted(ends, [ends[-1] * (1 - (1 - k / count) ** 2) for k in range(count + 1)]))
    found = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    return [ScanChunk(k, range(begin, end), int(ends[begin])) for k, (begin, end) in enumerate(found)]


@dataclass
class Spilled:
    """What a piece has left: rows, names, and which batches of its files are of which pile."""

    vocabularies: dict[str, Vocabulary]
    rows: int = 0
    gaps: int = 0  # ids that are missing
    first_gap: int = 0
    batches: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True)
class Sorter:
    """Sorts the rows of a piece onto piles."""

    folder: Path
    opened: Callable[[], TableStream]
    choice_set: str
    count: int  # of piles
    text: Collection[str]  # columns whose names are written as numbers
    at_once: int

    def __call__(self, piece: ScanChunk) -> Spilled:
        """Go through a piece once."""
        done, stream = Spilled({name: Vocabulary() for name in self.text}), self.opened()
        with ExitStack() as stack:
            writers: dict[int, Any] = {}
            written: dict[int, int] = defaultdict(int)
            for batch in stream.batches(self.at_once, piece.units, self.text):
                keys, missing = self._keys(batch.column(self.choice_set))
                begin = piece.first + done.rows
                if missing.any():
                    done.first_gap = done.first_gap if done.gaps else begin + int(np.argmax(missing))
                    done.gaps += int(missing.sum())
                elif not done.gaps:
                    numbered = _numbered(stream.columns, batch, done.vocabularies, begin)
                    for pile, part in _sorted_out(numbered, partition_numbers(keys, self.count), self.count):
                        file = _file(pile, self.count)
                        if file not in writers:
                            path = str(_path(self.folder, piece.number, file))
                            sink = stack.enter_context(pa.output_stream(path, None, _BUFFER))
                            writers[file] = stack.enter_context(pa.ipc.new_file(sink, part.schema))
                        writers[file].write_batch(part)
                        done.batches[pile].append(written[file])
                        written[file] += 1
                done.rows += batch.num_rows
        return done

    def _keys(self, ids: pa.Array) -> tuple[Keys, NDArray[np.bool_]]:
        """Return the keys of a batch's ids, and where there is none; with gaps, the keys are of no use."""
        try:
            missing = np.asarray(pc.is_null(ids, nan_is_null=True))
            return (np.empty(0, np.uint64) if missing.any() else keys_of(ids)), missing
        except UNREADABLE as error:
            raise SchemaError(
                f"column {self.choice_set!r} has the type {ids.type}, which cannot name choice sets."
            ) from error


@dataclass(frozen=True)
class Partitions:
    """The piles of a table, and the vocabularies of its text columns."""

    folder: Path
    columns: Sequence[str]
    count: int
    rows: int
    vocabularies: Mapping[str, Vocabulary]
    names: Mapping[
        str, tuple[pa.Array, list[pa.Array]]
    ]  # words of a column, and by pieces the numbers of what each has
    batches: Sequence[Mapping[int, Sequence[int]]]  # by pieces: numbers of the batches of each pile

    @property
    def there(self) -> list[int]:
        """Piles that have rows."""
        return sorted(set().union(*self.batches))

    def take(self, pile: int) -> tuple[pa.Table, NDArray[np.int64]]:
        """Read a pile: its rows as a table, and their numbers."""
        pieces = [k for k, batches in enumerate(self.batches) if pile in batches]
        parts = []
        for k in pieces:
            with pa.OSFile(str(_path(self.folder, k, _file(pile, self.count)))) as file:
                reader = pa.ipc.open_file(file)
                parts.append(pa.Table.from_batches([reader.get_batch(batch) for batch in self.batches[k][pile]]))
        columns = {}
        for place, name in enumerate(self.columns):
            found = [part.column(place) for part in parts]
            if name in self.names:
                words, numbers = self.names[name]
                codes = [pc.take(numbers[k], codes.combine_chunks()) for k, codes in zip(pieces, found, strict=True)]
                columns[name] = pa.DictionaryArray.from_arrays(pa.concat_arrays(codes), words)
            else:
                columns[name] = pa.chunked_array([chunk for column in found for chunk in column.chunks])
        rows = np.concatenate([part.column(part.num_columns - 1).to_numpy() for part in parts])
        return pa.table(columns).replace_schema_metadata(ENCODED_TEXT), rows

    def remove(self, pile: int) -> None:
        """Remove the files of a pile, if all before it were taken and none of the following ones lies there."""
        file = _file(pile, self.count)
        if pile + 1 < self.count and _file(pile + 1, self.count) == file:
            return
        for piece in range(len(self.batches)):
            _path(self.folder, piece, file).unlink(missing_ok=True)


def spill_rows(
    folder: Path,
    stream: TableStream,
    reopened: Callable[[], TableStream],
    choice_set: str,
    count: int,
    *,
    contents: Collection[str],
    at_once: int,
    workers: Workers,
) -> Partitions:
    """Go through a table once, piece by piece, and sort its rows onto so many piles."""
    # 1. Sort the pieces, each by whoever is free; one piece alone needs no stream of its own.
    plain = {choice_set, *contents}
    text = [f.name for f in stream.schema if f.name not in plain and is_text(value_type(f.type))]
    pieces = cut_into_chunks(stream.units, _PIECES * workers.count) if workers.count > 1 else cut_into_chunks((), 1)
    opened = reopened if len(pieces) > 1 else lambda: stream
    sorter = Sorter(folder, opened, choice_set, count, tuple(text), max(min(at_once, _ROWS), 1))
    done = list(workers.map(sorter, pieces) if len(pieces) > 1 else map(sorter, pieces))
    gaps = sum(each.gaps for each in done)
    if gaps:
        first = next(each.first_gap for each in done if each.gaps)
        raise SchemaError(
            f"column {choice_set!r}, row {first}: expected the id of a choice set, got nothing; "
            f"{gaps} such rows. Drop them or fill in the id."
        )
    # 2. Number the words as if one worker had read the table from first to last.
    whole = {name: Vocabulary() for name in text}
    numbers = {name: [pa.array(whole[name].add(each.vocabularies[name])) for each in done] for name in text}
    names = {name: (whole[name].words, numbers[name]) for name in text}
    rows, batches = sum(each.rows for each in done), [dict(each.batches) for each in done]
    return Partitions(folder, tuple(stream.columns), count, rows, whole, names, batches)


def choice_set_of_row(stream: TableStream, choice_set: str, row: int) -> str:
    """Name the choice set of a row, by reading the table up to it."""
    begin = 0
    for batch in stream.batches(_ROWS):
        if row < begin + batch.num_rows:
            return str(batch.column(choice_set)[row - begin].as_py())
        begin += batch.num_rows
    raise AssertionError(row)


def _file(pile: int, count: int) -> int:
    return pile * _FILES // count


def _path(folder: Path, piece: int, file: int) -> Path:
    return folder / f"pile-{piece:05d}-{file:02d}"


def _numbered(
    columns: Sequence[str], batch: pa.RecordBatch, vocabularies: Mapping[str, Vocabulary], begin: int
) -> pa.RecordBatch:
    """Encode the text columns and append the rows' numbers; columns are known by their places."""
    arrays = [
        vocabularies[name].encode(column, begin) if name in vocabularies else column.cast(value_type(column.type))
        for name, column in zip(columns, batch.columns, strict=True)
    ]
    arrays.append(pa.array(np.arange(begin, begin + batch.num_rows)))
    return pa.RecordBatch.from_arrays(arrays, [str(k) for k in range(len(arrays))])


def _sorted_out(batch: pa.RecordBatch, pile: NDArray[np.int64], count: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the piles that a batch has rows for, each with its rows in their order."""
    order = np.argsort(pile.astype(np.uint16), kind="stable")  # which numpy sorts by radix
    ordered = pc.take(batch, pa.array(order), boundscheck=False)
    ends = np.cumsum(np.bincount(pile, minlength=count))
    begin = 0
    for k, end in enumerate(ends.tolist()):
        if end > begin:
            yield k, ordered.slice(begin, end - begin)
        begin = end
