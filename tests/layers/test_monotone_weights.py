"""Weights of given signs make a rate rise or fall with an input, for every input."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.errors import ConfigError
from pcmcnet.layers import PairwiseRates, stationary_distribution
from pcmcnet.layers.monotone_weights import RISING_ACTIVATIONS, SignedLinear, unit_signs


def test_bounds_follow_from_the_signs_of_inputs_and_units() -> None:
    """Inputs that push up, are free, push down; units that rise, fall, know nothing of the first and the last."""
    layer = SignedLinear(torch.tensor([1.0, 0.0, -1.0]), torch.tensor([1.0, -1.0, 0.0]))
    inf = math.inf
    assert layer.low.tolist() == [[0, -inf, -inf], [-inf, -inf, 0], [0, -inf, 0]]
    assert layer.high.tolist() == [[inf, inf, 0], [0, inf, inf], [0, inf, 0]]


def test_a_projection_sets_wrong_signs_to_0_and_a_reflection_turns_them_round() -> None:
    layer = SignedLinear(torch.tensor([1.0, 0.0, -1.0]), torch.tensor([1.0, 0.0]))
    given = torch.tensor([[-2.0, -3.0, 4.0], [5.0, -6.0, 7.0]])
    with torch.no_grad():
        layer.weight.copy_(given)
        layer.project_()
        assert layer.weight.tolist() == [[0, -3, 0], [0, -6, 0]]
        layer.weight.copy_(given)
        layer.reflect_()
        assert layer.weight.tolist() == [[2, -3, -4], [0, -6, 0]]


def test_bounds_are_no_part_of_what_is_saved() -> None:
    signed, plain = SignedLinear(torch.ones(2), unit_signs(5)), torch.nn.Linear(2, 5)
    assert signed.state_dict().keys() == plain.state_dict().keys()


def test_a_quarter_of_the_units_rises_and_a_quarter_falls() -> None:
    assert unit_signs(6).tolist() == [1, -1, 0, 0, 1, -1]
    assert unit_signs(1).tolist() == [1]


@given(
    activation=st.sampled_from(RISING_ACTIVATIONS),
    hidden=st.sampled_from([(), (1,), (5,), (8, 6), (4, 4, 4)]),
    double=st.booleans(),
    step=st.floats(1e-3, 10),
    seed=st.integers(0, 2**16),
)
def test_rates_move_with_a_signed_input_for_any_weights(
    activation: str, hidden: tuple[int, ...], double: bool, step: float, seed: int
) -> None:
    """Entry 2 has sign -1: raised for one alternative, rates into it fall, rates out of it rise, and its share falls.

    The score is a sum of at most 8 products of float32, of relative precision 6e-8, and of size 1 to 100.
    """
    torch.manual_seed(seed)
    dtype, tolerance = (torch.float64, 1e-12) if double else (torch.float32, 1e-4)
    rates = PairwiseRates(2, 3, hidden, activation=activation, signs=torch.tensor([0.0, 0.0, -1.0]))  # type: ignore[arg-type]
    rates = rates.to(dtype)
    for module in rates.modules():
        if isinstance(module, SignedLinear):
            torch.nn.init.normal_(module.weight)
            module.project_()
    who, what, mask = torch.randn(4, 2, dtype=dtype), torch.randn(4, 5, 3, dtype=dtype), torch.ones(4, 5).bool()
    dearer = what.clone()
    dearer[:, 0, 2] += step
    with torch.no_grad():
        before, after = rates.scores(who, what), rates.scores(who, dearer)
        moved = after - before
        assert (moved[:, 1:, 0] <= tolerance).all()
        assert (moved[:, 0, 1:] >= -tolerance).all()
        torch.testing.assert_close(after[:, 1:, 1:], before[:, 1:, 1:])
        if double:
            scaled = [stationary_distribution(s.clamp(-30, 30).exp(), mask)[:, 0] for s in (before, after)]
            assert (scaled[1] <= scaled[0] * (1 + 1e-9)).all()


def test_a_signed_network_still_sees_the_input() -> None:
    torch.manual_seed(0)
    rates = PairwiseRates(0, 1, (8, 8), initialisation="paper", signs=torch.tensor([-1.0]))
    what = torch.tensor([[[0.0], [1.0]]])
    scores = rates.scores(torch.zeros(1, 0), what)[0]
    assert scores[1, 0] > scores[0, 1]  # to the cheap one sooner than to the dear one


@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_an_activation_that_falls_somewhere_is_refused(activation: str) -> None:
    with pytest.raises(ConfigError, match=f"activation that never falls.*got '{activation}'"):
        PairwiseRates(0, 1, activation=activation, signs=torch.ones(1))  # type: ignore[arg-type]
