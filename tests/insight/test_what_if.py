"""Hypothetical sets have the requested alternatives, individuals and values."""

import numpy as np
import pytest

from pcmcnet import MNL, ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.insight.queries import compose_sets, with_values

TABLE = {
    "trip": ["b", "b", "a", "a", "a"],
    "took": [1, 0, 0, 0, 1],
    "price": [3.0, 5.0, 2.0, 8.0, 1.0],
    "mode": ["bus", "car", "bus", "car", "bike"],
    "income": [10.0, 10.0, 20.0, 20.0, 20.0],
    "weight": [2.0, 2.0, 1.0, 1.0, 1.0],
}


@pytest.fixture
def data() -> ChoiceData:
    roles = {"features": ["price", "mode"], "individual": ["income"], "weight": "weight"}
    return ChoiceData.from_long(TABLE, choice_set="trip", chosen="took", **roles)


def test_sets_combine_alternatives_of_several_sets(data: ChoiceData) -> None:
    composed = compose_sets(data, [[4, 0, 0], [1]], [1, 0])
    assert composed.sizes.tolist() == [3, 1]
    assert composed.features["price"].values.tolist() == [1.0, 3.0, 3.0, 5.0]
    assert composed.features["mode"].plain().tolist() == ["bike", "bus", "bus", "car"]
    assert composed.individual["income"].values.tolist() == [20.0, 10.0]
    assert composed.weights.tolist() == [1.0, 2.0]
    assert composed.chosen is None
    assert composed.to_rows(np.arange(4.0)).tolist() == [0.0, 1.0, 2.0, 3.0]


def test_composing_the_original_sets_keeps_probabilities(data: ChoiceData) -> None:
    model = MNL(formula="price").fit(data)
    same = compose_sets(data, [np.arange(2), np.arange(2, 5)], [0, 1])
    np.testing.assert_array_equal(model.predict_proba(same), model.predict_proba(data))


def test_unavailable_rows_are_dropped() -> None:
    table = {**TABLE, "there": [1, 1, 1, 0, 1]}
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["price"], available="there")
    composed = compose_sets(data, [[0, 1], [2, 3]], [0, 1])
    assert composed.n_rows == 4
    assert composed.features["price"].values.tolist() == [3.0, 5.0, 2.0, 1.0]


def test_only_the_given_column_changes(data: ChoiceData) -> None:
    dearer = with_values(data, "price", np.arange(5.0))
    assert dearer.features["price"].values.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert dearer.features["mode"] is data.features["mode"]
    assert dearer.chosen is data.chosen
    richer = with_values(data, "income", [1.0, 2.0])
    assert richer.individual["income"].values.tolist() == [1.0, 2.0]
    moved = with_values(data, "mode", ["car", "tram", "bus", "bus", "bike"])
    assert moved.features["mode"].plain().tolist() == ["car", "tram", "bus", "bus", "bike"]


@pytest.mark.parametrize(
    ("sets", "individuals", "message"),
    [
        ([[0], []], [0, 0], "at least one alternative"),
        ([[0, 5]], [0], "from 0 to 4, got 0 to 5"),
        ([[-1]], [0], "places"),
        ([[0]], [2], "individuals: expected numbers from 0 to 1"),
        ([[0]], [0, 1], "individuals: expected 1 positions, one for each set, got 2"),
    ],
)
def test_invalid_places_are_rejected(
    data: ChoiceData, sets: list[list[int]], individuals: list[int], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        compose_sets(data, sets, individuals)


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("prise", [1.0] * 5, "no feature or individual-level column 'prise'"),
        ("price", [1.0] * 4, "expected 5 values"),
        ("price", [1.0, np.nan, 1.0, 1.0, 1.0], "finite"),
        ("income", [1.0] * 5, "expected 2 values"),
    ],
)
def test_values_that_do_not_fit_are_rejected(data: ChoiceData, column: str, values: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        with_values(data, column, values)
