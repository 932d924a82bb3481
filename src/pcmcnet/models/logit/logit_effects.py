"""Derivatives of a logit's probabilities, and elasticities with standard errors by the delta method.

In a logit, with u_m = d v_m / d x_j for every alternative m of the set,

    d log P(i) / d x_j = u_i - sum_m P(m) u_m.

u is linear in the coefficients; what they multiply is the central difference of the design matrix, so every
transformation is covered, also one relative to the set. The elasticity of P(i) with respect to x_j is this times x_j;
over sets, elasticities are averaged with weights w_S P(i|S): see :mod:`pcmcnet.models.logit.logit_effects`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Numeric
from pcmcnet.data.columns.ragged import log_softmax_by_set, ordered_pairs, spread, sum_by_set
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.models.logit.design import Design, empty_sets, require_unit
from pcmcnet.models.logit.standard_errors import Errors, Ratio

if TYPE_CHECKING:
    from pcmcnet.models.logit.logit_model import LogitModel
    from pcmcnet.models.mnl import MNL

log = logging.getLogger("pcmcnet")

# -- Responses of choice probabilities to the values of one column, and their averages over choice sets ----------------
# Within a set, r_ij is the response of alternative i to the value of alternative j: an elasticity, or another
# derivative. Over sets responses are averaged by sample enumeration, each alternative counting with its mass m_i, such
# as w_S p_i, in every set that offers it. Where the alternative that changes is not on offer, or has no value, nothing
# responds: r = 0.
#
#     own     sum m_i r_ii / sum m_i                          by group of i
#     cross   sum m_i r_ij / sum m_i                          by the groups of i and of j, whose values change together
#     other   sum m_i r_ij / sum m_i over pairs with i != j   by group of j: of its rivals, in the sets that offer it
#
# With m = w p and labels as groups, cross is what finite differences of the predicted shares give, d log share_i / d
# log x_j, and own is its diagonal.
#
# Responses lie over the ordered pairs (i, j) of each set, as `ragged.ordered_pairs` lists them: (sum n^2,).


def own_responses(values: Floats, offsets: Ints) -> Floats:  # (sum n^2,) -> (N,)
    """Return the response of each alternative to its own value."""
    i, j = ordered_pairs(offsets)
    own: Floats = values[i == j]
    return own


def mean_rival_responses(values: Floats, mass: Floats, offsets: Ints, codes: Ints, groups: int) -> Floats:  # -> (G,)
    """Average the responses of the rivals by group of the alternative whose value changes."""
    i, j = ordered_pairs(offsets)
    return weighted_group_means(values, np.where(i != j, mass[i], 0.0), codes[j], groups)


def mean_cross_responses(values: Floats, mass: Floats, offsets: Ints, codes: Ints, groups: int) -> Floats:  # -> (G, G)
    """Average by group of the alternative that responds and of those that change, which do so together."""
    i, j = ordered_pairs(offsets)
    total = np.bincount(codes[i] * groups + codes[j], mass[i] * values, groups**2).reshape(groups, groups)
    weight = np.bincount(codes, mass, groups)[:, None]
    means: Floats = total / np.where(weight > 0, weight, 1.0)
    return means


def weighted_group_means(values: Floats, weights: Floats, codes: Ints, groups: int) -> Floats:  # -> (groups,)
    """Return the weighted mean of each group; 0 where nothing has a weight."""
    total = np.bincount(codes, weights, groups)
    means: Floats = np.bincount(codes, weights * values, groups) / np.where(total > 0, total, 1.0)
    return means


def step_sizes(values: Floats) -> Floats:
    """Return what the relative step of a difference is relative to: |x|, and the mean of it where x is 0 or missing."""
    size = np.abs(np.nan_to_num(values))
    sizes: Floats = np.where(size > 0, size, float(size.mean()) or 1.0)
    return sizes


# -- Willingness to pay ------------------------------------------------------------------------------------------------
# Willingness to pay in a logit: -b_name / b_cost in units of the table, with its error by the delta method.
#
# With v = b_cost cost + b_name x + ..., a change of x by one unit is made up for by one of cost by -b_name / b_cost.
# What a unit is worth must be one number: the coefficient of log(cost), or of a product, is none, and is refused.


def willingness_to_pay(model: LogitModel, name: str, cost: str, errors: Errors) -> Ratio:
    """Return what one more unit of something is worth in units of a cost: see :meth:`LogitModel.willingness_to_pay`."""
    (whose, top), (others, bottom) = _marginal_utility(model, name), _marginal_utility(model, cost, money=True)
    if whose != others:
        raise InputError(f"{name!r} and {cost!r} belong to different classes: take both from one.")
    at_cost = bottom(model.estimates_.values)
    if at_cost == 0:
        raise InputError(f"the coefficient of {cost!r} is 0: nothing can be expressed in its units.")
    if at_cost > 0:
        log.warning("the coefficient of %r is above 0, so it is no cost: ratios to it mean little", cost)
    value, error = model.estimates_.delta(lambda b: -top(b) / bottom(b), errors)
    return Ratio(f"{name} in {cost}", float(value), float(error))


def _marginal_utility(model: LogitModel, name: str, *, money: bool = False) -> tuple[str, Callable[[Floats], float]]:
    """Return the class that a coefficient belongs to, and what a unit is worth as a function of all parameters."""
    form = model.design_.form
    if form.cost is not None and name in form.columns:
        name = form.names[form.columns.index(name)]
    at = model.estimates_.position(name)
    column = next((c for c in form.columns if name == c or name.endswith(f": {c}")), name)  # that of a class
    if not form.is_linear and at < len(form.columns):
        column = form.columns[at]
    unit = require_unit(model.design_, empty_sets(model.schema, model.design_.codes), column, money=money)
    if form.is_linear:
        return name.removesuffix(column), lambda values: float(values[at]) / unit
    return "", lambda values: float(form.coefficients(values)[at]) / unit


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
            return mean_cross_responses(percent, mass, offsets, codes, len(labels)).T.ravel()
        own = weighted_group_means(own_responses(percent, offsets), mass, codes, 1)
        return np.concatenate([own, mean_rival_responses(percent, mass, offsets, codes, 1)])

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
