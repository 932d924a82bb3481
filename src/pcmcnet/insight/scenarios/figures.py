"""A model and two offers -> shares, volumes, revenue, diversion and surplus as one vector, and its intervals.

With p the probabilities, w the weights of the sets and r the revenue of an alternative, of each group g

    volume_g = sum w p        share_g = volume_g / sum w        revenue_g = sum w p r

before and after the change. Where the change is of the alternatives T, and the volume of T changes by D_T,

    diversion to g = - D_g / D_T        for a group g outside T; these sum to 1.

Where some of T lose and others gain, D_T is what is left of the two, and there is no diversion.

All are functions of the model alone, so that intervals follow from those of its coefficients by the delta method, or
from the members of an ensemble.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.ragged import spread
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import predicted_log_p
from pcmcnet.insight.scenarios.surplus import surplus_by_set
from pcmcnet.models.logits.logit_model import LogitModel
from pcmcnet.models.wrappers.ensemble import Ensemble

_NOTHING = 1e-12  # a change of a share that is rounding


class Side(NamedTuple):
    """What is on offer before or after a change, by group."""

    data: ChoiceData
    codes: Ints  # (N,) group of each alternative
    revenue: Floats | None  # (N,)


@dataclass(frozen=True)
class Question:
    """What to add up, and how."""

    before: Side
    after: Side
    segment: Ints  # (G,) segment of choice sets that each group lies in
    changed: Bools  # (G,) groups with an alternative that the change is of
    cost: str | None  # of the surplus, where the model has one

    @property
    def groups(self) -> int:
        """G, the number of groups."""
        return len(self.segment)

    def weights(self, side: Side) -> Floats:
        """(G,) weight of the choice sets of each group's segment."""
        every = np.bincount(self.segment[side.codes[side.data.offsets[:-1]]], side.data.weights, self.segment[-1] + 1)
        found: Floats = np.where(every > 0, every, 1.0)[self.segment]
        return found

    def volumes(self, model: Any) -> tuple[Floats, Floats]:
        """(2, G), (2, G + 1): volumes, and revenue with its sum as the last entry, before and after."""
        volumes, money = np.zeros((2, self.groups)), np.zeros((2, self.groups + 1))
        for k, (data, codes, revenue) in enumerate((self.before, self.after)):
            mass = np.exp(predicted_log_p(model, data)) * spread(data.weights, data.offsets)
            volumes[k] = np.bincount(codes, mass, self.groups)
            if revenue is not None:
                money[k, :-1] = np.bincount(codes, mass * revenue, self.groups)
        money[:, -1] = money.sum(axis=1)
        return volumes, money

    def ask(self, model: Any) -> Floats:
        """Return all figures of a model as one vector, which :meth:`split` takes apart."""
        volumes, money = self.volumes(model)
        shares = volumes / np.stack([self.weights(self.before), self.weights(self.after)])
        blocks = [np.concatenate([block, np.diff(block, axis=0)]).ravel() for block in (shares, volumes, money)]
        change = np.diff(shares, axis=0)[0]
        total = self._moved(change)
        ratio = np.divide(-change, total, out=np.zeros_like(change), where=~self.changed & (total != 0))
        surplus = 0.0
        if self.cost is not None:
            surplus = float(np.average(self._surplus(model), weights=self.before.data.weights))
        return np.concatenate([*blocks, ratio, [surplus]])

    def _moved(self, change: Floats) -> Floats:
        """(G,) change of the share of the changed alternatives of each group's segment."""
        moved: Floats = np.bincount(self.segment, change * self.changed).astype(np.float64)
        return moved[self.segment]

    def diverts(self, figures: Floats) -> bool:
        """Tell whether the changed alternatives lose or gain anything, in every segment."""
        return bool((np.abs(self._moved(self.split(figures)["shares"][2])) > _NOTHING).all())

    def mixed(self, figures: Floats) -> bool:
        """Tell whether some changed groups of a segment lose while others gain."""
        change = self.split(figures)["shares"][2]
        gain, lose = (np.bincount(self.segment, self.changed & (sign * change > _NOTHING)) > 0 for sign in (1, -1))
        return bool((gain & lose).any())

    def _surplus(self, model: Any) -> Floats:
        assert self.cost is not None
        return surplus_by_set(model, self.before.data, self.after.data, self.cost)

    def split(self, figures: Floats) -> dict[str, Floats]:
        """Return shares and volumes (3, G) and revenue (3, G + 1) before, after and changed, diversion, surplus."""
        G = self.groups
        ends = np.cumsum([3 * G, 3 * G, 3 * (G + 1), G])
        shares, volumes, revenue, diversion, surplus = np.split(figures, ends)
        found = {"shares": shares.reshape(3, G), "volumes": volumes.reshape(3, G), "revenue": revenue.reshape(3, G + 1)}
        return {**found, "diversion": diversion, "surplus": surplus}


class Answer(NamedTuple):
    """Figures, the ends of their intervals where there are any, and how they were found or why there are none."""

    values: Floats
    low: Floats | None
    high: Floats | None
    how: str


def answer(model: Any, ask: Callable[[Any], Floats], *, level: float, errors: Any, wanted: bool) -> Answer:
    """Ask a model for figures, with intervals if it has any."""
    values, name = ask(model), type(model).__name__
    if errors is not None and not isinstance(model, LogitModel):
        raise InputError(f"errors are for the standard errors of a logit, and {name} has none: leave them out.")
    if not wanted:
        return Answer(values, None, None, "no intervals, as asked for")
    if isinstance(model, Ensemble):
        spread_ = model.over(ask, level)
        ends = np.minimum(spread_.low, values), np.maximum(spread_.high, values)
        return Answer(values, *ends, f"{level:.0%} intervals between the {len(model.members_)} members of the ensemble")
    if isinstance(model, LogitModel):
        from scipy.special import ndtri

        kind = errors or model.usual_errors
        _, error = model.estimates_.delta(lambda b: ask(model.with_values(b)), kind)
        reach = float(ndtri((1 + level) / 2)) * error
        how = f"{level:.0%} intervals by the delta method, {kind} standard errors"
        return Answer(values, values - reach, values + reach, how)
    return Answer(values, None, None, f"no intervals: {name} has no standard errors; an Ensemble of it has intervals")
