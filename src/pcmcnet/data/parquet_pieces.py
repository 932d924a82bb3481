"""A Parquet file whose sets lie together -> pieces of whole choice sets, which a thread decodes one after the other.

A piece ends where the last set begins that was read so far, since more of its rows may follow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from pcmcnet.data.file_errors import one_sentence, require_columns
from pcmcnet.data.pieces import InMemory, Piece, Pieces, all_differ, rows_of_a_piece, set_starts
from pcmcnet.data.read_files import Parquet
from pcmcnet.data.schema import Schema
from pcmcnet.data.views import without_views
from pcmcnet.errors import SchemaError

_AHEAD = 2  # pieces that are decoded before they are asked for (by choice)


def pieces_of(table: InMemory | Path, schema: Schema, rows: int | None = None) -> Pieces | ParquetPieces | None:
    """Cut what :func:`~pcmcnet.data.pieces.opened` returns into pieces of about so many rows; None: read it whole."""
    return ParquetPieces.of(table, schema, rows) if isinstance(table, Path) else Pieces.of(table, schema, rows)


class ParquetPieces:
    """Goes once through a file, so many rows at a time."""

    def __init__(self, path: Path, file: Parquet, schema: Schema, rows: int) -> None:
        self.path, self.choice_set, self.n_rows = path, schema.choice_set, file.file.metadata.num_rows
        batches = file.file.iter_batches(rows, columns=list(schema.columns))
        self._found = self._pieces(without_views(pa.Table.from_batches([batch])) for batch in batches)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pcmcnet-decode")
        self._ahead = deque(self._thread.submit(next, self._found, None) for _ in range(_AHEAD))

    @classmethod
    def of(cls, path: Path, schema: Schema, rows: int | None = None) -> ParquetPieces | None:
        """Begin to decode a file, unless it is small."""
        rows = rows or rows_of_a_piece(schema)
        with one_sentence(path):
            file = Parquet(path, mapped=True)
            require_columns(schema.columns, file.names, where=str(path))
            return cls(path, file, schema, rows) if file.file.metadata.num_rows > rows else None

    def __iter__(self) -> Iterator[Piece]:
        while (piece := self._ahead.popleft().result()) is not None:
            self._ahead.append(self._thread.submit(next, self._found, None))
            yield piece

    def _pieces(self, tables: Iterator[pa.Table]) -> Iterator[Piece]:
        """Cut where sets begin; nothing is copied. Sets that lie apart are refused, at the latest at the end."""
        rest, read, ids = None, 0, []
        with one_sentence(self.path):
            for table in tables:
                rest, read = table if rest is None else pa.concat_tables([rest, table]), read + len(table)
                starts = set_starts(rest[self.choice_set])
                if starts is None:
                    raise self._apart()
                if read == self.n_rows:
                    starts = np.append(starts, len(rest))
                if len(starts) > 1:
                    piece = rest.slice(0, starts[-1])
                    ids += piece[self.choice_set].take(pa.array(starts[:-1])).chunks
                    yield Piece(np.diff(starts), partial(_same, piece))
                    rest = rest.slice(starts[-1])
        if not all_differ(pa.chunked_array(ids)):
            raise self._apart()

    def _apart(self) -> SchemaError:
        return SchemaError(f"{self.path}: rows of a choice set may be apart, so it is to be read whole.")


def _same(table: pa.Table) -> pa.Table:
    return table
