"""Arithmetic within choice sets, on flat arrays of all alternatives (N, ...) with the offsets (S + 1,) of the sets.

Nothing is padded. Sets must not be empty, because ``reduceat`` would give an empty set the value of the next set.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.errors import InputError

SPARSE_PRODUCT = 2**16  # numbers above which a sparse product saves 0.1 ms or more; loading scipy.sparse takes 50 ms
MAX_PAIRS = 2**28  # numbers for all ordered pairs that one call may return: 2 GiB in float64


def sum_by_set(values: NDArray[Any], offsets: Ints) -> NDArray[Any]:
    """Return the sum over the alternatives of each set: (N, ...) -> (S, ...)."""
    sums: NDArray[Any] = np.add.reduceat(values, offsets[:-1])
    return sums


def weighted_sum_by_set(weights: Floats, values: Floats, offsets: Ints) -> Floats:
    """Return the weighted sum of the rows of each set: (N,), (N, K) -> (S, K).

    The sum over many rows is computed as a product with a sparse matrix, without a temporary array of shape (N, K).
    """
    if values.size < SPARSE_PRODUCT:
        return sum_by_set(weights[:, None] * values, offsets)
    from scipy.sparse import csr_array

    sums: Floats = csr_array((weights, np.arange(len(weights)), offsets), (len(offsets) - 1, len(weights))) @ values
    return sums


def max_by_set(values: NDArray[Any], offsets: Ints) -> NDArray[Any]:
    """Return the largest value of each set: (N, ...) -> (S, ...)."""
    largest: NDArray[Any] = np.maximum.reduceat(values, offsets[:-1])
    return largest


def min_by_set(values: NDArray[Any], offsets: Ints) -> NDArray[Any]:
    """Return the smallest value of each set: (N, ...) -> (S, ...)."""
    smallest: NDArray[Any] = np.minimum.reduceat(values, offsets[:-1])
    return smallest


def argmax_by_set(values: NDArray[Any], offsets: Ints) -> Ints:
    """Return the flat position of the largest value of each set, or of the first one in case of ties: (N,) -> (S,).

    Examples
    --------
    >>> argmax_by_set(np.array([1.0, 3.0, 3.0, 2.0]), np.array([0, 3, 4]))
    array([1, 3])
    """
    order: Ints = np.lexsort((np.arange(len(values)), -values, spread(np.arange(len(offsets) - 1), offsets)))
    return order[offsets[:-1]]


def spread(values: NDArray[Any], offsets: Ints) -> NDArray[Any]:
    """Repeat the value of each set for all its alternatives: (S, ...) -> (N, ...)."""
    return np.repeat(values, np.diff(offsets), axis=0)


def consecutive_indices(starts: Ints, lengths: Ints) -> Ints:
    """Return the concatenated ranges start, start + 1, ..., start + length - 1 for all starts and lengths.

    Examples
    --------
    >>> consecutive_indices(np.array([10, 4]), np.array([2, 3]))
    array([10, 11,  4,  5,  6])
    """
    ends = np.cumsum(lengths)
    indices: Ints = np.arange(int(lengths.sum())) + np.repeat(starts - (ends - lengths), lengths)
    return indices


def ordered_pairs(offsets: Ints) -> tuple[Ints, Ints]:
    """Return the alternatives i and j of all ordered pairs (i, j) of each set, with j varying fastest: 2 x (sum n^2,).

    Examples
    --------
    >>> ordered_pairs(np.array([0, 2, 3]))
    (array([0, 0, 1, 1, 2]), array([0, 1, 0, 1, 2]))
    """
    sizes = np.diff(offsets)
    pairs = spread(sizes, offsets)  # number of pairs that begin with each alternative
    return np.repeat(np.arange(len(pairs)), pairs), consecutive_indices(spread(offsets[:-1], offsets), pairs)


def require_few_pairs(numbers: str, sizes: Ints, remedy: str, *, per_pair: int = 1) -> None:
    """Raise InputError if numbers for all ordered pairs of each set would not fit in memory.

    Parameters
    ----------
    numbers
        What is computed for each pair, for the message, such as "rates".
    sizes
        Number of alternatives of each set.
    remedy
        What to do instead, for the message.
    per_pair
        Numbers for each pair.
    """
    total = per_pair * sum(int(n) ** 2 * int(k) for n, k in zip(*np.unique(sizes, return_counts=True), strict=True))
    if total > MAX_PAIRS:
        raise InputError(
            f"{numbers} of all pairs of alternatives would take {8 * total / 1e9:,.1f} GB for {len(sizes):,} choice "
            f"{'set' if len(sizes) == 1 else 'sets'} of up to {int(sizes.max()):,} alternatives; at most "
            f"{8 * MAX_PAIRS / 1e9:.1f} GB are computed at once. Use smaller or fewer choice sets{remedy}."
        )


def log_sum_exp_by_set(values: Floats, offsets: Ints) -> Floats:
    """Return log(sum(exp(value))) over the alternatives of each set, without overflow: (N,) -> (S,)."""
    top = max_by_set(values, offsets)
    total: Floats = top + np.log(sum_by_set(np.exp(values - spread(top, offsets)), offsets))
    return total


def log_softmax_by_set(values: Floats, offsets: Ints) -> Floats:
    """Return the log-probabilities of a logit from the utilities within each set: (N,) -> (N,).

    Examples
    --------
    >>> np.exp(log_softmax_by_set(np.log([1.0, 3.0, 5.0]), np.array([0, 2, 3])))
    array([0.25, 0.75, 1.  ])
    """
    below = values - spread(
        max_by_set(values, offsets), offsets
    )  # before the logarithm, which large utilities would absorb
    log_p: Floats = below - spread(np.log(sum_by_set(np.exp(below), offsets)), offsets)
    return log_p
