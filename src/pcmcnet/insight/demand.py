"""Demand curves: the predicted share of some alternatives as one column is scaled or set to given values.

    share(t) = sum_S w_S sum_{i in A} p_i(S with x -> t x) / sum_S w_S

Here share(t) is a share of all choices, because the sums include the sets that offer none of the alternatives A. A
feature changes only for the selected alternatives. The curve shows the share of the selected alternatives, or of other
alternatives (a cross-demand curve). An individual-level column changes for all alternatives. All points of a curve are
predicted together, in chunks of bounded size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import consecutive_indices, spread, sum_by_set
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.evaluation.predictions import Predictor, predicted_log_p, require_data, require_sets
from pcmcnet.insight.elasticity import chunk_positions
from pcmcnet.insight.queries import compose_sets, numeric_values, places_in_set, set_segments, with_values
from pcmcnet.reports.formats import ToDictMixin
from pcmcnet.reports.tables import TableMixin

FACTORS = tuple(np.linspace(0.5, 1.5, 11).round(2).tolist())


@dataclass(frozen=True, eq=False)
class DemandCurve(ToDictMixin, TableMixin):
    """Result of :func:`demand`: shares of G segments at K points. ``print(result)`` shows a table.

    Attributes
    ----------
    column
        The column that changes.
    changed
        Name of the alternatives whose values change (empty for an individual-level column).
    of
        Name of the alternatives whose share is shown.
    scaled
        True if the points are factors, False if they are values.
    points
        Factors or values at which the shares are predicted, (K,).
    segments
        Names of the segments.
    shares
        Predicted shares, (G, K).
    now
        Predicted shares without any change, (G,).
    weights
        Total weight of the choice sets of each segment, (G,).
    """

    column: str
    changed: str
    of: str
    scaled: bool
    points: Floats
    segments: tuple[str, ...]
    shares: Floats
    now: Floats
    weights: Floats

    def _frame_rows(self) -> Iterator[dict[str, Any]]:
        facts = {"column": self.column, "changed": self.changed, "of": self.of}
        for segment, shares, now in zip(self.segments, self.shares, self.now, strict=True):
            for point, share in zip(self.points, shares, strict=True):
                at = {"factor" if self.scaled else "value": point}
                yield {**facts, "segment": segment, **at, "share": share, "share_now": now}

    def _cells(self) -> list[list[str]]:
        heads = [f"{self.column} {'times' if self.scaled else 'at'}", *self.segments]
        columns = zip(self.points, self.shares.T, strict=True)
        rows = [[f"{point:g}", *(f"{share:.4f}" for share in at)] for point, at in columns]
        return [heads, *rows, ["unchanged", *(f"{share:.4f}" for share in self.now)]]


def demand(
    model: Predictor,
    data: Any,
    column: str,
    *,
    alternative: str | int | ArrayLike,
    of: str | int | ArrayLike | None = None,
    factors: ArrayLike | None = None,
    values: ArrayLike | None = None,
    by: str | ArrayLike | None = None,
) -> DemandCurve:
    """Predict the share of some alternatives as a function of one numeric column.

    Parameters
    ----------
    model
        A fitted model, or an object with the method ``predict_log_proba``.
    data
        Choice data, or a table that matches the model's schema.
    column
        A feature, which changes for ``alternative`` only, or an individual-level column, which changes for all
        alternatives.
    alternative
        The alternatives whose values change: a label, a position within sets (counted from 0), an array of flat
        indices, or a mask of the N alternatives.
    of
        The alternatives whose share is shown, in the same forms as ``alternative``. The default is ``alternative``
        itself.
    factors
        Factors by which the column is multiplied (0.5 to 1.5 in steps of 0.1 by default).
    values
        Values to which the column is set, instead of ``factors``.
    by
        Segments with a separate curve each: an individual-level column, a kept column, or one value per choice set. By
        default, there is one curve for all sets.

    Returns
    -------
    DemandCurve
        Shares by segment and point.

    Raises
    ------
    InputError
        If the column is not numeric, no set offers the alternative, or both ``factors`` and ``values`` are passed.

    Examples
    --------
    >>> from pcmcnet.models import MNL
    >>> table = {"trip": [1, 1, 2, 2, 3, 3, 4, 4], "took": [1, 0, 0, 1, 1, 0, 0, 1], "cost": [2, 4, 5, 3, 4, 3, 5, 2]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    >>> print(demand(MNL().fit(data), data, "cost", alternative=0, factors=[0.9, 1, 1.1]))
    cost times     all
    0.9         0.3846
    1           0.3355
    1.1         0.2958
    unchanged   0.3355
    """
    data = require_data(model, data)
    require_sets(data)
    x, individual = numeric_values(data, column)
    if factors is not None and values is not None:
        raise InputError("expected factors or values, got both.")
    grid = values if values is not None else FACTORS if factors is None else factors
    points = np.asarray(grid, np.float64)
    if points.ndim != 1 or not points.size or not np.isfinite(points).all():
        raise InputError(f"factors and values: expected a list of finite numbers, got {grid!r}.")
    moving = _alternatives(data, alternative, "alternative")
    followed = moving if of is None else _alternatives(data, of, "of")
    names, codes = set_segments(data, by)
    # 1. Values of the column at every point: (K, N) for a feature, (K, S) for an individual-level column.
    targets = points[:, None] * (np.ones_like(x) if values is not None else x)
    changed = targets if individual else np.where(moving, targets, x)
    # 2. Share of the followed alternatives in every set, now and at every point; sets without a change keep theirs.
    now = sum_by_set(np.exp(predicted_log_p(model, data)) * followed, data.offsets)  # (S,)
    affected = np.full(len(data), individual) | (sum_by_set(moving.astype(np.int64), data.offsets) > 0)
    at = np.tile(now, (len(points), 1))  # (K, S)
    at[:, affected] = _shares(model, data, column, followed, np.flatnonzero(affected), changed)
    # 3. Weighted means over the sets of each segment.
    total: Floats = np.bincount(codes, data.weights, len(names)).astype(np.float64)
    sums = np.stack([np.bincount(codes, data.weights * row, len(names)) for row in (now, *at)], 1)
    shares = sums / np.where(total > 0, total, 1.0)[:, None]
    return DemandCurve(
        column=column,
        changed="" if individual else _name(alternative),
        of=_name(alternative if of is None else of),
        scaled=values is None,
        points=points,
        segments=names,
        shares=shares[:, 1:],
        now=shares[:, 0],
        weights=total,
    )


def _shares(
    model: Predictor, data: ChoiceData, column: str, followed: Bools, sets: Ints, changed: Floats
) -> Floats:  # (K, N) or (K, S) -> (K, sets)
    """Return the total probability of the ``followed`` alternatives in each set, for each row of changed values."""
    point, position = np.repeat(np.arange(len(changed)), len(sets)), np.tile(sets, len(changed))
    out = np.empty(len(position))
    for chunk in chunk_positions(data.sizes[position]):
        k, s = point[chunk], position[chunk]
        copies = compose_sets(data, [places_in_set(data, one) for one in s], s)
        places = consecutive_indices(data.offsets[s], data.sizes[s])
        values = changed[spread(k, copies.offsets), places] if column in data.features else changed[k, s]
        p = np.exp(predicted_log_p(model, with_values(copies, column, values)))
        out[chunk] = sum_by_set(p * followed[places], copies.offsets)
    return out.reshape(len(changed), -1)


def _alternatives(data: ChoiceData, selection: str | int | ArrayLike, parameter: str) -> Bools:
    """Return a mask (N,) of the selected alternatives, or raise InputError if no alternative is selected."""
    if isinstance(selection, str):
        if data.labels is None:
            raise InputError(f"{parameter}: the table has no labels: use a position within sets, or flat indices.")
        mask: Bools = data.labels.plain() == selection
        hint = did_you_mean(selection, data.labels.categories)
    elif isinstance(selection, int | np.integer) and not isinstance(selection, bool):
        mask, hint = consecutive_indices(np.zeros(len(data), np.int64), data.sizes) == selection, ""
    else:
        values, hint = np.asarray(selection), ""
        mask = values if values.dtype == np.bool_ else np.isin(np.arange(len(data.rows)), values)
        invalid = values.dtype.kind not in "biu" or mask.shape != (len(data.rows),)
        if invalid or (values.dtype != np.bool_ and mask.sum() != len(np.unique(values))):
            raise InputError(
                f"{parameter}: expected a label, a position within sets, an array of flat indices, or a mask of "
                f"{len(data.rows)} alternatives, got {selection!r}."
            )
    if not mask.any():
        raise InputError(f"{parameter}={selection!r}: no choice set offers this alternative." + hint)
    return mask


def _name(selection: str | int | ArrayLike) -> str:
    """Return a name for the selected alternatives."""
    if isinstance(selection, str):
        return selection
    return f"place {selection}" if isinstance(selection, int | np.integer) else "the selected alternatives"
