"""What a table holds: how many choice sets of which sizes, what its columns say, and what the choices look like.

Of a numeric feature, the mean over the alternatives chosen beside the mean over all that were offered shows what
people go for; both count every set by its weight, and the second every alternative of a set alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import MISSING_CODE, Categorical, Column, Columns, Contents
from pcmcnet.data.columns.ragged import spread, sum_by_set
from pcmcnet.data.describe import content_facts, json_values
from pcmcnet.errors import InputError
from pcmcnet.evaluation import metrics
from pcmcnet.evaluation.predictions import gives_of, predicted_log_p, predicted_scores
from pcmcnet.insight.chain import Chain, chain
from pcmcnet.insight.queries import alternative_name, places_in_set
from pcmcnet.insight.removals import Attribution, attribution
from pcmcnet.models.interface.chain_model import ChainModel
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.reports.formats import ReportPartMixin, ToDictMixin

Role = Literal["label", "feature", "individual"]

_MAX_CATEGORIES = 5  # categories that are named


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnSummary:
    """One column: its range, or its most frequent categories with their shares."""

    name: str
    role: Role
    kind: str
    missing: int
    low: float | None = None
    median: float | None = None
    high: float | None = None
    offered: float | None = None  # weighted mean over alternatives, each set counting once
    chosen: float | None = None  # weighted mean over the alternatives chosen
    distinct: int | None = None
    categories: tuple[tuple[str, float], ...] = ()  # the most frequent ones, with their shares of the values
    detail: str | None = None  # of contents: the size of vectors, the range of instants, the names in lists


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelShare:
    """How often a label is on offer, and how often it is chosen, as shares of the weight of all sets."""

    label: str
    offered: float
    chosen: float


@dataclass(frozen=True, kw_only=True, eq=False)
class TableSummary(ToDictMixin, ReportPartMixin):
    """A table in a few numbers."""

    choice_sets: int
    alternatives: int
    unweighted: bool  # whether all sets count alike
    has_choices: bool
    sizes: NDArray[np.int64]  # (K,) numbers of alternatives that occur, in ascending order
    counts: NDArray[np.int64]  # (K,) sets of that size
    columns: tuple[ColumnSummary, ...]
    labels: tuple[LabelShare, ...]  # the most chosen ones; empty without labels or choices
    unlabelled: str | None = None  # what the first alternative is called in reports, where there are no labels

    def _short(self) -> str:
        return f"{self.choice_sets:,} choice sets, {self.alternatives:,} alternatives, {len(self.columns)} columns"


def summarise_table(data: ChoiceData) -> TableSummary:
    """Sum up a table.

    Examples
    --------
    >>> table = {"trip": [1, 1, 2, 2], "took": [1, 0, 0, 1], "price": [3.0, 4.0, 9.0, 1.0]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["price"])
    >>> (price,) = summarise(data).columns
    >>> price.low, price.high, price.offered, price.chosen
    (1.0, 9.0, 4.25, 2.0)
    """
    sizes, counts = np.unique(data.sizes, return_counts=True)
    columns = [_column(data, name, column, "feature") for name, column in data.features.items()]
    columns += [_column(data, name, column, "individual") for name, column in data.individual.items()]
    label = data.schema.alternative
    if data.labels is not None and label is not None and label not in data.features:
        columns.insert(0, _column(data, label, data.labels, "label"))
    return TableSummary(
        choice_sets=len(data),
        alternatives=len(data.rows),
        unweighted=bool((data.weights == data.weights[:1]).all()),
        has_choices=data.chosen is not None,
        sizes=sizes,
        counts=counts,
        columns=tuple(columns),
        labels=_labels(data),
        unlabelled=alternative_name(data, 0) if data.labels is None and len(data.rows) else None,
    )


def _column(data: ChoiceData, name: str, column: Column, role: Role) -> ColumnSummary:
    if isinstance(column, Categorical):
        counts = np.bincount(column.codes, minlength=len(column.categories))
        order = np.argsort(-counts, kind="stable")[:_MAX_CATEGORIES]
        most = tuple((column.categories[k], float(counts[k] / counts.sum())) for k in order if counts[k])
        found = ColumnSummary(name=name, role=role, kind="categorical", missing=0)
        return replace(found, distinct=int((counts > 0).sum()), categories=most)
    if isinstance(column, Contents):
        facts, gaps = content_facts(column.compact()), int((column.codes == MISSING_CODE).sum())
        found = ColumnSummary(name=name, role=role, kind=column.kind, missing=gaps)
        return replace(found, distinct=facts["distinct"], detail=_detail(facts))
    values: Floats = column.values.astype(np.float64)
    there = ~np.isnan(values)
    found = ColumnSummary(name=name, role=role, kind="numeric", missing=int((~there).sum()))
    if not there.any():
        return found
    low, median, high = np.quantile(values[there], [0, 0.5, 1]).tolist()
    offered, chosen = _means(data, values) if role == "feature" else (None, None)
    return replace(found, low=low, median=median, high=high, offered=offered, chosen=chosen)


def _detail(facts: Mapping[str, Any]) -> str | None:
    """Say in few words what contents are like."""
    if "size" in facts:
        return f"{facts['size']:,} numbers"
    if "min" in facts:
        return f"{facts['min']} to {facts['max']}"
    if "categories" in facts:
        some, words = ", ".join(facts["categories"][:_MAX_CATEGORIES]), facts["words"]
        return f"{some}{', ...' if words > _MAX_CATEGORIES else ''} ({words:,} names)"
    return None


def _means(data: ChoiceData, values: Floats) -> tuple[float | None, float | None]:
    """Average a feature over what is offered, and over what is chosen; missing values take no part."""
    offered = _mean(values, spread(data.weights / data.sizes, data.offsets))
    if data.chosen is None:
        return offered, None
    return offered, _mean(values[data.offsets[:-1] + data.chosen], data.weights)


def _mean(values: Floats, weights: Floats) -> float | None:
    counted = np.where(np.isnan(values), 0.0, weights)
    return float(np.nan_to_num(values) @ counted / counted.sum()) if counted.any() else None


def _labels(data: ChoiceData) -> tuple[LabelShare, ...]:
    """Return the most chosen labels."""
    if data.labels is None or data.chosen is None or not data.weights.any():
        return ()
    n, total = len(data.labels.categories), data.weights.sum()
    codes = data.labels.codes
    offered = np.bincount(codes, spread(data.weights, data.offsets), n) / total
    chosen = np.bincount(codes[data.offsets[:-1] + data.chosen], data.weights, n) / total
    order = [k for k in np.argsort(-chosen, kind="stable")[: 2 * _MAX_CATEGORIES] if offered[k] > 0]
    names = data.labels.categories
    return tuple(LabelShare(label=names[k], offered=float(offered[k]), chosen=float(chosen[k])) for k in order)


# -- Example sets ------------------------------------------------------------------------------------------------------
# Choice sets to look at: a typical one, a surprising one and a large one, with all that a model says of them.
#
#     typical     the choice is about as probable as in the median set, and the set not larger than most
#     surprising  the choice is the least probable of all, by its -log p; for a ranking, the one furthest down
#     uncertain   where choices are unknown: the set nearest to evens, entropy / log n being the largest
#     large       the set with the most alternatives, where sets differ in that
#
# Sets of one alternative and of weight 0 are no examples. No set is shown twice.

Kind = Literal["typical", "surprising", "uncertain", "large"]

MAX_EXAMPLE_SETS = 5000  # choice sets among which examples are looked for


@dataclass(frozen=True, kw_only=True, eq=False)
class ExampleSet(ToDictMixin, ReportPartMixin):
    """One choice set of n alternatives, in the order of the table."""

    kind: Kind
    choice_set: Any  # its id
    individual: Mapping[str, Any]
    names: tuple[str, ...]  # (n,)
    columns: Mapping[str, tuple[Any, ...]]  # features, (n,) each; pictures as data URIs
    p: Floats  # (n,)
    chosen: int | None  # which of the n
    attribution: Attribution | None = None  # of the choice, or of the most probable; None for a ranking
    chain: Chain | None = None  # of models that have one
    _derived = ("nll",)

    def _short(self) -> str:
        return f"{self.kind}, choice set {self.choice_set}, {len(self.names)} alternatives"

    @property
    def nll(self) -> float | None:
        """-log p of the choice; None where it is unknown or has probability 0."""
        if self.chosen is None or self.p[self.chosen] <= 0:
            return None
        return float(-np.log(self.p[self.chosen]))


def example_sets(model: ChoiceModel, data: ChoiceData, *, seed: int = 0) -> tuple[ExampleSet, ...]:
    """Choose the examples among up to 5,000 sets of a table, and say what the model makes of them."""
    fit = np.flatnonzero((data.sizes > 1) & (data.weights > 0))
    if not fit.size:
        raise InputError("no choice set has two alternatives and a weight above 0: there is no example to show.")
    some = np.sort(np.random.default_rng(seed).permutation(fit)[:MAX_EXAMPLE_SETS])
    part = data.subset(some)
    return tuple(_example(model, data, kind, int(some[k])) for kind, k in _picked(model, part).items())


def _picked(model: ChoiceModel, data: ChoiceData) -> dict[Kind, int]:
    """Return kind -> position."""
    log_p = predicted_log_p(model, data)
    second: Kind = "surprising"
    if data.chosen is None:
        second, surprise = "uncertain", _entropy(log_p, data)
    elif gives_of(model) == "ranking":
        better, _ = metrics.rank_of_chosen(predicted_scores(model, data), data.offsets, data.chosen, tie=0.0)
        surprise = better / data.sizes
    else:
        surprise = metrics.nll(log_p, data.offsets, data.chosen)
    usual = np.where(data.sizes <= np.median(data.sizes), np.abs(surprise - np.median(surprise)), np.inf)
    wanted: dict[Kind, Floats] = {"typical": -usual, second: surprise}
    if data.sizes.min() < data.sizes.max():
        wanted["large"] = data.sizes.astype(np.float64)
    found: dict[Kind, int] = {}
    for kind, score in wanted.items():
        free = np.array([k for k in range(len(data)) if k not in found.values()], np.int64)
        if free.size:
            found[kind] = int(free[np.argmax(score[free])])
    return found


def _entropy(log_p: Floats, data: ChoiceData) -> Floats:
    """(S,) entropy over its largest possible value."""
    terms = np.exp(log_p) * np.where(np.isneginf(log_p), 0.0, log_p)
    entropy: Floats = -sum_by_set(terms, data.offsets) / np.log(data.sizes)
    return entropy


def _example(model: ChoiceModel, data: ChoiceData, kind: Kind, position: int) -> ExampleSet:
    inside, identity = places_in_set(data, position), data.set_ids[position]
    p = np.exp(predicted_log_p(model, data.subset([position])))
    chosen = None if data.chosen is None else int(data.chosen[position])
    subject = int(inside[int(p.argmax()) if chosen is None else chosen])
    named = data.rows[subject] if data.labels is None else data.labels.take(inside).plain()[subject - inside[0]]
    return ExampleSet(
        kind=kind,
        choice_set=identity.item() if isinstance(identity, np.generic) else identity,
        individual={name: values[0] for name, values in plain_values(data.individual, np.array([position])).items()},
        names=tuple(alternative_name(data, int(place)) for place in inside),
        columns={name: tuple(values) for name, values in plain_values(data.features, inside).items()},
        p=p,
        chosen=chosen,
        attribution=None if gives_of(model) == "ranking" else attribution(model, data, identity, named),
        chain=chain(model, data, identity) if isinstance(model, ChainModel) else None,
    )


def plain_values(columns: Columns, places: Ints) -> dict[str, list[Any]]:
    """Return numbers, names and contents of some rows as JSON has them; None where one is missing."""
    return {name: json_values(column.take(places)) for name, column in columns.items()}
