"""The market before and after a change: shares, volumes, revenue, diversion and consumer surplus by group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Numeric
from pcmcnet.data.columns.ragged import consecutive_indices, spread, sum_by_set
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.evaluation.predictions import predicted_log_p
from pcmcnet.insight.queries import group_values, segments, table_column, with_alternatives
from pcmcnet.insight.scenarios.offers import ScenarioOffer
from pcmcnet.models.ensemble import Ensemble
from pcmcnet.models.logit.logit_model import LogitModel
from pcmcnet.reports.formats import ToDictMixin
from pcmcnet.reports.tables import TableMixin, number, percent

# -- Groups ------------------------------------------------------------------------------------------------------------
# Groups of alternatives before and after a change: by label, by place or by a column.
#
# Groups by a feature are by its values in each table: an alternative that a change gives another value is in another
# group afterwards. Groups by a column of the choice sets are the labels within each of its segments, which are of the
# same sets before and after; a column of them that the change itself changes is refused.

LABEL = "label"  # asks for groups by label, whatever their column is called
_NEW_GROUP = "(new)"  # group of alternatives that were not there, in groups by a place


class Groups(NamedTuple):
    """G groups, by name."""

    names: tuple[str, ...]
    by: str  # what they are
    before: Ints  # (N0,) group of each alternative
    after: Ints  # (N,)
    segment: Ints  # (G,) segment of choice sets that each group lies in
    changed: Bools  # (G,) whether the change is of an alternative of the group


def group_alternatives(first: ChoiceData, offer: ScenarioOffer, by: str | None) -> Groups:
    """Group the alternatives of the first table and those of the offer."""
    label = first.schema.alternative
    found = None if by is None or by in (LABEL, label) else segments(first, by)
    if found is not None and not found.of_sets:
        order, before, after = _values(first, offer, str(by))
        names, *codes = _numbered(before, after, order)
        segment, parts, spoken = np.zeros(len(first), np.int64), [""], str(by)
    else:
        if found is not None:
            _require_kept(first, offer, str(by))
        before, after = _labels_or_places(first, offer)
        names, *codes = _numbered(before, after, sorted(set(before), key=_natural))
        segment = np.zeros(len(first), np.int64) if found is None else found.codes[first.offsets[:-1]]
        parts, spoken = ([""] if found is None else list(found.names)), label or "place"
    G, B = len(names), len(parts)
    old, new = (
        code + G * segment[data.set_of_alternative] for code, data in zip(codes, (first, offer.data), strict=True)
    )
    changed = np.zeros(G * B, np.bool_)
    changed[new[offer.touched]] = True
    changed[old[offer.lost]] = True
    changed[old[offer.origin[offer.touched & _themselves(offer)]]] = True
    every = tuple(f"{part}: {name}" if part else name for part in parts for name in names)
    return Groups(every, f"{by}, {spoken}" if B > 1 else spoken, old, new, np.repeat(np.arange(B), G), changed)


def _labels_or_places(first: ChoiceData, offer: ScenarioOffer) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the label of each alternative before and after; its place in its set where there are no labels."""
    if first.labels is not None and offer.names is not None:
        return first.labels.plain(), offer.names
    place = np.array([f"#{k + 1}" for k in range(first.largest)], object)
    names = place[consecutive_indices(np.zeros(len(first), np.int64), first.sizes)]
    return names, np.where(_themselves(offer), names[offer.origin], _NEW_GROUP)


def _themselves(offer: ScenarioOffer) -> Bools:
    """(N,) which alternatives are those of the first table: the second one of an origin is a copy."""
    itself = np.zeros(len(offer.origin), np.bool_)
    itself[np.unique(offer.origin, return_index=True)[1]] = True
    return itself & (offer.origin >= 0)


def _values(first: ChoiceData, offer: ScenarioOffer, by: str) -> tuple[tuple[str, ...], NDArray[Any], NDArray[Any]]:
    """Return the groups by a feature in their order, and the group of each alternative before and after."""
    before, after = (table_column(data, by)[0].plain() for data in (first, offer.data))
    same = (offer.origin >= 0).all() and np.array_equal(after.astype(str), before[offer.origin].astype(str))
    names, codes = group_values(before if same else np.concatenate([before, after]))  # one scale for both tables
    words = np.array(names, object)[codes]
    return names, words[: len(before)], words[offer.origin] if same else words[len(before) :]


def _require_kept(first: ChoiceData, offer: ScenarioOffer, by: str) -> None:
    """Refuse segments by a column that the change changes."""
    before, after = (table_column(data, by)[0].plain().astype(str) for data in (first, offer.data))
    if not np.array_equal(before, after):
        raise InputError(
            f"by={by!r}: the change itself changes this column, so its segments are not of the same choice sets before "
            f"and after. Group by another, such as a copy of it in the table that keep=[...] names."
        )


def _numbered(before: NDArray[Any], after: NDArray[Any], order: Any) -> tuple[list[str], Ints, Ints]:
    """Number the names in use, those of the first table first and in this order."""
    used = set(before)
    names = [name for name in order if name in used]
    names += [name for name in dict.fromkeys(after) if name not in used]
    place = {name: k for k, name in enumerate(names)}
    first, second = (np.array([place[name] for name in part], np.int64) for part in (before, after))
    return names, first, second


def _natural(name: str) -> tuple[int, str]:
    """Sort #2 before #10."""
    return (int(name[1:]), "") if name.startswith("#") and name[1:].isdigit() else (0, name)


# -- Surplus -----------------------------------------------------------------------------------------------------------
# Consumer surplus: what a change is worth to those who choose, in units of a cost (Small & Rosen, 1981).
#
# With L the expected largest utility of a choice set (the log-sum of a logit) and a the marginal utility of money,
#
#     surplus of set S = sum_c pi_c (L_c after - L_c before) / a_c
#
# over the classes c of people, of which most models have one. a is found by raising the costs of all alternatives of a
# set by the same amount h: then L falls by a h. If it does so for every h, money is worth the same whatever is chosen
# and however much is spent, and the difference of log-sums has a value in money; otherwise, as with log(cost) or a
# coefficient for each alternative, it has none, and the surplus is refused. A gain is positive. The outside option
# costs 0 and has no cost to raise: L, for a alone, is then that of the other alternatives.

_RELATIVE_TOLERANCE = 1e-6  # relative difference of marginal utilities that is rounding


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
    """Return the column of costs if the model has a surplus in its units; the error says why it has none."""
    name = type(model).__name__
    sums = getattr(model, "_log_sums", lambda data: None)(before)
    if sums is None:
        raise InputError(
            f"{name} has no utilities, and so no log-sum: consumer surplus is for logits (multinomial, nested, "
            f"latent class, mixed) and ensembles of them."
        )
    if cost is None:
        raise InputError("consumer surplus needs the column of costs, in whose units it is: give cost=<column>.")
    # 1. Every set has a cost, and utility depends on it.
    later, moved = model._log_sums(after)
    at = marginal_utility(model, before, cost, sums[0])
    if len(at) < len(before):
        raise InputError("some choice sets offer the outside option alone: there, nothing has a cost.")
    if not np.any(np.abs(at) > 1e-12):
        raise InputError(f"the utility of {name} does not depend on {cost!r}: nothing can be expressed in its units.")
    # 2. The marginal utility is the same for another amount and after the change, in classes of the same people.
    priced = np.isin(before.set_ids, _with_costs(after).set_ids)
    pairs = (
        (at, marginal_utility(model, before, cost, sums[0], part=0.5)),
        (at[priced], marginal_utility(model, after, cost, later)),
    )
    if not all(
        np.allclose(a, b, rtol=_RELATIVE_TOLERANCE, atol=_RELATIVE_TOLERANCE * np.abs(at).max()) for a, b in pairs
    ):
        raise InputError(
            f"the marginal utility of {cost!r} is not the same for all alternatives and amounts, so a difference of "
            f"log-sums has no value in money: use a formula in which {cost} is linear, with one coefficient."
        )
    if not np.allclose(sums[1], moved, rtol=0, atol=_RELATIVE_TOLERANCE):
        raise InputError("the change moves people between classes: their gains in utility cannot be compared.")
    # 3. A cost that attracts is no price.
    if (at <= 0).any():
        odd = float((moved * (at <= 0)).sum(axis=1).mean())
        raise InputError(
            f"a higher {cost!r} raises the utility of {percent(odd)} of the people: to them it is no price, and "
            f"nothing can be expressed in its units."
        )
    return cost


# -- Figures -----------------------------------------------------------------------------------------------------------
# A model and two offers -> shares, volumes, revenue, diversion and surplus as one vector, and its intervals.
#
# With p the probabilities, w the weights of the sets and r the revenue of an alternative, of each group g
#
#     volume_g = sum w p        share_g = volume_g / sum w        revenue_g = sum w p r
#
# before and after the change. Where the change is of the alternatives T, and the volume of T changes by D_T,
#
#     diversion to g = - D_g / D_T        for a group g outside T; these sum to 1.
#
# Where some of T lose and others gain, D_T is what is left of the two, and there is no diversion.
#
# All are functions of the model alone, so that intervals follow from those of its coefficients by the delta method, or
# from the members of an ensemble.

_MIN_SHARE_CHANGE = 1e-12  # a change of a share that is rounding


class MarketState(NamedTuple):
    """What is on offer before or after a change, by group."""

    data: ChoiceData
    codes: Ints  # (N,) group of each alternative
    revenue: Floats | None  # (N,)


@dataclass(frozen=True)
class MarketComparison:
    """What to add up, and how."""

    before: MarketState
    after: MarketState
    segment: Ints  # (G,) segment of choice sets that each group lies in
    changed: Bools  # (G,) groups with an alternative that the change is of
    cost: str | None  # of the surplus, where the model has one

    @property
    def groups(self) -> int:
        """G, the number of groups."""
        return len(self.segment)

    def weights(self, side: MarketState) -> Floats:
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

    def compute(self, model: Any) -> Floats:
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

    def has_diversion(self, figures: Floats) -> bool:
        """Tell whether the changed alternatives lose or gain anything, in every segment."""
        return bool((np.abs(self._moved(self.split(figures)["shares"][2])) > _MIN_SHARE_CHANGE).all())

    def has_mixed_signs(self, figures: Floats) -> bool:
        """Tell whether some changed groups of a segment lose while others gain."""
        change = self.split(figures)["shares"][2]
        gain, lose = (
            np.bincount(self.segment, self.changed & (sign * change > _MIN_SHARE_CHANGE)) > 0 for sign in (1, -1)
        )
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


class EstimatedFigures(NamedTuple):
    """Figures, the ends of their intervals where there are any, and how they were found or why there are none."""

    values: Floats
    low: Floats | None
    high: Floats | None
    how: str


def estimate_figures(
    model: Any, compute: Callable[[Any], Floats], *, level: float, errors: Any, wanted: bool
) -> EstimatedFigures:
    """Ask a model for figures, with intervals if it has any."""
    values, name = compute(model), type(model).__name__
    if errors is not None and not isinstance(model, LogitModel):
        raise InputError(f"errors are for the standard errors of a logit, and {name} has none: leave them out.")
    if not wanted:
        return EstimatedFigures(values, None, None, "no intervals, as asked for")
    if isinstance(model, Ensemble):
        spread_ = model.over(compute, level)
        ends = np.minimum(spread_.low, values), np.maximum(spread_.high, values)
        return EstimatedFigures(
            values, *ends, f"{level:.0%} intervals between the {len(model.members_)} members of the ensemble"
        )
    if isinstance(model, LogitModel):
        from scipy.special import ndtri

        kind = errors or model.default_errors
        _, error = model.estimates_.delta(lambda b: compute(model.with_values(b)), kind)
        reach = float(ndtri((1 + level) / 2)) * error
        how = f"{level:.0%} intervals by the delta method, {kind} standard errors"
        return EstimatedFigures(values, values - reach, values + reach, how)
    return EstimatedFigures(
        values, None, None, f"no intervals: {name} has no standard errors; an Ensemble of it has intervals"
    )


# -- Effects -----------------------------------------------------------------------------------------------------------
# Figures of groups before and after a change, with their intervals, as rows that are found by group and print.


@dataclass(frozen=True, kw_only=True, slots=True)
class MarketEffect:
    """One figure of one group; the ends of intervals are None where there are none."""

    group: str
    before: float
    after: float
    change: float
    low: float | None = None  # ends of the interval of the change
    high: float | None = None
    after_low: float | None = None
    after_high: float | None = None


class _RowsByGroup:
    """Rows that are found by their group."""

    __slots__ = ()
    rows: tuple[Any, ...]

    def __getitem__(self, group: str) -> Any:
        for row in self.rows:
            if row.group == group:
                return row
        raise InputError(f"no group {group!r}." + did_you_mean(group, [row.group for row in self.rows]))


@dataclass(frozen=True)
class MarketEffects(_RowsByGroup, TableMixin):
    """A figure of all groups before and after; prints as a table. ``effects["car"]`` is the row of a group."""

    quantity: str
    rows: tuple[MarketEffect, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON, by group."""
        return {row.group: {k: v for k, v in asdict(row).items() if k != "group"} for row in self.rows}

    def _cells(self) -> list[list[str]]:
        return self.cells()

    def cells(self, title: str | None = None) -> list[list[str]]:
        """Return the cells of the table, the heads first; the first head is ``title``, or the quantity."""
        share = self.quantity == "share"
        heads = [title or self.quantity, "before", "after", "change in points" if share else "change"]
        cells = [heads + ["interval"] * any(row.low is not None for row in self.rows)]
        for row in self.rows:
            values = [f"{value:.2%}" if share else number(value) for value in (row.before, row.after)]
            change, *ends = (self._signed(end) for end in (row.change, row.low, row.high) if end is not None)
            cells.append([row.group, *values, change, *([" to ".join(ends)] if ends else [])])
        return cells

    def _signed(self, change: float) -> str:
        """Write a change with its sign, of a share in points."""
        return f"{100 * change:+.2f}" if self.quantity == "share" else f"{'+' * (change > 0)}{number(change)}"


@dataclass(frozen=True, slots=True)
class DiversionRatio:
    """The part of what the changed alternatives lose that goes to a group, or of what they gain that comes from it."""

    group: str
    ratio: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Diversion(ToDictMixin, _RowsByGroup, TableMixin):
    """Diversion ratios of the groups that the change is not of; prints as a table."""

    of: tuple[str, ...]  # the groups that the change is of
    rows: tuple[DiversionRatio, ...]

    def _cells(self) -> list[list[str]]:
        between = any(row.low is not None for row in self.rows)
        cells = [["group", "diversion", *(["interval"] if between else [])]]
        for row in self.rows:
            ends = [] if row.low is None or row.high is None else [f"{row.low:.1%} to {row.high:.1%}"]
            cells.append([row.group, f"{row.ratio:.1%}", *ends])
        return cells


class MarketTables:
    """The figures of an answer, put into rows."""

    def __init__(self, question: MarketComparison, estimate_figures: EstimatedFigures, names: tuple[str, ...]) -> None:
        self.question, self.names = question, names
        self.values = question.split(estimate_figures.values)
        self.low, self.high = (
            None if end is None else question.split(end) for end in (estimate_figures.low, estimate_figures.high)
        )
        self.has_diversion, self.has_mixed_signs = (
            question.has_diversion(estimate_figures.values),
            question.has_mixed_signs(estimate_figures.values),
        )

    def effects(self, block: str, quantity: str, more: Sequence[str] = ()) -> MarketEffects:
        """Return shares, volumes or revenue by group."""
        tops = {"shares": 1.0, "volumes": float(self.question.after.data.weights.sum())}
        least, most = (0.0, tops[block]) if block in tops else (-np.inf, np.inf)
        rows = []
        for k, group in enumerate((*self.names, *more)):
            before, after, change = self.values[block][:, k].tolist()
            ends: dict[str, float] = {}
            if self.low is not None and self.high is not None:
                _, after_low, low = self.low[block][:, k].tolist()
                _, after_high, high = self.high[block][:, k].tolist()
                ends = {"low": low, "high": high}
                ends |= {"after_low": max(after_low, least), "after_high": min(after_high, most)}
            rows.append(MarketEffect(group=group, before=before, after=after, change=change, **ends))
        return MarketEffects(quantity, tuple(rows))

    def revenue(self, column: str | None) -> MarketEffects | str:
        """Return the revenue by group and in all, or why there is none."""
        if column is None:
            return "no column of revenue was named: give revenue=<column>."
        return self.effects("revenue", f"revenue, {column}", ["all"])

    def diversion(self) -> Diversion | str:
        """Return the diversion ratios, or why there are none."""
        changed = self.question.changed
        if changed.all():
            return "the change is of all alternatives, so nothing is diverted from some of them to others."
        if self.has_mixed_signs:
            return "some of the changed alternatives lose and others gain: ask for one change at a time."
        if not self.has_diversion:
            return "the changed alternatives lose and gain nothing, so nothing is diverted."
        rows = [
            DiversionRatio(self.names[k], *self._with_ends("diversion", k)) for k in np.flatnonzero(~changed).tolist()
        ]
        return Diversion(tuple(self.names[k] for k in np.flatnonzero(changed)), tuple(rows))

    def surplus(self) -> dict[str, ConsumerSurplus]:
        """Return the consumer surplus by its name, if there is one."""
        if (cost := self.question.cost) is None:
            return {}
        data = self.question.before.data
        mean, low, high = self._with_ends("surplus", 0)
        unit = data.schema.named[cost].unit if cost in data.schema.named else None
        found = ConsumerSurplus(unit or cost, mean, low, high, total=mean * float(data.weights.sum()))
        return {"consumer_surplus": found}

    def _with_ends(self, block: str, k: int) -> tuple[float, float | None, float | None]:
        low, high = (None if end is None else float(end[block][k]) for end in (self.low, self.high))
        return float(self.values[block][k]), low, high
