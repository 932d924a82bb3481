"""Types of NumPy arrays, named once for the whole package."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


# -- To json -----------------------------------------------------------------------------------------------------------
# Values of any depth -> what JSON knows.


def to_json(value: Any) -> Any:
    """Make plain dicts, lists, numbers and words; what is infinite or not a number becomes None.

    Examples
    --------
    >>> to_json({"law": (0.5, np.float64(0.25)), 2: {"nll": float("inf"), "sets": np.int64(3)}})
    {'law': [0.5, 0.25], '2': {'nll': None, 'sets': 3}}
    """
    if isinstance(value, Mapping):
        return {str(key): to_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(inner) for inner in value]
    if isinstance(value, np.generic | np.ndarray):
        return to_json(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
