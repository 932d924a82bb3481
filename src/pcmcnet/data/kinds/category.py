"""Categorical columns: categories of the training vocabulary are numbered 1..c, and 0 denotes an unseen category."""

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

MIN_SETS_OF_LABEL = 5  # training sets; a rarer label is treated as unseen
UNSEEN_INDEX = 0  # index of unseen categories in every vocabulary
MAX_LISTED_CATEGORIES = 1000  # names in a description, the most frequent ones
FACT_CHECKS = {"categories": are_strings, "most": is_string, "distinct": is_count}


def embedding_width(cardinality: int) -> int:
    """Return the width of an embedding, from the rule of thumb in the PCMC-Net paper."""
    return min((cardinality + 1) // 2, 50)


@dataclass(frozen=True, slots=True)
class CategoryCode:
    """Vocabulary of one column. The category at position k has index k + 1."""

    name: str
    categories: tuple[str, ...]
    common: bool = False  # whether rare categories, in fewer than MIN_SETS_OF_LABEL training sets, are left out

    def indices(self, categories: Sequence[str]) -> NDArray[np.int32]:
        """Return the indices of the given categories, with ``UNSEEN_INDEX`` for categories outside the vocabulary."""
        index = {category: k + 1 for k, category in enumerate(self.categories)}
        return np.array([index.get(category, UNSEEN_INDEX) for category in categories], np.int32)


@dataclass(slots=True)
class UnseenCount:
    """Number of rows with unseen categories in a column, total number of rows, and the first unseen category."""

    common: bool
    rows: int = 0
    of: int = 0
    first: str = ""

    def add(self, rows: int, of: int, first: str) -> None:
        """Add the counts of another chunk of the table."""
        self.first = self.first if self.rows else first
        self.rows, self.of = self.rows + rows, self.of + of


class UnseenCounts(dict[str, UnseenCount]):
    """Counts of unseen categories by column, added up over the chunks of a table."""

    def count(self, code: CategoryCode, column: Categorical, indices: NDArray[np.int32]) -> None:
        """Count the rows of a column whose index is ``UNSEEN_INDEX``."""
        where = np.flatnonzero(indices == UNSEEN_INDEX)
        first = column.categories[column.codes[where[0]]] if where.size else ""
        self.setdefault(code.name, UnseenCount(code.common)).add(where.size, len(indices), first)

    def add(self, other: UnseenCounts) -> None:
        """Add the counts of another chunk."""
        for name, count in other.items():
            self.setdefault(name, UnseenCount(count.common)).add(count.rows, count.of, count.first)

    def merge(self, other: UnseenCounts) -> None:
        """Add the counts of another model for the same rows. A column of both models has the larger count."""
        for name, count in other.items():
            if name not in self or count.rows > self[name].rows:
                self[name] = count

    def report(self) -> None:
        """Log the positive counts, as warnings where at least half of the rows hold unseen categories."""
        if (collector := _collector.get()) is not None:
            with _collector_lock:
                collector.add(self)
            return
        message = "column %r: %d of %d rows hold categories %s (first: %r)"
        for name, count in self.items():
            is_frequent = 2 * count.rows >= count.of
            if count.rows and (is_frequent or not count.common):
                reason = (
                    f"in fewer than {MIN_SETS_OF_LABEL} training sets" if count.common else "never seen in training"
                )
                level = logging.WARNING if is_frequent else logging.INFO
                log.log(level, message, name, count.rows, count.of, reason, count.first)


# Counts go to the collector, if there is one, instead of the log.
_collector: ContextVar[UnseenCounts | None] = ContextVar("collector of unseen counts", default=None)
_collector_lock = Lock()


@contextmanager
def collect_unseen() -> Iterator[UnseenCounts]:
    """Yield a counter that receives the counts of the block, which are not logged."""
    counts = UnseenCounts()
    token = _collector.set(counts)
    try:
        yield counts
    finally:
        _collector.reset(token)


@contextmanager
def report_unseen_once() -> Iterator[UnseenCounts]:
    """Yield a counter for all chunks of a table, and log the total counts once, at the end of the block."""
    with collect_unseen() as counts:
        yield counts
    counts.report()


def json_schema(*, gaps: bool = False) -> dict[str, Any]:
    """Return the JSON schema of a category in a request. If ``gaps`` is True, null is allowed."""
    return {"type": ["string", "number", "boolean", *(["null"] if gaps else [])]}


def category_facts(column: Categorical) -> dict[str, Any]:
    """Return the most frequent categories, the single most frequent one, and the total number of categories."""
    counts = np.bincount(column.codes, minlength=len(column.categories))
    present = [(-int(counts[k]), column.categories[k]) for k in np.flatnonzero(counts)]
    listed = [name for _, name in sorted(present)[:MAX_LISTED_CATEGORIES]]
    return {"categories": sorted(listed), "most": listed[0] if listed else None, "distinct": len(present)}
