"""The blocked elimination agrees with the plain one, and with known distributions of large sets."""

import pytest
import torch
from torch import Tensor

from pcmcnet.layers import settings, solve_chain
from pcmcnet.layers.stationary import elimination
from pcmcnet.layers.stationary import elimination_in_blocks as blocked
from pcmcnet.layers.stationary.gradient import Solver

DECADES = 12


def sets_of(n: int) -> tuple[Tensor, Tensor]:
    """Return rates over 12 orders of magnitude, and masks of n, n - 1, about n / 2, one and no alternatives."""
    generator = torch.Generator().manual_seed(n)
    rates = 10 ** (DECADES * torch.rand(5, n, n, generator=generator, dtype=torch.float64) - DECADES / 2)
    sizes = torch.tensor([n, max(n - 1, 1), (n + 1) // 2, 1, 0])
    return rates, torch.arange(n) < sizes.unsqueeze(1)


def distribution_and_elasticities(solver: Solver, rates: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Solve, and return p with the gradient of a sum of log p with random signs."""
    p, *saved = solver.forward(rates, mask)
    signs = torch.randn(mask.shape, generator=torch.Generator().manual_seed(0)).sign()
    grad = solver.backward(torch.where(mask, signs / p, torch.nan), mask, *saved)
    return p, grad * rates.to(grad.dtype)


@pytest.mark.parametrize("n", [1, 2, 48, 49, 50, 65, 100, 200])
def test_both_eliminations_agree(n: int) -> None:
    rates, mask = sets_of(n)
    p, elasticities = distribution_and_elasticities(blocked, rates, mask)
    plain, plain_elasticities = distribution_and_elasticities(elimination, rates, mask)
    torch.testing.assert_close(p, plain, rtol=1e-13, atol=0)
    torch.testing.assert_close(elasticities, plain_elasticities, rtol=0, atol=1e-12)
    assert (p[~mask] == 0).all()
    assert (elasticities[~mask] == 0).all()
    assert (elasticities.mT[~mask] == 0).all()


@pytest.mark.parametrize("panel", [1, 2, 7, 99, 1000])
def test_the_panel_width_does_not_matter(panel: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rates, mask = sets_of(100)
    p, elasticities = distribution_and_elasticities(blocked, rates, mask)
    monkeypatch.setattr(settings, "ELIMINATION_BLOCK_STATES", panel)
    other, other_elasticities = distribution_and_elasticities(blocked, rates, mask)
    torch.testing.assert_close(other, p, rtol=1e-13, atol=0)
    torch.testing.assert_close(other_elasticities, elasticities, rtol=0, atol=1e-12)


def test_weakly_connected_groups_across_panels_keep_their_gradient() -> None:
    """Rates are about 1 among even and among odd states, and e^-40 between them: z has no correct digit."""
    n = 150
    rates = torch.rand(1, n, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
    rates[:, ::2, 1::2] *= torch.e**-40
    rates[:, 1::2, ::2] *= torch.e**-40
    mask = torch.ones(1, n, dtype=torch.bool)
    p, elasticities = distribution_and_elasticities(blocked, rates, mask)
    plain, plain_elasticities = distribution_and_elasticities(elimination, rates, mask)
    torch.testing.assert_close(p, plain, rtol=1e-13, atol=0)
    torch.testing.assert_close(elasticities, plain_elasticities, rtol=0, atol=1e-12)


def test_a_long_birth_death_chain_is_in_detailed_balance() -> None:
    """With p_i up_i = p_(i+1) down_i, log p is a cumulative sum; here p spans about 30 orders of magnitude."""
    n = 300
    up, down = torch.rand(2, n - 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64).mul(4).exp()
    rates = (torch.diag(up, 1) + torch.diag(down, -1)).unsqueeze(0)
    log_p = torch.cat([torch.zeros(1, dtype=torch.float64), (up.log() - down.log()).cumsum(0)])
    p = solve_chain(rates, torch.ones(1, n, dtype=torch.bool))
    torch.testing.assert_close(p[0], log_p.softmax(0), rtol=1e-12, atol=0)


def test_a_long_ring_matches_its_formula() -> None:
    """The same flow crosses every arrow: p_i is 1 / q_i over their sum, and d log p_i / d log q_j = p_j - [i = j]."""
    n = 300
    assert n > settings.ELIMINATION_IN_BLOCKS_ABOVE_STATES
    generator = torch.Generator().manual_seed(0)
    each = (5 * torch.randn(n, generator=generator, dtype=torch.float64)).exp()
    rates = torch.roll(torch.diag(each), 1, dims=1).unsqueeze(0).requires_grad_()
    p = solve_chain(rates, torch.ones(1, n, dtype=torch.bool))
    (grad,) = torch.autograd.grad(p[0, 7].log(), rates)
    expected = (1 / each) / (1 / each).sum()
    torch.testing.assert_close(p[0].detach(), expected, rtol=1e-13, atol=0)
    expected[7] -= 1
    ours = (grad * rates.detach())[0]
    torch.testing.assert_close(ours.sum(1), expected, rtol=0, atol=1e-12)


def test_target_only_rates_of_500_states_give_a_logit() -> None:
    w = torch.logspace(-6, 6, 500, dtype=torch.float64)
    p = solve_chain(w.expand(1, 500, 500), torch.ones(1, 500, dtype=torch.bool))
    torch.testing.assert_close(p[0], w / w.sum(), rtol=1e-13, atol=0)


def test_the_passes_are_accurate_in_float32() -> None:
    """For devices without float64. The bound is about fifty roundings of 6e-8, over 100 states."""
    rates, mask = sets_of(100)
    exact, exact_elasticities = distribution_and_elasticities(elimination, rates.float().double(), mask)
    q = (rates.float() / rates.float().amax((1, 2), keepdim=True)).masked_fill(~(mask[:, None] & mask[:, :, None]), 0)
    q.diagonal(dim1=1, dim2=2).zero_()
    scaled = q.clone()
    exits = blocked.eliminate(q, mask)
    p = blocked.substitute(q, exits, mask)
    signs = torch.randn(mask.shape, generator=torch.Generator().manual_seed(0)).sign()
    ours = blocked.pull_back(q, exits, p, signs / p, mask) * scaled
    assert p.dtype == ours.dtype == torch.float32
    torch.testing.assert_close(p.double(), exact, rtol=3e-6, atol=0)
    torch.testing.assert_close(ours.double(), exact_elasticities, rtol=0, atol=3e-6)
