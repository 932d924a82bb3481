"""Summary of a table: the number and sizes of its choice sets, its columns, and the choices.

For a numeric feature, comparing the mean over the chosen alternatives with the mean over all offered alternatives shows
what people prefer. Both the mean over the chosen alternatives and the mean over all alternatives use the weights of the
sets. In the mean over all alternatives, the weight of a set is divided equally among its alternatives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
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

_MAX_CATEGORIES = 5  # most frequent categories in a summary


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnSummary:
    """Summary of one column.

    Attributes
    ----------
    name, role, kind
        Name of the column, its role and its kind.
    missing
        Number of missing values.
    low, median, high
        Minimum, median and maximum of a numeric column.
    offered
        Weighted mean of a numeric feature over all alternatives, which share the weight of their set equally.
    chosen
        Weighted mean of a numeric feature over the chosen alternatives.
    distinct
        Number of distinct values of a column that is not numeric.
    categories
        The most frequent categories, each with its share of the values.
    detail
        Description of other kinds of columns: the size of vectors, the range of timestamps, or the names in lists.
    """

    name: str
    role: Role
    kind: str
    missing: int
    low: float | None = None
    median: float | None = None
    high: float | None = None
    offered: float | None = None
    chosen: float | None = None
    distinct: int | None = None
    categories: tuple[tuple[str, float], ...] = ()
    detail: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelShare:
    """Frequencies with which a label is offered and chosen, as shares of the total weight of all sets."""

    label: str
    offered: float
    chosen: float


@dataclass(frozen=True, kw_only=True, eq=False)
class TableSummary(ToDictMixin, ReportPartMixin):
    """Summary of a table.

    Attributes
    ----------
    choice_sets, alternatives
        Number of choice sets, and total number of alternatives.
    unweighted
        True if all sets have the same weight.
    has_choices
        True if the choices are known.
    sizes
        Set sizes (K,) that occur, in ascending order.
    counts
        Number of sets of each size, (K,).
    columns
        Summaries of the columns.
    labels
        Shares of the most frequently chosen labels (empty if there are no labels or no choices).
    unlabelled
        Name of the first alternative, as an example, if the table has no labels.
    """

    choice_sets: int
    alternatives: int
    unweighted: bool
    has_choices: bool
    sizes: NDArray[np.int64]
    counts: NDArray[np.int64]
    columns: tuple[ColumnSummary, ...]
    labels: tuple[LabelShare, ...]
    unlabelled: str | None = None

    _frame_index = "name"

    def _frame_rows(self) -> list[dict[str, Any]]:
        return [
            {**asdict(column), "categories": ", ".join(f"{name} {share:.0%}" for name, share in column.categories)}
            for column in self.columns
        ]

    def _short(self) -> str:
        return f"{self.choice_sets:,} choice sets, {self.alternatives:,} alternatives, {len(self.columns)} columns"


def summarise_table(data: ChoiceData) -> TableSummary:
    """Summarise the choice sets, columns and choices of a table.

    Examples
    --------
    >>> table = {"trip": [1, 1, 2, 2], "took": [1, 0, 0, 1], "price": [3.0, 4.0, 9.0, 1.0]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["price"])
    >>> (price,) = summarise_table(data).columns
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
    """Summarise one column."""
    if isinstance(column, Categorical):
        counts = np.bincount(column.codes, minlength=len(column.categories))
        order = np.argsort(-counts, kind="stable")[:_MAX_CATEGORIES]
        most = tuple((column.categories[k], float(counts[k] / counts.sum())) for k in order if counts[k])
        summary = ColumnSummary(name=name, role=role, kind="categorical", missing=0)
        return replace(summary, distinct=int((counts > 0).sum()), categories=most)
    if isinstance(column, Contents):
        facts, gaps = content_facts(column.compact()), int((column.codes == MISSING_CODE).sum())
        summary = ColumnSummary(name=name, role=role, kind=column.kind, missing=gaps)
        return replace(summary, distinct=facts["distinct"], detail=_detail(facts))
    values: Floats = column.values.astype(np.float64)
    present = ~np.isnan(values)
    summary = ColumnSummary(name=name, role=role, kind="numeric", missing=int((~present).sum()))
    if not present.any():
        return summary
    low, median, high = np.quantile(values[present], [0, 0.5, 1]).tolist()
    offered, chosen = _means(data, values) if role == "feature" else (None, None)
    return replace(summary, low=low, median=median, high=high, offered=offered, chosen=chosen)


def _detail(facts: Mapping[str, Any]) -> str | None:
    """Return a short description of a content column, such as vectors, timestamps or lists."""
    if "size" in facts:
        return f"{facts['size']:,} numbers"
    if "min" in facts:
        return f"{facts['min']} to {facts['max']}"
    if "categories" in facts:
        some, words = ", ".join(facts["categories"][:_MAX_CATEGORIES]), facts["words"]
        return f"{some}{', ...' if words > _MAX_CATEGORIES else ''} ({words:,} names)"
    return None


def _means(data: ChoiceData, values: Floats) -> tuple[float | None, float | None]:
    """Return the mean of a feature over all alternatives and over the chosen ones, ignoring missing values."""
    offered = _mean(values, spread(data.weights / data.sizes, data.offsets))
    if data.chosen is None:
        return offered, None
    return offered, _mean(values[data.offsets[:-1] + data.chosen], data.weights)


def _mean(values: Floats, weights: Floats) -> float | None:
    counted = np.where(np.isnan(values), 0.0, weights)
    return float(np.nan_to_num(values) @ counted / counted.sum()) if counted.any() else None


def _labels(data: ChoiceData) -> tuple[LabelShare, ...]:
    """Return the shares of the most frequently chosen labels."""
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
# Example choice sets with the model's predictions:
#
#     typical     the choice is about as probable as in the median set, and the set is not larger than the median
#     surprising  the choice is the least probable of all; for a ranking, the one ranked lowest
#     uncertain   if choices are unknown: the set with the largest relative entropy, entropy / log n
#     large       the set with the most alternatives, if sizes differ
#
# Sets with one alternative or weight 0 are excluded. No set is shown twice.

Kind = Literal["typical", "surprising", "uncertain", "large"]

MAX_EXAMPLE_SETS = 5000  # sets that examples are selected from; a larger table is sampled


@dataclass(frozen=True, kw_only=True, eq=False)
class ExampleSet(ToDictMixin, ReportPartMixin):
    """An example choice set, with n alternatives in the order of the table.

    Attributes
    ----------
    kind
        Kind of example: "typical", "surprising", "uncertain" or "large".
    choice_set
        Id of the set.
    individual
        Values of the individual-level columns.
    names
        Names of the alternatives, (n,).
    columns
        Mapping from features to their values (n,), with images as data URIs.
    p
        Predicted probabilities, (n,).
    chosen
        Index of the chosen alternative, or None if the choice is unknown.
    attribution
        Effects of rivals on the chosen alternative, or on the most probable one if the choice is unknown (None if the
        model returns a ranking).
    chain
        Markov chain of the choice set, or None if the model has no chain.
    """

    kind: Kind
    choice_set: Any
    individual: Mapping[str, Any]
    names: tuple[str, ...]
    columns: Mapping[str, tuple[Any, ...]]
    p: Floats
    chosen: int | None
    attribution: Attribution | None = None
    chain: Chain | None = None
    _derived = ("nll",)

    def _frame_rows(self) -> Iterator[dict[str, Any]]:
        for k, (name, p) in enumerate(zip(self.names, self.p, strict=True)):
            values = {column: values[k] for column, values in self.columns.items()}
            yield {"alternative": name, "probability": p, "chosen": k == self.chosen} | values

    def _short(self) -> str:
        return f"{self.kind}, choice set {self.choice_set}, {len(self.names)} alternatives"

    @property
    def nll(self) -> float | None:
        """Negative log-probability of the choice, or None if the choice is unknown or has probability 0."""
        if self.chosen is None or self.p[self.chosen] <= 0:
            return None
        return float(-np.log(self.p[self.chosen]))


def example_sets(model: ChoiceModel, data: ChoiceData, *, seed: int = 0) -> tuple[ExampleSet, ...]:
    """Select example sets from up to 5,000 sets of a table, and add the model's predictions."""
    eligible = np.flatnonzero((data.sizes > 1) & (data.weights > 0))
    if not eligible.size:
        raise InputError("expected a choice set with at least two alternatives and a positive weight, found none.")
    sample = np.sort(np.random.default_rng(seed).permutation(eligible)[:MAX_EXAMPLE_SETS])
    positions = _example_positions(model, data.subset(sample))
    return tuple(_example(model, data, kind, int(sample[k])) for kind, k in positions.items())


def _example_positions(model: ChoiceModel, data: ChoiceData) -> dict[Kind, int]:
    """Return the position of the example set of each kind."""
    # 1. How surprising each choice is, or how uncertain the set is.
    log_p = predicted_log_p(model, data)
    second: Kind = "surprising"
    if data.chosen is None:
        second, surprise = "uncertain", _entropy(log_p, data)
    elif gives_of(model) == "ranking":
        better, _ = metrics.rank_of_chosen(predicted_scores(model, data), data.offsets, data.chosen, tie=0.0)
        surprise = better / data.sizes
    else:
        surprise = metrics.nll(log_p, data.offsets, data.chosen)
    # 2. A score for each kind; the set with the largest score that is not yet used is the example.
    deviation = np.where(data.sizes <= np.median(data.sizes), np.abs(surprise - np.median(surprise)), np.inf)
    scores: dict[Kind, Floats] = {"typical": -deviation, second: surprise}
    if data.sizes.min() < data.sizes.max():
        scores["large"] = data.sizes.astype(np.float64)
    positions: dict[Kind, int] = {}
    for kind, score in scores.items():
        free = np.array([k for k in range(len(data)) if k not in positions.values()], np.int64)
        if free.size:
            positions[kind] = int(free[np.argmax(score[free])])
    return positions


def _entropy(log_p: Floats, data: ChoiceData) -> Floats:
    """Return the entropy (S,) of each set, divided by the maximum entropy."""
    terms = np.exp(log_p) * np.where(np.isneginf(log_p), 0.0, log_p)
    entropy: Floats = -sum_by_set(terms, data.offsets) / np.log(data.sizes)
    return entropy


def _example(model: ChoiceModel, data: ChoiceData, kind: Kind, position: int) -> ExampleSet:
    """Return one example set with the model's predictions."""
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
    """Return the columns at the given positions as JSON-compatible values, with None for missing values."""
    return {name: json_values(column.take(places)) for name, column in columns.items()}
