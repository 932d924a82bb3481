"""Categories: numbered 1..c in the training vocabulary; 0 is reserved for those never seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcmcnet.data.column_arrays import Categorical
from pcmcnet.data.kinds.json_checks import are_strings, is_count, is_string

UNSEEN = 0  # the reserved index of every vocabulary
MOST_CATEGORIES = 1000  # names that a description lists, the most frequent ones
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


def json_schema(*, gaps: bool = False) -> dict[str, Any]:
    """Return the JSON schema of a category in a request; ``gaps`` admits null."""
    return {"type": ["string", "number", "boolean", *(["null"] if gaps else [])]}


def category_facts(column: Categorical) -> dict[str, Any]:
    """Say which categories most rows have, which is the first of them, and how many there are."""
    counts = np.bincount(column.codes, minlength=len(column.categories))
    present = [(-int(counts[k]), column.categories[k]) for k in np.flatnonzero(counts)]
    listed = [name for _, name in sorted(present)[:MOST_CATEGORIES]]
    return {"categories": sorted(listed), "most": listed[0] if listed else None, "distinct": len(present)}
