"""The stationary layer against 150-digit arithmetic: every probability and every elasticity.

The reference solves the balance equations by Gaussian elimination, which shares nothing with that of the layer
and does subtract: rates up to e^80 apart cost about 70 digits, so 80 are left. ``decimal`` is in C, so a
set of 64 takes a third of a second. Rates are taken as rounded to the type under test, so that only the
error of the layer is measured.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext

import pytest
import torch
from torch import Tensor

from pcmcnet.layers.stationary import stationary_distribution
from pcmcnet.layers.stationary.elimination import eliminate, pull_back, substitute

each_solver = pytest.mark.usefixtures("solver")
SIZES = [2, 3, 5, 8, 16, 33, 64]
SIGMAS = [1.0, 5.0, 10.0]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}  # relative error of every component


@pytest.fixture(autouse=True)
def digits() -> Iterator[None]:
    """Work with 150 digits."""
    with localcontext() as context:
        context.prec = 150
        yield


def log_normal_rates(n: int, sigma: float, dtype: torch.dtype, seed: int = 0) -> Tensor:
    gen = torch.Generator().manual_seed(seed)
    return torch.exp(sigma * torch.randn(n, n, generator=gen, dtype=torch.float64)).to(dtype)


def exact_rates(rates: Tensor) -> list[list[Decimal]]:
    return [[Decimal(q) for q in row] for row in rates.tolist()]


def exact_distribution(q: list[list[Decimal]]) -> list[Decimal]:
    """Solve sum_i p_i q_ij = p_j sum_k q_jk for j > 0 with p_0 = 1, then normalise."""
    rest = range(1, len(q))
    out = [sum(row) - row[i] for i, row in enumerate(q)]
    rows = [[out[j] if i == j else -q[i][j] for i in rest] + [q[0][j]] for j in rest]
    for k, pivot in enumerate(rows):  # a diagonally dominant matrix needs no pivoting
        for row in rows[k + 1 :]:
            factor = row[k] / pivot[k]
            for c in range(k + 1, len(row)):
                row[c] -= factor * pivot[c]
    p: list[Decimal] = []
    for k in reversed(range(len(rows))):
        partial_sum = sum((a * b for a, b in zip(rows[k][k + 1 : -1], p, strict=True)), Decimal(0))
        p.insert(0, (rows[k][-1] - partial_sum) / rows[k][k])
    total = 1 + sum(p)
    return [x / total for x in [Decimal(1), *p]]


def worst_relative_error(p: Tensor, exact: list[Decimal]) -> float:
    return max(float(abs(Decimal(x) / e - 1)) for x, e in zip(p.tolist(), exact, strict=True))


def exact_elasticities(q: list[list[Decimal]]) -> Tensor:  # (n, n, n)
    """Return d log p_c / d log q_ij at [c, i, j]: one-sided differences whose step leaves 50 digits."""
    n, step = len(q), Decimal("1e-50")
    base, elasticity = exact_distribution(q), torch.zeros(n, n, n, dtype=torch.float64)
    for i in range(n):
        for j in set(range(n)) - {i}:
            moved = [list(row) for row in q]
            moved[i][j] *= 1 + step
            for c, (new, old) in enumerate(zip(exact_distribution(moved), base, strict=True)):
                elasticity[c, i, j] = float((new / old - 1) / step)
    return elasticity


def test_the_reference_solves_a_birth_death_chain() -> None:
    """As in test_distribution: rates 1, 2 and 3, 1 give p = (2, 1, 3) / 6."""
    distribution = exact_distribution(exact_rates(torch.tensor([[7.0, 1, 0], [2, 7, 3], [0, 1, 7]])))
    assert [float(6 * x) for x in distribution] == [2, 1, 3]


@pytest.mark.parametrize("n", [2, 3, 5])
def test_probabilities_are_accurate_over_300_orders_of_magnitude(n: int) -> None:
    """This is the range that README.md states. With rates from 1e-300 to 1e300, products leave the range of float64."""
    for seed in range(5):
        uniform = torch.rand(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        rates = 10 ** (150 * (2 * uniform - 1))
        with localcontext() as context:
            context.prec = 2_000  # the reference subtracts numbers that differ by hundreds of digits
            p, exact = stationary_distribution(rates), exact_distribution(exact_rates(rates))
            present = [k for k in range(n) if exact[k] > Decimal("1e-300")]
            assert worst_relative_error(p[present], [exact[k] for k in present]) < 1e-13


@each_solver
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("n", SIZES)
def test_every_probability_is_accurate(n: int, sigma: float, dtype: torch.dtype) -> None:
    rates = log_normal_rates(n, sigma, dtype)
    p, exact = stationary_distribution(rates), exact_distribution(exact_rates(rates))
    assert min(exact) > torch.finfo(torch.float32).tiny  # float32 can represent all of them
    assert p.dtype == dtype
    assert (p > 0).all()
    assert worst_relative_error(p, exact) <= TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("n", SIZES)
def test_the_passes_are_accurate_in_both_precisions(n: int, sigma: float, dtype: torch.dtype) -> None:
    """Requirement for a float32 kernel: no step needs more precision than its input has."""
    rates = log_normal_rates(n, sigma, dtype, seed=1)
    exact = exact_distribution(exact_rates(rates))
    q = (rates / rates.max()).fill_diagonal_(0).unsqueeze(-1)
    present = torch.ones(n, 1, dtype=torch.bool)
    exits = eliminate(q, present)
    p = substitute(q, exits, present).squeeze(-1)
    assert p.dtype == dtype
    assert (p > 0).all()
    assert worst_relative_error(p, exact) <= TOLERANCE[dtype]


@each_solver
@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("sigma", [*SIGMAS, 15.0])
def test_every_probability_of_many_chains_is_accurate(sigma: float, dtype: torch.dtype) -> None:
    """sigma = 15: from e^-60 to e^60, nearly the range of float32."""
    tiny = Decimal(torch.finfo(dtype).tiny)
    for n in (2, 3, 5, 8, 12):
        for seed in range(200):
            rates = log_normal_rates(n, sigma, dtype, seed)
            p, exact = stationary_distribution(rates), exact_distribution(exact_rates(rates))
            assert min(exact) > tiny
            assert worst_relative_error(p, exact) <= TOLERANCE[dtype]


@each_solver
def test_a_probability_below_float32_has_a_tiny_absolute_error() -> None:
    """0 -> 1 -> 2 -> 3 with rate 2^-50 a step and 1 back: p_k is about 2^-50k, and float32 ends at 2^-149.

    Below 2^-126 a float32 has less precision, so the error is absolute there: at most its smallest positive
    number, never negative. In float64 all four components meet the relative tolerance.
    """
    rates = torch.diag(torch.full((3,), 2.0**-50), 1) + torch.diag(torch.ones(3), -1)
    exact = exact_distribution(exact_rates(rates))
    p = stationary_distribution(rates)
    assert worst_relative_error(p[:3], exact[:3]) <= TOLERANCE[torch.float32]
    assert 0 <= p[3].item() <= 2.0**-149
    assert abs(Decimal(p[3].item()) - exact[3]) <= Decimal(2) ** -149
    assert worst_relative_error(stationary_distribution(rates.double()), exact) <= TOLERANCE[torch.float64]


# -- gradients: an elasticity is at most 1 in size, so its absolute error is measured --------------------------------


def elasticities(rates: Tensor) -> Tensor:  # (n, n) -> (n, n, n)
    """Return q_ij d log p_c / d q_ij at [c, i, j], by the layer's gradient."""
    x = rates.expand(len(rates), -1, -1).clone().requires_grad_()  # set c differentiates log p_c
    (grad,) = torch.autograd.grad(stationary_distribution(x).diagonal().log().sum(), x)
    return grad.double() * rates.double()


@each_solver
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
@pytest.mark.parametrize("sigma", [1.0, 10.0, 20.0])
@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_every_elasticity_is_accurate(n: int, sigma: float, dtype: torch.dtype, error: float) -> None:
    """sigma = 20 gives rates 30 orders of magnitude apart, where z of the implicit formula has no correct digit."""
    rates = log_normal_rates(n, sigma, dtype, seed=2)
    assert torch.isfinite(rates).all()
    expected = exact_elasticities(exact_rates(rates))
    torch.testing.assert_close(elasticities(rates), expected, rtol=0, atol=error)


def elasticities_forward(rates: Tensor) -> Tensor:
    """Return the elasticities by the forward mode."""
    jacobian = torch.func.jacfwd(lambda q: stationary_distribution(q).log())(rates)
    return jacobian.double() * rates.double()


def elasticities_reverse(rates: Tensor) -> Tensor:
    """Return the elasticities by the reverse mode of torch.func."""
    jacobian = torch.func.jacrev(lambda q: stationary_distribution(q).log())(rates)
    return jacobian.double() * rates.double()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("by_mode", [elasticities_forward, elasticities_reverse])
@pytest.mark.parametrize("sigma", [1.0, 10.0, 20.0])
@pytest.mark.parametrize("n", [2, 5, 8])
def test_every_elasticity_is_accurate_under_torch_func(
    n: int, sigma: float, by_mode: Callable[[Tensor], Tensor]
) -> None:
    rates = log_normal_rates(n, sigma, torch.float64, seed=2)
    expected = exact_elasticities(exact_rates(rates))
    torch.testing.assert_close(by_mode(rates), expected, rtol=0, atol=1e-13)
    groups = torch.full((4, 4), torch.e**-40, dtype=torch.float64)
    groups[0, 1], groups[1, 0], groups[2, 3], groups[3, 2] = 1, 2, 3, 5
    torch.testing.assert_close(by_mode(groups), exact_elasticities(exact_rates(groups)), rtol=0, atol=1e-14)


@each_solver
def test_weakly_connected_groups_keep_their_gradient() -> None:
    """{0, 1} and {2, 3}: rates of about 1 inside, e^-40 (the floor of the rates) between.

    Inside a group p_0 : p_1 = q_10 : q_01 up to terms of e^-40, and the group's mass does not move with q_01
    because all transitions out of the group have the same rate. With a = q_01 and
    b = q_10, p_0 = m b / (a + b): d log p_0 / d log q_01 = -a / (a + b) = -1/3 for a = 1, b = 2. The z of
    the two groups differ by e^40, more than 1 / 2^-53: from z the gradient inside would be noise.
    """
    rates = torch.full((4, 4), torch.e**-40, dtype=torch.float64)
    rates[0, 1], rates[1, 0], rates[2, 3], rates[3, 2] = 1, 2, 3, 5
    ours = elasticities(rates)
    assert ours[0, 0, 1].item() == pytest.approx(-1 / 3, rel=1e-13)
    torch.testing.assert_close(ours, exact_elasticities(exact_rates(rates)), rtol=0, atol=1e-14)


@pytest.mark.parametrize("n", [3, 8])
def test_the_gradient_pass_is_accurate_in_float32(n: int) -> None:
    """The same requirement for the gradient pass. The bound is about ten float32 roundings of 6e-8."""
    rates = log_normal_rates(n, 10.0, torch.float32, seed=3)
    q = (rates / rates.max()).fill_diagonal_(0).unsqueeze(-1).repeat(1, 1, n)  # set c differentiates log p_c
    scaled, present = q.clone(), torch.ones(n, n, dtype=torch.bool)
    exits = eliminate(q, present)
    p = substitute(q, exits, present)
    grad = torch.diag(1 / p.diagonal())
    ours = (pull_back(q, exits, p, grad, present) * scaled).permute(2, 0, 1)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours.double(), exact_elasticities(exact_rates(rates)), rtol=0, atol=1e-6)


@each_solver
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_gradients_stay_finite_for_large_sets_of_extreme_rates(dtype: torch.dtype) -> None:
    """By Euler the elasticities of one component sum to 0; each is at most 1 in size."""
    ours = elasticities(log_normal_rates(64, 10.0, dtype))
    assert torch.isfinite(ours).all()
    assert ours.abs().max().item() <= 1
    assert ours.sum((1, 2)).abs().max().item() <= (1e-5 if dtype == torch.float32 else 1e-12)  # 4,032 roundings
