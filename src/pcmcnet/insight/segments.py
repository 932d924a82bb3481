"""Groups of alternatives or of choice sets, by a column or by given values, and weighted figures of each group.

Categories and numbers of few distinct values are groups as they are; other numbers are cut at their quartiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.column_arrays import Column, Contents, Numeric
from pcmcnet.data.ragged import spread
from pcmcnet.errors import InputError, did_you_mean

ALL, MISSING = "all", "(missing)"
_FEW = 8  # distinct numbers that are groups of their own


@dataclass(frozen=True, eq=False)
class Segments:
    """Groups by name, and the group of each alternative."""

    names: tuple[str, ...]
    codes: Ints  # (N,)
    of_sets: bool  # whether all alternatives of a set are in one group


def segments(data: ChoiceData, by: str | ArrayLike | None) -> Segments:
    """Group alternatives by a column of any role, or by a value for each choice set or alternative; in one if None.

    Examples
    --------
    >>> table = {"trip": [1, 1, 2, 2], "price": [3.0, 4.0, 9.0, 1.0], "purpose": ["work", "work", "fun", "fun"]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", individual=["purpose"], features=["price"])
    >>> found = segments(data, "purpose")
    >>> found.names, found.codes.tolist()
    (('fun', 'work'), [1, 1, 0, 0])
    """
    if by is None:
        return Segments((ALL,), np.zeros(len(data.rows), np.int64), of_sets=True)
    values, of_sets = _values(data, by)
    names, codes = grouped(values)
    return Segments(names, spread(codes, data.offsets) if of_sets else codes, of_sets)


def set_segments(data: ChoiceData, by: str | ArrayLike | None) -> tuple[tuple[str, ...], Ints]:
    """Group choice sets: names, and the group of each set (S,)."""
    found = segments(data, by)
    if not found.of_sets:
        raise InputError(f"by={by!r} differs within choice sets: name a column of the individual, or a kept one.")
    return found.names, found.codes[data.offsets[:-1]]


def weighted_quantiles(values: Floats, weights: Floats, shares: ArrayLike) -> Floats:
    """Return the smallest values that at least such shares of the weight do not exceed.

    Examples
    --------
    >>> weighted_quantiles(np.array([5.0, 1.0, 3.0]), np.array([1.0, 1.0, 2.0]), [0.25, 0.5, 1.0])
    array([1., 3., 5.])
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    at = np.searchsorted(reached, np.asarray(shares, np.float64) - 1e-12)
    found: Floats = values[order][np.minimum(at, len(values) - 1)]
    return found


def column_of(data: ChoiceData, name: str) -> tuple[Column, bool]:
    """Find a column of any role, and tell whether it is one of choice sets."""
    if name == data.schema.alternative and data.labels is not None:
        return data.labels, False
    for columns, of_sets in ((data.features, False), (data.individual, True), (data.keep, True)):
        if name in columns:
            return columns[name], of_sets
    known = [*data.features, *data.individual, *data.keep, *([data.schema.alternative] if data.labels else [])]
    raise InputError(f"no column {name!r} in the table." + did_you_mean(name, [str(k) for k in known]))


def numeric_values(data: ChoiceData, name: str) -> tuple[Floats, bool]:
    """Return a numeric feature (N,), or a numeric column of the individual (S,), and whether it is the latter."""
    columns = {**data.individual, **data.features}
    if name not in columns:
        raise InputError(f"{name!r} is no feature and no column of the individual." + did_you_mean(name, columns))
    column = columns[name]
    if not isinstance(column, Numeric):
        raise InputError(f"column {name!r} is {column.kind}: expected a numeric one.")
    return column.values.astype(np.float64), name not in data.features


def _values(data: ChoiceData, by: str | ArrayLike) -> tuple[NDArray[Any], bool]:
    if isinstance(by, str):
        column, of_sets = column_of(data, by)
        if isinstance(column, Contents):
            raise InputError(f"by={by!r} is of kind {column.kind}: only numbers and categories make groups.")
        return column.plain(), of_sets
    values = np.asarray(by)
    if values.shape not in ((len(data),), (len(data.rows),)):
        raise InputError(
            f"by: expected a value for each of {len(data)} choice sets or of {len(data.rows)} alternatives, "
            f"got shape {values.shape}."
        )
    return values, values.shape == (len(data),)


def grouped(values: NDArray[Any]) -> tuple[tuple[str, ...], Ints]:
    """Group values: names of the groups, and the group of each value."""
    if values.dtype.kind not in "fiu":
        words, codes = np.unique(values.astype(str), return_inverse=True)
        return tuple(words.tolist()), codes.astype(np.int64)
    numbers = values.astype(np.float64)
    gaps = np.isnan(numbers)
    found, codes = np.unique(numbers[~gaps], return_inverse=True)
    names = [f"{value:g}" for value in found]
    if len(found) > _FEW:
        cuts = np.unique(np.quantile(numbers[~gaps], [0.25, 0.5, 0.75]))
        ends = [f"{cut:.4g}" for cut in cuts]
        names = [f"< {ends[0]}", *(f"{a} to {b}" for a, b in pairwise(ends)), f">= {ends[-1]}"]
        codes = np.searchsorted(cuts, numbers[~gaps], side="right")
    out = np.full(len(numbers), len(names), np.int64)
    out[~gaps] = codes
    return (*names, *([MISSING] if gaps.any() else [])), out
