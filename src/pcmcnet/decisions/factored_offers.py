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

**Local search.** A search evaluates all additions and removals, and makes the best ones together if that earns more
than the best one alone. If none helps, it goes through the alternatives shown, and replaces each by the best other one
if that helps. It ends when neither helps: no offer that differs by one alternative is then better, and each of these
was evaluated exactly.

**Starts.** In the context of a given offer, the alternatives have the attractions a_i = sum_k v_ik c_k / d_i, and the
offer is chosen as by a logit. The best offer of this logit is the next context. For rank 1, attractions do not depend
on the context, and the first step finds the best offer. For mixtures, the first-order gains of all logits are added.

**Bound.** Let o be an alternative that is always shown, such as the outside option, and x_i = p_i / p_o. Balance gives

    x_i = (u_o V / u_i V) (v_i C / v_o C),    V = sum_{j in A} v_j,    C = sum_{j in A} x_j u_j

    1. A ratio of sums is at most the largest ratio of their terms, so the first quotient is at most max_k u_ok / u_ik,
       and the second one at most max_k v_ik / v_ok. Minima give lower bounds. This takes linear time.
    2. V contains v_o and v_i, and at most as many other v_j as may be shown. The largest quotient over all such V is a
       fractional knapsack, solved by Dinkelbach's method: only the sign of (u_o - lambda u_i) v_j counts.
    3. The bounds of x_j limit C in the same way, which gives new bounds of the second quotient, and so of x_i.

So l_i <= x_i <= h_i for all feasible offers with i. If A earns more than z, then sum_{i in A} (r_i - z) x_i > 0, and so
F(z) = max_A sum_{i in A} max((r_i - z) h_i, (r_i - z) l_i) > 0. F falls with z; its root, found by Dinkelbach's method,
is at least the revenue of any feasible offer. Where a maximum over A would be an integer program, A is relaxed, and
multipliers of the linear program bound its maximum, however accurate they are. For rank 1, h = l, and the bound is the
best revenue unless A is relaxed. For a mixture, the bounds are summed with their weights.

Shapes: n alternatives, of which k are shown, C chains, r factors.
"""

from __future__ import annotations

import math
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
_PAIRS_OF_BOUND = 2**28  # of alternatives, in all chains; larger catalogues have the bound of step 1
_RATIOS_PER_CHUNK = 2**16  # of a chunk of quotients: 512 KiB
_RATIO_STEPS = 3  # of Dinkelbach's method for a quotient; a fourth one changes the bound by less than .001
_BOUND_ROUNDS = 2  # repetitions of step 3
_SAMPLE = 1_000  # alternatives from which the multiplier of a limit on the number shown is estimated
_LEAST_GAIN = 1e-10  # smaller relative gains may be rounding
_LEAST_LOG = -300.0  # smaller logarithms of scaled factors are raised to this, so that nothing underflows
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
        log_u, self.v = log_u + largest, np.exp(np.maximum(log_v - largest, _LEAST_LOG))
        pace = log_u.max(axis=2, keepdims=True)
        log_stay = (pace.min(axis=1, keepdims=True) - pace)[:, :, 0]
        self.u, self.stay = np.exp(log_u - pace), np.exp(np.maximum(log_stay, _LEAST_LOG))

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
        V = self.v[:, shown].sum(axis=1, keepdims=True)  # (C, 1, r)
        sums = self._sums(shown, V)
        a = np.stack([self.v[c] @ _solve(sums[c], V[c].T)[:, 0] for c in range(len(V))])
        a *= self.stay / (self.u @ np.swapaxes(V, 1, 2))[:, :, 0]
        a /= a[:, shown].sum(axis=1, keepdims=True)
        return a, a[:, shown] @ self.revenue[shown]

    def _enter(self, shown: Ints, entering: Ints) -> Floats:  # -> (C, m)
        """Return the revenue in each chain if one more alternative enters."""
        V = self.v[:, shown].sum(axis=1, keepdims=True) + self.v[:, entering]  # (C, m, r)
        own = 1 / (self.u[:, entering] * V).sum(axis=2, keepdims=True)  # (C, m, 1) 1 / d of the entering one
        return self._earned(self._sums(shown, V) + np.swapaxes(self._terms(entering) * own, 1, 2), V)

    def _leave(self, shown: Ints, leaving: Ints) -> Floats:  # -> (C, m)
        """Return the revenue in each chain if one of the alternatives at the positions ``leaving`` leaves."""
        remains = np.arange(len(shown)) != leaving[:, None]  # (m, k)
        V = remains.astype(np.float64) @ self.v[:, shown]  # (C, m, r) summed anew, not subtracted
        return self._earned(self._sums(shown, V, remains), V)

    def _sums(self, shown: Ints, V: Floats, remains: Bools | None = None) -> Floats:  # (k,), (C, m, r) -> (C, q, m)
        """Return M, m and g for m offers with sums V, over the alternatives shown or, if given, those that remain."""
        C, m, r = V.shape
        sums, each = np.zeros((C, r * r + 2 * r, m)), max(_NUMBERS_PER_CHUNK // (C * (r * r + 2 * r)), 1)
        for first in range(0, len(shown), each):
            chunk = slice(first, first + each)
            stays = 1 / (self.u[:, shown[chunk]] @ np.swapaxes(V, 1, 2))  # (C, k, m) 1 / d
            if remains is not None:
                stays *= remains[:, chunk].T
            sums += np.swapaxes(self._terms(shown[chunk]), 1, 2) @ stays
        return sums

    def _terms(self, members: Ints) -> Floats:  # (k,) -> (C, k, q), q = r^2 + 2 r
        """Return the terms of M, m and g, except for the division by d."""
        u, v = self.u[:, members], self.v[:, members]
        paid = v * self.stay[:, members, None]
        products = (u[..., :, None] * v[..., None, :]).reshape(*u.shape[:2], u.shape[2] ** 2)
        return np.concatenate([products, paid, self.revenue[members, None] * paid], axis=2)

    def _earned(self, sums: Floats, V: Floats) -> Floats:  # (C, q, m), (C, m, r) -> (C, m)
        """Return the revenue, given the sums M, m and g of each offer."""
        r = V.shape[2]
        if r == 1:  # c cancels
            return np.divide(sums[:, -1], sums[:, -2])
        earned = np.empty(V.shape[:2])
        for c in range(len(V)):
            factors, m, g = _solve(sums[c], V[c].T), sums[c, r * r : -r], sums[c, -r:]
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
    """Make additions and removals in place, and return the revenue, or None if no such move raises it."""
    # 1. Evaluate every addition and every removal.
    shown, entering, leaving = np.flatnonzero(offer), rows.entering(offer), rows.leaving(offer)
    leaving = leaving if len(shown) > 1 else leaving[:0]  # an offer is not empty
    of_entering = revenue.with_each(shown, entering)
    of_leaving = revenue.without_each(shown)[np.isin(shown, leaving)] if len(leaving) else np.empty(0)
    moves, values = np.append(entering, leaving), np.append(of_entering, of_leaving)
    helpful = np.flatnonzero(values > _improved(value))
    if not len(helpful):
        return None
    # 2. Make the best ones together, or half of them, and so on, if that earns more than the best one alone.
    helpful = helpful[np.argsort(-values[helpful], kind="stable")]
    count, best = len(helpful), float(values[helpful[0]])
    while count > 1:
        together = offer.copy()
        together[moves[helpful[:count]]] ^= True
        if rows.allow(together[None])[0] and together.any():
            earned = revenue.of(np.flatnonzero(together))
            if earned > best:
                offer[:] = together
                return earned
        count //= 2
    offer[moves[helpful[0]]] ^= True
    return best


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


def relative_attractions(
    revenue: MoveRevenue, rows: ConstraintRows, stop: Callable[[], bool] = lambda: False
) -> tuple[Floats, Floats] | None:
    """Return the least and the largest attraction (C, n) of each alternative relative to one that is always shown.

    None is returned if no alternative is always shown. If ``stop`` returns True, the bounds are those known so far.
    """
    if not rows.always.any():
        return None
    o, allowed = int(rows.always.argmax()), np.flatnonzero(~rows.never)
    low, high = np.ones((2, *revenue.stay.shape))
    is_large = revenue.stay.size * len(rows.always) > _PAIRS_OF_BOUND
    with np.errstate(all="ignore"):  # rates that are too far apart have infinite bounds
        for c, (u, v, stay) in enumerate(zip(revenue.u, revenue.v, revenue.stay, strict=True)):
            scale = stay[allowed] / stay[o]  # u is scaled by row
            limits = _limits(u[allowed], v[allowed], rows, stop, is_large=is_large)
            low[c, allowed], high[c, allowed] = limits[0] * scale, limits[1] * scale
    return low, high


def _limits(
    u: Floats, v: Floats, rows: ConstraintRows, stop: Callable[[], bool], *, is_large: bool
) -> tuple[Floats, Floats]:  # (n, r), (n, r) -> (n,), (n,)
    """Return bounds of x_i for the alternatives that may be shown, in one chain."""
    fixed, most = rows.always[~rows.never], rows.sizes()[1]
    o = int(fixed.argmax())
    u_o, v_o = np.broadcast_to(u[o], u.shape), np.broadcast_to(v[o], v.shape)
    # 1. Ratios of factors.
    exits, entries = u_o / np.maximum(u, np.finfo(np.float64).tiny), v / v_o
    low, high = np.stack([exits.min(axis=1), entries.min(axis=1)]), np.stack([exits.max(axis=1), entries.max(axis=1)])
    if is_large:
        return low.prod(axis=0), high.prod(axis=0)
    # 2. The quotient of exits, over sums V of the alternatives shown.
    others = np.where(fixed[:, None], 0.0, v)  # beside those that are always shown
    base, number = v[fixed].sum(axis=0) + others, most - int(fixed.sum())
    _tighten(low[0], high[0], u_o, u, base, v[~fixed], number, stop)
    # 3. The quotient of entries, over sums C of the alternatives shown.
    for _ in range(_BOUND_ROUNDS):
        least, largest = low.prod(axis=0)[:, None], high.prod(axis=0)[:, None]
        sure = np.where(fixed[:, None], least, 0.0)  # least x of an alternative in every offer
        base = (sure * u).sum(axis=0) + np.where(fixed[:, None], 0.0, least) * u
        points = np.delete((largest - sure) * u, o, axis=0)
        _tighten(low[1], high[1], v, v_o, base, points, most - 1, stop)
    return low.prod(axis=0), high.prod(axis=0)


def _tighten(
    low: Floats,
    high: Floats,
    a: Floats,
    b: Floats,
    base: Floats,
    points: Floats,
    most: int,
    stop: Callable[[], bool],
) -> None:  # (n,), (n,), (n, r), (n, r), (n, r), (m, r)
    """Tighten bounds of the ratios (a_i t) / (b_i t) in place, for all t in the knapsack of :func:`_largest_ratios`."""
    each = max(_RATIOS_PER_CHUNK // max(len(points), 1), 1)
    for first in range(0, len(low), each):
        if stop():
            return
        i = slice(first, first + each)
        high[i] = np.minimum(high[i], _largest_ratios(a[i], b[i], base[i], points, most))
        low[i] = np.maximum(low[i], 1 / _largest_ratios(b[i], a[i], base[i], points, most))


def _largest_ratios(a: Floats, b: Floats, base: Floats, points: Floats, most: int) -> Floats:
    """Bound the ratios (a_i t) / (b_i t) from above, for all t in a knapsack: (n, r), (n, r), (n, r), (m, r) -> (n,).

    These are t = base_i + sum_j x_j points_j with 0 <= x <= 1 and sum x <= most. For any number z, F(z) = max_t
    (a_i - z b_i) t falls by at least b_i base_i per unit of z. So its root, which is the largest ratio, is at most
    z + max(F(z), 0) / (b_i base_i). For any price >= 0 of a point, F is at most the price times ``most``, plus the
    gains that exceed the price.
    """
    least = (b * base).sum(axis=1)
    z = (a * base).sum(axis=1) / least  # the ratio for x = 0
    bound, price = np.full(len(a), np.inf), np.zeros(len(a))
    sample = points[:: max(len(points) // _SAMPLE, 1)]
    rank = len(sample) - math.ceil(most * len(sample) / max(len(points), 1))  # of the price among sampled gains
    for _ in range(_RATIO_STEPS):
        w = a - z[:, None] * b
        if rank > 0:
            price = np.maximum(np.partition(w @ sample.T, rank - 1, axis=1)[:, rank - 1], 0.0)
        gains = w @ points.T - price[:, None]
        chosen = gains > 0
        F = (w * base).sum(axis=1) + np.maximum(gains, 0.0, out=gains).sum(axis=1) + most * price
        F = np.maximum(F, 0.0)
        bound = np.fmin(bound, z + F / least)  # NaN if rates are too far apart, which bounds nothing
        z += F / (least + ((chosen.astype(np.float64) @ points) * b).sum(axis=1))
    return bound


def attraction_bound(
    revenue: MoveRevenue, rows: ConstraintRows, offer: Bools, stop: Callable[[], bool] = lambda: False
) -> float:
    """Return an upper bound on the mean revenue of any feasible offer over the chains, given one of them."""
    highest = float(revenue.revenue[~rows.never].max())
    attractions = relative_attractions(revenue, rows, stop)
    if attractions is None:
        return highest
    bounds = [
        min(_largest_revenue(low, high, revenue.revenue, rows, z), highest)
        for low, high, z in zip(*attractions, revenue.in_each_chain(np.flatnonzero(offer)).tolist(), strict=True)
    ]
    return float(revenue.weights @ bounds)


def _largest_revenue(low: Floats, high: Floats, r: Floats, rows: ConstraintRows, z: float) -> float:
    """Return an upper bound on the root of F, by Dinkelbach's method from a revenue z that an offer earns."""
    least, gain = float(low[rows.always].sum()), np.inf
    if not np.isfinite([low, high]).all():
        return np.inf
    for _ in range(_DINKELBACH_STEPS):
        a = np.where(r > z, high, low)
        solution = rows.relaxed_best((r - z) * a)
        if solution is None:
            return np.inf
        shares, gain = solution
        step = float(((r - z) * a) @ shares) / float(a @ shares)
        if step <= CLOSED_GAP * abs(z):
            break
        z += step
        gain = np.inf
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
    value: FactoredChains,
    rows: ConstraintRows,
    start: Bools,
    *,
    stop: Callable[[], bool] = lambda: False,
    is_local_optimum: bool = False,
) -> SearchResult:
    """Improve an offer to a single individual by local search, and bound the revenue of any offer.

    A small catalogue is searched by branch and bound, which may prove that the offer is the best one. If the offer is
    known to be a local optimum, it is not searched again.
    """
    # 1. Local search, and the bound from attractions.
    revenue = MoveRevenue(value)
    if is_local_optimum:
        end = SearchResult(start, revenue.of(np.flatnonzero(start)), np.inf, 0, is_local_optimum=True)
    else:
        end = improve_offer(revenue, rows, start, stop)
    bound = attraction_bound(revenue, rows, end.offer, stop)
    nodes = int(bound < float(value.revenue[~rows.never].max()))
    # 2. Branch and bound in a small catalogue, and local search from a better offer.
    if len(start) <= _LARGEST_PROVEN:
        proof = best_chain_offer(value.with_all_pairs(), rows, end.offer, stop=stop)
        bound, nodes = min(bound, proof.bound), nodes + proof.nodes
        if proof.value > _improved(end.value):
            end = improve_offer(revenue, rows, proof.offer, stop)
    # 3. The value, with the accuracy of a prediction.
    best = float(expected_revenue(value, end.offer[None])[0])
    return SearchResult(end.offer, best, max(bound, best), nodes, end.is_local_optimum)
