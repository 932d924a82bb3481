"""Every way in which torch differentiates, against finite differences in float64 and against the reverse mode."""

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

# torch's own, when the forward mode is first used
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

Law = Callable[..., Tensor]
EACH: list[Law] = [solve_chain, stationary_distribution]
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
        found = forward_ad.unpack_dual(function(forward_ad.make_dual(at, along))).tangent  # type: ignore[no-untyped-call]
    assert isinstance(found, Tensor)
    return found


# -- forward mode -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", EACH)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("followed", [False, True])
def test_a_tangent_is_that_of_finite_differences(law: Law, n: int, followed: bool) -> None:
    """Whether or not the rates also have a gradient to be followed back."""
    rates, mask = chains(n)
    along = change(rates)
    expected = slope(partial(law, mask=mask), rates, along)
    rates = rates.requires_grad_(followed)
    found = by_dual_numbers(partial(law, mask=mask), rates, along)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)  # of the differences
    same = jvp(partial(law, mask=mask), (rates,), (along,))[1]
    torch.testing.assert_close(same, found, rtol=0, atol=0)
    assert (found[~mask] == 0).all()


@pytest.mark.parametrize("law", EACH)
@pytest.mark.parametrize("n", SIZES[:-1])
def test_forward_and_reverse_mode_give_one_jacobian(law: Law, n: int) -> None:
    rates, mask = chains(n)
    forward, reverse = (jacobian(partial(law, mask=mask))(rates) for jacobian in (jacfwd, jacrev))
    torch.testing.assert_close(forward, reverse, rtol=1e-12, atol=1e-14)
    assert n == 1 or forward.abs().max() > 0.01


def test_forward_and_reverse_mode_agree_in_sets_solved_in_panels() -> None:
    rates, mask = chains(LARGE + 4)
    along, weight = change(rates), torch.randn(mask.shape, dtype=torch.float64)
    forward = (jvp(partial(solve_chain, mask=mask), (rates,), (along,))[1] * weight).sum()
    reverse = (grad(lambda q: (solve_chain(q, mask) * weight).sum())(rates) * along).sum()
    assert forward.item() == pytest.approx(reverse.item(), rel=1e-10)


def test_a_tangent_with_rates_of_zero_and_holes_in_the_mask() -> None:
    """0 -> 1 -> 2 -> 0 one way, with padding in between: p_i is proportional to 1 / q_i,i+1, so d log p_i = mean - own.

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
def test_a_tangent_has_the_type_of_the_law(dtype: torch.dtype) -> None:
    rates, mask = chains(4)
    p, dp, *_ = jvp(partial(solve_chain, mask=mask), (rates.to(dtype),), (change(rates).to(dtype),))
    assert p.dtype == dp.dtype == torch.float32
    exact = jvp(partial(solve_chain, mask=mask), (rates.to(dtype).double(),), (change(rates).to(dtype).double(),))[1]
    torch.testing.assert_close(dp.double(), exact, rtol=1e-6, atol=1e-7)


def test_log_probabilities_of_a_law_have_tangents_and_no_nan_at_padding() -> None:
    rates, mask = chains(4)

    def log_p(q: Tensor) -> Tensor:
        return log_probabilities(solve_chain(q, mask), mask)

    found = by_dual_numbers(log_p, rates, change(rates))
    expected = slope(lambda q: log_p(q).where(mask, 0), rates, change(rates))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


# -- reverse mode, vmap, second derivatives -----------------------------------------------------------------------


@pytest.mark.parametrize("law", EACH)
@pytest.mark.parametrize("n", SIZES)
def test_grad_of_torch_func_is_the_plain_gradient(law: Law, n: int) -> None:
    rates, mask = chains(n)
    weight = torch.randn(mask.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    leaf = rates.clone().requires_grad_()
    (expected,) = torch.autograd.grad((law(leaf, mask) * weight).sum(), leaf)
    found = grad(lambda q: (law(q, mask) * weight).sum())(rates)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-15)
    assert (found[~real_pairs(mask)] == 0).all()


@pytest.mark.parametrize("n", [1, 3, LARGE + 4])
def test_vmap_over_sets_is_the_batch(n: int) -> None:
    rates, mask = chains(n, sets=3)
    same = partial(torch.testing.assert_close, rtol=1e-13, atol=0)
    same(vmap(stationary_distribution)(rates, mask), stationary_distribution(rates, mask))
    alone = vmap(stationary_distribution, in_dims=(2, None))(rates.movedim(0, 2), mask[0])
    same(alone, stationary_distribution(rates, mask[:1].expand(3, n)))
    nested = vmap(vmap(stationary_distribution))(rates.unsqueeze(1), mask.unsqueeze(1))
    same(nested.squeeze(1), stationary_distribution(rates, mask))


def test_vmap_of_grad_gives_the_gradient_of_each_set() -> None:
    rates, mask = chains(5, sets=3)

    def first(q: Tensor, real: Tensor) -> Tensor:
        return stationary_distribution(q, real)[0].log()

    leaf = rates.clone().requires_grad_()
    (expected,) = torch.autograd.grad(stationary_distribution(leaf, mask)[:, 0].log().sum(), leaf)
    torch.testing.assert_close(vmap(grad(first))(rates, mask), expected, rtol=1e-12, atol=1e-15)


def test_vmap_reorders_each_set_as_it_needs() -> None:
    """One set has rates of 0, so that its states are put in order; the other has none."""
    full, ring = torch.ones(3, 3), torch.tensor([[0.0, 1, 0], [0, 0, 2], [4, 0, 0]])
    found = vmap(stationary_distribution)(torch.stack([full, ring.flip(0, 1)]))
    torch.testing.assert_close(found, torch.tensor([[1 / 3] * 3, [1 / 7, 2 / 7, 4 / 7]]))


@pytest.mark.parametrize("n", [1, 2, 4])
def test_second_derivatives_are_those_of_finite_differences(n: int) -> None:
    rates, mask = chains(n)

    def loss(q: Tensor) -> Tensor:
        return stationary_distribution(q, mask)[:, 0].log().sum()

    along = change(rates)
    expected = slope(grad(loss), rates, along)
    second = hessian(loss)(rates)
    torch.testing.assert_close((second * along).sum((3, 4, 5)), expected, rtol=1e-6, atol=1e-8)
    leaf = rates.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    (found,) = torch.autograd.grad((first * along).sum(), leaf)
    torch.testing.assert_close(found, (second * along).sum((3, 4, 5)), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("orders", list(itertools.product([jacfwd, jacrev], repeat=2)))
def test_second_derivatives_do_not_depend_on_the_order_of_the_modes(
    orders: tuple[Callable[..., Law], Callable[..., Law]],
) -> None:
    rates, mask = chains(3)
    outer, inner = orders
    found = outer(inner(lambda q: solve_chain(q, mask)[:, 0].log().sum()))(rates)
    expected = hessian(lambda q: solve_chain(q, mask)[:, 0].log().sum())(rates)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13)


def test_forward_over_reverse_by_dual_numbers() -> None:
    rates, mask = chains(4)

    def gradient(q: Tensor) -> Tensor:
        followed = q if q.requires_grad else q.clone().requires_grad_()
        return torch.autograd.grad(solve_chain(followed, mask)[:, 0].log().sum(), followed)[0]

    along = change(rates)
    found = by_dual_numbers(gradient, rates.clone().requires_grad_(), along)
    torch.testing.assert_close(found, slope(gradient, rates, along), rtol=1e-6, atol=1e-8)


def test_gradgradcheck_and_gradcheck_in_both_modes() -> None:
    rates, mask = chains(3)
    function = partial(solve_chain, mask=mask)
    leaf = rates.requires_grad_()
    assert torch.autograd.gradcheck(function, leaf, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(function, leaf, check_fwd_over_rev=True, check_rev_over_rev=True)


def test_what_a_gradient_holds_at_padding_counts_for_nothing_in_second_derivatives() -> None:
    rates, mask = chains(3)
    leaf = rates.requires_grad_()
    p = solve_chain(leaf, mask)
    given = torch.ones_like(p).masked_fill(~mask, torch.nan).cumsum(1).requires_grad_()
    (first,) = torch.autograd.grad(p, leaf, given, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), leaf)
    assert torch.isfinite(second).all()
    assert second.abs().max() > 0


# -- under the compiler -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [False, True])
def test_the_checked_law_is_compiled_in_one_graph_with_its_gradient(zeros: bool) -> None:
    rates, mask = chains(4)
    rates[:, 0, 1:] = 0.0 if zeros else rates[:, 0, 1:]  # then 0 comes first among the states
    compiled = torch.compile(stationary_distribution, backend="aot_eager", fullgraph=True)
    found: list[Tensor] = []
    expected: list[Tensor] = []
    for function, values in ((compiled, found), (stationary_distribution, expected)):
        leaf = rates.clone().requires_grad_()
        p = function(leaf, mask)
        values += [p.detach(), *torch.autograd.grad(p[:, 0].sum() + p[:, 1].sum(), leaf)]
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("way", [partial(torch.compile, backend="aot_eager", fullgraph=True), vmap])
def test_the_checks_speak_up_under_a_compiler_and_vmap(way: Callable[[Law], Law]) -> None:
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
        ((2, 3, 4), (2, 3), r"rates: expected a floating type and shape \(..., n, n\), got torch.float32 \(2, 3, 4\)"),
        ((2, 3, 3), (2, 4), r"mask: expected shape \(2, 3\), got \(2, 4\)"),
    ],
)
def test_the_compiler_tells_a_wrong_shape_in_our_words(
    shape: tuple[int, ...], mask: tuple[int, ...], message: str
) -> None:
    given = torch.ones(shape), torch.ones(mask, dtype=torch.bool)
    torch.compiler.reset()  # of a shape that broke the graph, nothing is compiled again
    with pytest.raises(torch._dynamo.exc.Unsupported, match=message):
        torch.compile(stationary_distribution, backend="eager", fullgraph=True)(*given)
    with pytest.raises(ChainError, match=message):
        torch.compile(stationary_distribution, backend="eager")(*given)


def test_under_nested_vmaps_a_set_is_named_by_its_place() -> None:
    rates = torch.ones(2, 3, 4, 4)
    rates[1, 2, 0, 1] = torch.nan
    with pytest.raises(ChainError, match=r"choice set \(1, 2\): expected the rate from 0 to 1 .* got nan"):
        vmap(vmap(stationary_distribution))(rates)
