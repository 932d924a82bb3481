"""Columns in memory: numbers as float32, categories as integer codes with their names beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Kind = Literal["numeric", "categorical"]


@dataclass(frozen=True, slots=True)
class Numeric:
    """Real numbers; NaN marks a missing one, and only where the schema admits it."""

    values: NDArray[np.float32]
    kind: Kind = "numeric"

    def __len__(self) -> int:
        return len(self.values)

    def take(self, index: Ints) -> Numeric:
        """Take some rows."""
        return Numeric(self.values[index])

    def plain(self) -> NDArray[Any]:
        """Return the values as a person would write them."""
        return self.values


@dataclass(frozen=True, slots=True)
class Categorical:
    """Codes into ``categories``; the list may name more categories than the codes use."""

    codes: NDArray[np.int32]
    categories: tuple[str, ...]
    kind: Kind = "categorical"

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, index: Ints) -> Categorical:
        """Take some rows; all categories stay."""
        return Categorical(self.codes[index], self.categories)

    def plain(self) -> NDArray[Any]:
        """Return the values as a person would write them."""
        return np.array(self.categories, dtype=object)[self.codes]


Column = Numeric | Categorical
Columns = Mapping[str, Column]


def take(columns: Columns, index: Ints) -> dict[str, Column]:
    """Take the same rows of every column."""
    return {name: column.take(index) for name, column in columns.items()}


def raw(column: Column) -> NDArray[Any]:
    """Return the stored numbers: values, or codes."""
    return column.values if isinstance(column, Numeric) else column.codes


def concat(first: Columns, second: Columns) -> dict[str, Column]:
    """Append the rows of columns with the same names and kinds."""
    return {name: concat_column(column, second[name]) for name, column in first.items()}


def concat_column(first: Column, second: Column) -> Column:
    """Append one column to another; categories are joined by name."""
    if isinstance(first, Numeric) and isinstance(second, Numeric):
        return Numeric(np.concatenate([first.values, second.values]))
    assert isinstance(first, Categorical)
    assert isinstance(second, Categorical)
    categories = tuple(dict.fromkeys(first.categories + second.categories))
    place = {category: k for k, category in enumerate(categories)}
    moved = np.array([place[c] for c in second.categories], np.int32)
    return Categorical(np.concatenate([first.codes, moved[second.codes]]), categories)
