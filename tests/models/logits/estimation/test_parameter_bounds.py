from typing import Any

import numpy as np
import pytest

from pcmcnet.errors import ConfigError
from pcmcnet.models.logits.estimation.parameter_bounds import Parameters, checked_control

NAMES = ("price", "time", "wait")


def parameters(**options: Any) -> Parameters:
    return Parameters.of(NAMES, **{"fixed": {}, "bounds": {}, "start": {}, **options})


def test_names_find_their_places_and_the_others_begin_within_their_bounds() -> None:
    found = parameters(fixed={"time": -1.0}, bounds={"price": (None, -2.0)}, start={"wait": 0.5})
    np.testing.assert_array_equal(found.start, [-2, -1, 0.5])
    np.testing.assert_array_equal(found.low, [-np.inf, -1, -np.inf])
    np.testing.assert_array_equal(found.high, [-2, -1, np.inf])
    np.testing.assert_array_equal(found.fixed, [False, True, False])
    begun = parameters(fixed={"time": -1.0}, start={"wait": 0.5}, begin=np.array([7.0, 8.0, 9.0]))
    np.testing.assert_array_equal(begun.start, [7, -1, 0.5])


def test_only_without_fixed_and_bounded_ones_anything_is_allowed() -> None:
    assert parameters(start={"price": 3.0}).anywhere
    assert parameters(bounds={"price": (None, None)}).anywhere
    assert not parameters(fixed={"price": 3.0}).anywhere
    assert not parameters(bounds={"price": (0.0, None)}).anywhere


def test_values_are_moved_inside_and_told_where_they_end() -> None:
    found = parameters(fixed={"time": -1.0}, bounds={"price": (None, 0.0), "wait": (0.1, 0.3)})
    inside = found.inside(np.array([[1.0, 5.0, -4.0], [-1e-14, -1.0, 0.2]]))
    np.testing.assert_array_equal(inside, [[0.0, -1.0, 0.1], [0.0, -1.0, 0.2]])
    np.testing.assert_array_equal(found.at_bound(inside[0]), [True, False, True])
    np.testing.assert_array_equal(found.at_bound(inside[1]), [True, False, False])
    low, high = found.room(np.array([-3.0, -1.0, 0.2]), np.array([1.0, 1.0, 0.1]))
    np.testing.assert_allclose(low, [-np.inf, 0, -1], atol=1e-12)
    np.testing.assert_allclose(high, [3, 0, 1], atol=1e-12)


@pytest.mark.parametrize("option", ["fixed", "start", "bounds"])
def test_an_unknown_name_is_told_the_nearest_one(option: str) -> None:
    value: Any = (None, 0.0) if option == "bounds" else 1.0
    with pytest.raises(ConfigError, match=rf"{option} names 'prise', which is no coefficient .* mean 'price'\?"):
        parameters(**{option: {"prise": value}})


def test_options_come_back_plain() -> None:
    """A list from JSON is a pair, an infinite bound is none, a whole number is a number."""
    found = checked_control({"price": -1}, {"time": [-np.inf, 0], "wait": (None, None)}, {"time": -2})  # type: ignore[dict-item]
    assert found == ({"price": -1.0}, {"time": (None, 0.0), "wait": (None, None)}, {"time": -2.0})
    assert checked_control({}, None, {}) == ({}, None, {})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (({"x": "1"}, {}, {}), r"fixed\['x'\] must be a number, got '1'"),
        (({"x": np.nan}, {}, {}), r"fixed\['x'\] must be a number, got nan"),
        (({}, {}, {"x": np.inf}), r"start\['x'\] must be a number, got inf"),
        ((3, {}, {}), "fixed must map names of coefficients to values, got 3"),
        (({}, {1: (0, 1)}, {}), r"bounds must map names of coefficients to values, got \{1: \(0, 1\)\}"),
        (({}, {"x": 0}, {}), r"bounds\['x'\] must be a pair such as \(None, 0\), got 0"),
        (({}, {"x": (np.inf, None)}, {}), r"bounds\['x'\] must be a number, got inf"),
        (({}, {"x": (1, 0)}, {}), r"bounds\['x'\] must have the lower bound first, got \(1, 0\): swap them"),
        (({}, {"x": (2, 2)}, {}), r"got \(2, 2\): fixed=\{'x': 2\} holds a coefficient"),
        (({"x": 1}, {"x": (None, 0)}, {}), r"fixed\['x'\] = 1 is outside its bounds, -inf to 0"),
        (({}, {"x": (0, 2)}, {"x": -1}), r"start\['x'\] = -1 is outside its bounds, 0 to 2"),
        (({"x": 1}, {}, {"x": 1}), "'x' is fixed, so that it has no start"),
    ],
)
def test_options_that_contradict_themselves_are_refused(options: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        checked_control(*options)
