import math

import pytest
import torch

from pcmcnet.layers.likelihood import choice_nll, log_probabilities, mean_nll
from pcmcnet.layers.stationary import stationary_distribution

MASK = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]], dtype=torch.bool)


def test_log_probabilities_are_logs_and_padding_is_minus_infinity() -> None:
    p = torch.tensor([[0.25, 0.75, 0], [1, 0, 0], [0.5, 0.25, 0.25]])
    expected = [[-math.log(4), math.log(0.75), -math.inf], [0, -math.inf, -math.inf], [*map(math.log, p[2].tolist())]]
    torch.testing.assert_close(log_probabilities(p, MASK), torch.tensor(expected), rtol=2e-7, atol=0)


def test_loss_is_minus_the_log_probability_of_each_choice() -> None:
    log_p = torch.tensor([[0.25, 0.75, 0], [1, 0, 0], [0.5, 0.25, 0.25]]).log()
    nll = choice_nll(log_p, torch.tensor([1, 0, 2]))
    torch.testing.assert_close(nll, torch.tensor([-math.log(0.75), 0, math.log(4)]), rtol=2e-7, atol=0)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("sets", [3, 3_000])
def test_the_mean_loss_and_its_gradient_are_weighted(sets: int, device: str) -> None:
    """Choices 1, 0 and 2 with probabilities .75, 1 and .25 and weights 1, 2 and 3, repeated to fill the sets."""
    p = torch.tensor([[0.25, 0.75, 0], [1, 0, 0], [0.5, 0.25, 0.25]], device=device).repeat(sets // 3, 1)
    log_p = p.log().requires_grad_()
    chosen, weight = (torch.tensor(x, device=device).repeat(sets // 3) for x in ([1, 0, 2], [1.0, 2.0, 3.0]))
    mean, loss, total = mean_nll(log_p, chosen, weight)
    (grad,) = torch.autograd.grad(6 * mean, log_p)
    assert mean.item() == pytest.approx((3 * math.log(4) - math.log(0.75)) / 6)
    assert (loss.item(), total.item()) == pytest.approx((mean.item() * 2 * sets, 2 * sets))
    assert not loss.requires_grad
    torch.testing.assert_close(grad[:3].cpu() * sets / 3, torch.tensor([[0.0, -1, 0], [-2, 0, 0], [0, 0, -3]]))


def test_the_gradient_is_minus_one_over_p_of_the_choice() -> None:
    p = torch.tensor([[0.25, 0.75, 0], [1, 0, 0], [0.5, 0.25, 0.25]], requires_grad=True)
    (grad,) = torch.autograd.grad(choice_nll(log_probabilities(p, MASK), torch.tensor([0, 0, 2])).sum(), p)
    assert grad.tolist() == [[-4, 0, 0], [-1, 0, 0], [0, 0, -4]]


@pytest.mark.parametrize("at_padding", [0.0, 0.3, math.nan])
def test_padding_does_not_affect_loss_or_gradient(at_padding: float) -> None:
    p = torch.tensor([[0.25, 0.75, at_padding]], requires_grad=True)
    log_p = log_probabilities(p, MASK[:1])
    (grad,) = torch.autograd.grad(log_p[:, :2].sum(), p)
    assert log_p[0, 2] == -math.inf
    torch.testing.assert_close(grad, torch.tensor([[4, 4 / 3, 0]]), rtol=1e-7, atol=0)


def test_an_unchosen_zero_probability_gives_no_nan_gradient() -> None:
    """State 0 is transient. A plain log(0) would give the gradient 0 / 0, and NaN for the whole set."""
    rates = torch.tensor([[[0.0, 1, 1], [0, 0, 2], [0, 1, 0]]], requires_grad=True)
    everything = torch.ones(1, 3, dtype=torch.bool)
    log_p = log_probabilities(stationary_distribution(rates), everything)
    (grad,) = torch.autograd.grad(choice_nll(log_p, torch.tensor([1])), rates)
    assert log_p[0, 0] == -math.inf
    assert torch.isfinite(grad).all()
    assert grad[0, 1, 2] > 0  # p_1 = q_21 / (q_12 + q_21) falls with q_12
    assert choice_nll(log_p, torch.tensor([0])).item() == math.inf


def test_a_nan_probability_is_not_hidden() -> None:
    log_p = log_probabilities(torch.tensor([[math.nan, 0.5, 0.0]]), MASK[:1])
    assert math.isnan(log_p[0, 0])


def test_a_padded_batch_has_a_finite_gradient_through_the_chain() -> None:
    rates = torch.exp(torch.randn(3, 3, 3, generator=torch.Generator().manual_seed(0))).requires_grad_()
    log_p = log_probabilities(stationary_distribution(rates, MASK), MASK)
    (grad,) = torch.autograd.grad(choice_nll(log_p, torch.tensor([0, 0, 2])).sum(), rates)
    assert torch.isfinite(grad).all()
    assert (grad[0, :2, :2].fill_diagonal_(1) != 0).all()
    assert (grad[0, 2] == 0).all()
    assert (grad[1] == 0).all()
