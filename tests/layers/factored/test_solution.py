"""The operator and its gradient: the dense layer, differences, padding, blocks, the compiler and the exporter."""

import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp

from pcmcnet.layers import settings, stationary_distribution
from pcmcnet.layers.factored import composed_distribution, dense_rates, log_factored_distribution, solution
from pcmcnet.layers.stationary import elimination
from pcmcnet.layers.stationary.elimination import exported_distribution

# a warning of torch at the first use of its forward mode
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

SEEDS = st.integers(0, 2**32 - 1)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
FILLERS = [0.0, 1e30, -1e30, math.inf, math.nan]
factored = torch.ops.pcmcnet.factored.default
factored_backward = torch.ops.pcmcnet.factored_backward.default
SHAPES = [(2, 4, 2), (1, 3, 1), (2, 1, 4), (1, 2, 5)]  # sets, alternatives, factors


def problem(
    sets: int, n: int, rank: int, *, seed: int = 0, spread: float = 1.0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """Return normal log u and log v, and a mask with padding anywhere: none in the first set, some in the second."""
    gen = torch.Generator().manual_seed(seed)
    log_u, log_v = spread * torch.randn(2, sets, n, rank, generator=gen, dtype=torch.float64)
    mask = torch.rand(sets, n, generator=gen) < 0.7
    mask[torch.arange(sets), torch.randint(n, (sets,), generator=gen)] = True
    mask[0] = True
    if sets > 1 and n > 1:
        mask[1, 0], mask[1, 1] = False, True
    return log_u.to(dtype), log_v.to(dtype), mask


def loss_of(log_p: Tensor, mask: Tensor) -> Tensor:
    """Return a sum of log-probabilities with different weights."""
    weights = torch.arange(log_p.numel(), dtype=torch.float64).cos().view(log_p.shape).to(log_p)
    return (torch.where(mask, log_p, 0) * weights).sum()


def gradients(function: Callable[..., Tensor], log_u: Tensor, log_v: Tensor, mask: Tensor) -> list[Tensor]:
    """Return log p (0 at padding) and the gradients by log u and log v."""
    leaves = [x.detach().clone().requires_grad_() for x in (log_u, log_v)]
    log_p = function(*leaves, mask)
    return [log_p.detach().masked_fill(~mask, 0), *torch.autograd.grad(loss_of(log_p, mask), leaves)]


def through_the_dense_layer(log_u: Tensor, log_v: Tensor, mask: Tensor) -> Tensor:
    """Return log p by way of all pairs of rates."""
    p = stationary_distribution(dense_rates(log_u, log_v, mask), mask)
    return torch.where(mask, p, 1).log()


# -- values and gradients ---------------------------------------------------------------------------------------------


def test_rates_of_pairs_by_hand() -> None:
    """u = (1 2; 3 1; .), v = (1 2; 2 1; .): q_01 = 1 2 + 2 1 = 4 and q_10 = 3 1 + 1 2 = 5, divided by 5."""
    u, v = torch.tensor([[1.0, 2], [3, 1], [9, 9]]), torch.tensor([[1.0, 2], [2, 1], [9, 9]])
    mask = torch.tensor([[True, True, False]])
    rates = dense_rates(u.double().log().unsqueeze(0), v.double().log().unsqueeze(0), mask)
    expected = torch.tensor([[[0, 0.8, 0], [1, 0, 0], [0, 0, 0]]], dtype=torch.float64)
    torch.testing.assert_close(rates, expected, rtol=1e-14, atol=0)


def test_a_set_without_pairs_has_rates_of_zero() -> None:
    log_u, log_v, _ = problem(1, 3, 2)
    rates = dense_rates(log_u, log_v, torch.tensor([[False, True, False]]))
    assert not rates.any()


def test_the_gradient_of_a_logit_by_hand() -> None:
    """With one factor, log p_i = log v_i - log u_i + c, so d log p_0 is (1 - p_0, -p_1) by log v and minus it by log u.

    v / u = (1, 3) gives p_0 = 1/4 and p_1 = 3/4.
    """
    log_u = torch.zeros(1, 2, 1, dtype=torch.float64, requires_grad=True)
    log_v = torch.tensor([[[1.0], [3.0]]], dtype=torch.float64).log().requires_grad_()
    log_p = log_factored_distribution(log_u, log_v, torch.ones(1, 2, dtype=torch.bool))
    by_u, by_v = torch.autograd.grad(log_p[0, 0], [log_u, log_v])
    expected = torch.tensor([[[0.75], [-0.75]]], dtype=torch.float64)
    torch.testing.assert_close(by_v, expected, rtol=0, atol=1e-15)
    torch.testing.assert_close(by_u, -expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("device", DEVICES)
@given(n=st.integers(1, 40), rank=st.integers(1, 12), spread=st.floats(0, 10), seed=SEEDS)
def test_values_and_gradients_equal_those_through_the_dense_layer(
    device: str, n: int, rank: int, spread: float, seed: int
) -> None:
    """Rates are up to 40 orders of magnitude apart. An elasticity is a number of about 1, so its error is absolute."""
    inputs = [x.to(device) for x in problem(2, n, rank, seed=seed, spread=spread)]
    dense = gradients(through_the_dense_layer, *inputs)
    torch.testing.assert_close(gradients(log_factored_distribution, *inputs), dense, rtol=1e-10, atol=1e-10)
    single = gradients(log_factored_distribution, inputs[0].float(), inputs[1].float(), inputs[2])
    exact = gradients(through_the_dense_layer, inputs[0].float().double(), inputs[1].float().double(), inputs[2])
    # The gradient is a sum over 40 alternatives, of which each is rounded to float32.
    torch.testing.assert_close([x.double() for x in single], exact, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_two_orders_agree_with_finite_differences(shape: tuple[int, int, int]) -> None:
    log_u, log_v, mask = problem(*shape)

    def solved(log_u: Tensor, log_v: Tensor) -> Tensor:
        return torch.where(mask, log_factored_distribution(log_u, log_v, mask), 0)

    leaves = log_u.requires_grad_(), log_v.requires_grad_()
    assert torch.autograd.gradcheck(solved, leaves, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(solved, leaves, check_fwd_over_rev=True)


@given(n=st.integers(1, 30), rank=st.integers(1, 9), spread=st.floats(0, 30), seed=SEEDS)
def test_the_composition_of_operators_gives_the_same(n: int, rank: int, spread: float, seed: int) -> None:
    inputs = problem(3, n, rank, seed=seed, spread=spread)
    expected = gradients(log_factored_distribution, *inputs)
    torch.testing.assert_close(gradients(composed_distribution, *inputs), expected, rtol=1e-12, atol=1e-11)


@given(n=st.integers(1, 30), rank=st.integers(1, 9), spread=st.floats(0, 30), seed=SEEDS)
def test_factors_without_an_effect_have_no_gradient(n: int, rank: int, spread: float, seed: int) -> None:
    """The time scale and the scale of a factor have no effect, so these derivatives sum to 0.

    log u + c changes the time scale, and (log u_k + c, log v_k - c) gives the same rates.
    """
    log_u, log_v, mask = problem(2, n, rank, seed=seed, spread=spread)
    _, by_u, by_v = gradients(log_factored_distribution, log_u, log_v, mask)
    nothing = torch.zeros(2, dtype=torch.float64)
    torch.testing.assert_close(by_u.sum((1, 2)), nothing, rtol=0, atol=1e-11)
    torch.testing.assert_close((by_u - by_v).sum(1), nothing.unsqueeze(1).expand(-1, rank), rtol=0, atol=1e-11)


def test_forward_and_reverse_mode_give_the_same_jacobian() -> None:
    log_u, log_v, mask = problem(2, 4, 3)
    solved = partial(log_factored_distribution, log_v=log_v, mask=mask)

    def finite(log_u: Tensor) -> Tensor:
        return torch.where(mask, solved(log_u), 0)

    forward, reverse = (jacobian(finite)(log_u) for jacobian in (jacfwd, jacrev))
    torch.testing.assert_close(forward, reverse, rtol=1e-12, atol=1e-14)
    assert forward.abs().max() > 0.01
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(finite(forward_ad.make_dual(log_u, log_u.cos())))  # type: ignore[no-untyped-call]
    torch.testing.assert_close(dual.tangent, jvp(finite, (log_u,), (log_u.cos(),))[1], rtol=0, atol=0)


def test_second_derivatives_agree_however_they_are_taken() -> None:
    log_u, log_v, mask = problem(2, 4, 3)
    along = log_u.cos()

    def loss(log_u: Tensor) -> Tensor:
        return loss_of(log_factored_distribution(log_u, log_v, mask), mask)

    second = (hessian(loss)(log_u) * along).sum((3, 4, 5))
    leaf = log_u.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    (by_graph,) = torch.autograd.grad((first * along).sum(), leaf)
    torch.testing.assert_close(by_graph, second, rtol=1e-12, atol=1e-13)
    step = 1e-5
    differences = (grad(loss)(log_u + step * along) - grad(loss)(log_u - step * along)) / (2 * step)
    torch.testing.assert_close(second, differences, rtol=1e-6, atol=1e-8)  # error of the differences


@pytest.mark.parametrize("device", DEVICES)
def test_context_effects_have_no_gradient_if_all_factors_are_equal(device: str) -> None:
    """At equal factors the chain is a logit, and all factors have the same gradient: training would keep them equal."""
    log_u, log_v, mask = problem(2, 6, 1)
    inputs = (log_u.expand(-1, -1, 4), log_v.expand(-1, -1, 4), mask)
    _, *slopes = gradients(log_factored_distribution, *(x.to(device) for x in inputs))
    for slope in slopes:
        torch.testing.assert_close(slope, slope[..., :1].expand_as(slope), rtol=0, atol=1e-15)
        assert slope.abs().max() > 0.01


# -- padding ----------------------------------------------------------------------------------------------------------


@given(
    n=st.integers(1, 6), extra=st.integers(1, 4), rank=st.integers(1, 4), seed=SEEDS, filler=st.sampled_from(FILLERS)
)
def test_padding_changes_neither_values_nor_gradients(n: int, extra: int, rank: int, seed: int, filler: float) -> None:
    log_u, log_v, _ = problem(1, n, rank, seed=seed, spread=5)
    log_p, *slopes = gradients(log_factored_distribution, log_u, log_v, torch.ones(1, n, dtype=torch.bool))
    places = torch.randperm(n + extra, generator=torch.Generator().manual_seed(seed))[:n]
    padded = torch.full((2, 1, n + extra, rank), filler, dtype=torch.float64)
    padded[0, :, places], padded[1, :, places] = log_u, log_v
    mask = torch.zeros(1, n + extra, dtype=torch.bool)
    mask[:, places] = True
    leaf = padded.requires_grad_()
    ours = log_factored_distribution(*leaf, mask)
    weights = torch.arange(n, dtype=torch.float64).cos()
    (slope,) = torch.autograd.grad((ours[0, places] * weights).sum(), leaf)
    assert (ours[~mask] == -math.inf).all()
    assert (slope[:, ~mask] == 0).all()
    torch.testing.assert_close(ours[:, places], log_p, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(slope[:, :, places], torch.stack(slopes), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("function", [log_factored_distribution, composed_distribution])
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_gradients_at_padding_have_no_effect(function: Callable[..., Tensor], poison: float) -> None:
    log_u, log_v, mask = problem(3, 5, 2)
    weight = torch.cos(torch.arange(15)).view(3, 5).double()
    results = []
    for filler in (poison, 0.0):
        leaves = log_u.clone().requires_grad_(), log_v.clone().requires_grad_()
        log_p = function(*leaves, mask)
        first = torch.autograd.grad(log_p, leaves, weight.masked_fill(~mask, filler), create_graph=True)
        second = torch.autograd.grad(first[0].square().sum(), leaves)
        results.append([*first, *second])
    assert not mask.all()
    assert all(torch.isfinite(value).all() for value in results[0])
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("function", [log_factored_distribution, composed_distribution])
def test_a_set_of_padding_has_no_effect(function: Callable[..., Tensor]) -> None:
    """A batch may be filled up with sets of padding."""
    log_u, log_v, mask = problem(3, 5, 2)
    mask[1] = False
    log_p, *slopes = gradients(function, log_u, log_v, mask)
    alone = gradients(function, log_u[[0, 2]], log_v[[0, 2]], mask[[0, 2]])
    torch.testing.assert_close(log_p[[0, 2]], alone[0])
    assert (function(log_u, log_v, mask)[1] == -math.inf).all()
    assert all(torch.isfinite(slope).all() and not slope[1].any() for slope in slopes)


# -- blocks of large sets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("numbers", [1, 5, 12, 40])
@pytest.mark.parametrize("shape", [(4, 7, 3), (1, 20, 5)])
def test_blocks_of_any_size_give_the_same(
    numbers: int, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = problem(*shape, spread=5)
    expected = gradients(log_factored_distribution, *inputs)
    monkeypatch.setattr(settings, "FACTORED_CHUNK_NUMBERS", numbers)
    assert len(solution._blocks(inputs[0])) > 1
    torch.testing.assert_close(gradients(log_factored_distribution, *inputs), expected, rtol=1e-12, atol=1e-12)


def test_blocks_cover_every_alternative_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "FACTORED_CHUNK_NUMBERS", 24)
    for shape in ((5, 4, 2), (2, 30, 2), (3, 5, 30)):
        counts = torch.zeros(shape)
        for block in solution._blocks(counts):
            counts[block] += 1
        assert (counts == 1).all()


def test_a_million_alternatives_match_the_logit_and_their_copies() -> None:
    """1,000 copies of 1,000 alternatives share the probabilities of one copy, and rank 1 is a logit."""
    log_u, log_v, mask = problem(1, 1_000, 2, dtype=torch.float32)
    mask[:] = True
    copies = [x.repeat(1, 1_000, 1).requires_grad_() for x in (log_u, log_v)]
    many = torch.ones(1, 1_000_000, dtype=torch.bool)
    log_p = log_factored_distribution(*copies, many)
    once = log_factored_distribution(log_u, log_v, mask)
    expected = once - math.log(1_000)
    torch.testing.assert_close(log_p.detach().view(1_000, 1_000), expected.expand(1_000, -1), rtol=1e-6, atol=1e-6)
    slopes = torch.autograd.grad(log_p[0, :1_000].sum(), copies)
    leaves = log_u.requires_grad_(), log_v.requires_grad_()
    alone = torch.autograd.grad(log_factored_distribution(*leaves, mask).sum(), leaves)
    # All copies of an alternative together have the derivative of the alternative.
    for ours, other in zip(slopes, alone, strict=True):
        torch.testing.assert_close(ours.view(1_000, 1_000, 2).double().sum(0), other[0].double(), rtol=1e-5, atol=1e-4)
    logit = (copies[1] - copies[0])[..., 0].detach().double().log_softmax(1).float()
    ranked = log_factored_distribution(copies[0][..., :1], copies[1][..., :1], many)
    torch.testing.assert_close(ranked, logit, rtol=1e-6, atol=0)


# -- operators, compiler, exporter --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES[:1] + [pytest.param(shape, marks=pytest.mark.slow) for shape in SHAPES[1:]])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("device", DEVICES)
def test_the_operators_pass_the_checks_of_torch(shape: tuple[int, int, int], dtype: torch.dtype, device: str) -> None:
    """Checks schemas, shapes without data, gradients, and the compiler with dynamic sizes, for any memory layout."""
    log_u, log_v, mask = (x.to(device) for x in problem(*shape, dtype=dtype))
    turned = [x.permute(1, 2, 0).contiguous().permute(2, 0, 1) for x in (log_u, log_v)]
    torch.library.opcheck(factored, (*(x.clone().requires_grad_() for x in turned), mask))
    log_p, *saved = factored(*turned, mask)
    torch.library.opcheck(factored_backward, (torch.ones_like(log_p), *turned, mask, *saved))


@pytest.mark.parametrize("rank", [1, 8, 9, 33, 128, 129])
def test_shapes_without_data_match_the_kernels_of_a_gpu(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The elimination on a GPU pads the factors to a compiled width, up to its largest number of states.

    The kernels of the solution pad them to a smaller width, so their results fit into the same tensors.
    """
    monkeypatch.setattr("pcmcnet.layers.stationary.gradient.has_triton", lambda: True)
    monkeypatch.setattr("pcmcnet.layers.factored.solution.has_triton", lambda: True)
    width = next((w for w in settings.ELIMINATION_TRITON_WIDTHS if rank <= w), rank)
    stand_in: Any = SimpleNamespace(
        shape=(3, 5, rank),
        device=torch.device("cuda"),
        dtype=torch.float32,
        new_empty=lambda *size, dtype: gpu_stand_in(size, dtype),
    )
    log_p, log_total, p, b, factors, *others = solution._solve_shapes(stand_in, stand_in, stand_in)
    assert factors.shape == (3 * width**2,)
    assert (solution.kernel_width(stand_in) or 0) <= width
    assert [x.shape for x in others] == [(3 * rank,), (3 * rank,), (3,)]
    assert [x.shape for x in (log_p, log_total, p, b)] == [(3, 5), (3, 1, rank), (3, 5), (3, rank)]
    assert log_p.dtype == torch.float32
    assert {x.dtype for x in (log_total, p, b, factors, *others)} == {torch.float64}


def gpu_stand_in(size: tuple[Any, ...], dtype: torch.dtype) -> Any:
    """Return a stand-in for an empty tensor on a GPU that need not exist."""
    shape = size[0] if isinstance(size[0], tuple) else size
    return SimpleNamespace(
        shape=shape, dtype=dtype, device=torch.device("cuda"), new_empty=lambda size: gpu_stand_in((size,), dtype)
    )


def test_results_share_no_memory_and_only_the_distribution_has_a_gradient() -> None:
    """A compiler may overwrite one result while another is still needed."""
    log_u, log_v, mask = problem(2, 4, 3)
    results = factored(log_u.requires_grad_(), log_v, mask)
    assert len({result.untyped_storage().data_ptr() for result in results}) == len(results)
    assert [result.requires_grad for result in results] == [True] + [False] * 7


def test_one_compilation_handles_sets_of_all_sizes() -> None:
    torch.compiler.reset()
    compiled = torch.compile(log_factored_distribution, backend="aot_eager", fullgraph=True, dynamic=True)
    for shape in ((3, 9, 4), (5, 11, 3), (2, 4, 5)):
        with torch.compiler.set_stance("fail_on_recompile" if shape[0] != 3 else "default"):
            ours = gradients(compiled, *problem(*shape))
        assert all(map(torch.equal, ours, gradients(log_factored_distribution, *problem(*shape))))


class Weighted(nn.Module):
    """A module with one weight that returns log-probabilities of factors, computed by ``solved``."""

    def __init__(self, solved: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.weight, self.solved = nn.Parameter(torch.tensor(0.5), requires_grad=False), solved

    def forward(self, log_u: Tensor, log_v: Tensor, mask: Tensor) -> Tensor:
        return self.solved(self.weight * log_u, self.weight * log_v, mask)


@pytest.mark.parametrize(
    "solved", [log_factored_distribution, partial(composed_distribution, solve=exported_distribution)]
)
def test_an_exported_module_handles_sets_of_all_sizes(solved: Callable[..., Tensor]) -> None:
    """As one operator, and as plain operators for other runtimes."""
    module = Weighted(solved)
    sets, n = torch.export.Dim("sets", min=1), torch.export.Dim("n", min=1)
    shapes = {"log_u": {0: sets, 1: n}, "log_v": {0: sets, 1: n}, "mask": {0: sets, 1: n}}
    program = torch.export.export(module, problem(3, 5, 2), dynamic_shapes=shapes)
    assert (factored in [node.target for node in program.graph.nodes]) == (solved is log_factored_distribution)
    for size in ((3, 5), (2, 7), (4, 1)):
        log_u, log_v, mask = problem(*size, 2, spread=10)
        ours, expected = program.module()(log_u, log_v, mask), log_factored_distribution(log_u / 2, log_v / 2, mask)
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(300, 50, 8), (2, 1_000, 16), (3, 200, 128), (1, 100_000, 16)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gpu_gives_the_values_and_gradients_of_the_cpu(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    inputs = problem(*shape, spread=3, dtype=dtype)
    ours = gradients(log_factored_distribution, *(x.cuda() for x in inputs))
    error = 1e-6 if dtype == torch.float32 else 1e-11
    expected = gradients(log_factored_distribution, *inputs)
    torch.testing.assert_close([x.cpu() for x in ours], expected, rtol=error, atol=error)


def test_the_chain_of_the_factors_is_solved_by_the_elimination(monkeypatch: pytest.MonkeyPatch) -> None:
    """The elimination of r states is the only step whose work does not grow with the number of alternatives."""
    sizes = []
    forward = elimination.forward

    def counted(rates: Tensor, mask: Tensor) -> Any:
        sizes.append(tuple(rates.shape))
        return forward(rates, mask)

    monkeypatch.setattr(elimination, "forward", counted)
    log_factored_distribution(*problem(2, 500, 3))
    assert sizes == [(2, 3, 3)]
