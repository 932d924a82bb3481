"""Kernels before and after the elimination do what the formulas do, which a CPU is given."""

import math

import pytest
import torch
from torch import Tensor

from pcmcnet.layers.likelihood import log_probabilities
from pcmcnet.layers.pairwise import RateForm, rates_of_scores

pytestmark = pytest.mark.gpu


def real(sets: int, n: int) -> Tensor:
    sizes = torch.randint(1, n + 1, (sets, 1), generator=torch.Generator().manual_seed(n))
    return torch.arange(n) < sizes


def both(scores: Tensor, mask: Tensor, by: Tensor, rate: RateForm, epsilon: float) -> list[tuple[Tensor, Tensor]]:
    """Rates and gradients, on the CPU and on the GPU; 0 where there is no pair."""
    pairs = mask.unsqueeze(2) & mask.unsqueeze(1) & ~torch.eye(mask.shape[1], dtype=torch.bool)
    found = []
    for device in ("cpu", "cuda"):
        given = scores.to(device).detach().requires_grad_()
        rates = rates_of_scores(given, mask.to(device), rate=rate, epsilon=epsilon)
        rates.backward((by * pairs).to(device))  # type: ignore[no-untyped-call]
        assert given.grad is not None
        found.append((rates.detach().cpu() * pairs, given.grad.cpu() * pairs))
    return found


@pytest.mark.parametrize("n", [1, 2, 7, 33, 50, 129, 513])
@pytest.mark.parametrize(("rate", "epsilon"), [("exp", 0.0), ("exp", 0.01), ("relu", 0.5), ("softplus", 0.0)])
@pytest.mark.parametrize(("scale", "shift"), [(1, 0), (50, 0), (3, -200), (1, 300)])
def test_rates_are_those_of_the_formula(n: int, rate: RateForm, epsilon: float, scale: float, shift: float) -> None:
    torch.manual_seed(0)
    scores, by = torch.randn(5, n, n) * scale + shift, torch.randn(5, n, n)
    (plain, d_plain), (fused, d_fused) = both(scores, real(5, n), by, rate, epsilon)
    torch.testing.assert_close(fused, plain, rtol=2e-5, atol=1e-18)
    torch.testing.assert_close(d_fused, d_plain, rtol=1e-4, atol=1e-18)


@pytest.mark.parametrize("rate", ["exp", "relu"])
def test_a_score_that_is_no_number_stays_in_its_set(rate: RateForm) -> None:
    scores = torch.randn(2, 5, 5)
    scores[0, 1, 2] = math.nan
    rates = rates_of_scores(scores.cuda(), torch.ones(2, 5, dtype=torch.bool).cuda(), rate=rate, epsilon=0.5)
    assert bool(rates[0].isnan().any())
    assert not bool(rates[1].isnan().any())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logs_have_no_gradient_at_padding_and_at_0(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    p, by, mask = torch.rand(40, 33, dtype=dtype), torch.randn(40, 33, dtype=dtype), real(40, 33)
    p[0, 0] = 0.0
    found = []
    for device in ("cpu", "cuda"):
        given = p.to(device).detach().requires_grad_()
        logs = log_probabilities(given, mask.to(device))
        logs.backward(by.to(device))  # type: ignore[no-untyped-call]
        assert given.grad is not None
        found.append((logs.detach().cpu(), given.grad.cpu()))
    for plain, fused in zip(*found, strict=True):
        torch.testing.assert_close(fused, plain)
    assert found[1][0][0, 0] == -math.inf
    assert found[1][1][0, 0] == 0
