"""Effects of features on choice probabilities: responses to numbers, and which categories are liked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Categorical, Numeric
from pcmcnet.data.columns.ragged import spread
from pcmcnet.errors import InputError
from pcmcnet.evaluation.bootstrap import percentile_interval, resampled_means
from pcmcnet.evaluation.predictions import Predictor, gives_of, predicted_log_p, require_data, require_sets
from pcmcnet.insight.demand import DemandCurve, demand
from pcmcnet.insight.elasticity import ElasticityTable, Kind, elasticity
from pcmcnet.insight.queries import compose_sets, numeric_values, places_in_set, why_no_elasticity, with_values
from pcmcnet.reports.formats import ReportPartMixin, ToDictMixin, to_json
from pcmcnet.reports.tables import TableMixin, number

# -- Numeric effects ---------------------------------------------------------------------------------------------------
# What numeric features do to the probabilities, side by side: responses of all, and demand curves of the first three.
#
# Own and cross elasticities are those of `elasticity`, averaged over all alternatives; a feature with values below 0
# gets semi-elasticities, and one whose zero means nothing, such as a clock time, gets none. A demand curve scales the
# feature for some alternatives and follows their share: for each of the labels with the largest shares or, in a table
# without labels, for the most probable alternative of each set and for one drawn at random.

MAX_DEMAND_COLUMNS = 3  # columns with demand curves
MAX_DEMAND_LABELS = 5  # with a demand curve of their own
_QUANTILE_GRID = np.linspace(0.05, 0.95, 11)  # quantiles that a feature with values below 0 is set to


@dataclass(frozen=True, kw_only=True, eq=False)
class NumericEffects(ReportPartMixin):
    """Responses to each numeric feature, the most important first, and demand curves of the first of them."""

    tables: tuple[ElasticityTable, ...]
    demand: Mapping[str, Mapping[str, DemandCurve]]  # by column, and by whose share it is
    sets: int  # choice sets asked about
    others: tuple[str, ...] = ()  # features that are no numbers, and so have no response of this kind
    left_out: Mapping[str, str] = field(default_factory=dict)  # numbers without an elasticity, and why

    def _short(self) -> str:
        return f"{len(self.tables)} features, demand curves of {', '.join(self.demand) or 'none'}"

    @property
    def column(self) -> str:
        """The most important one."""
        return next(iter(self.demand))

    @property
    def curves(self) -> Mapping[str, DemandCurve]:
        """Demand curves of the most important column, by whose share it is."""
        return self.demand[self.column]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON."""
        facts = {"sets": self.sets, "others": list(self.others), "left_out": dict(self.left_out)}
        further = to_json(self.demand)
        curves = {"demand": further.pop(self.column), "further_demand": further}
        return {**facts, "responses": to_json(self.tables), **curves}


def numeric_features(data: ChoiceData) -> list[str]:
    """Return the names of numeric features that vary."""
    numeric = {name: column.values for name, column in data.features.items() if isinstance(column, Numeric)}
    return [name for name, x in numeric.items() if np.nanmin(x, initial=np.inf) < np.nanmax(x, initial=-np.inf)]


def numeric_effects(
    model: Predictor, data: ChoiceData, features: Sequence[str] | None, *, seed: int = 0
) -> NumericEffects:
    """Measure the responses to numeric features, given the most important first.

    None asks for all, sorted by the size of the own response. The seed draws an alternative of each set without labels.
    """
    asked = numeric_features(data) if features is None else list(features)
    if not asked:
        raise InputError("the table has no numeric feature that varies.")
    left_out = {name: why for name in asked if (why := why_no_elasticity(data, name)) is not None}
    asked = [name for name in asked if name not in left_out]
    if not asked:
        raise InputError("; ".join(f"{name} {why}" for name, why in left_out.items()) + ".")
    if gives_of(model) == "ranking":
        raise InputError(f"{type(model).__name__} gives a ranking, whose probabilities are 0 and 1 and have no slope.")
    kinds: dict[bool, Kind] = {True: "semi", False: "elasticity"}  # by whether there are values below 0
    below = {name: bool((numeric_values(data, name)[0] < 0).any()) for name in asked}
    tables = [elasticity(model, data, name, kind=kinds[below[name]]).table() for name in asked]
    if features is None:
        tables.sort(key=lambda table: -abs(table.rows[0].own) * (table.kind == "elasticity"))
    p = np.exp(predicted_log_p(model, data))
    return NumericEffects(
        tables=tuple(tables),
        demand={table.column: _curves(model, data, table.column, p, seed) for table in tables[:MAX_DEMAND_COLUMNS]},
        sets=len(data),
        others=tuple(name for name, column in data.features.items() if not isinstance(column, Numeric)),
        left_out=left_out,
    )


def _curves(model: Predictor, data: ChoiceData, name: str, p: Floats, seed: int) -> dict[str, DemandCurve]:
    known = numeric_values(data, name)[0]
    known = known[~np.isnan(known)]
    values = np.unique(np.quantile(known, _QUANTILE_GRID)) if (known < 0).any() else None
    return {of: demand(model, data, name, alternative=which, values=values) for of, which in _subjects(data, p, seed)}


def _subjects(data: ChoiceData, p: Floats, seed: int) -> list[tuple[str, Any]]:
    """Return whose value is changed: names, and labels or flat places."""
    if data.labels is not None:
        share = np.bincount(data.labels.codes, p * spread(data.weights, data.offsets), len(data.labels.categories))
        most = np.argsort(-share, kind="stable")[:MAX_DEMAND_LABELS]
        return [(data.labels.categories[k], data.labels.categories[k]) for k in most if share[k] > 0]
    order = np.lexsort((-p, data.set_of_alternative))
    drawn = np.random.default_rng(seed).integers(data.offsets[:-1], data.offsets[1:])
    return [("the favourite of each set", order[data.offsets[:-1]]), ("one of each set, at random", drawn)]


# -- Category effects --------------------------------------------------------------------------------------------------
# Which categories are liked: the share an alternative would have with another category, all else equal.
#
# In each set S one alternative is drawn, and given each of the K most frequent categories in turn:
#
#     share_c = sum_S w_S p(drawn one with category c) / sum_S w_S,        lift_c = share_c / sum_c f_c share_c
#
# with the frequencies f of the K categories among the alternatives of the table. A lift of 1.5 says: an alternative
# with this category is chosen one and a half times as often as with an average one. Intervals resample whole sets.

MAX_CATEGORIES = 12  # categories of a column
MAX_REPORT_COLUMNS = 4  # in a report


@dataclass(frozen=True, slots=True)
class CategoryRow:
    """One category."""

    category: str
    frequency: float  # among the alternatives of the table
    share: float  # of an alternative drawn, with this category
    lift: float  # over the average category
    low: float  # 95 % interval of the lift, by the bootstrap over choice sets
    high: float

    @property
    def is_significant(self) -> bool:
        """Whether the interval leaves out an average category's 1."""
        return self.low > 1 or self.high < 1


@dataclass(frozen=True, slots=True)
class CategoryEffects(ToDictMixin, TableMixin):
    """The categories of one column, the most liked first. Prints as a table."""

    column: str
    rows: tuple[CategoryRow, ...]
    sets: int  # choice sets asked about
    others: int  # less frequent categories, which were not asked about

    def _cells(self) -> list[list[str]]:
        heads = [self.column, "frequency", "share", "times the average", "95 % interval"]
        rows = [
            [r.category, f"{r.frequency:.1%}", f"{r.share:.1%}", number(r.lift), f"{number(r.low)} to {number(r.high)}"]
            for r in self.rows
        ]
        return [heads, *rows]


def category_effects(
    model: Predictor, data: Any, column: str, *, most: int = MAX_CATEGORIES, seed: int = 0, resamples: int = 1000
) -> CategoryEffects:
    """Ask a model how often an alternative would be chosen with each category of a feature.

    Parameters
    ----------
    model, data
        A fitted model, or another with ``predict_log_proba``; choice data, or a table that the model's schema reads.
    column
        A categorical feature.
    most
        Categories to ask about, the most frequent ones of the table.
    seed, resamples
        Which alternative of each set is drawn, and the bootstrap.

    Raises
    ------
    InputError
        When the column is no categorical feature or has one category, or the model gives a ranking.

    Examples
    --------
    >>> from pcmcnet.models import MNL
    >>> table = {"trip": np.repeat(np.arange(30), 2), "took": [1, 0] * 20 + [0, 1] * 10, "by": ["bus", "car"] * 30}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["by"])
    >>> found = category_effects(MNL().fit(data), data, "by", resamples=100)
    >>> [row.category for row in found.rows], found.rows[0].lift > 1 > found.rows[1].lift
    (['bus', 'car'], True)
    """
    data = require_data(model, data)
    require_sets(data)
    values = data.features.get(column)
    if not isinstance(values, Categorical):
        raise InputError(f"{column!r} is no categorical feature: expected one of {categorical_features(data)}.")
    if gives_of(model) == "ranking":
        raise InputError(f"{type(model).__name__} gives a ranking, whose probabilities are 0 and 1.")
    counts = np.bincount(values.codes, minlength=len(values.categories))
    asked = [int(k) for k in np.argsort(-counts, kind="stable")[:most] if counts[k]]
    if len(asked) < 2:
        raise InputError(f"{column!r} has one category in this table: there is nothing to compare.")
    rng = np.random.default_rng(seed)
    p = _shares(model, data, column, [values.categories[k] for k in asked], rng)  # (S, K)
    frequency = counts[asked] / counts[asked].sum()
    share: Floats = np.average(p, axis=0, weights=data.weights)
    means = resampled_means(p, data.weights, rng=rng, resamples=resamples)  # (R, K)
    ends = percentile_interval(means / (means @ frequency)[:, None], data.weights)
    lift = share / (share @ frequency)
    rows = [
        CategoryRow(values.categories[k], float(counts[k] / counts.sum()), *map(float, (share[c], lift[c], *ends[c])))
        for c, k in enumerate(asked)
    ]
    rows.sort(key=lambda row: -row.lift)
    return CategoryEffects(column, tuple(rows), len(data), int((counts > 0).sum()) - len(asked))


def _shares(
    model: Predictor, data: ChoiceData, column: str, categories: Sequence[str], rng: np.random.Generator
) -> Floats:
    """Ask for the probability of one alternative of each set with each category: (S, K)."""
    drawn = rng.integers(data.offsets[:-1], data.offsets[1:])
    inside = [places_in_set(data, s) for s in range(len(data))]
    copies = compose_sets(data, inside * len(categories), np.tile(np.arange(len(data)), len(categories)))
    values = np.tile(data.features[column].plain().astype(object), len(categories))
    at = (drawn[None, :] + len(data.rows) * np.arange(len(categories))[:, None]).ravel()
    values[at] = np.repeat(np.array(categories, object), len(data))
    p = np.exp(predicted_log_p(model, with_values(copies, column, values)))
    found: Floats = p[at].reshape(len(categories), len(data)).T
    return found


def categorical_features(data: ChoiceData) -> list[str]:
    """Return the names of categorical features with two categories or more in use."""
    named = {name: column for name, column in data.features.items() if isinstance(column, Categorical)}
    return [name for name, column in named.items() if len(np.unique(column.codes)) > 1]


@dataclass(frozen=True, slots=True)
class AllCategories(ReportPartMixin):
    """The effects of several columns, the most important first."""

    tables: tuple[CategoryEffects, ...]

    def _short(self) -> str:
        return ", ".join(table.column for table in self.tables)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON."""
        return {"columns": [table.to_dict() for table in self.tables]}


def all_category_effects(
    model: Predictor, data: ChoiceData, order: Sequence[str] | None, *, seed: int = 0
) -> AllCategories:
    """Measure the effects of up to four categorical features; ``order`` names columns, the most important first."""
    there = categorical_features(data)
    asked = there if order is None else [name for name in order if name in there]
    if not asked:
        raise InputError("the table has no categorical feature with two categories or more.")
    return AllCategories(tuple(category_effects(model, data, name, seed=seed) for name in asked[:MAX_REPORT_COLUMNS]))
