"""The statements of docs/mathematics.md on rates of low rank: worked numbers, constructions and bounds."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pcmcnet.layers import factored_distribution, stationary_distribution

SEEDS = st.integers(0, 2**32 - 1)
DOUBLE = torch.float64


def uniform(*shape: int, seed: int, low: float = 0.1, high: float = 1.0) -> Tensor:
    """Draw numbers (*shape) between ``low`` and ``high``."""
    gen = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(*shape, generator=gen, dtype=DOUBLE)


def without_diagonal(rates: Tensor) -> Tensor:  # (n, n) -> (n, n)
    return rates - torch.diag_embed(rates.diagonal())


def assert_rates(u: Tensor, v: Tensor, rates: Tensor, error: float = 1e-13) -> None:
    """Check that non-negative factors (n, r) give the rates (n, n) of all pairs."""
    assert (u >= 0).all()
    assert (v >= 0).all()
    torch.testing.assert_close(without_diagonal(u @ v.mT), without_diagonal(rates), rtol=error, atol=error)


# -- existence and uniqueness, the chain of the factors ---------------------------------------------------------------


@given(n=st.integers(2, 8), seed=SEEDS)
def test_balance_equations_of_positive_rates_have_one_solution_which_is_positive(n: int, seed: int) -> None:
    """The left null space of the generator has dimension 1, and the absolute values of its vectors are a solution."""
    rates = without_diagonal(uniform(n, n, seed=seed))
    generator = rates - torch.diag(rates.sum(1))
    left, singular, _ = torch.linalg.svd(generator)
    assert (singular > 1e-6).sum() == n - 1
    solution = left[:, -1].abs()
    torch.testing.assert_close(solution @ generator, torch.zeros(n, dtype=DOUBLE), rtol=0, atol=1e-13)
    torch.testing.assert_close(solution / solution.sum(), stationary_distribution(rates), rtol=1e-11, atol=0)


@given(n=st.integers(2, 8), rank=st.integers(1, 5), seed=SEEDS)
def test_entries_of_the_chain_of_factors_are_the_transitions_of_the_alternatives(n: int, rank: int, seed: int) -> None:
    """e = e w a' if b = b P: a transition leaves i through factor k, which leads to j. The stay in i is 1 / d_i."""
    u, v = uniform(2, n, rank, seed=seed)
    total = v.sum(0)
    d = u @ total
    w, a = u * total / d.unsqueeze(1), v / total
    chain = a.mT @ w
    torch.testing.assert_close(chain.sum(1), torch.ones(rank, dtype=DOUBLE), rtol=1e-13, atol=0)
    e = a @ stationary_distribution(chain)
    torch.testing.assert_close(e @ w @ a.mT, e, rtol=1e-12, atol=0)
    torch.testing.assert_close(e / d / (e / d).sum(), factored_distribution(u.log(), v.log()), rtol=1e-12, atol=0)


# -- rank 1 and reversible chains -------------------------------------------------------------------------------------


@given(n=st.integers(3, 6), seed=SEEDS)
def test_odds_are_the_same_in_all_sets_exactly_if_both_directions_of_cycles_are_equally_fast(n: int, seed: int) -> None:
    """Rates s_ij x_j with a symmetric s are reversible, with any rank; other rates are not."""
    x, s = uniform(n, seed=seed), uniform(n, n, seed=seed + 1)
    reversible = (s + s.mT) * x
    for rates, are_equal in ((reversible, True), (s, False)):
        cycles = [rates[i, j] * rates[j, k] * rates[k, i] for i, j, k in itertools.permutations(range(n), 3)]
        backwards = [rates[i, k] * rates[k, j] * rates[j, i] for i, j, k in itertools.permutations(range(n), 3)]
        odds = []
        for size in range(2, n + 1):
            subset = torch.arange(size)
            p = stationary_distribution(without_diagonal(rates[subset][:, subset]))
            odds.append(p[0] / p[1])
        gap = max(abs(odd / odds[0] - 1) for odd in odds)
        if are_equal:
            torch.testing.assert_close(cycles, backwards, rtol=1e-13, atol=0)
            assert gap < 1e-12
        else:
            assert max(abs(a / b - 1) for a, b in zip(cycles, backwards, strict=True)) > 1e-6
            assert gap > 1e-9


# -- ranks of general chains ------------------------------------------------------------------------------------------


@given(n=st.integers(1, 8), seed=SEEDS)
def test_any_positive_rates_are_a_sum_of_one_positive_factor_per_alternative(n: int, seed: int) -> None:
    rates = uniform(n, n, seed=seed)
    small = 0.001
    v = torch.eye(n, dtype=DOUBLE) + small
    u = rates - small / (1 + n * small) * rates.sum(1, keepdim=True)
    assert (u > 0).all()
    assert (v > 0).all()
    assert_rates(u, v, rates)
    torch.testing.assert_close(
        factored_distribution(u.log(), v.log()), stationary_distribution(rates), rtol=1e-11, atol=0
    )


def one_factor_less(rates: Tensor, small: float) -> tuple[Tensor, Tensor]:
    """Return non-negative factors u, v (n, n - 1) of rates (n, n), whose diagonal is ignored.

    The first n - 2 factors lead to the first n - 2 alternatives, and the last factor to the last two. Factor i also
    leads to one of the last two, which corrects their ratio in row i.
    """
    n = len(rates)
    u, v = torch.zeros(2, n, n - 1, dtype=DOUBLE)
    u[:, : n - 2] = without_diagonal(rates)[:, : n - 2]
    v[: n - 2, : n - 2] = torch.eye(n - 2, dtype=DOUBLE)
    # 1. The direction of the last factor, and the corrections.
    t = 1.0
    v[n - 2, n - 2], v[n - 1, n - 2] = 1.0, t
    lacks_last = rates[: n - 2, n - 1] > t * rates[: n - 2, n - 2]
    v[n - 1, : n - 2] = small * lacks_last.double()
    v[n - 2, : n - 2] = small * (~lacks_last).double()
    # 2. What the rates of the other factors leave, as multiples of (1, t) and of the correction.
    rest = rates[:, n - 2 :] - u[:, : n - 2] @ v[n - 2 :, : n - 2].mT
    for i in range(n - 2):
        first, last = rest[i]
        u[i, n - 2] = first if lacks_last[i] else last / t
        u[i, i] = ((last - t * first) if lacks_last[i] else (first - last / t)) / small
    u[n - 2, n - 2], u[n - 1, n - 2] = rest[n - 2, 1] / t, rest[n - 1, 0]
    return u, v


@given(n=st.integers(2, 7), seed=SEEDS)
def test_any_chain_has_one_factor_less_than_alternatives(n: int, seed: int) -> None:
    """The diagonal is free. Rates that are nearly equal need a smaller correction, so they are kept apart here."""
    rates = uniform(n, n, seed=seed)
    rates[:, -1] += torch.where(rates[:, -1] > rates[:, -2], 0.1, 0.0)
    rates[:, -2] += torch.where(rates[:, -1] > rates[:, -2], 0.0, 0.1)
    assert_rates(*one_factor_less(rates, small=0.001), rates)


def test_two_factors_give_rock_paper_scissors() -> None:
    """Rock to paper: 4.8 .125 + .2 = .8; rock to scissors: .2; scissors to paper: .8 .125 + .1 = .2.

    In a pair, one alternative has probability .8. In the set of all three, each has probability 1/3.
    """
    u = torch.tensor([[4.8, 0.2], [0.2, 0.8], [0.8, 0.1]], dtype=DOUBLE)
    v = torch.tensor([[1, 0], [0.125, 1], [0, 1]], dtype=DOUBLE)
    assert_rates(u, v, torch.tensor([[0, 0.8, 0.2], [0.2, 0, 0.8], [0.8, 0.2, 0]], dtype=DOUBLE))
    logs = u.log(), v.clamp_min(1e-50).log()
    third = torch.full((3,), 1 / 3, dtype=DOUBLE)
    torch.testing.assert_close(factored_distribution(*logs), third, rtol=1e-14, atol=0)
    for loser, winner in ((0, 1), (1, 2), (2, 0)):
        pair = factored_distribution(*(x[[loser, winner]] for x in logs))
        torch.testing.assert_close(pair, torch.tensor([0.2, 0.8], dtype=DOUBLE), rtol=1e-14, atol=0)


# -- context effects --------------------------------------------------------------------------------------------------


def test_a_decoy_with_two_factors_by_hand() -> None:
    """x and y have probability 1/2 each. Decoy z is entered from y at rate 1, and left for x at rate 4.

    V = (2, 1) and d = (1, 2, 8), so P = (1/2 1/2; 1 0), b = (2, 1) / 3, e = (1, 1, 1) / 3, e / d = (1/3, 1/6, 1/24) and
    p = (8, 4, 1) / 13. By balance: p_z 4 = p_y 1, p_x 1 = p_y 1 + p_z 4.
    """
    u = torch.tensor([[0, 1], [1, 0], [4, 0]], dtype=DOUBLE)
    v = torch.tensor([[1, 0], [0, 1], [1, 0]], dtype=DOUBLE)
    assert_rates(u, v, torch.tensor([[0, 1, 0], [1, 0, 1], [4, 0, 0]], dtype=DOUBLE))
    total = v.sum(0)
    d = u @ total
    chain = (v / total).mT @ (u * total / d.unsqueeze(1))
    assert (total.tolist(), d.tolist(), chain.tolist()) == ([2, 1], [1, 2, 8], [[0.5, 0.5], [1, 0]])
    logs = u.clamp_min(1e-50).log(), v.clamp_min(1e-50).log()
    pair, all_three = factored_distribution(*(x[:2] for x in logs)), factored_distribution(*logs)
    torch.testing.assert_close(pair, torch.tensor([1, 1], dtype=DOUBLE) / 2, rtol=1e-14, atol=0)
    torch.testing.assert_close(all_three, torch.tensor([8, 4, 1], dtype=DOUBLE) / 13, rtol=1e-14, atol=0)
    # Small positive factors instead of 0 have nearly the same effect: 1.02 : 1.02 in the pair.
    positive = u.clamp_min(0.01).log(), v.clamp_min(0.01).log()
    assert factored_distribution(*(x[:2] for x in positive))[0].item() == pytest.approx(0.5)
    assert factored_distribution(*positive)[0] > 0.6


# -- copies and averages ----------------------------------------------------------------------------------------------


@given(copies=st.lists(st.integers(1, 4), min_size=1, max_size=6), rank=st.integers(1, 4), seed=SEEDS)
def test_copies_of_some_alternatives_multiply_their_weights(copies: list[int], rank: int, seed: int) -> None:
    """All m_j copies of j together have the probability of j with the weights m_j v_jk."""
    n, m = len(copies), torch.tensor(copies)
    log_u, log_v = uniform(2, n, rank, seed=seed, low=-3, high=3)
    many = factored_distribution(log_u.repeat_interleave(m, 0), log_v.repeat_interleave(m, 0))
    together = torch.zeros(n, dtype=DOUBLE).index_add(0, torch.arange(n).repeat_interleave(m), many)
    once = factored_distribution(log_u, log_v + m.double().log().unsqueeze(1))
    torch.testing.assert_close(once, together, rtol=1e-12, atol=0)


@given(n=st.integers(2, 7), rank=st.integers(1, 3), members=st.integers(1, 4), seed=SEEDS)
def test_the_average_of_chains_has_the_factors_of_all_of_them(n: int, rank: int, members: int, seed: int) -> None:
    """u_ik of each chain is weighted by the share of this chain in the mean probability of i."""
    log_u, log_v = uniform(2, members, n, rank, seed=seed, low=-3, high=3)
    p = factored_distribution(log_u, log_v)
    shares = p / p.sum(0)
    u, v = log_u + shares.log().unsqueeze(2), log_v
    average = factored_distribution(*(x.movedim(0, 1).reshape(n, members * rank) for x in (u, v)))
    torch.testing.assert_close(average, p.mean(0), rtol=1e-12, atol=0)


# -- universality -----------------------------------------------------------------------------------------------------


@given(n=st.integers(2, 8), error=st.floats(0.001, 1), seed=SEEDS)
def test_similar_rates_have_similar_distributions(n: int, error: float, seed: int) -> None:
    """If log-rates differ by at most e, log-probabilities differ by at most 2 (n - 1) e, even for rates of any size."""
    rates = uniform(n, n, seed=seed, low=-10, high=10).exp()
    other = rates * uniform(n, n, seed=seed + 1, low=-error, high=error).exp()
    gap = (stationary_distribution(rates).log() - stationary_distribution(other).log()).abs().max()
    assert 0 < gap <= 2 * (n - 1) * error


def test_the_bound_on_the_distribution_is_sharp_for_two_alternatives() -> None:
    """Odds q_10 / q_01 of rates that change by e^e and e^-e change by e^(2 e). A small probability changes as much."""
    rates = torch.tensor([[0, 1e-9], [1, 0]], dtype=DOUBLE)
    other = rates * torch.tensor([[1, math.exp(0.1)], [math.exp(-0.1), 1]], dtype=DOUBLE)
    gap = stationary_distribution(other)[1].log() - stationary_distribution(rates)[1].log()
    assert gap.item() == pytest.approx(0.2, abs=1e-8)  # the odds are 1e-9 times the probability


@pytest.mark.parametrize(("rank", "error"), [(3, 0.5), (9, 0.05), (33, 0.004)])
def test_a_continuous_rate_is_approximated_by_products(rank: int, error: float) -> None:
    """q(x, y) = exp(cos(3 x + 2 y) - x y) for features in [0, 1], by a partition of unity of triangles.

    log q has a slope of at most 4 in x, so triangles around points at distance h = 1 / (r - 1) give a mean of rates
    that differ by at most a factor of e^(4 h) from q. The errors here are smaller, of order h^2.
    """
    points, grid = torch.linspace(0, 1, rank, dtype=DOUBLE), torch.linspace(0, 1, 101, dtype=DOUBLE)

    def rate(x: Tensor, y: Tensor) -> Tensor:
        return (torch.cos(3 * x + 2 * y) - x * y).exp()

    tents = (1 - (grid.unsqueeze(1) - points).abs() * (rank - 1)).clamp_min(0)  # phi_k(x), (101, r)
    torch.testing.assert_close(tents.sum(1), torch.ones(101, dtype=DOUBLE), rtol=1e-13, atol=0)
    u, v = tents + 1e-9, rate(points, grid.unsqueeze(1))
    exact = rate(grid.unsqueeze(1), grid)
    gap = ((u @ v.mT).log() - exact.log()).abs().max().item()
    assert gap < min(error, 4 / (rank - 1))
    # Probabilities in a set of five of these alternatives.
    places = torch.tensor([3, 20, 50, 77, 100])
    p = factored_distribution(u[places].log(), v[places].log())
    truth = stationary_distribution(exact[places][:, places])
    assert (p.log() - truth.log()).abs().max() <= 2 * 4 * gap


# -- the start of training --------------------------------------------------------------------------------------------


@given(n=st.integers(3, 5), rank=st.integers(2, 5), seed=SEEDS)
def test_context_effects_grow_with_the_square_of_the_spread_of_factors(n: int, rank: int, seed: int) -> None:
    """The part of log q that is not a function of i plus one of j is s^2 / r times a sum of products of deviations."""
    logs, deviations = uniform(2, n, seed=seed, low=-1), uniform(2, n, rank, seed=seed + 1, low=-1)
    delta, gamma = deviations - deviations.mean(2, keepdim=True)
    products = delta @ gamma.mT / rank

    def interaction(x: Tensor) -> Tensor:
        return x - x.mean(0) - x.mean(1, keepdim=True) + x.mean()

    for spread in (1e-2, 1e-3):
        log_u, log_v = logs.unsqueeze(2) + spread * deviations
        log_rates = (log_u.unsqueeze(1) + log_v).logsumexp(2)
        effects = interaction(log_rates) / spread**2
        # The next term is s^3 times a third cumulant of numbers below 2.
        torch.testing.assert_close(effects, interaction(products), rtol=0, atol=8 * spread)


# -- samples of the alternatives --------------------------------------------------------------------------------------


def expected_slope(log_u: Tensor, log_v: Tensor, sample: int) -> float:
    """Return the norm of the mean derivative of the log-likelihood of samples of the true chain, at its parameters.

    All samples of the given size that contain the choice are equally probable, and all weights are equal.
    """
    n = len(log_u)
    p = factored_distribution(log_u, log_v)
    leaves = log_u.clone().requires_grad_(), log_v.clone().requires_grad_()
    subsets = torch.tensor(list(itertools.combinations(range(n), sample)))
    log_p = factored_distribution(leaves[0][subsets], leaves[1][subsets]).log()
    mean = (p[subsets] * log_p).sum() / math.comb(n - 1, sample - 1)
    return float(torch.cat(torch.autograd.grad(mean, leaves)).norm())


def test_samples_give_consistent_estimates_of_a_logit_and_nearly_consistent_ones_of_a_chain() -> None:
    """The mean derivative at the true parameters is 0 for a logit, and for the full set; otherwise it falls with n."""
    for seed in range(3):
        log_u, log_v = uniform(2, 9, 3, seed=seed, low=-1.5, high=1.5)
        logit = [expected_slope(log_u[:, :1], log_v[:, :1], sample) for sample in (2, 5, 9)]
        chain = [expected_slope(log_u, log_v, sample) for sample in range(2, 10)]
        assert max(logit) < 1e-13
        assert chain[-1] < 1e-13
        assert all(larger < smaller for smaller, larger in itertools.pairwise(chain))
        assert chain[2] > 0.001


@given(n=st.integers(3, 9), rank=st.integers(1, 4), seed=SEEDS)
def test_a_sample_is_exact_if_its_sums_are_those_of_the_full_set(n: int, rank: int, seed: int) -> None:
    """A catalogue of n different alternatives, each m_j times, is represented by one of each, with weights m_j.

    Then V and b of the sample are those of the catalogue, and p_i = W_i P_i / sum_j W_j P_j.
    """
    log_u, log_v = uniform(2, n, rank, seed=seed, low=-3, high=3)
    m = torch.arange(1, n + 1, dtype=DOUBLE)
    full = factored_distribution(*(x.repeat_interleave(m.long(), 0) for x in (log_u, log_v)))
    each = full[m.long().cumsum(0) - 1]  # P_i of one copy of each
    sampled = factored_distribution(log_u, log_v + m.double().log().unsqueeze(1))
    torch.testing.assert_close(sampled, m * each / (m * each).sum(), rtol=1e-12, atol=0)
