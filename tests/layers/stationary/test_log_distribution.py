"""The law of rates exp f is right to the last digits, and so are its gradients, however far apart the rates are."""

import math

import pytest
import torch
from torch import Tensor

from pcmcnet.layers import log_probabilities, solve_chain
from pcmcnet.layers.pairwise import rates_of_scores
from pcmcnet.layers.stationary.log_distribution import log_stationary_distribution

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
APART = torch.tensor([[0.0, -310.0, -300.0], [270.0, 0.0, 250.0], [5.0, -8.0, 0.0]])  # rows, not those within a row


def by_trees(f: Tensor) -> Tensor:
    """Log-law of three states, by the trees that lead to each: (3, 3) -> (3,)."""
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
def test_rates_of_states_may_be_any_factor_apart(chosen: int, device: str) -> None:
    scores = APART.to(device).unsqueeze(0).requires_grad_()
    exact = APART.double().requires_grad_()
    found, expected = (
        log_stationary_distribution(scores, torch.ones(1, 3, dtype=torch.bool, device=device)),
        by_trees(exact),
    )
    torch.testing.assert_close(found.squeeze(0).cpu().double(), expected, rtol=1e-6, atol=1e-5)
    found[0, chosen].backward()
    expected[chosen].backward()
    torch.testing.assert_close(scores.grad.squeeze(0).cpu().double(), exact.grad, rtol=1e-4, atol=1e-6)
    assert exact.grad.abs().sum() > 0.5 or chosen == 0  # which is as good as certain


def test_in_units_of_the_whole_set_such_gradients_are_lost() -> None:
    """What the other way is for: a network that came there would stay."""
    scores, mask = APART.unsqueeze(0).requires_grad_(), torch.ones(1, 3, dtype=torch.bool)
    rates = rates_of_scores(scores, mask, rate="exp", epsilon=0.0)
    log_probabilities(solve_chain(rates, mask), mask)[0, 2].backward()
    assert scores.grad[0, 2].abs().max() < 1e-6


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [1, 2, 7, 33, 130])
def test_it_is_the_law_of_the_rates(n: int, device: str) -> None:
    scores, mask = some(9, n, device=device)
    laws, gradients = [], []
    for law in (
        log_stationary_distribution,
        lambda f, real: log_probabilities(solve_chain(rates_of_scores(f, real, rate="exp", epsilon=0.0), real), real),
    ):
        given = scores.clone().requires_grad_()
        laws.append(law(given, mask))
        torch.where(mask, laws[-1], 0.0).square().sum().backward()
        gradients.append(given.grad)
    torch.testing.assert_close(laws[0], laws[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-3)
    assert (laws[0][~mask] == -math.inf).all()
    assert not gradients[0][~mask].any()


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 3, 50, 300])
@pytest.mark.parametrize("spread", [1.0, 60.0])
def test_kernels_compute_as_operators_do(n: int, spread: float) -> None:
    scores, mask = some(40, n, spread)
    found = []
    for device in ("cpu", "cuda"):
        given = scores.to(device, copy=True).requires_grad_()
        logs = log_stationary_distribution(given, mask.to(device))
        torch.where(mask.to(device), logs, 0.0).sum().backward()
        found.append((logs.detach().cpu(), given.grad.cpu()))
    torch.testing.assert_close(*(logs for logs, _ in found), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(*(gradient for _, gradient in found), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("device", DEVICES)
def test_second_derivatives_are_those_of_the_law(device: str) -> None:
    torch.manual_seed(0)
    f, mask = torch.randn(1, 3, 3), torch.ones(1, 3, dtype=torch.bool, device=device)
    by_network = torch.autograd.functional.hessian(
        lambda x: log_stationary_distribution(x, mask)[0, 1], f.to(device)
    ).view(9, 9)
    exact = torch.autograd.functional.hessian(lambda x: by_trees(x)[1], f[0].double()).view(9, 9)
    torch.testing.assert_close(by_network.cpu().double(), exact, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_no_number_stays_none(bad: float, device: str) -> None:
    scores, mask = some(2, 4, device=device)
    scores[0, 1, 2] = bad
    found = log_stationary_distribution(scores, mask)
    if math.isnan(bad):
        assert found[0].isnan().all()
    assert not found[1].isnan().any()
