"""What to ask for: prices with the largest expected margin, sum_i P(i | x) (x_i - c_i), for alternatives on offer.

Continuous prices follow the gradient of the choice probabilities to a local maximum. Prices from a ladder are proven to
be the best where the best offer can be. Stock that must last limits the expected demand. See ``price_search.py``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Bools, Floats
from pcmcnet.checks import require_number
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
from pcmcnet.reports.formats import ToDictMixin, data_frame
from pcmcnet.reports.tables import Cells, TableMixin, number, percent

log = logging.getLogger("pcmcnet")


@dataclass(frozen=True, kw_only=True, eq=False)
class Prices(ToDictMixin, TableMixin):
    """Prices of the alternatives on offer.

    Attributes
    ----------
    labels, before, after
        The alternatives, their prices in the catalogue and the prices to ask; None for one that is not to be offered.
    probabilities_before, probabilities
        Of being chosen, at the prices before and after.
    value_before, value
        Expected margin of one choice.
    bound, exact
        On a ladder: what no price list can exceed, and whether these prices are proven to be the best. None and False
        for continuous prices, which are a local maximum.
    at_bound
        Alternatives whose price is as low or as high as it may be.
    seconds
        Time of the search.
    customers, inventory, shadow_prices
        Where stock must last: for how many customers, how much there is of each alternative (None where it is not
        limited), and what one more of it would earn.
    draws
        Of a mixed logit on a ladder, how many draws of tastes the prices are the best for; None otherwise.
    """

    labels: tuple[str, ...]
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

    def to_frame(self) -> Any:
        """Return a pandas data frame with a row for each alternative."""
        names = ["before", "after", "probabilities_before", "probabilities"]
        names += [] if self.inventory is None else ["inventory", "demand", "shadow_prices"]
        columns = {"alternative": self.labels} | {name: getattr(self, name) for name in names}
        return data_frame(pa.table(columns), instead="to_dict()")

    @property
    def demand(self) -> tuple[float, ...] | None:
        """Of each alternative, how many of the customers are expected to choose it."""
        return None if self.customers is None else tuple(self.customers * p for p in self.probabilities)

    @property
    def verdict(self) -> str:
        """Say in words what is known of the prices."""
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
            for row, asked, there, worth in zip(rows, self.demand, self.inventory, self.shadow_prices, strict=True):
                row += [number(asked), "" if there is None else number(there), number(worth)]
        rows.append(["expected margin", number(self.value_before), number(self.value)])
        rows += [["at a bound", ", ".join(self.at_bound)]] if self.at_bound else []
        head = ["alternative", "price", "new price", "probability", "then"]
        head += [] if self.inventory is None else ["demand", "inventory", "shadow price"]
        return [head, *rows, ["verdict", self.verdict]]


# -- Optimise prices ---------------------------------------------------------------------------------------------------


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
    time_limit: float = 60.0,
    seed: int = 0,
) -> Prices:
    """Find the prices with the largest expected margin.

    Parameters
    ----------
    model
        A fitted model of any kind with ``price`` among its features.
    catalogue
        The alternatives on offer, one row each, with their present prices.
    price
        The feature to be set.
    cost
        What an alternative costs if it is chosen: a column of the catalogue, a list, or a mapping of labels. 0 if not
        given.
    outside
        Label of the alternative that is always there and has no price of ours, such as to buy nothing.
    individual
        The individual's columns, by name.
    bounds
        Lowest and highest price, for all or by label; half and twice the present price if not given.
    ladder
        The prices that may be asked, in place of ``bounds``: the search is then exact where that of offers is.
    constraints
        With a ladder: alternatives may be left out, and the offer must fulfil these. Without them all are offered.
    inventory, customers
        How much of each alternative is in stock, as for ``cost``, and for how many customers. Their expected demand is
        kept within it. What is not given, or empty, is not limited.
    starts
        Climbs, from the best of 64 random price lists and the present one.
    time_limit
        Seconds for the search on a ladder.
    seed
        Where the starts come from.
    """
    require_number("starts", starts, whole=True, low=1)
    require_number("time_limit", time_limit, low=0)
    require_number("seed", seed, whole=True, low=0, high=2**63 - 1)
    if ladder is None and constraints is not None:
        raise ConfigError("constraints on the offer need prices from a ladder: give ladder=[...].")
    if ladder is not None and bounds is not None:
        raise ConfigError("a ladder has its own lowest and highest price: leave out bounds, or the ladder.")
    if inventory is not None and (ladder is not None or customers is None):
        raise ConfigError("inventory needs customers=<how many>, and prices between bounds: leave out the ladder.")
    started, rng = time.monotonic(), np.random.default_rng(seed)
    offered = Catalogue.read(model.schema, catalogue, individual, outside)
    margin = _margin(model, offered, price, cost)
    before = offered.numbers(price, price)
    _warn_of_rising(margin, offered, before)
    if ladder is not None:
        steps = np.unique(np.asarray(ladder, np.float64))
        after, shown, search = prices_on_ladder(margin, offered, steps, constraints, rng, started + time_limit)
        found = _result(offered, margin, before, after, shown, search, (), time.monotonic() - started)
        return replace(found, draws=fixed_draws(model))
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
    found = _result(offered, margin, before, after, np.ones_like(edge), None, held, time.monotonic() - started)
    if stock is None:
        return found
    keep = np.flatnonzero(margin.moves)
    return replace(
        found,
        customers=customers,
        inventory=tuple(None if np.isinf(s) else float(s) for s in stock[keep]),
        shadow_prices=tuple(shadow[keep].tolist()),
    )


def _stock(offered: Catalogue, inventory: Revenue) -> Floats:  # (n,)
    """Return the inventory of each alternative, inf where it is not limited."""
    stock = offered.numbers(inventory, "inventory", missing=np.inf)
    if offered.outside is not None:
        stock[offered.outside] = np.inf
    if (stock <= 0).any():
        bad = offered.labels[int(np.argmax(stock <= 0))]
        raise InputError(f"inventory of {bad!r}: expected more than 0; leave what is not there out of the catalogue.")
    return stock


def _margin(model: ChoiceModel, offered: Catalogue, price: str, cost: Revenue | None) -> Margin:
    """Return the expected margin as a function of the prices; the outside option has none of ours."""
    if price not in model.schema.features:
        hint = did_you_mean(price, model.schema.features)
        raise InputError(f"price: {price!r} is no feature of the model, so no choice depends on it." + hint)
    costs = np.zeros(len(offered.labels)) if cost is None else offered.numbers(cost, "cost")
    return Margin(model, offered.sets, price, costs, np.arange(len(costs)) != offered.outside)


def _warn_of_rising(margin: Margin, offered: Catalogue, prices: Floats) -> None:
    """Log which alternatives the model has chosen more often the dearer they are."""
    rising = [offered.labels[k] for k in np.flatnonzero(margin.moves & (margin.own_responses(prices) > 0))]
    if rising:
        log.warning(
            "the probability of %s rises with its price under this model, so the best prices mean little: bound the "
            "coefficient, or fit a network with monotone={%r: 'decreasing'}",
            listed(rising),
            margin.column,
        )


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
            f"bounds of {offered.labels[bad]!r}: expected a finite lowest price not above the highest, {got}."
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
    """Put prices into the words of the catalogue."""
    p_before, _ = margin.at(before[None])
    if shown.all():
        p_after = margin.at(after[None])[0][0]
    else:
        part = compose_sets(margin.sets, [np.flatnonzero(shown)], [0])
        p_after = np.zeros(len(after))
        p_after[shown] = np.exp(predicted_log_p(margin.model, with_values(part, margin.column, after[shown])))
    keep = np.flatnonzero(margin.moves)
    value = float(margin.expected(after[None])[0]) if search is None else search.value
    return Prices(
        labels=tuple(offered.labels[k] for k in keep),
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
