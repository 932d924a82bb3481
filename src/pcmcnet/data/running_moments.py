"""What is learnt of a column of numbers from one part of a table after the other, and then put together.

Two parts a and b of n = n_a + n_b numbers, with d = mean_b - mean_a (Chan, Golub and LeVeque, 1979; Pébay, 2008):

    mean = mean_a + d n_b / n
    M2   = M2_a + M2_b + d^2 n_a n_b / n
    M3   = M3_a + M3_b + d^3 n_a n_b (n_a - n_b) / n^2 + 3 d (n_a M2_b - n_b M2_a) / n

where M2 and M3 are the sums of (x - mean)^2 and (x - mean)^3. One part gives what numpy gives, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pcmcnet.data.quantiles import Counts, Each, Number, Values, order_statistics, without_gaps

FEW = 10  # distinct values, such as counts; no more than one above are listed
_HEAD = 4096  # rows in which most columns have more distinct values than that


@dataclass(frozen=True, slots=True)
class Moments:
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
    def of(cls, values: NDArray[Number]) -> Moments:
        """Look at one part, in double precision; NaN marks a gap."""
        known = without_gaps(values)
        gaps = len(values) - len(known)
        if not known.size:
            return cls(gaps=gaps)
        low, high, distinct = float(known.min()), float(known.max()), _first_distinct(known)
        deviations = known.astype(np.float64)
        mean = float(deviations.mean())
        deviations -= mean
        powers = deviations * deviations
        m2 = float(powers.sum())
        powers *= deviations
        return cls(len(known), mean, m2, float(powers.sum()), low, high, gaps, distinct)

    def __add__(self, other: Moments) -> Moments:
        """Put two parts together."""
        if not (self.count and other.count):
            some, gaps = (self if self.count else other), self.gaps + other.gaps
            return Moments(some.count, some.mean, some.m2, some.m3, some.low, some.high, gaps, some.distinct)
        a, b, d = float(self.count), float(other.count), other.mean - self.mean
        n = a + b
        return Moments(
            self.count + other.count,
            self.mean + d * b / n,
            self.m2 + other.m2 + d * d * a * b / n,
            self.m3 + other.m3 + d**3 * a * b * (a - b) / n**2 + 3 * d * (a * other.m2 - b * self.m2) / n,
            min(self.low, other.low),
            max(self.high, other.high),
            self.gaps + other.gaps,
            frozenset(sorted(self.distinct | other.distinct)[: FEW + 1]),
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
        return len(self.distinct) <= FEW


def median_size(each: Each, count: int) -> float:
    """Return the exact median of |x| over the parts of a column with so many numbers, whatever gaps there are."""
    sizes = order_statistics(lambda f: each(partial(_of_sizes, f)), [(count - 1) // 2, count // 2])
    return float(sizes.mean())


def _of_sizes(function: Callable[[Values], Counts], values: Values) -> Counts:
    return function(np.abs(values))


def _first_distinct(values: NDArray[Number]) -> frozenset[float]:
    some = np.unique(values[:_HEAD])
    if len(some) <= FEW < len(values):
        some = np.unique(np.append(some, values[~np.isin(values, some)]))  # hardly any is left to sort
    return frozenset(some[: FEW + 1].tolist())
