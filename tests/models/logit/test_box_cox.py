import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.errors import TrainingError
from pcmcnet.models.logit.box_cox import UtilityForm, box_cox, box_cox_slope

X = np.array([0.25, 1.0, 4.0, 9.0])


def test_known_exponents_have_the_values_found_by_hand() -> None:
    """x - 1, log x, 2 (sqrt x - 1), (x^2 - 1) / 2 and 1 - 1 / x."""
    np.testing.assert_allclose(box_cox(X, 1.0), [-0.75, 0, 3, 8], rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(box_cox(X, 0.0), np.log(X), rtol=1e-15)
    np.testing.assert_allclose(box_cox(X, 0.5), [-1, 0, 2, 4], rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(box_cox(X, 2.0), [-15 / 32, 0, 7.5, 40], rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(box_cox(X, -1.0), [-3, 0, 0.75, 8 / 9], rtol=1e-14, atol=1e-15)


def test_the_slope_is_that_found_by_hand() -> None:
    """At l = 0 it is (log x)^2 / 2, at l = 1 x log x - x + 1."""
    np.testing.assert_allclose(box_cox_slope(X, 0.0), np.log(X) ** 2 / 2, rtol=1e-15)
    np.testing.assert_allclose(box_cox_slope(X, 1.0), X * np.log(X) - X + 1, rtol=1e-13, atol=1e-15)


@given(x=st.floats(1e-3, 1e3), exponent=st.floats(-3, 3))
def test_the_slope_agrees_with_central_differences(x: float, exponent: float) -> None:
    at, h = np.array([x]), 1e-5
    numeric = (box_cox(at, exponent + h) - box_cox(at, exponent - h)) / (2 * h)
    # Differences have a rounding error of 1e-16 / h of the value and a truncation error of h^2.
    bound = 1e-8 * (1 + np.abs(box_cox(at, exponent)).max() + np.abs(numeric).max()) * (1 + np.log(x) ** 2)
    np.testing.assert_allclose(box_cox_slope(at, exponent), numeric, rtol=0, atol=float(bound))


@pytest.mark.parametrize("exponent", [-1e-3, -1e-9, 1e-9, 1e-3])
def test_value_and_slope_are_continuous_at_the_logarithm(exponent: float) -> None:
    np.testing.assert_allclose(box_cox(X, exponent), np.log(X) + exponent * np.log(X) ** 2 / 2, rtol=1e-5, atol=1e-15)
    np.testing.assert_allclose(box_cox_slope(X, exponent), np.log(X) ** 2 / 2, rtol=2e-3, atol=1e-15)


def test_values_that_overflow_are_infinite_without_a_warning() -> None:
    assert box_cox(np.array([1e3]), 200.0)[0] == np.inf
    assert not np.isfinite(box_cox_slope(np.array([1e3]), 200.0)[0])


# -- Box-Cox and WTP space ---------------------------------------------------------------------------------------------


PLAIN = UtilityForm(("time", "cost"))
WTP = UtilityForm(("time", "cost", "constant[car]", "known"), cost="cost", offset="known")
BOTH = UtilityForm(("boxcox(time)", "cost"), curves=("lambda[time]",), cost="cost")


def test_parameters_are_named_after_their_meaning() -> None:
    assert PLAIN.names == ("time", "cost")
    assert WTP.names == ("wtp[time]", "cost", "wtp[constant[car]]", "known")
    assert BOTH.names == ("wtp[boxcox(time)]", "cost", "lambda[time]")
    assert (PLAIN.is_linear, WTP.is_linear, BOTH.is_linear) == (True, False, False)
    assert BOTH.null_values.tolist() == [0, 0, 1]


def test_coefficients_are_those_found_by_hand() -> None:
    """v = -2 (cost - 3 time - 5 car) + known = 6 time - 2 cost + 10 car + known."""
    assert PLAIN.coefficients(np.array([3.0, -2.0])).tolist() == [3, -2]
    assert WTP.coefficients(np.array([3.0, -2.0, 5.0, 1.0])).tolist() == [6, -2, 10, 1]
    assert BOTH.coefficients(np.array([3.0, -2.0, 0.5])).tolist() == [6, -2]


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=3), st.floats(-5, -0.1))
def test_parameters_invert_coefficients_and_the_jacobian_is_exact(rest: list[float], cost: float) -> None:
    values = np.array([rest[0], cost, rest[1], 1.0])
    np.testing.assert_allclose(WTP.parameters(WTP.coefficients(values), np.zeros(0)), values, rtol=1e-12, atol=1e-12)
    numeric = np.empty((4, 4))
    for k, step in enumerate(1e-6 * np.eye(4)):
        numeric[:, k] = (WTP.coefficients(values + step) - WTP.coefficients(values - step)) / 2e-6
    np.testing.assert_allclose(WTP.chain(values), numeric, atol=1e-8)


def test_wtp_space_refuses_a_cost_coefficient_of_0() -> None:
    with pytest.raises(TrainingError, match="the coefficient of 'cost' is 0"):
        BOTH.parameters(np.array([1.0, 0.0]), np.ones(1))
