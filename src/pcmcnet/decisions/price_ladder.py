"""Prices from a ladder: every pair of an alternative and a price is an alternative of its own.

An offer has one price of each alternative or, where alternatives may be left out, at most one. So the best prices are a
best offer, found with a bound as in ``optimise_offer.py``.
"""

from __future__ import annotations

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.decisions.catalogue import Catalogue
from pcmcnet.decisions.constraints import Constraints, Rows, rows_of
from pcmcnet.decisions.local_search import climb, starting_offers
from pcmcnet.decisions.offer_value import earned
from pcmcnet.decisions.optimise_offer import prove
from pcmcnet.decisions.price_margin import Margin
from pcmcnet.decisions.search import Search
from pcmcnet.decisions.structure import structure_of
from pcmcnet.errors import InputError
from pcmcnet.insight.what_if import compose, with_values

_STARTS = 8  # local searches


def prices_on_ladder(
    margin: Margin,
    offered: Catalogue,
    ladder: Floats,
    constraints: Constraints | None,
    rng: np.random.Generator,
    deadline: float,
) -> tuple[Floats, Bools, Search]:
    """Choose a price for each alternative, or none; returns prices, which are offered, and the search."""
    if not len(ladder) or not np.isfinite(ladder).all():
        raise InputError("ladder: expected at least one price, all of them finite numbers.")
    own = offered.numbers(margin.column, margin.column)
    n = len(own)
    owner = np.concatenate([np.repeat(k, len(ladder) if margin.moves[k] else 1) for k in range(n)])
    prices = np.concatenate([ladder if margin.moves[k] else own[[k]] for k in range(n)])
    sets = with_values(compose(margin.sets, [owner], [0]), margin.column, prices)
    revenue = np.where(margin.moves[owner], prices - margin.cost[owner], 0.0)
    rows = _one_price(offered, owner, constraints)
    rows.require_possible()
    value = structure_of(margin.model, sets, revenue)
    offers, values = climb(lambda x, _: earned(value, x), rows, starting_offers(rows, revenue, _STARTS, rng))
    found = prove(value, rows, offers[values.argmax()], deadline=deadline)
    after, shown = own.copy(), np.zeros(n, np.bool_)
    after[owner[found.offer]], shown[owner[found.offer]] = prices[found.offer], True
    return after, shown, found


def _one_price(offered: Catalogue, owner: Ints, constraints: Constraints | None) -> Rows:
    """Write constraints on alternatives as constraints on pairs of an alternative and a price, one of each."""
    base = rows_of(constraints or Constraints(), offered.labels, offered.columns, offered.outside)
    n = len(offered.labels)
    priced = np.arange(n) != offered.outside
    each = (owner == np.flatnonzero(priced)[:, None]).astype(np.float64)  # (moving alternatives, pairs)
    needed = np.ones(len(each), np.bool_) if constraints is None else base.always[priced]
    names = [offered.labels[k] for k in np.flatnonzero(priced)]
    return Rows(
        np.concatenate([base.matrix[:, owner], each, -each[needed]]),
        np.concatenate([base.upper, np.ones(len(each)), -np.ones(int(needed.sum()))]),
        (
            *base.names,
            *(f"one price of {name}" for name in names),
            *(f"a price of {n}" for n, w in zip(names, needed, strict=True) if w),
        ),
        ~priced[owner],
        base.never[owner],
    )
