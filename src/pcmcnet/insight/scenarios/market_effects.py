"""Effects of a change on a market: shares, volumes and revenue before and after, diversion and consumer surplus."""

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
from pcmcnet.insight.queries import column_and_limits, group_values, segments, table_column, with_alternatives
from pcmcnet.insight.scenarios.offers import ScenarioOffer
from pcmcnet.models.ensemble import Ensemble
from pcmcnet.models.logit.logit_model import LogitModel
from pcmcnet.reports.formats import ToDictMixin
from pcmcnet.reports.frames import FrameMixin
from pcmcnet.reports.tables import TableMixin, number, percent

# -- Groups ------------------------------------------------------------------------------------------------------------
# Groups of alternatives before and after a change: by label, by position in the set, or by a column.
#
# Groups by a feature use its values in each table: an alternative whose value changes is in another group afterwards.
# Groups by an individual-level column are the labels within each of its segments, which consist of the same sets before
# and after; such a column must not change in the scenario.

LABEL = "label"  # value of ``by`` for groups by label, whatever the name of the label column
_NEW_GROUP = "(new)"  # group of added alternatives, if groups are positions


class Groups(NamedTuple):
    """G groups of alternatives, before and after a change."""

    names: tuple[str, ...]
    by: str  # what defines the groups
    before: Ints  # (N0,) group of each alternative
    after: Ints  # (N,) group of each alternative
    segment: Ints  # (G,) segment of choice sets that each group belongs to
    changed: Bools  # (G,) True if an alternative of the group changes


@dataclass(frozen=True)
class MergedGroups:
    """A grouping by labels (None) or by a feature, with some groups merged into one. The merged group comes first.

    The merged group has intervals of its own: the interval of a sum is not the sum of the intervals.
    """

    by: str | None
    names: tuple[str, ...]

    def merge(self, groups: Groups) -> Groups:
        """Return the groups with those of :attr:`names` merged, or raise InputError if there is none."""
        is_merged = np.isin(np.array(groups.names, object), np.array(self.names, object))
        if not is_merged.any() or groups.segment.any():
            problem = "the groups have segments" if groups.segment.any() else f"there is no group {self.names[0]!r}"
            raise InputError(f"merge: {problem}: name groups of alternatives, such as {groups.names[0]!r}.")
        place = np.where(is_merged, 0, np.cumsum(~is_merged))
        unmerged = [name for name, merged in zip(groups.names, is_merged, strict=True) if not merged]
        names = (", ".join(self.names), *unmerged)
        changed = np.bincount(place, groups.changed, len(names)) > 0
        segment = np.zeros(len(names), np.int64)
        return Groups(names, groups.by, place[groups.before], place[groups.after], segment, changed)


def group_alternatives(first: ChoiceData, offer: ScenarioOffer, by: str | None) -> Groups:
    """Group the alternatives of the original table and of the changed offer."""
    # 1. A group for each alternative before and after, and a segment for each set.
    label = first.schema.alternative
    column_segments = None if by is None or by in (LABEL, label) else segments(first, by)
    if column_segments is not None and not column_segments.of_sets:
        if column_and_limits(first, str(by))[1] is not None:
            raise InputError(
                f"by={by!r}: limits need an individual-level column, which is constant within choice sets."
            )
        order, before, after = _values(first, offer, str(by))
        names, *codes = _numbered(before, after, order)
        segment, segment_names, group_name = np.zeros(len(first), np.int64), [""], str(by)
    else:
        if column_segments is not None:
            _require_unchanged(first, offer, str(by))
        before, after = _labels_or_places(first, offer)
        names, *codes = _numbered(before, after, sorted(set(before), key=_natural))
        segment = (
            np.zeros(len(first), np.int64) if column_segments is None else column_segments.codes[first.offsets[:-1]]
        )
        segment_names, group_name = ([""] if column_segments is None else list(column_segments.names)), label or "place"
    G, B = len(names), len(segment_names)
    # 2. A separate group for each combination of segment and name.
    old, new = (
        code + G * segment[data.set_of_alternative] for code, data in zip(codes, (first, offer.data), strict=True)
    )
    # 3. Groups with an alternative that is changed, added or removed.
    changed = np.zeros(G * B, np.bool_)
    changed[new[offer.touched]] = True
    changed[old[offer.lost]] = True
    changed[old[offer.origin[offer.touched & _originals(offer)]]] = True
    every = tuple(f"{part}: {name}" if part else name for part in segment_names for name in names)
    return Groups(every, f"{by}, {group_name}" if B > 1 else group_name, old, new, np.repeat(np.arange(B), G), changed)


def _labels_or_places(first: ChoiceData, offer: ScenarioOffer) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return each alternative's label before and after the change, or its position if there are no labels."""
    if first.labels is not None and offer.names is not None:
        return first.labels.plain(), offer.names
    place = np.array([f"#{k + 1}" for k in range(first.largest)], object)
    names = place[consecutive_indices(np.zeros(len(first), np.int64), first.sizes)]
    return names, np.where(_originals(offer), names[offer.origin], _NEW_GROUP)


def _originals(offer: ScenarioOffer) -> Bools:
    """Return a mask (N,) of the original alternatives. A second alternative with the same origin counts as a copy."""
    original = np.zeros(len(offer.origin), np.bool_)
    original[np.unique(offer.origin, return_index=True)[1]] = True
    return original & (offer.origin >= 0)


def _values(first: ChoiceData, offer: ScenarioOffer, by: str) -> tuple[tuple[str, ...], NDArray[Any], NDArray[Any]]:
    """Return the groups defined by a feature, in order, and each alternative's group before and after the change."""
    before, after = (table_column(data, by)[0].plain() for data in (first, offer.data))
    unchanged = (offer.origin >= 0).all() and np.array_equal(after.astype(str), before[offer.origin].astype(str))
    names, codes = group_values(
        before if unchanged else np.concatenate([before, after])
    )  # the same cuts for both tables
    words = np.array(names, object)[codes]
    return names, words[: len(before)], words[offer.origin] if unchanged else words[len(before) :]


def _require_unchanged(first: ChoiceData, offer: ScenarioOffer, by: str) -> None:
    """Raise InputError if the scenario changes the column that defines the segments."""
    column, _ = column_and_limits(first, by)
    before, after = (table_column(data, column)[0].plain().astype(str) for data in (first, offer.data))
    if not np.array_equal(before, after):
        raise InputError(
            f"by={by!r}: the scenario changes this column, so its segments would not consist of the same choice sets "
            f"before and after. Group by another column, for example by a copy of this column in keep=[...]."
        )


def _numbered(before: NDArray[Any], after: NDArray[Any], order: Any) -> tuple[list[str], Ints, Ints]:
    """Return all names, those of the original table first, and each value's index before and after the change."""
    used = set(before)
    names = [name for name in order if name in used]
    names += [name for name in dict.fromkeys(after) if name not in used]
    index = {name: k for k, name in enumerate(names)}
    first, second = (np.array([index[name] for name in values], np.int64) for values in (before, after))
    return names, first, second


def _natural(name: str) -> tuple[int, str]:
    """Return a sort key that places "#2" before "#10"."""
    return (int(name[1:]), "") if name.startswith("#") and name[1:].isdigit() else (0, name)


# -- Surplus -----------------------------------------------------------------------------------------------------------
# Consumer surplus: the value of a change to consumers, in units of a cost (Small & Rosen, 1981).
#
# With L the expected maximum utility of a choice set (the log-sum of a logit) and a the marginal utility of money,
#
#     surplus of set S = sum_c pi_c (L_c after - L_c before) / a_c
#
# over the classes c of people; most models have one class. To find a, the costs of all alternatives of a set are raised
# by the same amount h: then L falls by a h. If this holds for every h, the marginal utility of money is constant and a
# difference of log-sums has a value in money. Otherwise, as with log(cost) or a cost coefficient for each alternative,
# the surplus is not defined. A gain is positive. The outside option has no cost to raise, so only a is computed from
# the log-sum of the other alternatives.

_RELATIVE_TOLERANCE = 1e-6  # relative difference of marginal utilities that counts as rounding


@dataclass(frozen=True, slots=True)
class ConsumerSurplus(FrameMixin):
    """Change in consumer surplus, with a positive sign for a gain.

    Attributes
    ----------
    unit
        Unit of the cost, or the name of the cost column.
    mean
        Mean change in consumer surplus per choice set.
    low, high
        Limits of the interval for the mean, or None if there are no intervals.
    total
        Weighted sum of the changes over all choice sets.
    """

    unit: str
    mean: float
    low: float | None
    high: float | None
    total: float

    def _frame_rows(self) -> list[dict[str, Any]]:
        return [asdict(self)]

    def __str__(self) -> str:
        ends = "" if self.low is None or self.high is None else f" ({number(self.low)} to {number(self.high)})"
        return f"{number(self.mean)} {self.unit} per choice set{ends}, {number(self.total)} in total"


def surplus_by_set(model: Any, before: ChoiceData, after: ChoiceData, cost: str) -> Floats:  # -> (S,)
    """Return the change in surplus in each set, after :func:`require_surplus` has checked that it is defined."""
    (old, shares), (new, _) = model._log_sums(before), model._log_sums(after)
    surplus: Floats = (shares * (new - old) / marginal_utility(model, before, cost, old)).sum(axis=1)
    return surplus


def marginal_utility(
    model: Any, data: ChoiceData, cost: str, sums: Floats, part: float = 1.0
) -> Floats:  # (S, C) -> (S, C)
    """Return the decrease in the log-sums per unit of cost if all costs rise by ``part`` times the mean cost."""
    if data.outside is not None:
        data = _with_costs(data)
        sums = model._log_sums(data)[0]
    column = data.features[cost]
    assert isinstance(column, Numeric)
    values = column.values.astype(np.float64)
    step = part * (float(np.nanmean(np.abs(values))) or 1.0)
    raised = Numeric(values + step)  # type: ignore[arg-type]  # float64: float32 would round a small step away
    moved = replace(data, features={**data.features, cost: raised})
    utility: Floats = (sums - model._log_sums(moved)[0]) / step
    return utility


def _with_costs(data: ChoiceData) -> ChoiceData:
    """Return the data without the outside option, and without sets that offer only the outside option."""
    if data.outside is None:
        return data
    sizes = sum_by_set((~data.outside).astype(np.int64), data.offsets)
    return with_alternatives(data, np.flatnonzero(~data.outside), sizes).subset(sizes > 0)


def require_surplus(model: Any, before: ChoiceData, after: ChoiceData, cost: str | None) -> str:
    """Return the cost column, or raise InputError with the reason if the surplus is not defined."""
    name = type(model).__name__
    sums = getattr(model, "_log_sums", lambda data: None)(before)
    if sums is None:
        raise InputError(
            f"{name} has no utilities and no log-sum: consumer surplus is available for logits (multinomial, "
            f"nested, latent class, mixed) and for ensembles of logits."
        )
    if cost is None:
        raise InputError("consumer surplus needs a cost column: pass cost=<column>.")
    # 1. Check that every set has a cost, and that utility depends on it.
    later, moved = model._log_sums(after)
    at = marginal_utility(model, before, cost, sums[0])
    if len(at) < len(before):
        raise InputError("some choice sets offer only the outside option, which has no cost.")
    if not np.any(np.abs(at) > 1e-12):
        raise InputError(f"the utility of {name} does not depend on {cost!r}, so the surplus is not defined.")
    # 2. Check that the marginal utility is constant for another amount and after the change, with the same classes.
    priced = np.isin(before.set_ids, _with_costs(after).set_ids)
    pairs = (
        (at, marginal_utility(model, before, cost, sums[0], part=0.5)),
        (at[priced], marginal_utility(model, after, cost, later)),
    )
    if not all(
        np.allclose(a, b, rtol=_RELATIVE_TOLERANCE, atol=_RELATIVE_TOLERANCE * np.abs(at).max()) for a, b in pairs
    ):
        raise InputError(
            f"the marginal utility of {cost!r} is not the same for all alternatives and amounts, so a difference in "
            f"log-sums has no monetary value: use a formula in which {cost} is linear, with one coefficient."
        )
    if not np.allclose(sums[1], moved, rtol=0, atol=_RELATIVE_TOLERANCE):
        raise InputError("the change alters class membership, so utilities before and after cannot be compared.")
    # 3. Check that a higher cost lowers utility.
    if (at <= 0).any():
        odd = float((moved * (at <= 0)).sum(axis=1).mean())
        raise InputError(
            f"a higher {cost!r} raises utility for {percent(odd)} of the people, so this column is not a cost "
            f"to them and the surplus is not defined."
        )
    return cost


# -- Figures -----------------------------------------------------------------------------------------------------------
# Shares, volumes, revenue, diversion and surplus of a model as one vector, with intervals.
#
# With the probabilities p, the weights w of the sets and the revenue r of an alternative, for each group g
#
#     volume_g = sum w p      share_g = volume_g / sum w      revenue_g = sum w p r      margin_g = sum w p (r - k)
#
# before and after the change, where k is the unit cost of an alternative. If the alternatives T change and their volume
# changes by D_T,
#
#     diversion to g = - D_g / D_T        for a group g outside T; these sum to 1.
#
# If some alternatives in T lose and others gain, D_T is only the net effect and diversion is not defined.
#
# All figures are functions of the model. Intervals follow from the standard errors of its coefficients by the delta
# method, or from the members of an ensemble.

_MIN_SHARE_CHANGE = 1e-12  # smaller changes in a share are rounding errors


Predict = Callable[[Any, ChoiceData], Floats]  # model, choice sets -> log-probability of each alternative (N,)


class MarketState(NamedTuple):
    """The alternatives on offer before or after a change, by group."""

    data: ChoiceData
    codes: Ints  # (N,) group of each alternative
    revenue: Floats | None  # (N,)
    margin: Floats | None = None  # (N,)


@dataclass(frozen=True)
class MarketComparison:
    """The market before and after a change, from which all figures of a model are computed."""

    before: MarketState
    after: MarketState
    segment: Ints  # (G,) segment of choice sets that each group belongs to
    changed: Bools  # (G,) True if an alternative of the group changes
    cost: str | None  # cost column; None if the surplus is not defined
    predict: Predict = predicted_log_p

    @property
    def groups(self) -> int:
        """Number of groups, G."""
        return len(self.segment)

    @property
    def length(self) -> int:
        """Number of figures that :meth:`compute` returns."""
        return 6 * self.groups + 6 * (self.groups + 1) + self.groups + 1

    def weights(self, state: MarketState) -> Floats:
        """Return the total weight (G,) of the choice sets in the segment of each group."""
        data = state.data
        totals = np.bincount(self.segment[state.codes[data.offsets[:-1]]], data.weights, self.segment[-1] + 1)
        weights: Floats = np.where(totals > 0, totals, 1.0)[self.segment]
        return weights

    def volumes(self, model: Any) -> tuple[Floats, Floats, Floats]:
        """Return volumes (2, G), revenue (2, G + 1) and margin (2, G + 1) before and after the change.

        The last entry of each row of revenue and margin is the total.
        """
        volumes, revenue, margin = (np.zeros((2, self.groups + more)) for more in (0, 1, 1))
        for k, state in enumerate((self.before, self.after)):
            mass = np.exp(self.predict(model, state.data)) * spread(state.data.weights, state.data.offsets)
            volumes[k] = np.bincount(state.codes, mass, self.groups)
            for money, values in ((revenue, state.revenue), (margin, state.margin)):
                if values is not None:
                    money[k, :-1] = np.bincount(state.codes, mass * values, self.groups)
                    money[k, -1] = money[k, :-1].sum()
        return volumes, revenue, margin

    def compute(self, model: Any) -> Floats:
        """Return all figures of a model as one vector, which :meth:`split` unpacks."""
        volumes, revenue, margin = self.volumes(model)
        shares = volumes / np.stack([self.weights(self.before), self.weights(self.after)])
        blocks = [
            np.concatenate([block, np.diff(block, axis=0)]).ravel() for block in (shares, volumes, revenue, margin)
        ]
        change = np.diff(shares, axis=0)[0]
        total = self._moved(change)
        ratio = np.divide(-change, total, out=np.zeros_like(change), where=~self.changed & (total != 0))
        surplus = 0.0
        if self.cost is not None:
            by_set = surplus_by_set(model, self.before.data, self.after.data, self.cost)
            surplus = float(np.average(by_set, weights=self.before.data.weights))
        return np.concatenate([*blocks, ratio, [surplus]])

    def _moved(self, change: Floats) -> Floats:
        """Return for each group (G,) how much the changed groups of the same segment gain in share together."""
        moved: Floats = np.bincount(self.segment, change * self.changed).astype(np.float64)
        return moved[self.segment]

    def has_diversion(self, figures: Floats) -> bool:
        """Return True if the changed alternatives gain or lose share in every segment."""
        return bool((np.abs(self._moved(self.split(figures)["shares"][2])) > _MIN_SHARE_CHANGE).all())

    def has_mixed_signs(self, figures: Floats) -> bool:
        """Return True if, within a segment, some changed groups lose share while others gain share."""
        change = self.split(figures)["shares"][2]
        gain, lose = (
            np.bincount(self.segment, self.changed & (sign * change > _MIN_SHARE_CHANGE)) > 0 for sign in (1, -1)
        )
        return bool((gain & lose).any())

    def split(self, figures: Floats) -> dict[str, Floats]:
        """Unpack the vector of figures.

        Shares and volumes have the shape (3, G), revenue and margin (3, G + 1): values before the change, values after
        it, and differences. Diversion has the shape (G,) and surplus (1,).
        """
        G = self.groups
        ends = np.cumsum([3 * G, 3 * G, 3 * (G + 1), 3 * (G + 1), G])
        shares, volumes, revenue, margin, diversion, surplus = np.split(figures, ends)
        return {
            "shares": shares.reshape(3, G),
            "volumes": volumes.reshape(3, G),
            "revenue": revenue.reshape(3, G + 1),
            "margin": margin.reshape(3, G + 1),
            "diversion": diversion,
            "surplus": surplus,
        }


class EstimatedFigures(NamedTuple):
    """Figures with intervals, and the method used for the intervals or the reason why there are none."""

    values: Floats
    low: Floats | None
    high: Floats | None
    how: str


def estimate_figures(
    model: Any,
    compute: Callable[[Any], Floats],
    *,
    level: float,
    errors: Any,
    intervals: bool,
    posterior: Sequence[Any] = (),
    posterior_of: str = "part-worths",
) -> EstimatedFigures:
    """Compute the figures of a model, with intervals if the model allows them, or quantiles over ``posterior`` models.

    ``posterior`` contains one model for each draw from the posterior distribution. ``posterior_of`` names what was
    drawn, for the text about the intervals.
    """
    values, name = compute(model), type(model).__name__
    if errors is not None and not isinstance(model, LogitModel):
        raise InputError(f"errors: {name} has no standard errors, which only logits have: omit errors.")
    if not intervals:
        return EstimatedFigures(values, None, None, "no intervals requested")
    if posterior:
        draws = np.stack([compute(drawn) for drawn in posterior])
        low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        how = f"{level:.0%} intervals from {len(posterior)} draws of the {posterior_of}"
        return EstimatedFigures(values, np.minimum(low, values), np.maximum(high, values), how)
    if isinstance(model, Ensemble):
        spread_ = model.over(compute, level)
        ends = np.minimum(spread_.low, values), np.maximum(spread_.high, values)
        return EstimatedFigures(
            values, *ends, f"{level:.0%} intervals from the {len(model.members_)} members of the ensemble"
        )
    if isinstance(model, LogitModel):
        from scipy.special import ndtri

        kind = errors or model.default_errors
        _, error = model.estimates_.delta(lambda b: compute(model.with_values(b)), kind)
        reach = float(ndtri((1 + level) / 2)) * error
        how = f"{level:.0%} intervals by the delta method, {kind} standard errors"
        return EstimatedFigures(values, values - reach, values + reach, how)
    return EstimatedFigures(
        values, None, None, f"no intervals: {name} has no standard errors; use pn.bootstrap, or fit an Ensemble"
    )


# -- Effects -----------------------------------------------------------------------------------------------------------
# Figures of each group before and after a change, with intervals, as printable tables.


@dataclass(frozen=True, kw_only=True, slots=True)
class MarketEffect:
    """One figure of one group before and after a change.

    Attributes
    ----------
    group
        Name of the group.
    before, after, change
        Figure before the change, figure after the change, and their difference.
    low, high
        Limits of the interval for the change, or None if there are no intervals.
    after_low, after_high
        Limits of the interval for the figure after the change, or None if there are no intervals.
    """

    group: str
    before: float
    after: float
    change: float
    low: float | None = None
    high: float | None = None
    after_low: float | None = None
    after_high: float | None = None


class _RowsByGroup:
    """Mixin for access to rows by the name of their group."""

    __slots__ = ()
    rows: tuple[Any, ...]

    def __getitem__(self, group: str) -> Any:
        """Return the row of a group."""
        for row in self.rows:
            if row.group == group:
                return row
        raise InputError(f"no group {group!r}." + did_you_mean(group, [row.group for row in self.rows]))


@dataclass(frozen=True)
class MarketEffects(_RowsByGroup, TableMixin):
    """One figure for all groups before and after a change.

    For example, ``effects["car"]`` is the row of the group "car".

    Attributes
    ----------
    quantity
        Name of the figure.
    rows
        One row for each group of alternatives.
    """

    quantity: str
    rows: tuple[MarketEffect, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the figures of each group as JSON-compatible values."""
        return {row.group: {k: v for k, v in asdict(row).items() if k != "group"} for row in self.rows}

    def _cells(self) -> list[list[str]]:
        return self.cells()

    def cells(self, title: str | None = None) -> list[list[str]]:
        """Return the cells of the table, with ``title`` (the quantity by default) as the first cell of the header."""
        share = self.quantity == "share"
        heads = [title or self.quantity, "before", "after", "change in points" if share else "change"]
        cells = [heads + ["interval"] * any(row.low is not None for row in self.rows)]
        for row in self.rows:
            values = [f"{value:.2%}" if share else number(value) for value in (row.before, row.after)]
            change, *ends = (self._signed(end) for end in (row.change, row.low, row.high) if end is not None)
            cells.append([row.group, *values, change, *([" to ".join(ends)] if ends else [])])
        return cells

    def _signed(self, change: float) -> str:
        """Return a change with its sign, in percentage points if the figure is a share."""
        return f"{100 * change:+.2f}" if self.quantity == "share" else f"{'+' * (change > 0)}{number(change)}"


@dataclass(frozen=True, slots=True)
class DiversionRatio:
    """Share of the changed alternatives' loss that goes to a group, or of their gain that comes from the group.

    Attributes
    ----------
    group
        Name of the group.
    ratio
        Diversion ratio.
    low, high
        Limits of the interval for the ratio, or None if there are no intervals.
    """

    group: str
    ratio: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Diversion(ToDictMixin, _RowsByGroup, TableMixin):
    """Diversion ratios of the unchanged groups. For example, ``diversion["bus"]`` is the row of the group "bus".

    Attributes
    ----------
    of
        Names of the changed groups.
    rows
        One row per unchanged group.
    """

    of: tuple[str, ...]
    rows: tuple[DiversionRatio, ...]

    def _cells(self) -> list[list[str]]:
        has_intervals = any(row.low is not None for row in self.rows)
        cells = [["group", "diversion", *(["interval"] if has_intervals else [])]]
        for row in self.rows:
            ends = [] if row.low is None or row.high is None else [f"{row.low:.1%} to {row.high:.1%}"]
            cells.append([row.group, f"{row.ratio:.1%}", *ends])
        return cells


class MarketTables:
    """Tables of a model's figures by group."""

    def __init__(self, comparison: MarketComparison, figures: EstimatedFigures, names: tuple[str, ...]) -> None:
        self.comparison, self.names = comparison, names
        self.values = comparison.split(figures.values)
        self.low, self.high = (None if end is None else comparison.split(end) for end in (figures.low, figures.high))
        self.has_diversion = comparison.has_diversion(figures.values)
        self.has_mixed_signs = comparison.has_mixed_signs(figures.values)

    def effects(self, block: str, quantity: str, more: Sequence[str] = ()) -> MarketEffects:
        """Return shares, volumes or revenue by group."""
        tops = {"shares": 1.0, "volumes": float(self.comparison.after.data.weights.sum())}
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
        """Return the revenue by group and in total, or the reason why it is not available."""
        if column is None:
            return "revenue is not available: pass revenue=<column>."
        return self.effects("revenue", f"revenue, {column}", ["all"])

    def margin(self, revenue: str, unit_cost: str) -> MarketEffects:
        """Return the margin by group and in total."""
        return self.effects("margin", f"margin, {revenue} - {unit_cost}", ["all"])

    def diversion(self) -> Diversion | str:
        """Return the diversion ratios, or the reason why they are not available."""
        changed = self.comparison.changed
        if changed.all():
            return "every group has an alternative that changes, so there are no unchanged groups to divert to or from."
        if self.has_mixed_signs:
            return "some of the changed alternatives lose share and others gain share: run one change at a time."
        if not self.has_diversion:
            return "the shares of the changed alternatives stay the same, so there is no diversion."
        rows = [
            DiversionRatio(self.names[k], *self._with_ends("diversion", k)) for k in np.flatnonzero(~changed).tolist()
        ]
        return Diversion(tuple(self.names[k] for k in np.flatnonzero(changed)), tuple(rows))

    def surplus(self) -> dict[str, ConsumerSurplus]:
        """Return a mapping with the consumer surplus, or an empty mapping if the surplus is not defined."""
        if (cost := self.comparison.cost) is None:
            return {}
        data = self.comparison.before.data
        mean, low, high = self._with_ends("surplus", 0)
        unit = data.schema.named[cost].unit if cost in data.schema.named else None
        surplus = ConsumerSurplus(unit or cost, mean, low, high, total=mean * float(data.weights.sum()))
        return {"consumer_surplus": surplus}

    def _with_ends(self, block: str, k: int) -> tuple[float, float | None, float | None]:
        low, high = (None if end is None else float(end[block][k]) for end in (self.low, self.high))
        return float(self.values[block][k]), low, high
