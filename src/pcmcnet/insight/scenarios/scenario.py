"""``scenario``: predict the effect of changes to a table on the market.

The model predicts probabilities for the original and the changed table, and ``market_effects.py`` sums the
probabilities by group. A figure that is not available, such as the surplus of a model without utilities, is left out,
and the reason is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.checks import require_number, suggests_arguments
from pcmcnet.data import ChoiceData, ChunkedData, Schema, read_wide
from pcmcnet.data.columns.arrays import Categorical, Column, Numeric, stored_values
from pcmcnet.data.columns.ragged import consecutive_indices
from pcmcnet.data.files.tabular import read_table
from pcmcnet.data.outside import with_blank_outside_features
from pcmcnet.data.rankings import first_choices
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import (
    Predictor,
    gives_of,
    predicted_log_p,
    require_data,
    require_predictor,
    require_sets,
)
from pcmcnet.insight.queries import column_of_grouping, numeric_values, with_values
from pcmcnet.insight.scenarios.language import columns_named_in, parse_change
from pcmcnet.insight.scenarios.market_effects import (
    ConsumerSurplus,
    Diversion,
    EstimatedFigures,
    Groups,
    MarketComparison,
    MarketEffects,
    MarketState,
    MarketTables,
    MergedGroups,
    Predict,
    estimate_figures,
    group_alternatives,
    require_surplus,
)
from pcmcnet.insight.scenarios.offers import ChangeExtent, ScenarioOffer
from pcmcnet.models.hierarchical_mnl import HierarchicalMNL
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logit.standard_errors import Errors
from pcmcnet.reports.formats import FormatsMixin, ResultContent, to_json
from pcmcnet.reports.frames import data_frame
from pcmcnet.reports.tables import number

POSTERIOR_MODELS = 40  # draws of the population of a hierarchical logit that give the intervals

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ScenarioView = Literal["shares", "volumes", "revenue"]

# -- Tables ------------------------------------------------------------------------------------------------------------
# Reading the original table, and comparing it with a table that the caller has changed.
#
# A changed table has the same choice sets, by their ids. An alternative is matched to the one with the same label, or
# with the same position in the set if there are no labels; all others are new.


def read_sets(model: Any, data: Any, named: Iterable[str]) -> ChoiceData:
    """Read a table according to the model's schema, with the columns in ``named`` as additional features.

    Choices, weights, persons and kept columns are optional. A ranking is reduced to its first choice, because the later
    ranks are choices among the remaining alternatives.
    """
    schema = getattr(model, "schema", None)
    if isinstance(data, ChoiceData | ChunkedData) or not isinstance(schema, Schema):
        return first_choices(require_data(model, data))
    rows = read_table(data, text=schema.text_columns, ids=schema.id_columns)
    if not schema.has_choices_in(rows.column_names):
        schema = replace(schema, chosen=None, rank=None, counts=None)
    columns = set((rows := read_wide.long_form(rows, schema) or rows).column_names)
    absent = {role: None for role in ("weight", "person") if getattr(schema, role) not in columns}
    extra = [name for name in dict.fromkeys(named) if name in columns and name not in schema.columns]
    words = [name for name in extra if not _is_number(rows.schema.field(name).type)]
    sets = ChoiceData.from_schema(
        rows,
        replace(
            schema,
            keep=tuple(name for name in schema.keep if name in columns),
            features=(*schema.features, *extra),
            categorical=(*(schema.categorical or ()), *words),
            **absent,  # type: ignore[arg-type]
        ),
    )
    return first_choices(sets)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def apply_result(offer: ScenarioOffer, result: Any) -> tuple[ScenarioOffer, ChangeExtent]:
    """Return the offer after a change, given the changed choice data or a mapping from columns to new values."""
    if isinstance(result, ChoiceData):
        return _matched(offer, with_blank_outside_features(first_choices(result)))
    if isinstance(result, Mapping):
        data, touched = offer.data, offer.touched.copy()
        for name, values in result.items():
            data = with_blank_outside_features(with_values(data, str(name), values))
        moved = _differ(offer.data, data, np.arange(len(touched)))
        return replace(offer, data=data, touched=touched | moved), ChangeExtent.of(moved, data)
    raise InputError(
        f"a function used as a change must return choice data or a mapping from columns to new values, got "
        f"{type(result).__name__}."
    )


def _matched(offer: ScenarioOffer, data: ChoiceData) -> tuple[ScenarioOffer, ChangeExtent]:
    """Return the offer of a changed table, matched to the alternatives of the previous offer."""
    # 1. Put the choice sets into the original order.
    before = offer.data
    place = {value: k for k, value in enumerate(before.set_ids.tolist())}
    ids = data.set_ids.tolist()
    if len(ids) != len(place) or any(value not in place for value in ids):
        unknown = next((value for value in ids if value not in place), None)
        problem = f"{len(ids):,} choice sets" if unknown is None else f"the choice set {unknown}"
        raise InputError(f"changed table: expected the {len(place):,} choice sets of the original, got {problem}.")
    data = data.subset(np.argsort([place[value] for value in ids]))
    if set(data.features) != set(before.features):
        raise InputError(
            "changed table: expected the features of the original table; read both with the same column roles."
        )
    # 2. Match the alternatives, and find those that changed.
    at = _places(offer, data)
    matched = at >= 0
    moved = ~matched
    moved[matched] = _differ(before, data, at[matched], np.flatnonzero(matched))
    names = None if data.labels is None else data.labels.plain()
    origin = np.where(matched, offer.origin[at], -1)
    touched = moved | np.where(matched, offer.touched[at], True)
    # 3. Alternatives without a match were removed.
    lost = offer.lost.copy()
    gone = np.ones(len(before.rows), np.bool_)
    gone[at[matched]] = False
    lost[offer.origin[gone & (offer.origin >= 0)]] = True
    return replace(offer, data=data, names=names, origin=origin, touched=touched, lost=lost), ChangeExtent.of(
        moved, data
    )


def _places(offer: ScenarioOffer, data: ChoiceData) -> Ints:
    """Return the flat index (N,) of each alternative in the previous offer, or -1 for a new alternative."""
    before = offer.data
    if offer.names is None or data.labels is None:
        inside = consecutive_indices(np.zeros(len(data), np.int64), data.sizes)
        sizes = before.sizes[data.set_of_alternative]
        return np.where(inside < sizes, before.offsets[data.set_of_alternative] + inside, -1)
    old = {key: k for k, key in enumerate(zip(before.set_of_alternative.tolist(), offer.names, strict=True))}
    new = zip(data.set_of_alternative.tolist(), data.labels.plain(), strict=True)
    return np.array([old.get(key, -1) for key in new], np.int64)


def _differ(before: ChoiceData, after: ChoiceData, at: Ints, now: Ints | None = None) -> Bools:
    """Return a mask of the alternatives whose features or individual-level columns have changed."""
    now = at if now is None else now
    moved = np.zeros(len(at), np.bool_)
    for name, column in before.features.items():
        moved |= _values_differ(column, at, after.features[name], now)
    sets_before, sets_after = before.set_of_alternative[at], after.set_of_alternative[now]
    for name, column in before.individual.items():
        moved |= _values_differ(column, sets_before, after.individual[name], sets_after)
    return moved


def _has_new_values(first: ChoiceData, offer: ScenarioOffer) -> bool:
    """Return True if an alternative was added or removed, or a value differs from that of the original table."""
    every = np.arange(len(first.rows))
    return not np.array_equal(offer.origin, every) or bool(_differ(first, offer.data, every).any())


def _values_differ(first: Any, at: Ints, second: Any, now: Ints) -> Bools:
    """Return a mask of the values of a column that differ before and after, treating missing values as equal."""
    a, b = stored_values(first.take(at)), stored_values(second.take(now))
    if getattr(first, "categories", None) != getattr(second, "categories", None):  # codes are not comparable
        a, b = np.array(first.categories, object)[a], np.array(second.categories, object)[b]
    differ: Bools = (a != b) & ~((a != a) & (b != b))
    return differ


# -- Caveats -----------------------------------------------------------------------------------------------------------
# Limits of a scenario: values that the model has not seen, and models that do not return probabilities.

_NOT_PROBABILITIES = {
    "scores": "returns scores that sum to 1, not probabilities: use the shares only for comparisons",
    "ranking": "returns a ranking: a share is the frequency of the first rank",
}


def caveats(model: Any, first: ChoiceData, offer: ScenarioOffer) -> Iterator[str]:
    """Yield the limitations of the scenario, one sentence each."""
    yield from offer.notes
    if first.schema.rank is not None:
        yield "the table has rankings: only the first choices are used, each among all alternatives"
    seen = model.table_.columns if isinstance(model, ChoiceModel) else {}
    for role in ("features", "individual"):
        after = getattr(offer.data, role)
        for name, column in getattr(first, role).items():
            yield from _unseen(name, column, after[name], seen.get(name, {}))
    yield from _never_without(first, offer)
    yield from _wrong_signs(model, first, offer)
    if (gives := gives_of(model)) in _NOT_PROBABILITIES:
        yield f"{type(model).__name__} {_NOT_PROBABILITIES[gives]}"


def _unseen(name: str, before: Column, after: Column, seen: dict[str, Any]) -> Iterator[str]:
    """Yield notes on categories not seen in training, and on numbers outside the training range."""
    if isinstance(after, Categorical) and seen.get("distinct") == len(seen.get("categories", [])):
        new = sorted({*after.plain()} - {*seen["categories"], *before.plain()})
        if new:
            yield f"{name}: {', '.join(map(repr, new))} not seen in training, treated by the model as unknown"
    if isinstance(after, Numeric) and isinstance(before, Numeric) and seen.get("min") is not None:
        low, high = np.nanmin(after.values), np.nanmax(after.values)
        if low < min(seen["min"], np.nanmin(before.values)) or high > max(seen["max"], np.nanmax(before.values)):
            span = f"{seen['min']:g} to {seen['max']:g}"
            yield f"{name} ranges from {low:g} to {high:g}, outside the training range {span}: the model extrapolates"


def _wrong_signs(model: Any, first: ChoiceData, offer: ScenarioOffer) -> Iterator[str]:
    """Yield a note for each changed column whose effect in the model is against its expected sign."""
    now = np.flatnonzero(offer.origin >= 0)
    for name, caveat in (model.sign_caveats if isinstance(model, ChoiceModel) else {}).items():
        if _values_differ(first.features[name], offer.origin[now], offer.data.features[name], now).any():
            yield caveat


def _never_without(first: ChoiceData, offer: ScenarioOffer) -> Iterator[str]:
    """Yield a note if the scenario removes alternatives that every choice set offers."""
    if first.labels is None or not offer.lost.any():
        return
    counts = np.bincount(first.labels.codes, minlength=len(first.labels.categories))
    lost = np.unique(first.labels.codes[offer.lost])
    always = [first.labels.categories[k] for k in lost if counts[k] == len(first)]
    if always:
        them = "it" if len(always) == 1 else "them"
        yield (
            f"all choice sets of the table offer {', '.join(map(repr, always))}: choices without {them} were never "
            f"observed and are extrapolated from the model's functional form"
        )


# -- Result ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class AppliedChange:
    """A change, and the number of alternatives and choice sets that it affects."""

    text: str
    alternatives: int
    sets: int

    def __str__(self) -> str:
        sets = f"{self.sets:,} choice set{'s' * (self.sets != 1)}"
        return f"{self.text}: {self.alternatives:,} alternative{'s' * (self.alternatives != 1)} in {sets}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenario(FormatsMixin):
    """Result of :func:`scenario`, which can be exported as text, Markdown, HTML, LaTeX or a data frame.

    Attributes
    ----------
    model
        Name of the model class.
    steps
        The changes, in order.
    by
        Name of the column that defines the groups, or "place" for groups by position within sets.
    sets
        Number of choice sets.
    shares
        Share of each group in all choices before and after the changes, with an interval for the difference.
    volumes
        Weighted number of choices of each group before and after the changes.
    intervals
        Method used for the intervals, or the reason why there are none.
    notes
        Limitations of the scenario.
    parts
        The parts ``revenue``, ``diversion`` and ``consumer_surplus``, or the reason why a part is not available, and
        the part ``margin`` if unit costs were passed.
    """

    model: str
    steps: tuple[AppliedChange, ...]
    by: str
    sets: int
    shares: MarketEffects
    volumes: MarketEffects
    intervals: str
    notes: tuple[str, ...]
    parts: Mapping[str, Any]

    @property
    def revenue(self) -> MarketEffects:
        """Revenue of each group and in total. Raises InputError if no revenue column was passed."""
        revenue: MarketEffects = self._part("revenue")
        return revenue

    @property
    def margin(self) -> MarketEffects:
        """Margin of each group and in total. Raises InputError if no unit costs were passed."""
        margin: MarketEffects = self._part("margin")
        return margin

    @property
    def diversion(self) -> Diversion:
        """Diversion ratios: where choices lost by the changed alternatives go, or where gained choices come from."""
        diversion: Diversion = self._part("diversion")
        return diversion

    @property
    def consumer_surplus(self) -> ConsumerSurplus:
        """Change in consumer surplus, positive for a gain. Raises InputError if consumer surplus is not defined."""
        surplus: ConsumerSurplus = self._part("consumer_surplus")
        return surplus

    def _part(self, name: str) -> Any:
        """Return a part, or raise InputError with the reason if the part is not available."""
        part = self.parts.get(name, f"{name} is not available: pass revenue=<column> and unit_cost=<column>.")
        if isinstance(part, str):
            raise InputError(part)
        return part

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-compatible values. A part that is not available is None, and ``left_out`` gives the reason."""
        facts = {
            name: to_json(getattr(self, name)) for name in ("model", "by", "intervals", "shares", "volumes", "notes")
        }
        steps = {"changes": to_json(self.steps), "choice_sets": self.sets}
        parts = {name: None if isinstance(part, str) else to_json(part) for name, part in self.parts.items()}
        left_out = {name: part for name, part in self.parts.items() if isinstance(part, str)}
        return {**facts, **steps, **parts, "left_out": left_out}

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one flat mapping per group: shares, volumes and, if available, revenue and diversion."""
        blocks = {"share": self.shares, "volume": self.volumes}
        for name in ("revenue", "margin"):
            if isinstance(effects := self.parts.get(name), MarketEffects):
                blocks[name] = effects
        rows = []
        for group in (ratio.group for ratio in self.shares.rows):
            row_values: dict[str, Any] = {self.by: group}
            for name, effects in blocks.items():
                values = {k: v for k, v in asdict(effects[group]).items() if k != "group"}
                row_values |= {f"{name}_{'change_' * (k in ('low', 'high'))}{k}": v for k, v in values.items()}
            if isinstance(diversion := self.parts["diversion"], Diversion) and group not in diversion.of:
                ratio = diversion[group]
                row_values |= {"diversion": ratio.ratio, "diversion_low": ratio.low, "diversion_high": ratio.high}
            rows.append(row_values)
        return rows

    def to_arrow(self) -> pa.Table:
        """Return the rows of :meth:`to_rows` as an Arrow table, with null for missing figures."""
        rows = self.to_rows()
        names = dict.fromkeys(name for row in rows for name in row)
        kinds = [pa.field(name, pa.string() if name == self.by else pa.float64()) for name in names]
        return pa.Table.from_pylist(rows, schema=pa.schema(kinds))

    def to_frame(self) -> Any:
        """Return the rows of :meth:`to_rows` as a pandas data frame, indexed by group."""
        return data_frame(self.to_arrow(), index=self.by, instead="to_rows()")

    def plot(self, what: ScenarioView = "shares", *, ax: Axes | None = None, most: int = 12) -> Axes:
        """Plot a figure of each group before and after the changes, with intervals where the model has them.

        Parameters
        ----------
        what
            "shares" (the default), "volumes" or "revenue".
        ax
            Matplotlib Axes to draw on, or None (the default) to create a new figure.
        most
            Maximum number of groups (12 by default). Groups with the largest changes are kept.

        Returns
        -------
        matplotlib.axes.Axes
            The axes with the plot.

        Raises
        ------
        InputError
            If ``what`` is "revenue" and no revenue column was passed.
        """
        from pcmcnet.plots.scenario import plot_scenario

        return plot_scenario(self, ax, what=what, most=most)

    def _content(self) -> ResultContent:
        facts = {f"change {k}" if k > 1 else "change": str(step) for k, step in enumerate(self.steps, start=1)}
        for money in (self.parts["revenue"], self.parts.get("margin")):
            if not isinstance(money, MarketEffects):
                continue
            before, after, change, *ends = money.cells()[-1][1:]
            facts[money.quantity] = f"{before} before, {after} after, {change}" + "".join(f" ({end})" for end in ends)
        if isinstance(surplus := self.parts["consumer_surplus"], ConsumerSurplus):
            facts["consumer surplus"] = str(surplus)
        title = f"Scenario: {self.model} on {self.sets:,} choice sets"
        return ResultContent(title=title, cells=self._cells(), facts=facts, notes=(self.intervals, *self.notes))

    def _cells(self) -> list[list[str]]:
        """Return the cells of the table: shares, diversion, volumes if sets have weights, and revenue."""
        cells = self.shares.cells(self.by)
        if isinstance(diversion := self.parts["diversion"], Diversion):
            cells[0].append("diversion")
            for row in cells[1:]:
                row.append("-" if row[0] in diversion.of else f"{diversion[row[0]].ratio:.1%}")
        further = {"volume": None if self._unweighted else self.volumes, "revenue": self.parts["revenue"]}
        further["margin"] = self.parts.get("margin")
        for name, effects in further.items():
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


@suggests_arguments(call="scenario(model, data, 'price *= 1.1')")
def scenario(
    model: Predictor,
    data: Any,
    changes: Change | Sequence[Change],
    *,
    by: str | None = None,
    revenue: str | None = None,
    unit_cost: str | None = None,
    cost: str | None = None,
    level: float = 0.95,
    errors: Errors | None = None,
    intervals: bool = True,
) -> Scenario:
    """Predict the effect of changes to a table on shares, volumes, revenue and consumer surplus.

    Parameters
    ----------
    model
        A fitted model, or an object with the method ``predict_log_proba``.
    data
        Choice data, or a table that matches the model's schema. Choices are not needed. Changes can also refer to
        columns of the table that the model does not use.
    changes
        One change or a list of changes, applied in order. A change can be a string, such as ``"price *= 1.1 where mode
        == 'car'"``, ``"remove air"`` or ``"add tram like bus with time -= 10"`` (see
        :mod:`pcmcnet.insight.scenarios.language`). A change can also be a mapping from columns to new values, changed
        choice data with the same choice sets, or a function that takes choice data and returns either of these.
    by
        Column that defines the groups. By default, alternatives are grouped by label, or by position within sets if
        there are no labels. With an individual-level column, shares are computed within each segment of that column.
        A numeric individual-level column can have limits: ``"distance: 300, 600"`` has three segments.
    revenue
        Numeric feature with the revenue of an alternative. If None (the default), revenue is not computed.
    unit_cost
        Numeric feature with the seller's cost of an alternative, in the unit of ``revenue``. If None (the default), the
        margin, which is revenue minus unit cost, is not computed.
    cost
        Numeric feature with the cost of an alternative to the chooser, in whose unit consumer surplus is expressed. If
        None (the default), consumer surplus is not computed.
    level
        Confidence level of the intervals (0.95 by default).
    errors
        Kind of standard errors for a logit. By default, the model's default kind is used.
    intervals
        If True (the default), intervals are computed.

    Returns
    -------
    Scenario
        Figures before and after the changes.

    Raises
    ------
    InputError
        If a change is invalid, refers to an unknown column, selects no alternative, or sets a column that cannot
        change.
    ConfigError
        If ``level`` is not between 0 and 1.

    Examples
    --------
    >>> from pcmcnet.models import MNL
    >>> table = {"trip": [1, 1, 2, 2, 3, 3, 4, 4], "took": [1, 0, 0, 1, 1, 0, 0, 1], "cost": [2, 4, 5, 3, 4, 3, 5, 2]}
    >>> table["mode"] = ["car", "bus"] * 4
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode", features=["cost"])
    >>> result = scenario(MNL(formula="cost | 0").fit(data), data, "cost += 1 where mode == 'car'", intervals=False)
    >>> round(result.shares["car"].change, 3), round(result.diversion["bus"].ratio, 3)
    (-0.102, 1.0)
    """
    require_predictor(model)
    if by is not None and not isinstance(by, str):
        raise InputError(f"by: expected the name of a column, got {by!r}: call scenario once for each column.")
    every_change = [*_listed(changes)]
    columns = RevenueColumns(revenue, unit_cost, cost)
    first = read_sets(model, data, columns_of([every_change], [by], columns))
    options: dict[str, Any] = {"level": level, "errors": errors, "intervals": intervals}
    if intervals and isinstance(model, HierarchicalMNL):
        options |= {"posterior": model.posterior_models(POSTERIOR_MODELS), "posterior_of": "population"}
    return simulate(model, first, [every_change], [by], columns, **options)[0][0]


class RevenueColumns(NamedTuple):
    """Columns in money, each None if not given: revenue, unit cost of the seller, and cost to the chooser."""

    revenue: str | None = None
    unit_cost: str | None = None
    cost: str | None = None


def columns_of(
    scenarios: Iterable[Sequence[Change]], groupings: Iterable[str | None], columns: RevenueColumns
) -> list[str]:
    """Return the columns that scenarios and options refer to."""
    groupings = [None if by is None else column_of_grouping(by) for by in groupings]
    named = [name for change_list in scenarios for name in _named(change_list, *groupings, *columns)]
    return list(dict.fromkeys(named))


def simulate(
    model: Predictor,
    first: ChoiceData,
    scenarios: Sequence[Sequence[Change]],
    groupings: Sequence[str | MergedGroups | None],
    columns: RevenueColumns,
    *,
    level: float = 0.95,
    errors: Errors | None = None,
    intervals: bool = True,
    surplus: bool = True,
    predict: Predict = predicted_log_p,
    posterior: Sequence[Any] = (),
    posterior_of: str = "part-worths",
    require_size: Callable[[ChoiceData], None] = lambda data: None,
) -> list[list[Scenario]]:
    """Return each scenario (a list of changes, which may be empty) with its figures by each grouping.

    Each table is predicted once for all groupings, and the original table once for all scenarios. The options are
    described in :func:`scenario`. ``surplus`` is False if consumer surplus is not needed. ``predict`` returns the
    log-probabilities of a model for choice sets. ``posterior`` has a model for each draw of the posterior distribution
    of ``posterior_of``, for the intervals. ``require_size`` raises an error if a changed table is too large.
    """
    require_number("level", level, low=0, high=1, open_low=True, open_high=True)
    # 1. Check the original table and the columns in money.
    require_sets(first)
    if columns.unit_cost is not None and columns.revenue is None:
        raise InputError(f"unit_cost={columns.unit_cost!r} needs the revenue: pass revenue=<column>, too.")
    if columns.cost is not None:
        _feature(first, columns.cost, "cost")
    labels = known_labels(model, first)
    shared = SharedPredictions(predict)
    # 2. Apply the changes of each scenario in order, and group the alternatives before and after.
    cases: list[SimulatedCase] = []
    for changes in scenarios:
        offer, steps = apply_changes(first, changes, labels, require_size)
        for by in groupings:
            case = group_case(first, offer, steps, by, columns)
            cases.append(case.with_surplus(model, columns.cost) if surplus else case)
    # 3. Predict all tables, and sum the probabilities by group. All figures share the predictions of a model.
    figures = estimate_figures(
        model,
        lambda model: np.concatenate([replace(case.comparison, predict=shared.log_p).compute(model) for case in cases]),
        level=level,
        errors=errors,
        intervals=intervals,
        posterior=posterior,
        posterior_of=posterior_of,
    )
    ends = np.cumsum([case.comparison.length for case in cases])
    parts = [np.split(values, ends[:-1]) if values is not None else [None] * len(cases) for values in figures[:3]]
    # 4. Collect figures and limits of each scenario.
    results = [
        case.result(model, first, columns, EstimatedFigures(values, low, high, figures.how))
        for case, values, low, high in zip(cases, *parts, strict=True)
    ]
    return [results[k : k + len(groupings)] for k in range(0, len(results), len(groupings))]


class SharedPredictions:
    """Predictions of the model that was used last, one for each table."""

    def __init__(self, predict: Predict) -> None:
        self._predict = predict
        self._model: Any = None
        self._by_table: dict[int, Floats] = {}

    def log_p(self, model: Any, data: ChoiceData) -> Floats:
        """Return the log-probabilities of a model for a table."""
        if model is not self._model:
            self._model, self._by_table = model, {}
        if id(data) not in self._by_table:
            self._by_table[id(data)] = self._predict(model, data)
        return self._by_table[id(data)]


@dataclass(frozen=True)
class SimulatedCase:
    """A scenario with one grouping of the alternatives."""

    offer: ScenarioOffer
    steps: tuple[AppliedChange, ...]
    groups: Groups
    comparison: MarketComparison
    no_surplus: str | None = None  # the reason why the surplus is not defined

    def with_surplus(self, model: Any, cost: str | None) -> SimulatedCase:
        """Return the case with the consumer surplus, or with the reason why it is not defined."""
        before, after = self.comparison.before.data, self.comparison.after.data
        try:
            cost = require_surplus(model, before, after, cost)
        except InputError as error:
            return replace(self, no_surplus=str(error))
        return replace(self, comparison=replace(self.comparison, cost=cost))

    def result(self, model: Any, first: ChoiceData, columns: RevenueColumns, figures: EstimatedFigures) -> Scenario:
        """Return the figures with their limits."""
        tables = MarketTables(self.comparison, figures, self.groups.names)
        notes = [*caveats(model, first, self.offer)]
        if self.steps and not tables.values["shares"][2].any():
            cause = "the model ignores the changed columns, or its predictions change only at thresholds"
            if not _has_new_values(first, self.offer):
                cause = "the changes leave all values as they are"
            notes.append(f"no share changes: {cause}")
        if tables.has_mixed_signs and isinstance(reason := tables.diversion(), str):
            notes.append(f"no diversion: {reason}")
        parts: dict[str, Any] = {"revenue": tables.revenue(columns.revenue), "diversion": tables.diversion()}
        if columns.revenue is not None and columns.unit_cost is not None:
            parts["margin"] = tables.margin(columns.revenue, columns.unit_cost)
        if self.no_surplus is not None:
            parts["consumer_surplus"] = self.no_surplus
            if columns.cost is not None:
                notes.append(f"no consumer surplus: {self.no_surplus}")
        return Scenario(
            model=type(model).__name__,
            steps=self.steps,
            by=self.groups.by,
            sets=len(first),
            shares=tables.effects("shares", "share"),
            volumes=tables.effects("volumes", "volume"),
            intervals=figures.how,
            notes=tuple(notes),
            parts={**parts, **tables.surplus()},
        )


def group_case(
    first: ChoiceData,
    offer: ScenarioOffer,
    steps: tuple[AppliedChange, ...],
    by: str | MergedGroups | None,
    columns: RevenueColumns,
) -> SimulatedCase:
    """Group the alternatives of a scenario before and after its changes."""
    if isinstance(by, MergedGroups):
        groups = by.merge(group_alternatives(first, offer, by.by))
    else:
        groups = group_alternatives(first, offer, by)
    before, after = (
        _state(sets, codes, columns) for sets, codes in ((first, groups.before), (offer.data, groups.after))
    )
    return SimulatedCase(offer, steps, groups, MarketComparison(before, after, groups.segment, groups.changed, None))


def _state(sets: ChoiceData, codes: Ints, columns: RevenueColumns) -> MarketState:
    """Return the alternatives of a table by group, with their revenue and margin."""
    revenue = None if columns.revenue is None else _feature(sets, columns.revenue, "revenue")
    margin = None
    if revenue is not None and columns.unit_cost is not None:
        margin = revenue - _feature(sets, columns.unit_cost, "unit_cost")
    return MarketState(sets, codes, revenue, margin)


def _listed(changes: Any) -> Iterator[Change]:
    """Yield the changes in a nested list, or the change itself if there is only one."""
    if isinstance(changes, str | Mapping | ChoiceData) or callable(changes):
        yield changes
    elif isinstance(changes, Sequence) and len(changes):
        for change in changes:
            yield from _listed(change)
    else:
        raise InputError(
            f"changes: expected a string such as \"price *= 1.1 where mode == 'car'\", a function, a mapping, changed "
            f"choice data, or a list of these, got {changes!r}."
        )


def _named(changes: Sequence[Change], *others: str | None) -> Iterator[str]:
    """Yield the columns that the changes and options refer to."""
    yield from (
        name for change in changes if isinstance(change, str) for name in columns_named_in(parse_change(change))
    )
    yield from (name for name in others if name is not None)


def apply_changes(
    first: ChoiceData,
    changes: Iterable[Change],
    known: frozenset[str],
    require_size: Callable[[ChoiceData], None] = lambda data: None,
) -> tuple[ScenarioOffer, tuple[AppliedChange, ...]]:
    """Return the table after all changes, applied in order, with the extent of each change.

    ``known`` are the labels from :func:`known_labels`.
    """
    offer, steps = ScenarioOffer.of(first), []
    for change in changes:
        offer, step = _apply(offer, change, known)
        require_size(offer.data)
        require_no_negative_money(first, offer.data, str(step.text))
        steps.append(step)
    return offer, tuple(steps)


def require_no_negative_money(before: ChoiceData, after: ChoiceData, change: str | None = None) -> None:
    """Raise InputError if a change makes amounts of money negative that were at least 0 in the whole table.

    Parameters
    ----------
    before, after
        The table before and after the change.
    change
        The change, for the message. Default None: the message does not name it.
    """
    names, originals = after.schema.names, {**before.individual, **before.features}
    for name, column in {**after.individual, **after.features}.items():
        first = originals.get(name)
        if not names.is_money(name) or not isinstance(column, Numeric) or not isinstance(first, Numeric):
            continue
        least = float(np.nanmin(column.values, initial=np.inf))
        if least < 0 <= np.nanmin(first.values, initial=np.inf):
            prefix = "" if change is None else f"change {change!r}: "
            amount = f"{least:,.2f} {names.unit(name)}".rstrip()
            raise InputError(
                f"{prefix}{names[name]} would be negative: down to {amount}. Change it by a factor, as in "
                f"'{name} *= 0.9', or limit it, as in '{name} = max({name} - 5, 0)'."
            )


def _apply(offer: ScenarioOffer, change: Change, known: frozenset[str]) -> tuple[ScenarioOffer, AppliedChange]:
    """Return the offer after a change, and a record of the change."""
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


def known_labels(model: Any, data: ChoiceData) -> frozenset[str]:
    """Return the labels in the table and the labels that the model is known to have seen in training."""
    if data.labels is None:
        return frozenset()
    columns = model.table_.columns if isinstance(model, ChoiceModel) else {}
    seen = columns.get(data.schema.alternative or "", {}).get("categories", [])
    return frozenset([*seen, *data.labels.plain()])


def _feature(data: ChoiceData, column: str, what: str) -> Floats:
    """Return a numeric feature (N,), with 0 for the outside option, or raise InputError if values are missing."""
    values, individual = numeric_values(data, column)
    if individual:
        raise InputError(f"{what} {column!r} is an individual-level column: expected a feature of the alternatives.")
    if data.outside is not None:
        values = np.where(data.outside, 0.0, values)
    if np.isnan(values).any():
        raise InputError(f"{what} {column!r} has {int(np.isnan(values).sum())} missing values: fill them in.")
    return values
