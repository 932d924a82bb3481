"""Numeric columns: standardisation, transformation of long tails, knots and bins, all learnt from the training data.

Numbers are standardised by the training mean and standard deviation. A column that is constant in training becomes 0.
Columns with a long right tail, such as prices, may first be transformed to asinh(x / bend), which is linear near 0,
logarithmic for large numbers, and defined for every number. Columns with a piecewise-linear curve get knots at
quantiles of the training data. A piecewise-linear curve can also be coded as bins: one column per interval between two
knots, whose value rises from 0 to 1 across the interval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pcmcnet.data.columns.arrays import CURVES, Categorical, Columns, Curve, Numeric
from pcmcnet.data.columns.statistics import ColumnMoments, median_magnitude, quantiles, without_missing
from pcmcnet.data.kinds.kind import MAX_FLOAT32, are_numbers, is_number, json_number
from pcmcnet.errors import SchemaError

MAX_BINS = 16  # of a column
_MIN_KNOT_DISTANCE = 0.02  # standard deviations; beyond a narrower last interval, a large number would get a huge code
_MAX_SAVED_NUMBER = 1e300  # larger numbers in a saved code are not valid
_MIN_SKEWNESS = 1.5  # of a long tail; an exponential distribution has 2, a normal one 0
_QUARTILE_ROWS = 100_000  # evenly spaced rows from which quartiles are computed
FACT_CHECKS = {"min": is_number, "max": is_number, "quartiles": are_numbers}

U = TypeVar("U")


class Each(Protocol):
    """Calls a function with the columns of each chunk of a table and returns the results in the order of the chunks.

    Workers may call the function in other processes, so the function must be defined at module level, or be a
    ``partial`` of a module-level function.
    """

    def __call__(self, function: Callable[[Columns], U], /) -> Iterable[U]:
        """Call the function with the columns of each chunk."""


@dataclass(frozen=True, slots=True)
class NumericCode:
    """Standardisation of one column.

    ``scale`` is 0 for a constant column, and ``bend`` is 0 if the column is not transformed by asinh. ``knots`` are on
    the standardised scale. A constant column has no knots. A column with knots but without ``curve`` can be cut into
    bins.
    """

    name: str
    mean: float
    scale: float
    indicator: bool
    bend: float = 0.0
    curve: Curve | None = None
    knots: tuple[float, ...] = ()

    def standardise(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return standardised numbers. NaN stays NaN unless the column had missing values in training."""
        numbers: NDArray[np.float64] = standardise((self,), code_table((self,)), np.array([values]))[0][0]
        return numbers

    def slope(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the derivative of :meth:`standardise`, which is 0 for missing values and for a constant column."""
        if self.scale == 0:
            return np.zeros_like(values)
        asinh_slope = 1 / np.hypot(values, self.bend) if self.bend > 0 else np.ones_like(values)
        return np.where(np.isnan(values), 0.0, asinh_slope / self.scale)

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> NumericCode:
        """Build a code from saved entries, or raise TypeError if the entries are not valid."""
        code = cls(**{**entries, "knots": tuple(entries.get("knots", ()))})
        numbers = (code.mean, code.scale, code.bend)
        if not (
            isinstance(code.name, str)
            and isinstance(code.indicator, bool)
            and all(isinstance(x, int | float) and abs(x) < _MAX_SAVED_NUMBER for x in numbers)
            and min(code.scale, code.bend) >= 0
            and code.curve in (None, *CURVES)
            and _are_knots(code.knots)
        ):
            raise TypeError(str(code))
        return code


@dataclass(frozen=True, slots=True)
class BinCode(NumericCode):
    """Code of one bin of a column: (x - start) / width, clipped to the interval from ``low`` to ``high``."""

    low: float = 0.0
    high: float = 1.0


def code_table(codes: Sequence[NumericCode]) -> NDArray[np.float64]:
    """Return an array (4, K) with the mean, scale, lower limit and upper limit of each code."""
    limits = (("mean", 0.0), ("scale", 0.0), ("low", -np.inf), ("high", np.inf))
    return np.array([[getattr(code, name, none) for code in codes] for name, none in limits], np.float64)


def standardise(codes: Sequence[NumericCode], table: Any, values: Any, xp: Any = np) -> tuple[Any, Any]:
    """Standardise several columns on the CPU or on a GPU.

    Parameters
    ----------
    codes
        K codes.
    table
        The result of :func:`code_table`, (4, K), on the same device as ``values``.
    values
        Numbers (K, n) as float64, with NaN for missing values. The array is overwritten.
    xp
        Array library: NumPy (default) or PyTorch.

    Returns
    -------
    Standardised numbers (K, n), and missing-value indicators (I, n) for the columns that had missing values in
    training. Missing values of columns with an indicator become 0.
    """
    mean, scale, low, high = table[..., None]  # (K, 1) each
    # 1. Columns with missing values in training have an indicator: find where it is 1.
    with_indicator = [k for k, code in enumerate(codes) if code.indicator]
    is_missing = xp.isnan(values[with_indicator])
    # 2. Transform long tails.
    for k, code in enumerate(codes):
        if code.bend > 0:
            values[k] = xp.arcsinh(values[k] / code.bend)
    # 3. Standardise; a column that was constant in training becomes 0, and a number stays within the limits of a bin.
    constant = [k for k, code in enumerate(codes) if code.scale == 0]
    values -= mean
    values /= scale + (scale == 0)
    values[constant] = 0.0
    if any(isinstance(code, BinCode) for code in codes):
        values = xp.clip(values, low, high)
    # 4. A missing value becomes the mean.
    if with_indicator:
        values[with_indicator] = xp.where(is_missing, 0.0, values[with_indicator])
    return values, is_missing


def bin_codes(code: NumericCode, max_bins: int) -> list[BinCode]:
    """Return at most ``max_bins`` bins of a column with knots but no curve.

    All bins span nearly the same number of knots.

    Beyond the first and the last knot, bins stay at 0 and 1, so that an outlier does not get a huge code in a narrow
    bin.
    """
    if code.curve is not None or not code.knots:
        return []
    last = len(code.knots) - 1
    ends = np.unique(np.linspace(0, last, min(max_bins, last) + 1).round().astype(int))
    return [
        BinCode(
            name=code.name,
            mean=code.mean + code.scale * code.knots[a],
            scale=code.scale * (code.knots[b] - code.knots[a]),
            indicator=False,
            bend=code.bend,
        )
        for a, b in pairwise(ends.tolist())
    ]


def learn_numeric_codes(
    moments: Mapping[str, ColumnMoments], each: Each, *, bend: bool, curves: Mapping[str, Curve]
) -> tuple[NumericCode, ...]:
    """Learn the codes of the columns in ``moments``.

    If ``bend`` is True, columns with a long right tail are transformed.
    """
    # 1. Choose the bend of each column with a long right tail and more than a few distinct values.
    bends: dict[str, float] = {}
    for name, column in moments.items():
        if bend and column.count and not (column.constant or column.few) and column.skewness > _MIN_SKEWNESS:
            scale = median_magnitude(lambda f, name=name: each(partial(_on_column, name, f)), column.count) / 4  # type: ignore[misc]
            bends |= {name: scale} if scale > 0 else {}
    # 2. Compute the moments of the transformed columns.
    transformed = merge_moments(each(partial(_transformed_moments, bends))) if bends else {}
    # 3. Standardise all columns, and add knots if a curve is declared.
    codes = []
    for name, plain in moments.items():
        column = transformed.get(name, plain)
        if not column.count:
            raise SchemaError(f"column {name!r} has no values in the training data: leave it out.")
        scale = 0.0 if column.constant else column.spread
        code = NumericCode(name, column.mean, scale, column.gaps > 0, bends.get(name, 0.0))
        if name in curves:
            code = replace(code, curve=curves[name], knots=_knots(code, plain.count, each) if scale > 0 else ())
        codes.append(code)
    return tuple(codes)


def json_schema(*, gaps: bool = False) -> dict[str, Any]:
    """Return the JSON schema of a number in a request. If ``gaps`` is True, null is allowed."""
    return {"type": ["number", "null"] if gaps else "number", "minimum": -MAX_FLOAT32, "maximum": MAX_FLOAT32}


def number_facts(column: Numeric) -> dict[str, Any]:
    """Return the minimum, maximum and quartiles of a column, each None if all values are missing."""
    values = without_missing(column.values)
    if not values.size:
        return {"min": None, "max": None, "quartiles": None}
    sample = values[:: -(-len(values) // _QUARTILE_ROWS)].astype(np.float64)
    quartiles = np.quantile(sample, [0.25, 0.5, 0.75]).astype(np.float32)
    return {
        "min": json_number(values.min()),
        "max": json_number(values.max()),
        "quartiles": [json_number(q) for q in quartiles],
    }


def _transformed_moments(bends: Mapping[str, float], columns: Columns) -> dict[str, ColumnMoments]:
    return {
        name: ColumnMoments.of(np.arcsinh(_values(columns, name).astype(np.float64) / bend))
        for name, bend in bends.items()
    }


def merge_moments(parts: Iterable[Mapping[str, ColumnMoments]]) -> dict[str, ColumnMoments]:
    """Merge the column moments of all chunks of a table, in the order of the chunks."""
    total: dict[str, ColumnMoments] = {}
    for part in parts:
        for name, moments in part.items():
            total[name] = total[name] + moments if name in total else moments
    return total


def learn_knots(codes: Sequence[NumericCode], each: Each) -> tuple[NumericCode, ...]:
    """Add knots to the codes of columns that have no curve, no missing values and at least three distinct values."""
    codes_with_knots = []
    for code in codes:
        if code.curve is None and code.scale > 0 and not code.indicator:
            knots = _knots(code, sum(each(partial(_on_column, code.name, len))), each)
            code = replace(code, knots=knots if len(knots) > 2 else ())
        codes_with_knots.append(code)
    return tuple(codes_with_knots)


def _knots(code: NumericCode, count: int, each: Each) -> tuple[float, ...]:
    """Return quantiles of a column on the standardised scale, at least ``_MIN_KNOT_DISTANCE`` apart."""
    values = quantiles(lambda f: each(partial(_on_column, code.name, f)), count, MAX_BINS)
    first, *inner, last = code.standardise(values).tolist()
    knots = [first]
    for knot in inner:
        if knot - knots[-1] >= _MIN_KNOT_DISTANCE and last - knot >= _MIN_KNOT_DISTANCE:
            knots.append(knot)
    return (*knots, last)


def _on_column(name: str, function: Callable[[NDArray[np.float32]], U], columns: Columns) -> U:
    return function(_values(columns, name))


def _values(columns: Columns, name: str) -> NDArray[np.float32]:
    column = columns[name]
    assert isinstance(column, Numeric)
    return column.values


def _are_knots(knots: tuple[Any, ...]) -> bool:
    """Return True if there are no knots, or at least two knots in increasing order."""
    numbers = all(isinstance(knot, float) and abs(knot) < _MAX_SAVED_NUMBER for knot in knots)
    return not knots or (numbers and len(knots) > 1 and all(np.diff(knots) > 0))


class Statistics(NamedTuple):
    """Statistics from one pass over a table: moments of numeric columns, and category counts of the other columns."""

    moments: dict[str, ColumnMoments]
    words: dict[str, Counter[str]]

    @classmethod
    def of(cls, columns: Columns) -> Statistics:
        """Compute the statistics of one chunk."""
        moments = {
            name: ColumnMoments.of(column.values) for name, column in columns.items() if isinstance(column, Numeric)
        }
        words: dict[str, Counter[str]] = {}
        for name, column in columns.items():
            if isinstance(column, Categorical):  # some listed categories may occur only in other chunks
                counts = np.bincount(column.codes, minlength=len(column.categories))
                words[name] = Counter({column.categories[k]: int(counts[k]) for k in np.flatnonzero(counts)})
        return cls(moments, words)

    @classmethod
    def merge(cls, parts: Sequence[Statistics]) -> Statistics:
        """Merge the statistics of all chunks."""
        words: dict[str, Counter[str]] = {}
        for part in parts:
            for name, counts in part.words.items():
                words.setdefault(name, Counter()).update(counts)
        return cls(merge_moments(part.moments for part in parts), words)
