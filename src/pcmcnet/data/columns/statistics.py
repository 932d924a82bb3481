"""Statistics of columns that come in chunks: moments, exact quantiles, and what float32 can tell apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pcmcnet.errors import SchemaError

# -- Quantiles ---------------------------------------------------------------------------------------------------------
# Exact, in two passes and without sorting. Numbers of 32 bits are turned into whole numbers in the same order, and
# counted by their upper half; those around the ranks asked for are then counted by their lower half. Few numbers are
# sorted: a table of counts would be larger.

Values = NDArray[np.float32]
Number = TypeVar("Number", np.float32, np.float64)


class SparseCounts(NamedTuple):
    """Places with numbers, and how many each has: few of all there are, which is less to hand from one to another."""

    at: NDArray[np.int64]
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, numbers: NDArray[np.int64]) -> SparseCounts:
        """Leave out places without any."""
        at = np.flatnonzero(numbers)
        return cls(at, numbers[at])


# Calls a function for the parts of one column; what it returns comes in their order.
Each = Callable[[Callable[[Values], SparseCounts]], Iterable[SparseCounts]]

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
    # the upper halves at these ranks, and for each the counts of its lower halves
    places = [int(np.searchsorted(ends, rank, side="right")) for rank in ranks]
    distinct = sorted(set(places))
    counts = _added_up(each(partial(_lower, distinct)), len(distinct) * _HALF)
    lower = dict(zip(distinct, counts.reshape(-1, _HALF), strict=True))
    # both halves together
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


def without_missing(values: NDArray[Number]) -> NDArray[Number]:
    """Leave out what is NaN; without a copy where nothing is."""
    return values[~np.isnan(values)] if len(values) and np.isnan(values.min()) else values


def _added_up(parts: Iterable[SparseCounts], size: int) -> NDArray[np.int64]:
    """Add up the counts of all parts, by place."""
    total = np.zeros(size, np.int64)
    for at, numbers in parts:
        total[at] += numbers
    return total


def _whole(values: Values) -> SparseCounts:
    """Count numbers by the whole ones themselves."""
    return SparseCounts(*np.unique(_ordered(values).astype(np.int64), return_counts=True))


def _upper(values: Values) -> SparseCounts:
    """Count numbers by their upper half."""
    return SparseCounts.of(np.bincount(_ordered(values) >> 16))


def _lower(places: Sequence[int], values: Values) -> SparseCounts:
    """Count those with one of some upper halves by their lower half, the first of these halves before the second."""
    whole = _ordered(values)
    found = [np.bincount(whole[whole >> 16 == place] & 0xFFFF, minlength=_HALF) for place in places]
    return SparseCounts.of(np.concatenate(found))


def _ordered(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Return whole numbers in the same order, without the gaps."""
    bits = (without_missing(values) + np.float32(0)).view(np.uint32)  # -0 is 0
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _numbers(ordered: NDArray[np.uint32]) -> NDArray[np.float32]:
    return np.where(ordered & _SIGN, ordered & ~_SIGN, ~ordered).view(np.float32)


# -- Running moments ---------------------------------------------------------------------------------------------------
# Two chunks a and b of n = n_a + n_b numbers, with d = mean_b - mean_a (Chan, Golub and LeVeque, 1979; Pébay, 2008):
#
#     mean = mean_a + d n_b / n
#     M2   = M2_a + M2_b + d^2 n_a n_b / n
#     M3   = M3_a + M3_b + d^3 n_a n_b (n_a - n_b) / n^2 + 3 d (n_a M2_b - n_b M2_a) / n
#
# where M2 and M3 are the sums of (x - mean)^2 and (x - mean)^3. One part gives what numpy gives, bit for bit.

MAX_LISTED_VALUES = 10  # distinct values, such as counts; no more than one above are listed
_HEAD = 4096  # rows in which most columns have more distinct values than that


@dataclass(frozen=True, slots=True)
class ColumnMoments:
    """Count, mean, sums of the powers of deviations, range, gaps, and the first few distinct values."""

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
        """Look at one part, in double precision; NaN marks a gap."""
        known = without_missing(values)
        gaps = len(values) - len(known)
        if not known.size:
            return cls(gaps=gaps)
        low, high, some = float(known.min()), float(known.max()), np.unique(known[:_HEAD])
        if len(some) <= MAX_LISTED_VALUES < len(known):
            some = np.unique(np.append(some, known[~np.isin(known, some)]))  # hardly any is left to sort
        distinct = frozenset(some[: MAX_LISTED_VALUES + 1].tolist())
        deviations = known.astype(np.float64)
        mean = float(deviations.mean())
        deviations -= mean
        powers = deviations * deviations
        m2 = float(powers.sum())
        powers *= deviations
        return cls(len(known), mean, m2, float(powers.sum()), low, high, gaps, distinct)

    def __add__(self, other: ColumnMoments) -> ColumnMoments:
        """Put two parts together."""
        if not (self.count and other.count):
            some, gaps = (self if self.count else other), self.gaps + other.gaps
            return ColumnMoments(some.count, some.mean, some.m2, some.m3, some.low, some.high, gaps, some.distinct)
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
        """Whether all numbers are the same."""
        return self.low == self.high

    @property
    def spread(self) -> float:
        """Standard deviation."""
        return math.sqrt(self.m2 / self.count)

    @property
    def skewness(self) -> float:
        """Mean cube of the standardised numbers; 0 where they do not vary."""
        return self.m3 / self.count / self.spread**3 if self.spread > 0 else 0.0

    @property
    def few(self) -> bool:
        """Whether there are few distinct values."""
        return len(self.distinct) <= MAX_LISTED_VALUES


def median_magnitude(each: Each, count: int) -> float:
    """Return the exact median of |x| over the parts of a column with so many numbers, whatever gaps there are."""
    sizes = order_statistics(lambda f: each(partial(_of_sizes, f)), [(count - 1) // 2, count // 2])
    return float(sizes.mean())


def _of_sizes(function: Callable[[Values], SparseCounts], values: Values) -> SparseCounts:
    return function(np.abs(values))


# -- Float32 resolution ------------------------------------------------------------------------------------------------
# Numbers so close together that 32 bits cannot tell them apart, such as Unix seconds. Rounding noise is no variation,
# and what float32 holds exactly is not lost. Few rows need few steps: the two prices of a single set may be close.

_STEPS = 1000  # a spread of fewer float32 steps than this (or than rows) is too coarse


@dataclass(frozen=True, slots=True)
class Span:
    """Range and count of a column's numbers, and whether float32 changes any of them."""

    low: Any
    high: Any
    count: int
    whole: bool  # integers, which have no rounding noise
    lost: bool

    @classmethod
    def of(cls, values: NDArray[Any], narrow: NDArray[np.float32]) -> Span | None:
        """Look at numbers and what float32 makes of them; None where all are gaps."""
        if values.size and values.min() != values.min():  # there are gaps
            values, narrow = values[values == values], narrow[values == values]
        if not values.size:
            return None
        with np.errstate(invalid="ignore"):
            lost = values.dtype != narrow.dtype and bool((narrow.astype(values.dtype) != values).any())
        return cls(values.min().item(), values.max().item(), len(values), values.dtype.kind != "f", lost)

    def __add__(self, other: Span) -> Span:
        """Put two parts together."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        return Span(low, high, self.count + other.count, self.whole and other.whole, self.lost or other.lost)

    @property
    def is_too_fine_for_float32(self) -> bool:
        """Whether float32 makes the numbers constant or nearly so."""
        top = max(-self.low, self.high)
        noise = 0 if self.whole else _STEPS * float(np.spacing(float(top)))
        return self.lost and noise < self.high - self.low < min(_STEPS, self.count) * _step(top)

    def require_float32_resolution(self, column: str) -> None:
        """Raise SchemaError if float32 makes the numbers constant or nearly so."""
        if self.is_too_fine_for_float32:
            raise SchemaError(
                f"column {column!r}: its values differ by less than 32-bit numbers can tell apart "
                f"(from {self.low} to {self.high}); subtract an offset, for example the smallest value."
            )


def merge_spans(spans: dict[str, Span], others: Mapping[str, Span]) -> None:
    """Add the spans of another part of a table, by column."""
    for name, span in others.items():
        spans[name] = spans[name] + span if name in spans else span


def is_close(narrow: NDArray[np.float32]) -> bool:
    """Tell whether finite numbers lie so close together that the cast may have blurred them; cheap."""
    if not narrow.size:
        return False
    low, high = float(narrow.min()), float(narrow.max())
    return high - low < (_STEPS + 2) * _step(max(-low, high))


def _step(magnitude: float) -> float:
    """Distance between neighbouring float32 numbers of a magnitude."""
    return math.ldexp(1.0, max(math.frexp(magnitude)[1] - 24, -149))
