"""The elimination on a GPU agrees with that on the CPU, in the precision of the rates."""

import pytest
import torch
from torch import Tensor

from pcmcnet.layers import solve_chain
from pcmcnet.layers.stationary import elimination

pytestmark = pytest.mark.gpu


def problem(sets: int, n: int, sigma: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Make log-normal rates, sets of different sizes, and weights of the log-probabilities."""
    generator = torch.Generator().manual_seed(n)
    rates = (torch.randn(sets, n, n, generator=generator, dtype=torch.float64) * sigma).exp().to(dtype)
    sizes = torch.randint(1, n + 1, (sets, 1), generator=generator)
    sizes[0] = n
    return rates, torch.arange(n) < sizes, torch.randn(sets, n, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("sets", [3, 300])
@pytest.mark.parametrize(
    ("n", "sigma"),
    [
        (1, 1.0),
        (2, 1.0),
        (3, 5.0),
        (31, 2.0),
        (32, 2.0),
        (33, 2.0),
        (50, 4.0),
        (64, 1.0),
        (65, 2.0),
        (128, 2.0),
        (129, 2.0),
        (200, 2.0),
        (300, 4.0),
    ],
)
def test_distribution_and_elasticities_match_the_cpu(
    sets: int, n: int, sigma: float, dtype: torch.dtype, tolerance: float
) -> None:
    rates, mask, by = problem(sets, n, sigma, dtype)
    results = []
    for solve, q in ((None, rates.double()), (solve_chain, rates.cuda())):
        leaf, real = q.requires_grad_(), mask.to(q.device)
        if solve is None:
            p, *saved = elimination.forward(leaf.detach(), real)
            chain = torch.where(real, by / p.where(real, torch.ones_like(p)), 0)
            gradient = elimination.backward(chain, real, *saved)
        else:
            p = solve(leaf, real)
            (p.where(real, torch.ones_like(p)).log() * by.to(p)).sum().backward()
            gradient = leaf.grad
        results.append((p.detach().double().cpu(), (gradient * leaf.detach()).double().cpu()))
    (distribution, flow), (actual, found_flow) = results
    assert (
        float(((actual - distribution) / distribution.where(mask, torch.ones_like(distribution))).abs().max())
        < tolerance
    )
    assert float((found_flow - flow).abs().max()) < 10 * tolerance  # elasticities, of size 1, summed over n states
    assert bool((actual[~mask] == 0).all())


def test_padding_is_invisible_with_any_values() -> None:
    rates, mask, _ = problem(8, 40, 1.0, torch.float32)
    other = rates.masked_fill(~(mask.unsqueeze(2) & mask.unsqueeze(1)), torch.nan)
    leaf = other.cuda().requires_grad_()
    p = solve_chain(leaf, mask.cuda())
    assert torch.equal(p, solve_chain(rates.cuda(), mask.cuda()))
    p.backward(torch.where(mask, 1.0, torch.nan).cuda())
    assert bool((leaf.grad[~(mask.unsqueeze(2) & mask.unsqueeze(1)).cuda()] == 0).all())


def test_the_operator_works_in_compiled_code() -> None:
    rates, mask, _ = problem(8, 20, 1.0, torch.float32)
    compiled = torch.compile(solve_chain, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(rates.cuda(), mask.cuda()), solve_chain(rates.cuda(), mask.cuda()))


def test_weakly_connected_groups_across_panels_keep_their_gradient() -> None:
    """Rates are about 1 among even and among odd states, and e^-40 between them: z has no correct digit."""
    n = 150
    rates = torch.rand(2, n, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
    rates[:, ::2, 1::2] *= torch.e**-40
    rates[:, 1::2, ::2] *= torch.e**-40
    mask, by = (
        torch.ones(2, n, dtype=torch.bool),
        torch.randn(2, n, generator=torch.Generator().manual_seed(1)).double(),
    )
    results = []
    for device in ("cpu", "cuda"):
        leaf = rates.to(device, copy=True).requires_grad_()
        (solve_chain(leaf, mask.to(device)).log() * by.to(device)).sum().backward()
        results.append((leaf.grad * leaf.detach()).cpu())
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=1e-12)
