"""A table on disk whose sets lie together -> pieces of whole sets, one after the other: it need not be sorted.

    column of set ids, read once by itself  ->  cuts between sets  ->  the rows between two cuts, decoded in a thread

Of each set a key of 8 bytes is kept until all ids are read, which tells whether any set begins twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Ints
from pcmcnet.data import long
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.column_reader import Part
from pcmcnet.data.distinct import is_text
from pcmcnet.data.file_errors import one_sentence
from pcmcnet.data.float32_resolution import Span
from pcmcnet.data.pieces import changes
from pcmcnet.data.scan.id_hashes import Keys, keys_of
from pcmcnet.data.scan.sources import Stream
from pcmcnet.data.schema import Schema
from pcmcnet.errors import SchemaError

_AHEAD = 2  # pieces that are decoded before they are asked for (by choice)
_COPIES = 3  # of the keys, while they are put together and sorted


def piece_lengths(ids: Stream, rows: int, room: int) -> Ints | None:
    """Return the numbers of rows of pieces, each of whole sets and of about so many rows.

    None where rows of a set are apart, ids are gaps or of other types than whole numbers and text, or there are so many
    sets that their keys take more than so many bytes.
    """
    keys, cuts = [np.empty(0, np.uint64)], [np.zeros(1, np.int64)]
    begin = done = 0  # row at which the last set begins; rows read
    last: Any = None
    for batch in ids.batches(rows):
        column = _plain(batch.column(0))
        if column.null_count or not (pa.types.is_integer(column.type) or is_text(column.type)):
            return None
        at = _set_starts(column, last)
        keys.append(keys_of(column.take(pa.array(at))))
        room -= _COPIES * keys[-1].nbytes
        if room < 0 or _repeats(keys[-1]):
            return None
        starts = np.append(begin, done + at)
        grid = np.arange(-(-done // rows) * rows, done + len(column), rows)
        cuts.append(starts[np.searchsorted(starts, grid, "right") - 1])
        begin, done, last = int(starts[-1]), done + len(column), column[-1].as_py()
    return None if _repeats(np.concatenate(keys)) else np.diff(np.unique(np.concatenate([*cuts, [done]])))


def read_pieces(
    stream: Stream, lengths: Ints, rows: int, choice_set: str
) -> Generator[Callable[[], pa.Table], None, None]:
    """Yield functions that return the next so many rows of a table, of which so many are decoded at once."""
    words = [field.name for field in stream.schema if is_text(field.type) and field.name != choice_set]
    tables = (_coded(pa.Table.from_batches([batch]), words) for batch in stream.batches(rows, coded=words))
    between = _between(tables, lengths, stream.path)
    thread = ThreadPoolExecutor(1, thread_name_prefix="pcmcnet-decode")
    ahead = deque(thread.submit(next, between) for _ in lengths[:_AHEAD])
    try:
        for _ in lengths[_AHEAD:]:
            ahead.append(thread.submit(next, between))
            yield ahead.popleft().result
        while ahead:
            yield ahead.popleft().result
    finally:  # nobody asks for what was not yielded
        for piece in ahead:
            piece.cancel()
        thread.shutdown()


def _coded(table: pa.Table, words: list[str]) -> pa.Table:
    """Return a table with text as codes, as it comes from those files of a folder that are read as they are."""
    for name in words:
        if not pa.types.is_dictionary(table.schema.field(name).type):
            table = table.set_column(table.column_names.index(name), name, table[name].dictionary_encode())
    return table


def _between(tables: Iterator[pa.Table], lengths: Ints, path: Path) -> Iterator[pa.Table]:
    """Put tables together and cut them anew, into parts of so many rows; nothing is copied."""
    with one_sentence(path):
        rest = next(tables, None)
        for length in map(int, lengths):
            while rest is None or rest.num_rows < length:
                more = next(tables, None)
                if rest is None or more is None:
                    raise SchemaError(f"{path} has lost rows while it was read.")
                rest = pa.concat_tables([rest, more])
            yield rest.slice(0, length)
            rest = rest.slice(length)


class PieceReader:
    """Turns pieces into choice data, in their order, with the checks of a table in memory."""

    def __init__(self, schema: Schema) -> None:
        self.schema, self.rows, self.spans = schema, 0, dict[str, Span]()

    def read(self, piece: Callable[[], pa.Table]) -> ChoiceData:
        """Read and check the next piece."""
        table = piece()
        begin, self.rows = self.rows, self.rows + table.num_rows
        return ChoiceData(**long.read(table, self.schema, Part(np.arange(begin, self.rows), self.spans)))

    def end(self) -> None:
        """Refuse what only all pieces show: numbers so close together that 32 bits cannot tell them apart."""
        for name, span in self.spans.items():
            span.require_steps(name)


def _plain(column: pa.Array) -> pa.Array:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _set_starts(ids: pa.Array, last: Any) -> Ints:
    """Return at which of some rows sets begin, after a row of the set ``last``."""
    first = [0] if ids[0].as_py() != last else []
    return np.append(np.array(first, np.int64), changes(ids))


def _repeats(keys: Keys) -> bool:
    ordered = np.sort(keys)
    return bool((ordered[1:] == ordered[:-1]).any())
