"""Demand curves: the predicted share of some alternatives as one column is scaled, or set to values.

    share(t) = sum_S w_S sum_{i in A} p_i(S with x -> t x) / sum_S w_S

over all sets, also those where none of the alternatives A is on offer: a share of all choices. The value moves for
the alternatives named; the share followed is theirs, or that of others (a cross demand curve). A column of the
individual moves for everyone. All points are asked for together.
"""

from __future__ import annotations

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
    """Shares of G segments at K points. Prints as a table."""

    column: str
    changed: str  # whose value changes; empty for a column of the individual
    of: str  # whose share it is
    scaled: bool  # whether the points are factors, or values
    points: Floats  # (K,)
    segments: tuple[str, ...]
    shares: Floats  # (G, K)
    now: Floats  # (G,) shares as things are
    weights: Floats  # (G,) of the choice sets

    def _cells(self) -> list[list[str]]:
        heads = [f"{self.column} {'times' if self.scaled else 'at'}", *self.segments]
        columns = zip(self.points, self.shares.T, strict=True)
        rows = [[f"{point:g}", *(f"{share:.4f}" for share in at)] for point, at in columns]
        return [heads, *rows, ["as it is", *(f"{share:.4f}" for share in self.now)]]


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
    """Predict how the share of some alternatives goes with one numeric column.

    Parameters
    ----------
    model, data
        A fitted model, or another with ``predict_log_proba``; choice data, or a table that the model's schema reads.
    column
        A feature, which changes for ``alternative`` alone, or a column of the individual, which changes for all.
    alternative
        A label; the place of an alternative within its set, the first being 0; or an array of flat places, or a mask of
        the N alternatives.
    of
        Whose share is followed, said in the same ways; that of ``alternative`` if None.
    factors, values
        What the column is multiplied by, or set to: one of the two; factors from 0.5 to 1.5 by default.
    by
        Column of the individual, kept column, or one value per choice set: a curve for each segment.

    Raises
    ------
    InputError
        When the column is not numeric, the alternative is nowhere on offer, or both factors and values are given.

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
    as it is    0.3355
    """
    data = require_data(model, data)
    require_sets(data)
    x, individual = numeric_values(data, column)
    if factors is not None and values is not None:
        raise InputError("give factors or values, not both.")
    given = values if values is not None else FACTORS if factors is None else factors
    points = np.asarray(given, np.float64)
    if points.ndim != 1 or not points.size or not np.isfinite(points).all():
        raise InputError(f"factors and values: expected a list of finite numbers, got {given!r}.")
    moving = _alternatives(data, alternative, "alternative")
    followed = moving if of is None else _alternatives(data, of, "of")
    names, codes = set_segments(data, by)
    there = points[:, None] * (np.ones_like(x) if values is not None else x)  # (K, N), or (K, S)
    changed = there if individual else np.where(moving, there, x)
    now = sum_by_set(np.exp(predicted_log_p(model, data)) * followed, data.offsets)  # (S,)
    touched = np.full(len(data), individual) | (sum_by_set(moving.astype(np.int64), data.offsets) > 0)
    at = np.tile(now, (len(points), 1))  # (K, S): where nothing changes the share is known
    at[:, touched] = _shares(model, data, column, followed, np.flatnonzero(touched), changed)
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
    """Ask for the probability of the alternatives followed in some sets, with each row of changed values."""
    point, asked = np.repeat(np.arange(len(changed)), len(sets)), np.tile(sets, len(changed))
    out = np.empty(len(asked))
    for part in chunk_positions(data.sizes[asked]):
        k, s = point[part], asked[part]
        copies = compose_sets(data, [places_in_set(data, position) for position in s], s)
        places = consecutive_indices(data.offsets[s], data.sizes[s])
        values = changed[spread(k, copies.offsets), places] if column in data.features else changed[k, s]
        p = np.exp(predicted_log_p(model, with_values(copies, column, values)))
        out[part] = sum_by_set(p * followed[places], copies.offsets)
    return out.reshape(len(changed), -1)


def _alternatives(data: ChoiceData, which: str | int | ArrayLike, what: str) -> Bools:
    """Return a mask (N,) of the alternatives meant, at least one."""
    if isinstance(which, str):
        if data.labels is None:
            raise InputError(f"{what}: the table has no labels: name a place within sets, or flat places.")
        found: Bools = data.labels.plain() == which
        hint = did_you_mean(which, data.labels.categories)
    elif isinstance(which, int | np.integer) and not isinstance(which, bool):
        found, hint = consecutive_indices(np.zeros(len(data), np.int64), data.sizes) == which, ""
    else:
        given, hint = np.asarray(which), ""
        found = given if given.dtype == np.bool_ else np.isin(np.arange(len(data.rows)), given)
        strange = given.dtype.kind not in "biu" or found.shape != (len(data.rows),)
        if strange or (given.dtype != np.bool_ and found.sum() != len(np.unique(given))):
            raise InputError(
                f"{what}: expected a label, a place within sets, or flat places or a mask of {len(data.rows)} "
                f"alternatives, got {which!r}."
            )
    if not found.any():
        raise InputError(f"{what}={which!r} is in none of the choice sets." + hint)
    return found


def _name(which: str | int | ArrayLike) -> str:
    if isinstance(which, str):
        return which
    return f"place {which}" if isinstance(which, int | np.integer) else "the alternatives named"
