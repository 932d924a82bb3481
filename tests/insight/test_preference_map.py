from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.datasets import mlba
from pcmcnet.errors import ConfigError, InputError, SchemaError
from pcmcnet.insight.preference_map import preference_error, preference_map, preference_map_in_set
from pcmcnet.models import MNL, PCMCNet

Floats = NDArray[np.float64]
CONTEXTS = {"attraction": (3.0, 5.0), "similarity": (3.5, 6.5), "compromise": (2.0, 8.0)}


def logit(attributes: Floats) -> Floats:
    """Return P(i) proportional to exp(x_i): no context effects."""
    weight = np.exp(attributes[..., 0])
    p: Floats = weight / weight.sum(axis=1, keepdims=True)
    return p


def by_place(attributes: Floats) -> Floats:
    """Return P(a) = x_c / 20 and P(b) = y_c / 20, so the preference is x / (x + y)."""
    a, b = attributes[:, 2, 0] / 20, attributes[:, 2, 1] / 20
    return np.stack([a, b, 1 - a - b], axis=1)


class TableModel:
    """A model that takes a table instead of attributes."""

    def predict_proba(self, data: ChoiceData) -> Floats:
        x, y = (data.features[name].plain() for name in ("ram", "battery"))
        probabilities = by_place(np.stack([x, y], axis=-1).reshape(len(data), 3, 2).astype(np.float64))
        return data.to_rows(probabilities.ravel())


def test_columns_are_the_first_attribute_and_rows_the_second() -> None:
    """Four cells of width 2 on [1, 9] have their centres at 2, 4, 6 and 8."""
    result = preference_map(by_place, cells=4)
    assert result.x.tolist() == result.y.tolist() == [2, 4, 6, 8]
    expected = [[x / (x + y) for x in (2, 4, 6, 8)] for y in (2, 4, 6, 8)]
    np.testing.assert_allclose(result.preference, expected, rtol=1e-14)


def test_a_model_without_context_effects_has_one_preference() -> None:
    """exp(4) / (exp(4) + exp(6)) for any position of c."""
    result = preference_map(logit, cells=8)
    np.testing.assert_allclose(result.preference, 1 / (1 + np.exp(2)), rtol=1e-14)


def test_swapping_attributes_swaps_the_alternatives() -> None:
    """b is a with its attributes swapped, so the preference at (y, x) is 1 minus that at (x, y)."""
    result = preference_map(mlba.probabilities, cells=8).preference
    np.testing.assert_allclose(result, 1 - result.T, rtol=0, atol=1e-12)
    assert np.ptp(result) > 0.5


def test_the_true_map_has_all_three_effects() -> None:
    """17 cells from 0.75 to 9.25 have their centres at 1, 1.5, ..., 9; without c, a and b have equal shares."""
    result = preference_map(mlba.probabilities, span=(0.75, 9.25), cells=17)
    at = {name: result.preference[round(2 * y - 2), round(2 * x - 2)] for name, (x, y) in CONTEXTS.items()}
    assert at["attraction"] > 0.5
    assert at["similarity"] < 0.5
    assert at["compromise"] > 0.5


def test_a_fitted_model_gives_the_same_map() -> None:
    result = preference_map(TableModel(), cells=4, features=("ram", "battery"))
    np.testing.assert_allclose(result.preference, preference_map(by_place, cells=4).preference, rtol=1e-6)  # float32


def test_alternatives_and_span_can_be_chosen() -> None:
    recorded: list[Floats] = []

    def record(attributes: Floats) -> Floats:
        recorded.append(attributes)
        return np.full(attributes.shape[:2], 1 / 3)

    result = preference_map(record, a=(0.0, 1.0), b=(2.0, 3.0), span=(0.0, 4.0), cells=2)
    assert (result.a, result.b) == ((0.0, 1.0), (2.0, 3.0))
    third = [[1, 1], [3, 1], [1, 3], [3, 3]]
    np.testing.assert_array_equal(recorded[0], [[[0, 1], [2, 3], c] for c in third])


@pytest.mark.parametrize(("cells", "span"), [(1, (1.0, 9.0)), (4, (9.0, 1.0)), (4, (1.0, np.nan))])
def test_a_grid_without_cells_is_rejected(cells: int, span: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="expected cells >= 2 and a span"):
        preference_map(logit, cells=cells, span=span)


def test_probabilities_of_the_wrong_shape_are_rejected() -> None:
    with pytest.raises(InputError, match=r"expected probabilities of shape \(4, 3\), got \(4, 2\)"):
        preference_map(lambda x: np.full((len(x), 2), 0.5), cells=2)


@pytest.mark.parametrize("bad", [(np.nan, 0.5, 0.5), (0.0, 0.0, 1.0), (-0.5, 1.0, 0.5), (2.0, 1.0, 1.0)])
def test_invalid_probabilities_are_reported_with_their_cell(bad: tuple[float, ...]) -> None:
    def broken(attributes: Floats) -> Floats:
        p = logit(attributes)
        p[1] = bad
        return p

    with pytest.raises(InputError, match=r"third alternative at \(7\.0, 3\.0\): expected prob.* \(1 such cells\)"):
        preference_map(broken, cells=2)


def test_the_error_is_the_distance_of_two_maps() -> None:
    result, truth = preference_map(by_place, cells=4), preference_map(lambda x: np.full(x.shape[:2], 1 / 3), cells=4)
    error = preference_error(result, truth)
    np.testing.assert_allclose(error.preference, np.abs(result.preference - 0.5))
    assert (error.a, error.b) == (result.a, result.b)
    with pytest.raises(InputError, match="two preference maps over the same cells"):
        preference_error(result, preference_map(by_place, cells=2))
    with pytest.raises(InputError, match="two preference maps over the same cells"):
        preference_error(result, preference_map(by_place, cells=4, span=(1.0, 5.0)))
    with pytest.raises(InputError, match="two preference maps over the same cells"):
        preference_error(result, result._replace(y=result.y + 1))


# -- in a set of a table -------------------------------------------------------------------------------------------

TABLE: dict[str, Any] = {
    "trip": [7, 7, 7, 7, 8, 8],
    "took": [1, 0, 0, 0, 0, 1],
    "price": [3.0, 5.0, 2.0, 8.0, 1.0, 9.0],
    "minutes": [30.0, 10.0, 60.0, 20.0, 5.0, 90.0],
    "comfort": ["low", "high", "low", "middle", "low", "high"],
    "income": [10.0, 10.0, 10.0, 10.0, 20.0, 20.0],
}


class Record:
    """The share of the first against the second rises with the price of the last. Records its input."""

    predicted: ChoiceData

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        self.asked = data
        last = data.features["price"].plain()[data.offsets[1:] - 1].astype(np.float64)
        p = np.repeat((0.5 / data.sizes) * 0.5, data.sizes)
        p[data.offsets[:-1]] = 0.5 * last / 10
        p[data.offsets[:-1] + 1] = 1.0 - np.add.reduceat(p, data.offsets[:-1]) + p[data.offsets[:-1] + 1]
        return data.to_rows(np.log(p))


@pytest.fixture
def trips() -> ChoiceData:
    roles: dict[str, Any] = {"features": ["price", "minutes", "comfort"], "individual": ["income"]}
    return ChoiceData.from_long(TABLE, choice_set="trip", chosen="took", **roles)


def test_the_third_alternative_moves_in_two_features_only(trips: ChoiceData) -> None:
    """Both features span the table: two cells of width 4 starting at 1, and of width 42.5 starting at 5."""
    model = Record()
    result = preference_map_in_set(model, trips, 0, 1, 3, ("price", "minutes"), cells=2, quantiles=(0.0, 1.0))
    assert result.x.tolist() == [3.0, 7.0]
    assert result.y.tolist() == [26.25, 68.75]
    assert (result.a, result.b, result.c) == ((3.0, 30.0), (5.0, 10.0), (8.0, 20.0))
    predicted = model.asked
    assert predicted.sizes.tolist() == [2, 3, 3, 3, 3]
    third = predicted.offsets[2:] - 1
    assert predicted.features["price"].plain()[third].tolist() == [3.0, 7.0, 3.0, 7.0]
    assert predicted.features["minutes"].plain()[third].tolist() == [26.25, 26.25, 68.75, 68.75]
    assert predicted.features["comfort"].plain()[third].tolist() == ["middle"] * 4
    assert predicted.features["price"].plain()[:5].tolist() == [3.0, 5.0, 3.0, 5.0, 3.0]
    assert predicted.individual["income"].plain().tolist() == [10.0] * 5


def test_the_preference_is_the_share_of_a_against_b(trips: ChoiceData) -> None:
    """P(a) = x / 20 and P(c) = 1 / 12, so the share is (x / 20) / (11 / 12); without c it is 5 / 20."""
    result = preference_map_in_set(Record(), trips, 0, 1, 3, ("price", "minutes"), cells=2, quantiles=(0.0, 1.0))
    expected = [x / 20 / (11 / 12) for x in (3.0, 7.0)]
    np.testing.assert_allclose(result.preference, [expected, expected], rtol=1e-12)
    assert result.without == pytest.approx(0.25, rel=1e-12)


@pytest.mark.parametrize(
    ("third", "copy", "first", "others"),
    [
        (3, False, [3.0, 5.0, 2.0], [3.0, 5.0, 2.0, 7.0]),  # the third alternative moves
        (3, True, [3.0, 5.0, 2.0, 8.0], [3.0, 5.0, 2.0, 8.0, 7.0]),  # a copy of it moves
        (0, False, [3.0, 5.0, 2.0, 8.0], [3.0, 5.0, 2.0, 8.0, 7.0]),  # a stays, and a copy moves
        (5, False, [3.0, 5.0, 2.0, 8.0], [3.0, 5.0, 2.0, 8.0, 7.0]),  # an alternative from another set
    ],
)
def test_the_rest_of_the_set_can_be_included(
    third: int, copy: bool, first: list[float], others: list[float], trips: ChoiceData
) -> None:
    model = Record()
    span = (0.0, 1.0)
    preference_map_in_set(
        model, trips, 0, 1, third, ("price", "minutes"), others=True, copy=copy, cells=2, quantiles=span
    )
    prices, offsets = model.asked.features["price"].plain(), model.asked.offsets
    assert prices[: offsets[1]].tolist() == first
    assert prices[offsets[2] : offsets[3]].tolist() == others


def test_the_grid_covers_quantiles_and_the_three_alternatives(trips: ChoiceData) -> None:
    """The quartiles of prices are 2.25 and 7.25; a, b and the third alternative have 3, 5 and 8."""
    result = preference_map_in_set(Record(), trips, 0, 1, 3, ("price", "minutes"), cells=2, quantiles=(0.25, 0.75))
    np.testing.assert_allclose(result.x, [2.25 + 5.75 / 4, 8 - 5.75 / 4])


def test_a_logit_has_one_preference_in_every_set(trips: ChoiceData) -> None:
    model = MNL(formula="price + minutes").fit(trips)
    result = preference_map_in_set(model, trips, 0, 2, 3, ("price", "minutes"), others=True, cells=4)
    np.testing.assert_allclose(result.preference, result.without, rtol=1e-9)


def test_the_map_in_a_set_agrees_with_figure_2() -> None:
    """The same cells as a table: a network fitted for one epoch gives the same map."""
    data = ChoiceData.from_long(
        mlba.simulate(200, seed=0), choice_set="choice_set", chosen="chosen", features=["attr1", "attr2"]
    )
    model = PCMCNet(hidden=(4,), epochs=1, weight_decay=0.0).fit(data, progress=False)
    corners = {
        "choice_set": [0] * 4,
        "attr1": [4.0, 6.0, 1.0, 9.0],
        "attr2": [6.0, 4.0, 1.0, 9.0],
    }
    table = ChoiceData.from_long(corners, choice_set="choice_set", features=["attr1", "attr2"])
    result = preference_map_in_set(model, table, 0, 1, 2, ("attr1", "attr2"), cells=4, quantiles=(0.0, 1.0))
    expected = preference_map(model, cells=4)
    np.testing.assert_allclose(result.x, expected.x)
    np.testing.assert_allclose(result.preference, expected.preference, rtol=1e-5)  # float32


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"b": 0}, InputError, "two alternatives of the same choice set, got the flat indices 0 and 0"),
        ({"b": 4}, InputError, "two alternatives of the same choice set, got the flat indices 0 and 4"),
        ({"third": 6}, InputError, "third: expected the flat index of an alternative, from 0 to 5, got 6"),
        ({"features": ("price", "comfort")}, SchemaError, "'comfort' is not a numeric feature"),
        ({"features": ("price", "minute")}, SchemaError, "Did you mean 'minutes'"),
        ({"features": ("price", "price")}, ConfigError, "two different features"),
        ({"cells": 1}, ConfigError, "cells must be a whole number of at least 2"),
        ({"quantiles": (0.1, 1.2)}, ConfigError, "quantiles must be a number of at least 0 and at most 1"),
        ({"quantiles": (0.9, 0.1)}, ConfigError, "two increasing numbers"),
    ],
)
def test_invalid_maps_are_rejected(
    change: dict[str, Any], error: type[Exception], message: str, trips: ChoiceData
) -> None:
    predicted: dict[str, Any] = {"a": 0, "b": 1, "third": 3, "features": ("price", "minutes"), **change}
    with pytest.raises(error, match=message):
        preference_map_in_set(Record(), trips, **predicted)
