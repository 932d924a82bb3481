"""Which categories are liked: the share an alternative would have with another category, all else equal.

In each set S one alternative is drawn, and given each of the K most frequent categories in turn:

    share_c = sum_S w_S p(drawn one with category c) / sum_S w_S,        lift_c = share_c / sum_c f_c share_c

with the frequencies f of the K categories among the alternatives of the table. A lift of 1.5 says: an alternative with
this category is chosen one and a half times as often as with an average one. Intervals resample whole sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.column_arrays import Categorical
from pcmcnet.errors import InputError
from pcmcnet.evaluation.bootstrap_intervals import percentiles, resampled_means
from pcmcnet.evaluation.predictions import Predictor, gives_of, predicted_log_p, require_data, require_sets
from pcmcnet.insight.questions import members
from pcmcnet.insight.what_if import compose, with_values
from pcmcnet.reports.notebook import PartOfReport
from pcmcnet.reports.tables import PrintsAsTable, number

MOST = 12  # categories of a column
COLUMNS = 4  # in a report


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
    def is_sure(self) -> bool:
        """Whether the interval leaves out an average category's 1."""
        return self.low > 1 or self.high < 1


@dataclass(frozen=True, slots=True)
class CategoryEffects(PrintsAsTable):
    """The categories of one column, the most liked first. Prints as a table."""

    column: str
    rows: tuple[CategoryRow, ...]
    sets: int  # choice sets asked about
    others: int  # less frequent categories, which were not asked about

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON."""
        facts = {"column": self.column, "sets": self.sets, "others": self.others}
        return {**facts, "rows": [asdict(row) for row in self.rows]}

    def _cells(self) -> list[list[str]]:
        heads = [self.column, "frequency", "share", "times the average", "95 % interval"]
        rows = [
            [r.category, f"{r.frequency:.1%}", f"{r.share:.1%}", number(r.lift), f"{number(r.low)} to {number(r.high)}"]
            for r in self.rows
        ]
        return [heads, *rows]


def category_effects(
    model: Predictor, data: Any, column: str, *, most: int = MOST, seed: int = 0, resamples: int = 1000
) -> CategoryEffects:
    """Ask a model how often an alternative would be chosen with each category of a feature.

    Parameters
    ----------
    model, data
        A fitted model, or an object with the method ``predict_log_proba``; choice data, or a table that the model's
        schema reads.
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
    ends = percentiles(means / (means @ frequency)[:, None], data.weights)
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
    inside = [members(data, s) for s in range(len(data))]
    copies = compose(data, inside * len(categories), np.tile(np.arange(len(data)), len(categories)))
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
class AllCategories(PartOfReport):
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
    return AllCategories(tuple(category_effects(model, data, name, seed=seed) for name in asked[:COLUMNS]))
