"""Choices that follow a pairwise choice Markov chain of given rates, with known probabilities.

A universe of n items has rates q_ij >= 0 of leaving i for j, with q_ij + q_ji > 0 for every pair (Ragain & Ugander,
2016). In a choice set S the chain moves among the members of S only, and the probability of a choice is the time it
spends there: p_S solves, for each j in S,

    sum_{i in S} p_i q_ij = p_j sum_{i in S} q_ji,    sum(p) = 1.

In a pair, P(i) = q_ji / (q_ij + q_ji). The law is computed by elimination of one item after the other (Grassmann,
Taksar & Heyman, 1985), which only adds, multiplies and divides numbers >= 0, so that every probability is exact to
rounding. Rates may be 0: an item that cannot be returned to has probability 0.

Rock-paper-scissors with 1/2 < alpha <= 1 (the paper's section on properties): the chain leaves the loser of a pair for
the winner at rate alpha, the winner for the loser at rate 1 - alpha. In a pair the winner is chosen with probability
alpha; among the three all are equal. So P(rock | rock, paper, scissors) = 1/3 > P(rock | rock, paper) = 1 - alpha for
alpha > 2/3: adding scissors raises the probability of rock, which no regular model allows.

Shapes: rates (n, n), the diagonal ignored; probabilities (|S|,).
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
"""In the order of the paper's matrix: each beats the next, the last beats the first."""

MOST_ITEMS = 20  # every_subset: about a million subsets


def rock_paper_scissors(alpha: float = 0.75) -> Floats:
    """Return the rates (3, 3) of rock, scissors and paper.

    Parameters
    ----------
    alpha
        Probability that the winner of a pair is chosen, above 1/2 and at most 1.

    Raises
    ------
    ConfigError
        ``alpha`` is out of its range.

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
    """Draw the rates (n, n) of a PCMC: log-normal, some of them 0.

    Parameters
    ----------
    n
        Number of items, at least 2.
    seed
        Seed of all randomness, at least 0.
    zeros
        Probability, from 0 to 1, that one of a pair's two rates is 0; never both.

    Raises
    ------
    ConfigError
        A number is out of its range.
    """
    if not isinstance(n, Integral) or n < 2:
        raise ConfigError(f"n: expected a whole number, 2 or above, got {n!r}. A chain needs two items.")
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
    """Compute the choice probabilities in one set.

    Parameters
    ----------
    rates
        (n, n) rates of leaving i for j, 0 or above, those of no pair both 0; the diagonal is ignored.
    members
        Items of the set, each once; all by default.

    Returns
    -------
    Array with the probability of each member, in their order.

    Raises
    ------
    InputError
        The rates are not of that kind (a ``ChainError``), or a member is not an item or comes twice.

    Examples
    --------
    >>> probabilities(rock_paper_scissors(0.75), [0, 2])
    array([0.25, 0.75])
    """
    q = _checked(rates)
    items = list(range(len(q))) if members is None else list(members)
    if not items or len(set(items)) < len(items) or not all(_is_item(i, len(q)) for i in items):
        raise InputError(f"members: expected different items from 0 to {len(q) - 1}, got {items}. Name each once.")
    return _stationary(q[np.ix_(items, items)])


def every_subset(rates: ArrayLike) -> dict[tuple[int, ...], Floats]:
    """Compute the choice probabilities of every non-empty subset, members in rising order, of at most 20 items."""
    q = _checked(rates)
    if len(q) > MOST_ITEMS:
        raise InputError(
            f"rates: expected at most {MOST_ITEMS} items, got {len(q)}: they have 2^{len(q)} subsets. "
            "Ask for the subsets you want, by probabilities(rates, members)."
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
    """Simulate choices from sets of random members, and their true probabilities.

    Parameters
    ----------
    rates
        As in ``probabilities``.
    sets
        How many choice sets, at least 1.
    seed
        Seed of all randomness, at least 0: the same seed gives the same table.
    sizes
        Sizes of the sets, all as likely; 2 to the number of items by default. Members are drawn evenly.
    labels
        Names of the items; item0, item1, ... by default.
    one_hot
        Whether to add a 0/1 column is_<label> for each item: features for models that need some.

    Returns
    -------
    Long table with columns choice_set, alternative, those of the features, chosen and true_prob; members in the
    order of the items.

    Raises
    ------
    InputError
        The rates are not of that kind, or an argument is out of its range (a ``ConfigError``).
    """
    q, n_sets = _checked(rates), require_sets(sets)
    rng = np.random.default_rng(require_seed(seed))
    n, names = len(q), _labels(labels, len(q))
    counts = rng.choice(_sizes(sizes, n), n_sets)
    # ranks of random keys: the first so many items of a random order
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
    """Simulate pairs and the three of ``rock_paper_scissors``; features are is_rock, is_scissors and is_paper."""
    return simulate(rock_paper_scissors(alpha), sets, seed=seed, labels=ITEMS)


def _by_set(q: Floats, inside: NDArray[np.bool_]) -> Floats:  # (n, n), (S, n) -> (N,)
    """Compute each distinct set once."""
    kinds, which = np.unique(inside, axis=0, return_inverse=True)
    p = np.zeros(kinds.shape)
    for law, members in zip(p, kinds, strict=True):
        law[members] = _stationary(q[np.ix_(members, members)])
    return p[which.reshape(-1)][inside]


def _stationary(rates: Floats) -> Floats:  # (m, m) -> (m,)
    """Eliminate states from the last; where one never leaves for those before it, they have no mass."""
    q = rates.copy()
    np.fill_diagonal(q, 0)
    # 1. Censor the last state: those before it move on to where it would have taken them.
    first = 0
    for k in range(len(q) - 1, 0, -1):
        leaves = q[k, :k].sum()
        if leaves == 0:
            first = k
            break
        q[:k, k] /= leaves
        q[:k, :k] += np.outer(q[:k, k], q[k, :k])
    # 2. Put the states back, each with the time that flows into it.
    p = np.zeros(len(q))
    p[first] = 1
    for k in range(first + 1, len(q)):
        p[k] = p[:k] @ q[:k, k]
    law: Floats = p / p.sum()
    return law


def _checked(rates: ArrayLike) -> Floats:
    """Return rates that give every set one law, with a diagonal of 0."""
    try:
        q = np.array(rates, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ChainError(f"rates: expected numbers of shape (n, n), got what does not convert ({error}).") from error
    if q.ndim != 2 or q.shape[0] != q.shape[1] or not len(q):
        raise ChainError(f"rates: expected shape (n, n) with n at least 1, got {q.shape}. Give a row to each item.")
    np.fill_diagonal(q, 0)
    bad = np.argwhere(~(np.isfinite(q) & (q >= 0)))
    if len(bad):
        i, j = (int(k) for k in bad[0])
        raise ChainError(
            f"rates[{i}, {j}]: expected a finite number, 0 or above, got {q[i, j]}; {len(bad)} such rates."
        )
    lone = np.argwhere(np.triu(q + q.T == 0, 1))
    if len(lone):
        i, j = (int(k) for k in lone[0])
        raise ChainError(
            f"rates[{i}, {j}] and rates[{j}, {i}]: expected one above 0, got 0 for both; {len(lone)} such pairs. "
            "A choice between the two would have no law."
        )
    return q


def _is_item(i: object, n: int) -> bool:
    return isinstance(i, Integral) and not isinstance(i, bool) and 0 <= int(i) < n


def _labels(labels: Sequence[str] | None, n: int) -> tuple[str, ...]:
    """Return a different name for each item."""
    names = tuple(f"item{i}" for i in range(n)) if labels is None else tuple(labels)
    if len(set(names)) != n or len(names) != n or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"labels: expected {n} different words, one per item, got {labels!r}. Name each item once.")
    return names


def _sizes(sizes: Sequence[int] | None, n: int) -> Ints:
    """Return the admissible sizes of sets."""
    found = list(range(min(2, n), n + 1)) if sizes is None else list(sizes)
    if not found or not all(_is_item(size, n + 1) and size >= 1 for size in found):
        raise ConfigError(f"sizes: expected whole numbers from 1 to {n}, got {sizes!r}. Sets have members once each.")
    return np.array(found, dtype=np.int64)
