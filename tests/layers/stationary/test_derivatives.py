"""All modes of differentiation in torch, against finite differences in float64 and the reverse mode."""

import itertools
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

from pcmcnet.errors import ChainError
from pcmcnet.layers import log_probabilities, solve_chain, stationary_distribution
from pcmcnet.layers.settings import ELIMINATION_IN_BLOCKS_ABOVE_STATES as LARGE
from pcmcnet.layers.tensor_ops import real_pairs

# a warning of torch at the first use of its forward mode
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

Solve = Callable[..., Tensor]
EACH: list[Solve] = [solve_chain, stationary_distribution]
SIZES = [1, 2, 5, LARGE + 4]  # the last one is solved in blocks


def chains(n: int, sets: int = 2, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return rates e^normal and a mask under which every set after the first has one alternative less."""
    gen = torch.Generator().manual_seed(seed)
    rates = torch.randn(sets, n, n, generator=gen, dtype=torch.float64).exp()
    return rates, torch.arange(n) < (n - torch.arange(sets)).clamp(min=1).unsqueeze(1)


def change(rates: Tensor, seed: int = 1) -> Tensor:
    gen = torch.Generator().manual_seed(seed)
    return torch.randn(rates.shape, generator=gen, dtype=rates.dtype) * rates


def slope(function: Callable[[Tensor], Tensor], at: Tensor, along: Tensor, step: float = 1e-5) -> Tensor:
    return (function(at + step * along) - function(at - step * along)) / (2 * step)


def by_dual_numbers(function: Callable[[Tensor], Tensor], at: Tensor, along: Tensor) -> Tensor:
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(function(forward_ad.make_dual(at, along))).tangent  # type: ignore[no-untyped-call]
    assert isinstance(tangent, Tensor)
    return tangent


# -- forward mode -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solve", EACH)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("followed", [False, True])
def test_tangents_match_finite_differences(solve: Solve, n: int, followed: bool) -> None:
    """The result does not depend on whether the rates require a gradient."""
    rates, mask = chains(n)
    along = change(rates)
    expected = slope(partial(solve, mask=mask), rates, along)
    rates = rates.requires_grad_(followed)
    actual = by_dual_numbers(partial(solve, mask=mask), rates, along)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-9)  # error of the differences
    by_jvp = jvp(partial(solve, mask=mask), (rates,), (along,))[1]
    torch.testing.assert_close(by_jvp, actual, rtol=0, atol=0)
    assert (actual[~mask] == 0).all()


@pytest.mark.parametrize("solve", EACH)
@pytest.mark.parametrize("n", SIZES[:-1])
def test_forward_and_reverse_mode_give_the_same_jacobian(solve: Solve, n: int) -> None:
    rates, mask = chains(n)
    forward, reverse = (jacobian(partial(solve, mask=mask))(rates) for jacobian in (jacfwd, jacrev))
    torch.testing.assert_close(forward, reverse, rtol=1e-12, atol=1e-14)
    assert n == 1 or forward.abs().max() > 0.01


def test_both_modes_agree_for_sets_solved_in_panels() -> None:
    rates, mask = chains(LARGE + 4)
    along, weight = change(rates), torch.randn(mask.shape, dtype=torch.float64)
    forward = (jvp(partial(solve_chain, mask=mask), (rates,), (along,))[1] * weight).sum()
    reverse = (grad(lambda q: (solve_chain(q, mask) * weight).sum())(rates) * along).sum()
    assert forward.item() == pytest.approx(reverse.item(), rel=1e-10)


def test_tangents_with_zero_rates_and_scattered_padding() -> None:
    """0 -> 1 -> 2 -> 0 one way, with padding in between: p_i is proportional to 1 / q_i,i+1.

    For rates 1, 2, 4 p = (4, 2, 1) / 7. A relative change of e_i of the three rates changes log p_i by
    -e_i + sum_k p_k e_k: for e = (7, 0, 0) by (-7 + 4, 4, 4).
    """
    rates = torch.full((4, 4), torch.nan, dtype=torch.float64)
    real = torch.tensor([0, 1, 3])
    ring = torch.tensor([[0.0, 1, 0], [0, 0, 2], [4, 0, 0]], dtype=torch.float64)
    rates[real.unsqueeze(1), real] = ring
    mask = torch.tensor([True, True, False, True])
    along = torch.zeros(4, 4, dtype=torch.float64)
    along[0, 1] = 7
    p, dp, *_ = jvp(lambda q: stationary_distribution(q, mask), (rates,), (along,))
    torch.testing.assert_close(p[real], torch.tensor([4.0, 2, 1], dtype=torch.float64) / 7)
    torch.testing.assert_close((dp / p)[real], torch.tensor([-3.0, 4, 4], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tangent_has_the_type_of_the_distribution(dtype: torch.dtype) -> None:
    rates, mask = chains(4)
    p, dp, *_ = jvp(partial(solve_chain, mask=mask), (rates.to(dtype),), (change(rates).to(dtype),))
    assert p.dtype == dp.dtype == torch.float32
    exact = jvp(partial(solve_chain, mask=mask), (rates.to(dtype).double(),), (change(rates).to(dtype).double(),))[1]
    torch.testing.assert_close(dp.double(), exact, rtol=1e-6, atol=1e-7)


def test_log_probabilities_have_tangents_without_nan() -> None:
    rates, mask = chains(4)

    def log_p(q: Tensor) -> Tensor:
        return log_probabilities(solve_chain(q, mask), mask)

    actual = by_dual_numbers(log_p, rates, change(rates))
    expected = slope(lambda q: log_p(q).where(mask, 0), rates, change(rates))
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-9)


# -- reverse mode, vmap, second derivatives -----------------------------------------------------------------------


@pytest.mark.parametrize("solve", EACH)
@pytest.mark.parametrize("n", SIZES)
def test_torch_func_grad_equals_autograd(solve: Solve, n: int) -> None:
    rates, mask = chains(n)
    weight = torch.randn(mask.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    leaf = rates.clone().requires_grad_()
    (expected,) = torch.autograd.grad((solve(leaf, mask) * weight).sum(), leaf)
    actual = grad(lambda q: (solve(q, mask) * weight).sum())(rates)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-15)
    assert (actual[~real_pairs(mask)] == 0).all()


@pytest.mark.parametrize("n", [1, 3, LARGE + 4])
def test_vmap_over_sets_equals_the_batch(n: int) -> None:
    rates, mask = chains(n, sets=3)
    require_close = partial(torch.testing.assert_close, rtol=1e-13, atol=0)
    require_close(vmap(stationary_distribution)(rates, mask), stationary_distribution(rates, mask))
    alone = vmap(stationary_distribution, in_dims=(2, None))(rates.movedim(0, 2), mask[0])
    require_close(alone, stationary_distribution(rates, mask[:1].expand(3, n)))
    nested = vmap(vmap(stationary_distribution))(rates.unsqueeze(1), mask.unsqueeze(1))
    require_close(nested.squeeze(1), stationary_distribution(rates, mask))


def test_vmap_of_grad_gives_the_gradient_of_each_set() -> None:
    rates, mask = chains(5, sets=3)

    def first(q: Tensor, real: Tensor) -> Tensor:
        return stationary_distribution(q, real)[0].log()

    leaf = rates.clone().requires_grad_()
    (expected,) = torch.autograd.grad(stationary_distribution(leaf, mask)[:, 0].log().sum(), leaf)
    torch.testing.assert_close(vmap(grad(first))(rates, mask), expected, rtol=1e-12, atol=1e-15)


def test_vmap_reorders_each_set_separately() -> None:
    """One set has rates of 0, so its states are reordered; the other has none."""
    full, ring = torch.ones(3, 3), torch.tensor([[0.0, 1, 0], [0, 0, 2], [4, 0, 0]])
    actual = vmap(stationary_distribution)(torch.stack([full, ring.flip(0, 1)]))
    torch.testing.assert_close(actual, torch.tensor([[1 / 3] * 3, [1 / 7, 2 / 7, 4 / 7]]))


@pytest.mark.parametrize("n", [1, 2, 4])
def test_second_derivatives_match_finite_differences(n: int) -> None:
    rates, mask = chains(n)

    def loss(q: Tensor) -> Tensor:
        return stationary_distribution(q, mask)[:, 0].log().sum()

    along = change(rates)
    expected = slope(grad(loss), rates, along)
    second = hessian(loss)(rates)
    torch.testing.assert_close((second * along).sum((3, 4, 5)), expected, rtol=1e-6, atol=1e-8)
    leaf = rates.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    (actual,) = torch.autograd.grad((first * along).sum(), leaf)
    torch.testing.assert_close(actual, (second * along).sum((3, 4, 5)), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("orders", list(itertools.product([jacfwd, jacrev], repeat=2)))
def test_second_derivatives_agree_for_any_order_of_modes(
    orders: tuple[Callable[..., Solve], Callable[..., Solve]],
) -> None:
    rates, mask = chains(3)
    outer, inner = orders
    actual = outer(inner(lambda q: solve_chain(q, mask)[:, 0].log().sum()))(rates)
    expected = hessian(lambda q: solve_chain(q, mask)[:, 0].log().sum())(rates)
    torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-13)


def test_forward_over_reverse_works_with_dual_numbers() -> None:
    rates, mask = chains(4)

    def gradient(q: Tensor) -> Tensor:
        followed = q if q.requires_grad else q.clone().requires_grad_()
        return torch.autograd.grad(solve_chain(followed, mask)[:, 0].log().sum(), followed)[0]

    along = change(rates)
    actual = by_dual_numbers(gradient, rates.clone().requires_grad_(), along)
    torch.testing.assert_close(actual, slope(gradient, rates, along), rtol=1e-6, atol=1e-8)


def test_gradcheck_and_gradgradcheck_pass_in_both_modes() -> None:
    rates, mask = chains(3)
    function = partial(solve_chain, mask=mask)
    leaf = rates.requires_grad_()
    assert torch.autograd.gradcheck(function, leaf, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(function, leaf, check_fwd_over_rev=True, check_rev_over_rev=True)


def test_gradients_at_padding_have_no_effect_on_second_derivatives() -> None:
    rates, mask = chains(3)
    leaf = rates.requires_grad_()
    p = solve_chain(leaf, mask)
    incoming = torch.ones_like(p).masked_fill(~mask, torch.nan).cumsum(1).requires_grad_()
    (first,) = torch.autograd.grad(p, leaf, incoming, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), leaf)
    assert torch.isfinite(second).all()
    assert second.abs().max() > 0


# -- under the compiler -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [False, True])
def test_distribution_and_gradient_compile_to_one_graph(zeros: bool) -> None:
    rates, mask = chains(4)
    rates[:, 0, 1:] = 0.0 if zeros else rates[:, 0, 1:]  # then state 0 is eliminated first
    compiled = torch.compile(stationary_distribution, backend="aot_eager", fullgraph=True)
    results: list[Tensor] = []
    expected: list[Tensor] = []
    for function, values in ((compiled, results), (stationary_distribution, expected)):
        leaf = rates.clone().requires_grad_()
        p = function(leaf, mask)
        values += [p.detach(), *torch.autograd.grad(p[:, 0].sum() + p[:, 1].sum(), leaf)]
    assert all(map(torch.equal, results, expected))


@pytest.mark.parametrize("way", [partial(torch.compile, backend="aot_eager", fullgraph=True), vmap])
def test_checks_also_raise_under_compile_and_vmap(way: Callable[[Solve], Solve]) -> None:
    rates, mask = chains(3)
    function = way(stationary_distribution)
    rates[1, 0, 1] = -1
    with pytest.raises(ChainError, match=r"choice set 1: expected the rate from 0 to 1 .*, got -1.0"):
        function(rates, mask)
    rates[1, 0, 1] = 1
    with pytest.raises(ChainError, match=r"choice set 0: expected at least one real alternative"):
        function(rates, mask & torch.tensor([[False], [True]]))
    extreme = torch.full((1, 3, 3), 1e-320, dtype=torch.float64)
    extreme[0, 0, 1] = extreme[0, 1, 2] = 1e300
    with pytest.raises(ChainError, match=r"choice set 0: the rates span more orders of magnitude"):
        function(extreme, torch.ones(1, 3, dtype=torch.bool))


@pytest.mark.parametrize(
    ("shape", "mask", "message"),
    [
        ((2, 3, 4), (2, 3), r"expected a floating-point dtype and shape \(..., n, n\), got torch.float32 \(2, 3, 4\)"),
        ((2, 3, 3), (2, 4), r"mask: expected shape \(2, 3\), got \(2, 4\)"),
    ],
)
def test_the_compiler_reports_a_wrong_shape_with_our_message(
    shape: tuple[int, ...], mask: tuple[int, ...], message: str
) -> None:
    arguments = torch.ones(shape), torch.ones(mask, dtype=torch.bool)
    torch.compiler.reset()  # torch does not compile a broken graph again
    with pytest.raises(torch._dynamo.exc.Unsupported, match=message):
        torch.compile(stationary_distribution, backend="eager", fullgraph=True)(*arguments)
    with pytest.raises(ChainError, match=message):
        torch.compile(stationary_distribution, backend="eager")(*arguments)


def test_nested_vmaps_name_a_set_by_its_position() -> None:
    rates = torch.ones(2, 3, 4, 4)
    rates[1, 2, 0, 1] = torch.nan
    with pytest.raises(ChainError, match=r"choice set \(1, 2\): expected the rate from 0 to 1 .* got nan"):
        vmap(vmap(stationary_distribution))(rates)
