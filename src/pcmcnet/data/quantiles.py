"""Exact order statistics of a column that comes in parts, in two passes and without sorting.

Numbers of 32 bits are turned into whole numbers in the same order, and counted by their upper half; those around the
ranks asked for are then counted by their lower half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Parts = Callable[[], Iterable[NDArray[np.float32]]]  # of one column, one after the other, as often as asked

_HALF = 1 << 16
_SIGN = np.uint32(1 << 31)


def order_statistics(parts: Parts, ranks: Sequence[int]) -> NDArray[np.float64]:
    """Return the numbers at some ranks, from 0, among those of all parts; gaps (NaN) have none.

    Examples
    --------
    >>> parts = [np.array([3, -1], np.float32), np.array([np.nan, 2], np.float32)]
    >>> order_statistics(lambda: parts, [0, 2]).tolist()
    [-1.0, 3.0]
    """
    upper = sum((np.bincount(_ordered(part) >> 16, minlength=_HALF) for part in parts()), np.zeros(_HALF, np.int64))
    ends = np.cumsum(upper)
    places = [int(np.searchsorted(ends, rank, side="right")) for rank in ranks]
    lower = {place: np.zeros(_HALF, np.int64) for place in places}
    for part in parts():
        whole = _ordered(part)
        for place, counts in lower.items():
            counts += np.bincount(whole[whole >> 16 == place] & 0xFFFF, minlength=_HALF)
    found = np.empty(len(places), np.uint32)
    for k, (rank, place) in enumerate(zip(ranks, places, strict=True)):
        within = rank - int(ends[place] - upper[place])
        found[k] = place << 16 | int(np.searchsorted(np.cumsum(lower[place]), within, side="right"))
    return _numbers(found).astype(np.float64)


def quantiles(parts: Parts, count: int, pieces: int) -> NDArray[np.float64]:
    """Return the distinct ends of so many pieces of a column with as many of its ``count`` numbers each.

    Examples
    --------
    >>> quantiles(lambda: [np.arange(9, dtype=np.float32)], 9, 4).tolist()
    [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    return np.unique(order_statistics(parts, [round((count - 1) * k / pieces) for k in range(pieces + 1)]))


def _ordered(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Return whole numbers in the same order, without the gaps."""
    bits = (values[~np.isnan(values)] + np.float32(0)).view(np.uint32)  # -0 is 0
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _numbers(ordered: NDArray[np.uint32]) -> NDArray[np.float32]:
    return np.where(ordered & _SIGN, ordered & ~_SIGN, ~ordered).view(np.float32)
