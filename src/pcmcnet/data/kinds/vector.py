"""Vectors that all have the same size, such as precomputed embeddings: (U, D) numbers.

Coordinates are standardised by the mean and standard deviation of the distinct training vectors. A coordinate that is
constant in training becomes 0.
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

_MAX_STANDARD_DEVIATIONS = 1e6  # from the training mean; products of larger numbers may overflow float32


@dataclass(frozen=True, slots=True)
class VectorCode:
    """Mean and scale of each coordinate. The scale of a constant coordinate is 0."""

    name: str
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    kind: ClassVar[str] = "vector"
    dtype: ClassVar[type[np.generic]] = np.float32

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one prepared vector."""
        return (len(self.mean),)

    @classmethod
    def learn(cls, name: str, table: NDArray[Any]) -> VectorCode:
        """Learn the mean and scale of each coordinate."""
        numbers = table.astype(np.float64)
        constant = (table == table[:1]).all(0)
        scale = np.where(constant, 0.0, numbers.std(0))
        return cls(name, tuple(numbers.mean(0).tolist()), tuple(scale.tolist()))

    def prepare(self, table: NDArray[Any]) -> NDArray[np.float32]:
        """Standardise the coordinates of vectors (U, D)."""
        size = len(self.mean)
        if table.shape[1] != size:
            raise SchemaError(
                f"column {self.name!r}: expected vectors of {size} numbers, as in training, got {table.shape[1]}: "
                f"give vectors from the same source."
            )
        mean, scale = np.array(self.mean), np.array(self.scale)
        scaled = np.divide(table - mean, scale, where=scale > 0, out=np.zeros(table.shape))
        if (is_far := np.abs(scaled) > _MAX_STANDARD_DEVIATIONS).any():
            raise SchemaError(
                f"column {self.name!r}: {int(is_far.any(1).sum())} vectors have coordinates more than "
                f"{_MAX_STANDARD_DEVIATIONS:g} training standard deviations from the training mean. Correct them."
            )
        narrow: NDArray[np.float32] = scaled.astype(np.float32)
        return narrow

    def is_valid(self) -> bool:
        """Return True if the fields, as read from a saved model, are valid."""
        if not all(isinstance(number, int | float) for side in (self.mean, self.scale) for number in side):
            return False
        numbers = np.array([self.mean, self.scale], np.float64)
        return len(self.mean) > 0 and bool(np.isfinite(numbers).all() and (numbers[1] >= 0).all())


class _VectorLearner:
    """Updates the mean and standard deviation of the distinct vectors, and records which coordinates are constant."""

    def __init__(self) -> None:
        self.new, self.moments = NewContents(), RowMoments()
        self.first: NDArray[Any] | None = None
        self.constant: NDArray[np.bool_] = np.ones(1, np.bool_)

    def add(self, table: NDArray[Any]) -> None:
        self.first = table[:1].copy() if self.first is None else self.first
        self.constant = self.constant & (table == self.first).all(0)
        is_new = self.new.are_new([row.tobytes() for row in table])
        self.moments.add(table[is_new].astype(np.float64))

    def code(self, name: str) -> VectorCode:
        scale = np.where(self.constant, 0.0, self.moments.spread)
        return VectorCode(name, tuple(self.moments.mean.tolist()), tuple(scale.tolist()))


class VectorKind(Kind):
    """Vectors that all have the same size."""

    name, code, dtype = "vector", VectorCode, np.float32
    arrow_type, page_field = pa.list_(pa.float64()), "vector"
    learner_class = _VectorLearner
    fact_checks: ClassVar[Any] = {"size": is_count}

    def read(self, values: pa.ChunkedArray, folder: Path | None = None) -> ReadContents:
        """Read lists of numbers, all of the same size, and return codes (n,) and distinct vectors (U, D)."""
        lists = as_lists(values, "numbers")
        all_missing = np.full(len(lists), MISSING_CODE, np.int32), np.zeros((0, 0), np.float32)
        if pa.types.is_null(lists.type):
            return all_missing
        kind = lists.type.value_type
        if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
            raise BadTypeError("expected lists of numbers")
        lengths = pc.fill_null(pc.list_value_length(lists).cast(pa.int64()), -1).to_numpy()
        present = np.flatnonzero(lengths >= 0)
        sizes, counts = np.unique(lengths[present], return_counts=True)
        if not sizes.size:
            return all_missing
        size = int(sizes[np.argmax(counts)])
        require_no_bad_rows(
            (lengths >= 0) & (lengths != size),
            f"expected a vector of {size} numbers as in most rows",
            "Give all vectors the same size, or drop these rows.",
            lambda row: f"{lengths[row]} numbers",
        )
        if size == 0:
            raise BadTypeError("expected vectors of at least one number, got empty lists")
        flat = pc.list_flatten(lists).cast(pa.float64()).to_numpy().reshape(-1, size)
        with np.errstate(over="ignore"):
            narrow = flat.astype(np.float32)
        bad = np.zeros(len(lists), np.bool_)
        bad[present] = ~np.isfinite(narrow).all(1)

        def bad_number(row: int) -> str:
            k = int(np.searchsorted(present, row))
            return f"a vector that contains {flat[k][~np.isfinite(narrow[k])][0]}"

        require_no_bad_rows(bad, f"expected {size} finite numbers", "Correct or drop them.", bad_number)
        return number_distinct(narrow, present, len(lists), keys=narrow + np.float32(0))  # -0 equals 0

    def facts(self, column: Contents) -> dict[str, Any]:
        """Return the size of the vectors."""
        return {"size": column.table.shape[1]}

    def is_json(self, value: Any) -> bool:
        """Return True for a valid vector in a description."""
        return are_numbers(value)

    def json_schema(self, size: int | None) -> dict[str, Any]:
        """Return the JSON schema of a list of numbers."""
        limit = {} if size is None else {"maxItems": size}
        return {"type": "array", "items": json_schema(), "minItems": 1 if size is None else size, **limit}

    def parse_posted(self, value: Any, *, size: int | None, pixels: PixelBudget) -> list[float]:
        """Check that a value is a list of numbers with the same size as in training."""
        items = "numbers" if size is None else f"{size} numbers"
        if not isinstance(value, list):
            raise ValueError(f"expected a list of {items}, got {describe_value(value)}")
        if not value or (size is not None and len(value) != size):
            raise ValueError(f"expected a vector of {items}, as in training, got a vector of {len(value)}")
        for k, number in enumerate(value):
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise ValueError(f"expected {items}, got {describe_value(number)} at position {k}")
            if not abs(number) <= MAX_FLOAT32:
                raise ValueError(f"expected numbers below 3.4e38, got {describe_value(number)} at position {k}")
        return [float(number) for number in value]

    def label(self, code: Any) -> str:
        """Return the kind and the size of the vectors."""
        return f"{self.name}, {len(code.mean):,}"


register(VectorKind())
