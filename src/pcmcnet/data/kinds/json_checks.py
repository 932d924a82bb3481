"""What a value out of JSON is."""

from __future__ import annotations

from typing import Any

import numpy as np

LARGEST = float(np.finfo(np.float32).max)


def is_count(value: Any) -> bool:
    """Tell a whole number from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def is_whole(value: Any) -> bool:
    """Tell a whole number."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64


def is_number(value: Any) -> bool:
    """Tell a finite number that float32 holds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def is_string(value: Any) -> bool:
    """Tell a text."""
    return isinstance(value, str)


def are_numbers(value: Any) -> bool:
    """Tell a list of numbers."""
    return isinstance(value, list) and all(map(is_number, value))


def are_strings(value: Any) -> bool:
    """Tell a list of texts."""
    return isinstance(value, list) and all(map(is_string, value))
