"""Elasticities of choice probabilities, own and cross, for any model.

Within a set, for the value x_j of one column and every alternative i,

    elasticity   d log p_i / d log x_j     per cent by which p_i changes when x_j rises by one per cent
    semi         d log p_i / d x_j         for values that may be 0 or below
    marginal     d p_i / d x_j             in probability per unit

Over sets they are averaged by sample enumeration, an alternative counting as much as it is chosen:

    aggregate elasticity = sum_S w_S p_i E_ij / sum_S w_S p_i

with the weights w of the sets, over all sets that offer i; where j is not on offer E_ij is 0. So it is the elasticity
of the predicted share of i. Marginal effects are averaged with w alone. A column of the individual moves all
alternatives of a set together, so it has one response per alternative, and these sum to 0 when weighted by p.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import consecutive_indices, ordered_pairs, spread
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.evaluation.predictions import Predictor, gives_of, predicted_log_p, require_data, require_sets
from pcmcnet.insight.queries import compose_sets, numeric_values, places_in_set, segments, with_values
from pcmcnet.models.logit.logit_effects import (
    mean_cross_responses,
    mean_rival_responses,
    own_responses,
    step_sizes,
    weighted_group_means,
)
from pcmcnet.reports.formats import ToDictMixin
from pcmcnet.reports.tables import TableMixin

# -- Slopes ------------------------------------------------------------------------------------------------------------
# Derivatives of a model's log-probabilities in one numeric column, by its own formula or by central differences.
#
#     feature         d log p_i / d x_j for the ordered pairs (i, j) of every set, see `ordered_pairs`: (sum n^2,)
#     the individual  d log p_i / d x for every alternative i: (N,)
#
# Networks differentiate themselves and the multinomial logit has a formula. Every other model is asked about two copies
# of each set for each j, with x_j moved up and down by a small part of itself. Columns are float32, so the step that
# divides the difference is the one really taken. Missing values do not move: their derivatives are 0.

Method = Literal["auto", "derivatives", "differences"]

MAX_ROWS_PER_CALL = 2**20  # alternatives that a model is asked about at once, at most
SMOOTH_STEP, STEPWISE_STEP = (
    1e-3,
    0.1,
)  # relative steps: those of scores and rankings, such as a forest's, must cross thresholds


def slopes(
    model: Predictor, data: ChoiceData, column: str, *, method: Method = "auto", step: float | None = None
) -> Floats:
    """Differentiate log-probabilities in a numeric feature, or in a numeric column of the individual.

    Parameters
    ----------
    model, data
        A fitted model and the choice sets to ask it about.
    column
        What changes.
    method
        "derivatives" of the model's own, "differences", or "auto" for the former where there are such.
    step
        Of differences, relative to the value (to the column's mean size where the value is 0); 0.001 by default, and
        0.1 for models whose probabilities are made of scores or rankings.

    Returns
    -------
    array
        (sum n^2,) for a feature, (N,) for a column of the individual.

    Raises
    ------
    InputError
        When the column is not numeric, or there is no such column.
    ConfigError
        When the method is unknown or the step not above 0 and below 1.
    """
    require_word("method", method, get_args(Method))
    if step is not None:
        require_number("step", step, low=0, high=1, open_low=True, open_high=True)
    numeric_values(data, column)  # refuses what has no derivative
    own: Any = getattr(model, "_slopes", None)
    if method != "differences" and own is not None:
        found: Floats | None = own(data, column)
        if found is not None:
            if not np.isfinite(found).all():
                raise InputError(f"{type(model).__name__}: not all derivatives in {column!r} are finite numbers.")
            return found
    if method == "derivatives":
        raise InputError(f"{type(model).__name__} has no derivatives of its own: use method='differences'.")
    relative = step or (SMOOTH_STEP if gives_of(model) == "probabilities" else STEPWISE_STEP)
    return _differences(model, data, column, relative)


def chunk_positions(rows: Ints) -> Iterator[Ints]:
    """Cut positions into stretches of at most ``MAX_ROWS_PER_CALL`` rows, given the rows of each; one may exceed it alone."""
    stretch = np.cumsum(rows) // MAX_ROWS_PER_CALL
    yield from np.split(np.arange(len(rows)), np.flatnonzero(np.diff(stretch)) + 1) if len(rows) else []


def _differences(model: Predictor, data: ChoiceData, column: str, step: float) -> Floats:
    """Ask about two copies of each set for every value that moves, as many sets at once as memory allows."""
    x, individual = numeric_values(data, column)
    ends = np.stack([x + side * step * step_sizes(x) for side in (1, -1)]).astype(np.float32)  # (2, N) or (2, S)
    p = np.exp(predicted_log_p(model, data)) if len(data) else np.empty(0)
    lengths = data.sizes if individual else data.sizes**2
    starts = np.cumsum(lengths) - lengths
    out = np.zeros(int(lengths.sum()))
    ask = _individual_changes if individual else _feature_changes
    for sets in chunk_positions(2 * lengths):
        log_p = ask(model, data, column, sets, ends)  # (2, M)
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
    """Return log-probabilities with each individual's value up and down: (2, alternatives)."""
    parts = [places_in_set(data, s) for s in sets]
    both = compose_sets(data, parts * 2, np.tile(sets, 2))
    return predicted_log_p(model, with_values(both, column, ends[:, sets].ravel())).reshape(2, -1)


def _feature_changes(model: Predictor, data: ChoiceData, column: str, sets: Ints, ends: NDArray[Any]) -> Floats:
    """Return log-probabilities of i with the value of j up and down: (2, ordered pairs (i, j))."""
    sizes = data.sizes[sets]
    owners = consecutive_indices(data.offsets[sets], sizes)  # the j of each copy
    copies = [part for s in sets for part in [places_in_set(data, s)] * data.sizes[s]]
    both = compose_sets(data, copies * 2, np.tile(np.repeat(sets, sizes), 2))
    places = np.concatenate(copies)
    moving = places == np.repeat(owners, np.repeat(sizes, sizes))
    x = numeric_values(data, column)[0].astype(np.float32)[places]
    values = np.concatenate([np.where(moving, end[places], x) for end in ends])
    log_p = predicted_log_p(model, with_values(both, column, values)).reshape(2, -1)  # in the order (j, i)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    i, j = ordered_pairs(offsets)
    rows = spread(sizes, offsets)
    turned = (np.cumsum(rows) - rows)[j] + i - spread(offsets[:-1], offsets)[i]  # where (j, i) stands
    return log_p[:, turned]


def _quotient(log_p: Floats, p: Floats, taken: Floats) -> Floats:  # (2, M), (M,), (M,) -> (M,)
    """Divide changes of log p by the steps taken; where a probability is 0, changes of p over p, and 0 if p is 0."""
    both = np.isfinite(log_p).all(axis=0)
    safe = np.where(both, log_p, 0.0)
    plain = np.diff(np.exp(log_p[::-1]), axis=0)[0] / np.where(p > 0, p, np.inf)
    change = np.where(both, safe[0] - safe[1], plain)
    found: Floats = np.divide(change, taken, out=np.zeros_like(change), where=taken != 0)
    return found


# -- Elasticity --------------------------------------------------------------------------------------------------------

Kind = Literal["elasticity", "semi", "marginal"]


@dataclass(frozen=True, slots=True)
class ElasticityRow:
    """The alternatives of one segment."""

    segment: str
    alternatives: int
    share: float  # of the choices, as predicted
    own: float  # response of the alternative whose value changes
    other: float | None  # that of its rivals in the same sets; None for a column of the individual


@dataclass(frozen=True, slots=True)
class ElasticityTable(ToDictMixin, TableMixin):
    """Average responses by segment of the alternative whose value changes. Prints as a table."""

    column: str
    kind: Kind
    rows: tuple[ElasticityRow, ...]

    def __getitem__(self, segment: str) -> ElasticityRow:
        for row in self.rows:
            if row.segment == segment:
                return row
        raise InputError(f"no segment {segment!r}." + did_you_mean(segment, [row.segment for row in self.rows]))

    def _cells(self) -> list[list[str]]:
        cross = any(row.other is not None for row in self.rows)
        heads = [f"{self.kind}, {self.column}", "alternatives", "share", "own", *(["other"] if cross else [])]
        rows = [
            [r.segment, f"{r.alternatives:,}", f"{r.share:.4f}", f"{r.own:.4f}"]
            + ([] if r.other is None else [f"{r.other:.4f}"])
            for r in self.rows
        ]
        return [heads, *rows]


@dataclass(frozen=True, slots=True)
class CrossTable(ToDictMixin, TableMixin):
    """Average responses of the alternatives of one group when those of another change. Prints as a table."""

    column: str
    kind: Kind
    names: tuple[str, ...]
    values: Floats  # (G, G): row whose response it is, column who changes; 0 where the two never meet

    def __getitem__(self, pair: tuple[str, str]) -> float:
        """Return the response of the first when the second changes."""
        of, when = (self._position(name) for name in pair)
        return float(self.values[of, when])

    def _position(self, name: str) -> int:
        if name not in self.names:
            raise InputError(f"no group {name!r}." + did_you_mean(name, self.names))
        return self.names.index(name)

    def _cells(self) -> list[list[str]]:
        heads = [f"{self.kind} of, when {self.column} of", *self.names]
        return [heads, *([n, *(f"{v:.4f}" for v in row)] for n, row in zip(self.names, self.values, strict=True))]


@dataclass(frozen=True, eq=False)
class Responses:
    """Responses of every probability to every value of one column; prints as the table of their averages."""

    column: str
    kind: Kind
    data: ChoiceData
    p: Floats  # (N,) probabilities
    values: Floats  # (sum n^2,) over the ordered pairs (i, j) of each set, or (N,) for a column of the individual
    individual: bool  # whether the column is one of the individual

    @property
    def own(self) -> Floats:
        """(N,) response of each alternative to its own value, or to that of the individual."""
        if self.individual:
            return self.values
        return own_responses(self.values, self.data.offsets)

    def matrix(self, position: int) -> Floats:
        """Return the responses of one set: (n, n), row i to the value of column j; (n,) for the individual's column."""
        sizes = self.data.sizes
        at = range(len(sizes))[position]
        lengths = sizes if self.individual else sizes**2
        begin = int(lengths[:at].sum())
        found = self.values[begin : begin + int(lengths[at])]
        return found if self.individual else found.reshape(sizes[at], sizes[at])

    @property
    def _mass(self) -> Floats:
        """(N,) what each alternative counts in an average."""
        weight: Floats = spread(self.data.weights, self.data.offsets)
        return weight if self.kind == "marginal" else weight * self.p

    def table(self, by: str | ArrayLike | None = None) -> ElasticityTable:
        """Average over sets, by segment of the alternative whose value changes.

        Parameters
        ----------
        by
            A feature, the column of labels, an individual or kept column, or a value for each set or alternative;
            numbers of many values are cut at their quartiles. None puts all in one segment.

        Raises
        ------
        InputError
            When there is no such column, or averages over whole sets are asked for a column of the individual: they
            are 0.
        """
        groups = segments(self.data, by)
        if self.individual and groups.of_sets:
            remedy = f"by={self.data.schema.alternative!r}" if self.data.labels is not None else "by=<a feature>"
            raise InputError(
                f"{self.column!r} belongs to the individual: what one alternative gains another loses, and the average "
                f"over a set is 0. Average by segments of alternatives: {remedy}."
            )
        codes, G = groups.codes, len(groups.names)
        own = weighted_group_means(self.own, self._mass, codes, G)
        other: list[Any] = [None] * G
        if not self.individual:
            other = mean_rival_responses(self.values, self._mass, self.data.offsets, codes, G).tolist()
        weights = spread(self.data.weights, self.data.offsets)
        share = np.bincount(groups.codes, weights * self.p, len(groups.names)) / self.data.weights.sum()
        count = np.bincount(groups.codes, minlength=len(groups.names))
        figures = zip(groups.names, count.tolist(), share.tolist(), own.tolist(), other, strict=True)
        return ElasticityTable(self.column, self.kind, tuple(ElasticityRow(*row) for row in figures))

    def between(self, by: str | ArrayLike | None = None) -> CrossTable:
        """Average over sets, for groups of alternatives against each other: by label if no column is named.

        Where several alternatives of a set are in one group, their values change together. Every set that offers the
        one that responds counts: these are the responses of predicted shares.
        """
        if self.individual:
            raise InputError(f"{self.column!r} belongs to the individual, not to an alternative: use table.")
        if by is None and self.data.labels is None:
            raise InputError("alternatives have no labels: name a feature that groups them, between(by=...).")
        groups = segments(self.data, self.data.schema.alternative if by is None else by)
        G, offsets = len(groups.names), self.data.offsets
        means = mean_cross_responses(self.values, self._mass, offsets, groups.codes, G)
        return CrossTable(self.column, self.kind, groups.names, means)

    def __str__(self) -> str:
        if self.individual and self.data.labels is None:  # there is no table without a choice of segments
            mean = float(np.average(np.abs(self.own), weights=self._mass)) if self._mass.any() else 0.0
            return (
                f"{self.kind}, {self.column}: {len(self.own):,} alternatives, mean size {mean:.4f}; "
                f"for averages by a feature of theirs, ask for table(by=...)"
            )
        return str(self.table(self.data.schema.alternative if self.individual else None))


def elasticity(
    model: Predictor,
    data: Any,
    column: str,
    *,
    kind: Kind = "elasticity",
    method: Method = "auto",
    step: float | None = None,
) -> Responses:
    """Differentiate all choice probabilities in one numeric feature, or in a numeric column of the individual.

    Parameters
    ----------
    model
        Any fitted model; also an object with the method ``predict_log_proba``.
    data
        Choice data, or a table that the model's schema reads. The result holds a number for each ordered pair of
        alternatives of each set: take a part of a very large table.
    column
        What changes.
    kind
        "elasticity" for d log p / d log x, "semi" for d log p / d x, or "marginal" for d p / d x.
    method, step
        How derivatives are found: see :func:`pcmcnet.insight.elasticity.slopes`.

    Raises
    ------
    InputError
        When the column is not numeric, there is none, no set has a weight, or elasticities are asked for values
        below 0.

    Examples
    --------
    >>> from pcmcnet.models import MNL
    >>> table = {"trip": [1, 1, 2, 2, 3, 3, 4, 4], "took": [1, 0, 0, 1, 1, 0, 0, 1], "cost": [2, 4, 5, 3, 4, 3, 5, 2]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    >>> found = elasticity(MNL().fit(data), data, "cost")
    >>> found.matrix(0).round(3)
    array([[-0.251,  0.502],
           [ 1.603, -3.207]])
    >>> print(found.table())
    elasticity, cost  alternatives   share      own   other
    all                          8  1.0000  -0.7985  0.7985
    """
    require_word("kind", kind, get_args(Kind))
    data = require_data(model, data)
    require_sets(data)
    x, individual = numeric_values(data, column)
    if kind == "elasticity" and (x < 0).any():
        raise InputError(
            f"column {column!r} has {int((x < 0).sum())} values below 0, of which one per cent more is less: ask for "
            f"kind='semi' or kind='marginal'."
        )
    slope, p = slopes(model, data, column, method=method, step=step), np.exp(predicted_log_p(model, data))
    i, j = (np.arange(len(p)), data.set_of_alternative) if individual else ordered_pairs(data.offsets)
    scale = {"elasticity": np.nan_to_num(x)[j], "semi": 1.0, "marginal": p[i]}[kind]
    return Responses(column, kind, data, p, slope * scale, individual)
