"""Losses of models on tables -> ranks, their means, and how far two means must lie apart (Demsar, 2006).

On each of N tables the k models are ranked, 1 for the least loss; equal losses share the mean of their places. Two mean
ranks differ with confidence 1 - alpha if they lie further apart than the critical distance of Nemenyi,

    CD = q_alpha sqrt(k (k + 1) / (6 N)),        q_alpha = Q(1 - alpha; k, inf) / sqrt(2),

with Q the quantile of the studentized range. Every table counts once, whatever its size.
Shapes: losses (N, k), ranks (N, k), mean ranks (k,).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pcmcnet.arrays import Floats
from pcmcnet.errors import InputError

LEVEL = 0.95
_DIGITS = 9  # losses closer than this are equal: rounding is no reason for a rank


def ranks(losses: ArrayLike) -> Floats:  # (N, k) -> (N, k)
    """Rank the models of each table, the least loss first.

    Parameters
    ----------
    losses
        (N, k) one row per table; inf for a model without a loss: such models share the last places.

    Returns
    -------
    array
        (N, k) ranks from 1 to k; equal losses have the mean of their places.

    Raises
    ------
    InputError
        When the losses are no table of numbers.

    Examples
    --------
    >>> ranks([[0.7, 0.5, 0.7, np.inf]])
    array([[2.5, 1. , 2.5, 4. ]])
    """
    v = np.round(np.asarray(losses, dtype=np.float64), _DIGITS)
    if v.ndim != 2 or np.isnan(v).any():
        raise InputError(f"losses: expected numbers (tables, models) without NaN, got shape {v.shape}.")
    mine, theirs = v[:, :, None], v[:, None, :]
    places: Floats = (theirs < mine).sum(-1) + ((theirs == mine).sum(-1) + 1) / 2
    return places


def critical_distance(models: int, tables: int, *, level: float = LEVEL) -> float:
    """Return how far apart the mean ranks of two models must lie to differ; k models on N tables.

    Examples
    --------
    >>> round(critical_distance(5, 30), 3)  # 2.728 sqrt(5 6 / (6 30))
    1.114
    """
    if models < 2 or tables < 1:
        raise InputError(f"ranks differ between 2 or more models on 1 or more tables, got {models} on {tables}.")
    from scipy.stats import studentized_range  # here, since loading it takes a second that few need

    q = float(studentized_range.ppf(level, models, np.inf)) / np.sqrt(2)
    return float(q * np.sqrt(models * (models + 1) / (6 * tables)))


def alike(mean_ranks: ArrayLike, distance: float) -> list[tuple[int, int]]:
    """Find the largest groups of neighbours whose mean ranks do not differ.

    Parameters
    ----------
    mean_ranks
        (k,) rising.
    distance
        The critical distance.

    Returns
    -------
    list of (first, last)
        Positions of the ends of each group of two or more; none lies within another.

    Examples
    --------
    >>> alike([1.0, 1.8, 2.5, 4.0], 1.0)
    [(0, 1), (1, 2)]
    """
    r = np.asarray(mean_ranks, dtype=np.float64)
    last = np.searchsorted(r, r + distance, side="right") - 1
    reached, groups = -1, []
    for first, end in enumerate(last.tolist()):
        if end > max(first, reached):
            groups.append((first, end))
        reached = max(reached, end)
    return groups
