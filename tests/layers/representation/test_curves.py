"""Curves: worked out by hand, sums to one, continuous, straight beyond the ends, and of help to a small network."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.layers.representation.curves import CURVES, Piecewise, Spline

KNOTS = (-1.0, 0.0, 0.5, 2.0)
KNOT_LISTS = st.lists(st.integers(-200, 200), min_size=2, max_size=10, unique=True).map(
    lambda found: [k / 50 for k in sorted(found)]
)


def test_a_number_fills_the_bins_below_it_and_a_share_of_its_own() -> None:
    """Bins of widths 1, .5 and 1.5: at .25 the first is full and the second half full; at the ends they go on."""
    found = Piecewise(KNOTS)(torch.tensor([0.25, -3.0, 5.0]))
    assert found.tolist() == [[1, 0.5, 0], [-2, 0, 0], [1, 1, 3]]


@given(knots=KNOT_LISTS, x=st.floats(-9, 9))
def test_bins_add_up_to_the_number_itself(knots: list[float], x: float) -> None:
    """x = x_0 + sum of width times share, also beyond the ends."""
    share = Piecewise(knots).double()(torch.tensor(x, dtype=torch.float64))
    total = knots[0] + float((share * torch.tensor(knots, dtype=torch.float64).diff()).sum())
    assert total == pytest.approx(x, rel=1e-5, abs=1e-5)  # the knots are float32


@given(knots=KNOT_LISTS, x=st.floats(-9, 9))
def test_splines_add_up_to_one_everywhere(knots: list[float], x: float) -> None:
    found = Spline(knots).double()(torch.tensor(x, dtype=torch.float64))
    assert len(found) == len(knots) + 2
    # Slopes of thousands cancel far outside narrow pieces, and the knots are float32.
    assert float(found.sum()) == pytest.approx(1, abs=1e-6 * (1 + float(found.abs().max())))


def test_splines_agree_with_those_of_scipy_between_the_ends() -> None:
    from scipy.interpolate import BSpline

    x = np.linspace(-1, 2, 61)
    t = np.r_[[KNOTS[0]] * 3, KNOTS, [KNOTS[-1]] * 3]
    expected = BSpline.design_matrix(x, t, 3).toarray()
    np.testing.assert_allclose(Spline(KNOTS).double()(torch.from_numpy(x)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", CURVES)
def test_curves_are_continuous_and_straight_beyond_the_ends(kind: str) -> None:
    curve = CURVES[kind](KNOTS).double()
    at = torch.tensor(KNOTS, dtype=torch.float64)
    torch.testing.assert_close(curve(at - 1e-9), curve(at + 1e-9), rtol=0, atol=1e-7)
    for far in (torch.tensor([-9.0, -6.0, -3.0]), torch.tensor([3.0, 6.0, 9.0])):
        low, middle, high = curve(far.double())
        torch.testing.assert_close(middle - low, high - middle, rtol=0, atol=1e-9)
        assert (middle - low).abs().max() > 1


@pytest.mark.parametrize("kind", CURVES)
def test_gradients_are_exact(kind: str) -> None:
    x = torch.tensor([-4.0, -0.7, 0.1, 0.9, 1.4, 7.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(CURVES[kind](KNOTS).double(), x)


@pytest.mark.parametrize("kind", CURVES)
def test_two_knots_make_a_curve(kind: str) -> None:
    found = CURVES[kind]((0.0, 1.0))(torch.tensor([[0.0], [1.0], [0.5]]))
    assert found.shape == (3, 1, CURVES[kind]((0.0, 1.0)).width)
    assert torch.isfinite(found).all()
