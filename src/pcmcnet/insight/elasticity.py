"""Own and cross elasticities of choice probabilities, for any model.

For the value x_j of one column and every alternative i of the same set, there are three kinds of responses:

    elasticity   d log p_i / d log x_j     percentage change in p_i when x_j rises by 1%
    semi         d log p_i / d x_j         for values that may be 0 or negative
    marginal     d p_i / d x_j             probability per unit

Responses are averaged over sets by sample enumeration, which weights an alternative by its probability:

    aggregate elasticity = sum_S w_S p_i E_ij / sum_S w_S p_i

Here w_S is the weight of set S, the sums are over all sets that offer i, and E_ij is 0 in sets that do not offer j. The
aggregate elasticity is the elasticity of the predicted share of i. Marginal effects are averaged with the weights w_S
alone. An individual-level column has the same value for all alternatives of a set, so each alternative has one
response. Elasticities within a set, weighted by p, sum to 0; marginal effects sum to 0 without weights.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word, suggests_arguments
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.names import DEFAULT_NAMES, ColumnNames
from pcmcnet.data.columns.ragged import consecutive_indices, ordered_pairs, require_few_pairs, spread
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.evaluation.predictions import Predictor, gives_of, predicted_log_p, require_data, require_sets
from pcmcnet.insight.queries import compose_sets, numeric_values, places_in_set, segments, sign_caveats, with_values
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.models.logit.logit_effects import (
    mean_cross_responses,
    mean_rival_responses,
    own_responses,
    step_sizes,
    weighted_group_means,
)
from pcmcnet.reports.formats import ToDictMixin
from pcmcnet.reports.frames import FrameMixin
from pcmcnet.reports.tables import TableMixin

log = logging.getLogger("pcmcnet")

# -- Slopes ------------------------------------------------------------------------------------------------------------
# Derivatives of a model's log-probabilities with respect to one numeric column, by the model's formula or by central
# differences.
#
#     feature            d log p_i / d x_j for the ordered pairs (i, j) of every set, see `ordered_pairs`: (sum n^2,)
#     individual level   d log p_i / d x for every alternative i: (N,)
#
# Networks use automatic differentiation, and the multinomial logit has a formula. Every other model predicts two copies
# of each set for each j, with x_j raised and lowered by a small fraction. Columns are float32, so the difference is
# divided by the step after rounding. Missing values stay missing: their derivatives are 0.
#
# Some members of an averaged network use bins, whose ends are observed values such as frequent prices. There, the
# derivatives from the left and from the right differ. Automatic differentiation returns one of them, and a central
# difference returns their mean. So central differences are the default for columns with bins.

Method = Literal["auto", "derivatives", "differences"]

MAX_ROWS_PER_CALL = 2**20  # alternatives that a model predicts in one call
SMOOTH_STEP = 1e-3  # relative step of differences
STEPWISE_STEP = 0.1  # relative step for trees and rankings, whose predictions change only at thresholds
MAX_ISOLATED_SHARE = 0.5  # share of values without another value within a step, above which a warning is logged


def slopes(
    model: Predictor, data: ChoiceData, column: str, *, method: Method = "auto", step: float | None = None
) -> Floats:
    """Differentiate log-probabilities with respect to a numeric feature or individual-level column.

    Parameters
    ----------
    model
        A fitted model, or an object with the method ``predict_log_proba``.
    data
        The choice sets to predict.
    column
        The column that changes.
    method
        "derivatives" for the model's own derivatives, "differences" for central differences, or "auto" (the default)
        for derivatives if the model has them and does not use bins of the column, and differences otherwise.
    step
        Step for the differences, relative to the value, or to the mean absolute value of the column if the value is 0.
        The default is 0.001, or 0.1 for models that contain trees or return scores or rankings.

    Returns
    -------
    array
        Derivatives of shape (sum n^2,) for a feature, or (N,) for an individual-level column.

    Raises
    ------
    InputError
        If the column does not exist or is not numeric, if ``method`` is "derivatives" and the model has none, or if
        the derivatives of a feature would take more than 2 GiB.
    ConfigError
        If the method is unknown, or the step is not between 0 and 1.
    """
    require_word("method", method, get_args(Method))
    if step is not None:
        require_number("step", step, low=0, high=1, open_low=True, open_high=True)
    _, individual = numeric_values(data, column)  # raises if the column is not numeric
    if not individual:
        require_few_pairs(
            "derivatives", data.sizes, ", as in data.subset([0]), or pn.scenario for the effect of a given change"
        )
    model_slopes: Any = getattr(model, "_slopes", None)
    if method == "auto" and isinstance(model, ChoiceModel) and model._has_kinks(column):
        method = "differences"
    if method != "differences" and model_slopes is not None:
        derivatives: Floats | None = model_slopes(data, column)
        if derivatives is not None:
            if not np.isfinite(derivatives).all():
                raise InputError(
                    f"{type(model).__name__}: not all derivatives with respect to {column!r} are finite numbers."
                )
            return derivatives
    if method == "derivatives":
        raise InputError(f"{type(model).__name__} has no derivatives: use method='differences'.")
    return _differences(model, data, column, step or _default_step(model))


def _default_step(model: Predictor) -> float:
    """Return the default step of differences."""
    return STEPWISE_STEP if gives_of(model) != "probabilities" or _is_stepwise(model) else SMOOTH_STEP


def _is_stepwise(model: Predictor) -> bool:
    return isinstance(model, ChoiceModel) and model._is_stepwise


def _warn_of_isolated_values(model: Predictor, x: Floats, column: str, step: float) -> None:
    """Log a warning if most steps from a value cross no threshold, because they reach no other value of the column."""
    x = x[np.isfinite(x)]
    distinct, width = np.unique(x), step * step_sizes(x)
    neighbours = np.searchsorted(distinct, x + width, "right") - np.searchsorted(distinct, x - width) - 1
    share = float((neighbours < 1).mean()) if len(distinct) > 1 else 0.0
    if share > MAX_ISOLATED_SHARE:
        log.warning(
            "%s contains trees, which notice a change of %r only if it crosses a threshold between values of the "
            "table. For %.0f%% of the values, no other value is within the step of %g times the value, so elasticities "
            "may be too close to 0: pass a larger step, or compare scenarios with values of the table",
            type(model).__name__,
            column,
            100 * share,
            step,
        )


def chunk_positions(rows: Ints) -> Iterator[Ints]:
    """Yield chunks of positions with at most ``MAX_ROWS_PER_CALL`` rows, given the number of rows of each position.

    A single position with more rows than ``MAX_ROWS_PER_CALL`` forms a chunk by itself.
    """
    chunk = np.cumsum(rows) // MAX_ROWS_PER_CALL
    yield from np.split(np.arange(len(rows)), np.flatnonzero(np.diff(chunk)) + 1) if len(rows) else []


def _differences(model: Predictor, data: ChoiceData, column: str, step: float) -> Floats:
    """Return central differences, from predictions of two copies of each set for every value that changes."""
    # 1. Both ends of the step of each value, and where the results of each set are stored.
    x, individual = numeric_values(data, column)
    ends = np.stack([x + side * step * step_sizes(x) for side in (1, -1)]).astype(np.float32)  # (2, N) or (2, S)
    p = np.exp(predicted_log_p(model, data)) if len(data) else np.empty(0)
    lengths = data.sizes if individual else data.sizes**2
    starts = np.cumsum(lengths) - lengths
    out = np.zeros(int(lengths.sum()))
    predict = _individual_changes if individual else _feature_changes
    # 2. Predict both ends for as many sets as fit into one call, and divide by the steps.
    for sets in chunk_positions(2 * lengths):
        log_p = predict(model, data, column, sets, ends)  # (2, M)
        inside = consecutive_indices(data.offsets[sets], data.sizes[sets])
        if individual:
            base, moved = p[inside], np.repeat(sets, data.sizes[sets])
        else:
            i, j = ordered_pairs(np.concatenate([[0], np.cumsum(data.sizes[sets])]))
            base, moved = p[inside][i], inside[j]
        taken = np.nan_to_num(ends[0].astype(np.float64) - ends[1])[moved]
        out[consecutive_indices(starts[sets], lengths[sets])] = _quotient(log_p, base, taken)
    return out


def _individual_changes(model: Predictor, data: ChoiceData, column: str, sets: Ints, ends: NDArray[Any]) -> Floats:
    """Return log-probabilities (2, alternatives) with each individual's value raised and lowered."""
    parts = [places_in_set(data, s) for s in sets]
    both = compose_sets(data, parts * 2, np.tile(sets, 2))
    return predicted_log_p(model, with_values(both, column, ends[:, sets].ravel())).reshape(2, -1)


def _feature_changes(model: Predictor, data: ChoiceData, column: str, sets: Ints, ends: NDArray[Any]) -> Floats:
    """Return log-probabilities of i with the value of j raised and lowered, as (2, number of ordered pairs (i, j))."""
    # 1. Predict n copies of each set of n alternatives; in the j-th copy the value of j changes.
    sizes = data.sizes[sets]
    owners = consecutive_indices(data.offsets[sets], sizes)  # the j of each copy
    copies = [part for s in sets for part in [places_in_set(data, s)] * data.sizes[s]]
    both = compose_sets(data, copies * 2, np.tile(np.repeat(sets, sizes), 2))
    places = np.concatenate(copies)
    moving = places == np.repeat(owners, np.repeat(sizes, sizes))
    x = numeric_values(data, column)[0].astype(np.float32)[places]
    values = np.concatenate([np.where(moving, end[places], x) for end in ends])
    log_p = predicted_log_p(model, with_values(both, column, values)).reshape(2, -1)  # in the order (j, i)
    # 2. Transpose each set's block from the order (j, i) to the order (i, j).
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    i, j = ordered_pairs(offsets)
    rows = spread(sizes, offsets)
    transposed = (np.cumsum(rows) - rows)[j] + i - spread(offsets[:-1], offsets)[i]  # index of (j, i)
    return log_p[:, transposed]


def _quotient(log_p: Floats, p: Floats, taken: Floats) -> Floats:  # (2, M), (M,), (M,) -> (M,)
    """Divide changes in log p by the steps.

    Where log p is infinite, use the change in p divided by p, or 0 if p is 0.
    """
    both = np.isfinite(log_p).all(axis=0)
    safe = np.where(both, log_p, 0.0)
    plain = np.diff(np.exp(log_p[::-1]), axis=0)[0] / np.where(p > 0, p, np.inf)
    change = np.where(both, safe[0] - safe[1], plain)
    quotient: Floats = np.divide(change, taken, out=np.zeros_like(change), where=taken != 0)
    return quotient


# -- Elasticity --------------------------------------------------------------------------------------------------------

Kind = Literal["elasticity", "semi", "marginal"]


@dataclass(frozen=True, slots=True)
class ElasticityRow:
    """Average responses of one segment.

    Attributes
    ----------
    segment
        Name of the segment.
    alternatives
        Number of alternatives.
    share
        Predicted share of the segment in all choices.
    own
        Average response of the alternative whose value changes.
    other
        Average response of the other alternatives in the same sets (None for an individual-level column).
    """

    segment: str
    alternatives: int
    share: float
    own: float
    other: float | None


@dataclass(frozen=True, slots=True)
class ElasticityTable(ToDictMixin, TableMixin):
    """Average responses by segment of the alternative whose value changes.

    Attributes
    ----------
    column
        The column that changes.
    kind
        Kind of response: "elasticity", "semi" or "marginal".
    rows
        One row per segment. For example, ``table["car"]`` is the row of the segment "car".
    display
        Display names and units of the columns, for printed tables.
    caveats
        A sentence if the column has an effect against its expected sign, or none because of it.
    """

    column: str
    kind: Kind
    rows: tuple[ElasticityRow, ...]
    display: ColumnNames = DEFAULT_NAMES
    caveats: tuple[str, ...] = ()
    _hidden: ClassVar[tuple[str, ...]] = ("display",)

    def __getitem__(self, segment: str) -> ElasticityRow:
        """Return the row of a segment."""
        for row in self.rows:
            if row.segment == segment:
                return row
        raise InputError(f"no segment {segment!r}." + did_you_mean(segment, [row.segment for row in self.rows]))

    def _frame_rows(self) -> list[dict[str, Any]]:
        return [{"column": self.column, "kind": self.kind, **asdict(row)} for row in self.rows]

    def _caveats(self) -> tuple[str, ...]:
        return self.caveats

    def _cells(self) -> list[list[str]]:
        cross = any(row.other is not None for row in self.rows)
        heads = [
            f"{self.kind}, {self.display[self.column]}",
            "alternatives",
            "share",
            "own",
            *(["other"] if cross else []),
        ]
        rows = [
            [r.segment, f"{r.alternatives:,}", f"{r.share:.4f}", f"{r.own:.4f}"]
            + ([] if r.other is None else [f"{r.other:.4f}"])
            for r in self.rows
        ]
        return [heads, *rows]


@dataclass(frozen=True, slots=True)
class CrossTable(ToDictMixin, TableMixin):
    """Average responses of each group of alternatives when the values of another group change.

    Attributes
    ----------
    column
        The column that changes.
    kind
        Kind of response: "elasticity", "semi" or "marginal".
    names
        Names of the G groups.
    values
        Responses (G, G) of the row group when the values of the column group change, or 0 if no set offers both groups.
    caveats
        A sentence if the column has an effect against its expected sign, or none because of it.
    """

    column: str
    kind: Kind
    names: tuple[str, ...]
    values: Floats
    caveats: tuple[str, ...] = ()

    def __getitem__(self, pair: tuple[str, str]) -> float:
        """Return the response of the first group when the values of the second group change."""
        of, when = (self._position(name) for name in pair)
        return float(self.values[of, when])

    def _position(self, name: str) -> int:
        if name not in self.names:
            raise InputError(f"no group {name!r}." + did_you_mean(name, self.names))
        return self.names.index(name)

    def _frame_rows(self) -> list[dict[str, Any]]:
        return [
            {"column": self.column, "kind": self.kind, "of": of, "when": when, "value": float(self.values[i, j])}
            for i, of in enumerate(self.names)
            for j, when in enumerate(self.names)
        ]

    def _caveats(self) -> tuple[str, ...]:
        return self.caveats

    def _cells(self) -> list[list[str]]:
        heads = [f"{self.kind} of row to {self.column} of column", *self.names]
        return [heads, *([n, *(f"{v:.4f}" for v in row)] for n, row in zip(self.names, self.values, strict=True))]


@dataclass(frozen=True, eq=False)
class Responses(FrameMixin):
    """Result of :func:`elasticity`: the response of every probability to every value of one column.

    ``print(result)`` shows the table of average responses.

    Attributes
    ----------
    column
        The column that changes.
    kind
        Kind of response: "elasticity", "semi" or "marginal".
    data
        The choice sets that were predicted.
    p
        Predicted probabilities, (N,).
    values
        Responses of shape (sum n^2,), for the ordered pairs (i, j) of each set, or (N,) for an individual-level column.
    individual
        True if ``column`` is an individual-level column.
    caveats
        A sentence if the column has an effect against its expected sign, or none because of it.
    """

    column: str
    kind: Kind
    data: ChoiceData
    p: Floats
    values: Floats
    individual: bool
    caveats: tuple[str, ...] = ()

    @property
    def own(self) -> Floats:
        """Response (N,) of each alternative to its own value, or to the value of the individual."""
        if self.individual:
            return self.values
        return own_responses(self.values, self.data.offsets)

    def matrix(self, position: int) -> Floats:
        """Return the responses of one set.

        Parameters
        ----------
        position
            Position of the set in the data. Negative positions count from the end.

        Returns
        -------
        array
            Responses (n, n) of i (row) to the value of j (column), or (n,) for an individual-level column.

        Raises
        ------
        IndexError
            If the position is out of range.
        """
        sizes = self.data.sizes
        at = range(len(sizes))[position]
        lengths = sizes if self.individual else sizes**2
        begin = int(lengths[:at].sum())
        responses = self.values[begin : begin + int(lengths[at])]
        return responses if self.individual else responses.reshape(sizes[at], sizes[at])

    @property
    def _mass(self) -> Floats:
        """Weight of each alternative in an average, (N,)."""
        weight: Floats = spread(self.data.weights, self.data.offsets)
        return weight if self.kind == "marginal" else weight * self.p

    def table(self, by: str | ArrayLike | None = None) -> ElasticityTable:
        """Average the responses over sets, by segment of the alternative whose value changes.

        Parameters
        ----------
        by
            Definition of the segments: a feature, the label column, an individual-level column, a kept column, or a
            value for each set or alternative. Numbers with many distinct values are grouped by quartile. By default,
            all alternatives form one segment.

        Returns
        -------
        ElasticityTable
            Average own and cross responses by segment.

        Raises
        ------
        InputError
            If ``by`` is an unknown column, or ``column`` is an individual-level column and the segments consist of
            whole sets, in which the average response is 0.
        """
        groups = segments(self.data, by)
        if self.individual and groups.of_sets:
            remedy = f"by={self.data.schema.alternative!r}" if self.data.labels is not None else "by=<a feature>"
            raise InputError(
                f"{self.column!r} is an individual-level column: the gains and losses of the alternatives of a "
                f"choice set "
                f"cancel out, so their average is 0. Average by segments of alternatives: {remedy}."
            )
        codes, G = groups.codes, len(groups.names)
        own_means = weighted_group_means(self.own, self._mass, codes, G)
        other: list[Any] = [None] * G
        if not self.individual:
            other = mean_rival_responses(self.values, self._mass, self.data.offsets, codes, G).tolist()
        weights = spread(self.data.weights, self.data.offsets)
        share = np.bincount(groups.codes, weights * self.p, len(groups.names)) / self.data.weights.sum()
        count = np.bincount(groups.codes, minlength=len(groups.names))
        figures = zip(groups.names, count.tolist(), share.tolist(), own_means.tolist(), other, strict=True)
        rows = tuple(ElasticityRow(*row) for row in figures)
        return ElasticityTable(self.column, self.kind, rows, self.data.schema.names, self.caveats)

    def between(self, by: str | ArrayLike | None = None) -> CrossTable:
        """Average the cross responses between groups of alternatives.

        If several alternatives of a set are in the same group, their values change together. Responses are averaged
        over all sets that offer the responding group, which gives the response of its predicted share.

        Parameters
        ----------
        by
            The column that defines the groups, as in :meth:`table` (the labels by default).

        Returns
        -------
        CrossTable
            Responses of each group to changes in every group.

        Raises
        ------
        InputError
            If ``column`` is an individual-level column, or the table has no labels and ``by`` is None.
        """
        if self.individual:
            raise InputError(f"{self.column!r} is an individual-level column and has no cross effects: use table().")
        if by is None and self.data.labels is None:
            raise InputError("the table has no labels: group the alternatives by a feature, as in between(by=...).")
        groups = segments(self.data, self.data.schema.alternative if by is None else by)
        G, offsets = len(groups.names), self.data.offsets
        means = mean_cross_responses(self.values, self._mass, offsets, groups.codes, G)
        return CrossTable(self.column, self.kind, groups.names, means, self.caveats)

    def _frame_rows(self) -> list[dict[str, Any]]:
        labels = None if self.data.labels is None else self.data.schema.alternative
        if self.individual and labels is None:
            raise InputError(f"{self.column!r} is an individual-level column: use table(by=...).to_frame().")
        return self.table(labels)._frame_rows()

    def __str__(self) -> str:
        if self.individual and self.data.labels is None:  # a table needs segments, which only the caller can choose
            mean = float(np.average(np.abs(self.own), weights=self._mass)) if self._mass.any() else 0.0
            return (
                f"{self.kind}, {self.column}: {len(self.own):,} alternatives, mean absolute value {mean:.4f}; "
                f"for averages by a feature, use table(by=...)"
            )
        return str(self.table(self.data.schema.alternative if self.individual else None))


@suggests_arguments(call="elasticity(model, data, 'price')")
def elasticity(
    model: Predictor,
    data: Any,
    column: str,
    *,
    kind: Kind = "elasticity",
    method: Method = "auto",
    step: float | None = None,
) -> Responses:
    """Compute the response of all choice probabilities to one numeric feature or individual-level column.

    Parameters
    ----------
    model
        A fitted model, or an object with the method ``predict_log_proba``.
    data
        Choice data, or a table that matches the model's schema. The result holds a number for each ordered pair of
        alternatives in each set, so pass a subset if the table is very large.
    column
        The column that changes.
    kind
        "elasticity" (the default) for d log p / d log x, "semi" for d log p / d x, or "marginal" for d p / d x.
    method
        "derivatives" for the model's own derivatives, "differences" for central differences, or "auto" (the default)
        for derivatives if the model has them and does not use bins of the column, and differences otherwise.
    step
        Relative step for the differences. The default is 0.001, or 0.1 for models that contain trees or return scores
        or rankings. Trees notice only changes that cross one of their thresholds, which lie between the values of the
        table. If most values of the column are further apart than the step, a warning is logged.

    Returns
    -------
    Responses
        The responses in each set, which ``table()`` and ``between()`` average.

    Raises
    ------
    InputError
        If the column does not exist, is not numeric, or has negative values although ``kind`` is "elasticity", if no
        set has a positive weight, or if the responses to a feature would take more than 2 GiB.
    ConfigError
        If ``kind``, ``method`` or ``step`` is invalid.

    Examples
    --------
    >>> from pcmcnet.models import MNL
    >>> table = {"trip": [1, 1, 2, 2, 3, 3, 4, 4], "took": [1, 0, 0, 1, 1, 0, 0, 1], "cost": [2, 4, 5, 3, 4, 3, 5, 2]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    >>> responses = elasticity(MNL().fit(data), data, "cost")
    >>> responses.matrix(0).round(3)
    array([[-0.251,  0.502],
           [ 1.603, -3.207]])
    >>> print(responses.table())
    elasticity, cost  alternatives   share      own   other
    all                          8  1.0000  -0.7985  0.7985
    """
    require_word("kind", kind, get_args(Kind))
    data = require_data(model, data)
    require_sets(data)
    x, individual = numeric_values(data, column)
    if kind == "elasticity" and (x < 0).any():
        raise InputError(
            f"column {column!r} has {int((x < 0).sum())} negative values, for which elasticities are not defined: use "
            f"kind='semi' or kind='marginal'."
        )
    if _is_stepwise(model):
        _warn_of_isolated_values(model, x, column, step or _default_step(model))
    slope, p = slopes(model, data, column, method=method, step=step), np.exp(predicted_log_p(model, data))
    i, j = (np.arange(len(p)), data.set_of_alternative) if individual else ordered_pairs(data.offsets)
    scale = {"elasticity": np.nan_to_num(x)[j], "semi": 1.0, "marginal": p[i]}[kind]
    return Responses(column, kind, data, p, slope * scale, individual, sign_caveats(model, column))
