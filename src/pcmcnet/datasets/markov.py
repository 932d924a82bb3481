"""Choices simulated from a pairwise choice Markov chain (PCMC) with given rates and known choice probabilities.

A universe of n items has rates q_ij >= 0 of leaving i for j, with q_ij + q_ji > 0 for every pair (Ragain & Ugander,
2016). In a choice set S, the chain moves only among the items of S, and the probability of an item is the share of time
the chain spends in it: p_S solves, for each j in S,

    sum_{i in S} p_i q_ij = p_j sum_{i in S} q_ji,    sum(p) = 1.

In a set of two items i and j, P(i) = q_ji / (q_ij + q_ji). The stationary distribution is computed by eliminating one
item after another (Grassmann, Taksar & Heyman, 1985). The elimination only adds, multiplies and divides non-negative
numbers, so every probability is exact up to rounding. Rates may be 0: an item to which the chain cannot return has
probability 0.

Example: rock-paper-scissors with 1/2 < alpha <= 1, from the paper's section on properties. The chain leaves the loser
of a pair for the winner at rate alpha, and the winner for the loser at rate 1 - alpha. In a pair, the winner is chosen
with probability alpha. In the set of all three items, each item has probability 1/3. So P(rock | rock, paper, scissors)
= 1/3 > P(rock | rock, paper) = 1 - alpha for alpha > 2/3: adding scissors raises the probability of rock, a violation
of regularity.

Shapes: rates (n, n), whose diagonal is ignored, and probabilities (|S|,).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from numbers import Integral, Real

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.datasets.truth import require_seed, require_sets, sample
from pcmcnet.errors import ChainError, ConfigError, InputError

__all__ = ["ITEMS", "every_subset", "probabilities", "random_pcmc", "rock_paper_scissors"]
__all__ += ["simulate", "simulate_rock_paper_scissors"]

ITEMS = ("rock", "scissors", "paper")
"""Items in the order of the paper's matrix: each beats the next, and the last beats the first."""

MAX_ITEMS = 20  # of every_subset: about a million subsets


def rock_paper_scissors(alpha: float = 0.75) -> Floats:
    """Return the rates (3, 3) of rock, scissors and paper.

    Parameters
    ----------
    alpha : float
        Probability that the winner of a pair is chosen, above 1/2 and at most 1. Default 0.75.

    Returns
    -------
    array of float, (3, 3)
        Rates of leaving item i for item j.

    Raises
    ------
    ConfigError
        If ``alpha`` is out of range.

    Examples
    --------
    >>> rock_paper_scissors(0.75)
    array([[0.  , 0.25, 0.75],
           [0.75, 0.  , 0.25],
           [0.25, 0.75, 0.  ]])
    """
    if not isinstance(alpha, Real) or not 0.5 < alpha <= 1:
        raise ConfigError(f"alpha: expected a number above 0.5 and at most 1, got {alpha!r}. Pass 0.75, for example.")
    a = float(alpha)
    return np.array([[0, 1 - a, a], [a, 0, 1 - a], [1 - a, a, 0]])


def random_pcmc(n: int, *, seed: int, zeros: float = 0.0) -> Floats:
    """Draw the rates of a PCMC model from a log-normal distribution, with some rates set to 0.

    Parameters
    ----------
    n : int
        Number of items, at least 2.
    seed : int
        Seed of the random number generator, at least 0.
    zeros : float
        Probability that one of the two rates of a pair is 0. The two rates are never both 0. Default 0.

    Returns
    -------
    array of float, (n, n)
        Rates of leaving item i for item j.

    Raises
    ------
    ConfigError
        If an argument is out of range.
    """
    if not isinstance(n, Integral) or n < 2:
        raise ConfigError(f"n: expected a whole number, 2 or above, got {n!r}. A chain needs at least two items.")
    if not isinstance(zeros, Real) or not 0 <= zeros <= 1:
        raise ConfigError(f"zeros: expected a number from 0 to 1, got {zeros!r}. Pass 0.2, for example.")
    rng = np.random.default_rng(require_seed(seed))
    rates = np.exp(rng.standard_normal((int(n), int(n))))
    i, j = np.triu_indices(int(n), 1)
    one_way, upper = rng.random(len(i)) < zeros, rng.random(len(i)) < 0.5
    rates[i[one_way & upper], j[one_way & upper]] = 0
    rates[j[one_way & ~upper], i[one_way & ~upper]] = 0
    np.fill_diagonal(rates, 0)
    return rates


def probabilities(rates: ArrayLike, members: Iterable[int] | None = None) -> Floats:
    """Compute the choice probabilities of the items in one set.

    Parameters
    ----------
    rates : array, (n, n)
        Rates of leaving item i for item j: at least 0, and not both 0 for any pair. The diagonal is ignored.
    members : iterable of int, optional
        Distinct items of the set. If None (default), the set contains all items.

    Returns
    -------
    array of float
        Probability of each item of the set, in the order of ``members``.

    Raises
    ------
    InputError
        If the rates are invalid (a ``ChainError``), or if ``members`` includes an unknown or repeated item.

    Examples
    --------
    >>> probabilities(rock_paper_scissors(0.75), [0, 2])
    array([0.25, 0.75])
    """
    q = _checked(rates)
    items = list(range(len(q))) if members is None else list(members)
    if not items or len(set(items)) < len(items) or not all(_is_item(i, len(q)) for i in items):
        raise InputError(f"members: expected distinct items from 0 to {len(q) - 1}, got {items}.")
    return _stationary(q[np.ix_(items, items)])


def every_subset(rates: ArrayLike) -> dict[tuple[int, ...], Floats]:
    """Compute the choice probabilities of every non-empty subset of the items.

    Parameters
    ----------
    rates : array, (n, n)
        Rates of leaving item i for item j: at least 0, and not both 0 for any pair. The number of items, n, is at most
        20.

    Returns
    -------
    dict
        Mapping from subsets, as tuples of items in ascending order, to choice probabilities.

    Raises
    ------
    InputError
        If the rates are invalid (a ``ChainError``), or if there are more than 20 items.
    """
    q = _checked(rates)
    if len(q) > MAX_ITEMS:
        raise InputError(
            f"rates: expected at most {MAX_ITEMS} items, got {len(q)}, which have 2^{len(q)} subsets. "
            "Use probabilities(rates, members) for the subsets you need."
        )
    subsets = (s for size in range(1, len(q) + 1) for s in combinations(range(len(q)), size))
    return {s: _stationary(q[np.ix_(s, s)]) for s in subsets}


def simulate(
    rates: ArrayLike,
    sets: int,
    *,
    seed: int,
    sizes: Sequence[int] | None = None,
    labels: Sequence[str] | None = None,
    one_hot: bool = True,
) -> pa.Table:
    """Simulate choices from random sets of items, with the true probabilities as a column.

    Parameters
    ----------
    rates : array, (n, n)
        Rates of leaving item i for item j: at least 0, and not both 0 for any pair. The diagonal is ignored.
    sets : int
        Number of choice sets, at least 1.
    seed : int
        Seed of the random number generator, at least 0. The same seed gives the same table.
    sizes : sequence of int, optional
        Possible set sizes, all equally likely. If None (default), sizes are 2 to n. The items of a set are drawn with
        equal probability.
    labels : sequence of str, optional
        Labels of the items. If None (default), the labels are item0, item1, ...
    one_hot : bool
        Whether to add a 0/1 feature column is_<label> for each item. Default True.

    Returns
    -------
    pyarrow.Table
        Long table with columns choice_set, alternative, the 0/1 features, chosen and true_prob. The rows of a set are
        sorted by item.

    Raises
    ------
    InputError
        If the rates are invalid (a ``ChainError``), or if an argument is out of range (a ``ConfigError``).
    """
    q, n_sets = _checked(rates), require_sets(sets)
    rng = np.random.default_rng(require_seed(seed))
    n, names = len(q), _labels(labels, len(q))
    counts = rng.choice(_sizes(sizes, n), n_sets)
    # rank the items by random keys, and take those of the lowest ranks
    inside = rng.random((n_sets, n)).argsort(axis=1).argsort(axis=1) < counts[:, None]
    item = np.nonzero(inside)[1]
    offsets = np.concatenate([[0], counts.cumsum()])
    p = _by_set(q, inside)
    chosen = np.zeros(len(p), dtype=np.int8)
    chosen[sample(p, offsets, rng)] = 1
    columns = {
        "choice_set": np.repeat(np.arange(n_sets, dtype=np.int32), counts),
        "alternative": pa.array(np.array(names, dtype=object)[item], pa.string()),
        **({f"is_{name}": (item == k).astype(np.int8) for k, name in enumerate(names)} if one_hot else {}),
        "chosen": chosen,
        "true_prob": p,
    }
    return pa.table(columns)


def simulate_rock_paper_scissors(sets: int, *, seed: int, alpha: float = 0.75) -> pa.Table:
    """Simulate choices from sets of two or three of the items rock, scissors and paper.

    Parameters
    ----------
    sets : int
        Number of choice sets, at least 1.
    seed : int
        Seed of the random number generator, at least 0. The same seed gives the same table.
    alpha : float
        Probability that the winner of a pair is chosen, above 1/2 and at most 1. Default 0.75.

    Returns
    -------
    pyarrow.Table
        Long table with columns choice_set, alternative, is_rock, is_scissors, is_paper, chosen and true_prob.

    Raises
    ------
    ConfigError
        If an argument is out of range.
    """
    return simulate(rock_paper_scissors(alpha), sets, seed=seed, labels=ITEMS)


def _by_set(q: Floats, inside: NDArray[np.bool_]) -> Floats:  # (n, n), (S, n) -> (N,)
    """Return the choice probabilities of all sets, computing each distinct set once."""
    distinct, set_numbers = np.unique(inside, axis=0, return_inverse=True)
    p = np.zeros(distinct.shape)
    for row, items in zip(p, distinct, strict=True):
        row[items] = _stationary(q[np.ix_(items, items)])
    return p[set_numbers.reshape(-1)][inside]


def _stationary(rates: Floats) -> Floats:  # (m, m) -> (m,)
    """Return the stationary distribution, computed by eliminating the states from the last to the first."""
    q = rates.copy()
    np.fill_diagonal(q, 0)
    # 1. Eliminate the last state: paths through it become direct transitions between the remaining states. If the last
    #    state is never left for an earlier one, the earlier states have probability 0.
    first = 0
    for k in range(len(q) - 1, 0, -1):
        leaves = q[k, :k].sum()
        if leaves == 0:
            first = k
            break
        q[:k, k] /= leaves
        q[:k, :k] += np.outer(q[:k, k], q[k, :k])
    # 2. Restore the states in order, each with the flow into it as its unnormalised probability.
    p = np.zeros(len(q))
    p[first] = 1
    for k in range(first + 1, len(q)):
        p[k] = p[:k] @ q[:k, k]
    distribution: Floats = p / p.sum()
    return distribution


def _checked(rates: ArrayLike) -> Floats:
    """Return the rates with a zero diagonal. Raise ChainError if some set has no unique stationary distribution."""
    try:
        q = np.array(rates, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ChainError(f"rates: expected numbers of shape (n, n), got invalid values ({error}).") from error
    if q.ndim != 2 or q.shape[0] != q.shape[1] or not len(q):
        raise ChainError(f"rates: expected shape (n, n) with n at least 1, got {q.shape}.")
    np.fill_diagonal(q, 0)
    bad = np.argwhere(~(np.isfinite(q) & (q >= 0)))
    if len(bad):
        i, j = (int(k) for k in bad[0])
        raise ChainError(
            f"rates[{i}, {j}]: expected a finite number, 0 or above, got {q[i, j]}; {len(bad)} such rates."
        )
    unconnected = np.argwhere(np.triu(q + q.T == 0, 1))
    if len(unconnected):
        i, j = (int(k) for k in unconnected[0])
        raise ChainError(
            f"rates[{i}, {j}] and rates[{j}, {i}]: expected a positive rate in at least one direction, got 0 for both; "
            f"{len(unconnected)} such pairs. The probabilities of this pair are undefined."
        )
    return q


def _is_item(i: object, n: int) -> bool:
    return isinstance(i, Integral) and not isinstance(i, bool) and 0 <= int(i) < n


def _labels(labels: Sequence[str] | None, n: int) -> tuple[str, ...]:
    """Return the labels of the items, or raise ConfigError unless they are n distinct strings."""
    names = tuple(f"item{i}" for i in range(n)) if labels is None else tuple(labels)
    if len(set(names)) != n or len(names) != n or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"labels: expected {n} distinct strings, one per item, got {labels!r}.")
    return names


def _sizes(sizes: Sequence[int] | None, n: int) -> Ints:
    """Return the possible set sizes, or raise ConfigError unless they are integers from 1 to n."""
    possible = list(range(min(2, n), n + 1)) if sizes is None else list(sizes)
    if not possible or not all(_is_item(size, n + 1) and size >= 1 for size in possible):
        raise ConfigError(f"sizes: expected whole numbers from 1 to {n}, got {sizes!r}.")
    return np.array(possible, dtype=np.int64)
