"""Columns of numbers -> standardised ones: what is learnt of each from the training part.

Numbers are standardised by the training mean and standard deviation; a column that is constant in training carries no
information and becomes 0. Columns with a long right tail, such as prices, may be bent before, to asinh(x / bend): near
0 that is a line, further out a logarithm, and it is defined for every number. Columns that networks see by a curve get
knots at quantiles of the training part. Such a curve can also be written as columns of its own, one for each piece
between two knots: how far a number has come through it, from 0 to 1.
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

MAX_BINS = 16  # between the knots of a curve, at most
_APART = 0.02  # standard deviations between knots, at least: in a narrow last piece a far number would be a huge one
_FAR = 1e300  # beyond any number of a table
_SKEWED = 1.5  # skewness from which a tail is long: that of an exponential distribution is 2, of a normal one 0
_ROWS = 100_000  # that quartiles are taken from, evenly spaced
FACT_CHECKS = {"min": is_number, "max": is_number, "quartiles": are_numbers}

U = TypeVar("U")


class Each(Protocol):
    """Calls a function for one side's columns of each part of the table; what it returns comes in their order.

    Workers may do so in other processes: the function is one of a module, or a ``partial`` of such.
    """

    def __call__(self, function: Callable[[Columns], U], /) -> Iterable[U]:
        """Call it."""


@dataclass(frozen=True, slots=True)
class NumericCode:
    """Standardisation of one column; ``scale`` 0 marks a constant column, ``bend`` 0 one that is not bent.

    ``knots`` are those of its curve, standardised like the numbers; a constant column has none. A column with knots but
    no ``curve`` is seen by one only by networks that ask for its pieces.
    """

    name: str
    mean: float
    scale: float
    indicator: bool
    bend: float = 0.0
    curve: Curve | None = None
    knots: tuple[float, ...] = ()

    def standardise(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bend, if so, and bring to mean 0 and standard deviation 1 in training; gaps stay if they are not expected."""
        numbers: NDArray[np.float64] = standardise((self,), code_table((self,)), np.array([values]))[0][0]
        return numbers

    def slope(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the derivative of :meth:`standardise`; 0 for missing values and for a constant column."""
        if self.scale == 0:
            return np.zeros_like(values)
        bent = 1 / np.hypot(values, self.bend) if self.bend > 0 else np.ones_like(values)
        return np.where(np.isnan(values), 0.0, bent / self.scale)

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> NumericCode:
        """Build from saved entries; TypeError where they are of other kinds than were saved."""
        code = cls(**{**entries, "knots": tuple(entries.get("knots", ()))})
        numbers = (code.mean, code.scale, code.bend)
        if not (
            isinstance(code.name, str)
            and isinstance(code.indicator, bool)
            and all(isinstance(x, int | float) and abs(x) < _FAR for x in numbers)
            and min(code.scale, code.bend) >= 0
            and code.curve in (None, *CURVES)
            and _are_knots(code.knots)
        ):
            raise TypeError(str(code))
        return code


@dataclass(frozen=True, slots=True)
class BinCode(NumericCode):
    """One piece of a column's curve, as a column: (x - start) / width within ``low`` and ``high``."""

    low: float = 0.0
    high: float = 1.0


def code_table(codes: Sequence[NumericCode]) -> NDArray[np.float64]:
    """(4, K) mean, scale, lower and upper limit of each code."""
    limits = (("mean", 0.0), ("scale", 0.0), ("low", -np.inf), ("high", np.inf))
    return np.array([[getattr(code, name, none) for code in codes] for name, none in limits], np.float64)


def standardise(codes: Sequence[NumericCode], table: Any, values: Any, xp: Any = np) -> tuple[Any, Any]:
    """Standardise the numbers of several columns, on the host or on a device.

    Parameters
    ----------
    codes
        K codes.
    table
        (4, K) :func:`code_table` of them, where the numbers are.
    values
        (K, n) numbers of 64 bits, NaN for gaps. They are overwritten.
    xp
        The library that computes: NumPy for arrays, PyTorch for tensors.

    Returns
    -------
    (K, n) standardised numbers with 0 for expected gaps, and (I, n) where gaps are in the columns that expect some.
    """
    mean, scale, low, high = table[..., None]  # (K, 1) each
    # 1. Columns that had gaps in training have an indicator: note where it is 1.
    with_gaps = [k for k, code in enumerate(codes) if code.indicator]
    gaps = xp.isnan(values[with_gaps])
    # 2. Bend long tails.
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
    # 4. A gap becomes the mean.
    if with_gaps:
        values[with_gaps] = xp.where(gaps, 0.0, values[with_gaps])
    return values, gaps


def bin_codes(code: NumericCode, most: int) -> list[BinCode]:
    """Return so many pieces at most of a column with knots but no curve: none of the pieces spans fewer numbers.

    Beyond the first and the last knot they stay at 0 and 1, so that no number far off is far off in a short piece, too.
    """
    if code.curve is not None or not code.knots:
        return []
    last = len(code.knots) - 1
    at = np.unique(np.linspace(0, last, min(most, last) + 1).round().astype(int))
    return [
        BinCode(
            name=code.name,
            mean=code.mean + code.scale * code.knots[a],
            scale=code.scale * (code.knots[b] - code.knots[a]),
            indicator=False,
            bend=code.bend,
        )
        for a, b in pairwise(at.tolist())
    ]


def learn_numeric_codes(
    moments: Mapping[str, ColumnMoments], each: Each, *, bend: bool, curves: Mapping[str, Curve]
) -> tuple[NumericCode, ...]:
    """Learn the codes of the columns with these moments; ``bend`` those with a long right tail."""
    # 1. Find where columns with a long right tail bend; not those of few distinct values.
    turns: dict[str, float] = {}
    for name, found in moments.items():
        if bend and found.count and not (found.constant or found.few) and found.skewness > _SKEWED:
            turn = median_magnitude(lambda f, name=name: each(partial(_on_column, name, f)), found.count) / 4  # type: ignore[misc]
            turns |= {name: turn} if turn > 0 else {}
    # 2. Take the moments of these columns again, once they are bent.
    bent = merge_moments(each(partial(_bent_part, turns))) if turns else {}
    # 3. Standardise, and put knots where a curve is declared.
    codes = []
    for name, plain in moments.items():
        found = bent.get(name, plain)
        if not found.count:
            raise SchemaError(f"column {name!r} has no value at all in the training part: leave it out.")
        scale = 0.0 if found.constant else found.spread
        code = NumericCode(name, found.mean, scale, found.gaps > 0, turns.get(name, 0.0))
        if name in curves:
            code = replace(code, curve=curves[name], knots=_knots(code, plain.count, each) if scale > 0 else ())
        codes.append(code)
    return tuple(codes)


def json_schema(*, gaps: bool = False) -> dict[str, Any]:
    """Return the JSON schema of a number in a request; ``gaps`` admits null."""
    return {"type": ["number", "null"] if gaps else "number", "minimum": -MAX_FLOAT32, "maximum": MAX_FLOAT32}


def number_facts(column: Numeric) -> dict[str, Any]:
    """Say which are the least and the largest number, and the quartiles; None where there is no number at all."""
    values = without_missing(column.values)
    if not values.size:
        return {"min": None, "max": None, "quartiles": None}
    some = values[:: -(-len(values) // _ROWS)].astype(np.float64)
    quartiles = np.quantile(some, [0.25, 0.5, 0.75]).astype(np.float32)
    return {
        "min": json_number(values.min()),
        "max": json_number(values.max()),
        "quartiles": [json_number(q) for q in quartiles],
    }


def _bent_part(turns: Mapping[str, float], columns: Columns) -> dict[str, ColumnMoments]:
    return {
        name: ColumnMoments.of(np.arcsinh(_values(columns, name).astype(np.float64) / t)) for name, t in turns.items()
    }


def merge_moments(parts: Iterable[Mapping[str, ColumnMoments]]) -> dict[str, ColumnMoments]:
    """Add up the moments of columns, part by part in their order."""
    found: dict[str, ColumnMoments] = {}
    for part in parts:
        for name, seen in part.items():
            found[name] = found[name] + seen if name in found else seen
    return found


def learn_knots(codes: Sequence[NumericCode], each: Each) -> tuple[NumericCode, ...]:
    """Give knots to columns without a curve, but for those with gaps and those of one or two values."""
    found = []
    for code in codes:
        if code.curve is None and code.scale > 0 and not code.indicator:
            knots = _knots(code, sum(each(partial(_on_column, code.name, len))), each)
            code = replace(code, knots=knots if len(knots) > 2 else ())
        found.append(code)
    return tuple(found)


def _knots(code: NumericCode, count: int, each: Each) -> tuple[float, ...]:
    """Return quantiles, once standardised, that are not too close."""
    at = quantiles(lambda f: each(partial(_on_column, code.name, f)), count, MAX_BINS)
    first, *others, last = code.standardise(at).tolist()
    knots = [first]
    for knot in others:
        if knot - knots[-1] >= _APART and last - knot >= _APART:
            knots.append(knot)
    return (*knots, last)


def _on_column(name: str, function: Callable[[NDArray[np.float32]], U], columns: Columns) -> U:
    return function(_values(columns, name))


def _values(columns: Columns, name: str) -> NDArray[np.float32]:
    column = columns[name]
    assert isinstance(column, Numeric)
    return column.values


def _are_knots(knots: tuple[Any, ...]) -> bool:
    """Tell rising numbers, at least two, from what was never saved; there may be none at all."""
    numbers = all(isinstance(knot, float) and abs(knot) < _FAR for knot in knots)
    return not knots or (numbers and len(knots) > 1 and all(np.diff(knots) > 0))


class Statistics(NamedTuple):
    """What one look at a table tells: moments of the columns of numbers, and words of the others with their counts."""

    moments: dict[str, ColumnMoments]
    words: dict[str, Counter[str]]

    @classmethod
    def of(cls, columns: Columns) -> Statistics:
        """Look at the columns of one part."""
        moments = {
            name: ColumnMoments.of(column.values) for name, column in columns.items() if isinstance(column, Numeric)
        }
        words: dict[str, Counter[str]] = {}
        for name, column in columns.items():
            if isinstance(column, Categorical):  # the table may name categories that only other parts use
                counts = np.bincount(column.codes, minlength=len(column.categories))
                words[name] = Counter({column.categories[k]: int(counts[k]) for k in np.flatnonzero(counts)})
        return cls(moments, words)

    @classmethod
    def merge(cls, parts: Sequence[Statistics]) -> Statistics:
        """Put together what was seen in all parts."""
        words: dict[str, Counter[str]] = {}
        for part in parts:
            for name, found in part.words.items():
                words.setdefault(name, Counter()).update(found)
        return cls(merge_moments(part.moments for part in parts), words)
