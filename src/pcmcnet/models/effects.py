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
from numpy.typing import NDArray

from pcmcnet.data import ChoiceData
from pcmcnet.data.columns import Numeric
from pcmcnet.data.ragged import log_softmax_by_set, spread, sum_by_set
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.models.design import Design
from pcmcnet.models.estimation import Errors

if TYPE_CHECKING:
    from pcmcnet.models.mnl import MNL

Floats = NDArray[np.float64]

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


Bools = NDArray[np.bool_]
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
    feature = data.features[column]
    assert isinstance(feature, Numeric)
    exact = feature.values.astype(np.float64)

    def at(step: float) -> Floats:
        moved = Numeric(np.where(rows, exact * (1 + step), exact))  # in float64: float32 would drown the step
        return design.matrix(replace(data, features={**data.features, column: moved}))

    slope = (at(_STEP) - at(-_STEP)) / (2 * _STEP)
    moved: Bools = np.any(slope, axis=0)
    return moved, slope[:, moved]


def _require_numeric(design: Design, data: ChoiceData, column: str) -> None:
    if column not in data.features:
        raise InputError(f"{column!r} is no feature of the table." + did_you_mean(column, data.features))
    if not isinstance(data.features[column], Numeric):
        raise InputError(f"{column!r} is categorical: elasticities need a numeric feature.")
    if column not in design.codes:
        raise InputError(f"the utility does not depend on {column!r}: its formula is {design.formula!r}.")
    if not len(data):
        raise InputError("elasticities need at least one choice set.")
