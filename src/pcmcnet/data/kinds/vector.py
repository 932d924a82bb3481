"""Vectors of one size, such as embeddings that were computed elsewhere: (U, D) numbers.

Coordinates are standardised by the mean and the standard deviation of the training part's distinct vectors; one that is
constant there becomes 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pcmcnet.data.columns.arrays import MISSING_CODE, Contents
from pcmcnet.data.kinds.kind import (
    MAX_FLOAT32,
    BadTypeError,
    Kind,
    NewContents,
    PixelBudget,
    ReadContents,
    RowMoments,
    are_numbers,
    as_lists,
    is_count,
    number_distinct,
    register,
    require_no_bad_rows,
)
from pcmcnet.data.kinds.number import json_schema
from pcmcnet.errors import SchemaError, describe_value

_LARGEST = 1e6  # training standard deviations; a float32 product of more may overflow


@dataclass(frozen=True, slots=True)
class VectorCode:
    """Standardisation of each coordinate; ``scale`` 0 marks a constant one."""

    name: str
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    kind: ClassVar[str] = "vector"
    dtype: ClassVar[type[np.generic]] = np.float32

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what a network gets for one vector."""
        return (len(self.mean),)

    @classmethod
    def learn(cls, name: str, table: NDArray[Any]) -> VectorCode:
        """Learn means and scales."""
        numbers = table.astype(np.float64)
        constant = (table == table[:1]).all(0)
        scale = np.where(constant, 0.0, numbers.std(0))
        return cls(name, tuple(numbers.mean(0).tolist()), tuple(scale.tolist()))

    def prepare(self, table: NDArray[Any]) -> NDArray[np.float32]:
        """(U, D) vectors -> (U, D) standardised ones."""
        size = len(self.mean)
        if table.shape[1] != size:
            raise SchemaError(
                f"column {self.name!r}: the model was trained with vectors of {size} numbers, got {table.shape[1]}: "
                f"give vectors of the same origin."
            )
        mean, scale = np.array(self.mean), np.array(self.scale)
        scaled = np.divide(table - mean, scale, where=scale > 0, out=np.zeros(table.shape))
        if (np.abs(scaled) > _LARGEST).any():
            raise SchemaError(
                f"column {self.name!r}: {int((np.abs(scaled) > _LARGEST).any(1).sum())} vectors have coordinates more "
                f"than {_LARGEST:g} training standard deviations from the training mean. Correct them."
            )
        narrow: NDArray[np.float32] = scaled.astype(np.float32)
        return narrow

    def is_valid(self) -> bool:
        """Tell whether the values are such as were saved."""
        if not all(isinstance(number, int | float) for side in (self.mean, self.scale) for number in side):
            return False
        numbers = np.array([self.mean, self.scale], np.float64)
        return len(self.mean) > 0 and bool(np.isfinite(numbers).all() and (numbers[1] >= 0).all())


class _VectorLearner:
    """Count, mean and sum of squares about it of distinct vectors, and which coordinates are constant."""

    def __init__(self) -> None:
        self.new, self.moments = NewContents(), RowMoments()
        self.first: NDArray[Any] | None = None
        self.constant: NDArray[np.bool_] = np.ones(1, np.bool_)

    def add(self, table: NDArray[Any]) -> None:
        self.first = table[:1].copy() if self.first is None else self.first
        self.constant = self.constant & (table == self.first).all(0)
        fresh = self.new.are_new([row.tobytes() for row in table])
        self.moments.add(table[fresh].astype(np.float64))

    def code(self, name: str) -> VectorCode:
        scale = np.where(self.constant, 0.0, self.moments.spread)
        return VectorCode(name, tuple(self.moments.mean.tolist()), tuple(scale.tolist()))


class VectorKind(Kind):
    """Vectors of one size."""

    name, code, dtype = "vector", VectorCode, np.float32
    arrow_type, page_field = pa.list_(pa.float64()), "vector"
    learner_class = _VectorLearner
    fact_checks: ClassVar[Any] = {"size": is_count}

    def read(self, values: pa.ChunkedArray, folder: Path | None = None) -> ReadContents:
        """Read lists of numbers, all of the size that most of them have: (n,) codes and (U, D) distinct vectors."""
        lists = as_lists(values, "numbers")
        nothing = np.full(len(lists), MISSING_CODE, np.int32), np.zeros((0, 0), np.float32)
        if pa.types.is_null(lists.type):
            return nothing
        kind = lists.type.value_type
        if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
            raise BadTypeError("expected lists of numbers")
        lengths = pc.fill_null(pc.list_value_length(lists).cast(pa.int64()), -1).to_numpy()
        present = np.flatnonzero(lengths >= 0)
        sizes, counts = np.unique(lengths[present], return_counts=True)
        if not sizes.size:
            return nothing
        size = int(sizes[np.argmax(counts)])
        require_no_bad_rows(
            (lengths >= 0) & (lengths != size),
            f"expected a vector of {size} numbers as in most rows",
            "Give all vectors one size, or drop these rows.",
            lambda row: f"{lengths[row]} numbers",
        )
        if size == 0:
            raise BadTypeError("expected vectors of at least one number, got empty lists")
        flat = pc.list_flatten(lists).cast(pa.float64()).to_numpy().reshape(-1, size)
        with np.errstate(over="ignore"):
            narrow = flat.astype(np.float32)
        bad = np.zeros(len(lists), np.bool_)
        bad[present] = ~np.isfinite(narrow).all(1)

        def odd(row: int) -> str:
            k = int(np.searchsorted(present, row))
            return f"{flat[k][~np.isfinite(narrow[k])][0]} among them"

        require_no_bad_rows(bad, f"expected {size} finite numbers", "Correct or drop them.", odd)
        return number_distinct(narrow, present, len(lists), keys=narrow + np.float32(0))  # -0 is 0

    def facts(self, column: Contents) -> dict[str, Any]:
        """Say how many numbers a vector has."""
        return {"size": column.table.shape[1]}

    def is_json(self, value: Any) -> bool:
        """Tell what a description has."""
        return are_numbers(value)

    def json_schema(self, size: int | None) -> dict[str, Any]:
        """Return the schema of a list of numbers."""
        most = {} if size is None else {"maxItems": size}
        return {"type": "array", "items": json_schema(), "minItems": 1 if size is None else size, **most}

    def parse_posted(self, value: Any, *, size: int | None, pixels: PixelBudget) -> list[float]:
        """Check a list of numbers."""
        what = "numbers" if size is None else f"{size} numbers"
        if not isinstance(value, list):
            raise ValueError(f"expected a list of {what}, got {describe_value(value)}")
        if not value or (size is not None and len(value) != size):
            raise ValueError(f"expected a vector of {what}, as the model was trained with, got one of {len(value)}")
        for k, number in enumerate(value):
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise ValueError(f"expected {what}, got {describe_value(number)} at place {k}")
            if not abs(number) <= MAX_FLOAT32:
                raise ValueError(f"expected numbers below 3.4e38, got {describe_value(number)} at place {k}")
        return [float(number) for number in value]

    def label(self, code: Any) -> str:
        """Say how many numbers there are."""
        return f"{self.name}, {len(code.mean):,}"


register(VectorKind())
