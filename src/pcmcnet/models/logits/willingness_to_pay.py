"""Willingness to pay in a logit: -b_name / b_cost in units of the table, with its error by the delta method.

With v = b_cost cost + b_name x + ..., a change of x by one unit is made up for by one of cost by -b_name / b_cost. What
a unit is worth must be one number: the coefficient of log(cost), or of a product, is none, and is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pcmcnet.arrays import Floats
from pcmcnet.errors import InputError
from pcmcnet.models.logits.design.empty_table import empty_sets
from pcmcnet.models.logits.design.units import require_unit
from pcmcnet.models.logits.estimation import Errors, Ratio

if TYPE_CHECKING:
    from pcmcnet.models.logits.logit_model import LogitModel

log = logging.getLogger("pcmcnet")


def willingness_to_pay(model: LogitModel, name: str, cost: str, errors: Errors) -> Ratio:
    """Return what one more unit of something is worth in units of a cost: see :meth:`LogitModel.willingness_to_pay`."""
    (whose, top), (others, bottom) = _marginal_utility(model, name), _marginal_utility(model, cost, money=True)
    if whose != others:
        raise InputError(f"{name!r} and {cost!r} belong to different classes: take both from one.")
    at_cost = bottom(model.estimates_.values)
    if at_cost == 0:
        raise InputError(f"the coefficient of {cost!r} is 0: nothing can be expressed in its units.")
    if at_cost > 0:
        log.warning("the coefficient of %r is above 0, so it is no cost: ratios to it mean little", cost)
    value, error = model.estimates_.delta(lambda b: -top(b) / bottom(b), errors)
    return Ratio(f"{name} in {cost}", float(value), float(error))


def _marginal_utility(model: LogitModel, name: str, *, money: bool = False) -> tuple[str, Callable[[Floats], float]]:
    """Return the class that a coefficient belongs to, and what a unit is worth as a function of all parameters."""
    form = model.design_.form
    if form.cost is not None and name in form.columns:
        name = form.names[form.columns.index(name)]
    at = model.estimates_.position(name)
    column = next((c for c in form.columns if name == c or name.endswith(f": {c}")), name)  # that of a class
    if not form.is_linear and at < len(form.columns):
        column = form.columns[at]
    unit = require_unit(model.design_, empty_sets(model.schema, model.design_.codes), column, money=money)
    if form.is_linear:
        return name.removesuffix(column), lambda values: float(values[at]) / unit
    return "", lambda values: float(form.coefficients(values)[at]) / unit
