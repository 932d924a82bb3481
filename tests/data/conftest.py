"""A table small enough to work out by hand, and its roles."""

from typing import Any

import pytest


@pytest.fixture
def trips() -> dict[str, list[Any]]:
    """Trip 7 (car taken, bus), then trip 3 (car, bus, bike taken): sets of two and three alternatives."""
    return {
        "trip": [7, 7, 3, 3, 3],
        "mode": ["car", "bus", "car", "bus", "bike"],
        "took": [1, 0, 0, 0, 1],
        "time": [10.0, 20.0, 12.0, 9.5, 30.0],
        "seats": [4, 50, 4, 50, 1],
        "shade": ["red", "blue", "blue", "red", "red"],
        "income": [2.5, 2.5, 1.0, 1.0, 1.0],
        "town": ["A", "A", "B", "B", "B"],
        "person": ["p", "p", "q", "q", "q"],
    }


@pytest.fixture
def roles() -> dict[str, Any]:
    return {
        "choice_set": "trip",
        "chosen": "took",
        "alternative": "mode",
        "individual": ["income", "town"],
        "features": ["time", "seats", "shade"],
        "keep": ["person"],
    }
