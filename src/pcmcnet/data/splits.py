"""Random parts of choice sets: a set's alternatives, and the sets of one group, stay together.

Both functions take one group number per set and return sorted positions of sets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pcmcnet.data.columns import Ints
from pcmcnet.errors import InputError


def split_parts(groups: Ints, parts: Sequence[float], rng: np.random.Generator) -> list[Ints]:
    """Cut into parts of the given shares; each part's share is met up to the size of one group."""
    shares = np.asarray(parts, dtype=np.float64)
    if shares.ndim != 1 or not shares.size or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-9:
        raise InputError(f"the parts must be positive shares that add up to 1, got {tuple(parts)}.")
    order, ends = _shuffled(groups, rng)
    targets = np.cumsum(shares)[:-1] * len(groups)
    cuts = np.searchsorted(ends, targets - 0.5)  # the first group that reaches the share ends the part
    bounds = [0, *(int(ends[min(c, len(ends) - 1)]) for c in cuts), len(groups)]
    pieces = [np.sort(order[a:b]) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
    if not all(p.size for p in pieces):
        raise InputError(
            f"{len(np.unique(groups))} groups of {len(groups)} choice sets are too few for the parts {tuple(parts)}: "
            f"one part would be empty."
        )
    return pieces


def fold_parts(groups: Ints, k: int, rng: np.random.Generator) -> list[Ints]:
    """Cut into k parts of nearly equal numbers of groups."""
    n_groups = len(np.unique(groups))
    if not 2 <= k <= n_groups:
        raise InputError(f"the number of folds must lie between 2 and {n_groups}, the number of groups; got {k}.")
    fold_of_group = rng.permutation(n_groups) % k
    fold = fold_of_group[np.unique(groups, return_inverse=True)[1]]
    return [np.flatnonzero(fold == f) for f in range(k)]


def _shuffled(groups: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Order the sets by a random order of their groups; also the position where each group ends."""
    _, dense, counts = np.unique(groups, return_inverse=True, return_counts=True)
    rank = rng.permutation(len(counts))
    order = np.argsort(rank[dense], kind="stable")
    return order, np.cumsum(counts[np.argsort(rank)])
