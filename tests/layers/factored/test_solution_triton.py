"""The kernels of the solution give the values and gradients of PyTorch's operators, on the same device."""

import math

import pytest
import torch
from torch import Tensor

from pcmcnet.layers import settings
from pcmcnet.layers.factored import log_factored_distribution, solution

pytestmark = pytest.mark.gpu


def problem(sets: int, n: int, rank: int, spread: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return log u, log v, which are halves of one tensor, and a mask with padding at random positions."""
    generator = torch.Generator().manual_seed(n)
    both = spread * torch.randn(sets, n, 2 * rank, generator=generator, dtype=torch.float64)
    mask = torch.rand(sets, n, generator=generator) < 0.7
    mask[torch.arange(sets), torch.randint(n, (sets,), generator=generator)] = True
    log_u, log_v = both.to(dtype).cuda().chunk(2, -1)
    return log_u, log_v, mask.cuda()


def results(log_u: Tensor, log_v: Tensor, mask: Tensor, weight: Tensor) -> list[Tensor]:
    """Return log p (0 at padding), and the gradients by log u and log v."""
    leaves = log_u.detach().requires_grad_(), log_v.detach().requires_grad_()
    log_p = log_factored_distribution(*leaves, mask)
    return [log_p.detach().masked_fill(~mask, 0), *torch.autograd.grad(log_p, leaves, weight.to(log_p.dtype))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [1.0, 30.0])
@pytest.mark.parametrize(
    "shape", [(5, 1, 1), (4, 3, 2), (300, 50, 16), (9, 33, 5), (3, 200, 32), (2, 512, 8), (7, 17, 31), (2, 64, 4)]
)
def test_kernels_give_the_results_of_torch_operators(
    shape: tuple[int, int, int], spread: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_u, log_v, mask = problem(*shape, spread, dtype)
    weight = torch.randn(mask.shape, device="cuda").masked_fill_(~mask, math.nan)  # padding has no effect
    assert solution.kernel_width(log_u) is not None
    ours = results(log_u, log_v, mask, weight)
    monkeypatch.setattr(settings, "FACTORED_KERNEL_UP_TO_ALTERNATIVES", 0)
    assert solution.kernel_width(log_u) is None
    error = 1e-6 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(ours, results(log_u, log_v, mask, weight), rtol=error, atol=error)


def test_sets_of_padding_change_nothing() -> None:
    log_u, log_v, mask = problem(4, 9, 3, 2.0, torch.float64)
    mask[1] = False
    weight = torch.ones(mask.shape, device="cuda")
    log_p, by_u, by_v = results(log_u, log_v, mask, weight)
    others = torch.tensor([0, 2, 3], device="cuda")
    alone = results(log_u[others], log_v[others], mask[others], weight[others])
    torch.testing.assert_close([x[others] for x in (log_p, by_u, by_v)], alone, rtol=1e-13, atol=1e-15)
    assert not by_u[1].any()
    assert not by_v[1].any()


@pytest.mark.parametrize("filler", [math.nan, math.inf, -1e30])
def test_values_at_padding_are_ignored(filler: float) -> None:
    log_u, log_v, mask = problem(3, 40, 8, 2.0, torch.float32)
    weight = torch.ones(mask.shape, device="cuda")
    expected = results(log_u, log_v, mask, weight)
    filled = [x.masked_fill(~mask.unsqueeze(2), filler) for x in (log_u, log_v)]
    assert not mask.all()
    assert all(map(torch.equal, results(*filled, mask, weight), expected))


def test_two_runs_give_the_same_bits() -> None:
    log_u, log_v, mask = problem(300, 50, 16, 5.0, torch.float32)
    weight = torch.randn(mask.shape, device="cuda")
    first = results(log_u, log_v, mask, weight)
    for _ in range(20):
        assert all(map(torch.equal, results(log_u, log_v, mask, weight), first))
