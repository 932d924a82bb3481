"""``scenario``: a fitted model, a table and changes -> what happens to the market.

The model is asked about the table as it is and as it would be; ``market.py`` adds the probabilities up by group. What
cannot be had, such as the surplus of a model without utilities, is left out with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData, ScannedData, Schema, wide
from pcmcnet.data.columns.arrays import Categorical, Column, Numeric, stored_values
from pcmcnet.data.columns.ragged import consecutive_indices
from pcmcnet.data.files.tabular import read_table
from pcmcnet.data.outside import with_blank_outside_features
from pcmcnet.data.rankings import first_choices
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import Predictor, gives_of, require_data, require_sets
from pcmcnet.insight.queries import numeric_values, with_values
from pcmcnet.insight.scenarios.language import columns_named_in, parse_change
from pcmcnet.insight.scenarios.market_effects import (
    ConsumerSurplus,
    Diversion,
    MarketComparison,
    MarketEffects,
    MarketState,
    MarketTables,
    estimate_figures,
    group_alternatives,
    require_surplus,
)
from pcmcnet.insight.scenarios.offers import ChangeExtent, ScenarioOffer
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logit.standard_errors import Errors
from pcmcnet.reports.formats import FormatsMixin, ResultContent, data_frame, to_json
from pcmcnet.reports.tables import number

# -- Tables ------------------------------------------------------------------------------------------------------------
# Tables of a scenario: how the first one is read, and one that somebody else has changed.
#
# A changed table has the same choice sets, by their ids. Its alternatives are those of the first table that have the
# same label, or the same place in their set where there are no labels; others are new.


def read_sets(model: Any, data: Any, named: Iterable[str]) -> ChoiceData:
    """Read a table by the roles of the model; columns that are named beside come along as further features.

    Choices, weights, persons and kept columns are read where the table has them: a scenario needs none. Of rankings,
    the first choices alone are taken: the others are of those who did not get their first.
    """
    schema = getattr(model, "schema", None)
    if isinstance(data, ChoiceData | ScannedData) or not isinstance(schema, Schema):
        return first_choices(require_data(model, data))
    rows = read_table(data, text=schema.text_columns, ids=schema.id_columns)
    if not schema.has_choices_in(rows.column_names):
        schema = replace(schema, chosen=None, rank=None)
    there = set((rows := wide.long_form(rows, schema) or rows).column_names)
    kept = tuple(name for name in schema.keep if name in there)
    single = {role: None for role in ("weight", "person") if getattr(schema, role) not in there}
    more = [name for name in dict.fromkeys(named) if name in there and name not in schema.columns]
    words = [name for name in more if not _is_number(rows.schema.field(name).type)]
    sets = ChoiceData.from_schema(
        rows,
        replace(
            schema,
            keep=kept,
            features=(*schema.features, *more),
            categorical=(*(schema.categorical or ()), *words),
            **single,  # type: ignore[arg-type]
        ),
    )
    return first_choices(sets)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def apply_result(offer: ScenarioOffer, result: Any) -> tuple[ScenarioOffer, ChangeExtent]:
    """Take what a function made of an offer: choice data, or the new values of some columns."""
    if isinstance(result, ChoiceData):
        return _matched(offer, with_blank_outside_features(first_choices(result)))
    if isinstance(result, Mapping):
        data, touched = offer.data, offer.touched.copy()
        for name, values in result.items():
            data = with_blank_outside_features(with_values(data, str(name), values))
        moved = _differ(offer.data, data, np.arange(len(touched)))
        return replace(offer, data=data, touched=touched | moved), ChangeExtent.of(moved, data)
    raise InputError(
        f"a change that is a function takes choice data and returns choice data, or a mapping from columns to their "
        f"new values; this one returned {type(result).__name__}."
    )


def _matched(offer: ScenarioOffer, data: ChoiceData) -> tuple[ScenarioOffer, ChangeExtent]:
    """Find the alternatives of an offer in a changed table."""
    before = offer.data
    place = {value: k for k, value in enumerate(before.set_ids.tolist())}
    ids = data.set_ids.tolist()
    if len(ids) != len(place) or any(value not in place for value in ids):
        strange = next((value for value in ids if value not in place), None)
        what = f"{len(ids):,} choice sets" if strange is None else f"the choice set {strange}"
        raise InputError(f"a changed table has the {len(place):,} choice sets of the first one, got {what}.")
    data = data.subset(np.argsort([place[value] for value in ids]))
    if set(data.features) != set(before.features):
        raise InputError("a changed table has the same columns as the first one; read both by the same roles.")
    at = _places(offer, data)
    known = at >= 0
    moved = ~known
    moved[known] = _differ(before, data, at[known], np.flatnonzero(known))
    names = None if data.labels is None else data.labels.plain()
    origin = np.where(known, offer.origin[at], -1)
    lost = offer.lost.copy()
    gone = np.ones(len(before.rows), np.bool_)
    gone[at[known]] = False
    lost[offer.origin[gone & (offer.origin >= 0)]] = True
    touched = moved | np.where(known, offer.touched[at], True)
    return replace(offer, data=data, names=names, origin=origin, touched=touched, lost=lost), ChangeExtent.of(
        moved, data
    )


def _places(offer: ScenarioOffer, data: ChoiceData) -> Ints:
    """(N,) where each alternative was in the offer; -1 for a new one."""
    before = offer.data
    if offer.names is None or data.labels is None:
        inside = consecutive_indices(np.zeros(len(data), np.int64), data.sizes)
        sizes = before.sizes[data.set_of_alternative]
        return np.where(inside < sizes, before.offsets[data.set_of_alternative] + inside, -1)
    old = {key: k for k, key in enumerate(zip(before.set_of_alternative.tolist(), offer.names, strict=True))}
    new = zip(data.set_of_alternative.tolist(), data.labels.plain(), strict=True)
    return np.array([old.get(key, -1) for key in new], np.int64)


def _differ(before: ChoiceData, after: ChoiceData, at: Ints, now: Ints | None = None) -> Bools:
    """Tell which alternatives differ in a feature or in a column of the individual from what they were."""
    now = at if now is None else now
    moved = np.zeros(len(at), np.bool_)
    for name, column in before.features.items():
        moved |= _unlike(column, at, after.features[name], now)
    sets, theirs = before.set_of_alternative[at], after.set_of_alternative[now]
    for name, column in before.individual.items():
        moved |= _unlike(column, sets, after.individual[name], theirs)
    return moved


def _unlike(first: Any, at: Ints, second: Any, now: Ints) -> Bools:
    """Compare values of a column before and after; two missing ones are alike."""
    a, b = stored_values(first.take(at)), stored_values(second.take(now))
    if getattr(first, "categories", None) != getattr(second, "categories", None):  # codes of different lists
        a, b = np.array(first.categories, object)[a], np.array(second.categories, object)[b]
    found: Bools = (a != b) & ~((a != a) & (b != b))
    return found


# -- Caveats -----------------------------------------------------------------------------------------------------------
# What to know before trusting a scenario: what the model has not seen, and what its answers are worth.

_NOT_PROBABILITIES = {
    "scores": "gives scores that sum to 1, not probabilities: read the shares as an order of size",
    "ranking": "gives a ranking: the shares are those of first places",
}


def caveats(model: Any, first: ChoiceData, offer: ScenarioOffer) -> Iterator[str]:
    """Yield a sentence for each thing to know."""
    yield from offer.notes
    if first.schema.rank is not None:
        yield "the table holds rankings: the first choices alone count, each among all alternatives"
    seen = model.table_.columns if isinstance(model, ChoiceModel) else {}
    for role in ("features", "individual"):
        after = getattr(offer.data, role)
        for name, column in getattr(first, role).items():
            yield from _unseen(name, column, after[name], seen.get(name, {}))
    yield from _never_without(first, offer)
    if (gives := gives_of(model)) in _NOT_PROBABILITIES:
        yield f"{type(model).__name__} {_NOT_PROBABILITIES[gives]}"


def _unseen(name: str, before: Column, after: Column, seen: dict[str, Any]) -> Iterator[str]:
    """Say which categories are new to the model, and which numbers lie beyond those of training."""
    if isinstance(after, Categorical) and seen.get("distinct") == len(seen.get("categories", [])):
        new = sorted({*after.plain()} - {*seen["categories"], *before.plain()})
        if new:
            yield f"the model has not seen {name} {', '.join(map(repr, new))}: it takes it for unknown"
    if isinstance(after, Numeric) and isinstance(before, Numeric) and seen.get("min") is not None:
        low, high = np.nanmin(after.values), np.nanmax(after.values)
        if low < min(seen["min"], np.nanmin(before.values)) or high > max(seen["max"], np.nanmax(before.values)):
            span = f"{seen['min']:g} to {seen['max']:g}"
            yield f"{name} goes from {low:g} to {high:g}, beyond the {span} of training: the model extrapolates"


def _never_without(first: ChoiceData, offer: ScenarioOffer) -> Iterator[str]:
    """Say which alternatives are taken away that every choice set offers."""
    if first.labels is None or not offer.lost.any():
        return
    counts = np.bincount(first.labels.codes, minlength=len(first.labels.categories))
    lost = np.unique(first.labels.codes[offer.lost])
    always = [first.labels.categories[k] for k in lost if counts[k] == len(first)]
    if always:
        them = "it" if len(always) == 1 else "them"
        yield (
            f"all choice sets of the table offer {', '.join(map(repr, always))}: how people choose without {them} is "
            f"the model's form, not something seen"
        )


# -- Result ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class AppliedChange:
    """A change, and how much of the table it is of."""

    text: str
    alternatives: int
    sets: int

    def __str__(self) -> str:
        sets = f"{self.sets:,} choice set{'s' * (self.sets != 1)}"
        return f"{self.text}: {self.alternatives:,} alternative{'s' * (self.alternatives != 1)} in {sets}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenario(FormatsMixin):
    """What :func:`scenario` found; prints as a table, in every format that a report may need.

    Attributes
    ----------
    model
        The class of the model.
    steps
        The changes, in their order.
    by
        What the groups are.
    sets
        Number of choice sets.
    shares
        Share of the choices of each group before and after, with the interval of its change.
    volumes
        The same, times the weights of the choice sets.
    intervals
        How intervals were found, or why there are none.
    notes
        What to know before trusting the figures.
    """

    model: str
    steps: tuple[AppliedChange, ...]
    by: str
    sets: int
    shares: MarketEffects
    volumes: MarketEffects
    intervals: str
    notes: tuple[str, ...]
    parts: Mapping[str, Any]  # revenue, diversion and consumer_surplus, or why there is none

    @property
    def revenue(self) -> MarketEffects:
        """Revenue of each group and the sum of all, where a column of it was named."""
        found: MarketEffects = self._part("revenue")
        return found

    @property
    def diversion(self) -> Diversion:
        """Where the choices go that the changed alternatives lose, or where those come from that they gain."""
        found: Diversion = self._part("diversion")
        return found

    @property
    def consumer_surplus(self) -> ConsumerSurplus:
        """What the change is worth to those who choose; a gain is positive."""
        found: ConsumerSurplus = self._part("consumer_surplus")
        return found

    def _part(self, name: str) -> Any:
        found = self.parts[name]
        if isinstance(found, str):
            raise InputError(found)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON; a part that cannot be had is None, and ``left_out`` says why."""
        facts = {
            name: to_json(getattr(self, name)) for name in ("model", "by", "intervals", "shares", "volumes", "notes")
        }
        steps = {"changes": to_json(self.steps), "choice_sets": self.sets}
        parts = {name: None if isinstance(part, str) else to_json(part) for name, part in self.parts.items()}
        left_out = {name: part for name, part in self.parts.items() if isinstance(part, str)}
        return {**facts, **steps, **parts, "left_out": left_out}

    def to_rows(self) -> list[dict[str, Any]]:
        """Return a flat mapping for each group: shares, volumes and, where there are any, revenue and diversion."""
        blocks = {"share": self.shares, "volume": self.volumes}
        if isinstance(self.parts["revenue"], MarketEffects):
            blocks["revenue"] = self.parts["revenue"]
        rows = []
        for group in (row.group for row in self.shares.rows):
            found: dict[str, Any] = {self.by: group}
            for name, effects in blocks.items():
                values = {k: v for k, v in asdict(effects[group]).items() if k != "group"}
                found |= {f"{name}_{'change_' * (k in ('low', 'high'))}{k}": v for k, v in values.items()}
            if isinstance(diversion := self.parts["diversion"], Diversion) and group not in diversion.of:
                row = diversion[group]
                found |= {"diversion": row.ratio, "diversion_low": row.low, "diversion_high": row.high}
            rows.append(found)
        return rows

    def to_arrow(self) -> pa.Table:
        """Return :meth:`to_rows` as an Arrow table; a figure that a group does not have is null."""
        rows = self.to_rows()
        names = dict.fromkeys(name for row in rows for name in row)
        kinds = [pa.field(name, pa.string() if name == self.by else pa.float64()) for name in names]
        return pa.Table.from_pylist(rows, schema=pa.schema(kinds))

    def to_frame(self) -> Any:
        """Return :meth:`to_rows` as a pandas data frame, indexed by group."""
        return data_frame(self.to_arrow(), index=self.by, instead="to_rows()")

    def _content(self) -> ResultContent:
        facts = {f"change {k}" if k > 1 else "change": str(step) for k, step in enumerate(self.steps, start=1)}
        if isinstance(revenue := self.parts["revenue"], MarketEffects):
            before, after, change, *ends = revenue.cells()[-1][1:]
            facts[revenue.quantity] = f"{before} before, {after} after, {change}" + "".join(f" ({end})" for end in ends)
        if isinstance(surplus := self.parts["consumer_surplus"], ConsumerSurplus):
            facts["consumer surplus"] = str(surplus)
        title = f"Scenario: {self.model} on {self.sets:,} choice sets"
        return ResultContent(title=title, cells=self._cells(), facts=facts, notes=(self.intervals, *self.notes))

    def _cells(self) -> list[list[str]]:
        """Return shares and, beside them, diversion, volumes where sets have weights, and revenue, if there is any."""
        cells = self.shares.cells(self.by)
        if isinstance(diversion := self.parts["diversion"], Diversion):
            cells[0].append("diversion")
            for row in cells[1:]:
                row.append("-" if row[0] in diversion.of else f"{diversion[row[0]].ratio:.1%}")
        beside = {"volume": None if self._unweighted else self.volumes, "revenue": self.parts["revenue"]}
        for name, effects in beside.items():
            if isinstance(effects, MarketEffects):
                cells[0] += [f"{name} before", "after"]
                for row in cells[1:]:
                    row += [number(value) for value in (effects[row[0]].before, effects[row[0]].after)]
        return cells

    @property
    def _unweighted(self) -> bool:
        return abs(sum(row.before for row in self.volumes.rows) - self.sets) < 1e-6 * self.sets

    __repr__ = FormatsMixin.__str__


# -- Scenario ----------------------------------------------------------------------------------------------------------

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
        ``"add tram like bus with time -= 10"``; see :mod:`pcmcnet.insight.scenarios.language`. Also a function
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
    # 1. Read the table, with the columns that are named somewhere.
    asked = list(_listed(changes))
    first = read_sets(model, data, _named(asked, by, revenue, cost))
    require_sets(first)
    if cost is not None:
        _feature(first, cost, "cost")
    offer, steps = ScenarioOffer.of(first), []
    known = _known_labels(model, first)
    # 2. Apply the changes one after the other.
    for change in asked:
        offer, step = _apply(offer, change, known)
        steps.append(step)
    # 3. Ask the model about both tables, and add its answers up by group.
    groups = group_alternatives(first, offer, by)
    sides = [
        MarketState(side, codes, None if revenue is None else _feature(side, revenue, "revenue"))
        for side, codes in ((first, groups.before), (offer.data, groups.after))
    ]
    question, parts = MarketComparison(sides[0], sides[1], groups.segment, groups.changed, None), {}
    try:
        question = replace(question, cost=require_surplus(model, first, offer.data, cost))
    except InputError as error:
        parts["consumer_surplus"] = str(error)
    found = estimate_figures(model, question.compute, level=level, errors=errors, wanted=intervals)
    told = MarketTables(question, found, groups.names)
    # 4. Say what to know before trusting the figures.
    notes = [*caveats(model, first, offer)]
    if not told.values["shares"][2].any():
        notes.append("no share changes: the model does not use what was changed, or reacts to it by steps")
    if told.has_mixed_signs and isinstance(why := told.diversion(), str):
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
    yield from (
        name for change in changes if isinstance(change, str) for name in columns_named_in(parse_change(change))
    )
    yield from (name for name in others if name is not None)


def _apply(offer: ScenarioOffer, change: Change, known: frozenset[str]) -> tuple[ScenarioOffer, AppliedChange]:
    if isinstance(change, str):
        text = " ".join(change.split())
        try:
            after, extent = offer.apply(parse_change(change), known)
        except InputError as error:
            prefix = "" if str(error).startswith("change ") else f"change {text!r}: "
            raise InputError(f"{prefix}{error}") from None
    else:
        result = change(offer.data) if callable(change) else change
        text = getattr(change, "__name__", "a changed table" if isinstance(change, ChoiceData) else "new values")
        after, extent = apply_result(offer, result)
    return after, AppliedChange(text=text, alternatives=extent.alternatives, sets=extent.sets)


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
