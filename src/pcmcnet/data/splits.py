"""Random parts of choice sets: a set's alternatives, and the sets of one group, stay together.

The functions that cut take one group number per set and return sorted positions of sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Ints
from pcmcnet.errors import InputError


def generator(seed: int) -> np.random.Generator:
    """Return the random generator of a seed."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"the seed must be a whole number of at least 0, got {seed!r}.")
    return np.random.default_rng(int(seed))


def number_groups(values: NDArray[Any]) -> Ints:
    """Number the distinct values, which may be of any kind."""
    if values.dtype.kind == "O":
        numbers: dict[Any, int] = {}
        try:
            return np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)
        except TypeError as error:
            raise InputError("by: expected one number or text per choice set.") from error
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def split_parts(groups: Ints, parts: Sequence[float], rng: np.random.Generator) -> list[Ints]:
    """Cut into parts of the given shares, each met up to the size of one group and none empty."""
    shares = shares_of(parts)
    order, ends = _shuffled(groups, rng)
    if len(ends) < len(shares):
        raise InputError(f"{len(ends)} groups of choice sets are too few for {len(shares)} parts: one would be empty.")
    targets = np.cumsum(shares)[:-1] * len(groups)
    last = np.searchsorted(ends, targets - 0.5)  # the first group that reaches the share ends the part
    room = np.arange(len(last))
    last = np.minimum(last, len(ends) - 1 - len(last) + room)  # each part to the right keeps a group
    last = np.maximum.accumulate(last - room) + room  # and each part has one of its own
    bounds = [0, *ends[last].tolist(), len(groups)]
    return [np.sort(order[begin:end]) for begin, end in pairwise(bounds)]


def shares_of(parts: Sequence[float]) -> NDArray[np.float64]:
    """Take shares that add up to 1, refusing others."""
    try:
        shares = np.asarray(parts, dtype=np.float64)
    except (TypeError, ValueError):
        shares = np.empty(0)
    if shares.ndim != 1 or not shares.size or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-9:
        raise InputError(f"the parts must be positive shares that add up to 1, got {parts!r}.")
    return shares


def fold_parts(groups: Ints, k: int, rng: np.random.Generator) -> list[Ints]:
    """Cut into k parts of nearly equal numbers of groups."""
    _, dense, counts = np.unique(groups, return_inverse=True, return_counts=True)
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 2 <= k <= len(counts):
        raise InputError(
            f"the number of folds must lie between 2 and {len(counts)}, the number of groups of choice sets; got {k!r}."
        )
    fold = (rng.permutation(len(counts)) % k)[dense]
    return [np.flatnonzero(fold == f) for f in range(k)]


def _shuffled(groups: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Order the sets by a random order of their groups; also the position where each group ends."""
    _, dense, counts = np.unique(groups, return_inverse=True, return_counts=True)
    rank = rng.permutation(len(counts))
    order = np.argsort(rank[dense], kind="stable")
    return order, np.cumsum(counts[np.argsort(rank)])
