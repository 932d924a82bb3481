"""The best offer for a Markov chain, proven by branch and bound.

The revenue of an offer S is the long-run average reward of the chain on S that earns r_i while in state i. Relative
values h then solve V = r_i + sum_{j in S} q_ij (h_j - h_i) for all i in S. Let every state i decide for itself which of
the undecided alternatives j it can move to, as many as a node of the search allows to be shown. That is a Markov
decision process. Its optimal average reward, found by policy iteration, is never below V of any offer that agrees with
the decisions made so far, since an offer is the policy in which all states decide alike:

    V* <= max_i [ r_i + sum_{j shown} q_ij (h_j - h_i) + max_T sum_{j in T} q_ij (h_j - h_i) ]     for any h,

where T has undecided alternatives, so many that the number shown lies in the node's range: those of the largest terms.
Left to itself, a state of high value would show nothing and one of low value nearly all, so the number can matter much.

A linear constraint a . x <= b enters with a multiplier m >= 0. The share of time in which j can be moved to is x_j in
an offer, so to show j costs m a_j in every state, and m b is added to the bound. Multipliers follow Polyak's
subgradient steps. Of a mixture of chains the bounds are added up with their weights.

Shapes: B nodes, C chains, n alternatives, m rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats
from pcmcnet.decisions.branch_and_bound import Bounds, BranchAndBound, Nodes
from pcmcnet.decisions.constraints import Rows
from pcmcnet.decisions.offer_value import Chains
from pcmcnet.decisions.search import Search
from pcmcnet.models.logits.estimation.parallel import by_part, products_in_one_thread

_PART = 16  # nodes whose bounds one thread computes at once: they fit into its cache
_POLICIES = 30  # steps of policy iteration, at most; the bound holds after any number of them
_FLOOR = 1e-12  # of the largest rate: what the relaxation takes a rate of 0 for, so that every state can be left
_GAIN = 1e-13  # what a move must bring to be made
_ROOT_STEPS, _NODE_STEPS = 40, 2  # steps of the multipliers


@products_in_one_thread()
def best_chain_offer(value: Chains, rows: Rows, start: Bools, *, stop: Callable[[], bool] = lambda: False) -> Search:
    """Search for the best offer to the one individual of ``value``, until it is proven or ``stop`` says so."""
    return _ChainSearch(value, rows, start).run(stop)


class _ChainSearch(BranchAndBound):
    """Bounds by decision processes; the guide of a node holds relative values, then multipliers."""

    by_size = True
    value: Chains

    def __init__(self, value: Chains, rows: Rows, start: Bools) -> None:
        super().__init__(value, rows, start)
        rates, self.weights = value.rates[0], value.weights[0]
        largest = rates.max(axis=(1, 2), keepdims=True, initial=_FLOOR)  # a single alternative has no rates
        self.q = np.maximum(rates / largest, _FLOOR)
        self.q[:, np.arange(len(start)), np.arange(len(start))] = 0.0

    def guide(self, nodes: int) -> Floats:
        """See :class:`BranchAndBound`."""
        return np.zeros((nodes, len(self.weights) * len(self.offer) + len(self.rows.upper)))

    def bound(self, nodes: Nodes) -> Bounds:
        """Bound nodes from above; with constraints, at the best of some multipliers."""
        best = found = self._relax_all(nodes)
        for _ in range((_NODE_STEPS if self.nodes else _ROOT_STEPS) if len(self.rows.upper) else 0):
            excess = found.shares @ self.rows.matrix.T - self.rows.upper  # (B, m) minus a subgradient
            size = np.maximum((excess**2).sum(axis=1), 1e-12)
            step = np.maximum(found.upper - self.best, 0.0) / size
            guide = found.guide.copy()
            multipliers = guide[:, -len(self.rows.upper) :]
            multipliers[:] = np.maximum(multipliers + step[:, None] * excess, 0.0)
            found = self._relax_all(replace(nodes, guide=guide))
            better = (found.upper < best.upper)[:, None]
            best = Bounds(
                np.minimum(found.upper, best.upper),
                *(np.where(better, new, old) for new, old in zip(found[1:], best[1:], strict=True)),
            )
        return best

    def _relax_all(self, nodes: Nodes) -> Bounds:
        """Solve the decision processes of nodes, several parts at a time."""
        cuts = range(0, len(nodes), _PART)
        parts = by_part(self._relax, [nodes.take(slice(first, first + _PART)) for first in cuts])
        return Bounds(*map(np.concatenate, zip(*parts, strict=True)))

    def _relax(self, nodes: Nodes) -> Bounds:
        """Solve the decision process of each node by policy iteration, at its multipliers."""
        B, C, n = len(nodes), len(self.weights), nodes.shown.shape[1]
        h, multipliers = nodes.guide[:, : C * n].reshape(B, C, n), nodes.guide[:, C * n :]
        cost = multipliers @ self.rows.matrix  # (B, n)
        own, at = np.arange(n), (np.arange(B)[:, None], np.arange(C)[None], slice(None), nodes.anchor[:, None])
        policy: Bools = np.empty(0, np.bool_)
        system: Floats = np.empty(0)
        for _ in range(_POLICIES):
            moves = self._moves(h, cost, nodes)
            if moves.chosen.shape == policy.shape and (moves.chosen == policy).all():
                break
            policy = moves.chosen
            system = -self.q * policy
            system[..., own, own] = -system.sum(axis=3)
            system[at] = 1.0  # the value of the anchor is 0: its column is that of the average reward
            reward = self.value.revenue - np.einsum("bcij,bj->bci", policy, cost)  # (B, C, n)
            h = np.linalg.solve(system, reward[..., None])[..., 0]
            h[at[0], at[1], nodes.anchor[:, None]] = 0.0
        moves = self._moves(h, cost, nodes)
        # What any h proves: the largest right-hand side of the optimality equation over states that may be entered.
        right = np.where(nodes.hidden[:, None], -np.inf, self.value.revenue + moves.total)
        upper = right.max(axis=2) @ self.weights + multipliers @ self.rows.upper
        one = np.zeros((B, C, n))
        one[at[0], at[1], nodes.anchor[:, None]] = 1.0
        pi = np.linalg.solve(np.swapaxes(system, 2, 3), one[..., None])[..., 0] * self.weights[:, None]
        losses = moves.losses(float(np.ptp(self.value.revenue)))
        to_show, to_hide, shares = (np.einsum("bci,bcij->bj", pi, each) for each in (*losses, moves.chosen))
        loss = np.minimum(to_show, to_hide) + 1e-3 * np.maximum(to_show, to_hide)
        return Bounds(upper, np.concatenate([h.reshape(B, -1), multipliers], axis=1), shares, loss)

    def _moves(self, h: Floats, cost: Floats, nodes: Nodes) -> _Moves:
        """Return the best policy: each state shows what it gains most from, as many as the node allows."""
        gain: Floats = (h[:, :, None, :] - h[:, :, :, None]) * self.q  # (B, C, n, n)
        if len(self.rows.upper):
            gain -= cost[:, None, None]  # to be at home costs, too
        settled = np.eye(h.shape[2], dtype=np.bool_) | nodes.shown[:, None]  # (B, n, n): who is at home is on show
        free = ~(settled | nodes.hidden[:, None])[:, None]  # (B, 1, n, n)
        settled = settled[:, None]
        if nodes.of_any_size:
            chosen = (free & (gain > _GAIN)) | settled
            return _Moves(chosen, np.where(chosen, gain, 0.0).sum(axis=3), gain, free, np.zeros(1), np.zeros(1))
        least, most = (size[:, None, None, None] - settled.sum(axis=3, keepdims=True) for size in nodes.sizes)
        ranked = -np.sort(np.where(free, -gain, np.inf), axis=3)
        number = np.clip((ranked > _GAIN).sum(axis=3, keepdims=True), least, most)
        number = np.clip(number, 0, free.sum(axis=3, keepdims=True))
        total = np.where(np.arange(h.shape[2]) < number, ranked, 0.0).sum(axis=3)
        total += np.where(settled, gain, 0.0).sum(axis=3)
        last = np.where(number > 0, np.take_along_axis(ranked, np.maximum(number - 1, 0), axis=3), np.inf)
        after = np.take_along_axis(ranked, np.minimum(number, h.shape[2] - 1), axis=3)
        instead = np.where(number < most, np.minimum(last, 0.0), last)
        filled = np.where(number > least, np.maximum(after, 0.0), after)
        return _Moves((free & (gain >= last)) | settled, total, gain, free, instead, filled)


class _Moves(NamedTuple):
    """In which state (row) which alternatives are best moved to, at some relative values."""

    chosen: Bools  # (B, C, n, n)
    total: Floats  # (B, C, n) of the gains
    gain: Floats  # (B, C, n, n) of being able to move from i to j
    free: Bools  # (B, 1, n, n) what is not decided
    instead: Floats  # (B, C, n, 1) gain of what one more would take the place of
    filled: Floats  # (B, C, n, 1) gain of what would take the place of one less

    def losses(self, highest: float) -> tuple[Floats, Floats]:  # (B, C, n, n) each
        """Return what states lose that must show one alternative more, or must not show one."""
        to_show = np.where(self.free & ~self.chosen, self.instead - self.gain, 0.0)
        to_hide = np.where(self.free & self.chosen, self.gain - self.filled, 0.0)
        return np.minimum(to_show, highest), np.minimum(to_hide, highest)
