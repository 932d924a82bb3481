"""Categories: numbered 1..c in the training vocabulary; 0 is reserved for those never seen."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.data.columns.arrays import Categorical
from pcmcnet.data.kinds.kind import are_strings, is_count, is_string

log = logging.getLogger("pcmcnet")

MIN_SETS_OF_LABEL = 5  # training sets that a label must be in to be known
UNSEEN_INDEX = 0  # the reserved index of every vocabulary
MAX_LISTED_CATEGORIES = 1000  # names that a description lists, the most frequent ones
FACT_CHECKS = {"categories": are_strings, "most": is_string, "distinct": is_count}


def embedding_width(cardinality: int) -> int:
    """Return the paper's rule of thumb for the width of an embedding."""
    return min((cardinality + 1) // 2, 50)


@dataclass(frozen=True, slots=True)
class CategoryCode:
    """Vocabulary of one column; category k has the index k + 1."""

    name: str
    categories: tuple[str, ...]
    common: bool = False  # whether it has only those that are in several training sets

    def indices(self, categories: Sequence[str]) -> NDArray[np.int32]:
        """Return the index of each of some categories, the reserved one for those that are not there."""
        known = {category: k + 1 for k, category in enumerate(self.categories)}
        return np.array([known.get(category, UNSEEN_INDEX) for category in categories], np.int32)


@dataclass(slots=True)
class UnseenCount:
    """Rows of a column whose categories its vocabulary has not, of how many, and the first of these categories."""

    common: bool
    rows: int = 0
    of: int = 0
    first: str = ""

    def add(self, rows: int, of: int, first: str) -> None:
        """Take in another part of the table."""
        self.first = self.first if self.rows else first
        self.rows, self.of = self.rows + rows, self.of + of


class UnseenCounts(dict[str, UnseenCount]):
    """The counts of one part of a table after the other, by column."""

    def count(self, code: CategoryCode, column: Categorical, indices: NDArray[np.int32]) -> None:
        """Count the rows of a column whose index is the reserved one."""
        where = np.flatnonzero(indices == UNSEEN_INDEX)
        first = column.categories[column.codes[where[0]]] if where.size else ""
        self.setdefault(code.name, UnseenCount(code.common)).add(where.size, len(indices), first)

    def add(self, other: UnseenCounts) -> None:
        """Take in the counts of another part."""
        for name, found in other.items():
            self.setdefault(name, UnseenCount(found.common)).add(found.rows, found.of, found.first)

    def report(self) -> None:
        """Log the counts above 0; a warning from half of the rows on. Some labels may well be rare."""
        if (together := _together.get()) is not None:
            with _adding:
                together.add(self)
            return
        message = "column %r: %d of %d rows hold categories %s (first: %r)"
        for name, found in self.items():
            many = 2 * found.rows >= found.of
            if found.rows and (many or not found.common):
                why = f"in fewer than {MIN_SETS_OF_LABEL} training sets" if found.common else "never seen in training"
                level = logging.WARNING if many else logging.INFO
                log.log(level, message, name, found.rows, found.of, why, found.first)


_together: ContextVar[UnseenCounts | None] = ContextVar("where counts go instead of being logged", default=None)
_adding = Lock()


@contextmanager
def report_unseen_once() -> Iterator[UnseenCounts]:
    """Report the counts of all parts of one table once, unless an error ends the block; yields these counts."""
    counts = UnseenCounts()
    token = _together.set(counts)
    try:
        yield counts
    finally:
        _together.reset(token)
    counts.report()


def json_schema(*, gaps: bool = False) -> dict[str, Any]:
    """Return the JSON schema of a category in a request; ``gaps`` admits null."""
    return {"type": ["string", "number", "boolean", *(["null"] if gaps else [])]}


def category_facts(column: Categorical) -> dict[str, Any]:
    """Say which categories most rows have, which is the first of them, and how many there are."""
    counts = np.bincount(column.codes, minlength=len(column.categories))
    present = [(-int(counts[k]), column.categories[k]) for k in np.flatnonzero(counts)]
    listed = [name for _, name in sorted(present)[:MAX_LISTED_CATEGORIES]]
    return {"categories": sorted(listed), "most": listed[0] if listed else None, "distinct": len(present)}
