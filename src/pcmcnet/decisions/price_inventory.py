"""Prices with the largest expected margin that the stock can serve.

Over m customers the expected demand of an alternative, m P(i | x), is at most its inventory s_i. With multipliers l_i,

    maximise sum_i P(i | x) (x_i - c_i)    subject to P(i | x) <= s_i / m:
    the derivatives of sum_i P(i | x) (x_i - c_i - l_i) vanish,    l_i >= 0,    l_i = 0 unless stock i runs out.

So l_i acts as one more cost of i. It is the shadow price: what one more unit of i in stock would earn. SLSQP searches
from several price lists; then the equations above are solved for the prices and the multipliers of what runs out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.decisions.price_margin import Margin, price_lists
from pcmcnet.errors import InputError

_STEPS = 200  # of SLSQP
_OVER = 1e-6  # of a limit, by which the search may exceed it; the equations are solved to rounding


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
    """Return the best prices found, and the shadow prices.

    Parameters
    ----------
    margin
        The expected margin of price lists.
    limit
        (n,) the largest probability of each alternative, inf where there is no limit.
    before, low, high
        (n,) prices to begin from, and their bounds.
    starts, rng, labels
        Searches, where random price lists come from, and how to name alternatives.
    """
    lists = price_lists(margin, before, low, high, rng)
    over = np.maximum(margin.at(lists)[0] - limit, 0.0).sum(axis=1)
    order = np.lexsort((-margin.expected(lists), over))  # those that the stock can serve first
    ends = [_climb(margin, limit, prices, low, high) for prices in np.vstack([lists[:1], lists[order[:starts]]])]
    found = np.array([_settled(margin, limit, prices, low, high) for prices in ends])  # (starts, 2, n)
    excess = np.max(margin.at(found[:, 0])[0] / limit, axis=1) - 1
    if excess.min() > _OVER:
        raise _too_little(margin, limit, labels, found[excess.argmin(), 0])
    best = np.where(excess <= _OVER, margin.expected(found[:, 0]), -np.inf).argmax()
    return found[best, 0], found[best, 1]


def _climb(margin: Margin, limit: Floats, prices: Floats, low: Floats, high: Floats) -> Floats:
    """Follow the gradients of the margin and of the demand by SLSQP."""
    from scipy.optimize import minimize

    free, kept = np.flatnonzero(margin.moves & (low < high)), np.isfinite(limit)
    scale = 1 / limit[kept]

    def whole(x: Floats) -> Floats:
        return _with(prices, free, x)

    found = minimize(
        lambda x: -margin.expected(whole(x)[None])[0],
        prices[free],
        jac=lambda x: -margin.gradient(whole(x)[None])[0, free],
        bounds=list(zip(low[free], high[free], strict=True)),
        constraints={
            "type": "ineq",
            "fun": lambda x: 1 - scale * margin.at(whole(x)[None])[0][0, kept],
            "jac": lambda x: -scale[:, None] * margin.demand_slopes(whole(x))[np.ix_(kept, free)],
        },
        method="SLSQP",
        options={"maxiter": _STEPS, "ftol": 1e-13},
    )
    return np.clip(whole(found.x), np.where(margin.moves, low, prices), np.where(margin.moves, high, prices))


def _settled(margin: Margin, limit: Floats, prices: Floats, low: Floats, high: Floats) -> Floats:  # -> (2, n)
    """Solve the optimality conditions near prices; returns prices and multipliers."""
    from scipy.optimize import nnls, root

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

    start = np.append(prices[inside], multipliers[scarce])
    found = root(conditions, start, method="hybr", options={"xtol": 1e-14}).x
    there, costs = _with(prices, inside, found[: len(inside)]), _with(multipliers, scarce, found[len(inside) :])
    fits = (there >= low)[inside].all() and (there <= high)[inside].all() and (costs >= 0).all()
    better = np.abs(conditions(found)).max() <= np.abs(conditions(start)).max()
    return np.stack([there, costs] if fits and better else [prices, multipliers])


def _with(values: Floats, at: Ints, new: Floats) -> Floats:
    changed = values.copy()
    changed[at] = new
    return changed


def _too_little(margin: Margin, limit: Floats, labels: Sequence[str], prices: Floats) -> InputError:
    """Say which stock runs out at the prices that come nearest to serving everybody."""
    p = margin.at(prices[None])[0][0]
    worst = int(np.argmax(p / limit))
    return InputError(
        f"inventory: no prices within their bounds were found at which it lasts; at best, {labels[worst]!r} is chosen "
        f"by {p[worst]:.4g} of the customers and there is enough for {limit[worst]:.4g}. Raise its highest price or "
        f"its inventory."
    )
