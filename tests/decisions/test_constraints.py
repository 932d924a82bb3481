"""Constraints by name become linear rows; contradictory or unknown ones are rejected."""

import numpy as np
import pytest

from pcmcnet.decisions.constraints import ConstraintRows, Constraints, constraint_rows
from pcmcnet.errors import ConfigError, InputError

LABELS = ["none", "a", "b", "c"]
COLUMNS = {"shelf": [None, 1, 2, 4], "brand": ["-", "x", "x", "y"]}


def allowed(**words: object) -> list[str]:
    """Return all offers that satisfy the constraints as strings, without the outside option."""
    rows = constraint_rows(Constraints(**words), LABELS, COLUMNS, 0)
    offers = np.array([[True, *map(bool, (k & 1, k & 2, k & 4))] for k in range(8)])
    names = np.array(LABELS)
    return ["".join(names[offer][1:]) for offer in offers[rows.allow(offers)]]


@pytest.mark.parametrize(
    ("words", "offers"),
    [
        ({}, ["", "a", "b", "ab", "c", "ac", "bc", "abc"]),
        ({"size": 1}, ["", "a", "b", "c"]),
        ({"size": (2, None)}, ["ab", "ac", "bc", "abc"]),
        ({"capacity": {"shelf": 5}}, ["", "a", "b", "ab", "c", "ac"]),
        ({"at_least": {"brand": {"x": 1}}, "size": 1}, ["a", "b"]),
        ({"at_most": {"brand": {"x": 1}}}, ["", "a", "b", "c", "ac", "bc"]),
        ({"together": [("a", "b")]}, ["", "ab", "c", "abc"]),
        ({"apart": [("a", "c")]}, ["", "a", "b", "ab", "c", "bc"]),
        ({"always": ["c"], "never": ["a"]}, ["c", "bc"]),
    ],
)
def test_constraints_allow_the_expected_offers(words: dict[str, object], offers: list[str]) -> None:
    assert allowed(**words) == offers


def test_the_best_offer_for_linear_values_is_feasible() -> None:
    rows = constraint_rows(Constraints(capacity={"shelf": 4}), LABELS, COLUMNS, 0)
    best = rows.best(np.array([0.0, 2.0, 2.0, 3.0]))
    assert best is not None
    assert best.tolist() == [True, True, True, False]


def test_without_an_outside_option_offers_are_not_empty() -> None:
    rows = constraint_rows(Constraints(), LABELS, COLUMNS, None)
    assert rows.allow(np.array([[False] * 4, [False, True, False, False]])).tolist() == [False, True]


def test_infeasible_constraints_are_named() -> None:
    rows = constraint_rows(Constraints(size=1, always=["a", "b"]), LABELS, COLUMNS, 0)
    with pytest.raises(InputError, match=r"no offer satisfies the constraints; .* at most 1 alternatives"):
        rows.require_possible()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"size": -1}, "size: expected a whole number"),
        ({"size": (3, 2)}, "minimum not above the maximum, got 3 and 2"),
        ({"size": (1, 2, 3)}, "size: expected a whole number, or"),
        ({"size": 2.5}, "size: expected a whole number, or"),
        ({"always": "a"}, "always: expected a list"),
        ({"apart": ["ab"]}, "apart: expected groups of at least two labels, .* got 'ab'"),
        ({"together": [("a",)]}, "together: expected groups of at least two"),
        ({"capacity": {"shelf": "much"}}, "capacity of shelf"),
        ({"capacity": {"shelf": float("nan")}}, "capacity of shelf"),
        ({"at_most": {"brand": 2}}, "at_most: expected a whole number for each value, .* got 2"),
        ({"at_least": {"brand": {"x": -1}}}, "at_least: expected a whole number for each value"),
    ],
)
def test_invalid_constraints_are_rejected(words: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Constraints(**words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"always": ["aa"]}, "always: 'aa' is not in the catalogue"),
        ({"capacity": {"shelve": 3}}, "capacity: the catalogue has no column 'shelve'.* 'shelf'"),
        ({"at_most": {"band": {"x": 1}}}, "at_most: the catalogue has no column 'band'.* 'brand'"),
        ({"size": (4, None)}, "size: expected a minimum of at most 3"),
        ({"capacity": {"brand": 3}}, "expected numbers in column 'brand' of the catalogue"),
        ({"at_least": {"brand": {"z": 1}}}, "no alternative of the catalogue has brand = 'z'"),
        ({"always": ["a"], "never": ["a"]}, "'a' is in both always and never"),
    ],
)
def test_names_missing_from_the_catalogue_are_rejected(words: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        constraint_rows(Constraints(**words), LABELS, COLUMNS, 0)


def test_without_constraints_all_offers_are_allowed() -> None:
    assert ConstraintRows.unconstrained(np.array([True, False])).allow(np.array([[True, False], [True, True]])).all()
