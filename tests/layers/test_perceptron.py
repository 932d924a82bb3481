from typing import get_args

import pytest
import torch

from pcmcnet.layers.perceptron import ACTIVATIONS, Activation, Dropout, Perceptron, random_mask


def test_the_layers_match_the_formula() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Perceptron(3, (4, 2), activation="tanh", start="spread").double()
    x = torch.rand(5, 3, generator=torch.Generator().manual_seed(1)).double()
    first, last = net.layers
    expected = torch.tanh(x @ first.weight.T + first.bias) @ last.weight.T + last.bias  # type: ignore[operator]
    torch.testing.assert_close(net(x), expected, rtol=1e-14, atol=1e-14)
    assert net(x).abs().min() > 0


def test_the_initial_output_is_zero_with_a_gradient() -> None:
    net = Perceptron(3, (4, 1))
    out = net(torch.ones(5, 3))
    assert (out == 0).all()
    out.sum().backward()
    grad = net.layers[-1].weight.grad
    assert grad is not None
    assert grad.any()  # type: ignore[operator]


def test_dropout_acts_only_in_training() -> None:
    net = Perceptron(3, (64, 1), dropout=0.5, start="spread")
    x = torch.ones(1, 3)
    assert not torch.equal(net(x), net(x))
    net.eval()
    assert torch.equal(net(x), net(x))


# -- Activations -------------------------------------------------------------------------------------------------------
# Every derivative equals that of autograd, computed from the result or from the input.


def test_every_activation_has_a_rule() -> None:
    assert set(ACTIVATIONS) == set(get_args(Activation))


@pytest.mark.parametrize("activation", get_args(Activation))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_derivative_matches_autograd(activation: Activation, dtype: torch.dtype) -> None:
    rule, x = ACTIVATIONS[activation], torch.linspace(-3, 3, 61).to(dtype)  # includes 0
    g = torch.cos(x)
    leaf = x.clone().requires_grad_()
    y = getattr(torch.nn.functional, activation)(leaf)
    (expected,) = torch.autograd.grad(y, leaf, g)
    input_copy = x.clone()
    result = rule.apply(input_copy)
    assert torch.equal(result, y)
    assert (result is input_copy) != rule.needs_input  # overwritten if the result is enough
    gradient = g.clone()
    assert rule.pull_back_(gradient, input_copy) is gradient
    assert torch.equal(gradient, expected)


# -- Dropout -----------------------------------------------------------------------------------------------------------
# Dropout drops the given share, keeps the mean, and acts only in training.


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(100_003,), (7, 3, 5_000)])
def test_a_share_of_entries_is_dropped_and_the_others_are_scaled(p: float, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    out = Dropout(p)(torch.ones(shape))
    dropped = (out == 0).double().mean().item()
    spread = (p * (1 - p) / out.numel()) ** 0.5
    assert abs(dropped - p) < 4 * spread  # four standard errors of a share; the seed is fixed
    torch.testing.assert_close(out[out != 0], torch.full_like(out[out != 0], 1 / (1 - p)))


@pytest.mark.parametrize(("p", "bits", "dropped"), [(0.5, 8, 128), (3 / 256, 8, 3), (0.3, 16, 19_661)])
def test_exactly_the_lowest_random_numbers_are_dropped(p: float, bits: int, dropped: int) -> None:
    """0.3 of 65,536 is 19,660.8. One number more or less would not show in a sampled share."""
    kind = {8: torch.int8, 16: torch.int16}[bits]
    drawn = torch.empty(2**16, dtype=torch.int64).random_(-(2**63), None, generator=torch.Generator().manual_seed(0))
    numbers = drawn.view(kind).int() + 2 ** (bits - 1)  # 0 to 2^bits - 1
    edge = (numbers == dropped) | (numbers == dropped - 1)
    assert edge.any()
    mask = random_mask(numbers.shape, p, torch.Generator().manual_seed(0))
    assert torch.equal(mask == 0, numbers < dropped)


@pytest.mark.parametrize(("p", "share"), [(0.5, 8), (0.3, 4)])
def test_entries_that_share_a_random_number_are_independent(p: float, share: int) -> None:
    """Entries share * k and share * k + m use one random number; their correlation is about 1 / sqrt(n)."""
    torch.manual_seed(1)
    groups = Dropout(p)(torch.ones(400_000)).view(-1, share).double()
    correlation = torch.corrcoef(groups.T) - torch.eye(share, dtype=torch.float64)
    assert correlation.abs().max() < 4 / len(groups) ** 0.5


def test_the_gradient_passes_only_through_kept_entries() -> None:
    torch.manual_seed(2)
    x = torch.randn(1_000, requires_grad=True)
    out = Dropout(0.3)(x)
    out.sum().backward()
    torch.testing.assert_close(x.grad, out.detach() / x.detach())


def test_nothing_is_dropped_outside_training_or_with_share_0() -> None:
    x = torch.randn(10)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_the_mask_depends_on_the_seed() -> None:
    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return Dropout(0.5)(torch.ones(100))

    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(4))


def test_a_separate_generator_does_not_change_the_global_one() -> None:
    before = torch.get_rng_state()
    masks = [random_mask((3, 7), 0.5, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
    assert masks[0].dtype == torch.int8
    assert set(masks[0].unique().tolist()) == {0, 1}
