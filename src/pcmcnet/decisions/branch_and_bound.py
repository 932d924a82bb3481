"""Best-first branch and bound over offers: what all models with a bound of their own share.

A node is an offer decided in part: some alternatives are shown, some hidden, and the number shown lies in a range. The
nodes of the highest bounds are divided first, by the alternative about which the relaxation disagrees at the greatest
loss. Where to know the number shown takes off much of the gap at the root, nodes are divided by that number before.
Constraints decide what they leave no choice about.

Shapes: B nodes, n alternatives, m rows of constraints that are not about the number shown.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.decisions.constraints import ConstraintRows
from pcmcnet.decisions.offer_value import OfferValue, expected_revenue

PROVEN_GAP = 1e-6  # relative gap below which an offer is called exact
CLOSED_GAP = 1e-9  # relative gap at which a search ends


class SearchResult(NamedTuple):
    """The best offer found, and what no offer can exceed."""

    offer: Bools  # (n,)
    value: float
    bound: float
    nodes: int  # offers decided in part, or rounds

    @property
    def gap(self) -> float:
        """How far the bound lies above the value, relative to it."""
        return max(self.bound - self.value, 0.0) / max(abs(self.value), 1e-300)


# -- Local search ------------------------------------------------------------------------------------------------------
# Local search for good offers: add, drop or exchange one alternative while it helps, many searches at once.
#
# Exchanges are tried only where neither an addition nor a removal helps, since there are many more of them. All
# searches advance together, so that each round asks for all neighbours of all offers in a few calls.

RevenueFunction = Callable[
    [Bools, Ints], Floats
]  # offers (M, n), and which search each belongs to (M,) -> revenue (M,)

_MAX_NEIGHBOURS_PER_CALL = 20_000  # neighbours that are asked for in one call
_LEAST_GAIN = 1e-12  # relative gain below which a step is rounding


def local_search(
    expected_revenue: RevenueFunction, rows: ConstraintRows, starts: Bools
) -> tuple[Bools, Floats]:  # (B, n) -> (B, n), (B,)
    """Improve each start, which fulfils the constraints, until no addition, removal or exchange of one helps."""
    offers = starts.copy()
    active = np.arange(len(offers))
    values = expected_revenue(offers, active)
    while len(active):
        moved = _step(expected_revenue, rows, offers, values, active, _toggles)
        stuck = active[~moved]
        active = np.union1d(active[moved], stuck[_step(expected_revenue, rows, offers, values, stuck, _exchanges)])
    return offers, values


def starting_offers(
    rows: ConstraintRows, revenue: Floats, n: int, rng: np.random.Generator
) -> Bools:  # -> (n, len(revenue))
    """Return offers to start from: the dearest that fit, then random ones; all fulfil the constraints."""
    worths = [revenue, *(rng.standard_normal(len(revenue)) for _ in range(n - 1))]
    found = [offer for worth in worths if (offer := rows.best(worth)) is not None]
    return np.unique(np.array(found), axis=0)


def _step(
    expected_revenue: RevenueFunction,
    rows: ConstraintRows,
    offers: Bools,
    values: Floats,
    searches: Ints,
    neighbours: Callable[[Bools], tuple[Ints, Bools]],
) -> Bools:  # (b,)
    """Move each of some searches to its best neighbour, where that is better; says which ones moved."""
    moved = np.zeros(len(searches), np.bool_)
    each = max(1, _MAX_NEIGHBOURS_PER_CALL // offers.shape[1])
    for first in range(0, len(searches), each):
        part = searches[first : first + each]
        owner, there = neighbours(offers[part])
        allowed = rows.allow(there) & there.any(axis=1)
        owner, there = owner[allowed], there[allowed]
        if not len(owner):
            continue
        found = expected_revenue(there, part[owner])
        _, begins, of = np.unique(owner, return_index=True, return_inverse=True)  # owners are in order
        top = np.flatnonzero(found == np.maximum.reduceat(found, begins)[of])
        best = top[np.unique(owner[top], return_index=True)[1]]  # the best neighbour of each that has one
        now = values[part[owner[best]]]
        best = best[found[best] > now + _LEAST_GAIN * np.abs(now)]
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


# -- Branch and bound --------------------------------------------------------------------------------------------------

_NODES_PER_STEP = 64  # nodes that are divided at once
_LARGEST_GAP_LEFT = 0.75  # of the gap at the root, that may be left once the number shown is known, to divide by it


@dataclass(frozen=True, eq=False)
class Nodes:
    """Offers decided in part, and where the search for their bounds goes on from."""

    shown: Bools  # (B, n)
    hidden: Bools  # (B, n)
    least: Ints  # (B,) alternatives shown in the end
    most: Ints  # (B,)
    anchor: Ints  # (B,) an alternative that is shown
    guide: Floats  # (B, ...) what the bound of a node leaves to its parts

    def take(self, rows: Bools | Ints | list[int] | slice) -> Nodes:
        """Return some of the nodes."""
        return Nodes(*(getattr(self, field.name)[rows] for field in fields(self)))

    @staticmethod
    def join(parts: list[Nodes]) -> Nodes:
        """Return the nodes of all parts."""
        return Nodes(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Nodes)))

    @property
    def free(self) -> Bools:
        """(B, n) what is not decided yet."""
        return ~(self.shown | self.hidden)

    @property
    def sizes(self) -> tuple[Ints, Ints]:
        """(B,), (B,) the least and the largest number shown."""
        return self.least, self.most

    @property
    def of_any_size(self) -> bool:
        """Whether no range of the number shown takes a choice away."""
        return bool((self.least <= self.shown.sum(axis=1)).all() and (self.most >= (~self.hidden).sum(axis=1)).all())

    def __len__(self) -> int:
        return len(self.anchor)


class Bounds(NamedTuple):
    """What no offer of a node can exceed."""

    upper: Floats  # (B,)
    guide: Floats  # (B, ...)
    shares: Floats  # (B, n) in how much of the relaxation an alternative is shown
    loss: Floats  # (B, n) what the bound loses, to first order, once the alternative is decided


class BranchAndBound(ABC):
    """Search for the best offer to the one individual of ``value``; nodes wait in a heap by their bounds."""

    by_size = False  # whether bounds gain from knowing the number shown

    def __init__(self, value: OfferValue, rows: ConstraintRows, start: Bools, gap: float = CLOSED_GAP) -> None:
        self.value, self.gap = value, gap
        self.least, self.most, self.rows = rows.sizes()
        self.offer, self.best = start, float(expected_revenue(value, start[None])[0])
        self.waiting: list[tuple[float, int, Nodes, int]] = []
        self.tickets, self.nodes = count(), 0

    @abstractmethod
    def bound(self, nodes: Nodes) -> Bounds:
        """Bound nodes from above."""

    @abstractmethod
    def guide(self, nodes: int) -> Floats:  # (B, ...)
        """Return the guide of nodes that have no parent."""

    def run(self, stop: Callable[[], bool]) -> SearchResult:
        """Search until the best offer is proven or ``stop`` says so."""
        self._add([self._roots()])
        self.by_size = self.by_size and bool(self.waiting) and self._size_helps(self.waiting[0])
        while self.waiting and not stop():
            self._add(self._take_best())
        bound = max([self.best, *(-entry[0] for entry in self.waiting[:1])])
        return SearchResult(self.offer, self.best, bound, self.nodes)

    @property
    def target(self) -> float:
        """A bound that is not above this is of no interest."""
        return self.best + self.gap * abs(self.best)

    def _roots(self) -> Nodes:
        """Return the root; where nothing is always shown, one for each alternative as the dearest of the offer."""
        n, rows = len(self.offer), self.rows
        if rows.always.any():
            shown, hidden = rows.always[None].copy(), rows.never[None].copy()
        else:
            order = [k for k in np.argsort(-self.value.revenue, kind="stable") if not rows.never[k]]
            shown, hidden = np.zeros((len(order), n), np.bool_), np.tile(rows.never, (len(order), 1))
            for node, k in enumerate(order):
                shown[node, k] = True
                hidden[node, order[:node]] = True
        least, most = (np.full(len(shown), size) for size in (self.least, self.most))
        return Nodes(shown, hidden, least, most, shown.argmax(axis=1), self.guide(len(shown)))

    def _add(self, parts: list[Nodes]) -> None:
        """Bound nodes, keep those that may hold a better offer, and look at the offers that they suggest."""
        if not parts or not len(nodes := self._propagate(Nodes.join(parts))):
            return
        bounds = self.bound(nodes)
        self.nodes += len(nodes)
        self._round(nodes, bounds.shares)
        nodes = replace(nodes, guide=bounds.guide)
        worst = np.where(nodes.free, bounds.loss, -np.inf).argmax(axis=1)
        for k in np.flatnonzero(nodes.free.any(axis=1) & (bounds.upper > self.target)).tolist():
            heapq.heappush(self.waiting, (-float(bounds.upper[k]), next(self.tickets), nodes.take([k]), int(worst[k])))

    def _size_helps(self, entry: tuple[float, int, Nodes, int]) -> bool:
        """Bound a node for each number shown, and compare the largest of the bounds with its own."""
        sizes = np.arange(entry[2].least[0], entry[2].most[0] + 1)
        copies = self._propagate(replace(entry[2].take(0 * sizes), least=sizes, most=sizes))
        if not len(copies):
            return True
        self.nodes += len(copies)
        found = float(self.bound(copies).upper.max())
        return bool(found - self.best < _LARGEST_GAP_LEFT * (-entry[0] - self.best))

    def _take_best(self) -> list[Nodes]:
        """Take the nodes of the highest bounds, each divided in two; where none can be better, all are dropped."""
        taken: list[Nodes] = []
        while self.waiting and len(taken) < 2 * _NODES_PER_STEP and -self.waiting[0][0] > self.target:
            _, _, node, k = heapq.heappop(self.waiting)
            taken += self._divided(node, k)
        if not taken:
            self.waiting = []
        return taken

    def _divided(self, node: Nodes, k: int) -> list[Nodes]:
        """Divide a node by the number shown, or by whether alternative k is."""
        if self.by_size and node.least[0] < node.most[0]:
            middle = (node.least + node.most) // 2
            return [replace(node, most=middle), replace(node, least=middle + 1)]
        shown, hidden = node.shown.copy(), node.hidden.copy()
        shown[0, k] = hidden[0, k] = True
        return [replace(node, shown=shown), replace(node, hidden=hidden)]

    def _propagate(self, nodes: Nodes) -> Nodes:
        """Decide what constraints leave no choice about; drop nodes that none of their offers fulfils."""
        matrix, upper = self.rows.matrix, self.rows.upper
        shown, hidden = nodes.shown.copy(), nodes.hidden.copy()
        slack = 1e-9 * (np.abs(matrix).sum(axis=1) + np.abs(upper))
        possible = np.ones(len(shown), np.bool_)
        for _ in range(len(upper) + 3):
            free = ~(shown | hidden)
            fewest, largest = shown.sum(axis=1), (~hidden).sum(axis=1)
            least = shown @ matrix.T + free @ np.minimum(matrix, 0.0).T  # (B, m) of a . x
            possible = (least <= upper + slack).all(axis=1) & (fewest <= nodes.most) & (largest >= nodes.least)
            over = least[:, :, None] + np.abs(matrix) > (upper + slack)[:, None]  # (B, m, n) if decided the dear way
            hide = free & ((over & (matrix > 0)).any(axis=1) | (fewest == nodes.most)[:, None])
            show = free & ((over & (matrix < 0)).any(axis=1) | (largest == nodes.least)[:, None]) & ~hide
            if not (hide.any() or show.any()):
                break
            shown, hidden = shown | show, hidden | hide
        sizes = np.maximum(nodes.least, shown.sum(axis=1)), np.minimum(nodes.most, (~hidden).sum(axis=1))
        return replace(nodes, shown=shown, hidden=hidden, least=sizes[0], most=sizes[1]).take(possible)

    def _round(self, nodes: Nodes, shares: Floats) -> None:
        """Try the offers that most of the relaxation agrees on."""
        offers = ((shares > 0.5) | nodes.shown) & ~nodes.hidden
        sizes = offers.sum(axis=1)
        offers = np.unique(offers[self.rows.allow(offers) & (self.least <= sizes) & (sizes <= self.most)], axis=0)
        if not len(offers):
            return
        values = expected_revenue(self.value, offers)
        if values.max() > self.best:
            self.offer, self.best = offers[values.argmax()], float(values.max())
