"""The best offer for a nested logit with one level of nests.

With a_i = exp(v_i / l_m), A_m = sum_{i in m} a_i and W_m = A_m^{l_m}, an offer earns sum_m W_m R_m / sum_m W_m, where
R_m = sum_{i in m} a_i r_i / A_m. It reaches z if and only if sum_m W_m (R_m - z) reaches 0, a sum over nests of which
each can be made as large as possible by itself. Where all l_m <= 1 and the outside option is alone in its nest, the
alternatives to show of a nest are those of the largest revenues, so few have to be tried (Davis, Gallego & Topaloglu,
2014), and each offer found gives the next z. With constraints that is a bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.decisions.constraints import Rows
from pcmcnet.decisions.offer_value import earned
from pcmcnet.decisions.search import Search

_ROUNDS = 100  # of Dinkelbach's method, which needs a handful


@dataclass(frozen=True, eq=False)
class NestedLogits:
    """Nested logits: utilities (P, n), nests (n,) and their log-sums (M,), revenue (n,)."""

    utilities: Floats
    nests: Ints
    logsums: Floats
    revenue: Floats

    def probabilities(self, offers: Bools, who: Ints) -> Floats:
        """See :class:`~pcmcnet.decisions.offer_value.OfferValue`."""
        a = self.attraction[who] * offers  # (B, n)
        total = a @ (self.nests[:, None] == np.arange(len(self.logsums)))  # (B, M) A
        weight = np.where(total > 0, total, 0.0) ** self.logsums  # W
        share = weight / weight.sum(axis=1, keepdims=True)
        found: Floats = a / np.where(total > 0, total, 1.0)[:, self.nests] * share[:, self.nests]
        return found

    @property
    def attraction(self) -> Floats:
        """(P, n) a, with a largest utility of 0."""
        below = self.utilities - self.utilities.max(axis=1, keepdims=True)
        attraction: Floats = np.exp(below / self.logsums[self.nests])
        return attraction

    def only(self, individual: int) -> NestedLogits:
        """See :class:`~pcmcnet.decisions.offer_value.OfferValue`."""
        return replace(self, utilities=self.utilities[[individual]])


def best_nested_offer(value: NestedLogits, rows: Rows, start: Bools) -> Search:
    """Find the best offer, or a bound of the one given, where theory has them."""
    best = float(earned(value, start[None])[0])
    highest = Search(start, best, max(best, float(value.revenue[~rows.never].max())), 0)
    fixed = np.flatnonzero(rows.always)
    alone = len(fixed) > 0 and (value.nests == value.nests[fixed[0]]).sum() == 1
    if not alone or (value.logsums > 1).any():
        return highest
    free = Rows.none(np.arange(len(start)) == fixed[0])._replace(never=rows.never)
    found = _by_revenue(value, free, start)
    if rows.allow(found.offer[None])[0]:
        return found
    return Search(start, best, max(found.value, best), found.nodes)


def _by_revenue(value: NestedLogits, rows: Rows, start: Bools) -> Search:
    """Find the best offer without constraints but for what is always or never shown."""
    z, offer = float(earned(value, start[None])[0]), start
    for rounds in range(1, _ROUNDS + 1):
        found = rows.always.copy()
        for nest in np.unique(value.nests[~(rows.always | rows.never)]):
            members = np.flatnonzero((value.nests == nest) & ~rows.never)
            members = members[np.argsort(-value.revenue[members], kind="stable")]
            a = value.attraction[0, members]
            gain = np.cumsum(a) ** (value.logsums[nest] - 1) * np.cumsum(a * (value.revenue[members] - z))
            if gain.max() > 0:
                found[members[: int(gain.argmax()) + 1]] = True
        reached = float(earned(value, found[None])[0])
        if reached <= z * (1 + 1e-12) and rounds > 1:
            break
        z, offer = reached, found
    return Search(offer, z, z, rounds)
