"""One factor of a term -> a block of numbers (N, k), by what was learnt of its column in training.

Numbers stay as they are, up to the transformation. Categories become 0/1 columns, one for each level but the
reference; levels chosen too seldom to have a coefficient of their own are pooled in one level, [(other)], to which
categories never seen belong as well. Where the training part has gaps in a numeric column, they get its mean and a
0/1 column [missing] tells them apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data.columns.arrays import Categorical, Column, Numeric
from pcmcnet.data.columns.ragged import min_by_set, spread
from pcmcnet.errors import SchemaError
from pcmcnet.models.logit.box_cox import box_cox, box_cox_slope
from pcmcnet.models.logit.formula import Factor, plain_number, quoted

OTHER = "(other)"
SLOPE = "derivative of boxcox"  # in its exponent: no function that a formula knows
_NAMED = 8  # of the levels that are pooled


@dataclass(frozen=True)
class NumberCode:
    """What a numeric column was like in training."""

    mean: float
    scale: float
    gaps: bool


@dataclass(frozen=True)
class LevelCode:
    """Levels of a categorical column with a coefficient of their own, the reference, and whether others are pooled.

    ``rare`` are the first of the ``n_rare`` levels that are too seldom chosen for a coefficient of their own.
    """

    reference: str
    levels: tuple[str, ...]
    pooled: bool
    rare: tuple[str, ...] = ()
    n_rare: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """All levels, the reference first."""
        return (self.reference, *self.levels, *([OTHER] if self.pooled else []))

    @property
    def pooling(self) -> str:
        """Say which levels went where; nothing, if none did."""
        more = f" and {self.n_rare - len(self.rare)} more" if self.n_rare > len(self.rare) else ""
        return f"{', '.join(self.rare)}{more} with {OTHER if self.pooled else self.reference}" if self.n_rare else ""


Code = NumberCode | LevelCode
Place = Callable[[int], str]


def learn_number(values: NDArray[np.float32]) -> NumberCode:
    """Learn the mean, the scale and whether there are gaps."""
    known = values[~np.isnan(values)].astype(np.float64)
    if not known.size:
        return NumberCode(0.0, 1.0, True)
    return NumberCode(float(known.mean()), float(known.std()) or 1.0, known.size < values.size)


def learn_levels(column: Categorical, chosen: Ints, *, least: int, base: str | None = None) -> LevelCode:
    """Learn the levels from the codes of all rows and of the chosen ones.

    The reference is ``base``, or the level chosen most often. Levels chosen fewer than ``least`` times are pooled, with
    one that has the name of the pool; where even all of them together are, they join the reference.
    """
    # 1. The reference: the base if there is one, else the level chosen most often, then by name.
    present = np.unique(column.codes)
    counts = np.bincount(column.codes[chosen], minlength=len(column.categories))
    names = column.categories
    order = sorted(present.tolist(), key=lambda k: (names[k] != base, names[k] == OTHER, -counts[k], names[k]))
    reference, rest = order[0], order[1:]
    # 2. Levels chosen too seldom are pooled, if the pool is chosen often enough to have a coefficient.
    rare = [k for k in rest if counts[k] < least or names[k] == OTHER]
    kept = tuple(sorted(names[k] for k in rest if k not in rare))
    pooled = bool(rare) and int(counts[rare].sum()) >= max(least, 1)
    seldom = sorted(names[k] for k in rare if names[k] != OTHER)
    return LevelCode(names[reference], kept, pooled, tuple(seldom[:_NAMED]), len(seldom))


def read_code(entries: Mapping[str, Any]) -> Code:
    """Build a code from its plain values."""
    if "reference" in entries:
        levels = tuple(map(str, entries["levels"]))
        rare = tuple(map(str, entries["rare"]))
        return LevelCode(str(entries["reference"]), levels, bool(entries["pooled"]), rare, int(entries["n_rare"]))
    mean, scale = float(entries["mean"]), float(entries["scale"])
    if not (math.isfinite(mean) and 0 < scale < math.inf):
        raise TypeError(f"mean {mean}, scale {scale}")
    return NumberCode(mean, scale, bool(entries["gaps"]))


def block(
    factor: Factor, column: Column, code: Code, offsets: Ints, *, full: bool, place: Place = str
) -> tuple[Floats, list[str]]:  # (N,) -> (N, k), k names
    """Return the numbers of a factor and the endings of their names.

    ``full`` gives the reference a column, too. ``place`` says where a row stands, for those that are refused.
    """
    if isinstance(code, LevelCode) and isinstance(column, Categorical):
        return _dummies(column, code, full=full)
    if isinstance(code, LevelCode) or not isinstance(column, Numeric):
        raise SchemaError(
            f"column {factor.column!r} is {column.kind} now and was not in training: read the table by the model's "
            f"schema, or declare the same categorical columns."
        )
    # Numbers: gaps get the mean of training and a mark of their own, the others are transformed.
    values = column.values.astype(np.float64)
    gaps = np.isnan(values)
    if gaps.any() and not code.gaps:
        raise SchemaError(
            f"column {factor.column!r} has {int(gaps.sum())} missing values, but had none in training: fill them in, "
            f"or train on a table with such gaps and missing='indicator'."
        )
    if code.gaps:
        values[gaps] = code.mean
    numbers, endings = _transformed(factor, values, code, offsets, place)
    if code.gaps:
        return np.column_stack([numbers, gaps & (factor.function != SLOPE)]), [*endings, "[missing]"]
    return numbers, endings


def _dummies(column: Categorical, code: LevelCode, *, full: bool) -> tuple[Floats, list[str]]:
    place = {level: k for k, level in enumerate(code.names)}
    unknown = place[OTHER] if code.pooled else 0
    table = np.array([place.get(c, unknown) for c in column.categories], np.int64)
    names = code.names if full else code.names[1:]
    numbers = np.zeros((len(column), len(code.names)))
    numbers[np.arange(len(column)), table[column.codes]] = 1.0
    return numbers[:, 0 if full else 1 :], [f"[{name}]" for name in names]


def _transformed(
    factor: Factor, values: Floats, code: NumberCode, offsets: Ints, place: Place
) -> tuple[Floats, list[str]]:
    if factor.function == "piecewise":
        return _piecewise(values, factor.numbers) / factor.divisor, _spans(factor.numbers)
    if factor.function == "standardise":
        values = (values - code.mean) / code.scale
    elif factor.function == "square":
        values = values**2
    elif factor.function == "relative":
        _require_positive(factor, values, place)
        values = values / spread(min_by_set(values, offsets), offsets)
    elif factor.function == "log":
        _require_positive(factor, values, place)
        values = np.log(values)
    elif factor.function == "sqrt":
        _require_positive(factor, values, place, zero=True)
        values = np.sqrt(values)
    elif factor.function in ("boxcox", SLOPE):
        _require_positive(factor, values, place)
        transform = box_cox if factor.function == "boxcox" else box_cox_slope
        values = transform(values, factor.numbers[0] if factor.numbers else 1.0)
    return (values / factor.divisor)[:, None], [""]


def _piecewise(values: Floats, knots: Sequence[float]) -> Floats:
    """Split x into the lengths it covers between the knots; they sum to x, so equal slopes make a straight line."""
    low, high = np.array([0.0, *knots]), np.array([*knots, np.inf])
    pieces: Floats = np.clip(values[:, None] - low, 0.0, high - low)
    pieces[:, 0] = np.minimum(values, knots[0])  # also below 0
    return pieces


def _spans(knots: Sequence[float]) -> list[str]:
    ends = [plain_number(k) for k in knots]
    return [f"[to {ends[0]}]", *(f"[{a} to {b}]" for a, b in pairwise(ends)), f"[from {ends[-1]}]"]


def _require_positive(factor: Factor, values: Floats, place: Place, *, zero: bool = False) -> None:
    """Refuse values that the transformation has no answer for."""
    bad = np.flatnonzero(values < 0 if zero else values <= 0)
    if bad.size:
        term, bound = f"{factor.function}({quoted(factor.column)})", "of at least 0" if zero else "above 0"
        raise SchemaError(
            f"{term}: expected numbers {bound} in column {factor.column!r}, found {values[bad[0]]:g} in "
            f"{place(int(bad[0]))}; {bad.size} such values. Use another transformation, or correct the column."
        )
