"""Statistics of columns read in chunks: exact quantiles, moments, and whether float32 can distinguish the values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pcmcnet.errors import SchemaError

# -- Quantiles ---------------------------------------------------------------------------------------------------------
# Exact quantiles in two passes, without sorting. Float32 numbers are mapped to 32-bit integers in the same order. The
# first pass counts them by their upper 16 bits. The second pass takes the numbers whose upper bits contain a requested
# rank, and counts them by their lower 16 bits. Short columns are sorted: the table of counts would be larger.

Values = NDArray[np.float32]
Number = TypeVar("Number", np.float32, np.float64)


class SparseCounts(NamedTuple):
    """Positive counts and their positions, which are faster to send between processes than an array of all counts."""

    at: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, counts: NDArray[np.int64]) -> SparseCounts:
        """Return the counts above 0, with their positions."""
        at = np.flatnonzero(counts)
        return cls(at, counts[at])


# Applies a function to each chunk of a column, and yields the results in order.
Each = Callable[[Callable[[Values], SparseCounts]], Iterable[SparseCounts]]

_HALF = 1 << 16
_MAX_SORTED = 1 << 18  # numbers that sort as fast as they are counted; 10,000 sort 20 times faster (measured)
_SIGN_BIT = np.uint32(1 << 31)


def order_statistics(each: Each, ranks: Sequence[int]) -> NDArray[np.float64]:
    """Return a column's numbers at the given ranks, which start at 0. Missing values (NaN) have no rank.

    Examples
    --------
    >>> chunks = [np.array([3, -1], np.float32), np.array([np.nan, 2], np.float32)]
    >>> order_statistics(lambda f: map(f, chunks), [0, 2]).tolist()
    [-1.0, 3.0]
    """
    # 1. Count the numbers by their upper half; sort them if they are few.
    upper = _sum_counts(each(_count_upper_halves), _HALF)
    ends = np.cumsum(upper)
    if ends[-1] <= _MAX_SORTED:
        integers = np.sort(np.concatenate([np.repeat(at, counts) for at, counts in each(_count_integers)]))
        return _from_ordered(integers[list(ranks)].astype(np.uint32)).astype(np.float64)
    # 2. Find the upper half at each rank, and count the lower halves of the numbers that share it.
    halves = [int(np.searchsorted(ends, rank, side="right")) for rank in ranks]
    distinct = sorted(set(halves))
    counts = _sum_counts(each(partial(_count_lower_halves, distinct)), len(distinct) * _HALF)
    lower = dict(zip(distinct, counts.reshape(-1, _HALF), strict=True))
    # 3. Combine both halves.
    ordered = np.empty(len(halves), np.uint32)
    for k, (rank, half) in enumerate(zip(ranks, halves, strict=True)):
        within = rank - int(ends[half] - upper[half])
        ordered[k] = half << 16 | int(np.searchsorted(np.cumsum(lower[half]), within, side="right"))
    return _from_ordered(ordered).astype(np.float64)


def quantiles(each: Each, count: int, bins: int) -> NDArray[np.float64]:
    """Return the distinct boundaries of bins that each hold an equal share of the column's ``count`` numbers.

    Examples
    --------
    >>> quantiles(lambda f: [f(np.arange(9, dtype=np.float32))], 9, 4).tolist()
    [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    return np.unique(order_statistics(each, [round((count - 1) * k / bins) for k in range(bins + 1)]))


def without_missing(values: NDArray[Number]) -> NDArray[Number]:
    """Return the values that are not NaN. If there is no NaN, the array itself is returned."""
    return values[~np.isnan(values)] if len(values) and np.isnan(values.min()) else values


def _sum_counts(chunks: Iterable[SparseCounts], size: int) -> NDArray[np.int64]:
    total = np.zeros(size, np.int64)
    for at, counts in chunks:
        total[at] += counts
    return total


def _count_integers(values: Values) -> SparseCounts:
    return SparseCounts(*np.unique(_ordered(values).astype(np.int64), return_counts=True))


def _count_upper_halves(values: Values) -> SparseCounts:
    return SparseCounts.of(np.bincount(_ordered(values) >> 16))


def _count_lower_halves(halves: Sequence[int], values: Values) -> SparseCounts:
    """Count the values by their lower 16 bits, for each given pattern of the upper 16, and concatenate the counts."""
    integers = _ordered(values)
    counts = [np.bincount(integers[integers >> 16 == half] & 0xFFFF, minlength=_HALF) for half in halves]
    return SparseCounts.of(np.concatenate(counts))


def _ordered(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Map numbers to integers that sort in the same order. Missing values are left out."""
    bits = (without_missing(values) + np.float32(0)).view(np.uint32)  # adding 0 turns -0 into 0
    return np.where(bits & _SIGN_BIT, ~bits, bits | _SIGN_BIT)


def _from_ordered(integers: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Invert :func:`_ordered`."""
    return np.where(integers & _SIGN_BIT, integers & ~_SIGN_BIT, ~integers).view(np.float32)


# -- Running moments ---------------------------------------------------------------------------------------------------
# Two chunks a and b of n = n_a + n_b numbers, with d = mean_b - mean_a (Chan, Golub and LeVeque, 1979; Pébay, 2008):
#
#     mean = mean_a + d n_b / n
#     M2   = M2_a + M2_b + d^2 n_a n_b / n
#     M3   = M3_a + M3_b + d^3 n_a n_b (n_a - n_b) / n^2 + 3 d (n_a M2_b - n_b M2_a) / n
#
# where M2 and M3 are the sums of (x - mean)^2 and (x - mean)^3. The moments of one chunk equal NumPy's, bit for bit.

MAX_LISTED_VALUES = 10  # columns with up to this many distinct values have "few"; one more is listed to show that
_HEAD_ROWS = 4096  # the first rows of most columns have more distinct values than that


@dataclass(frozen=True, slots=True)
class ColumnMoments:
    """Count, mean, higher moments, range, number of missing values, and smallest distinct values of a column."""

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0
    m3: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    gaps: int = 0
    distinct: frozenset[float] = frozenset()

    @classmethod
    def of(cls, values: NDArray[Number]) -> ColumnMoments:
        """Compute the moments of one chunk in double precision. NaN marks a missing value."""
        present = without_missing(values)
        gaps = len(values) - len(present)
        if not present.size:
            return cls(gaps=gaps)
        # list the distinct values of the first rows, then those of other rows: hardly any is left to sort
        low, high, listed = float(present.min()), float(present.max()), np.unique(present[:_HEAD_ROWS])
        if len(listed) <= MAX_LISTED_VALUES < len(present):
            listed = np.unique(np.append(listed, present[~np.isin(present, listed)]))
        distinct = frozenset(listed[: MAX_LISTED_VALUES + 1].tolist())
        deviations = present.astype(np.float64)
        mean = float(deviations.mean())
        deviations -= mean
        powers = deviations * deviations
        m2 = float(powers.sum())
        powers *= deviations
        return cls(len(present), mean, m2, float(powers.sum()), low, high, gaps, distinct)

    def __add__(self, other: ColumnMoments) -> ColumnMoments:
        """Combine the moments of two chunks."""
        if not (self.count and other.count):
            return replace(self if self.count else other, gaps=self.gaps + other.gaps)
        a, b, d = float(self.count), float(other.count), other.mean - self.mean
        n = a + b
        return ColumnMoments(
            self.count + other.count,
            self.mean + d * b / n,
            self.m2 + other.m2 + d * d * a * b / n,
            self.m3 + other.m3 + d**3 * a * b * (a - b) / n**2 + 3 * d * (a * other.m2 - b * self.m2) / n,
            min(self.low, other.low),
            max(self.high, other.high),
            self.gaps + other.gaps,
            frozenset(sorted(self.distinct | other.distinct)[: MAX_LISTED_VALUES + 1]),
        )

    @property
    def constant(self) -> bool:
        """Whether all numbers are equal."""
        return self.low == self.high

    @property
    def spread(self) -> float:
        """Standard deviation of the numbers."""
        return math.sqrt(self.m2 / self.count)

    @property
    def skewness(self) -> float:
        """Mean of the cubed standardised numbers, or 0 if the numbers are constant."""
        return self.m3 / self.count / self.spread**3 if self.spread > 0 else 0.0

    @property
    def few(self) -> bool:
        """Whether there are at most ``MAX_LISTED_VALUES`` distinct values."""
        return len(self.distinct) <= MAX_LISTED_VALUES


def median_magnitude(each: Each, count: int) -> float:
    """Return the exact median of |x| for a column with ``count`` non-missing values."""
    middle = order_statistics(lambda f: each(partial(_apply_to_magnitudes, f)), [(count - 1) // 2, count // 2])
    return float(middle.mean())


def _apply_to_magnitudes(function: Callable[[Values], SparseCounts], values: Values) -> SparseCounts:
    return function(np.abs(values))


# -- Float32 resolution ------------------------------------------------------------------------------------------------
# Numbers that are too close for float32, such as Unix seconds. Differences of the size of rounding noise do not count,
# nor do numbers that float32 represents exactly. A few rows need only a few steps: two prices in a set may be close.

_MIN_STEPS = 1000  # float32 is too coarse for a range of fewer float32 steps than this (or than rows)


@dataclass(frozen=True, slots=True)
class Span:
    """Range and count of a column's numbers, and whether conversion to float32 changes any of them."""

    low: Any
    high: Any
    count: int
    whole: bool  # the numbers are integers, which have no rounding noise
    lost: bool  # float32 changes some of the numbers

    @classmethod
    def of(cls, values: NDArray[Any], narrow: NDArray[np.float32]) -> Span | None:
        """Compare numbers with their float32 values and return their span, or None if all numbers are missing."""
        if values.size and values.min() != values.min():  # NaN: some are missing
            values, narrow = values[values == values], narrow[values == values]
        if not values.size:
            return None
        with np.errstate(invalid="ignore"):
            lost = values.dtype != narrow.dtype and bool((narrow.astype(values.dtype) != values).any())
        return cls(values.min().item(), values.max().item(), len(values), values.dtype.kind != "f", lost)

    def __add__(self, other: Span) -> Span:
        """Combine the spans of two chunks."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        return Span(low, high, self.count + other.count, self.whole and other.whole, self.lost or other.lost)

    @property
    def is_too_fine_for_float32(self) -> bool:
        """Whether the numbers become constant, or nearly constant, when converted to float32."""
        top = max(-self.low, self.high)
        noise = 0 if self.whole else _MIN_STEPS * float(np.spacing(float(top)))
        return self.lost and noise < self.high - self.low < min(_MIN_STEPS, self.count) * _step(top)

    def require_float32_resolution(self, column: str) -> None:
        """Raise SchemaError if the numbers become constant, or nearly constant, when converted to float32."""
        if self.is_too_fine_for_float32:
            raise SchemaError(
                f"column {column!r}: its values differ by less than the precision of float32 "
                f"(from {self.low} to {self.high}). Subtract an offset, for example the smallest value."
            )


def merge_spans(spans: dict[str, Span], new: Mapping[str, Span]) -> None:
    """Merge the column spans of another chunk into ``spans``."""
    for name, span in new.items():
        spans[name] = spans[name] + span if name in spans else span


def is_close(narrow: NDArray[np.float32]) -> bool:
    """Check cheaply whether finite numbers may be too close together for float32."""
    if not narrow.size:
        return False
    low, high = float(narrow.min()), float(narrow.max())
    return high - low < (_MIN_STEPS + 2) * _step(max(-low, high))


def _step(magnitude: float) -> float:
    """Return the distance between neighbouring float32 numbers of the given magnitude."""
    return math.ldexp(1.0, max(math.frexp(magnitude)[1] - 24, -149))
