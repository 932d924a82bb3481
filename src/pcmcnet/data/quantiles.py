"""Exact order statistics of a column that comes in parts, in two passes and without sorting.

Numbers of 32 bits are turned into whole numbers in the same order, and counted by their upper half; those around the
ranks asked for are then counted by their lower half. Few numbers are sorted: a table of counts would be larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float32]
Number = TypeVar("Number", np.float32, np.float64)


class Counts(NamedTuple):
    """Places with numbers, and how many each has: few of all there are, which is less to hand from one to another."""

    at: NDArray[np.int64]
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, numbers: NDArray[np.int64]) -> Counts:
        """Leave out places without any."""
        at = np.flatnonzero(numbers)
        return cls(at, numbers[at])


# Calls a function for the parts of one column; what it returns comes in their order.
Each = Callable[[Callable[[Values], Counts]], Iterable[Counts]]

_HALF = 1 << 16
_FEW = 1 << 18  # which are sorted in the time that counting takes; 10,000 in a twentieth of it (measured)
_SIGN = np.uint32(1 << 31)


def order_statistics(each: Each, ranks: Sequence[int]) -> NDArray[np.float64]:
    """Return the numbers at some ranks, from 0, among those of all parts; gaps (NaN) have none.

    Examples
    --------
    >>> parts = [np.array([3, -1], np.float32), np.array([np.nan, 2], np.float32)]
    >>> order_statistics(lambda f: map(f, parts), [0, 2]).tolist()
    [-1.0, 3.0]
    """
    upper = _added_up(each(_upper), _HALF)
    ends = np.cumsum(upper)
    if ends[-1] <= _FEW:
        whole = np.sort(np.concatenate([np.repeat(at, numbers) for at, numbers in each(_whole)]))
        return _numbers(whole[list(ranks)].astype(np.uint32)).astype(np.float64)
    places = [int(np.searchsorted(ends, rank, side="right")) for rank in ranks]
    distinct = sorted(set(places))
    found_lower = _added_up(each(partial(_lower, distinct)), len(distinct) * _HALF)
    lower = dict(zip(distinct, found_lower.reshape(-1, _HALF), strict=True))
    found = np.empty(len(places), np.uint32)
    for k, (rank, place) in enumerate(zip(ranks, places, strict=True)):
        within = rank - int(ends[place] - upper[place])
        found[k] = place << 16 | int(np.searchsorted(np.cumsum(lower[place]), within, side="right"))
    return _numbers(found).astype(np.float64)


def quantiles(each: Each, count: int, pieces: int) -> NDArray[np.float64]:
    """Return the distinct ends of so many pieces of a column with as many of its ``count`` numbers each.

    Examples
    --------
    >>> quantiles(lambda f: [f(np.arange(9, dtype=np.float32))], 9, 4).tolist()
    [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    return np.unique(order_statistics(each, [round((count - 1) * k / pieces) for k in range(pieces + 1)]))


def without_gaps(values: NDArray[Number]) -> NDArray[Number]:
    """Leave out what is NaN; without a copy where nothing is."""
    return values[~np.isnan(values)] if len(values) and np.isnan(values.min()) else values


def _added_up(parts: Iterable[Counts], size: int) -> NDArray[np.int64]:
    """Add up the counts of all parts, by place."""
    total = np.zeros(size, np.int64)
    for at, numbers in parts:
        total[at] += numbers
    return total


def _whole(values: Values) -> Counts:
    """Count numbers by the whole ones themselves."""
    return Counts(*np.unique(_ordered(values).astype(np.int64), return_counts=True))


def _upper(values: Values) -> Counts:
    """Count numbers by their upper half."""
    return Counts.of(np.bincount(_ordered(values) >> 16))


def _lower(places: Sequence[int], values: Values) -> Counts:
    """Count those with one of some upper halves by their lower half, the first of these halves before the second."""
    whole = _ordered(values)
    found = [np.bincount(whole[whole >> 16 == place] & 0xFFFF, minlength=_HALF) for place in places]
    return Counts.of(np.concatenate(found))


def _ordered(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Return whole numbers in the same order, without the gaps."""
    bits = (without_gaps(values) + np.float32(0)).view(np.uint32)  # -0 is 0
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _numbers(ordered: NDArray[np.uint32]) -> NDArray[np.float32]:
    return np.where(ordered & _SIGN, ordered & ~_SIGN, ~ordered).view(np.float32)
