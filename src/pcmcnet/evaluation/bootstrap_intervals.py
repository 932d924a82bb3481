"""Values per choice set -> intervals of their weighted means, by the percentile bootstrap over choice sets.

A resample draws S of the S sets with replacement and takes sum(w v) / sum(w) over them (Efron, 1979). All
M columns of the values (S, M) see the same resamples, so the means of one resample may be compared with
each other, and the interval of a difference is that of the column of differences. Where the sets of a person or of
another group depend on each other, ``by_group`` makes groups the units that are drawn.

The percentile interval is too short for few sets. Its percentiles are moved outwards to
Phi(t sqrt(n / (n - 1))), with t the Student quantile at n - 1 degrees of freedom: the expanded percentile
interval of Hesterberg (2015, "What teachers should know about the bootstrap"). At n = 10 this asks for the
0.9 % percentile in place of the 2.5 %; at n = 1,000 hardly anything changes. With unequal weights, n is
(sum w)^2 / sum(w^2). From one set nothing can be said about the spread, so its interval is (-inf, inf),
never a point.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pcmcnet.arrays import Floats
from pcmcnet.errors import ConfigError, InputError

_DRAWS_AT_ONCE = 2**21  # sets drawn together, some 50 MiB: memory does not grow with resamples


def interval(
    values: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    resamples: int = 1000,
    level: float = 0.95,
) -> Floats:
    """Return the interval of the weighted mean.

    Parameters
    ----------
    values
        (S,) or (S, M), one row per choice set; inf is admitted.
    weights
        (S,) at least 0; a set of weight 0 is as if it were not there. A weight is what a set stands for in
        the mean, not a number of observations.
    rng
        Where the draws come from.
    resamples
        Number of resamples.
    level
        Share of samples whose interval should hold the true mean.

    Returns
    -------
    array
        (2,) or (M, 2): low and high; (-inf, inf) where fewer than two sets have a weight.

    Raises
    ------
    ConfigError
        When ``resamples`` is below 1 or ``level`` not between 0 and 1.
    InputError
        When there is no set with a weight, values and weights do not fit, or one of them is NaN.

    Examples
    --------
    >>> hits = np.repeat([0.0, 1.0], [300, 700])  # binomial: 0.7 -+ 1.96 sqrt(0.7 0.3 / 1000) = 0.672, 0.728
    >>> interval(hits, rng=np.random.default_rng(0)).round(2)
    array([0.67, 0.73])
    """
    if not 0 < level < 1:
        raise ConfigError(f"level must lie between 0 and 1, got {level}.")
    v, w = _checked(values, weights)
    return percentiles(resampled_means(v, w, rng=rng, resamples=resamples), w, level=level)


def percentiles(means: Floats, weights: Floats, *, level: float = 0.95) -> Floats:
    """Return low and high of resampled means, (2,) or (M, 2), given the weights of what was resampled."""
    w = weights[weights > 0]
    if len(w) < 2:
        return np.broadcast_to([-np.inf, np.inf], (*means.shape[1:], 2)).copy()
    tail = _tail(level, n=float(w.sum() ** 2 / (w**2).sum()))
    # No interpolation between two means: it would make NaN of inf - inf.
    low = np.quantile(means, tail, axis=0, method="lower")
    high = np.quantile(means, 1 - tail, axis=0, method="higher")
    return np.stack([low, high], axis=-1)


def resampled_means(
    values: ArrayLike, weights: ArrayLike | None = None, *, rng: np.random.Generator, resamples: int = 1000
) -> Floats:
    """Return the weighted mean of each resample, (resamples,) or (resamples, M); see :func:`interval`."""
    if resamples < 1:
        raise ConfigError(f"resamples must be at least 1, got {resamples}.")
    v, w = _checked(values, weights)
    v, w = v[w > 0], w[w > 0]
    S = len(w)
    columns = v.reshape(S, -1)  # (S, M)
    plus, minus = columns == np.inf, columns == -np.inf
    if (plus.any(axis=0) & minus.any(axis=0)).any():
        raise InputError("values hold both inf and -inf: their mean does not exist.")
    weighted = np.where(plus | minus, 0.0, columns) * w[:, None]  # no draw of inf counts as 0; 0 * inf would be NaN
    step = max(1, _DRAWS_AT_ONCE // S)
    parts = []
    for start in range(0, resamples, step):
        count = _counts(S, min(step, resamples - start), rng)  # (R, S)
        mean = (count @ weighted) / (count @ w)[:, None]  # (R, M)
        if plus.any() or minus.any():
            mean[count @ plus > 0] = np.inf
            mean[count @ minus > 0] = -np.inf
        parts.append(mean)
    return np.concatenate(parts).reshape(resamples, *v.shape[1:])


def p_values(differences: Floats) -> Floats:
    """Return the two-sided p-value of each difference from its resampled means (R, M).

    Twice the smaller of (1 + #{d <= 0}) / (1 + R) and (1 + #{d >= 0}) / (1 + R), at most 1: the observed sample
    counts as one more resample on either side, so that no number of resamples makes a p-value of 0.

    Examples
    --------
    >>> p_values(np.array([[0.2, 0.0], [0.1, 0.0], [-0.1, 0.0]]))  # 2 (1 + 1) / (1 + 3), and 2 (1 + 3) / (1 + 3)
    array([1., 1.])
    >>> p_values(np.full((999, 1), 0.3))
    array([0.002])
    """
    below, above = (differences <= 0).sum(axis=0), (differences >= 0).sum(axis=0)
    p: Floats = np.minimum(1.0, 2 * (1 + np.minimum(below, above)) / (1 + len(differences)))
    return p


def by_group(values: Floats, weights: Floats, groups: ArrayLike) -> tuple[Floats, Floats]:
    """Turn values (S, M) and weights (S,) of sets into those of their G groups, (G, M) and (G,).

    A group's value is its weighted mean and its weight the sum of weights, so the weighted mean over groups is that
    over sets, and resampling them keeps the sets of a group, which depend on each other, together. Groups without a
    weight are left out.
    """
    there = weights > 0
    w = weights[there]
    dense = np.unique(np.asarray(groups)[there], return_inverse=True)[1]
    total: Floats = np.bincount(dense, w).astype(np.float64)
    means = np.column_stack([np.bincount(dense, w * column) for column in values[there].T]) / total[:, None]
    return means, total


def _counts(sets: int, resamples: int, rng: np.random.Generator) -> Floats:
    """How often each resample drew each set: (resamples, sets)."""
    drawn = rng.integers(0, sets, (resamples, sets))
    drawn += sets * np.arange(resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=resamples * sets).reshape(resamples, sets).astype(np.float64)


def _tail(level: float, n: float) -> float:
    """Share of resamples outside each end of the expanded interval."""
    from scipy.special import ndtr, stdtrit  # here, since loading it takes half a second that few need

    n = max(n, 2.0)  # at 2 the interval already spans all resamples
    t = stdtrit(n - 1, (1 - level) / 2)
    return float(ndtr(t * np.sqrt(n / (n - 1))))


def _checked(values: ArrayLike, weights: ArrayLike | None) -> tuple[Floats, Floats]:
    v = np.asarray(values, dtype=np.float64)
    w = np.ones(len(v)) if weights is None else np.asarray(weights, dtype=np.float64)
    if v.ndim not in (1, 2) or w.shape != v.shape[:1]:
        raise InputError(f"expected values (S,) or (S, M) and weights (S,), got shapes {v.shape} and {w.shape}.")
    if np.isnan(v).any():
        raise InputError(f"values must be numbers, got NaN for {int(np.isnan(v).sum())} of {v.size}.")
    if not (np.isfinite(w) & (w >= 0)).all() or not w.any():
        raise InputError("weights must be finite, at least 0, and above 0 for at least one choice set.")
    return v, w
