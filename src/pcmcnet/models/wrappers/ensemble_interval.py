"""Answers of the members of an ensemble -> their mean and an interval.

    m +- t sd sqrt(1 + 1/n),        t the Student quantile at n - 1 degrees of freedom,

with mean m and standard deviation sd of the values of n members: where one more member would come to lie, with the
probability ``level``, were the values normal. Quantiles of the members are no alternative: the range of five members
holds a sixth two times in three. Probabilities are nearer to normal on the scale of log-odds, on which their intervals
are taken; so they stay between 0 and 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number
from pcmcnet.errors import InputError

LEAST, MOST = -745.0, 37.0  # log-odds of the smallest probability above 0, and of the largest below 1


class Spread(NamedTuple):
    """What the members of an ensemble make of a question."""

    values: Floats  # (n, ...) of each member
    mean: Floats  # (...)
    low: Floats  # (...) ends of the interval
    high: Floats


def log_mean(logs: Floats) -> Floats:  # (n, N) -> (N,)
    """Log of the mean of exponentials; exact where all are equal, and -inf where all are."""
    top = logs.max(axis=0)
    shift = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        mean: Floats = shift + np.log(np.exp(logs - shift).mean(axis=0))
    return mean


def log_odds(log_p: Floats) -> Floats:
    """Log p / (1 - p), kept finite."""
    with np.errstate(divide="ignore"):
        odds: Floats = log_p - np.log(-np.expm1(np.minimum(log_p, 0.0)))
    return odds.clip(LEAST, MOST)


def interval(values: Floats, level: float) -> tuple[Floats, Floats]:  # (n, ...) -> (...), (...)
    """Return the ends between which one more value lies with probability ``level``; a point where all are equal."""
    from scipy.special import stdtrit

    require_number("level", level, low=0, high=1, open_low=True, open_high=True)
    n, same = len(values), (values == values[0]).all(axis=0)
    finite = np.where(same, 0.0, values)
    if not np.isfinite(finite).all():
        raise InputError(f"expected finite numbers from every member, got {finite[~np.isfinite(finite)][0]}.")
    reach = stdtrit(n - 1, (1 + level) / 2) * finite.std(axis=0, ddof=1) * np.sqrt(1 + 1 / n)
    middle = np.where(same, values[0], finite.mean(axis=0))
    return middle - reach, middle + reach
