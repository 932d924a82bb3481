from typing import Any

import numpy as np
import pytest

from pcmcnet.errors import ConfigError, InputError
from pcmcnet.models.logit.parameter_bounds import Parameters, checked_control, require_identified

NAMES = ("price", "time", "wait")


def parameters(**options: Any) -> Parameters:
    return Parameters.of(NAMES, **{"fixed": {}, "bounds": {}, "start": {}, **options})


def test_parameters_are_matched_by_name_and_start_within_bounds() -> None:
    result = parameters(fixed={"time": -1.0}, bounds={"price": (None, -2.0)}, start={"wait": 0.5})
    np.testing.assert_array_equal(result.start, [-2, -1, 0.5])
    np.testing.assert_array_equal(result.low, [-np.inf, -1, -np.inf])
    np.testing.assert_array_equal(result.high, [-2, -1, np.inf])
    np.testing.assert_array_equal(result.fixed, [False, True, False])
    begun = parameters(fixed={"time": -1.0}, start={"wait": 0.5}, begin=np.array([7.0, 8.0, 9.0]))
    np.testing.assert_array_equal(begun.start, [7, -1, 0.5])


def test_parameters_are_free_only_without_fixed_and_bounded_ones() -> None:
    assert parameters(start={"price": 3.0}).is_unconstrained
    assert parameters(bounds={"price": (None, None)}).is_unconstrained
    assert not parameters(fixed={"price": 3.0}).is_unconstrained
    assert not parameters(bounds={"price": (0.0, None)}).is_unconstrained


def test_values_are_clipped_and_those_at_bounds_are_named() -> None:
    result = parameters(fixed={"time": -1.0}, bounds={"price": (None, 0.0), "wait": (0.1, 0.3)})
    inside = result.clip(np.array([[1.0, 5.0, -4.0], [-1e-14, -1.0, 0.2]]))
    np.testing.assert_array_equal(inside, [[0.0, -1.0, 0.1], [0.0, -1.0, 0.2]])
    np.testing.assert_array_equal(result.at_bound(inside[0]), [True, False, True])
    np.testing.assert_array_equal(result.at_bound(inside[1]), [True, False, False])
    low, high = result.step_limits(np.array([-3.0, -1.0, 0.2]), np.array([1.0, 1.0, 0.1]))
    np.testing.assert_allclose(low, [-np.inf, 0, -1], atol=1e-12)
    np.testing.assert_allclose(high, [3, 0, 1], atol=1e-12)


def test_parameters_are_blocked_by_the_bounds_that_the_gradient_points_to() -> None:
    """Fixed parameters are always blocked, and no parameter is blocked between bounds, or if its gradient is 0."""
    result = parameters(fixed={"time": -1.0}, bounds={"price": (None, 0.0), "wait": (0.1, 0.3)})
    at = {"time": -1.0, "price": 0.0, "wait": 0.1}
    x = np.array([at.get(name, 0.0) for name in result.names])
    signs = {"up": np.ones(len(x)), "down": -np.ones(len(x)), "flat": np.zeros(len(x))}
    blocked = {
        name: [label for label, is_blocked in zip(result.names, result.blocked(x, g), strict=True) if is_blocked]
        for name, g in signs.items()
    }
    assert set(blocked["up"]) == {"time", "price"}
    assert set(blocked["down"]) == {"time", "wait"}
    assert blocked["flat"] == ["time"]


@pytest.mark.parametrize("option", ["fixed", "start", "bounds"])
def test_an_unknown_name_is_refused_with_a_suggestion(option: str) -> None:
    value: Any = (None, 0.0) if option == "bounds" else 1.0
    with pytest.raises(ConfigError, match=rf"{option}: 'prise' is not a coefficient .* mean 'price'\?"):
        parameters(**{option: {"prise": value}})


def test_options_are_normalised() -> None:
    """Lists from JSON become pairs, infinite bounds become None, and whole numbers become floats."""
    result = checked_control({"price": -1}, {"time": [-np.inf, 0], "wait": (None, None)}, {"time": -2})  # type: ignore[dict-item]
    assert result == ({"price": -1.0}, {"time": (None, 0.0), "wait": (None, None)}, {"time": -2.0})
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
        (({}, {"x": (2, 2)}, {}), r"got \(2, 2\): use fixed=\{'x': 2\}"),
        (({"x": 1}, {"x": (None, 0)}, {}), r"fixed\['x'\] = 1 is outside its bounds, -inf to 0"),
        (({}, {"x": (0, 2)}, {"x": -1}), r"start\['x'\] = -1 is outside its bounds, 0 to 2"),
        (({"x": 1}, {}, {"x": 1}), "'x' is in both fixed and start"),
    ],
)
def test_inconsistent_options_are_refused(options: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        checked_control(*options)


# -- Identification ----------------------------------------------------------------------------------------------------


RNG = np.random.default_rng(0)
Z = RNG.normal(size=(200, 3))


def test_independent_columns_of_any_scale_are_accepted() -> None:
    require_identified(Z, "abc")
    require_identified(Z * [1e-6, 1, 1e6], "abc")
    near = Z.copy()
    near[:, 2] = near[:, 0] + 1e-3 * near[:, 1]
    near[:, 1] = RNG.normal(size=200)
    require_identified(near, "abc")


def test_columns_that_are_constant_within_sets_are_named() -> None:
    z = np.column_stack([Z[:, 0], np.zeros(200), Z[:, 1], np.zeros(200)])
    problem = "'b' does not vary within any choice set, .* 2 such columns: 'b', 'd'. Leave them"
    with pytest.raises(InputError, match=problem):
        require_identified(z, "abcd")
    with pytest.raises(InputError, match=r"1 such column: 'b'. Leave it out"):
        require_identified(z[:, :3], "abc")


def test_duplicate_columns_are_named() -> None:
    with pytest.raises(InputError, match=r"'d' is a linear combination of 'b', so .*; 1 such column: 'd'. Leave out"):
        require_identified(np.column_stack([Z, -7 * Z[:, 1]]), "abcd")


def test_a_collinear_combination_is_named_with_its_columns() -> None:
    z = np.column_stack([Z, Z[:, 0] + 2 * Z[:, 2]])
    with pytest.raises(InputError, match="'d' is a linear combination of 'a', 'c', so"):
        require_identified(z, "abcd")
    with pytest.raises(InputError, match="'d' is a linear combination of 'a', 'c', so"):
        require_identified(z * [1e-6, 1, 1e6, 1e3], "abcd")


@pytest.mark.parametrize("offset", [0, 10_000])
def test_a_combination_of_rounded_numbers_is_detected(offset: float) -> None:
    """Columns hold float32 numbers: 300 rounds by up to 1.5e-5, 10,000 by 5e-4."""
    parts = (offset + RNG.uniform(50, 500, size=(400, 2))).astype(np.float32)
    total = (parts.sum(1)).astype(np.float32)
    x = np.column_stack([parts, total]).astype(np.float64)
    with pytest.raises(InputError, match="'total' is a linear combination of 'fare', 'tax'"):
        require_identified(x[::2] - x[1::2], ("fare", "tax", "total"))


def test_long_lists_of_names_are_counted() -> None:
    z = np.zeros((5, 12))
    with pytest.raises(InputError, match=r"12 such columns: 'a', 'b', .*'h' and 4 more"):
        require_identified(z, "abcdefghijkl")
