"""Coding of factors: a column of the table becomes k columns of the design matrix (N, k).

A numeric column is transformed as the formula specifies. A categorical column becomes dummy variables, one for each
level except the reference. Levels that are chosen too rarely to have a coefficient are pooled into one level,
[(other)]. Categories that were not in the training part are also coded as [(other)]. If a numeric column has missing
values in the training part, these are replaced by the mean of the column, and a dummy variable [missing] marks them.
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
from pcmcnet.data.kinds.category import CategoryCode, UnseenCounts
from pcmcnet.errors import SchemaError
from pcmcnet.models.logit.box_cox import box_cox, box_cox_slope
from pcmcnet.models.logit.formula import Factor, backquoted, plain_number

OTHER = "(other)"
SLOPE = "derivative of boxcox"  # in its exponent; internal, not available in formulas
_MAX_NAMED = 8  # pooled levels that are named in a summary


@dataclass(frozen=True)
class NumberCode:
    """Mean and scale of a numeric column in the training part, and whether values are missing (``gaps``)."""

    mean: float
    scale: float
    gaps: bool


@dataclass(frozen=True)
class LevelCode:
    """Levels of a categorical column: the reference, levels with a coefficient, and whether rare levels are pooled.

    ``rare`` contains the levels that are chosen too rarely to have a coefficient, and ``n_rare`` is their number.
    Models saved by earlier versions list only the first ones in ``rare``.
    """

    reference: str
    levels: tuple[str, ...]
    pooled: bool
    rare: tuple[str, ...] = ()
    n_rare: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """All levels, with the reference first."""
        return (self.reference, *self.levels, *([OTHER] if self.pooled else []))

    @property
    def pooling(self) -> str:
        """Text that lists the pooled levels and the level they are pooled with, or "" if no levels are pooled."""
        named = self.rare[:_MAX_NAMED]
        more = f" and {self.n_rare - len(named)} more" if self.n_rare > len(named) else ""
        return f"{', '.join(named)}{more} with {OTHER if self.pooled else self.reference}" if self.n_rare else ""

    def count_unseen(self, name: str, column: Categorical, counts: UnseenCounts) -> None:
        """Count the rows of the column ``name`` whose category was not in the training part, if these are known."""
        if len(self.rare) == self.n_rare:
            vocabulary = CategoryCode(name, (*self.names, *self.rare))
            counts.count(vocabulary, column, vocabulary.indices(column.categories)[column.codes])


Code = NumberCode | LevelCode
RowName = Callable[[int], str]  # row -> its name in error messages


def learn_number(values: NDArray[np.float32]) -> NumberCode:
    """Learn the mean and scale of a numeric column, and whether values are missing."""
    present = values[~np.isnan(values)].astype(np.float64)
    if not present.size:
        return NumberCode(0.0, 1.0, True)
    return NumberCode(float(present.mean()), float(present.std()) or 1.0, present.size < values.size)


def learn_levels(column: Categorical, chosen: Ints, *, least: int, base: str | None = None) -> LevelCode:
    """Learn the levels from the codes of all rows and of the chosen rows.

    The reference is ``base``, or by default the level chosen most often. Levels chosen fewer than ``least`` times are
    pooled, as is a level whose name is the name of the pool. If the pool is chosen fewer than ``least`` times, it is
    merged with the reference.
    """
    # 1. The reference: ``base`` if given, else the level chosen most often; ties are broken by name.
    present = np.unique(column.codes)
    counts = np.bincount(column.codes[chosen], minlength=len(column.categories))
    names = column.categories
    order = sorted(present.tolist(), key=lambda k: (names[k] != base, names[k] == OTHER, -counts[k], names[k]))
    reference, rest = order[0], order[1:]
    # 2. Pool the rare levels, if the pool is chosen often enough to have a coefficient.
    rare = [k for k in rest if counts[k] < least or names[k] == OTHER]
    levels = tuple(sorted(names[k] for k in rest if k not in rare))
    pooled = bool(rare) and int(counts[rare].sum()) >= max(least, 1)
    seldom = sorted(names[k] for k in rare if names[k] != OTHER)
    return LevelCode(names[reference], levels, pooled, tuple(seldom), len(seldom))


def read_code(entries: Mapping[str, Any]) -> Code:
    """Build a code from a dictionary read from JSON."""
    if "reference" in entries:
        levels = tuple(map(str, entries["levels"]))
        rare = tuple(map(str, entries["rare"]))
        return LevelCode(str(entries["reference"]), levels, bool(entries["pooled"]), rare, int(entries["n_rare"]))
    mean, scale = float(entries["mean"]), float(entries["scale"])
    if not (math.isfinite(mean) and 0 < scale < math.inf):
        raise TypeError(f"invalid mean {mean} or scale {scale}")
    return NumberCode(mean, scale, bool(entries["gaps"]))


def factor_columns(
    factor: Factor, column: Column, code: Code, offsets: Ints, *, full: bool, place: RowName = str
) -> tuple[Floats, list[str]]:  # (N,) -> (N, k), k names
    """Return the columns of a factor, and the suffixes of the column names.

    If ``full`` is True, the reference level also has a column. The function ``place`` describes a row for error
    messages.
    """
    if isinstance(code, LevelCode) and isinstance(column, Categorical):
        return _dummies(column, code, full=full)
    if isinstance(code, LevelCode) or not isinstance(column, Numeric):
        raise SchemaError(
            f"column {factor.column!r} is {column.kind} here, but not in the training data: read the table with the "
            f"model's schema, or declare the same categorical columns."
        )
    # Replace missing values by the mean of the training part, transform, and add the dummy variable [missing].
    values = column.values.astype(np.float64)
    gaps = np.isnan(values)
    if gaps.any() and not code.gaps:
        raise SchemaError(
            f"column {factor.column!r} has {int(gaps.sum())} missing values, but had none in the training data: fill "
            f"them in, or train on a table with missing values and missing='indicator'."
        )
    if code.gaps:
        values[gaps] = code.mean
    numbers, endings = _transformed(factor, values, code, offsets, place)
    if code.gaps:
        return np.column_stack([numbers, gaps & (factor.function != SLOPE)]), [*endings, "[missing]"]
    return numbers, endings


def _dummies(column: Categorical, code: LevelCode, *, full: bool) -> tuple[Floats, list[str]]:
    """Return a dummy variable for each level, with unknown categories coded as the pool or the reference."""
    index = {level: k for k, level in enumerate(code.names)}
    unknown = index[OTHER] if code.pooled else 0
    column_of_code = np.array([index.get(c, unknown) for c in column.categories], np.int64)
    names = code.names if full else code.names[1:]
    dummies = np.zeros((len(column), len(code.names)))
    dummies[np.arange(len(column)), column_of_code[column.codes]] = 1.0
    return dummies[:, 0 if full else 1 :], [f"[{name}]" for name in names]


def _transformed(
    factor: Factor, values: Floats, code: NumberCode, offsets: Ints, place: RowName
) -> tuple[Floats, list[str]]:
    """Return the transformed numbers, divided by the divisor of the factor, and the suffixes of the column names."""
    if factor.function != "standardise":  # its mean and scale are those of the column
        values = values / factor.unit
    if factor.function == "piecewise":
        return _bins(values, factor.numbers) / factor.divisor, _bin_suffixes(factor.numbers)
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


def _bins(values: Floats, knots: Sequence[float]) -> Floats:
    """Return the length that x covers in each bin.

    The lengths sum to x, so equal coefficients mean a linear effect.
    """
    low, high = np.array([0.0, *knots]), np.array([*knots, np.inf])
    lengths: Floats = np.clip(values[:, None] - low, 0.0, high - low)
    lengths[:, 0] = np.minimum(values, knots[0])  # negative values are in the first bin
    return lengths


def _bin_suffixes(knots: Sequence[float]) -> list[str]:
    ends = [plain_number(k) for k in knots]
    return [f"[to {ends[0]}]", *(f"[{a} to {b}]" for a, b in pairwise(ends)), f"[from {ends[-1]}]"]


def _require_positive(factor: Factor, values: Floats, place: RowName, *, zero: bool = False) -> None:
    """Raise SchemaError if a value is outside the domain of the transformation."""
    bad = np.flatnonzero(values < 0 if zero else values <= 0)
    if bad.size:
        term, bound = f"{factor.function}({backquoted(factor.column)})", ">= 0" if zero else "> 0"
        raise SchemaError(
            f"{term}: expected values {bound} in column {factor.column!r}, got {values[bad[0]] * factor.unit:g} in "
            f"{place(int(bad[0]))}; {bad.size} such values. Use another transformation, or correct the column."
        )
