"""Rows in any order -> piles on disk, all rows of a choice set on one pile, and each pile small enough for memory.

A row goes to the pile that the hash of its set's id names. Within a pile rows keep their order, so that each can be
read as a table of its own; the rows' numbers in the whole table go along. Names are written as numbers; contents, which
may all differ, as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pcmcnet.data.csv_file import ENCODED_TEXT
from pcmcnet.data.distinct import UNREADABLE, is_text
from pcmcnet.data.scan.id_hashes import Keys, keys_of, piles
from pcmcnet.data.scan.sources import Stream
from pcmcnet.data.scan.vocabulary import Vocabulary
from pcmcnet.errors import SchemaError

_ROWS = 2**18  # read at once, at most


class Piles:
    """The piles of a table, and the vocabularies of its text columns."""

    def __init__(
        self, folder: Path, stream: Stream, choice_set: str, count: int, *, contents: Collection[str] = ()
    ) -> None:
        self.folder, self.stream, self.choice_set, self.count = folder, stream, choice_set, count
        self.rows = 0
        self.vocabularies = {
            field.name: Vocabulary()
            for field in stream.schema
            if field.name != choice_set and field.name not in contents and is_text(_plain(field.type))
        }

    def fill(self, *, at_once: int) -> None:
        """Go through the table once."""
        gaps, first_gap = 0, 0
        with ExitStack() as stack:
            writers: dict[int, Any] = {}
            for batch in self.stream.batches(max(min(at_once, _ROWS), 1)):
                keys, missing = self._keys(batch.column(self.choice_set))
                if missing.any():
                    first_gap = first_gap if gaps else self.rows + int(np.argmax(missing))
                    gaps += int(missing.sum())
                elif not gaps:
                    for pile, part in _sorted_out(self._numbered(batch), piles(keys, self.count), self.count):
                        if pile not in writers:
                            sink = stack.enter_context(pa.OSFile(str(self._path(pile)), "wb"))
                            writers[pile] = stack.enter_context(pa.ipc.new_stream(sink, part.schema))
                        writers[pile].write_batch(part)
                self.rows += batch.num_rows
        if gaps:
            raise SchemaError(
                f"column {self.choice_set!r}, row {first_gap}: expected the id of a choice set, got nothing; "
                f"{gaps} such rows. Drop them or fill in the id."
            )

    def take(self, pile: int) -> tuple[pa.Table, NDArray[np.int64]] | None:
        """Read a pile and remove it: its rows as a table, and their numbers; None where there is none."""
        path = self._path(pile)
        if not path.exists():
            return None
        with pa.OSFile(str(path)) as file:
            table = pa.ipc.open_stream(file).read_all()
        path.unlink()
        numbers = table.column(table.num_columns - 1).to_numpy()
        columns = {name: self._decoded(name, table.column(k)) for k, name in enumerate(self.stream.columns)}
        return pa.table(columns).replace_schema_metadata(ENCODED_TEXT), numbers

    def set_of_row(self, row: int) -> str:
        """Name the choice set of a row, by reading the table up to it."""
        begin = 0
        for batch in self.stream.batches(_ROWS):
            if row < begin + batch.num_rows:
                return str(batch.column(self.choice_set)[row - begin].as_py())
            begin += batch.num_rows
        raise AssertionError(row)

    def _path(self, pile: int) -> Path:
        return self.folder / f"pile-{pile:05d}"

    def _keys(self, ids: pa.Array) -> tuple[Keys, NDArray[np.bool_]]:
        """Return the keys of a batch's ids, and where there is none; with gaps, the keys are of no use."""
        try:
            missing = np.asarray(pc.is_null(ids, nan_is_null=True))
            return (np.empty(0, np.uint64) if missing.any() else keys_of(ids)), missing
        except UNREADABLE as error:
            raise SchemaError(
                f"column {self.choice_set!r} has the type {ids.type}, which cannot name choice sets."
            ) from error

    def _numbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Encode the text columns and append the rows' numbers; columns are known by their places."""
        arrays = []
        for name, column in zip(self.stream.columns, batch.columns, strict=True):
            plain = column.cast(_plain(column.type)) if pa.types.is_dictionary(column.type) else column
            words = self.vocabularies.get(name)
            arrays.append(plain if words is None else words.encode(plain, self.rows))
        arrays.append(pa.array(np.arange(self.rows, self.rows + batch.num_rows)))
        return pa.RecordBatch.from_arrays(arrays, [str(k) for k in range(len(arrays))])

    def _decoded(self, name: str, column: pa.ChunkedArray) -> Any:
        words = self.vocabularies.get(name)
        if words is None:
            return column
        return pa.DictionaryArray.from_arrays(column.combine_chunks(), words.words)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _sorted_out(batch: pa.RecordBatch, pile: NDArray[np.int64], count: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the piles that a batch has rows for, each with its rows in their order."""
    order = np.argsort(pile, kind="stable")
    ordered = batch.take(pa.array(order))
    ends = np.cumsum(np.bincount(pile, minlength=count))
    begin = 0
    for k, end in enumerate(ends.tolist()):
        if end > begin:
            yield k, ordered.slice(begin, end - begin)
        begin = end
