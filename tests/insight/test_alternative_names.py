"""Alternatives are named by the columns that distinguish them within their set."""

from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.insight.queries import alternative_name, distinguishing_columns

TABLE: dict[str, Any] = {
    "trip": [1, 1, 1, 2, 2],
    "line": ["A", "A", "B", "C", "D"],
    "price": [10.0, 10.0, 30.0, 5.0, 5.0],
    "stops": [0.0, 1.0, 1.0, 2.0, 2.0],
    "wait": [3.0, 3.0, 3.0, 4.0, 4.0],
}


def read(*features: str, **roles: Any) -> ChoiceData:
    return ChoiceData.from_long(TABLE, choice_set="trip", features=list(features), **roles)


def test_names_use_the_columns_that_distinguish_alternatives() -> None:
    """In trip 1, two alternatives have line A and price 10. They differ in stops, not in price or wait."""
    data = read("line", "price", "stops", "wait")
    assert distinguishing_columns(data, np.arange(3)) == ["line", "stops"]
    assert [alternative_name(data, k) for k in range(3)] == ["#1 (A, stops 0)", "#2 (A, stops 1)", "#3 (B, stops 1)"]
    assert [alternative_name(data, k) for k in (3, 4)] == ["#1 (C)", "#2 (D)"]


def test_a_unit_replaces_the_column_name_unless_it_is_shared() -> None:
    one = {"stops": {"name": "Ride", "unit": "min"}}
    assert alternative_name(read("line", "stops", "wait", columns=one), 1) == "#2 (A, 1 min)"
    both = {"stops": {"name": "Ride", "unit": "min"}, "wait": {"name": "Wait", "unit": "min"}}
    assert alternative_name(read("line", "stops", "wait", columns=both), 1) == "#2 (A, Ride 1 min)"


@pytest.mark.parametrize(("features", "name"), [(["wait"], "#2 (wait 3)"), ([], "#2")])
def test_identical_alternatives_are_named_by_number(features: list[str], name: str) -> None:
    assert alternative_name(read(*features), 1) == name


def test_a_name_has_at_most_three_columns() -> None:
    table = {"s": np.zeros(16), **{f"x{k}": (np.arange(16) >> k) % 2 for k in range(4)}, "c": ["a"] * 16}
    data = ChoiceData.from_long(table, choice_set="s", features=["c", "x0", "x1", "x2", "x3"])
    assert distinguishing_columns(data, np.arange(16)) == ["c", "x0", "x1"]
