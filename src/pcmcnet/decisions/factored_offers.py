"""Find good offers for chains with factored rates, in catalogues of thousands of alternatives, and bound their revenue.

    q_ij = sum_k u_ik v_jk        rate of leaving i for j (:mod:`pcmcnet.layers.factored`)

With V = sum_{j in A} v_j and d_i = sum_k u_ik V_k, the chain on an offer A earns

    sum_k g_k c_k / sum_k m_k c_k,    m = sum_i v_i / d_i,    g = sum_i r_i v_i / d_i,    M_kl = sum_i u_ik v_il / d_i

where the sums are over A, and c = M c. The numbers b_k = V_k c_k are the stationary distribution of a chain of the r
factors with the transition matrix P_lk = M_kl V_k / V_l, which is solved by elimination.

**Moves.** M, m and g are sums over A of r^2 + 2r numbers, and each term depends on the rest of the offer only through
d_i. If j enters, V becomes V + v_j, and d_i becomes d_i + sum_k u_ik v_jk. So the revenue of all offers A + j follows
from one product of a matrix (r^2 + 2r, |A|) and a matrix (|A|, n) of 1 / d_i, and from n eliminations of r states:
about n |A| r^2 operations for n offers. Only positive numbers are added, and what leaves an offer is never subtracted,
so each value is as accurate as a solution from scratch.

**Local search.** A search makes the best addition or removal as long as one helps. Then it goes through the
alternatives shown, and replaces each by the best other one if that helps. It ends when neither helps: no offer that
differs by one alternative is then better, and each of these was evaluated exactly.

**Starts.** In the context of a given offer, the alternatives have the attractions a_i = sum_k v_ik c_k / d_i, and the
offer is chosen as by a logit. The best offer of this logit is the next context. For rank 1, attractions do not depend
on the context, and the first step finds the best offer. For mixtures, the first-order gains of all logits are added.

**Bound.** The balance of i and of another alternative o that is always shown gives, for chosen shares p,

    p_i / p_o = (d_o / d_i) sum_j p_j q_ji / sum_j p_j q_jo <= max_j (q_oj / q_ij) max_j (q_ji / q_jo)

because a ratio of sums is at most the largest ratio of their terms; j runs over all alternatives that may be shown.
With minima instead of maxima, this is a lower bound. So no offer makes i more, or less, attractive relative to o than
these two numbers, h_i and l_i. If an offer A earns more than z, then sum_{i in A} (r_i - z) p_i / p_o > 0, and so
F(z) = max_A sum_{i in A} max((r_i - z) h_i, (r_i - z) l_i) > 0. The root of F, found by Dinkelbach's method, is an
upper bound on the revenue of any offer. For rank 1, h = l, and the bound is the best revenue. For a mixture, the bounds
are summed with their weights.

Shapes: n alternatives, of which k are shown, C chains, r factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.decisions.branch_and_bound import CLOSED_GAP, SearchResult, starting_offers
from pcmcnet.decisions.constraints import ConstraintRows
from pcmcnet.decisions.exact_offers import best_chain_offer
from pcmcnet.decisions.offer_value import FactoredChains, expected_revenue
from pcmcnet.layers.stationary.elimination import eliminate, substitute

_NUMBERS_PER_CHUNK = 2**20  # of the matrices of a chunk of moves: 8 MiB
_LARGEST_PROVEN = 100  # alternatives; a proof for more takes too long to be worth its memory
_PAIRS_OF_BOUND = 2**28  # ratios of rates for a bound; larger catalogues use the ratios of factors, which are looser
_LEAST_GAIN = 1e-10  # smaller relative gains may be rounding
_LOGIT_STEPS = 20  # usually fewer than five are needed
_DINKELBACH_STEPS = 100  # usually fewer than ten are needed
_RANDOM_STARTS = 2


# -- Moves -------------------------------------------------------------------------------------------------------------

Combination = Callable[[Floats], Floats]  # revenue in each chain (C, m) -> revenue (m,)


class MoveRevenue:
    """Expected revenue of an offer to the first individual, and of all offers that differ from it by one alternative.

    Parameters
    ----------
    value
        The chains.
    combine
        Function that combines the revenue (C, m) in each chain. Default None: the mean with the weights of the chains.
    """

    def __init__(self, value: FactoredChains, combine: Combination | None = None) -> None:
        self.revenue, self.weights = value.revenue, value.weights[0]
        self.combine = combine or (lambda each: self.weights @ each)
        # Scale each factor, so that its largest v is 1, and each row of u; only stays depend on the latter.
        log_u, log_v = value.log_u[0], value.log_v[0]
        largest = log_v.max(axis=1, keepdims=True)
        log_u, self.v = log_u + largest, np.exp(log_v - largest)
        pace = log_u.max(axis=2, keepdims=True)
        self.u, self.stay = np.exp(log_u - pace), np.exp(pace.min(axis=1, keepdims=True) - pace)[:, :, 0]

    def of(self, shown: Ints) -> float:
        """Return the revenue of an offer."""
        return float(self.combine(self.in_each_chain(shown)[:, None])[0])

    def in_each_chain(self, shown: Ints) -> Floats:  # (k,) -> (C,)
        """Return the revenue of an offer in each chain."""
        return self._enter(shown[:-1], shown[-1:])[:, 0]

    def with_each(self, shown: Ints, entering: Ints) -> Floats:  # (k,), (m,) -> (m,)
        """Return the revenue of the offer with each of the entering alternatives. The offer itself may be empty."""
        C, _, r = self.u.shape
        each = max(_NUMBERS_PER_CHUNK // (C * (len(shown) + r * r + 2 * r)), 1)
        parts = [self._enter(shown, entering[first : first + each]) for first in range(0, len(entering), each)]
        return self.combine(np.concatenate([np.empty((C, 0)), *parts], axis=1))

    def without_each(self, shown: Ints) -> Floats:  # (k,) -> (k,)
        """Return the revenue of the offer without each of its alternatives, of which there are at least two."""
        k, each = len(shown), max(_NUMBERS_PER_CHUNK // len(shown), 1)
        parts = [self._leave(shown, np.arange(first, min(first + each, k))) for first in range(0, k, each)]
        return self.combine(np.concatenate(parts, axis=1))

    def attractions(self, shown: Ints) -> tuple[Floats, Floats]:  # (k,) -> (C, n), (C,)
        """Return the attractions of all alternatives in the context of an offer, and its revenue in each chain.

        In each chain, the attractions of the alternatives shown sum to 1.
        """
        (C, _, r), V = self.u.shape, self.v[:, shown].sum(axis=1)  # (C, r)
        sums, each = np.zeros((C, r * r + 2 * r, 1)), max(_NUMBERS_PER_CHUNK // (C * r * r), 1)
        for chunk in np.split(shown, range(each, len(shown), each)):
            sums += np.swapaxes(self._terms(chunk), 1, 2) @ (1 / (self.u[:, chunk] @ V[:, :, None]))
        a = np.stack([self.v[c] @ _solve(sums[c], V[c, :, None])[:, 0] for c in range(len(V))])
        a *= self.stay / (self.u @ V[:, :, None])[:, :, 0]
        a /= a[:, shown].sum(axis=1, keepdims=True)
        return a, a[:, shown] @ self.revenue[shown]

    def _enter(self, shown: Ints, entering: Ints) -> Floats:  # -> (C, m)
        """Return the revenue in each chain if one more alternative enters."""
        V = self.v[:, shown].sum(axis=1, keepdims=True) + self.v[:, entering]  # (C, m, r)
        stays = 1 / (self.u[:, shown] @ np.swapaxes(V, 1, 2))  # (C, k, m) 1 / d
        own = 1 / (self.u[:, entering] * V).sum(axis=2, keepdims=True)  # (C, m, 1) 1 / d of the entering one
        sums = np.swapaxes(self._terms(shown), 1, 2) @ stays + np.swapaxes(self._terms(entering) * own, 1, 2)
        return self._earned(sums, np.swapaxes(V, 1, 2))

    def _leave(self, shown: Ints, leaving: Ints) -> Floats:  # -> (C, m)
        """Return the revenue in each chain if one of the alternatives at the positions ``leaving`` leaves."""
        stays_shown = np.arange(len(shown)) != leaving[:, None]  # (m, k)
        V = stays_shown.astype(np.float64) @ self.v[:, shown]  # (C, m, r) summed anew, not subtracted
        stays = stays_shown.T / (self.u[:, shown] @ np.swapaxes(V, 1, 2))  # (C, k, m)
        return self._earned(np.swapaxes(self._terms(shown), 1, 2) @ stays, np.swapaxes(V, 1, 2))

    def _terms(self, members: Ints) -> Floats:  # (k,) -> (C, k, q), q = r^2 + 2 r
        """Return the terms of M, m and g, except for the division by d."""
        u, v = self.u[:, members], self.v[:, members]
        paid = v * self.stay[:, members, None]
        products = (u[..., :, None] * v[..., None, :]).reshape(*u.shape[:2], u.shape[2] ** 2)
        return np.concatenate([products, paid, self.revenue[members, None] * paid], axis=2)

    def _earned(self, sums: Floats, V: Floats) -> Floats:  # (C, q, m), (C, r, m) -> (C, m)
        """Return the revenue, given the sums M, m and g of each offer."""
        r, earned = V.shape[1], np.empty((len(V), V.shape[2]))
        if r == 1:  # c cancels
            return np.divide(sums[:, -1], sums[:, -2])
        for c in range(len(V)):
            factors = _solve(sums[c], V[c])
            m, g = sums[c, r * r : -r], sums[c, -r:]
            earned[c] = (g * factors).sum(axis=0) / (m * factors).sum(axis=0)
        return earned


def _solve(sums: Floats, V: Floats) -> Floats:  # (q, m), (r, m) -> (r, m)
    """Return c, up to a constant, from the chain of the factors of each offer."""
    r = len(V)
    moves = np.swapaxes(sums[: r * r].reshape(r, r, -1), 0, 1) * (V[None] / V[:, None])  # P_lk = M_kl V_k / V_l
    moves += np.finfo(np.float64).tiny  # keeps the chain irreducible if two factors hardly ever follow each other
    present = torch.ones(V.shape, dtype=torch.bool)
    chain = torch.from_numpy(moves)
    b: Floats = substitute(chain, eliminate(chain, present), present).numpy()
    return b / V


# -- Local search ------------------------------------------------------------------------------------------------------


def improve_offer(
    revenue: MoveRevenue, rows: ConstraintRows, start: Bools, stop: Callable[[], bool] = lambda: False
) -> SearchResult:
    """Improve a feasible offer until no addition, removal or exchange of one alternative raises revenue."""
    offer, value = start.copy(), revenue.of(np.flatnonzero(start))
    while not stop():
        improved = _toggle(revenue, rows, offer, value)
        if improved is None:
            improved = _exchange_each(revenue, rows, offer, value, stop)
            if improved is None:
                return SearchResult(offer, value, np.inf, 0, not stop())
        value = improved
    return SearchResult(offer, value, np.inf, 0, is_local_optimum=False)


def _toggle(revenue: MoveRevenue, rows: ConstraintRows, offer: Bools, value: float) -> float | None:
    """Make the best addition or removal in place, and return its revenue, or None if no such move raises revenue."""
    shown, entering, leaving = np.flatnonzero(offer), rows.entering(offer), rows.leaving(offer)
    leaving = leaving if len(shown) > 1 else leaving[:0]  # an offer is not empty
    of_entering = revenue.with_each(shown, entering)
    of_leaving = revenue.without_each(shown)[np.isin(shown, leaving)] if len(leaving) else np.empty(0)
    moves, values = np.append(entering, leaving), np.append(of_entering, of_leaving)
    if not len(moves) or not values.max() > _improved(value):
        return None
    best = int(values.argmax())
    offer[moves[best]] = not offer[moves[best]]
    return float(values[best])


def _exchange_each(
    revenue: MoveRevenue, rows: ConstraintRows, offer: Bools, value: float, stop: Callable[[], bool]
) -> float | None:
    """Replace each alternative by the best other one if that helps. Return the revenue, or None without a change."""
    changed = False
    for leaving in np.flatnonzero(offer & ~rows.always).tolist():
        if stop():
            break
        offer[leaving] = False
        entering = rows.entering(offer)
        entering = entering[entering != leaving]
        values = revenue.with_each(np.flatnonzero(offer), entering)
        if len(values) and values.max() > _improved(value):
            offer[entering[values.argmax()]], value, changed = True, float(values.max()), True
        else:
            offer[leaving] = True
    return value if changed else None


def _improved(value: float) -> float:
    """Return the revenue that a move must exceed."""
    return value + _LEAST_GAIN * abs(value) if np.isfinite(value) else value


# -- Starts ------------------------------------------------------------------------------------------------------------


def factored_starts(
    revenue: MoveRevenue, rows: ConstraintRows, now: Bools | None, rng: np.random.Generator
) -> Iterator[Bools]:
    """Yield feasible offers to start from: of logits, the current offer, the smallest one, and random ones."""
    start = logit_start(revenue, rows)
    if start is not None:
        yield start
    if now is not None and rows.allow(now[None])[0]:
        yield now
    smallest = rows.best(-np.ones(len(rows.always)))
    assert smallest is not None  # because the constraints are possible
    if smallest.any():
        yield smallest
    yield from (offer for offer in starting_offers(rows, revenue.revenue, 1 + _RANDOM_STARTS, rng) if offer.any())


def logit_start(revenue: MoveRevenue, rows: ConstraintRows) -> Bools | None:
    """Return the best of a sequence of offers, each of which is the best one in the context of the one before it.

    None is returned if the first of them is empty.
    """
    context, best, value = ~rows.never, None, -np.inf
    for _ in range(_LOGIT_STEPS):
        a, earned = revenue.attractions(np.flatnonzero(context))
        offer = rows.best(revenue.weights @ ((revenue.revenue - earned[:, None]) * a))
        assert offer is not None  # because the constraints are possible
        if not offer.any() or not (reached := revenue.of(np.flatnonzero(offer))) > _improved(value):
            break
        context, best, value = offer, offer, reached
    return best


# -- Bound -------------------------------------------------------------------------------------------------------------


def relative_attractions(value: FactoredChains, rows: ConstraintRows) -> tuple[Floats, Floats] | None:
    """Return the least and the largest attraction (C, n) of each alternative relative to one that is always shown.

    None is returned if no alternative is always shown.
    """
    if not rows.always.any():
        return None
    o = int(rows.always.argmax())
    log_u, log_v = value.log_u[0], value.log_v[0]
    if value.log_u[0, :, :, 0].size * len(rows.always) > _PAIRS_OF_BOUND:
        by_exit, by_entry = log_u[:, [o]] - log_u, log_v - log_v[:, [o]]  # (C, n, r)
        return np.exp(by_exit.min(axis=2) + by_entry.min(axis=2)), np.exp(by_exit.max(axis=2) + by_entry.max(axis=2))
    both = [_ratios(a, b, o, ~rows.never) for a, b in zip(log_u, log_v, strict=True)]
    low, high = (np.stack(each) for each in zip(*both, strict=True))
    return low, high


def _ratios(log_u: Floats, log_v: Floats, o: int, allowed: Bools) -> tuple[Floats, Floats]:  # -> (n,), (n,)
    """Return the least and the largest product of both ratios of rates, in one chain."""
    # 1. Scale each factor; ratios are of rates that leave the same alternative, or that enter the same one.
    largest = log_v.max(axis=0)
    log_u = log_u + largest
    u, v = np.exp(log_u - log_u.max(axis=1, keepdims=True)), np.exp(log_v - largest)
    low, high = np.full((2, len(u)), np.inf), np.full((2, len(u)), -np.inf)
    others = np.flatnonzero(allowed)
    # 2. The range over j of q_oj / q_ij and of q_ji / q_jo, for chunks of j.
    for first in range(0, len(others), each := max(_NUMBERS_PER_CHUNK // len(u), 1)):
        j = others[first : first + each]
        rates = u @ v[j].T  # (n, m) q_ij
        leaving = rates[o] / rates
        rates = v @ u[j].T  # (n, m) q_ji
        entering = rates / rates[o]
        for row, ratios in enumerate((leaving, entering)):
            low[row] = np.minimum(low[row], ratios.min(axis=1))
            high[row] = np.maximum(high[row], ratios.max(axis=1))
    # 3. The scale of the rows of u.
    scale = np.exp(log_u[o].max() - log_u.max(axis=1))
    return low.prod(axis=0) * scale, high.prod(axis=0) * scale


def attraction_bound(revenue: MoveRevenue, value: FactoredChains, rows: ConstraintRows, offer: Bools) -> float:
    """Return an upper bound on the revenue of any feasible offer, given one of them."""
    highest = float(value.revenue[~rows.never].max())
    attractions = relative_attractions(value, rows)
    if attractions is None:
        return highest
    earned = revenue.in_each_chain(np.flatnonzero(offer))
    bounds = [
        _largest_revenue(low, high, value.revenue, rows, float(z))
        for low, high, z in zip(*attractions, earned, strict=True)
    ]
    return min(float(revenue.weights @ bounds), highest)


def _largest_revenue(low: Floats, high: Floats, r: Floats, rows: ConstraintRows, z: float) -> float:
    """Return an upper bound on the root of F, by Dinkelbach's method from a revenue z that an offer earns."""
    least = float(low[rows.always].sum())
    for _ in range(_DINKELBACH_STEPS):
        a = np.where(r > z, high, low)
        offer = rows.relaxed_best((r - z) * a)
        if offer is None:
            return np.inf
        gain, total = float(((r - z) * a) @ offer), float(a @ offer)
        if gain <= CLOSED_GAP * abs(z) * total:
            break
        z += gain / total
    return z + max(gain, 0.0) / least


# -- Best offer --------------------------------------------------------------------------------------------------------


def search_from_starts(
    revenue: MoveRevenue, rows: ConstraintRows, starts: Iterator[Bools], stop: Callable[[], bool]
) -> SearchResult:
    """Return the best offer of local searches from several starts. Even if stopped, it is as good as the first one."""
    best: SearchResult | None = None
    for start in starts:
        end = improve_offer(revenue, rows, start, stop)
        best = end if best is None or end.value > _improved(best.value) else best
        if stop():
            break
    assert best is not None
    return best


def best_factored_offer(
    value: FactoredChains, rows: ConstraintRows, start: Bools, *, stop: Callable[[], bool] = lambda: False
) -> SearchResult:
    """Improve an offer to a single individual by local search, and bound the revenue of any offer.

    A small catalogue is searched by branch and bound, which may prove that the offer is the best one.
    """
    # 1. Local search, and the bound from attractions.
    revenue = MoveRevenue(value)
    end = improve_offer(revenue, rows, start, stop)
    highest = float(value.revenue[~rows.never].max())
    bound = min(attraction_bound(revenue, value, rows, end.offer), highest)
    nodes = int(bound < highest)
    # 2. Branch and bound in a small catalogue, and local search from a better offer.
    if len(start) <= _LARGEST_PROVEN:
        proof = best_chain_offer(value.with_all_pairs(), rows, end.offer, stop=stop)
        bound, nodes = min(bound, proof.bound), nodes + proof.nodes
        if proof.value > _improved(end.value):
            end = improve_offer(revenue, rows, proof.offer, stop)
    # 3. The value, with the accuracy of a prediction.
    best = float(expected_revenue(value, end.offer[None])[0])
    return SearchResult(end.offer, best, max(bound, best), nodes, end.is_local_optimum)
