"""Values by hand, properties of every chain, gradients, padding, zeros and errors; accuracy is in test_exact."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pcmcnet.errors import ChainError, PcmcNetError
from pcmcnet.layers.stationary import solve_chain, stationary_distribution

pytestmark = pytest.mark.usefixtures("solver")  # runs every test with each solver

Edge = tuple[int, int]
SEEDS = st.integers(0, 2**32 - 1)


def random_rates(*shape: int, seed: int, sigma: float = 2.0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Draw log-normal rates (*shape, shape[-1])."""
    gen = torch.Generator().manual_seed(seed)
    return torch.exp(sigma * torch.randn(*shape, shape[-1], generator=gen, dtype=torch.float64)).to(dtype)


def generator_matrix(rates: Tensor) -> Tensor:  # (..., n, n) -> (..., n, n)
    """Put minus the row sums on the diagonal."""
    off = rates * (1 - torch.eye(rates.shape[-1], dtype=rates.dtype))
    return off - torch.diag_embed(off.sum(-1))


def dense_distribution(rates: Tensor) -> Tensor:  # (..., n, n) -> (..., n)
    """Solve the balance equations, one replaced by sum(p) = 1, by LU with autograd, as the paper does."""
    G, n = generator_matrix(rates), rates.shape[-1]
    one = torch.ones(*rates.shape[:-2], n, 1, dtype=rates.dtype)
    A = torch.cat([G[..., :-1], one], -1).mT
    b = torch.zeros(*rates.shape[:-1], 1, dtype=rates.dtype)
    b[..., -1, 0] = 1
    p: Tensor = torch.linalg.solve(A, b)
    return p.squeeze(-1)


def test_stationary_matches_a_birth_death_chain() -> None:
    """0 <-> 1 <-> 2 with rates 1, 2 and 3, 1.

    Detailed balance: p_0 * 1 = p_1 * 2 and p_1 * 3 = p_2 * 1, so p = (2, 1, 3) / 6.
    """
    rates = torch.tensor([[[0, 1, 0], [2, 0, 3], [0, 1, 0]]], dtype=torch.float64)
    expected = torch.tensor([[2, 1, 3]], dtype=torch.float64) / 6
    torch.testing.assert_close(stationary_distribution(rates), expected, rtol=0, atol=1e-15)


def test_stationary_matches_a_one_way_cycle() -> None:
    """0 -> 1 -> 2 -> 0 with rates 1, 2, 4.

    The same flow crosses every arrow, p_0 * 1 = p_1 * 2 = p_2 * 4, so p = (4, 2, 1) / 7. A solve with the
    transpose forgotten, or with leaving and entering swapped, gives another distribution.
    """
    rates = torch.tensor([[0, 1, 0], [0, 0, 2], [4, 0, 0]], dtype=torch.float64)
    expected = torch.tensor([4, 2, 1], dtype=torch.float64) / 7
    torch.testing.assert_close(stationary_distribution(rates), expected, rtol=0, atol=1e-15)


def test_a_rare_transition_is_kept_that_lu_loses() -> None:
    """0 <-> 1 at rate 1; 0 -> 2 at rate r and 2 -> 0 at rate 3 r, with r = 2^-30.

    Balance at 1: p_0 = p_1. Balance at 2: p_0 r = p_2 3 r. So p = (3, 3, 1) / 7 for any r. In float32 the
    diagonal entry -(1 + r) rounds to -1, and with it LU loses the way from 0 to 2: it finds p_2 = 0.
    """
    r = 2.0**-30
    rates = torch.tensor([[0, 1, r], [1, 0, 0], [3 * r, 0, 0]], dtype=torch.float32)
    expected = torch.tensor([3, 3, 1], dtype=torch.float32) / 7
    torch.testing.assert_close(stationary_distribution(rates), expected, rtol=1e-7, atol=0)
    assert abs(dense_distribution(rates)[2].item()) < 1e-6  # instead of 1/7


@pytest.mark.parametrize("rates", [0.0, 5.0, math.nan])
def test_one_alternative_has_probability_1(rates: float) -> None:
    x = torch.full((2, 1, 1), rates, requires_grad=True)
    p = stationary_distribution(x)
    (grad,) = torch.autograd.grad(p.sum(), x)
    assert p.tolist() == [[1.0], [1.0]]
    assert grad.tolist() == [[[0.0]], [[0.0]]]


# -- properties of every chain ------------------------------------------------------------------------------------


@given(n=st.integers(1, 9), seed=SEEDS, sigma=st.floats(0, 10))
def test_the_distribution_sums_to_one_and_balances_every_state(n: int, seed: int, sigma: float) -> None:
    rates = random_rates(n, seed=seed, sigma=sigma)
    p = stationary_distribution(rates)
    off = rates * (1 - torch.eye(n, dtype=torch.float64))
    assert (p > 0).all()
    assert p.sum().item() == pytest.approx(1, rel=1e-14)
    torch.testing.assert_close(p @ off, p * off.sum(1), rtol=1e-12, atol=0)  # flow in = flow out


@given(n=st.integers(2, 9), seed=SEEDS, log_scale=st.floats(-280, 280))
def test_the_distribution_ignores_the_time_scale(n: int, seed: int, log_scale: float) -> None:
    rates = random_rates(n, seed=seed)
    p = stationary_distribution(rates)
    torch.testing.assert_close(stationary_distribution(rates * 10**log_scale), p, rtol=1e-12, atol=0)


@given(n=st.integers(2, 9), seed=SEEDS)
def test_the_distribution_follows_relabelling(n: int, seed: int) -> None:
    rates = random_rates(n, seed=seed)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    p = stationary_distribution(rates)
    torch.testing.assert_close(stationary_distribution(rates[order][:, order]), p[order], rtol=1e-12, atol=0)


@given(n=st.integers(1, 6), seed=SEEDS, batch=st.lists(st.integers(1, 3), max_size=3))
def test_any_batch_shape_gives_the_distribution_of_each_set(n: int, seed: int, batch: list[int]) -> None:
    rates = random_rates(*batch, n, seed=seed)
    p = stationary_distribution(rates)
    assert p.shape == (*batch, n)
    for index in itertools.product(*map(range, batch)):
        torch.testing.assert_close(p[index], stationary_distribution(rates[index]), rtol=1e-14, atol=0)


@given(weights=st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=8))
def test_rates_that_depend_on_the_target_give_a_logit(weights: list[float]) -> None:
    """With q_ij = w_j detailed balance p_i w_j = p_j w_i gives p_i = w_i / sum(w)."""
    w = torch.tensor(weights, dtype=torch.float64)
    torch.testing.assert_close(stationary_distribution(w.expand(len(w), -1)), w / w.sum(), rtol=1e-13, atol=0)


def test_the_diagonal_is_ignored() -> None:
    rates = random_rates(4, seed=0)
    with_nan = rates + torch.diag(torch.full((4,), math.nan, dtype=torch.float64))
    torch.testing.assert_close(stationary_distribution(with_nan), stationary_distribution(rates), rtol=0, atol=0)


def test_the_inputs_are_not_changed() -> None:
    rates, mask = random_rates(3, 5, seed=0), torch.tensor([[1, 1, 0, 1, 1]] * 3)
    before, mask_before = rates.clone(), mask.clone()
    stationary_distribution(rates, mask)
    assert torch.equal(rates, before)
    assert torch.equal(mask, mask_before)


# -- gradients ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_gradient_agrees_with_finite_differences(n: int) -> None:
    rates = random_rates(2, 2, n, seed=n, sigma=1).requires_grad_()
    assert torch.autograd.gradcheck(stationary_distribution, rates)


def test_gradient_with_scattered_padding_agrees_with_differences() -> None:
    rates = random_rates(4, 5, seed=0, sigma=1).requires_grad_()
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 0, 1, 1], [1, 0, 0, 0, 1], [0, 0, 1, 0, 0]])
    assert torch.autograd.gradcheck(lambda q: stationary_distribution(q, mask), rates)


@given(n=st.integers(2, 8), seed=SEEDS)
def test_gradient_matches_an_independent_dense_solve(n: int, seed: int) -> None:
    rates = random_rates(3, n, seed=seed, sigma=1).requires_grad_()
    weight = torch.randn(3, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    (ours,) = torch.autograd.grad((weight * stationary_distribution(rates)).sum(), rates)
    (dense,) = torch.autograd.grad((weight * dense_distribution(rates)).sum(), rates)
    torch.testing.assert_close(ours, dense, rtol=1e-9, atol=1e-12)  # the dense solve's own rounding


@given(n=st.integers(2, 8), seed=SEEDS)
def test_gradient_has_no_component_along_the_time_scale(n: int, seed: int) -> None:
    """The distribution is constant along rates * t, so by Euler sum(q * dL/dq) = 0."""
    rates = random_rates(n, seed=seed, sigma=5).requires_grad_()
    (grad,) = torch.autograd.grad(stationary_distribution(rates)[0].log(), rates)
    assert (rates * grad).sum().item() == pytest.approx(0, abs=1e-12)


# -- padding ------------------------------------------------------------------------------------------------------


@given(n=st.integers(1, 6), extra=st.integers(1, 4), seed=SEEDS, filler=st.sampled_from([0.0, 1e30, -1.0, math.nan]))
def test_padding_is_invisible_in_any_position(n: int, extra: int, seed: int, filler: float) -> None:
    rates = random_rates(n, seed=seed, dtype=torch.float32).requires_grad_()
    alone = stationary_distribution(rates)
    (grad_alone,) = torch.autograd.grad(alone[0].log(), rates)

    places = torch.randperm(n + extra, generator=torch.Generator().manual_seed(seed))[:n]
    padded = torch.full((n + extra, n + extra), filler)
    padded[places.unsqueeze(1), places] = rates.detach()
    padded.requires_grad_()
    mask = torch.zeros(n + extra, dtype=torch.bool)
    mask[places] = True
    p = stationary_distribution(padded, mask)
    (grad,) = torch.autograd.grad(p[places[0]].log(), padded)

    assert (p[~mask] == 0).all()
    assert (grad[~mask] == 0).all()
    assert (grad[:, ~mask] == 0).all()
    torch.testing.assert_close(p[places], alone, rtol=2e-7, atol=0)  # both are rounded to float32
    torch.testing.assert_close(grad[places][:, places], grad_alone, rtol=1e-6, atol=1e-12)


@given(sizes=st.lists(st.integers(1, 7), min_size=1, max_size=6), seed=SEEDS)
def test_a_set_gives_the_same_result_alone_and_in_a_batch(sizes: list[int], seed: int) -> None:
    n = max(sizes)
    rates = random_rates(len(sizes), n, seed=seed).requires_grad_()
    mask = torch.arange(n) < torch.tensor(sizes).unsqueeze(1)
    p = stationary_distribution(rates, mask)
    (grad,) = torch.autograd.grad(p[:, 0].log().sum(), rates)
    for b, size in enumerate(sizes):
        alone_rates = rates[b, :size, :size].detach().requires_grad_()
        alone = stationary_distribution(alone_rates)
        (grad_alone,) = torch.autograd.grad(alone[0].log(), alone_rates)
        torch.testing.assert_close(p[b, :size], alone, rtol=1e-14, atol=0)
        torch.testing.assert_close(grad[b, :size, :size], grad_alone, rtol=1e-12, atol=1e-15)
        assert (grad[b, size:] == 0).all()
        assert (grad[b, :, size:] == 0).all()


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_gradients_at_padding_have_no_effect(poison: float) -> None:
    """log(p) at padding has the gradient 0 / 0; taking logs before masking must not give NaN."""
    rates, mask = random_rates(2, 4, seed=0).requires_grad_(), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    weight = torch.tensor([[1.0, 2.0, 3.0, poison], [1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)
    (grad,) = torch.autograd.grad(stationary_distribution(rates, mask), rates, weight)
    (expected,) = torch.autograd.grad(stationary_distribution(rates, mask), rates, weight.nan_to_num(0, 0))
    assert torch.isfinite(expected).all()
    assert torch.equal(grad, expected)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_a_mask_may_have_any_type(dtype: torch.dtype) -> None:
    rates, mask = random_rates(2, 3, seed=0), torch.tensor([[1, 1, 0], [1, 1, 1]])
    assert (stationary_distribution(rates, mask.to(dtype)) == 0).tolist() == [[False, False, True], [False] * 3]


# -- zero rates ---------------------------------------------------------------------------------------------------


def in_trees(n: int, root: int) -> Iterator[list[Edge]]:
    """Yield the spanning trees whose edges (i, parent of i) all lead to the root."""
    other_states = [i for i in range(n) if i != root]
    for parents in itertools.product(range(n), repeat=n - 1):
        parent = dict(zip(other_states, parents, strict=True))
        ends = []
        for i in other_states:
            for _ in range(n - 1):
                i = parent.get(i, root)
            ends.append(i)
        if all(end == root for end in ends):
            yield list(parent.items())


def tree_distribution(rates: Any, weight: Any) -> tuple[Any, Any, Any]:
    """Return p (B, n), d(weight . p)/dq (B, n, n) and whether p is unique (B,), by the Markov chain tree theorem.

    p_i is proportional to the sum, over the trees that lead to i, of the products of their rates. The theorem
    shares nothing with an elimination and holds with zero rates. The distribution is not unique exactly if no
    state has a tree of positive rates that leads to it.
    """
    B, n, _ = rates.shape
    total, slope = np.zeros((B, n)), np.zeros((B, n, n, n))  # slope[b, i] is the derivative of total[b, i]
    for root in range(n):
        for tree in in_trees(n, root):
            total[:, root] += np.prod([rates[:, i, j] for i, j in tree], axis=0)
            for i, j in tree:
                other_rates = [rates[:, a, b] for a, b in tree if (a, b) != (i, j)]
                slope[:, root, i, j] += np.prod(other_rates, axis=0)
    mass = total.sum(1)
    exists = mass > 0
    p = total / np.where(exists, mass, 1)[:, None]
    lean = weight - (weight * p).sum(1, keepdims=True)
    return p, np.einsum("bi,bijk->bjk", lean, slope) / np.where(exists, mass, 1)[:, None, None], exists


def patterns(n: int) -> Any:
    """Return all matrices (B, n, n) of zeros and ones with a zero diagonal."""
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    rates = np.zeros((2 ** len(pairs), n, n))
    for k, (i, j) in enumerate(pairs):
        rates[:, i, j] = np.arange(len(rates)) >> k & 1
    return rates


def test_the_number_of_trees_matches_cayleys_formula() -> None:
    """n labelled states have n^(n-2) trees, so as many lead to each root."""
    assert [len(list(in_trees(n, 0))) for n in (2, 3, 4, 5)] == [1, 3, 16, 125]


@pytest.mark.parametrize("n", [2, 3, 4])
def test_every_pattern_of_zeros_has_its_distribution_and_gradient(n: int) -> None:
    """This includes transient states in every position; the gradient at a zero is the derivative from the right."""
    rates = patterns(n)
    weight = np.random.default_rng(n).normal(size=(len(rates), n))
    p, grad, exists = tree_distribution(rates, weight)
    assert exists.any()
    assert ((p == 0) & exists[:, None]).any(0).all()  # every state is transient in some chain
    q = torch.from_numpy(rates[exists]).requires_grad_()
    ours = stationary_distribution(q)
    (ours_grad,) = torch.autograd.grad(ours, q, torch.from_numpy(weight[exists]))
    torch.testing.assert_close(ours, torch.from_numpy(p[exists]), rtol=1e-14, atol=0)
    torch.testing.assert_close(ours_grad, torch.from_numpy(grad[exists]), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_every_pattern_with_two_closed_classes_is_refused(n: int) -> None:
    rates = patterns(n)
    exists = tree_distribution(rates, np.ones((len(rates), n)))[2]
    assert not exists[0]  # all rates are zero
    for bad in rates[~exists]:
        with pytest.raises(ChainError, match=r"the chain: the chain has two or more closed classes"):
            stationary_distribution(torch.from_numpy(bad))
    first, count = np.flatnonzero(~exists)[0], np.count_nonzero(~exists)
    with pytest.raises(ChainError, match=rf"choice set {first}: .* not unique .such sets: {count}"):
        stationary_distribution(torch.from_numpy(rates))


@given(
    n=st.integers(2, 4),
    seed=SEEDS,
    zeros=st.floats(0.1, 0.7),
    sigma=st.floats(0, 20),
)
def test_zeros_among_random_rates_match_the_tree_theorem(n: int, seed: int, zeros: float, sigma: float) -> None:
    rng = np.random.default_rng(seed)
    rates = np.exp(sigma * rng.normal(size=(32, n, n))) * (rng.random((32, n, n)) > zeros)
    p, _, exists = tree_distribution(rates, np.ones((32, n)))
    if exists.any():
        ours = stationary_distribution(torch.from_numpy(rates[exists]))
        torch.testing.assert_close(ours, torch.from_numpy(p[exists]), rtol=1e-13, atol=0)


def test_zeros_in_one_set_do_not_change_the_others() -> None:
    rates = random_rates(2, 4, seed=0)
    alone = stationary_distribution(rates[1])
    rates[0, :, 0] = 0  # state 0 becomes transient, so this set is reordered
    both = stationary_distribution(rates)
    assert both[0, 0] == 0
    torch.testing.assert_close(both[1], alone, rtol=1e-14, atol=0)


@pytest.mark.parametrize("filler", [0.0, 1.0, math.nan])
def test_every_pattern_of_zeros_is_solved_among_padding(filler: float) -> None:
    """States 0, 1, 2 of a pattern are at positions 3, 1, 4 of five; positions 0 and 2 must have no effect."""
    rates, places, mask = patterns(3), torch.tensor([3, 1, 4]), torch.tensor([False, True, False, True, True])
    p, _, exists = tree_distribution(rates, np.ones((len(rates), 3)))
    padded = torch.full((len(rates), 5, 5), filler, dtype=torch.float64)
    padded[:, places.unsqueeze(1), places] = torch.from_numpy(rates)
    ours = stationary_distribution(padded[exists], mask.expand(len(p[exists]), -1))
    torch.testing.assert_close(ours[:, places], torch.from_numpy(p[exists]), rtol=1e-14, atol=0)
    assert (ours[:, ~mask] == 0).all()
    with pytest.raises(ChainError, match=rf"such sets: {np.count_nonzero(~exists)}"):
        stationary_distribution(padded, mask.expand(len(rates), -1))


def test_a_sparse_ring_of_many_states_is_solved() -> None:
    """A one-way ring of equal rates is uniform; the longest path to the root takes all n - 1 steps."""
    rates = torch.roll(torch.eye(37, dtype=torch.float64), 1, dims=1)
    torch.testing.assert_close(stationary_distribution(rates), torch.full((37,), 1 / 37, dtype=torch.float64))


# -- errors -------------------------------------------------------------------------------------------------------


def test_two_closed_classes_are_named_with_their_position() -> None:
    rates = random_rates(2, 3, 4, seed=0)
    rates[1, 2, :2, 2:] = 0
    rates[1, 2, 2:, :2] = 0
    with pytest.raises(ChainError, match=r"choice set \(1, 2\): .* two or more closed classes.*such sets: 1"):
        stationary_distribution(rates)


@pytest.mark.parametrize(
    ("bad", "shown"), [(-1.0, r"-1\.0"), (math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")]
)
def test_an_invalid_rate_is_named(bad: float, shown: str) -> None:
    rates = random_rates(2, 3, 4, seed=0)
    rates[1, 0, 2, 3] = rates[1, 2, 0, 1] = bad
    where = rf"choice set \(1, 0\): expected the rate from 2 to 3 .*, got {shown} \(invalid rates: 2\)"
    with pytest.raises(ChainError, match=where):
        stationary_distribution(rates)


def test_an_empty_set_is_named() -> None:
    rates, mask = random_rates(3, 4, seed=0), torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0]])
    with pytest.raises(ChainError, match="choice set 1: expected at least one real alternative"):
        stationary_distribution(rates, mask)


@pytest.mark.parametrize("shape", [(3,), (3, 4), (2, 3, 4), ()])
def test_rates_that_are_not_square_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ChainError, match=r"shape \(\.\.\., n, n\), got torch\.float32 \("):
        stationary_distribution(torch.ones(shape))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_rates_that_are_not_floats_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ChainError, match=rf"expected a floating-point dtype .* got {dtype}"):
        stationary_distribution(torch.ones(2, 2, dtype=dtype))


@pytest.mark.parametrize("shape", [(3,), (2, 4), (1, 3), (2, 3, 1)])
def test_a_mask_of_another_shape_is_not_broadcast(shape: tuple[int, ...]) -> None:
    with pytest.raises(ChainError, match=r"mask: expected shape \(2, 3\), got \("):
        stationary_distribution(torch.ones(2, 3, 3), torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize("batch", [(), (2,), (0,)])
def test_rates_without_alternatives_are_refused(batch: tuple[int, ...]) -> None:
    with pytest.raises(ChainError, match="at least one alternative per choice set, got n = 0"):
        stationary_distribution(torch.ones(*batch, 0, 0))


def test_rates_beyond_the_range_of_float64_are_refused() -> None:
    """States 1 and 2 alternate: both rates to 0 are too small for the quotients in float64."""
    rates = torch.tensor([[0, 1, 1], [1e-300, 0, 1e300], [1e-300, 1e300, 0]], dtype=torch.float64)
    with pytest.raises(ChainError, match="choice set 0: the rates span more orders of magnitude"):
        stationary_distribution(rates.unsqueeze(0))


def test_a_chain_error_is_also_a_value_error() -> None:
    assert issubclass(ChainError, PcmcNetError)
    assert issubclass(ChainError, ValueError)


# -- types and empty batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rates_are_solved_in_float64(dtype: torch.dtype) -> None:
    rates = random_rates(4, 9, seed=0).to(dtype)
    p = stationary_distribution(rates)
    assert p.dtype == torch.float32
    assert torch.equal(p, stationary_distribution(rates.double()).float())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rates_get_a_gradient_of_their_type(dtype: torch.dtype) -> None:
    rates = random_rates(4, 5, seed=0, sigma=1).to(dtype).requires_grad_()
    double = rates.detach().double().requires_grad_()
    (grad,) = torch.autograd.grad(stationary_distribution(rates)[:, 0].sum(), rates)
    (expected,) = torch.autograd.grad(stationary_distribution(double)[:, 0].sum(), double)
    assert grad.dtype == dtype
    torch.testing.assert_close(grad, expected.to(dtype), rtol=torch.finfo(dtype).eps, atol=0)  # one rounding


@pytest.mark.parametrize("inner", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("zeros", [False, True])
def test_autocast_changes_nothing(inner: torch.dtype, zeros: bool) -> None:
    rates = random_rates(4, 9, seed=0, sigma=5, dtype=torch.float32)
    if zeros:
        rates[:, 0, 1:5] = 0
    rates.requires_grad_()
    p = stationary_distribution(rates)
    (grad,) = torch.autograd.grad(p[:, 0].log().sum(), rates)
    with torch.autocast("cpu", dtype=inner):
        under = stationary_distribution(rates)
        (grad_under,) = torch.autograd.grad(under[:, 0].log().sum(), rates)
    assert under.dtype == torch.float32
    assert torch.equal(under, p)
    assert torch.equal(grad_under, grad)


@pytest.mark.parametrize(
    ("dtype", "out"),
    [(torch.float64, torch.float64), (torch.float32, torch.float32), (torch.bfloat16, torch.float32)],
)
@pytest.mark.parametrize("batch", [(0,), (0, 3), (2, 0)])
def test_an_empty_batch_gives_an_empty_batch(batch: tuple[int, ...], dtype: torch.dtype, out: torch.dtype) -> None:
    rates = torch.ones(*batch, 4, 4, dtype=dtype, requires_grad=True)
    p = stationary_distribution(rates)
    (grad,) = torch.autograd.grad(p.sum(), rates)
    assert p.shape == (*batch, 4)
    assert p.dtype == out
    assert grad.shape == rates.shape


def test_solve_chain_gives_the_same_without_checks() -> None:
    """Set 2 is all padding, as in a filled-up batch."""
    rates = random_rates(3, 5, seed=0).requires_grad_()
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]], dtype=torch.bool)
    p = solve_chain(rates, mask)
    (grad,) = torch.autograd.grad(p[:, 0].sum(), rates)
    torch.testing.assert_close(p[:2], stationary_distribution(rates[:2], mask[:2]), rtol=0, atol=0)
    assert (p[2] == 0).all()
    assert (grad[2] == 0).all()


@pytest.mark.parametrize("rates", [[[0.0, 1.0], [1.0, 0.0]], np.ones((2, 2)), None])
def test_rates_that_are_not_tensors_are_refused(rates: Any) -> None:
    message = f"rates: expected a torch.Tensor, got {type(rates).__name__}: use torch.as_tensor"
    with pytest.raises(ChainError, match=message):
        stationary_distribution(rates)


@pytest.mark.parametrize("mask", [[True, False], np.array([True, False])])
def test_a_mask_that_is_not_a_tensor_is_refused(mask: Any) -> None:
    message = f"mask: expected a torch.Tensor, got {type(mask).__name__}: use torch.as_tensor"
    with pytest.raises(ChainError, match=message):
        stationary_distribution(torch.ones(2, 2), mask)


@pytest.mark.parametrize("kind", ["float8", "sparse", "nested", "meta"])
def test_tensors_of_unusual_types_are_refused(kind: str) -> None:
    ones = torch.ones(2, 2)
    tensors = {
        "float8": lambda: ones.to(torch.float8_e5m2),
        "sparse": ones.to_sparse,
        "nested": lambda: torch.nested.as_nested_tensor([ones], layout=torch.jagged),
        "meta": lambda: ones.to("meta"),
    }
    with pytest.raises(ChainError, match="rates: expected"):
        stationary_distribution(tensors[kind]())


@given(n=st.integers(2, 7), seed=SEEDS)
def test_higher_rates_into_a_state_raise_its_probability(n: int, seed: int) -> None:
    gen = torch.Generator().manual_seed(seed)
    rates, ones = random_rates(1, n, seed=seed), torch.ones(1, n)
    changed = rates.clone()
    changed[0, :, 0] *= 1 + torch.rand(n, generator=gen, dtype=torch.float64)
    changed[0, 0] /= 1 + torch.rand(n, generator=gen, dtype=torch.float64)
    before, after = (stationary_distribution(q, ones)[0, 0] for q in (rates, changed))
    assert after > before


def test_the_probability_follows_from_mean_first_passage_times() -> None:
    """Rates 1 both ways in 0 - 1 - 2: the mean time from 1 to 0 is 2, so p_0 = 1 / (1 + 1 * 2)."""
    rates = torch.tensor([[[0, 1, 0], [1, 0, 1], [0, 1, 0]]], dtype=torch.float64)
    torch.testing.assert_close(stationary_distribution(rates, torch.ones(1, 3))[0, 0].item(), 1 / 3)
