"""Search for prices by the gradient of the margin, on a price ladder, and within an inventory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Numeric
from pcmcnet.decisions.branch_and_bound import SearchResult, local_search, starting_offers
from pcmcnet.decisions.catalogue import Catalogue
from pcmcnet.decisions.constraints import ConstraintRows, Constraints, constraint_rows
from pcmcnet.decisions.offer_value import expected_revenue
from pcmcnet.decisions.optimise_offer import improve_and_bound, structure_of
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import gives_of, predicted_log_p
from pcmcnet.insight.elasticity import slopes
from pcmcnet.insight.queries import compose_sets, with_values
from pcmcnet.models import ChoiceModel

# -- Price margin ------------------------------------------------------------------------------------------------------
# The expected margin of price lists, sum_i P(i | x) (x_i - c_i), its gradient, and gradient search from many starts.
#
#     d margin / d x_j = P_j + sum_i (x_i - c_i) P_i  d log P_i / d x_j
#
# For a chain the derivatives of the probabilities are those of its stationary distribution; models without derivatives
# use finite differences. L-BFGS-B starts from the best of many random price lists, then Newton steps refine the prices
# that are not at a bound. There may be several local maxima.

_RANDOM_PRICE_LISTS = 64  # evaluated in one call; the best are the starts
_DIFFERENCE_STEP = 1e-3  # relative to prices: truncation (fourth order) and rounding errors are both near 1e-13
_NEWTON_STEPS = 4  # each squares the error


class Margin(NamedTuple):
    """The expected margin as a function of prices."""

    model: ChoiceModel
    sets: ChoiceData  # a single set
    column: str  # the price column
    cost: Floats  # (n,)
    moves: Bools  # (n,) alternatives whose price may change

    def at(self, prices: Floats) -> tuple[Floats, Floats]:  # (B, n) -> (B, n), (B, n)
        """Return the choice probabilities and margins (B, n) at each price list."""
        p = np.exp(predicted_log_p(self.model, self._priced(prices))).reshape(prices.shape)
        return p, np.where(self.moves, prices - self.cost, 0.0)

    def expected(self, prices: Floats) -> Floats:  # (B, n) -> (B,)
        """Return the expected margin (B,) at each price list."""
        total: Floats = np.multiply(*self.at(prices)).sum(axis=1)
        return total

    def gradient(self, prices: Floats) -> Floats:  # (B, n) -> (B, n)
        """Return the derivatives of the expected margins with respect to the prices."""
        B, n = prices.shape
        derivatives = self.model._slopes(self._priced(prices), self.column)
        if derivatives is None and gives_of(self.model) == "probabilities":
            return np.where(self.moves, self._differences(prices), 0.0)
        derivatives = slopes(self.model, self._priced(prices), self.column) if derivatives is None else derivatives
        response = derivatives.reshape(B, n, n)  # d log p_i / d x_j
        p, margins = self.at(prices)
        gradient: Floats = p * self.moves + np.einsum("bi,bij->bj", p * margins, response)
        return np.where(self.moves, gradient, 0.0)

    def demand_slopes(self, prices: Floats) -> Floats:  # (n,) -> (n, n)
        """Return the derivatives of the probabilities (rows) with respect to the prices (columns)."""
        p, _ = self.at(prices[None])
        response = self._responses(prices[None])[0]
        return np.where(self.moves, p[0][:, None] * response, 0.0)

    def _differences(self, prices: Floats) -> Floats:  # (B, n) -> (B, n)
        """Return fourth-order central differences of the margins, with four price lists for each price."""
        B, n = prices.shape
        step = _DIFFERENCE_STEP * np.maximum(np.abs(prices), 1.0)  # (B, n)
        ways = np.array([1.0, -1.0, 2.0, -2.0])[:, None, None, None] * (step[:, :, None] * np.eye(n))  # (4, B, n, n)
        up, down, far_up, far_down = self.expected((prices[:, None] + ways).reshape(-1, n)).reshape(4, B, n)
        gradient: Floats = (8 * (up - down) - (far_up - far_down)) / (12 * step)
        return gradient

    def own_responses(self, prices: Floats) -> Floats:  # (n,) -> (n,)
        """Return the derivative of each alternative's log-probability with respect to its price."""
        return np.diag(self._responses(prices[None])[0])

    def _responses(self, prices: Floats) -> Floats:  # (B, n) -> (B, n, n)
        """Return the derivatives of the log-probabilities (rows) with respect to the prices (columns).

        Unlike elasticities, a search uses the model's own derivatives also for columns with bins.
        """
        priced = self._priced(prices)
        derivatives = self.model._slopes(priced, self.column)
        derivatives = slopes(self.model, priced, self.column) if derivatives is None else derivatives
        return derivatives.reshape(len(prices), prices.shape[1], prices.shape[1])

    def _priced(self, prices: Floats) -> ChoiceData:
        """Return a choice set per price list.

        Prices are float64, because float32 is too coarse for finite differences.
        """
        copies = [np.arange(prices.shape[1])] * len(prices)
        sets = compose_sets(self.sets, copies, np.zeros(len(prices), np.int64))
        return replace(sets, features={**sets.features, self.column: Numeric(prices.ravel())})  # type: ignore[arg-type]


def best_prices(
    margin: Margin, before: Floats, low: Floats, high: Floats, starts: int, rng: np.random.Generator
) -> Floats:
    """Return the best prices found by gradient searches that start from the best of many price lists."""
    from scipy.optimize import minimize

    lists = price_lists(margin, before, low, high, rng)
    first = lists[np.argsort(-margin.expected(lists))[:starts]]
    ends = []
    for prices in np.vstack([lists[:1], first]):
        solution = minimize(
            lambda x: (-margin.expected(x[None])[0], -margin.gradient(x[None])[0]),
            prices,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(np.where(margin.moves, low, before), np.where(margin.moves, high, before), strict=True)),
        )
        ends.append(solution.x)
    best = np.array(ends)[margin.expected(np.array(ends)).argmax()]
    return _polish(margin, best, low, high)


def price_lists(margin: Margin, before: Floats, low: Floats, high: Floats, rng: np.random.Generator) -> Floats:
    """Return starting price lists: the current prices, clipped to the bounds, and random prices."""
    lists = np.vstack([np.clip(before, low, high), rng.uniform(low, high, (_RANDOM_PRICE_LISTS, len(before)))])
    return np.where(margin.moves, lists, before)


def _polish(margin: Margin, prices: Floats, low: Floats, high: Floats) -> Floats:
    """Refine the prices that are not at a bound by Newton steps, as long as the gradient shrinks."""
    free = np.flatnonzero(margin.moves & (prices > low) & (prices < high))
    slope = margin.gradient(prices[None])[0]
    for _ in range(_NEWTON_STEPS if len(free) else 0):
        step = 1e-4 * np.maximum(np.abs(prices[free]), 1e-3)
        ends = np.tile(prices, (2 * len(free), 1))
        ends[np.arange(2 * len(free)), np.tile(free, 2)] += np.concatenate([step, -step])
        ahead, behind = margin.gradient(ends)[:, free].reshape(2, len(free), len(free))
        curvature = (ahead - behind) / (2 * step)[:, None]
        try:
            candidate = prices.copy()
            candidate[free] -= np.linalg.solve((curvature + curvature.T) / 2, slope[free])
        except np.linalg.LinAlgError:
            return prices
        if not ((candidate >= low) & (candidate <= high))[free].all():
            return prices
        new_slope = margin.gradient(candidate[None])[0]
        if np.abs(new_slope[free]).max() >= np.abs(slope[free]).max():
            return prices
        prices, slope = candidate, new_slope
    return prices


# -- Price ladder ------------------------------------------------------------------------------------------------------
# Prices from a ladder: every pair of an alternative and a price is treated as a separate alternative.
#
# An offer has exactly one price of each alternative or, if alternatives can be left out, at most one. So the best
# prices are a best offer, found with a bound as in `optimise_offer.py`.

_LOCAL_SEARCHES = 8


def prices_on_ladder(
    margin: Margin,
    offered: Catalogue,
    ladder: Floats,
    constraints: Constraints | None,
    rng: np.random.Generator,
    deadline: float,
) -> tuple[Floats, Bools, SearchResult]:
    """Find the best ladder prices, and return the prices, a mask of the offered alternatives and the search result."""
    if not len(ladder) or not np.isfinite(ladder).all():
        raise InputError("ladder: expected at least one price, and only finite numbers.")
    # 1. Build the extended catalogue of pairs.
    current = offered.numbers(margin.column, margin.column)
    n = len(current)
    owner = np.concatenate([np.repeat(k, len(ladder) if margin.moves[k] else 1) for k in range(n)])
    prices = np.concatenate([ladder if margin.moves[k] else current[[k]] for k in range(n)])
    sets = with_values(compose_sets(margin.sets, [owner], [0]), margin.column, prices)
    revenue = np.where(margin.moves[owner], prices - margin.cost[owner], 0.0)
    rows = _one_price(offered, owner, constraints)
    rows.require_possible()
    # 2. Find the best offer of pairs.
    value = structure_of(margin.model, sets, revenue)
    offers, values = local_search(
        lambda x, _: expected_revenue(value, x), rows, starting_offers(rows, revenue, _LOCAL_SEARCHES, rng)
    )
    search = improve_and_bound(value, rows, offers[values.argmax()], deadline=deadline)
    # 3. Translate it into prices.
    after, shown = current.copy(), np.zeros(n, np.bool_)
    after[owner[search.offer]], shown[owner[search.offer]] = prices[search.offer], True
    return after, shown, search


def _one_price(offered: Catalogue, owner: Ints, constraints: Constraints | None) -> ConstraintRows:
    """Return constraints on pairs of an alternative and a price, which allow at most one price per alternative."""
    base = constraint_rows(constraints or Constraints(), offered.labels, offered.columns, offered.outside)
    priced = np.arange(len(offered.labels)) != offered.outside
    each = (owner == np.flatnonzero(priced)[:, None]).astype(np.float64)  # (moving alternatives, pairs)
    needed = np.ones(len(each), np.bool_) if constraints is None else base.always[priced]
    labels = np.array(offered.labels, object)[priced]
    names = [*(f"one price of {label}" for label in labels), *(f"a price of {label}" for label in labels[needed])]
    return ConstraintRows(
        np.concatenate([base.matrix[:, owner], each, -each[needed]]),
        np.concatenate([base.upper, np.ones(len(each)), -np.ones(int(needed.sum()))]),
        (*base.names, *names),
        ~priced[owner],
        base.never[owner],
    )


# -- Price inventory ---------------------------------------------------------------------------------------------------
# Prices with the largest expected margin, subject to an inventory.
#
# The expected demand of m customers for an alternative, m P(i | x), is at most its inventory s_i. With multipliers l_i,
#
#     maximise sum_i P(i | x) (x_i - c_i)    subject to P(i | x) <= s_i / m:
#     the derivatives of sum_i P(i | x) (x_i - c_i - l_i) vanish,    l_i >= 0,    l_i = 0 unless stock i runs out.
#
# So l_i acts as an additional cost of i. It is the shadow price: the margin of one more unit of stock of i.
# SLSQP searches from several price lists; then the equations above are solved for the prices and the multipliers of the
# alternatives whose stock runs out.

_SLSQP_STEPS = 200
_MAX_EXCESS = 1e-6  # relative violation of a limit that SLSQP may leave; the equations are then solved to rounding


def prices_in_stock(
    margin: Margin,
    limit: Floats,
    before: Floats,
    low: Floats,
    high: Floats,
    starts: int,
    rng: np.random.Generator,
    labels: Sequence[str],
) -> tuple[Floats, Floats]:
    """Return the best prices and the shadow prices, given the maximum probability (n,) of each alternative."""
    # 1. Start from the price lists with the smallest excess demand, then the largest margin.
    lists = price_lists(margin, before, low, high, rng)
    over = np.maximum(margin.at(lists)[0] - limit, 0.0).sum(axis=1)
    order = np.lexsort((-margin.expected(lists), over))
    # 2. Search from each by SLSQP, then solve the optimality conditions nearby.
    ends = [
        _search_by_slsqp(margin, limit, prices, low, high) for prices in np.vstack([lists[:1], lists[order[:starts]]])
    ]
    settled = np.array([_settled(margin, limit, prices, low, high) for prices in ends])  # (starts, 2, n)
    # 3. Keep the best prices whose demand is within the inventory.
    excess = np.max(margin.at(settled[:, 0])[0] / limit, axis=1) - 1
    if excess.min() > _MAX_EXCESS:
        raise _too_little(margin, limit, labels, settled[excess.argmin(), 0])
    best = np.where(excess <= _MAX_EXCESS, margin.expected(settled[:, 0]), -np.inf).argmax()
    return settled[best, 0], settled[best, 1]


def _search_by_slsqp(margin: Margin, limit: Floats, prices: Floats, low: Floats, high: Floats) -> Floats:
    """Return prices that maximise the margin within the limits on the probabilities, found by SLSQP."""
    from scipy.optimize import minimize

    free, limited = np.flatnonzero(margin.moves & (low < high)), np.isfinite(limit)
    scale = 1 / limit[limited]

    def all_prices(x: Floats) -> Floats:
        return _with(prices, free, x)

    solution = minimize(
        lambda x: -margin.expected(all_prices(x)[None])[0],
        prices[free],
        jac=lambda x: -margin.gradient(all_prices(x)[None])[0, free],
        bounds=list(zip(low[free], high[free], strict=True)),
        constraints={
            "type": "ineq",
            "fun": lambda x: 1 - scale * margin.at(all_prices(x)[None])[0][0, limited],
            "jac": lambda x: -scale[:, None] * margin.demand_slopes(all_prices(x))[np.ix_(limited, free)],
        },
        method="SLSQP",
        options={"maxiter": _SLSQP_STEPS, "ftol": 1e-13},
    )
    return np.clip(all_prices(solution.x), np.where(margin.moves, low, prices), np.where(margin.moves, high, prices))


def _settled(margin: Margin, limit: Floats, prices: Floats, low: Floats, high: Floats) -> Floats:  # -> (2, n)
    """Solve the optimality conditions near the given prices, and return the prices and multipliers (2, n)."""
    from scipy.optimize import nnls, root

    # 1. Estimate the multipliers of the alternatives whose stock runs out.
    p = margin.at(prices[None])[0][0]
    inside = np.flatnonzero(margin.moves & (prices > low) & (prices < high))
    scarce = np.flatnonzero(p > limit * (1 - 1e-4))
    multipliers = np.zeros(len(prices))
    if not len(scarce) or not len(inside):
        return np.stack([prices, multipliers])
    slope = margin.gradient(prices[None])[0, inside]
    multipliers[scarce] = nnls(margin.demand_slopes(prices)[np.ix_(scarce, inside)].T, slope)[0]
    scarce = scarce[multipliers[scarce] > 0]

    def conditions(z: Floats) -> Floats:
        x, costs = _with(prices, inside, z[: len(inside)]), _with(multipliers, scarce, z[len(inside) :])
        at = margin._replace(cost=margin.cost + costs)
        return np.append(at.gradient(x[None])[0, inside], (margin.at(x[None])[0][0] - limit)[scarce])

    # 2. Solve for prices and multipliers; keep the solution only if it is feasible and closer to the conditions.
    start = np.append(prices[inside], multipliers[scarce])
    solution = root(conditions, start, method="hybr", options={"xtol": 1e-14}).x
    solved, costs = _with(prices, inside, solution[: len(inside)]), _with(multipliers, scarce, solution[len(inside) :])
    fits = (solved >= low)[inside].all() and (solved <= high)[inside].all() and (costs >= 0).all()
    better = np.abs(conditions(solution)).max() <= np.abs(conditions(start)).max()
    return np.stack([solved, costs] if fits and better else [prices, multipliers])


def _with(values: Floats, at: Ints, new: Floats) -> Floats:
    """Return a copy of the values with some of them replaced."""
    changed = values.copy()
    changed[at] = new
    return changed


def _too_little(margin: Margin, limit: Floats, labels: Sequence[str], prices: Floats) -> InputError:
    """Return the error for an inventory that is too small at all prices, which names the scarcest alternative."""
    p = margin.at(prices[None])[0][0]
    worst = int(np.argmax(p / limit))
    return InputError(
        f"inventory: no prices within the bounds keep demand within the stock. At best, {labels[worst]!r} has a "
        f"demand share of {p[worst]:.4g}, but its stock is only enough for {limit[worst]:.4g}. Raise the highest price "
        f"or the inventory of this alternative."
    )
