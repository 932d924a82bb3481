import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.errors import TrainingError
from pcmcnet.models.logits.design.box_cox_and_wtp_space import UtilityForm

PLAIN = UtilityForm(("time", "cost"))
WTP = UtilityForm(("time", "cost", "constant[car]", "known"), cost="cost", offset="known")
BOTH = UtilityForm(("boxcox(time)", "cost"), curves=("time",), cost="cost")


def test_parameters_are_named_after_what_they_mean() -> None:
    assert PLAIN.names == ("time", "cost")
    assert WTP.names == ("wtp[time]", "cost", "wtp[constant[car]]", "known")
    assert BOTH.names == ("wtp[boxcox(time)]", "cost", "lambda[time]")
    assert (PLAIN.is_linear, WTP.is_linear, BOTH.is_linear) == (True, False, False)
    assert BOTH.begin.tolist() == [0, 0, 1]


def test_coefficients_by_hand() -> None:
    """v = -2 (cost - 3 time - 5 car) + known = 6 time - 2 cost + 10 car + known."""
    assert PLAIN.coefficients(np.array([3.0, -2.0])).tolist() == [3, -2]
    assert WTP.coefficients(np.array([3.0, -2.0, 5.0, 1.0])).tolist() == [6, -2, 10, 1]
    assert BOTH.coefficients(np.array([3.0, -2.0, 0.5])).tolist() == [6, -2]


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=3), st.floats(-5, -0.1))
def test_parameters_undo_coefficients_and_the_chain_is_their_derivative(rest: list[float], cost: float) -> None:
    values = np.array([rest[0], cost, rest[1], 1.0])
    np.testing.assert_allclose(WTP.parameters(WTP.coefficients(values), np.zeros(0)), values, rtol=1e-12, atol=1e-12)
    numeric = np.empty((4, 4))
    for k, step in enumerate(1e-6 * np.eye(4)):
        numeric[:, k] = (WTP.coefficients(values + step) - WTP.coefficients(values - step)) / 2e-6
    np.testing.assert_allclose(WTP.chain(values), numeric, atol=1e-8)


def test_nothing_can_be_expressed_in_units_of_a_cost_without_effect() -> None:
    with pytest.raises(TrainingError, match="the coefficient of 'cost' is 0"):
        BOTH.parameters(np.array([1.0, 0.0]), np.ones(1))
