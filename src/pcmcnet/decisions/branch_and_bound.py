"""Local search and best-first branch and bound over offers, for all models with an upper bound on revenue.

A node is a partially decided offer: some alternatives are shown, some are hidden, and the number of alternatives shown
is restricted to a range. Nodes with the highest bounds are split first, on the alternative whose inclusion or exclusion
lowers the bound most. If fixing the number of alternatives shown closes much of the gap at the root, nodes are first
split by that number. If the constraints leave only one feasible value for an alternative, the alternative is fixed at
this value.

Shapes: B nodes, n alternatives and m constraint rows. Limits on the number of alternatives shown need no row.
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

PROVEN_GAP = 1e-6  # relative gap below which an offer counts as proven
CLOSED_GAP = 1e-9  # relative gap at which the search stops


class SearchResult(NamedTuple):
    """The best offer found, and an upper bound on the revenue of any offer."""

    offer: Bools  # (n,)
    value: float  # expected revenue
    bound: float
    nodes: int  # nodes of the search, or iterations
    is_local_optimum: bool | None = None  # True if no other offer that differs by one alternative earns more

    @property
    def gap(self) -> float:
        """Relative difference between the bound and the value."""
        return max(self.bound - self.value, 0.0) / max(abs(self.value), 1e-300)


# -- Local search ------------------------------------------------------------------------------------------------------
# Local search: add, drop or exchange one alternative while the revenue grows, in many searches in parallel.
#
# Exchanges are tried only if no addition or removal helps, because there are many more of them. All searches advance
# together, so each round evaluates all neighbours of all offers in a few calls.

RevenueFunction = Callable[[Bools, Ints], Floats]  # offers (M, n), the search of each (M,) -> revenue (M,)

_MAX_NEIGHBOURS_PER_CALL = 20_000
_LEAST_GAIN = 1e-12  # smaller relative gains are rounding


def local_search(
    revenue: RevenueFunction, rows: ConstraintRows, starts: Bools, stop: Callable[[], bool] = bool
) -> tuple[Bools, Floats]:  # (B, n) -> (B, n), (B,)
    """Improve each feasible offer until no addition, removal or exchange of one alternative raises revenue.

    The search ends early, with the best offers so far, when ``stop`` returns True between two rounds.
    """
    offers = starts.copy()
    active = np.arange(len(offers))
    values = revenue(offers, active)
    while len(active) and not stop():
        moved = _step(revenue, rows, offers, values, active, _toggles)
        stuck = active[~moved]
        active = np.union1d(active[moved], stuck[_step(revenue, rows, offers, values, stuck, _exchanges)])
    return offers, values


def starting_offers(
    rows: ConstraintRows, revenue: Floats, n: int, rng: np.random.Generator
) -> Bools:  # -> (n, len(revenue))
    """Return feasible starting offers: the offer with the largest sum of revenues, and random offers."""
    worths = [revenue, *(rng.standard_normal(len(revenue)) for _ in range(n - 1))]
    offers = [offer for worth in worths if (offer := rows.best(worth)) is not None]
    return np.unique(np.array(offers), axis=0)


def _step(
    revenue: RevenueFunction,
    rows: ConstraintRows,
    offers: Bools,
    values: Floats,
    searches: Ints,
    neighbours: Callable[[Bools], tuple[Ints, Bools]],
) -> Bools:  # (b,)
    """Move each search to its best neighbour if that improves revenue, and return a mask of the searches that moved."""
    moved = np.zeros(len(searches), np.bool_)
    per_chunk = max(1, _MAX_NEIGHBOURS_PER_CALL // offers.shape[1])
    for first in range(0, len(searches), per_chunk):
        chunk = searches[first : first + per_chunk]
        owner, candidates = neighbours(offers[chunk])
        feasible = rows.allow(candidates) & candidates.any(axis=1)
        owner, candidates = owner[feasible], candidates[feasible]
        if not len(owner):
            continue
        candidate_values = revenue(candidates, chunk[owner])
        # The best neighbour of each offer; owners are sorted, and ties go to the first neighbour.
        _, begins, of = np.unique(owner, return_index=True, return_inverse=True)
        top = np.flatnonzero(candidate_values == np.maximum.reduceat(candidate_values, begins)[of])
        best = top[np.unique(owner[top], return_index=True)[1]]
        now = values[chunk[owner[best]]]
        best = best[candidate_values[best] > now + _LEAST_GAIN * np.abs(now)]
        offers[chunk[owner[best]]], values[chunk[owner[best]]] = candidates[best], candidate_values[best]
        moved[first + owner[best]] = True
    return moved


def _toggles(offers: Bools) -> tuple[Ints, Bools]:  # (b, n) -> (M,), (M, n)
    """Return the index of the original offer and the new offer, for all additions and removals of one alternative."""
    b, n = offers.shape
    return np.repeat(np.arange(b), n), (offers[:, None] ^ np.eye(n, dtype=np.bool_)).reshape(b * n, n)


def _exchanges(offers: Bools) -> tuple[Ints, Bools]:  # (b, n) -> (M,), (M, n)
    """Return the index of the original offer and the new offer, for all exchanges of one alternative."""
    owner, shown, hidden = np.nonzero(offers[:, :, None] & ~offers[:, None, :])
    neighbours = offers[owner]
    neighbours[np.arange(len(owner)), shown] = False
    neighbours[np.arange(len(owner)), hidden] = True
    return owner, neighbours


# -- Branch and bound --------------------------------------------------------------------------------------------------

_NODES_PER_STEP = 64  # nodes that are split in one step
_MAX_GAP_LEFT = 0.75  # split by the number shown only if at most this share of the root gap is left when it is known


@dataclass(frozen=True, eq=False)
class Nodes:
    """Partially decided offers, and the warm starts for computing their bounds."""

    shown: Bools  # (B, n)
    hidden: Bools  # (B, n)
    least: Ints  # (B,) minimum number of alternatives shown
    most: Ints  # (B,) maximum number of alternatives shown
    anchor: Ints  # (B,) an alternative that is shown
    guide: Floats  # (B, ...) warm start that a node passes on to its children

    def take(self, rows: Bools | Ints | list[int] | slice) -> Nodes:
        """Return the nodes at the given rows."""
        return Nodes(*(getattr(self, field.name)[rows] for field in fields(self)))

    @staticmethod
    def join(parts: list[Nodes]) -> Nodes:
        """Return the concatenation of several groups of nodes."""
        return Nodes(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Nodes)))

    @property
    def free(self) -> Bools:
        """Mask (B, n) of the undecided alternatives, which are neither shown nor hidden."""
        return ~(self.shown | self.hidden)

    @property
    def sizes(self) -> tuple[Ints, Ints]:
        """Minimum (B,) and maximum (B,) number of alternatives shown."""
        return self.least, self.most

    @property
    def of_any_size(self) -> bool:
        """True if the limits on the number of alternatives shown are not binding."""
        return bool((self.least <= self.shown.sum(axis=1)).all() and (self.most >= (~self.hidden).sum(axis=1)).all())

    def __len__(self) -> int:
        return len(self.anchor)


class NodeBounds(NamedTuple):
    """Upper bounds on the revenue of all offers in each node."""

    upper: Floats  # (B,)
    guide: Floats  # (B, ...) warm start for the children
    shares: Floats  # (B, n) share of the relaxation in which an alternative is shown
    loss: Floats  # (B, n) first-order decrease in the bound once the alternative is decided


class BranchAndBound(ABC):
    """Best-first search for the best offer to a single individual, with the open nodes in a heap sorted by bound."""

    by_size = False  # True if bounds improve when the number shown is known

    def __init__(self, value: OfferValue, rows: ConstraintRows, start: Bools, gap: float = CLOSED_GAP) -> None:
        self.value, self.gap = value, gap
        self.least, self.most, self.rows = rows.sizes()
        self.offer, self.best = start, float(expected_revenue(value, start[None])[0])
        self.waiting: list[tuple[float, int, Nodes, int]] = []
        self.tickets, self.nodes = count(), 0

    @abstractmethod
    def bound(self, nodes: Nodes) -> NodeBounds:
        """Return an upper bound for each node."""

    @abstractmethod
    def guide(self, nodes: int) -> Floats:  # (B, ...)
        """Return the warm start for root nodes."""

    def run(self, stop: Callable[[], bool]) -> SearchResult:
        """Search until an offer is proven to be the best or ``stop`` returns True."""
        self._add([self._roots()])
        self.by_size = self.by_size and bool(self.waiting) and self._size_helps(self.waiting[0])
        while self.waiting and not stop():
            self._add(self._take_best())
        bound = max([self.best, *(-entry[0] for entry in self.waiting[:1])])
        return SearchResult(self.offer, self.best, bound, self.nodes)

    @property
    def target(self) -> float:
        """Value that the bound of a node must exceed for the node to contain a better offer."""
        return self.best + self.gap * abs(self.best)

    def _roots(self) -> Nodes:
        """Return the root nodes.

        If an alternative is always shown, there is one root. Otherwise, there is a root for each alternative k that may
        be shown, with the offers in which k has the largest revenue.
        """
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
        """Compute bounds, keep the nodes that may contain a better offer, and evaluate the offers that they suggest."""
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
        """Return True if fixing the number of alternatives shown closes much of a node's optimality gap."""
        sizes = np.arange(entry[2].least[0], entry[2].most[0] + 1)
        copies = self._propagate(replace(entry[2].take(0 * sizes), least=sizes, most=sizes))
        if not len(copies):
            return True
        self.nodes += len(copies)
        largest = float(self.bound(copies).upper.max())
        return bool(largest - self.best < _MAX_GAP_LEFT * (-entry[0] - self.best))

    def _take_best(self) -> list[Nodes]:
        """Return the children of the nodes with the highest bounds, or drop all nodes if no node can improve."""
        taken: list[Nodes] = []
        while self.waiting and len(taken) < 2 * _NODES_PER_STEP and -self.waiting[0][0] > self.target:
            _, _, node, k = heapq.heappop(self.waiting)
            taken += self._split(node, k)
        if not taken:
            self.waiting = []
        return taken

    def _split(self, node: Nodes, k: int) -> list[Nodes]:
        """Split a node by the number of alternatives shown, or by whether alternative k is shown."""
        if self.by_size and node.least[0] < node.most[0]:
            middle = (node.least + node.most) // 2
            return [replace(node, most=middle), replace(node, least=middle + 1)]
        shown, hidden = node.shown.copy(), node.hidden.copy()
        shown[0, k] = hidden[0, k] = True
        return [replace(node, shown=shown), replace(node, hidden=hidden)]

    def _propagate(self, nodes: Nodes) -> Nodes:
        """Fix the alternatives that the constraints determine, and drop nodes without a feasible offer."""
        matrix, upper = self.rows.matrix, self.rows.upper
        shown, hidden = nodes.shown.copy(), nodes.hidden.copy()
        slack = 1e-9 * (np.abs(matrix).sum(axis=1) + np.abs(upper))
        possible = np.ones(len(shown), np.bool_)
        for _ in range(len(upper) + 3):
            free = ~(shown | hidden)
            fewest, largest = shown.sum(axis=1), (~hidden).sum(axis=1)
            least = shown @ matrix.T + free @ np.minimum(matrix, 0.0).T  # (B, m) smallest possible a . x
            possible = (least <= upper + slack).all(axis=1) & (fewest <= nodes.most) & (largest >= nodes.least)
            over = (
                least[:, :, None] + np.abs(matrix) > (upper + slack)[:, None]
            )  # (B, m, n) violated if x_j takes the larger term
            hide = free & ((over & (matrix > 0)).any(axis=1) | (fewest == nodes.most)[:, None])
            show = free & ((over & (matrix < 0)).any(axis=1) | (largest == nodes.least)[:, None]) & ~hide
            if not (hide.any() or show.any()):
                break
            shown, hidden = shown | show, hidden | hide
        sizes = np.maximum(nodes.least, shown.sum(axis=1)), np.minimum(nodes.most, (~hidden).sum(axis=1))
        return replace(nodes, shown=shown, hidden=hidden, least=sizes[0], most=sizes[1]).take(possible)

    def _round(self, nodes: Nodes, shares: Floats) -> None:
        """Evaluate the offers that consist of the alternatives with a share above 0.5 in the relaxed solution."""
        offers = ((shares > 0.5) | nodes.shown) & ~nodes.hidden
        sizes = offers.sum(axis=1)
        offers = np.unique(offers[self.rows.allow(offers) & (self.least <= sizes) & (sizes <= self.most)], axis=0)
        if not len(offers):
            return
        values = expected_revenue(self.value, offers)
        if values.max() > self.best:
            self.offer, self.best = offers[values.argmax()], float(values.max())
