"""Derivatives of a logit's probabilities, and elasticities with standard errors by the delta method.

In a logit, with u_m = d v_m / d x_j for every alternative m of the set,

    d log P(i) / d x_j = u_i - sum_m P(m) u_m.

u is linear in the coefficients; what they multiply is the central difference of the design matrix, so every
transformation is covered, also one relative to the set. The elasticity of P(i) with respect to x_j is this times x_j;
over sets, elasticities are averaged with weights w_S P(i|S): see :mod:`pcmcnet.models.interface.responses`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.column_arrays import Numeric
from pcmcnet.data.ragged import log_softmax_by_set, ordered_pairs, spread, sum_by_set
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.models.interface.responses import cross_means, other_means, own_responses, step_sizes, weighted_mean_by
from pcmcnet.models.logits.design import Design
from pcmcnet.models.logits.estimation import Errors

if TYPE_CHECKING:
    from pcmcnet.models.logits.mnl import MNL

_STEP = 1e-5  # of central differences, relative


class Elasticity(NamedTuple):
    """By how many per cent the probability ``of`` one alternative changes ``when`` another's feature rises by one."""

    of: str
    when: str
    value: float
    error: float


@dataclass(frozen=True)
class Elasticities:
    """Own and cross elasticities with respect to one feature; prints as a table."""

    column: str
    entries: tuple[Elasticity, ...]

    def __getitem__(self, pair: tuple[str, str]) -> Elasticity:
        for entry in self.entries:
            if (entry.of, entry.when) == pair:
                return entry
        raise KeyError(pair)

    def __str__(self) -> str:
        head = (f"elasticity to {self.column}", "of", "value", "std err")
        rows = [head, *((e.when, e.of, f"{e.value:.4f}", f"{e.error:.4f}") for e in self.entries)]
        widths = [max(len(row[k]) for row in rows) for k in range(4)]
        return "\n".join(
            f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}" for a, b, c, d in rows
        )

    __repr__ = __str__


def elasticities(model: MNL, data: ChoiceData, column: str, errors: Errors) -> Elasticities:
    """Return the elasticities of all choice probabilities with respect to a numeric feature.

    Parameters
    ----------
    model
        A fitted logit.
    data
        Choice sets to average over.
    column
        The feature that changes.
    errors
        Kind of standard errors.

    Returns
    -------
    Elasticities
        Where alternatives have labels, one for every pair of them: ``found["car", "bus"]`` is that of P(car) when
        the feature of bus changes. Otherwise two: ("own", "own"), of an alternative when its own feature changes, and
        ("other", "own"), of the others.
    """
    _require_numeric(model.design_, data, column)
    design, offsets = model.design_, data.offsets
    linear = design.matrix(data), list(_moves(design, data, column))
    at = np.nan_to_num(_exact(data, column))[ordered_pairs(offsets)[1]]  # x_j of each pair
    labels, codes = _labels(data), _codes(data)

    def means(values: Floats) -> Floats:
        here, b = design.given(values), design.form.coefficients(values)
        x, moves = linear if here is design else (here.matrix(data), list(_moves(here, data, column)))
        p = np.exp(log_softmax_by_set(x @ b, offsets))
        percent, mass = _slopes_at(b, p, moves, len(at)) * at, p * spread(data.weights, offsets)
        if labels:
            return cross_means(percent, mass, offsets, codes, len(labels)).T.ravel()
        own = weighted_mean_by(own_responses(percent, offsets), mass, codes, 1)
        return np.concatenate([own, other_means(percent, mass, offsets, codes, 1)])

    names = [(of, when) for when in labels for of in labels] or [("own", "own"), ("other", "own")]
    found, error = model.estimates_.delta(means, errors)
    rows = zip(names, found.tolist(), error.tolist(), strict=True)
    return Elasticities(column, tuple(Elasticity(of, when, v, e) for (of, when), v, e in rows))


def _labels(data: ChoiceData) -> list[str]:
    """Return the labels in use; none where alternatives have no labels."""
    return [] if data.labels is None else [data.labels.categories[k] for k in np.unique(data.labels.codes)]


def _codes(data: ChoiceData) -> Ints:  # (N,)
    """Number the labels in use; all alternatives alike where there are none."""
    if data.labels is None:
        return np.zeros(len(data.rows), np.int64)
    return np.unique(data.labels.codes, return_inverse=True)[1].astype(np.int64)


def logit_slopes(model: MNL, data: ChoiceData, column: str) -> Floats:
    """Return d log P(i) / d x_j over the ordered pairs of each set; for an individual's column (N,) d log P(i) / dx."""
    length = int((data.sizes**2 if column in data.features else data.sizes).sum())
    if column not in model.design_.codes or not len(data):
        return np.zeros(length)
    values = model.estimates_.values
    design, b = model.design_.given(values), model.design_.form.coefficients(values)
    p = np.exp(log_softmax_by_set(design.matrix(data) @ b, data.offsets))
    return _slopes_at(b, p, _moves(design, data, column), length)


def class_slopes(
    design: Design, data: ChoiceData, column: str, coefficients: Floats, shares: Floats
) -> Floats:  # (C, K), (S, C) -> (sum n^2,), or (N,)
    """Return the same for a mixture of logits, whose classes have these coefficients and do not depend on the column.

    With r_c the share of class c among those who choose i, d log P(i) = sum_c r_c d log P_c(i).
    """
    length = int((data.sizes**2 if column in data.features else data.sizes).sum())
    if column not in design.codes or not len(data):
        return np.zeros(length)
    v, moves = design.matrix(data) @ coefficients.T, list(_moves(design, data, column))
    p = np.column_stack([np.exp(log_softmax_by_set(of_class, data.offsets)) for of_class in v.T])
    joint = p * spread(shares, data.offsets)
    r = joint / joint.sum(axis=1, keepdims=True)
    of = ordered_pairs(data.offsets)[0] if column in data.features else np.arange(len(v))
    slopes = [_slopes_at(b, p_c, moves, length) for b, p_c in zip(coefficients, p.T, strict=True)]
    mixed: Floats = np.einsum("pc,cp->p", r[of], np.stack(slopes))
    return mixed


class _Move(NamedTuple):
    """What moves with one value of each of some sets: of the alternative at one place, or of the individual."""

    rows: Bools  # (N,) the M alternatives of these sets
    offsets: Ints  # where each of these sets begins among them
    cells: Ints  # (M,) where their responses belong
    columns: Bools  # (K,) columns of the design that move
    slope: Floats  # (M, k) d design / d x, in these columns


def _moves(design: Design, data: ChoiceData, column: str) -> Iterator[_Move]:
    """Differentiate the design in a column: place by place of the sets, or once in a column of the individual."""
    x, sizes, offsets = _exact(data, column), data.sizes, data.offsets
    step = _STEP * step_sizes(x)  # (N,), or (S,)
    if column not in data.features:
        everyone = np.ones(len(data.rows), np.bool_)
        slope = _difference(design, data, column, step) / (2 * spread(step, offsets))[:, None]
        yield _move(everyone, offsets, np.arange(len(data.rows)), slope)
        return
    place = np.arange(len(x)) - spread(offsets[:-1], offsets)
    first = np.cumsum(spread(sizes, offsets)) - spread(sizes, offsets)  # of the pairs of an alternative
    for k in range(int(sizes.max())):
        rows, moving = spread(sizes > k, offsets), np.where(place == k, step, 0.0)
        unit = spread(sum_by_set(moving, offsets), offsets)[rows]  # the step taken in each set
        slope = _difference(design, data, column, moving)[rows] / (2 * unit)[:, None]
        yield _move(rows, np.append(0, np.cumsum(sizes[sizes > k])), (first + k)[rows], slope)


def _move(rows: Bools, offsets: Ints, cells: Ints, slope: Floats) -> _Move:
    columns: Bools = np.any(slope, axis=0)
    return _Move(rows, offsets, cells, columns, slope[:, columns])


def _slopes_at(b: Floats, p: Floats, moves: Iterable[_Move], length: int) -> Floats:
    """Return the derivatives of the log-probabilities at coefficients b, where the probabilities are p."""
    out = np.zeros(length)
    for rows, offsets, cells, columns, slope in moves:
        u = slope @ b[columns]
        out[cells] = u - spread(sum_by_set(p[rows] * u, offsets), offsets)
    return out


def _exact(data: ChoiceData, column: str) -> Floats:
    values = {**data.individual, **data.features}[column]
    assert isinstance(values, Numeric)
    return values.values.astype(np.float64)


def _difference(design: Design, data: ChoiceData, column: str, step: Floats) -> Floats:  # (N,) or (S,) -> (N, K)
    """Return the design matrix with a column moved up less that with it moved down."""
    return _moved(design, data, column, step) - _moved(design, data, column, -step)


def _moved(design: Design, data: ChoiceData, column: str, by: Floats) -> Floats:  # (N,) or (S,) -> (N, K)
    """Return the design matrix with a column moved, in float64: float32 would drown the steps."""
    there = Numeric(_exact(data, column) + by)  # type: ignore[arg-type]
    if column in data.features:
        return design.matrix(replace(data, features={**data.features, column: there}))
    return design.matrix(replace(data, individual={**data.individual, column: there}))


def _require_numeric(design: Design, data: ChoiceData, column: str) -> None:
    if column not in data.features:
        raise InputError(f"{column!r} is no feature of the table." + did_you_mean(column, data.features))
    if not isinstance(data.features[column], Numeric):
        raise InputError(f"{column!r} is categorical: elasticities need a numeric feature.")
    if column not in design.codes:
        raise InputError(f"the utility does not depend on {column!r}: its formula is {design.formula!r}.")
    if not len(data):
        raise InputError("elasticities need at least one choice set.")
