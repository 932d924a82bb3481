"""What coefficients imply: ratios of them, and elasticities, with standard errors by the delta method.

The elasticity of P(i) with respect to the feature x of alternative j is d log P(i) / d log x_j. In a logit, with
u_m = d v_m / d log x_j for every alternative m of the set,

    d log P(i) / d log x_j = u_i - sum_m P(m) u_m.

u is linear in the coefficients; what they multiply is the central difference of the design matrix, so every
transformation is covered, also one relative to the set. Over sets, elasticities are averaged with weights w_S P(i|S)
(sample enumeration): a set where i has no chance does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pcmcnet.arrays import Bools, Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns import Numeric
from pcmcnet.data.ragged import log_softmax_by_set, spread, sum_by_set
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.models.logits.design import Design
from pcmcnet.models.logits.estimation import Errors

if TYPE_CHECKING:
    from pcmcnet.models.logits.mnl import MNL


_STEP = 1e-5


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
    x = model.design_.matrix(data)
    parts = list(_parts(model.design_, data, column))

    def values(b: Floats) -> Floats:
        p = np.exp(log_softmax_by_set(x @ b, data.offsets))
        weight = p * spread(data.weights, data.offsets)
        sums = []  # of weighted elasticities and of weights, by what changes and by whose elasticity it is
        for moved, slope, groups in parts:
            u = slope @ b[moved]
            change = weight * (u - spread(sum_by_set(p * u, data.offsets), data.offsets))
            sums.append([(change[rows].sum(), weight[rows].sum()) for rows in groups.values()])
        total = np.array(sums) if data.labels is not None else np.sum(sums, axis=0)
        means: Floats = total[..., 0] / np.maximum(total[..., 1], 1e-300)
        return means.ravel()

    names = [("own", "own"), ("other", "own")]
    if data.labels is not None:
        names = [(of, when) for when in _labels(data) for of in _labels(data)]
    found, error = model.estimates_.delta(values, errors)
    rows = zip(names, found.tolist(), error.tolist(), strict=True)
    return Elasticities(column, tuple(Elasticity(of, when, v, e) for (of, when), v, e in rows))


def _labels(data: ChoiceData) -> list[str]:
    assert data.labels is not None
    return [data.labels.categories[k] for k in np.unique(data.labels.codes)]


# Columns of the design that move (K,), their d / d log x (N, k), and the rows whose elasticities are averaged.
Part = tuple[Bools, Floats, dict[str, Bools]]


def _parts(design: Design, data: ChoiceData, column: str) -> Iterator[Part]:
    """Change the feature of one alternative of each set at a time: by label, or by place where there are none."""
    if data.labels is not None:
        plain = data.labels.plain()
        rows = {label: plain == label for label in _labels(data)}
        for changed in rows.values():
            with_it = spread(sum_by_set(changed.astype(np.int64), data.offsets) > 0, data.offsets)
            yield *_slope(design, data, column, changed), {of: those & with_it for of, those in rows.items()}
        return
    place = np.arange(len(data.rows)) - np.repeat(data.offsets[:-1], data.sizes)
    for k in range(int(data.sizes.max())):
        with_it = spread(data.sizes > k, data.offsets)
        yield *_slope(design, data, column, place == k), {"own": place == k, "other": (place != k) & with_it}


def _slope(design: Design, data: ChoiceData, column: str, rows: Bools) -> tuple[Bools, Floats]:  # (K,), (N, k)
    """Return the columns of the design that a change of the feature in some rows moves, and d design / d log x."""
    step = np.where(rows, _STEP * _exact(data, column), 0.0)
    slope = (_moved(design, data, column, step) - _moved(design, data, column, -step)) / (2 * _STEP)
    moved: Bools = np.any(slope, axis=0)
    return moved, slope[:, moved]


def _exact(data: ChoiceData, column: str) -> Floats:
    values = {**data.individual, **data.features}[column]
    assert isinstance(values, Numeric)
    return values.values.astype(np.float64)


def _moved(design: Design, data: ChoiceData, column: str, by: Floats) -> Floats:  # (N,) or (S,) -> (N, K)
    """Return the design matrix with a column moved, in float64: float32 would drown the steps."""
    there = Numeric(_exact(data, column) + by)  # type: ignore[arg-type]
    if column in data.features:
        return design.matrix(replace(data, features={**data.features, column: there}))
    return design.matrix(replace(data, individual={**data.individual, column: there}))


def logit_slopes(model: MNL, data: ChoiceData, column: str) -> Floats:
    """Return d log P(i) / d x_j over the ordered pairs of each set; for an individual's column (N,) d log P(i) / dx."""
    design, b, offsets = model.design_, model.estimates_.values, data.offsets
    feature = column in data.features
    out = np.zeros(int((data.sizes**2 if feature else data.sizes).sum()))
    if column not in design.codes or not len(data):
        return out
    p, x = np.exp(log_softmax_by_set(design.matrix(data) @ b, offsets)), _exact(data, column)
    step = _STEP * step_sizes(x)  # (N,), or (S,)

    def change(moving: Floats) -> Floats:
        """Return what such a step changes in the log-probabilities."""
        u = (_moved(design, data, column, moving) - _moved(design, data, column, -moving)) @ b / 2
        found: Floats = u - spread(sum_by_set(p * u, offsets), offsets)
        return found

    if not feature:
        slopes: Floats = change(step) / spread(step, offsets)
        return slopes
    place = np.arange(len(p)) - np.repeat(offsets[:-1], data.sizes)
    first = np.cumsum(spread(data.sizes, offsets)) - spread(data.sizes, offsets)  # of the pairs of an alternative
    for k in range(int(data.sizes.max())):
        there, moving = spread(data.sizes > k, offsets), np.where(place == k, step, 0.0)
        unit = spread(sum_by_set(moving, offsets), offsets)  # the step taken in each set
        out[(first + k)[there]] = change(moving)[there] / unit[there]
    return out


def step_sizes(values: Floats) -> Floats:
    """Return what a relative step is relative to: |x|, and the mean of it where x is 0 or missing."""
    size = np.abs(np.nan_to_num(values))
    sizes: Floats = np.where(size > 0, size, float(size.mean()) or 1.0)
    return sizes


def _require_numeric(design: Design, data: ChoiceData, column: str) -> None:
    if column not in data.features:
        raise InputError(f"{column!r} is no feature of the table." + did_you_mean(column, data.features))
    if not isinstance(data.features[column], Numeric):
        raise InputError(f"{column!r} is categorical: elasticities need a numeric feature.")
    if column not in design.codes:
        raise InputError(f"the utility does not depend on {column!r}: its formula is {design.formula!r}.")
    if not len(data):
        raise InputError("elasticities need at least one choice set.")
