"""Arrow columns of numbers -> numpy, and back.

Numbers without gaps are looked at where they lie: Arrow's own conversions load pandas wherever it is installed, which
takes a quarter of a second.
"""

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
    return array_to_numpy(values.chunk(0) if values.num_chunks == 1 else values.combine_chunks())


def to_float32(values: pa.ChunkedArray) -> NDArray[np.float32]:
    """Numbers as float32, chunk by chunk: no wider copy is made."""
    narrow = np.empty(len(values), np.float32)
    at = 0
    with np.errstate(over="ignore"):
        for chunk in values.chunks:
            narrow[at : at + len(chunk)] = array_to_numpy(chunk)
            at += len(chunk)
    return narrow


def array_to_numpy(values: pa.Array) -> NDArray[Any]:
    """Values of one chunk, with NaN for gaps; numbers without gaps are not copied."""
    kind = values.type
    if values.null_count or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return np.asarray(values.to_numpy(zero_copy_only=False))
    return np.from_dlpack(values)


def array_from_numpy(values: NDArray[Any]) -> pa.Array:
    """Numbers where they lie."""
    lying = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(lying.dtype), len(lying), [None, pa.py_buffer(lying)])
