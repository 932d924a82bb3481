"""Models without parameters: equal probabilities, and a ranking by one feature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Numeric
from pcmcnet.data.columns.ragged import spread, sum_by_set
from pcmcnet.errors import ConfigError, SchemaError, did_you_mean
from pcmcnet.models.interface.choice_model import ChoiceModel, FitRun
from pcmcnet.models.interface.fitted import FittedState, TrainingTable
from pcmcnet.models.interface.options import takes
from pcmcnet.reports.formats import Summary


class Rule(ChoiceModel):
    """Base class of models without parameters: nothing is estimated, and only the options are saved."""

    @property
    def num_parameters(self) -> int:
        """Number of parameters: 0."""
        self.require_fitted()
        return 0

    def _facts(self) -> dict[str, str]:
        table = self.table_
        return {"trained on": f"{table.choice_sets:,} choice sets, {table.alternatives:,} alternatives"}

    def _files(self) -> dict[str, bytes]:
        return {}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedState:
        return FittedState(record=record)


@dataclass(frozen=True, kw_only=True)
class UniformConfig:
    """The uniform model has no options."""


class Uniform(Rule):
    """Guessing at random: all available alternatives of a choice set have the same probability.

    The model has no options and no parameters. The uniform model is the baseline of every evaluation.

    Examples
    --------
    >>> table = {"trip": [1, 1, 2, 2, 2], "took": [1, 0, 0, 0, 1]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took")
    >>> Uniform().fit(data).predict_proba(data).round(3)
    array([0.5  , 0.5  , 0.333, 0.333, 0.333])
    """

    name = "uniform"
    is_logit = True
    config_class = UniformConfig
    config: UniformConfig

    @takes(UniformConfig)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedState:
        return FittedState()  # there is nothing to estimate

    def _log_proba(self, data: ChoiceData) -> Floats:
        log_p: Floats = spread(-np.log(data.sizes), data.offsets)
        return log_p

    def summary(self) -> Summary:
        """Return a table with the rule of the model."""
        return Summary(
            "Uniform", self._facts(), ("alternative", "probability"), (("each of n", "1 / n"),), self.caveats
        )


@dataclass(frozen=True, kw_only=True)
class RankByConfig:
    """Options of the ranking.

    Parameters
    ----------
    column
        Numeric feature to rank by.
    ascending
        Whether the alternative with the smallest value ranks first. If False, the alternative with the largest value
        ranks first.
    """

    column: str = field(kw_only=False)
    ascending: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise ConfigError(f"column must be the feature to rank by, such as column='price', got {self.column!r}.")
        if not isinstance(self.ascending, bool):
            raise ConfigError(f"ascending must be true or false, got {self.ascending!r}.")


class RankBy(Rule):
    """Ranking of the alternatives of a choice set by one numeric feature, without estimation.

    The column may be passed as a positional argument. Missing values (in tables read with ``missing="indicator"``)
    rank last in both directions.

    Examples
    --------
    >>> table = {"trip": [1, 1, 1, 2, 2], "took": [1, 0, 0, 0, 1], "price": [7, 5, 9, 4, 4]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["price"])
    >>> cheapest = RankBy("price").fit(data)
    >>> cheapest.predict_scores(data)
    array([-2., -1., -3., -1., -1.])
    >>> cheapest.predict_proba(data)
    array([0. , 1. , 0. , 0.5, 0.5])
    """

    name = "rank-by"
    config_class = RankByConfig
    gives = "ranking"
    config: RankByConfig

    @takes(RankByConfig)
    def __init__(self, column: Any = None, **options: Any) -> None:
        super().__init__(column=column, **options)

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedState:
        self._values(train)  # raises SchemaError if the table lacks the column
        return FittedState()

    def _values(self, data: ChoiceData) -> Floats:
        """Return the sort keys (N,) of the alternatives; the smallest key ranks first."""
        column = self.config.column
        if column in data.individual:
            raise SchemaError(
                f"column {column!r} belongs to the individual and is the same for all alternatives of a set, so it "
                f"cannot rank them: use a feature." + did_you_mean(column, _numeric(data))
            )
        if column not in data.features:
            raise SchemaError(f"the table has no feature {column!r} to rank by." + did_you_mean(column, _numeric(data)))
        values = data.features[column]
        if not isinstance(values, Numeric):
            raise SchemaError(
                f"expected a numeric feature to rank by, got {column!r}, which is categorical: use another feature, or "
                f"leave it out of categorical=[...] when reading the table." + did_you_mean(column, _numeric(data))
            )
        signed = values.values.astype(np.float64) * (1 if self.config.ascending else -1)
        return np.where(np.isnan(signed), np.inf, signed)

    def _scores(self, data: ChoiceData) -> Floats:
        scores: Floats = -dense_ranks(self._values(data), data.offsets).astype(np.float64)
        return scores

    def _log_proba(self, data: ChoiceData) -> Floats:
        first = self._scores(data) == -1
        share = spread(-np.log(sum_by_set(first.astype(np.float64), data.offsets)), data.offsets)
        return np.where(first, share, -np.inf)

    def summary(self) -> Summary:
        """Return a table with the column and the direction of the ranking."""
        order = "smallest" if self.config.ascending else "largest"
        return Summary("RankBy", self._facts(), ("column", "first"), ((self.config.column, order),), self.caveats)


def dense_ranks(values: Floats, offsets: Ints) -> Ints:
    """Return the dense ranks of values (N,) within their sets: 1, 2, ..., with equal ranks for equal values.

    Examples
    --------
    >>> dense_ranks(np.array([7.0, 5.0, 9.0, 5.0, 4.0]), np.array([0, 4, 5]))
    array([2, 1, 3, 1, 1])
    """
    # 1. Sort the values within each set.
    sets = spread(np.arange(len(offsets) - 1), offsets)
    order = np.lexsort((values, sets))
    is_first = np.isin(np.arange(len(values)), offsets[:-1])  # sorting keeps the sets in place
    # 2. A new rank begins with each set, and wherever the sorted value changes.
    is_new = is_first | np.append(True, values[order][1:] != values[order][:-1])[: len(values)]
    # 3. Count the ranks within each set, and restore the original order.
    count = np.cumsum(is_new)
    ranks = np.empty(len(values), np.int64)
    ranks[order] = count - spread(count[offsets[:-1]], offsets) + 1
    return ranks


def _numeric(data: ChoiceData) -> list[str]:
    """Return the names of the numeric features."""
    return [name for name, column in data.features.items() if isinstance(column, Numeric)]
