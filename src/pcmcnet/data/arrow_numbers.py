"""Arrow columns of numbers -> numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def is_number(kind: pa.DataType) -> bool:
    """Tell a type of numbers, of truth values, or of nothing but gaps."""
    types = pa.types
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def to_numpy(values: pa.ChunkedArray) -> NDArray[Any]:
    """Numbers as they are, with NaN for gaps."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    elif pa.types.is_decimal(values.type) or pa.types.is_null(values.type):
        values = values.cast(pa.float64(), safe=False)
    return np.asarray(values.to_numpy())


def to_float32(values: pa.ChunkedArray) -> NDArray[np.float32]:
    """Numbers as float32, chunk by chunk: no wider copy is made."""
    narrow = np.empty(len(values), np.float32)
    at = 0
    with np.errstate(over="ignore"):
        for chunk in values.chunks:
            narrow[at : at + len(chunk)] = chunk.to_numpy(zero_copy_only=False)
            at += len(chunk)
    return narrow
