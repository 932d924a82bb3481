"""Find the prices x with the largest expected margin, sum_i P(i | x) (x_i - c_i), for the alternatives on offer.

Continuous prices follow the gradient of the margin to a local maximum. Prices can also be restricted to a ladder, that
is, a list of allowed prices. Ladder prices can be proven optimal for all models whose best offers can be proven
optimal. An inventory limits the expected demand. The algorithms are in ``price_search.py``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcmcnet.arrays import Bools, Floats
from pcmcnet.checks import require_number, suggests_arguments
from pcmcnet.data.control_function import residual_name
from pcmcnet.decisions.branch_and_bound import PROVEN_GAP, SearchResult
from pcmcnet.decisions.catalogue import Catalogue
from pcmcnet.decisions.constraints import Constraints
from pcmcnet.decisions.optimise_offer import Revenue, fixed_draws
from pcmcnet.decisions.price_search import Margin, best_prices, prices_in_stock, prices_on_ladder
from pcmcnet.errors import ConfigError, InputError, did_you_mean
from pcmcnet.evaluation.predictions import predicted_log_p
from pcmcnet.insight.queries import compose_sets, with_values
from pcmcnet.models import ChoiceModel
from pcmcnet.models.logit.parameter_bounds import listed
from pcmcnet.reports.formats import ToDictMixin
from pcmcnet.reports.tables import Cells, TableMixin, number, percent

log = logging.getLogger("pcmcnet")


@dataclass(frozen=True, kw_only=True, eq=False)
class Prices(ToDictMixin, TableMixin):
    """Result of :func:`optimise_prices`. ``print(result)`` shows a table.

    Attributes
    ----------
    labels
        Labels of the alternatives.
    costs
        Cost of each alternative if it is chosen.
    before, after
        Current prices in the catalogue, and new prices, which are None for alternatives that should not be offered.
    probabilities_before, probabilities
        Choice probabilities at the current and at the new prices.
    value_before, value
        Expected margin per choice at the current and at the new prices.
    bound, exact
        For a ladder, an upper bound on the margin of any price list, and whether the prices are proven to be the best.
        For continuous prices, which are a local maximum, ``bound`` is None and ``exact`` is False.
    at_bound
        Alternatives whose price is at its lower or upper bound.
    seconds
        Run time of the search, in seconds.
    customers
        Number of customers that the inventory must serve, or None if there is no inventory.
    inventory
        Stock of each alternative (None for unlimited stock), or None if there is no inventory.
    shadow_prices
        Margin that one more unit of stock of each alternative would earn, or None if there is no inventory.
    draws
        For a mixed logit on a ladder, the number of fixed taste draws over which prices are optimised (otherwise None).
    notes
        Sentences on effects of the model against their expected sign. If the probability of an alternative rises with
        its price, optimal prices are not meaningful.
    """

    labels: tuple[str, ...]
    costs: tuple[float, ...]
    before: tuple[float, ...]
    after: tuple[float | None, ...]
    probabilities_before: tuple[float, ...]
    probabilities: tuple[float, ...]
    value_before: float
    value: float
    bound: float | None
    exact: bool
    at_bound: tuple[str, ...]
    seconds: float
    customers: float | None = None
    inventory: tuple[float | None, ...] | None = None
    shadow_prices: tuple[float, ...] | None = None
    draws: int | None = None
    notes: tuple[str, ...] = ()

    def _frame_rows(self) -> Iterator[dict[str, Any]]:
        for k, label in enumerate(self.labels):
            row: dict[str, Any] = {"alternative": label}
            sides = (
                ("_before", self.before[k], self.probabilities_before[k]),
                ("", self.after[k], self.probabilities[k]),
            )
            for side, price, p in sides:
                contribution = 0.0 if price is None else p * (price - self.costs[k])
                row |= {f"price{side}": price, f"probability{side}": p, f"contribution{side}": contribution}
            if self.demand is not None and self.inventory is not None and self.shadow_prices is not None:
                row |= {"demand": self.demand[k], "inventory": self.inventory[k]}
                row |= {"shadow_price": self.shadow_prices[k]}
            yield row

    @property
    def demand(self) -> tuple[float, ...] | None:
        """Expected number of customers who choose each alternative, or None if there is no inventory."""
        return None if self.customers is None else tuple(self.customers * p for p in self.probabilities)

    @property
    def verdict(self) -> str:
        """Statement of whether the prices are proven to be the best."""
        if self.exact:
            draws = "" if self.draws is None else f" for {self.draws:,} fixed draws"
            return f"proven to be the best prices of the ladder{draws}"
        if self.bound is not None:
            return f"heuristic: no price list earns more than {number(self.bound)}"
        return "a local maximum, the best of many starts"

    def _cells(self) -> Cells:
        columns = (self.labels, self.before, self.after, self.probabilities_before, self.probabilities)
        rows = [
            [label, number(b), "not offered" if a is None else number(a), percent(p), percent(q)]
            for label, b, a, p, q in zip(*columns, strict=True)
        ]
        if self.demand is not None and self.inventory is not None and self.shadow_prices is not None:
            for row, demand, stock, shadow in zip(rows, self.demand, self.inventory, self.shadow_prices, strict=True):
                row += [number(demand), "" if stock is None else number(stock), number(shadow)]
        rows.append(["expected margin", number(self.value_before), number(self.value)])
        rows += [["at a bound", ", ".join(self.at_bound)]] if self.at_bound else []
        head = ["alternative", "price", "new price", "probability", "new probability"]
        head += [] if self.inventory is None else ["demand", "inventory", "shadow price"]
        return [head, *rows, ["verdict", self.verdict], *(["note", note] for note in self.notes)]


# -- Optimise prices ---------------------------------------------------------------------------------------------------


@suggests_arguments()
def optimise_prices(
    model: ChoiceModel,
    catalogue: Any,
    price: str = "price",
    *,
    cost: Revenue | None = None,
    outside: Any = None,
    individual: Any = None,
    bounds: tuple[float, float] | Mapping[Any, tuple[float, float]] | None = None,
    ladder: Sequence[float] | None = None,
    constraints: Constraints | None = None,
    inventory: Revenue | None = None,
    customers: float | None = None,
    starts: int = 4,
    exogenous: bool = False,
    time_limit: float = 60.0,
    seed: int = 0,
) -> Prices:
    """Find the prices with the largest expected margin.

    Parameters
    ----------
    model
        A fitted model of any kind with ``price`` among its features.
    catalogue
        Table with one row for each alternative on offer, with the current prices.
    price
        Name of the price feature, whose values are optimised ("price" by default).
    cost
        Cost of an alternative if it is chosen: a column of the catalogue, a list, or a mapping from labels to costs. By
        default, costs are 0.
    outside
        Label of the outside option, which is always available and has no price to set, such as buying nothing. If None
        (the default), there is no outside option.
    individual
        Mapping from individual-level columns to values, or None (the default) if the model has no such columns.
    bounds
        Lowest and highest price, as one pair for all alternatives or a mapping from labels to pairs. By default, prices
        range from half to twice the current price.
    ladder
        List of allowed prices, instead of ``bounds``. Ladder prices can be proven optimal for all models whose best
        offers can be proven optimal.
    constraints
        Constraints on the offer, which require a ladder, because only a search on a ladder can leave alternatives out.
        By default, all alternatives are offered.
    inventory
        Stock of each alternative, in the same forms as ``cost``. Prices are chosen so that the expected demand of all
        customers stays within the stock. A missing value means unlimited stock.
    customers
        Number of customers, required with ``inventory``.
    starts
        Number of gradient searches (4 by default), which start from the best price lists out of the current prices and
        64 random lists. One more search starts from the current prices.
    exogenous
        Whether the prices of the training table did not depend on unobserved demand, as in a survey with designed
        prices or in an experiment. If False (default) and the model has no :func:`pcmcnet.control_function` for the
        price, a note warns that its effect may be biased.
    time_limit
        Time limit for the search on a ladder, in seconds (60 by default).
    seed
        Seed for the starting prices (0 by default).

    Returns
    -------
    Prices
        The new prices, with the probabilities and margins at the current and at the new prices.

    Raises
    ------
    InputError
        If the catalogue or a column is invalid, no offer satisfies the constraints, or no prices within the bounds keep
        demand within the inventory.
    ConfigError
        If the options cannot be combined, or a number is out of range.
    """
    require_number("starts", starts, whole=True, low=1)
    require_number("time_limit", time_limit, low=0)
    require_number("seed", seed, whole=True, low=0, high=2**63 - 1)
    if ladder is None and constraints is not None:
        raise ConfigError("constraints need a price ladder: pass ladder=[...].")
    if ladder is not None and bounds is not None:
        raise ConfigError("bounds and ladder cannot be combined: pass only one of them.")
    if inventory is not None and (ladder is not None or customers is None):
        raise ConfigError("inventory needs customers=<number> and cannot be combined with a ladder.")
    # 1. Read the catalogue, and set up the margin as a function of the prices.
    started, rng = time.monotonic(), np.random.default_rng(seed)
    offered = Catalogue.read(model.schema, catalogue, individual, outside)
    margin = _margin(model, offered, price, cost)
    before = offered.numbers(price, price)
    notes = (*_wrong_signs(margin, offered, before), *_endogeneity(model, price, exogenous))
    # 2. Prices from a ladder: a search over offers.
    if ladder is not None:
        steps = np.unique(np.asarray(ladder, np.float64))
        after, shown, search = prices_on_ladder(margin, offered, steps, constraints, rng, started + time_limit)
        prices = _result(offered, margin, before, after, shown, search, (), time.monotonic() - started)
        return replace(prices, draws=fixed_draws(model), notes=notes)
    # 3. Continuous prices: a gradient search, within the inventory if there is one.
    low, high = _bounds(bounds, offered, before)
    if inventory is None:
        after, stock = best_prices(margin, before, low, high, starts, rng), None
    else:
        stock = _stock(offered, inventory)
        require_number("customers", customers, low=0, open_low=True)
        limit = stock / float(customers or 0)
        after, shadow = prices_in_stock(margin, limit, before, low, high, starts, rng, offered.labels)
    edge = margin.moves & (np.isclose(after, low, rtol=1e-9) | np.isclose(after, high, rtol=1e-9))
    held = tuple(label for label, is_held in zip(offered.labels, edge, strict=True) if is_held)
    prices = _result(offered, margin, before, after, np.ones_like(edge), None, held, time.monotonic() - started)
    prices = replace(prices, notes=notes)
    if stock is None:
        return prices
    keep = np.flatnonzero(margin.moves)
    return replace(
        prices,
        customers=customers,
        inventory=tuple(None if np.isinf(s) else float(s) for s in stock[keep]),
        shadow_prices=tuple(shadow[keep].tolist()),
    )


def _stock(offered: Catalogue, inventory: Revenue) -> Floats:  # (n,)
    """Return the stock (n,) of each alternative, which is inf if the stock is unlimited."""
    stock = offered.numbers(inventory, "inventory", missing=np.inf)
    if offered.outside is not None:
        stock[offered.outside] = np.inf
    if (stock <= 0).any():
        bad = offered.labels[int(np.argmax(stock <= 0))]
        raise InputError(
            f"inventory of {bad!r}: expected a number above 0; drop the alternative from the catalogue if it is out "
            f"of stock."
        )
    return stock


def _margin(model: ChoiceModel, offered: Catalogue, price: str, cost: Revenue | None) -> Margin:
    """Return the expected margin as a function of the prices, with a fixed price of the outside option."""
    if price not in model.schema.features:
        hint = did_you_mean(price, model.schema.features)
        raise InputError(f"price: {price!r} is not a feature of the model, so choices do not depend on it." + hint)
    costs = np.zeros(len(offered.labels)) if cost is None else offered.numbers(cost, "cost")
    return Margin(model, offered.sets, price, costs, np.arange(len(costs)) != offered.outside)


def _wrong_signs(margin: Margin, offered: Catalogue, prices: Floats) -> tuple[str, ...]:
    """Return sentences on effects against their expected sign; log those on the alternatives of the catalogue."""
    caveats = dict(margin.model.sign_caveats)
    rising = [offered.labels[k] for k in np.flatnonzero(margin.moves & (margin.own_responses(prices) > 0))]
    if not rising:
        return tuple(caveats.values())
    # The sentence on the catalogue replaces that on the training table.
    caveats.pop(margin.column, None)
    sentence = (
        f"the probability of {listed(rising)} rises with its price in this model, so optimal prices are not "
        f"meaningful: declare signs={{{margin.column!r}: '-'}} and fit again, or bound the coefficient of a logit"
    )
    log.warning("%s", sentence)
    return (sentence, *caveats.values())


def _endogeneity(model: ChoiceModel, price: str, exogenous: bool) -> tuple[str, ...]:
    """Return a warning about prices that may depend on unobserved demand, and log it."""
    if exogenous or residual_name(price) in model.schema.features:
        return ()
    sentence = (
        f"the model treats {price!r} as exogenous: if sellers set prices by demand that is not in the table, such as "
        f"quality, customers seem less sensitive to prices than they are, and optimal prices are too high. Use "
        f"pn.control_function, or pass exogenous=True for prices of a survey or an experiment"
    )
    log.warning("%s", sentence)
    return (sentence,)


def _bounds(
    bounds: tuple[float, float] | Mapping[Any, tuple[float, float]] | None, offered: Catalogue, before: Floats
) -> tuple[Floats, Floats]:
    """Return the lowest and the highest price of each alternative."""
    low, high = np.sort([before / 2, before * 2], axis=0)
    if isinstance(bounds, Mapping):
        for label, pair in bounds.items():
            at = offered.offer([label]) & (np.arange(len(low)) != offered.outside)
            low[at], high[at] = pair
    elif bounds is not None:
        low, high = np.full_like(before, bounds[0]), np.full_like(before, bounds[1])
    fine = np.isfinite(low) & np.isfinite(high) & (low <= high)
    if not fine.all():
        bad = int(np.argmin(fine))
        got = f"got {low[bad]:g} and {high[bad]:g}"
        raise InputError(
            f"bounds of {offered.labels[bad]!r}: expected finite prices, the lowest not above the highest, {got}."
        )
    return low, high


def _result(
    offered: Catalogue,
    margin: Margin,
    before: Floats,
    after: Floats,
    shown: Bools,
    search: SearchResult | None,
    at_bound: tuple[str, ...],
    seconds: float,
) -> Prices:
    """Return the result, with labels, for the given prices."""
    p_before, _ = margin.at(before[None])
    if shown.all():
        p_after = margin.at(after[None])[0][0]
    else:
        offer = compose_sets(margin.sets, [np.flatnonzero(shown)], [0])
        p_after = np.zeros(len(after))
        p_after[shown] = np.exp(predicted_log_p(margin.model, with_values(offer, margin.column, after[shown])))
    keep = np.flatnonzero(margin.moves)
    value = float(margin.expected(after[None])[0]) if search is None else search.value
    return Prices(
        labels=tuple(offered.labels[k] for k in keep),
        costs=tuple(margin.cost[keep].tolist()),
        before=tuple(before[keep].tolist()),
        after=tuple(float(after[k]) if shown[k] else None for k in keep),
        probabilities_before=tuple(p_before[0, keep].tolist()),
        probabilities=tuple(p_after[keep].tolist()),
        value_before=float(margin.expected(before[None])[0]),
        value=value,
        bound=None if search is None else search.bound,
        exact=search is not None and search.gap < PROVEN_GAP,
        at_bound=at_bound,
        seconds=seconds,
    )
