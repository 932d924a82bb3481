"""Effects of features on choice probabilities: elasticities of numeric features, and lifts of categories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Categorical, Numeric
from pcmcnet.data.columns.ragged import spread
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.evaluation.bootstrap import percentile_interval, resampled_means
from pcmcnet.evaluation.predictions import Predictor, gives_of, predicted_log_p, require_data, require_sets
from pcmcnet.insight.demand import DemandCurve, demand
from pcmcnet.insight.elasticity import ElasticityTable, Kind, elasticity
from pcmcnet.insight.queries import compose_sets, numeric_values, places_in_set, why_no_elasticity, with_values
from pcmcnet.insight.willingness_to_pay import prices
from pcmcnet.reports.formats import ReportPartMixin, ToDictMixin, to_json
from pcmcnet.reports.tables import TableMixin, number

# -- Numeric effects ---------------------------------------------------------------------------------------------------
# Average responses to all numeric features, and demand curves of the three most important ones and of the price.
#
# Own and cross elasticities are averaged over all alternatives. A feature with negative values gets semi-elasticities;
# one without a true zero, such as a clock time, gets none. A demand curve scales the feature for some alternatives
# and shows their share: for each label with a large share or, in a table without labels, for the most probable
# alternative of each set and for a random one.

MAX_DEMAND_COLUMNS = 3  # columns with demand curves
MAX_DEMAND_LABELS = 5  # labels with a demand curve
_QUANTILE_GRID = np.linspace(0.05, 0.95, 11)  # points of the demand curve of a feature with negative values


@dataclass(frozen=True, kw_only=True, eq=False)
class NumericEffects(ReportPartMixin):
    """Responses to each numeric feature, and demand curves of the most important features.

    Attributes
    ----------
    tables
        Average responses to each feature, in descending order of importance.
    demand
        Demand curves by column and by the alternative whose share is shown.
    sets
        Number of choice sets predicted.
    others
        Names of the features that are not numeric.
    left_out
        Numeric features without an elasticity, each mapped to the reason.
    price
        The feature that looks like a price, by its unit or name (None if there is no such feature).
    predict_curves
        Function that predicts the demand curves of any numeric column (None if the model is not available).
    """

    tables: tuple[ElasticityTable, ...]
    demand: Mapping[str, Mapping[str, DemandCurve]]
    sets: int
    others: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    price: str | None = None
    predict_curves: Callable[[str], Mapping[str, DemandCurve]] | None = field(default=None, repr=False)

    def _frame_rows(self) -> list[dict[str, Any]]:
        return [row for table in self.tables for row in table._frame_rows()]

    def _short(self) -> str:
        return f"{len(self.tables)} features, demand curves for {', '.join(self.demand) or 'none'}"

    @property
    def column(self) -> str:
        """The most important column."""
        return next(iter(self.demand))

    @property
    def curves(self) -> Mapping[str, DemandCurve]:
        """Demand curves of the most important column, by the alternative whose share is shown."""
        return self.demand[self.column]

    def curves_of(self, column: str | None = None) -> Mapping[str, DemandCurve]:
        """Return the demand curves of a numeric column, by the alternative whose share is shown.

        Parameters
        ----------
        column
            A numeric feature or individual-level column (the most important feature by default). Curves that are not in
            ``demand`` are predicted.

        Returns
        -------
        Mapping
            Demand curves by alternative.

        Raises
        ------
        InputError
            If the column does not exist or is not numeric.
        """
        column = self.column if column is None else column
        if column in self.demand:
            return self.demand[column]
        if self.predict_curves is None:
            raise InputError(f"there is no demand curve for {column!r}." + did_you_mean(column, list(self.demand)))
        return self.predict_curves(column)

    def to_dict(self) -> dict[str, Any]:
        """Return the effects as JSON-compatible values."""
        facts = {"sets": self.sets, "others": list(self.others), "left_out": dict(self.left_out)}
        further = to_json(self.demand)
        curves = {"demand": further.pop(self.column), "further_demand": further}
        return {**facts, "responses": to_json(self.tables), **curves}


def numeric_features(data: ChoiceData) -> list[str]:
    """Return the names of the numeric features that are not constant."""
    numeric = {name: column.values for name, column in data.features.items() if isinstance(column, Numeric)}
    return [name for name, x in numeric.items() if np.nanmin(x, initial=np.inf) < np.nanmax(x, initial=-np.inf)]


def numeric_effects(
    model: Predictor, data: ChoiceData, features: Sequence[str] | None, *, seed: int = 0
) -> NumericEffects:
    """Measure the responses to numeric features, in descending order of importance.

    If ``features`` is None, all numeric features are used, sorted by the size of the own elasticity. In a table without
    labels, the seed is used to draw one alternative from each set.
    """
    columns = numeric_features(data) if features is None else list(features)
    if not columns:
        raise InputError("the table has no numeric feature that varies.")
    left_out = {name: why for name in columns if (why := why_no_elasticity(data, name)) is not None}
    columns = [name for name in columns if name not in left_out]
    if not columns:
        raise InputError("; ".join(f"{name} {why}" for name, why in left_out.items()) + ".")
    if gives_of(model) == "ranking":
        raise InputError(f"{type(model).__name__} returns a ranking: its probabilities are 0 or 1 and have no slopes.")
    kinds: dict[bool, Kind] = {True: "semi", False: "elasticity"}  # by whether the column has negative values
    negative = {name: bool((numeric_values(data, name)[0] < 0).any()) for name in columns}
    tables = [elasticity(model, data, name, kind=kinds[negative[name]]).table() for name in columns]
    if features is None:
        tables.sort(key=lambda table: -abs(table.rows[0].own) * (table.kind == "elasticity"))
    curves = partial(_curves, model, data, np.exp(predicted_log_p(model, data)), seed)
    ordered = [table.column for table in tables]
    price = next(iter(prices(data, ordered)), None)
    drawn = dict.fromkeys([*ordered[:MAX_DEMAND_COLUMNS], *([] if price is None else [price])])
    return NumericEffects(
        tables=tuple(tables),
        demand={column: curves(column) for column in drawn},
        price=price,
        predict_curves=curves,
        sets=len(data),
        others=tuple(name for name, column in data.features.items() if not isinstance(column, Numeric)),
        left_out=left_out,
    )


def _curves(model: Predictor, data: ChoiceData, p: Floats, seed: int, name: str) -> dict[str, DemandCurve]:
    """Return the demand curves of one column, by the alternative whose value changes.

    Values are scaled or, if the column is not on a ratio scale, set to quantiles of the column.
    """
    column = numeric_values(data, name)[0]
    column = column[~np.isnan(column)]
    has_zero = not (column < 0).any() and why_no_elasticity(data, name) is None
    values = None if has_zero else np.unique(np.quantile(column, _QUANTILE_GRID))
    return {
        title: demand(model, data, name, alternative=selection, values=values)
        for title, selection in _subjects(data, p, seed)
    }


def _subjects(data: ChoiceData, p: Floats, seed: int) -> list[tuple[str, Any]]:
    """Return the groups of alternatives whose values change, each as a title with a label or flat indices."""
    if data.labels is not None:
        share = np.bincount(data.labels.codes, p * spread(data.weights, data.offsets), len(data.labels.categories))
        most = np.argsort(-share, kind="stable")[:MAX_DEMAND_LABELS]
        return [(data.labels.categories[k], data.labels.categories[k]) for k in most if share[k] > 0]
    order = np.lexsort((-p, data.set_of_alternative))
    drawn = np.random.default_rng(seed).integers(data.offsets[:-1], data.offsets[1:])
    return [("the favourite of each set", order[data.offsets[:-1]]), ("a random alternative of each set", drawn)]


# -- Category effects --------------------------------------------------------------------------------------------------
# The share that an alternative would have with another category, all else equal.
#
# In each set S one alternative is drawn, and each of the K most frequent categories is assigned to it in turn:
#
#     share_c = sum_S w_S p(drawn one with category c) / sum_S w_S,        lift_c = share_c / sum_c f_c share_c
#
# with the frequencies f of the K categories among the alternatives of the table. With a lift of 1.5, an alternative is
# chosen 1.5 times as often as with an average category. Intervals resample whole sets.

MAX_CATEGORIES = 12  # most frequent categories of a column that are compared
MAX_REPORT_COLUMNS = 4  # categorical columns in a report


@dataclass(frozen=True, slots=True)
class CategoryRow:
    """Effect of one category.

    Attributes
    ----------
    category
        Name of the category.
    frequency
        Share of the table's alternatives that have this category.
    share
        Mean predicted share of an alternative with this category.
    lift
        Predicted share relative to that of an average category.
    low, high
        Limits of the 95% interval for the lift, from a bootstrap over choice sets.
    """

    category: str
    frequency: float
    share: float
    lift: float
    low: float
    high: float

    @property
    def is_significant(self) -> bool:
        """True if the interval for the lift excludes 1."""
        return self.low > 1 or self.high < 1


@dataclass(frozen=True, slots=True)
class CategoryEffects(ToDictMixin, TableMixin):
    """Result of :func:`category_effects`. ``print(result)`` shows a table.

    Attributes
    ----------
    column
        The categorical feature.
    rows
        One row per category, in descending order of lift.
    sets
        Number of choice sets predicted.
    others
        Number of categories that were left out because they are less frequent.
    """

    column: str
    rows: tuple[CategoryRow, ...]
    sets: int
    others: int

    def _frame_rows(self) -> list[dict[str, Any]]:
        return [{"column": self.column, **asdict(row)} for row in self.rows]

    def _cells(self) -> list[list[str]]:
        heads = [self.column, "frequency", "share", "lift", "95% interval"]
        rows = [
            [r.category, f"{r.frequency:.1%}", f"{r.share:.1%}", number(r.lift), f"{number(r.low)} to {number(r.high)}"]
            for r in self.rows
        ]
        return [heads, *rows]


def category_effects(
    model: Predictor, data: Any, column: str, *, most: int = MAX_CATEGORIES, seed: int = 0, resamples: int = 1000
) -> CategoryEffects:
    """Predict how often an alternative would be chosen if it had each category of a feature.

    Parameters
    ----------
    model
        A fitted model, or an object with the method ``predict_log_proba``.
    data
        Choice data, or a table that matches the model's schema.
    column
        A categorical feature.
    most
        Maximum number of categories to compare, starting with the most frequent one (12 by default).
    seed
        Seed for drawing an alternative from each set, and for the bootstrap (0 by default).
    resamples
        Number of bootstrap resamples (1,000 by default).

    Returns
    -------
    CategoryEffects
        Shares and lifts of the categories.

    Raises
    ------
    InputError
        If the column is not a categorical feature or has only one category, or if the model returns a ranking.

    Examples
    --------
    >>> from pcmcnet.models import MNL
    >>> table = {"trip": np.repeat(np.arange(30), 2), "took": [1, 0] * 20 + [0, 1] * 10, "by": ["bus", "car"] * 30}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["by"])
    >>> effects = category_effects(MNL().fit(data), data, "by", resamples=100)
    >>> [row.category for row in effects.rows], effects.rows[0].lift > 1 > effects.rows[1].lift
    (['bus', 'car'], True)
    """
    data = require_data(model, data)
    require_sets(data)
    values = data.features.get(column)
    if not isinstance(values, Categorical):
        raise InputError(f"{column!r} is not a categorical feature: expected one of {categorical_features(data)}.")
    if gives_of(model) == "ranking":
        raise InputError(f"{type(model).__name__} returns a ranking: its probabilities are 0 or 1.")
    # 1. Predict the share of one alternative per set with each of the most frequent categories.
    counts = np.bincount(values.codes, minlength=len(values.categories))
    compared = [int(k) for k in np.argsort(-counts, kind="stable")[:most] if counts[k]]
    if len(compared) < 2:
        raise InputError(f"{column!r}: expected at least two categories in this table, got one.")
    rng = np.random.default_rng(seed)
    p = _shares(model, data, column, [values.categories[k] for k in compared], rng)  # (S, K)
    # 2. Lifts over the average category, with bootstrap intervals.
    frequency = counts[compared] / counts[compared].sum()
    share: Floats = np.average(p, axis=0, weights=data.weights)
    means = resampled_means(p, data.weights, rng=rng, resamples=resamples)  # (R, K)
    ends = percentile_interval(means / (means @ frequency)[:, None], data.weights)
    lift = share / (share @ frequency)
    rows = [
        CategoryRow(values.categories[k], float(counts[k] / counts.sum()), *map(float, (share[c], lift[c], *ends[c])))
        for c, k in enumerate(compared)
    ]
    rows.sort(key=lambda row: -row.lift)
    return CategoryEffects(column, tuple(rows), len(data), int((counts > 0).sum()) - len(compared))


def _shares(
    model: Predictor, data: ChoiceData, column: str, categories: Sequence[str], rng: np.random.Generator
) -> Floats:
    """Return the probability (S, K) of one alternative of each set, with each category in turn."""
    drawn = rng.integers(data.offsets[:-1], data.offsets[1:])
    inside = [places_in_set(data, s) for s in range(len(data))]
    copies = compose_sets(data, inside * len(categories), np.tile(np.arange(len(data)), len(categories)))
    values = np.tile(data.features[column].plain().astype(object), len(categories))
    at = (drawn[None, :] + len(data.rows) * np.arange(len(categories))[:, None]).ravel()
    values[at] = np.repeat(np.array(categories, object), len(data))
    p = np.exp(predicted_log_p(model, with_values(copies, column, values)))
    shares: Floats = p[at].reshape(len(categories), len(data)).T
    return shares


def categorical_features(data: ChoiceData) -> list[str]:
    """Return the names of the categorical features with at least two categories in use."""
    columns = {name: column for name, column in data.features.items() if isinstance(column, Categorical)}
    return [name for name, column in columns.items() if len(np.unique(column.codes)) > 1]


@dataclass(frozen=True, slots=True)
class AllCategories(ReportPartMixin):
    """Category effects of several columns, in descending order of importance."""

    tables: tuple[CategoryEffects, ...]

    def _frame_rows(self) -> list[dict[str, Any]]:
        return [row for table in self.tables for row in table._frame_rows()]

    def _short(self) -> str:
        return ", ".join(table.column for table in self.tables)

    def to_dict(self) -> dict[str, Any]:
        """Return the effects as JSON-compatible values."""
        return {"columns": [table.to_dict() for table in self.tables]}


def all_category_effects(
    model: Predictor, data: ChoiceData, order: Sequence[str] | None, *, seed: int = 0
) -> AllCategories:
    """Measure the effects of the first four categorical features in ``order``, which lists columns by importance."""
    columns = categorical_features(data)
    columns = columns if order is None else [name for name in order if name in columns]
    if not columns:
        raise InputError("the table has no categorical feature with at least two categories.")
    return AllCategories(tuple(category_effects(model, data, name, seed=seed) for name in columns[:MAX_REPORT_COLUMNS]))
