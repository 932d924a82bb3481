"""The best offer for a Markov chain, proven by branch and bound.

The revenue of an offer S is the long-run average reward of the chain on S that earns r_i while in state i. Relative
values h then solve V = r_i + sum_{j in S} q_ij (h_j - h_i) for all i in S. Let every state i decide for itself which of
the undecided alternatives j it can move to. That is a Markov decision process. Its optimal average reward, found by
policy iteration, is never below V of any offer that agrees with the decisions made so far, since an offer is the policy
in which all states decide alike:

    V* <= max_i [ r_i + sum_{j shown} q_ij (h_j - h_i) + sum_{j undecided} max(0, q_ij (h_j - h_i)) ]     for any h.

A linear constraint a . x <= b enters with a multiplier m >= 0. The share of time in which j can be moved to is x_j in
an offer, so to show j costs m a_j in every state, and m b is added to the bound. Multipliers follow Polyak's
subgradient steps. The bound is that of the linear relaxation with a variable for each product pi_i x_j, at the price of
some systems of n equations. Of a mixture of chains the bounds are added up with their weights.

Shapes: B nodes, C chains, n alternatives, m rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.decisions.constraints import Rows
from pcmcnet.decisions.offer_value import Chains, earned
from pcmcnet.decisions.search import Search
from pcmcnet.models.logits.estimation.parallel import by_part, products_in_one_thread

_BATCH = 64  # nodes that are divided at once
_PART = 16  # nodes whose bounds one thread computes at once: they fit into its cache
_POLICIES = 30  # steps of policy iteration, at most; the bound holds after any number of them
_FLOOR = 1e-12  # of the largest rate: what the relaxation takes a rate of 0 for, so that every state can be left
_ROOT_STEPS, _NODE_STEPS = 40, 2  # steps of the multipliers
_PROVEN = 1e-9  # relative gap at which an offer counts as proven


@dataclass(frozen=True, eq=False)
class _Nodes:
    """Offers decided in part, and where the search for their bounds goes on from."""

    shown: Bools  # (B, n)
    hidden: Bools  # (B, n)
    anchor: Ints  # (B,) an alternative that is shown
    h: Floats  # (B, C, n) relative values
    multipliers: Floats  # (B, m)

    def take(self, rows: Bools | list[int] | slice) -> _Nodes:
        return _Nodes(self.shown[rows], self.hidden[rows], self.anchor[rows], self.h[rows], self.multipliers[rows])

    @property
    def free(self) -> Bools:
        return ~(self.shown | self.hidden)


class _Bounds(NamedTuple):
    upper: Floats  # (B,)
    h: Floats  # (B, C, n)
    multipliers: Floats  # (B, m)
    shares: Floats  # (B, n) of the time in which an alternative can be moved to
    loss: Floats  # (B, n) what the bound loses at least, to first order, once the alternative is decided


@products_in_one_thread()
def best_chain_offer(
    value: Chains, rows: Rows, start: Bools, *, stop: Callable[[], bool] = lambda: False, gap: float = _PROVEN
) -> Search:
    """Search for the best offer to the one individual of ``value``, until it is proven or ``stop`` says so."""
    search = _ChainSearch(value, rows, start, gap)
    search.add(search.roots())
    while search.waiting and not stop():
        nodes = search.take_best()
        if nodes is not None:
            search.add(nodes)
    return search.result()


class _ChainSearch:
    """Best-first search; nodes wait in a heap by their bounds."""

    def __init__(self, value: Chains, rows: Rows, start: Bools, gap: float) -> None:
        rates, self.weights = value.rates[0], value.weights[0]
        self.q = np.maximum(rates / rates.max(axis=(1, 2), keepdims=True), _FLOOR)
        self.q[:, np.arange(len(start)), np.arange(len(start))] = 0.0
        self.value, self.rows, self.gap = value, rows, gap
        self.offer, self.best = start, float(earned(value, start[None])[0])
        self.waiting: list[tuple[float, int, _Nodes, int]] = []
        self.tickets, self.nodes = count(), 0

    @property
    def target(self) -> float:
        """A bound that is not above this is of no interest."""
        return self.best + self.gap * abs(self.best)

    def roots(self) -> _Nodes:
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
        B = len(shown)
        h = np.zeros((B, len(self.weights), n))
        return _Nodes(shown, hidden, shown.argmax(axis=1), h, np.zeros((B, len(rows.upper))))

    def add(self, nodes: _Nodes) -> None:
        """Bound nodes, keep those that may hold a better offer, and look at the offers that they suggest."""
        nodes = self._propagate(nodes)
        if not len(nodes.anchor):
            return
        steps = (_NODE_STEPS if self.nodes else _ROOT_STEPS) if len(self.rows.upper) else 0
        bounds = self._bound(nodes, steps)
        self.nodes += len(nodes.anchor)
        self._round(nodes, bounds.shares)
        nodes = replace(nodes, h=bounds.h, multipliers=bounds.multipliers)
        worst = np.where(nodes.free, bounds.loss, -np.inf).argmax(axis=1)
        for k in np.flatnonzero(nodes.free.any(axis=1) & (bounds.upper > self.target)).tolist():
            heapq.heappush(self.waiting, (-float(bounds.upper[k]), next(self.tickets), nodes.take([k]), int(worst[k])))

    def take_best(self) -> _Nodes | None:
        """Take the nodes of the highest bounds, each divided by its most telling alternative."""
        taken: list[_Nodes] = []
        while self.waiting and len(taken) < 2 * _BATCH and -self.waiting[0][0] > self.target:
            _, _, node, k = heapq.heappop(self.waiting)
            for name in ("shown", "hidden"):
                decided = getattr(node, name).copy()
                decided[0, k] = True
                taken.append(replace(node, **{name: decided}))
        if not taken:
            self.waiting = []
            return None
        parts = ("shown", "hidden", "anchor", "h", "multipliers")
        return _Nodes(*(np.concatenate([getattr(node, part) for node in taken]) for part in parts))

    def result(self) -> Search:
        """Return the best offer with its bound."""
        bound = max([self.best, *(-entry[0] for entry in self.waiting[:1])])
        return Search(self.offer, self.best, bound, self.nodes)

    def _propagate(self, nodes: _Nodes) -> _Nodes:
        """Decide what constraints leave no choice about; drop nodes that none of their offers fulfils."""
        matrix, upper = self.rows.matrix, self.rows.upper
        if not len(upper):
            return nodes
        shown, hidden = nodes.shown.copy(), nodes.hidden.copy()
        slack = 1e-9 * (np.abs(matrix).sum(axis=1) + np.abs(upper))
        possible = np.ones(len(shown), np.bool_)
        for _ in range(len(upper) + 1):
            free = ~(shown | hidden)
            least = shown @ matrix.T + free @ np.minimum(matrix, 0.0).T  # (B, m) of a . x
            possible = (least <= upper + slack).all(axis=1)
            over = least[:, :, None] + np.abs(matrix) > (upper + slack)[:, None]  # (B, m, n) if decided the dear way
            hide = free & (over & (matrix > 0)).any(axis=1)
            show = free & (over & (matrix < 0)).any(axis=1) & ~hide
            if not (hide.any() or show.any()):
                break
            shown, hidden = shown | show, hidden | hide
        return replace(nodes, shown=shown, hidden=hidden).take(possible)

    def _bound(self, nodes: _Nodes, steps: int) -> _Bounds:
        """Bound nodes from above; with constraints, at the best of some multipliers."""
        found = self._relax_all(nodes)
        best, at = found, nodes
        for _ in range(steps):
            excess = found.shares @ self.rows.matrix.T - self.rows.upper  # (B, m) minus a subgradient
            size = np.maximum((excess**2).sum(axis=1), 1e-12)
            step = np.maximum(found.upper - self.best, 0.0) / size
            at = replace(at, h=found.h, multipliers=np.maximum(at.multipliers + step[:, None] * excess, 0.0))
            found = self._relax_all(at)
            better = found.upper < best.upper
            best = _Bounds(
                *(
                    np.where(better.reshape(-1, *[1] * (old.ndim - 1)), new, old)
                    for new, old in zip(found, best, strict=True)
                )
            )
        return best

    def _relax_all(self, nodes: _Nodes) -> _Bounds:
        """Solve the decision processes of nodes, several parts at a time."""
        cuts = range(0, len(nodes.anchor), _PART)
        parts = by_part(self._relax, [nodes.take(slice(first, first + _PART)) for first in cuts])
        return _Bounds(*map(np.concatenate, zip(*parts, strict=True)))

    def _relax(self, nodes: _Nodes) -> _Bounds:
        """Solve the decision process of each node by policy iteration, at its multipliers."""
        q, h = self.q, nodes.h
        (B, C, n), own = h.shape, np.arange(h.shape[2])
        cost = nodes.multipliers @ self.rows.matrix  # (B, n)
        at = (np.arange(B)[:, None], np.arange(C)[None], slice(None), nodes.anchor[:, None])
        policy: Bools = np.empty(0, np.bool_)
        system: Floats = np.empty(0)
        for _ in range(_POLICIES):
            gain = self._gain(h, cost)
            moves = self._moves(gain, nodes)
            if moves.shape == policy.shape and (moves == policy).all():
                break
            policy = moves
            system = q * moves
            leaving = system.sum(axis=3)
            np.negative(system, out=system)
            system[..., own, own] = leaving
            system[at] = 1.0  # the value of the anchor is 0: its column is that of the average reward
            reward = self.value.revenue - np.einsum("bcij,bj->bci", moves, cost)  # (B, C, n)
            h = np.linalg.solve(system, reward[..., None])[..., 0]
            h[at[0], at[1], nodes.anchor[:, None]] = 0.0
        gain = self._gain(h, cost)
        moves = self._moves(gain, nodes)
        # What any h proves: the largest right-hand side of the optimality equation over states that may be entered.
        right = self.value.revenue + np.where(moves, gain, 0.0).sum(axis=3)
        right[np.broadcast_to(nodes.hidden[:, None], right.shape)] = -np.inf
        upper = right.max(axis=2) @ self.weights + nodes.multipliers @ self.rows.upper
        one = np.zeros((B, C, n))
        one[at[0], at[1], nodes.anchor[:, None]] = 1.0
        pi = np.linalg.solve(np.swapaxes(system, 2, 3), one[..., None])[..., 0] * self.weights[:, None]
        to_show = (pi[..., None] * np.where(moves, 0.0, -gain)).sum(axis=(1, 2))
        to_hide = (pi[..., None] * np.where(moves, gain, 0.0)).sum(axis=(1, 2))
        loss = np.minimum(to_show, to_hide) + 1e-3 * np.maximum(to_show, to_hide)
        return _Bounds(upper, h, nodes.multipliers, (pi[..., None] * moves).sum(axis=(1, 2)), loss)

    def _gain(self, h: Floats, cost: Floats) -> Floats:  # (B, C, n, n)
        """Return what it brings to be able to move from i to j; to be at home costs, too."""
        gain: Floats = h[:, :, None, :] - h[:, :, :, None]
        gain *= self.q
        if len(self.rows.upper):
            gain -= cost[:, None, None]
        return gain

    def _moves(self, gain: Floats, nodes: _Nodes) -> Bools:
        """Return the best policy: in which state (row) which alternatives can be moved to."""
        own = np.arange(gain.shape[3])
        moves = (gain > 1e-13) | nodes.shown[:, None, None]
        moves &= ~nodes.hidden[:, None, None]
        moves[..., own, own] = True
        return moves

    def _round(self, nodes: _Nodes, shares: Floats) -> None:
        """Try the offers that most states agree on."""
        offers = ((shares > 0.5) | nodes.shown) & ~nodes.hidden
        offers = np.unique(offers[self.rows.allow(offers)], axis=0)
        if not len(offers):
            return
        values = earned(self.value, offers)
        if values.max() > self.best:
            self.offer, self.best = offers[values.argmax()], float(values.max())
