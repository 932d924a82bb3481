"""Values by hand, agreement with the dense layer and 100-digit arithmetic, properties, types and errors."""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, vmap

from pcmcnet.errors import ChainError
from pcmcnet.layers import factored_distribution, stationary_distribution

SEEDS = st.integers(0, 2**32 - 1)
TEN = math.log(10)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def random_factors(*shape: int, seed: int, spread: float = 1.0, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Draw log u and log v (*shape), uniform between -spread and spread."""
    gen = torch.Generator().manual_seed(seed)
    uniform = torch.rand(2, *shape, generator=gen, dtype=torch.float64)
    return [(spread * (2 * x - 1)).to(dtype) for x in uniform]


def rates_of(log_u: Tensor, log_v: Tensor) -> Tensor:  # (..., n, r), (..., n, r) -> (..., n, n)
    """Return q_ij = sum_k u_ik v_jk in float64."""
    return log_u.double().exp() @ log_v.double().exp().mT


# -- values worked out by hand ------------------------------------------------------------------------------------


@given(utilities=st.lists(st.floats(-40, 40), min_size=1, max_size=8), seed=SEEDS)
def test_one_factor_is_a_multinomial_logit(utilities: list[float], seed: int) -> None:
    """With q_ij = u_i v_j, pi_i = v_i / u_i balances every pair: pi_i q_ij = v_i v_j = pi_j q_ji."""
    v = torch.tensor(utilities, dtype=torch.float64).unsqueeze(1)
    u = random_factors(len(v), 1, seed=seed, spread=5)[0]
    torch.testing.assert_close(factored_distribution(u, v), (v - u).softmax(0).squeeze(1), rtol=1e-13, atol=0)


def test_two_alternatives_and_two_factors_by_hand() -> None:
    """u = (1 2; 3 1) and v = (1 2; 2 1): q_01 = 1 2 + 2 1 = 4 and q_10 = 3 1 + 1 2 = 5, so p = (5, 4) / 9.

    By factors: V = (3, 3), d = (9, 12), w = (1/3 2/3; 3/4 1/4), a = (1/3 2/3; 2/3 1/3). P_01 = 1/3 2/3 + 2/3 1/4 = 7/18
    and P_10 = 2/3 1/3 + 1/3 3/4 = 17/36, so b = (17, 14) / 31. e = (15, 16) / 31, and e / d is as 5/3 to 4/3.
    """
    u, v = torch.tensor([[1.0, 2.0], [3.0, 1.0]]).double(), torch.tensor([[1.0, 2.0], [2.0, 1.0]]).double()
    expected = torch.tensor([5.0, 4.0]).double() / 9
    torch.testing.assert_close(factored_distribution(u.log(), v.log()), expected, rtol=0, atol=1e-15)


def test_three_alternatives_and_two_factors_by_hand() -> None:
    """u = (1 1; 1 2; 2 1) and v = (1 2; 2 1; 1 1) give q_01, q_02 = 3, 2; q_10, q_12 = 5, 3; q_20, q_21 = 4, 5.

    By the trees that lead to each state, p_0 ~ q_10 q_20 + q_10 q_21 + q_12 q_20 = 20 + 25 + 12 = 57,
    p_1 ~ q_01 q_21 + q_01 q_20 + q_02 q_21 = 15 + 12 + 10 = 37, p_2 ~ q_02 q_12 + q_02 q_10 + q_01 q_12 = 6 + 10 + 9.
    """
    u = torch.tensor([[1, 1], [1, 2], [2, 1]], dtype=torch.float64)
    v = torch.tensor([[1, 2], [2, 1], [1, 1]], dtype=torch.float64)
    expected = torch.tensor([57, 37, 25], dtype=torch.float64) / 119
    torch.testing.assert_close(factored_distribution(u.log(), v.log()), expected, rtol=0, atol=1e-15)


def test_one_factor_per_alternative_gives_any_chain() -> None:
    """The same flow crosses every arrow of the cycle 0 -> 1 -> 2 -> 0 with rates 1, 2, 4, so p = (4, 2, 1) / 7.

    Factor k leaves alternative k only, and leads to the next one only; e^-100 instead of 0 changes nothing.
    """
    u = torch.full((3, 3), -100.0, dtype=torch.float64)
    u.diagonal().copy_(torch.tensor([1.0, 2.0, 4.0]).double().log())
    v = torch.full((3, 3), -100.0, dtype=torch.float64)
    v[[1, 2, 0], [0, 1, 2]] = 0.0
    expected = torch.tensor([4, 2, 1], dtype=torch.float64) / 7
    torch.testing.assert_close(factored_distribution(u, v), expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("rank", [1, 5])
def test_one_alternative_has_probability_1(rank: int) -> None:
    u, v = (x.requires_grad_() for x in random_factors(2, 1, rank, seed=0, spread=300))
    p = factored_distribution(u, v)
    gradients = torch.autograd.grad(p.sum(), [u, v])
    assert p.tolist() == [[1.0], [1.0]]
    assert not any(gradient.any() for gradient in gradients)


# -- accuracy -----------------------------------------------------------------------------------------------------


@given(n=st.integers(1, 200), rank=st.integers(1, 32), spread=st.floats(0, 5 * TEN), seed=SEEDS)
def test_it_equals_the_dense_chain(n: int, rank: int, spread: float, seed: int) -> None:
    """Rates are up to 20 orders of magnitude apart. In float32, the result of float64 is rounded once."""
    u, v = random_factors(n, rank, seed=seed, spread=spread)
    dense = stationary_distribution(rates_of(u, v))
    p = factored_distribution(u, v)
    torch.testing.assert_close(p, dense, rtol=1e-11, atol=0)
    assert p.sum().item() == pytest.approx(1, rel=1e-13)
    single = factored_distribution(u.float(), v.float())
    exact = stationary_distribution(rates_of(u.float(), v.float()))
    assert single.dtype == torch.float32
    assert (single > 0).all()
    torch.testing.assert_close(single.double(), exact, rtol=1e-6, atol=1e-45)  # the smallest number of float32


def exact_distribution(log_u: Tensor, log_v: Tensor) -> list[Any]:
    """Solve the balance equations of the rates with 100 digits, by an LU factorisation, which does subtract."""
    n, rank = log_u.shape
    u, v = ([[mpmath.exp(x) for x in row] for row in logs.tolist()] for logs in (log_u, log_v))
    balance = mpmath.matrix(n)
    for i, j in itertools.product(range(n), repeat=2):
        if i != j:
            rate = mpmath.fsum(u[i][k] * v[j][k] for k in range(rank))
            balance[j, i] += rate
            balance[i, i] -= rate
    for i in range(n):
        balance[0, i] = mpmath.mpf(1)  # the first equation follows from the others
    return list(mpmath.lu_solve(balance, mpmath.matrix([1] + [0] * (n - 1))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "rank"), [(2, 1), (3, 2), (7, 12), (15, 3)])
@pytest.mark.parametrize("orders", [1, 20, 60])
@pytest.mark.parametrize("device", DEVICES)
def test_every_probability_matches_100_digits(n: int, rank: int, orders: int, dtype: torch.dtype, device: str) -> None:
    """The rates span the given orders of magnitude."""
    u, v = random_factors(n, rank, seed=n + orders, spread=orders * TEN / 4, dtype=dtype)
    with mpmath.workdps(300):
        exact = exact_distribution(u, v)
        p = factored_distribution(u.to(device), v.to(device)).tolist()
        errors = [abs(ours / other - 1) for ours, other in zip(p, exact, strict=True) if other > 1e-37]
    assert len(errors) == n or orders == 60
    assert max(errors) < (1e-6 if dtype == torch.float32 else 1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "rank"), [(50, 16), (1_000, 16), (300, 32), (1_500, 16), (200, 100)])
def test_probabilities_on_a_gpu_are_accurate_over_20_orders_of_magnitude(n: int, rank: int) -> None:
    """By the kernels of the solution, and by operators for large sets or many factors, against the dense chain."""
    u, v = random_factors(n, rank, seed=n, spread=5 * TEN, dtype=torch.float32)
    exact = stationary_distribution(rates_of(u, v))
    p = factored_distribution(u.cuda(), v.cuda()).cpu().double()
    assert float((p / exact - 1).abs().max()) < 1e-6


@pytest.mark.parametrize("spread", [300.0, 3e3, 1e6, 1e30])
def test_values_and_gradients_stay_finite_for_any_factors(spread: float) -> None:
    u, v = (x.requires_grad_() for x in random_factors(30, 12, 6, seed=0, spread=spread))
    p = factored_distribution(u, v)
    gradients = torch.autograd.grad(p[:, :3].sum(), [u, v])
    torch.testing.assert_close(p.sum(1), torch.ones(30, dtype=torch.float64))
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_factors_that_hardly_ever_follow_each_other_keep_their_gradient() -> None:
    """Factor 0 moves within {0, 1} and factor 1 within {2, 3}; rates of about e^-60 lead from one group to the other.

    Inside a group, rates are about 1, and a gradient through differences between the factors would be noise.
    """
    u = torch.full((4, 2), -60.0, dtype=torch.float64)
    v = torch.full((4, 2), -60.0, dtype=torch.float64)
    u[:2, 0] = u[2:, 1] = torch.tensor([0.0, 1.0])
    v[:2, 0] = v[2:, 1] = torch.tensor([0.0, 2.0])
    leaves = u.requires_grad_(), v.requires_grad_()
    ours = [torch.autograd.grad(factored_distribution(*leaves)[i].log(), leaves) for i in range(4)]
    dense = [torch.autograd.grad(stationary_distribution(rates_of(*leaves))[i].log(), leaves) for i in range(4)]
    torch.testing.assert_close(ours, dense, rtol=0, atol=1e-12)
    assert max(float(gradient.abs().max()) for pair in ours for gradient in pair) > 0.5


# -- properties of every chain ------------------------------------------------------------------------------------


@given(n=st.integers(2, 9), rank=st.integers(1, 5), seed=SEEDS)
def test_it_follows_relabelling_of_alternatives_and_of_factors(n: int, rank: int, seed: int) -> None:
    u, v = random_factors(n, rank, seed=seed, spread=10)
    gen = torch.Generator().manual_seed(seed)
    order, places = torch.randperm(n, generator=gen), torch.randperm(rank, generator=gen)
    p = factored_distribution(u, v)
    torch.testing.assert_close(factored_distribution(u[order], v[order]), p[order], rtol=1e-12, atol=0)
    torch.testing.assert_close(factored_distribution(u[:, places], v[:, places]), p, rtol=1e-12, atol=0)


@given(n=st.integers(2, 9), rank=st.integers(1, 5), seed=SEEDS)
def test_scales_act_as_in_a_chain(n: int, rank: int, seed: int) -> None:
    """The rates stay the same with u_k c and v_k / c. If i is left c times as fast, its odds are divided by c."""
    u, v = random_factors(n, rank, seed=seed, spread=3)
    shift, stay = random_factors(max(n, rank), seed=seed + 1, spread=20)
    p = factored_distribution(u, v)
    torch.testing.assert_close(factored_distribution(u + shift[:rank], v - shift[:rank]), p, rtol=1e-12, atol=0)
    slower = factored_distribution(u - stay[:n, None], v)
    torch.testing.assert_close(slower, (p.log() + stay[:n]).softmax(0), rtol=1e-12, atol=0)


@given(n=st.integers(1, 6), rank=st.integers(1, 4), copies=st.integers(2, 5), seed=SEEDS)
def test_copies_share_the_probability_of_their_alternative(n: int, rank: int, copies: int, seed: int) -> None:
    """Uniform expansion: the set contains as many copies of each alternative."""
    u, v = random_factors(n, rank, seed=seed, spread=5)
    for dtype, error in ((torch.float64, 1e-13), (torch.float32, 1e-6)):
        once = factored_distribution(u.to(dtype), v.to(dtype))
        many = factored_distribution(*(x.to(dtype).repeat_interleave(copies, 0) for x in (u, v)))
        torch.testing.assert_close(many, once.repeat_interleave(copies) / copies, rtol=error, atol=0)


@given(seed=SEEDS)
def test_the_probability_of_a_group_does_not_depend_on_rates_within_groups(seed: int) -> None:
    """Contractibility: groups of 1, 2 and 4. Two factors are the same for all members of a group.

    The other factor of each group leads only to its members, from its members, with random rates of up to e^5; its
    rates to other groups, e^-195 at most, change nothing.
    """
    group = torch.tensor([0, 1, 1, 2, 2, 2, 2])
    u, v = (x[group] for x in random_factors(3, 2, seed=seed, spread=2))
    masses, distributions = [], []
    for inside in (seed + 1, seed + 2):
        within = [torch.full((7, 3), -200.0, dtype=torch.float64) for _ in range(2)]
        for own, drawn in zip(within, random_factors(7, seed=inside, spread=5), strict=True):
            own[torch.arange(7), group] = drawn
        p = factored_distribution(torch.cat([u, within[0]], 1), torch.cat([v, within[1]], 1))
        distributions.append(p)
        masses.append(torch.zeros(3, dtype=torch.float64).index_add(0, group, p))
    torch.testing.assert_close(masses[1], masses[0], rtol=1e-12, atol=0)
    assert (distributions[0] - distributions[1]).abs().max() > 1e-4


@given(n=st.integers(2, 7), rank=st.integers(1, 5), seed=SEEDS)
def test_leaving_less_and_entering_more_raises_the_probability(n: int, rank: int, seed: int) -> None:
    u, v = random_factors(2, n, rank, seed=seed, spread=3)
    less, more = random_factors(rank, seed=seed + 1, spread=1)
    u[1], v[1] = u[0], v[0]
    u[1, 0] -= less.abs()
    v[1, 0] += more.abs()
    before, after = factored_distribution(u, v)[:, 0]
    assert after > before


def test_context_effects_need_two_factors() -> None:
    """With the rates by hand, the odds of 0 and 1 are 5 : 3 without alternative 2, and 57 : 37 with it."""
    u = torch.tensor([[1, 1], [1, 2], [2, 1]], dtype=torch.float64).log()
    v = torch.tensor([[1, 2], [2, 1], [1, 1]], dtype=torch.float64).log()
    pair, all_three = factored_distribution(u[:2], v[:2]), factored_distribution(u, v)
    assert (pair[0] / pair[1]).item() == pytest.approx(5 / 3)  # q_10 / q_01
    assert (all_three[0] / all_three[1]).item() == pytest.approx(57 / 37)


@given(n=st.integers(1, 6), rank=st.integers(1, 3), seed=SEEDS, batch=st.lists(st.integers(1, 3), max_size=3))
def test_any_batch_shape_gives_the_distribution_of_each_set(n: int, rank: int, seed: int, batch: list[int]) -> None:
    u, v = random_factors(*batch, n, rank, seed=seed)
    p = factored_distribution(u, v)
    assert p.shape == (*batch, n)
    for index in itertools.product(*map(range, batch)):
        torch.testing.assert_close(p[index], factored_distribution(u[index], v[index]), rtol=1e-13, atol=0)


def test_the_inputs_are_not_changed() -> None:
    u, v = random_factors(3, 5, 2, seed=0)
    mask = torch.tensor([[1, 1, 0, 1, 1]] * 3)
    before = u.clone(), v.clone(), mask.clone()
    factored_distribution(u.requires_grad_(), v, mask)[:, 0].sum().backward()
    assert all(map(torch.equal, (u.detach(), v, mask), before))


# -- types, layouts and empty batches -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_solved_in_float64_and_gets_a_gradient_of_its_type(dtype: torch.dtype) -> None:
    u, v = (x.requires_grad_() for x in random_factors(4, 9, 3, seed=0, dtype=dtype))
    doubles = [x.detach().double().requires_grad_() for x in (u, v)]
    p, exact = factored_distribution(u, v), factored_distribution(*doubles)
    assert p.dtype == torch.float32
    assert torch.equal(p, exact.float())
    gradients = torch.autograd.grad(p[:, 0].sum(), [u, v])
    expected = torch.autograd.grad(exact[:, 0].sum(), doubles)
    for ours, other in zip(gradients, expected, strict=True):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, other.to(dtype), rtol=torch.finfo(dtype).eps, atol=0)  # one rounding


@pytest.mark.parametrize("inner", [torch.float16, torch.bfloat16])
def test_autocast_changes_nothing(inner: torch.dtype) -> None:
    u, v = (x.requires_grad_() for x in random_factors(4, 9, 3, seed=0, spread=20, dtype=torch.float32))
    results = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=inner, enabled=enabled):
            p = factored_distribution(u, v)
            results.append([p, *torch.autograd.grad(p[:, 0].log().sum(), [u, v])])
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_a_mask_may_have_any_type(dtype: torch.dtype) -> None:
    u, v = random_factors(2, 3, 2, seed=0)
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]]).to(dtype)
    assert (factored_distribution(u, v, mask) == 0).tolist() == [[False, False, True], [False] * 3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_factors_may_have_any_memory_layout(dtype: torch.dtype) -> None:
    u, v = random_factors(4, 6, 3, seed=0, dtype=dtype)
    halves = torch.cat([u, v], 2).chunk(2, 2)
    turned = [x.permute(2, 0, 1).contiguous().permute(1, 2, 0) for x in (u, v)]
    weight = torch.arange(6, dtype=dtype).expand(4, 6)
    results = []
    for layout in ([u, v], halves, turned):
        leaves = [x.detach().as_strided(x.shape, x.stride()).requires_grad_() for x in layout]
        p = factored_distribution(*leaves)
        results.append([p, *torch.autograd.grad(p, leaves, weight)])
    assert not any(x.is_contiguous() for x in (*halves, *turned))
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


@pytest.mark.parametrize("batch", [(0,), (0, 3), (2, 0)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_an_empty_batch_gives_an_empty_batch(batch: tuple[int, ...], dtype: torch.dtype) -> None:
    u = torch.ones(*batch, 4, 2, dtype=dtype, requires_grad=True)
    p = factored_distribution(u, u)
    (gradient,) = torch.autograd.grad(p.sum(), u)
    assert p.shape == (*batch, 4)
    assert p.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert gradient.shape == u.shape


# -- under vmap and the compiler ----------------------------------------------------------------------------------


def masked_factors() -> tuple[Tensor, Tensor, Tensor]:
    return *random_factors(3, 4, 2, seed=0), torch.tensor([[1, 1, 1, 1], [1, 0, 1, 1], [0, 0, 1, 0]]).bool()


def test_vmap_over_sets_equals_the_batch() -> None:
    u, v, mask = masked_factors()
    require_close = partial(torch.testing.assert_close, rtol=1e-13, atol=0)
    p = factored_distribution(u, v, mask)
    require_close(vmap(factored_distribution)(u, v, mask), p)
    require_close(vmap(vmap(factored_distribution))(u[None], v[None], mask[None])[0], p)
    alone = vmap(factored_distribution, in_dims=(2, None, None))(u.movedim(0, 2), v[0], mask[0])
    require_close(alone, factored_distribution(u, v[:1].expand_as(v), mask[:1].expand_as(mask)))


def test_vmap_of_grad_gives_the_gradient_of_each_set() -> None:
    u, v, mask = masked_factors()
    leaves = [x.clone().requires_grad_() for x in (u, v)]
    expected = torch.autograd.grad(factored_distribution(*leaves, mask)[:, 2].log().sum(), leaves)
    first = grad(lambda u, v, real: factored_distribution(u, v, real)[2].log(), argnums=(0, 1))
    torch.testing.assert_close(vmap(first)(u, v, mask), expected, rtol=1e-12, atol=1e-15)


def test_distribution_and_gradient_compile_to_one_graph() -> None:
    u, v, mask = masked_factors()
    compiled = torch.compile(factored_distribution, backend="aot_eager", fullgraph=True)
    results = []
    for function in (compiled, factored_distribution):
        leaves = [x.clone().requires_grad_() for x in (u, v)]
        p = function(*leaves, mask)
        results.append([p.detach(), *torch.autograd.grad(p[:, 2].log().sum(), leaves)])
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("way", [partial(torch.compile, backend="aot_eager", fullgraph=True), vmap])
def test_checks_also_raise_under_compile_and_vmap(way: Callable[..., Callable[..., Tensor]]) -> None:
    u, v, mask = masked_factors()
    function = way(factored_distribution)
    function(u, v, mask)
    with pytest.raises(ChainError, match="choice set 0: expected at least one real alternative"):
        function(u, v, mask & torch.tensor([[False], [True], [True]]))
    v[1, 2, 1] = math.nan
    with pytest.raises(ChainError, match=r"log_v, choice set 1, alternative 2, factor 1: .* got nan"):
        function(u, v, mask)


# -- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", [0, 1])
def test_a_value_that_is_not_finite_is_named(bad: float, which: int) -> None:
    factors = random_factors(2, 3, 4, 2, seed=0)
    factors[which][1, 0, 2, 1] = factors[which][1, 2, 0, 0] = bad
    name = ("log_u", "log_v")[which]
    where = rf"{name}, choice set \(1, 0\), alternative 2, factor 1: expected a finite number, got {bad} .*values: 2"
    with pytest.raises(ChainError, match=where):
        factored_distribution(*factors)


def test_values_at_padding_are_not_checked() -> None:
    u, v = random_factors(2, 3, 2, seed=0)
    mask = torch.tensor([[1, 1, 1], [1, 0, 1]])
    expected = factored_distribution(u, v, mask)
    u[1, 1], v[1, 1] = math.nan, math.inf
    assert torch.equal(factored_distribution(u, v, mask), expected)


def test_an_empty_set_is_named() -> None:
    u, v = random_factors(3, 4, 2, seed=0)
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0]])
    with pytest.raises(ChainError, match="choice set 1: expected at least one real alternative"):
        factored_distribution(u, v, mask)


@pytest.mark.parametrize("shape", [(3,), ()])
def test_factors_without_two_dimensions_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ChainError, match=r"log_u: expected .* shape \(\.\.\., n, r\), got torch\.float32 \("):
        factored_distribution(torch.ones(shape), torch.ones(shape))


@pytest.mark.parametrize("shape", [(0, 2), (3, 0), (2, 0, 3)])
def test_factors_without_alternatives_or_factors_are_refused(shape: tuple[int, ...]) -> None:
    message = f"at least one alternative and one factor, got n = {shape[-2]} and r = {shape[-1]}"
    with pytest.raises(ChainError, match=message):
        factored_distribution(torch.ones(shape), torch.ones(shape))


def test_factors_of_two_shapes_are_refused() -> None:
    with pytest.raises(ChainError, match=r"log_v: expected the shape of log_u, \(3, 2\), got \(3, 1\)"):
        factored_distribution(torch.ones(3, 2), torch.ones(3, 1))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_factors_that_are_not_floats_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ChainError, match=rf"log_v: expected a floating-point dtype .* got {dtype}"):
        factored_distribution(torch.ones(2, 2), torch.ones(2, 2, dtype=dtype))


@pytest.mark.parametrize("shape", [(3,), (2, 4), (1, 3), (2, 3, 1)])
def test_a_mask_of_another_shape_is_not_broadcast(shape: tuple[int, ...]) -> None:
    with pytest.raises(ChainError, match=r"mask: expected shape \(2, 3\), got \("):
        factored_distribution(torch.ones(2, 3, 2), torch.ones(2, 3, 2), torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize("value", [[[0.0]], np.ones((2, 2)), None])
def test_values_that_are_not_tensors_are_refused(value: Any) -> None:
    message = f"expected a torch.Tensor, got {type(value).__name__}: use torch.as_tensor"
    for arguments in ((value, torch.ones(2, 2)), (torch.ones(2, 2), value)):
        with pytest.raises(ChainError, match=message):
            factored_distribution(*arguments)
    if value is not None:
        with pytest.raises(ChainError, match=f"mask: {message}"):
            factored_distribution(torch.ones(2, 2), torch.ones(2, 2), value)


@pytest.mark.parametrize("kind", ["float8", "sparse", "nested", "meta"])
def test_tensors_of_unusual_types_are_refused(kind: str) -> None:
    ones = torch.ones(2, 2)
    tensors = {
        "float8": lambda: ones.to(torch.float8_e5m2),
        "sparse": ones.to_sparse,
        "nested": lambda: torch.nested.as_nested_tensor([ones], layout=torch.jagged),
        "meta": lambda: ones.to("meta"),
    }
    with pytest.raises(ChainError, match="log_u: expected"):
        factored_distribution(tensors[kind](), ones)
