"""What one look at each part of a table tells of its columns: moments of numbers, counts of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pcmcnet.data.column_arrays import Categorical, Columns, Numeric
from pcmcnet.data.kinds.number import put_together
from pcmcnet.data.running_moments import Moments


class Statistics(NamedTuple):
    """The moments of columns of numbers, and the words of the others with their counts."""

    moments: dict[str, Moments]
    words: dict[str, Counter[str]]

    @classmethod
    def of(cls, columns: Columns) -> Statistics:
        """Look at the columns of one part."""
        moments: dict[str, Moments] = {}
        words: dict[str, Counter[str]] = {}
        for name, column in columns.items():
            if isinstance(column, Numeric):
                moments[name] = Moments.of(column.values)
            elif isinstance(column, Categorical):  # the table may name categories that only other parts use
                counts = np.bincount(column.codes, minlength=len(column.categories))
                words[name] = Counter({column.categories[k]: int(counts[k]) for k in np.flatnonzero(counts)})
        return cls(moments, words)

    @classmethod
    def together(cls, parts: Sequence[Statistics]) -> Statistics:
        """Put together what was seen in all parts."""
        words: dict[str, Counter[str]] = {}
        for part in parts:
            for name, found in part.words.items():
                words.setdefault(name, Counter()).update(found)
        return cls(put_together(part.moments for part in parts), words)
