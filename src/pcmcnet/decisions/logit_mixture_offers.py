"""The best offer for a mixture of many logits, such as the draws of a mixed logit, proven by branch and bound.

Each logit c earns sum_j r_j a^c_j x_j / sum_j a^c_j x_j. Let every logit choose for itself which of the undecided
alternatives are shown: the sum of their best revenues, by their weights, bounds what any one offer earns. The best
offer of a logit is found by Dinkelbach's method, as in ``logit_offers.py``: at revenue v it shows what has the largest
(r_j - v) a_j, all that are positive or as many as may be shown. After any number of its rounds

    V_c <= v_c + max_x sum_j (r_j - v_c) a^c_j x_j / sum_{j shown} a^c_j

since no offer of the node attracts less than what is shown already. Logits whose tastes are alike agree about most
alternatives, so few nodes are needed: far fewer than the mixed integer program of ``logit_offers.py`` has variables.

Shapes: B nodes, C logits, n alternatives.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pcmcnet.arrays import Bools, Floats
from pcmcnet.decisions.branch_and_bound import Bounds, BranchAndBound, Nodes
from pcmcnet.decisions.constraints import Rows
from pcmcnet.decisions.offer_value import Logits
from pcmcnet.decisions.search import Search

_ROUNDS = 20  # of Dinkelbach's method, which needs a handful
_NUMBERS = 2**21  # attractions at a time
_CLOSE = 1e-12  # relative, at which a logit's best revenue is found


def best_mixture_offer(value: Logits, rows: Rows, start: Bools, *, stop: Callable[[], bool] = lambda: False) -> Search:
    """Search for the best offer to the one individual of ``value``, until it is proven or ``stop`` says so."""
    return _MixtureSearch(value, rows, start).run(stop)


class _MixtureSearch(BranchAndBound):
    """Bounds by the best offers of each logit; the guide of a node holds their revenues."""

    def __init__(self, value: Logits, rows: Rows, start: Bools) -> None:
        super().__init__(value, rows, start)
        self.weights, a = value.weights[0], value.attraction[0]
        self.a = a / a.max(axis=1, keepdims=True)

    def guide(self, nodes: int) -> Floats:
        """See :class:`BranchAndBound`."""
        return np.full((nodes, len(self.weights)), self.best)

    def bound(self, nodes: Nodes) -> Bounds:
        """Bound nodes from above, some at a time."""
        each = max(_NUMBERS // self.a.size, 1)
        parts = [self._relax(nodes.take(slice(first, first + each))) for first in range(0, len(nodes), each)]
        return Bounds(*map(np.concatenate, zip(*parts, strict=True)))

    def _relax(self, nodes: Nodes) -> Bounds:
        """Find the best offer of each logit in each node."""
        a, r, v = self.a, self.value.revenue, nodes.guide
        least = nodes.shown @ a.T  # (B, C)
        for _ in range(_ROUNDS):
            worth = (r - v[..., None]) * a  # (B, C, n)
            chosen = self._chosen(worth, nodes)
            attracted = np.where(chosen, a, 0.0).sum(axis=2)
            before, v = v, np.where(chosen, a * r, 0.0).sum(axis=2) / attracted
            if (np.abs(v - before) <= _CLOSE * np.abs(v)).all():
                break
        worth = (r - v[..., None]) * a
        gain = np.where(self._chosen(worth, nodes), worth, 0.0).sum(axis=2)
        upper = (v + np.maximum(gain, 0.0) / least) @ self.weights
        to_show = np.where(chosen, 0.0, -worth / (attracted[..., None] + a))
        to_hide = np.where(chosen, worth / np.maximum(attracted[..., None] - a, least[..., None]), 0.0)
        to_show, to_hide = (np.einsum("c,bcn->bn", self.weights, each) for each in (to_show, to_hide))
        loss = np.minimum(to_show, to_hide) + 1e-3 * np.maximum(to_show, to_hide)
        return Bounds(upper, v, np.einsum("c,bcn->bn", self.weights, chosen), loss)

    def _chosen(self, worth: Floats, nodes: Nodes) -> Bools:  # (B, C, n)
        """Return what each logit shows: what is worth most of what may be shown."""
        free, shown = nodes.free[:, None], nodes.shown[:, None]
        if nodes.of_any_size:
            return (free & (worth > 0)) | shown
        order = np.argsort(np.where(free, -worth, np.inf), axis=2, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(worth.shape[2])[None, None], axis=2)
        least, most = (size[:, None, None] - shown.sum(axis=2, keepdims=True) for size in nodes.sizes)
        chosen: Bools = (free & (((worth > 0) & (rank < most)) | (rank < least))) | shown
        return chosen
