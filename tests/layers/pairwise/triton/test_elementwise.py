"""Kernels before and after the elimination match the formulas on a CPU."""

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
    """Return rates and gradients on the CPU and on the GPU; 0 for entries that are no pair."""
    pairs = mask.unsqueeze(2) & mask.unsqueeze(1) & ~torch.eye(mask.shape[1], dtype=torch.bool)
    results = []
    for device in ("cpu", "cuda"):
        leaf = scores.to(device).detach().requires_grad_()
        rates = rates_of_scores(leaf, mask.to(device), rate=rate, epsilon=epsilon)
        rates.backward((by * pairs).to(device))  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        results.append((rates.detach().cpu() * pairs, leaf.grad.cpu() * pairs))
    return results


@pytest.mark.parametrize("n", [1, 2, 7, 33, 50, 129, 513])
@pytest.mark.parametrize(("rate", "epsilon"), [("exp", 0.0), ("exp", 0.01), ("relu", 0.5), ("softplus", 0.0)])
@pytest.mark.parametrize(("scale", "shift"), [(1, 0), (50, 0), (3, -200), (1, 300)])
def test_rates_match_the_formula(n: int, rate: RateForm, epsilon: float, scale: float, shift: float) -> None:
    torch.manual_seed(0)
    scores, by = torch.randn(5, n, n) * scale + shift, torch.randn(5, n, n)
    (plain, d_plain), (fused, d_fused) = both(scores, real(5, n), by, rate, epsilon)
    torch.testing.assert_close(fused, plain, rtol=2e-5, atol=1e-18)
    torch.testing.assert_close(d_fused, d_plain, rtol=1e-4, atol=1e-18)


@pytest.mark.parametrize("rate", ["exp", "relu"])
def test_a_nan_score_affects_only_its_set(rate: RateForm) -> None:
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
    results = []
    for device in ("cpu", "cuda"):
        leaf = p.to(device).detach().requires_grad_()
        logs = log_probabilities(leaf, mask.to(device))
        logs.backward(by.to(device))  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        results.append((logs.detach().cpu(), leaf.grad.cpu()))
    for plain, fused in zip(*results, strict=True):
        torch.testing.assert_close(fused, plain)
    assert results[1][0][0, 0] == -math.inf
    assert results[1][1][0, 0] == 0
