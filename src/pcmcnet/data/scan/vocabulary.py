"""The words of a text column, numbered as they come: what is written to disk is numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.data.column_reader import CORRECT
from pcmcnet.data.distinct import by_first_row, distinct, first_rows
from pcmcnet.data.number_or_category import AS_OTHERS, mistaken_text
from pcmcnet.errors import SchemaError


class Vocabulary:
    """Words with their counts and first rows."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.counts: list[int] = []
        self.rows: list[int] = []

    def encode(self, column: pa.Array, first_row: int) -> pa.Array:
        """Turn words into their numbers, taking in new ones; gaps stay gaps."""
        found = distinct(pa.chunked_array([column]))
        codes, values = by_first_row(found) if pa.types.is_dictionary(column.type) else found
        counts = np.bincount(codes + 1, minlength=len(values) + 1)[1:]  # without the gaps' -1
        first = first_rows(codes, len(values))
        known = np.empty(len(values) + 1, np.int32)  # the last entry is for the gaps' -1
        for k, word in enumerate(values.to_pylist()):
            code = known[k] = self.codes.setdefault(word, len(self.codes))
            if code == len(self.counts):
                self.counts.append(0)
                self.rows.append(first_row + int(first[k]))
            self.counts[code] += int(counts[k])
        gaps = codes < 0
        return pa.array(known[codes], mask=gaps if gaps.any() else None)

    def add(self, later: Vocabulary) -> NDArray[np.int32]:
        """Take in the words of later rows; returns the numbers here of those that had others there."""
        known = np.empty(len(later.codes), np.int32)
        for k, (word, count, row) in enumerate(zip(later.codes, later.counts, later.rows, strict=True)):
            code = known[k] = self.codes.setdefault(word, len(self.codes))
            if code == len(self.counts):
                self.counts.append(0)
                self.rows.append(row)
            self.counts[code] += count
        return known

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
