"""The distribution of rates exp f and its gradients are accurate, however far apart the rates are."""

import math

import pytest
import torch
from torch import Tensor

from pcmcnet.layers import log_probabilities, solve_chain
from pcmcnet.layers.pairwise import rates_of_scores
from pcmcnet.layers.stationary.log_distribution import log_stationary_distribution

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
FAR_APART_LOG_RATES = torch.tensor(
    [[0.0, -310.0, -300.0], [270.0, 0.0, 250.0], [5.0, -8.0, 0.0]]
)  # rates of different rows are far apart, within a row they are not


def by_trees(f: Tensor) -> Tensor:
    """Return log p of three states by the tree theorem: (3, 3) -> (3,)."""
    logs = []
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        logs.append(torch.stack([f[j, i] + f[k, i], f[j, k] + f[k, i], f[k, j] + f[j, i]]).logsumexp(0))
    return torch.stack(logs).log_softmax(0)


def some(sets: int, n: int, spread: float = 3.0, device: str = "cpu") -> tuple[Tensor, Tensor]:
    torch.manual_seed(n)
    sizes = torch.randint(1, n + 1, (sets,))
    sizes[0] = n
    scores = spread * torch.randn(sets, n, n)
    return scores.to(device), (torch.arange(n) < sizes.unsqueeze(1)).to(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("chosen", range(3))
def test_rates_of_states_may_differ_by_any_factor(chosen: int, device: str) -> None:
    scores = FAR_APART_LOG_RATES.to(device).unsqueeze(0).requires_grad_()
    exact = FAR_APART_LOG_RATES.double().requires_grad_()
    actual, expected = (
        log_stationary_distribution(scores, torch.ones(1, 3, dtype=torch.bool, device=device)),
        by_trees(exact),
    )
    torch.testing.assert_close(actual.squeeze(0).cpu().double(), expected, rtol=1e-6, atol=1e-5)
    actual[0, chosen].backward()
    expected[chosen].backward()
    torch.testing.assert_close(scores.grad.squeeze(0).cpu().double(), exact.grad, rtol=1e-4, atol=1e-6)
    assert exact.grad.abs().sum() > 0.5 or chosen == 0  # state 0 is practically certain


def test_rates_scaled_by_set_lose_these_gradients() -> None:
    """This motivates log rates: a network with such rates would get no gradient."""
    scores, mask = FAR_APART_LOG_RATES.unsqueeze(0).requires_grad_(), torch.ones(1, 3, dtype=torch.bool)
    rates = rates_of_scores(scores, mask, rate="exp", epsilon=0.0)
    log_probabilities(solve_chain(rates, mask), mask)[0, 2].backward()
    assert scores.grad[0, 2].abs().max() < 1e-6


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [1, 2, 7, 33, 130])
def test_it_equals_the_distribution_of_the_rates(n: int, device: str) -> None:
    scores, mask = some(9, n, device=device)
    distributions, gradients = [], []
    for solve in (
        log_stationary_distribution,
        lambda f, real: log_probabilities(solve_chain(rates_of_scores(f, real, rate="exp", epsilon=0.0), real), real),
    ):
        leaf = scores.clone().requires_grad_()
        distributions.append(solve(leaf, mask))
        torch.where(mask, distributions[-1], 0.0).square().sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(distributions[0], distributions[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-3)
    assert (distributions[0][~mask] == -math.inf).all()
    assert not gradients[0][~mask].any()


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 3, 50, 300])
@pytest.mark.parametrize("spread", [1.0, 60.0])
def test_kernels_match_the_operators(n: int, spread: float) -> None:
    scores, mask = some(40, n, spread)
    results = []
    for device in ("cpu", "cuda"):
        leaf = scores.to(device, copy=True).requires_grad_()
        logs = log_stationary_distribution(leaf, mask.to(device))
        torch.where(mask.to(device), logs, 0.0).sum().backward()
        results.append((logs.detach().cpu(), leaf.grad.cpu()))
    torch.testing.assert_close(*(logs for logs, _ in results), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(*(gradient for _, gradient in results), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("device", DEVICES)
def test_second_derivatives_match_those_of_the_rates(device: str) -> None:
    torch.manual_seed(0)
    f, mask = torch.randn(1, 3, 3), torch.ones(1, 3, dtype=torch.bool, device=device)
    by_network = torch.autograd.functional.hessian(
        lambda x: log_stationary_distribution(x, mask)[0, 1], f.to(device)
    ).view(9, 9)
    exact = torch.autograd.functional.hessian(lambda x: by_trees(x)[1], f[0].double()).view(9, 9)
    torch.testing.assert_close(by_network.cpu().double(), exact, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_and_infinity_are_propagated(bad: float, device: str) -> None:
    scores, mask = some(2, 4, device=device)
    scores[0, 1, 2] = bad
    actual = log_stationary_distribution(scores, mask)
    if math.isnan(bad):
        assert actual[0].isnan().all()
    assert not actual[1].isnan().any()
