"""Local search for good offers: add, drop or exchange one alternative while it helps, many searches at once.

Exchanges are tried only where neither an addition nor a removal helps, since there are many more of them. All searches
advance together, so that each round asks for all neighbours of all offers in a few calls.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.decisions.constraints import Rows

Earned = Callable[[Bools, Ints], Floats]  # offers (M, n), and which search each belongs to (M,) -> revenue (M,)

_AT_ONCE = 20_000  # neighbours that are asked for in one call
_HELPS = 1e-12  # relative gain below which a step is rounding


def climb(earned: Earned, rows: Rows, starts: Bools) -> tuple[Bools, Floats]:  # (B, n) -> (B, n), (B,)
    """Improve each offer until no addition, removal or exchange of one alternative helps.

    Parameters
    ----------
    earned
        Expected revenue of offers.
    rows
        The constraints, which the starts fulfil.
    starts
        Where the searches begin.
    """
    offers = starts.copy()
    active = np.arange(len(offers))
    values = earned(offers, active)
    while len(active):
        moved = _step(earned, rows, offers, values, active, _toggles)
        stuck = active[~moved]
        active = np.union1d(active[moved], stuck[_step(earned, rows, offers, values, stuck, _exchanges)])
    return offers, values


def starting_offers(rows: Rows, revenue: Floats, n: int, rng: np.random.Generator) -> Bools:  # -> (n, len(revenue))
    """Return offers to start from: the dearest that fit, then random ones; all fulfil the constraints."""
    worths = [revenue, *(rng.standard_normal(len(revenue)) for _ in range(n - 1))]
    found = [offer for worth in worths if (offer := rows.best(worth)) is not None]
    return np.unique(np.array(found), axis=0)


def _step(
    earned: Earned,
    rows: Rows,
    offers: Bools,
    values: Floats,
    searches: Ints,
    neighbours: Callable[[Bools], tuple[Ints, Bools]],
) -> Bools:  # (b,)
    """Move each of some searches to its best neighbour, where that is better; says which ones moved."""
    moved = np.zeros(len(searches), np.bool_)
    each = max(1, _AT_ONCE // offers.shape[1])
    for first in range(0, len(searches), each):
        part = searches[first : first + each]
        owner, there = neighbours(offers[part])
        allowed = rows.allow(there) & there.any(axis=1)
        owner, there = owner[allowed], there[allowed]
        if not len(owner):
            continue
        found = earned(there, part[owner])
        _, begins, of = np.unique(owner, return_index=True, return_inverse=True)  # owners are in order
        top = np.flatnonzero(found == np.maximum.reduceat(found, begins)[of])
        best = top[np.unique(owner[top], return_index=True)[1]]  # the best neighbour of each that has one
        now = values[part[owner[best]]]
        best = best[found[best] > now + _HELPS * np.abs(now)]
        offers[part[owner[best]]], values[part[owner[best]]] = there[best], found[best]
        moved[first + owner[best]] = True
    return moved


def _toggles(offers: Bools) -> tuple[Ints, Bools]:  # (b, n) -> (M,), (M, n)
    """Return all offers with one alternative more or less, and whose neighbours they are."""
    b, n = offers.shape
    return np.repeat(np.arange(b), n), (offers[:, None] ^ np.eye(n, dtype=np.bool_)).reshape(b * n, n)


def _exchanges(offers: Bools) -> tuple[Ints, Bools]:  # (b, n) -> (M,), (M, n)
    """Return all offers with one alternative exchanged for another, and whose neighbours they are."""
    owner, shown, hidden = np.nonzero(offers[:, :, None] & ~offers[:, None, :])
    there = offers[owner]
    there[np.arange(len(owner)), shown] = False
    there[np.arange(len(owner)), hidden] = True
    return owner, there
