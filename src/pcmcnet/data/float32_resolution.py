"""Numbers so close together that 32 bits cannot tell them apart, such as Unix seconds.

Rounding noise is no variation, and what float32 holds exactly is not lost. Few rows need few steps: the two prices of a
single set may be close. What is seen of one part of a table can be put together with what is seen of another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.errors import SchemaError

_STEPS = 1000  # a spread of fewer float32 steps than this (or than rows) is too coarse


@dataclass(frozen=True, slots=True)
class Span:
    """Range and count of a column's numbers, and whether float32 changes any of them."""

    low: Any
    high: Any
    count: int
    whole: bool  # integers, which have no rounding noise
    lost: bool

    @classmethod
    def of(cls, values: NDArray[Any], narrow: NDArray[np.float32]) -> Span | None:
        """Look at numbers and what float32 makes of them; None where all are gaps."""
        if values.size and values.min() != values.min():  # there are gaps
            values, narrow = values[values == values], narrow[values == values]
        if not values.size:
            return None
        with np.errstate(invalid="ignore"):
            lost = values.dtype != narrow.dtype and bool((narrow.astype(values.dtype) != values).any())
        return cls(values.min().item(), values.max().item(), len(values), values.dtype.kind != "f", lost)

    def __add__(self, other: Span) -> Span:
        """Put two parts together."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        return Span(low, high, self.count + other.count, self.whole and other.whole, self.lost or other.lost)

    @property
    def is_blurred(self) -> bool:
        """Whether float32 makes the numbers constant or nearly so."""
        top = max(-self.low, self.high)
        noise = 0 if self.whole else _STEPS * float(np.spacing(float(top)))
        return self.lost and noise < self.high - self.low < min(_STEPS, self.count) * _step(top)

    def require_steps(self, column: str) -> None:
        """Raise SchemaError if float32 makes the numbers constant or nearly so."""
        if self.is_blurred:
            raise SchemaError(
                f"column {column!r}: its values differ by less than 32-bit numbers can tell apart "
                f"(from {self.low} to {self.high}); subtract an offset, for example the smallest value."
            )


def merge_spans(spans: dict[str, Span], others: Mapping[str, Span]) -> None:
    """Add the spans of another part of a table, by column."""
    for name, span in others.items():
        spans[name] = spans[name] + span if name in spans else span


def is_close(narrow: NDArray[np.float32]) -> bool:
    """Tell whether finite numbers lie so close together that the cast may have blurred them; cheap."""
    if not narrow.size:
        return False
    low, high = float(narrow.min()), float(narrow.max())
    return high - low < (_STEPS + 2) * _step(max(-low, high))


def _step(magnitude: float) -> float:
    """Distance between neighbouring float32 numbers of a magnitude."""
    return math.ldexp(1.0, max(math.frexp(magnitude)[1] - 24, -149))
