"""Derivatives beyond the reverse mode on a CUDA device match the CPU; kernels are not used for them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import grad, hessian, jvp, vmap

from pcmcnet.errors import PcmcNetError
from pcmcnet.layers import PairwiseRates, log_probabilities, solve_chain, stationary_distribution

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]


def chains(n: int = 6) -> tuple[Tensor, Tensor]:
    rates = torch.randn(3, n, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64).exp()
    return rates, torch.arange(n) < torch.tensor([[n], [n - 1], [1]])


def loss(rates: Tensor, mask: Tensor) -> Tensor:
    log_p = log_probabilities(solve_chain(rates, mask), mask)
    return log_p[:, 0].sum() + log_p[:2, 1].square().sum()


def second(rates: Tensor, mask: Tensor) -> Tensor:
    leaf = rates.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(leaf, mask), leaf, create_graph=True)
    return torch.autograd.grad(first.square().sum(), leaf)[0]


@pytest.mark.parametrize(
    "way",
    [
        lambda rates, mask: grad(loss)(rates, mask),
        lambda rates, mask: jvp(lambda q: solve_chain(q, mask), (rates,), (rates.square(),))[1],
        lambda rates, mask: vmap(stationary_distribution)(rates, mask),
        lambda rates, mask: hessian(loss)(rates, mask),
        second,
    ],
)
def test_derivatives_match_the_cpu(way: Callable[[Tensor, Tensor], Tensor]) -> None:
    rates, mask = chains()
    actual = way(rates.cuda(), mask.cuda()).cpu()
    torch.testing.assert_close(actual, way(rates, mask), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("hidden", [(16,), (16, 16), (128, 128)])
def test_second_derivatives_of_rates_match_the_cpu(hidden: tuple[int, ...]) -> None:
    net = PairwiseRates(2, 3, hidden, activation="tanh", precision="float32").eval()
    torch.nn.init.normal_(net.output.weight, generator=torch.Generator().manual_seed(0))
    gen = torch.Generator().manual_seed(1)
    individual, alternatives = torch.randn(4, 2, generator=gen), torch.randn(4, 5, 3, generator=gen)
    mask = torch.ones(4, 5, dtype=torch.bool)

    def first(x: Tensor) -> Tensor:
        device = x.device
        p = solve_chain(net(individual.to(device), x, mask.to(device)), mask.to(device))
        return log_probabilities(p, mask.to(device))[:, 0].sum()

    results = {}
    for device in ("cpu", "cuda"):
        net.to(device)
        x = alternatives.to(device)
        results[device] = [
            jvp(first, (x,), (x.cos(),))[1].cpu(),
            grad(lambda x: grad(first)(x).square().sum())(x).cpu(),
        ]
    for mine, other in zip(results["cuda"], results["cpu"], strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)  # products may be in TF32


def test_second_derivatives_through_kernels_are_refused() -> None:
    net = PairwiseRates(0, 3, (16, 16)).cuda()
    x = torch.randn(2, 5, 3, device="cuda", requires_grad=True)
    rates = net(x[:, 0, :0], x, torch.ones(2, 5, dtype=torch.bool, device="cuda"))
    with pytest.raises(PcmcNetError, match=r"take second ones by torch\.func"):
        torch.autograd.grad(rates.sum(), x, create_graph=True)
