"""``scenario``: a fitted model, a table and changes -> what happens to the market.

The model is asked about the table as it is and as it would be; ``figures.py`` adds the probabilities up by group: see
``groups.py``. What cannot be had, such as the surplus of a model without utilities, is left out with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import Predictor, require_sets
from pcmcnet.insight.scenarios.caveats import caveats
from pcmcnet.insight.scenarios.changes_language import columns_of, read_change
from pcmcnet.insight.scenarios.effects import Told
from pcmcnet.insight.scenarios.figures import Question, Side, answer
from pcmcnet.insight.scenarios.groups import group
from pcmcnet.insight.scenarios.offers import Offer
from pcmcnet.insight.scenarios.result import Scenario, Step
from pcmcnet.insight.scenarios.surplus import require_surplus
from pcmcnet.insight.scenarios.tables import changed_by, read_sets
from pcmcnet.insight.segments import numeric_values
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logits.estimation import Errors

Change = str | Callable[[ChoiceData], Any] | ChoiceData | Mapping[str, Any]


def scenario(
    model: Predictor,
    data: Any,
    changes: Change | Sequence[Change],
    *,
    by: str | None = None,
    revenue: str | None = None,
    cost: str | None = None,
    level: float = 0.95,
    errors: Errors | None = None,
    intervals: bool = True,
) -> Scenario:
    """Predict what changes of a table do to shares, volumes, revenue and the surplus of those who choose.

    Parameters
    ----------
    model
        A fitted model of any kind; also an object with the method ``predict_log_proba``.
    data
        Choice data, or a table that the model's schema reads; choices are not needed. Of a table, columns that are only
        named in a change may be used as well.
    changes
        One or several, applied one after the other. As text: ``"price *= 1.1 where mode == 'car'"``, ``"remove air"``,
        ``"add tram like bus with time -= 10"``; see :mod:`pcmcnet.insight.scenarios.changes_language`. Also a function
        of the choice data that returns choice data or a mapping from columns to new values; such a mapping; or changed
        choice data with the same choice sets.
    by
        Column whose values are the groups: the labels if None, or places within sets where there are none. With a
        column of the choice sets, shares are those within each of its segments.
    revenue
        Numeric feature with the revenue of an alternative.
    cost
        Numeric feature with the cost in whose units the consumer surplus is.
    level, errors, intervals
        Level of intervals, kind of a logit's standard errors, and whether to compute intervals at all.

    Returns
    -------
    Scenario

    Raises
    ------
    InputError
        When a change cannot be read, names no column, selects nothing, or sets what cannot be set.

    Examples
    --------
    >>> from pcmcnet.models import MNL
    >>> table = {"trip": [1, 1, 2, 2, 3, 3, 4, 4], "took": [1, 0, 0, 1, 1, 0, 0, 1], "cost": [2, 4, 5, 3, 4, 3, 5, 2]}
    >>> table["mode"] = ["car", "bus"] * 4
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode", features=["cost"])
    >>> found = scenario(MNL(formula="cost | 0").fit(data), data, "cost += 1 where mode == 'car'", intervals=False)
    >>> round(found.shares["car"].change, 3), round(found.diversion["bus"].ratio, 3)
    (-0.102, 1.0)
    """
    require_number("level", level, low=0, high=1, open_low=True, open_high=True)
    asked = list(_listed(changes))
    first = read_sets(model, data, _named(asked, by, revenue, cost))
    require_sets(first)
    if cost is not None:
        _feature(first, cost, "cost")
    offer, steps = Offer.of(first), []
    known = _known_labels(model, first)
    for change in asked:
        offer, step = _apply(offer, change, known)
        steps.append(step)
    groups = group(first, offer, by)
    sides = [
        Side(side, codes, None if revenue is None else _feature(side, revenue, "revenue"))
        for side, codes in ((first, groups.before), (offer.data, groups.after))
    ]
    question, parts = Question(sides[0], sides[1], groups.segment, groups.changed, None), {}
    try:
        question = replace(question, cost=require_surplus(model, first, offer.data, cost))
    except InputError as error:
        parts["consumer_surplus"] = str(error)
    found = answer(model, question.ask, level=level, errors=errors, wanted=intervals)
    told = Told(question, found, groups.names)
    notes = [*caveats(model, first, offer)]
    if not told.values["shares"][2].any():
        notes.append("no share changes: the model does not use what was changed, or reacts to it by steps")
    if told.mixed and isinstance(why := told.diversion(), str):
        notes.append(f"no diversion: {why}")
    if cost is not None and parts:
        notes.append(f"no consumer surplus: {parts['consumer_surplus']}")
    return Scenario(
        model=type(model).__name__,
        steps=tuple(steps),
        by=groups.by,
        sets=len(first),
        shares=told.effects("shares", "share"),
        volumes=told.effects("volumes", "volume"),
        intervals=found.how,
        notes=tuple(notes),
        parts={"revenue": told.revenue(revenue), "diversion": told.diversion(), **parts, **told.surplus()},
    )


def _listed(changes: Any) -> Iterator[Change]:
    """Yield single changes."""
    if isinstance(changes, str | Mapping | ChoiceData) or callable(changes):
        yield changes
    elif isinstance(changes, Sequence) and len(changes):
        for change in changes:
            yield from _listed(change)
    else:
        raise InputError(
            f"changes: expected a text such as \"price *= 1.1 where mode == 'car'\", a function, changed choice data, "
            f"or a list of these, got {changes!r}."
        )


def _named(changes: Sequence[Change], *others: str | None) -> Iterator[str]:
    """Yield the columns that are named somewhere."""
    yield from (name for change in changes if isinstance(change, str) for name in columns_of(read_change(change)))
    yield from (name for name in others if name is not None)


def _apply(offer: Offer, change: Change, known: frozenset[str]) -> tuple[Offer, Step]:
    if isinstance(change, str):
        text = " ".join(change.split())
        try:
            after, extent = offer.apply(read_change(change), known)
        except InputError as error:
            prefix = "" if str(error).startswith("change ") else f"change {text!r}: "
            raise InputError(f"{prefix}{error}") from None
    else:
        result = change(offer.data) if callable(change) else change
        text = getattr(change, "__name__", "a changed table" if isinstance(change, ChoiceData) else "new values")
        after, extent = changed_by(offer, result)
    return after, Step(text=text, alternatives=extent.alternatives, sets=extent.sets)


def _known_labels(model: Any, data: ChoiceData) -> frozenset[str]:
    """Return the labels that the model has seen, as far as that is known, and those of the table."""
    if data.labels is None:
        return frozenset()
    columns = model.table_.columns if isinstance(model, ChoiceModel) else {}
    seen = columns.get(data.schema.alternative or "", {}).get("categories", [])
    return frozenset([*seen, *data.labels.plain()])


def _feature(data: ChoiceData, column: str, what: str) -> Floats:
    """Return a numeric feature (N,) without gaps; it is 0 for the outside option."""
    values, individual = numeric_values(data, column)
    if individual:
        raise InputError(f"{what} {column!r} belongs to the individual: expected a feature of the alternatives.")
    if data.outside is not None:
        values = np.where(data.outside, 0.0, values)
    if np.isnan(values).any():
        raise InputError(f"{what} {column!r} has {int(np.isnan(values).sum())} missing values: fill them in.")
    return values
