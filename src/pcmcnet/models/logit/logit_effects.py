"""Derivatives of a logit's probabilities, and elasticities with standard errors by the delta method.

Let u_m = d v_m / d x_j for every alternative m of the choice set. In a logit,

    d log P(i) / d x_j = u_i - sum_m P(m) u_m.

The derivatives u are linear in the coefficients. The design matrix is differentiated by central differences, which work
for every transformation, including those relative to the choice set. The elasticity of P(i) with respect to x_j is this
derivative times x_j. Elasticities are averaged over choice sets with weights w_S P(i|S).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Numeric
from pcmcnet.data.columns.ragged import log_softmax_by_set, ordered_pairs, spread, sum_by_set
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.models.logit.design import Design, empty_sets, require_unit
from pcmcnet.models.logit.standard_errors import Errors, Ratio
from pcmcnet.reports.frames import FrameMixin

if TYPE_CHECKING:
    from pcmcnet.models.logit.logit_model import LogitModel
    from pcmcnet.models.mnl import MNL

log = logging.getLogger("pcmcnet")

# -- Responses of choice probabilities to one column, and their averages over choice sets ------------------------------
# Within a choice set, r_ij is the response of alternative i to the value of alternative j: an elasticity, or another
# derivative. Responses are averaged over sets by sample enumeration: in each set that offers it, alternative i has a
# weight m_i, such as w_S p_i. If the alternative that changes is not in the set, or its value is missing, r = 0.
#
#     own     sum m_i r_ii / sum m_i                          by group of i
#     cross   sum m_i r_ij / sum m_i                          by groups of i and j; a group changes together
#     rival   sum m_i r_ij / sum m_i over pairs with i != j   by group of j, in the sets that offer it
#
# With m = w p and labels as groups, cross is the elasticity of predicted shares, d log share_i / d log x_j, and own is
# its diagonal.
#
# Responses are stored for the ordered pairs (i, j) of each set, in the order of `ragged.ordered_pairs`: (sum n^2,).


def own_responses(values: Floats, offsets: Ints) -> Floats:  # (sum n^2,) -> (N,)
    """Return the response of each alternative to a change in its own value."""
    i, j = ordered_pairs(offsets)
    diagonal: Floats = values[i == j]
    return diagonal


def mean_rival_responses(values: Floats, mass: Floats, offsets: Ints, codes: Ints, groups: int) -> Floats:  # -> (G,)
    """Return the mean response of the other alternatives, by group of the alternative whose value changes."""
    i, j = ordered_pairs(offsets)
    return weighted_group_means(values, np.where(i != j, mass[i], 0.0), codes[j], groups)


def mean_cross_responses(values: Floats, mass: Floats, offsets: Ints, codes: Ints, groups: int) -> Floats:  # -> (G, G)
    """Return the mean response by group of the responding alternative and by group of the changing alternatives."""
    i, j = ordered_pairs(offsets)
    total = np.bincount(codes[i] * groups + codes[j], mass[i] * values, groups**2).reshape(groups, groups)
    weight = np.bincount(codes, mass, groups)[:, None]
    means: Floats = total / np.where(weight > 0, weight, 1.0)
    return means


def weighted_group_means(values: Floats, weights: Floats, codes: Ints, groups: int) -> Floats:  # -> (groups,)
    """Return the weighted mean of each group, or 0 for a group of weight 0."""
    total = np.bincount(codes, weights, groups)
    means: Floats = np.bincount(codes, weights * values, groups) / np.where(total > 0, total, 1.0)
    return means


def step_sizes(values: Floats) -> Floats:
    """Return the scale of finite-difference steps: |x|, or the mean of |x| if x is 0 or missing."""
    size = np.abs(np.nan_to_num(values))
    sizes: Floats = np.where(size > 0, size, float(size.mean()) or 1.0)
    return sizes


# -- Willingness to pay ------------------------------------------------------------------------------------------------
# Willingness to pay in a logit is -b_name / b_cost in units of the table; its standard error is by the delta method.
#
# With v = b_cost cost + b_name x + ..., one more unit of x and an increase of the cost by -b_name / b_cost leave the
# utility unchanged. Both marginal utilities must be constants, so coefficients of log(cost) or of products are errors.


def willingness_to_pay(model: LogitModel, name: str, cost: str, errors: Errors) -> Ratio:
    """Return the willingness to pay for a unit of ``name``, as in :meth:`LogitModel.willingness_to_pay`."""
    name_class, utility_of_name = _marginal_utility(model, name)
    cost_class, utility_of_cost = _marginal_utility(model, cost, money=True)
    if name_class != cost_class:
        raise InputError(f"{name!r} and {cost!r} belong to different classes: use two coefficients of the same class.")
    marginal_cost = utility_of_cost(model.estimates_.values)
    if marginal_cost == 0:
        raise InputError(f"the coefficient of {cost!r} is 0, so willingness to pay is not defined.")
    if marginal_cost > 0:
        log.warning(
            "the coefficient of %r is positive, so the column is not a cost: ratios to this coefficient are hard to "
            "interpret",
            cost,
        )
    value, error = model.estimates_.delta(lambda b: -utility_of_name(b) / utility_of_cost(b), errors)
    return Ratio(f"{name} in {cost}", float(value), float(error))


def _marginal_utility(model: LogitModel, name: str, *, money: bool = False) -> tuple[str, Callable[[Floats], float]]:
    """Return the class prefix of a coefficient, and its marginal utility as a function of all parameters."""
    form = model.design_.form
    if form.cost is not None and name in form.columns:
        name = form.names[form.columns.index(name)]
    at = model.estimates_.position(name)
    column = next((c for c in form.columns if name == c or name.endswith(f": {c}")), name)  # "class 2: cost"
    if not form.is_linear and at < len(form.columns):
        column = form.columns[at]
    unit = require_unit(model.design_, empty_sets(model.schema, model.design_.codes), column, money=money)
    if form.is_linear:
        return name.removesuffix(column), lambda values: float(values[at]) / unit
    return "", lambda values: float(form.coefficients(values)[at]) / unit


_STEP = 1e-5  # relative step of central differences
_SHARE_STEP = 1e-4  # relative step of differences of probabilities, which are divided by a further step


class Elasticity(NamedTuple):
    """Percentage change in the probability ``of`` one alternative ``when`` a feature of another rises by 1%."""

    of: str
    when: str
    value: float
    error: float


@dataclass(frozen=True)
class Elasticities(FrameMixin):
    """Own and cross elasticities with respect to one feature, which print as a table."""

    column: str
    entries: tuple[Elasticity, ...]

    def _frame_rows(self) -> list[dict[str, Any]]:
        return [{"column": self.column, **entry._asdict()} for entry in self.entries]

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
        Choice sets over which elasticities are averaged, weighted by predicted probabilities.
    column
        Numeric feature that changes.
    errors
        Kind of standard errors: "classical", "robust" or "clustered".

    Returns
    -------
    Elasticities
        If alternatives have labels, one elasticity for each pair of labels: ``result["car", "bus"]`` is the elasticity
        of P(car) with respect to the feature of bus. Otherwise there are two elasticities: ("own", "own"), with respect
        to the alternative's own feature, and ("other", "own"), the response of the other alternatives.

    Raises
    ------
    InputError
        If ``column`` is not a numeric feature of the utility, or ``data`` has no choice sets.
    """
    _require_numeric(model.design_, data, column)
    design, offsets = model.design_, data.offsets
    linear = design.matrix(data), list(design_slopes(design, data, column))
    at = np.nan_to_num(_exact(data, column))[ordered_pairs(offsets)[1]]  # x_j of each pair
    labels, codes = _labels(data), _codes(data)

    def means(values: Floats) -> Floats:
        moved, b = design.at(values), design.form.coefficients(values)
        x, slopes = linear if moved is design else (moved.matrix(data), list(design_slopes(moved, data, column)))
        p = np.exp(log_softmax_by_set(x @ b, offsets))
        percent, mass = _slopes_at(b, p, slopes, len(at)) * at, p * spread(data.weights, offsets)
        if labels:
            return mean_cross_responses(percent, mass, offsets, codes, len(labels)).T.ravel()
        own_mean = weighted_group_means(own_responses(percent, offsets), mass, codes, 1)
        return np.concatenate([own_mean, mean_rival_responses(percent, mass, offsets, codes, 1)])

    names = [(of, when) for when in labels for of in labels] or [("own", "own"), ("other", "own")]
    value, error = model.estimates_.delta(means, errors)
    rows = zip(names, value.tolist(), error.tolist(), strict=True)
    return Elasticities(column, tuple(Elasticity(of, when, v, e) for (of, when), v, e in rows))


def share_elasticities(model: LogitModel, data: ChoiceData, column: str, errors: Errors) -> Elasticities:
    """Return the result of :func:`elasticities` for any logit, by central differences of predicted probabilities.

    The column is raised and lowered for all alternatives with a label, or for the k-th alternative of every set.
    """
    _require_numeric(model.design_, data, column)
    labels, codes, offsets = _labels(data), _codes(data), data.offsets
    weights: Floats = spread(data.weights, offsets)
    position = np.arange(len(codes)) - spread(offsets[:-1], offsets)  # of an alternative in its set
    of_pair = codes if labels else position

    def means(values: Floats) -> Floats:
        moved_model = model.with_values(values)
        mass = weights * np.exp(moved_model._log_proba(data))
        share_mass = np.bincount(codes, mass)
        by_label, own, rival, rival_mass = [], 0.0, 0.0, 0.0
        for k in range(int(of_pair.max()) + 1):
            # 1. Change in each probability, per relative change in the column of the k-th label or alternative.
            is_changed = of_pair == k
            up, down = (
                np.exp(moved_model._log_proba(_scaled(data, column, np.where(is_changed, factor, 1.0))))
                for factor in (1 + _SHARE_STEP, 1 - _SHARE_STEP)
            )
            change = weights * (up - down) / (2 * _SHARE_STEP)
            # 2. With labels, the elasticities of all shares; without labels, sums over own and other alternatives.
            by_label.append(np.bincount(codes, change) / np.where(share_mass > 0, share_mass, 1.0))
            is_rival = spread(data.sizes > k, offsets) & ~is_changed
            own += change[is_changed].sum()
            rival += change[is_rival].sum()
            rival_mass += mass[is_rival].sum()
        return np.concatenate(by_label) if labels else np.array([own / mass.sum(), rival / (rival_mass or 1.0)])

    names = [(of, when) for when in labels for of in labels] or [("own", "own"), ("other", "own")]
    value, error = model.estimates_.delta(means, errors)
    rows = zip(names, value.tolist(), error.tolist(), strict=True)
    return Elasticities(column, tuple(Elasticity(of, when, v, e) for (of, when), v, e in rows))


def _scaled(data: ChoiceData, column: str, factors: Floats) -> ChoiceData:
    """Return the table with a column multiplied by a factor for each alternative, in float64."""
    changed = Numeric(_exact(data, column) * factors)  # type: ignore[arg-type]
    return replace(data, features={**data.features, column: changed})


def _labels(data: ChoiceData) -> list[str]:
    """Return the labels that occur in the table, or an empty list if alternatives have no labels."""
    return [] if data.labels is None else [data.labels.categories[k] for k in np.unique(data.labels.codes)]


def _codes(data: ChoiceData) -> Ints:  # (N,)
    """Return the index of each alternative's label among the labels that occur, or 0 if there are no labels."""
    if data.labels is None:
        return np.zeros(len(data.rows), np.int64)
    return np.unique(data.labels.codes, return_inverse=True)[1].astype(np.int64)


def logit_slopes(model: MNL, data: ChoiceData, column: str) -> Floats:
    """Return d log P(i) / d x_j for all ordered pairs, or d log P(i) / dx (N,) for an individual-level column."""
    length = int((data.sizes**2 if column in data.features else data.sizes).sum())
    if column not in model.design_.codes or not len(data):
        return np.zeros(length)
    values = model.estimates_.values
    design, b = model.design_.at(values), model.design_.form.coefficients(values)
    p = np.exp(log_softmax_by_set(design.matrix(data) @ b, data.offsets))
    return _slopes_at(b, p, design_slopes(design, data, column), length)


def class_slopes(
    design: Design, data: ChoiceData, column: str, coefficients: Floats, shares: Floats
) -> Floats:  # (C, K), (S, C) -> (sum n^2,), or (N,)
    """Return the result of :func:`logit_slopes` for a mixture of logits whose shares do not depend on the column.

    If r_c is the share of class c among those who choose i, then d log P(i) = sum_c r_c d log P_c(i).
    """
    length = int((data.sizes**2 if column in data.features else data.sizes).sum())
    if column not in design.codes or not len(data):
        return np.zeros(length)
    v, moves = design.matrix(data) @ coefficients.T, list(design_slopes(design, data, column))
    p = np.column_stack([np.exp(log_softmax_by_set(of_class, data.offsets)) for of_class in v.T])
    joint = p * spread(shares, data.offsets)
    r = joint / joint.sum(axis=1, keepdims=True)
    responding = ordered_pairs(data.offsets)[0] if column in data.features else np.arange(len(v))
    slopes = [_slopes_at(b, p_c, moves, length) for b, p_c in zip(coefficients, p.T, strict=True)]
    mixed: Floats = np.einsum("pc,cp->p", r[responding], np.stack(slopes))
    return mixed


class _DesignSlope(NamedTuple):
    """Derivative of the design matrix with respect to a value of each set's k-th alternative, or of the individual."""

    rows: Bools  # (N,) the M alternatives of the sets that have a k-th alternative
    offsets: Ints  # first row of each of these sets among the M
    cells: Ints  # (M,) positions of their responses in the result
    columns: Bools  # (K,) columns of the design that change
    slope: Floats  # (M, k) d design / d x, in these columns


def design_slopes(design: Design, data: ChoiceData, column: str) -> Iterator[_DesignSlope]:
    """Yield design derivatives with respect to a feature of each k-th alternative, or an individual-level column."""
    x, sizes, offsets = _exact(data, column), data.sizes, data.offsets
    step = _STEP * step_sizes(x)  # (N,), or (S,)
    if column not in data.features:
        every_row = np.ones(len(data.rows), np.bool_)
        slope = _difference(design, data, column, step) / (2 * spread(step, offsets))[:, None]
        yield _design_slope(every_row, offsets, np.arange(len(data.rows)), slope)
        return
    position = np.arange(len(x)) - spread(offsets[:-1], offsets)  # of an alternative in its set
    first_pair = np.cumsum(spread(sizes, offsets)) - spread(sizes, offsets)  # of an alternative
    for k in range(int(sizes.max())):
        rows, change = spread(sizes > k, offsets), np.where(position == k, step, 0.0)
        unit = spread(sum_by_set(change, offsets), offsets)[rows]  # the step taken in each set
        slope = _difference(design, data, column, change)[rows] / (2 * unit)[:, None]
        yield _design_slope(rows, np.append(0, np.cumsum(sizes[sizes > k])), (first_pair + k)[rows], slope)


def _design_slope(rows: Bools, offsets: Ints, cells: Ints, slope: Floats) -> _DesignSlope:
    columns: Bools = np.any(slope, axis=0)
    return _DesignSlope(rows, offsets, cells, columns, slope[:, columns])


def _slopes_at(b: Floats, p: Floats, slopes: Iterable[_DesignSlope], length: int) -> Floats:
    """Return the derivatives of the log-probabilities at coefficients b and probabilities p."""
    out = np.zeros(length)
    for rows, offsets, cells, columns, slope in slopes:
        u = slope @ b[columns]
        out[cells] = u - spread(sum_by_set(p[rows] * u, offsets), offsets)
    return out


def _exact(data: ChoiceData, column: str) -> Floats:
    """Return a numeric column in float64."""
    values = {**data.individual, **data.features}[column]
    assert isinstance(values, Numeric)
    return values.values.astype(np.float64)


def _difference(design: Design, data: ChoiceData, column: str, step: Floats) -> Floats:  # (N,) or (S,) -> (N, K)
    """Return the design matrix at x + step minus the design matrix at x - step."""
    return _moved(design, data, column, step) - _moved(design, data, column, -step)


def _moved(design: Design, data: ChoiceData, column: str, by: Floats) -> Floats:  # (N,) or (S,) -> (N, K)
    """Return the design matrix with a column changed, in float64, because steps are below the precision of float32."""
    changed = Numeric(_exact(data, column) + by)  # type: ignore[arg-type]
    if column in data.features:
        return design.matrix(replace(data, features={**data.features, column: changed}))
    return design.matrix(replace(data, individual={**data.individual, column: changed}))


def _require_numeric(design: Design, data: ChoiceData, column: str) -> None:
    """Raise InputError if a column is not a numeric feature of the utility, or the table has no choice sets."""
    if column not in data.features:
        raise InputError(f"{column!r} is not a feature of the table." + did_you_mean(column, data.features))
    if not isinstance(data.features[column], Numeric):
        raise InputError(f"{column!r} is categorical: elasticities need a numeric feature.")
    if column not in design.codes:
        raise InputError(f"the utility does not depend on {column!r}: its formula is {design.formula!r}.")
    if not len(data):
        raise InputError("elasticities need at least one choice set.")
