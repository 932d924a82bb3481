"""Types of NumPy arrays, named once for the whole package, and results as values that JSON knows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def to_json(value: Any) -> Any:
    """Return plain dicts, lists, numbers and words; what is infinite or not a number becomes None.

    A dataclass becomes the dict of its fields, or what its method ``to_dict`` returns.

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
    if hasattr(value, "to_dict"):
        return to_json(value.to_dict())
    if is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    return value


class PlainValues:
    """A dataclass of results with ``to_dict``; ``_derived`` names the properties that come along."""

    __slots__ = ()
    _derived: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON knows them; an infinite number is None."""
        names = [*self.__dataclass_fields__, *self._derived]  # type: ignore[attr-defined]  # every subclass is a dataclass
        return {name: to_json(getattr(self, name)) for name in names}
