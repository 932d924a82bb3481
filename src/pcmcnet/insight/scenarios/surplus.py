"""Consumer surplus: what a change is worth to those who choose, in units of a cost (Small & Rosen, 1981).

With L the expected largest utility of a choice set (the log-sum of a logit) and a the marginal utility of money,

    surplus of set S = sum_c pi_c (L_c after - L_c before) / a_c

over the classes c of people, of which most models have one. a is found by raising the costs of all alternatives of a
set by the same amount h: then L falls by a h. If it does so for every h, money is worth the same whatever is chosen and
however much is spent, and the difference of log-sums has a value in money; otherwise, as with log(cost) or a
coefficient for each alternative, it has none, and the surplus is refused. A gain is positive. The outside option costs
0 and has no cost to raise: L, for a alone, is then that of the other alternatives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.column_arrays import Numeric
from pcmcnet.data.ragged import sum_by_set
from pcmcnet.errors import InputError
from pcmcnet.insight.what_if import with_alternatives
from pcmcnet.reports.tables import number, percent

_SAME = 1e-6  # relative difference of marginal utilities that is rounding


@dataclass(frozen=True, slots=True)
class ConsumerSurplus:
    """What a change is worth; positive for a gain."""

    unit: str  # of the cost, or its column
    mean: float  # per choice set
    low: float | None  # ends of the mean's interval
    high: float | None
    total: float  # over all choice sets, with their weights

    def __str__(self) -> str:
        ends = "" if self.low is None or self.high is None else f" ({number(self.low)} to {number(self.high)})"
        return f"{number(self.mean)} {self.unit} per choice set{ends}, {number(self.total)} in all"


def surplus_by_set(model: Any, before: ChoiceData, after: ChoiceData, cost: str) -> Floats:  # -> (S,)
    """Return the surplus of each set; what is checked once is not checked here."""
    (old, shares), (new, _) = model._log_sums(before), model._log_sums(after)
    found: Floats = (shares * (new - old) / marginal_utility(model, before, cost, old)).sum(axis=1)
    return found


def marginal_utility(
    model: Any, data: ChoiceData, cost: str, sums: Floats, part: float = 1.0
) -> Floats:  # (S, C) -> (S, C)
    """Return the fall of the log-sums by unit of cost, where all alternatives cost more by a part of the mean cost."""
    if data.outside is not None:
        data = _with_costs(data)
        sums = model._log_sums(data)[0]
    column = data.features[cost]
    assert isinstance(column, Numeric)
    values = column.values.astype(np.float64)
    step = part * (float(np.nanmean(np.abs(values))) or 1.0)
    dearer = Numeric(values + step)  # type: ignore[arg-type]  # float64, as float32 would drown a small step
    moved = replace(data, features={**data.features, cost: dearer})
    found: Floats = (sums - model._log_sums(moved)[0]) / step
    return found


def _with_costs(data: ChoiceData) -> ChoiceData:
    """Leave out the outside option, and sets of it alone."""
    if data.outside is None:
        return data
    there = sum_by_set((~data.outside).astype(np.int64), data.offsets)
    return with_alternatives(data, np.flatnonzero(~data.outside), there).subset(there > 0)


def require_surplus(model: Any, before: ChoiceData, after: ChoiceData, cost: str | None) -> str:
    """Return the column of costs if the model has a surplus in its units.

    Raises
    ------
    InputError
        When it has none; the message says why.
    """
    name = type(model).__name__
    sums = getattr(model, "_log_sums", lambda data: None)(before)
    if sums is None:
        raise InputError(
            f"{name} has no utilities, and so no log-sum: consumer surplus is for logits (multinomial, nested, "
            f"latent class, mixed) and ensembles of them."
        )
    if cost is None:
        raise InputError("consumer surplus needs the column of costs, in whose units it is: give cost=<column>.")
    later, moved = model._log_sums(after)
    at = marginal_utility(model, before, cost, sums[0])
    if len(at) < len(before):
        raise InputError("some choice sets offer the outside option alone: there, nothing has a cost.")
    if not np.any(np.abs(at) > 1e-12):
        raise InputError(f"the utility of {name} does not depend on {cost!r}: nothing can be expressed in its units.")
    priced = np.isin(before.set_ids, _with_costs(after).set_ids)
    pairs = (
        (at, marginal_utility(model, before, cost, sums[0], part=0.5)),
        (at[priced], marginal_utility(model, after, cost, later)),
    )
    if not all(np.allclose(a, b, rtol=_SAME, atol=_SAME * np.abs(at).max()) for a, b in pairs):
        raise InputError(
            f"the marginal utility of {cost!r} is not the same for all alternatives and amounts, so a difference of "
            f"log-sums has no value in money: use a formula in which {cost} is linear, with one coefficient."
        )
    if not np.allclose(sums[1], moved, rtol=0, atol=_SAME):
        raise InputError("the change moves people between classes: their gains in utility cannot be compared.")
    if (at <= 0).any():
        odd = float((moved * (at <= 0)).sum(axis=1).mean())
        raise InputError(
            f"a higher {cost!r} raises the utility of {percent(odd)} of the people: to them it is no price, and "
            f"nothing can be expressed in its units."
        )
    return cost
