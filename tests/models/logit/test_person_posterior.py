"""Part-worths of persons given the population: likelihoods, derivatives, the approximation and Metropolis steps."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.models.logit import person_posterior
from pcmcnet.models.logit.person_posterior import LANES, PersonChoices, PersonPosterior


@pytest.fixture(params=["compiled", "numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with the compiled library, if there is one, and with numpy."""
    if request.param == "numpy":
        monkeypatch.setattr(person_posterior, "compiled_library", lambda: None)
    elif person_posterior.compiled_library() is None:
        pytest.skip("the library is not compiled")
    return str(request.param)


def ragged(seed: int, persons: int, K: int, signs: Any = None) -> tuple[PersonChoices, list[list[np.ndarray]]]:
    """Return choices of persons with 0 to 4 sets of 2 to 5 alternatives, and the differences by person and set."""
    rng = np.random.default_rng(seed)
    sets = [[rng.standard_normal((rng.integers(1, 5), K)) for _ in range(rng.integers(0, 5))] for _ in range(persons)]
    sets[0] = [rng.standard_normal((2, K))]
    flat = [(n, z) for n, own in enumerate(sets) for z in own]
    order = rng.permutation(len(flat))  # the sets of a person need not be adjacent
    offsets = np.concatenate([[0], np.cumsum([len(flat[k][1]) for k in order])])
    z = np.concatenate([flat[k][1] for k in order])
    person = np.array([flat[k][0] for k in order])
    signs = np.zeros(K, np.int64) if signs is None else np.array(signs)
    return PersonChoices.of(z, offsets, person, persons, signs), sets


def log_likelihood(sets: list[np.ndarray], c: np.ndarray) -> float:
    return -sum(float(np.log1p(np.exp(z @ c).sum())) for z in sets)


def test_one_choice_by_hand(way: str) -> None:
    """One person, one set, one other alternative with z = 2; b = 0.5, population N(0, 1), H = h = 0.

    R = 1 and w = 0, so u = b = 0.5. ll = -log(1 + exp(1)) = -1.313262, and the prior is -0.5^2 / 2 = -0.125.
    """
    choices = PersonChoices.of(np.array([[2.0]]), np.array([0, 1]), np.array([0]), 1, np.zeros(1, np.int64))
    posterior = PersonPosterior(choices, np.zeros((1, LANES), np.float32), np.zeros((LANES, 1, 1), np.float32))
    u = np.full((1, 1, LANES), 0.5, np.float32)
    states = posterior.states(u, np.ones((1, 1, 1)), np.zeros((1, 1, LANES), np.float32))
    lane = choices.lane[0]
    assert states.b[0, 0, lane] == pytest.approx(0.5, abs=1e-6)
    assert states.ll[0, lane] == pytest.approx(-1.313262, abs=1e-6)
    assert states.prior[0, lane] == pytest.approx(-0.125, abs=1e-6)
    assert states.log_determinant[0, lane] == pytest.approx(0, abs=1e-6)


def test_large_coefficients_of_constrained_sign_are_finite(way: str) -> None:
    """Two coefficients exp(90) and -exp(90), which overflow in float32, and another alternative with z = (1, 1).

    Both are limited to the same size, so the utilities are equal and ll = -log 2 = -0.693147.
    """
    choices = PersonChoices.of(np.array([[1.0, 1.0]]), np.array([0, 1]), np.array([0]), 1, np.array([1, -1]))
    posterior = PersonPosterior(choices, np.zeros((2, LANES), np.float32), np.zeros((LANES, 2, 2), np.float32))
    u = np.full((1, 2, LANES), 90, np.float32)
    states = posterior.states(u, np.eye(2)[None], np.zeros((1, 2, LANES), np.float32))
    assert states.ll[0, choices.lane[0]] == pytest.approx(-0.693147, abs=1e-6)
    gradient, hessian = choices.derivatives(u[0])
    assert np.isfinite(gradient).all()
    assert np.isfinite(hessian).all()


def test_a_precision_that_rounding_made_indefinite_is_factored(way: str) -> None:
    """H + P = [[1, 1], [1, 1 - 6e-8]] has the pivots 1 and -6e-8. The second is replaced by 1e-20, so log |R| = -23.03.

    H = [[0, 1], [1, 0]] stands for the rounding: P is diagonal with 1 and 1 - 2^-24.
    """
    choices = PersonChoices.of(np.ones((1, 2)), np.array([0, 1]), np.array([0]), 1, np.zeros(2, np.int64))
    hessian = np.tile(np.array([[0, 1], [1, 0]], np.float32), (LANES, 1, 1))
    posterior = PersonPosterior(choices, np.zeros((2, LANES), np.float32), hessian)
    u, mean = np.zeros((1, 2, LANES), np.float32), np.zeros((1, 2, LANES), np.float32)
    states = posterior.states(u, np.diag([1, 1 - 2**-24])[None], mean)
    np.testing.assert_allclose(states.log_determinant, -10 * np.log(10), rtol=1e-5)  # float32
    np.testing.assert_array_equal(states.b, 0)


@given(seed=st.integers(0, 10**6), persons=st.integers(1, 40), K=st.integers(1, 4))
def test_states_match_direct_formulas(seed: int, persons: int, K: int) -> None:
    """Persons with different numbers of sets and alternatives, two chains, a constrained sign; float32: 1e-4."""
    signs = [(-1) ** k if k < 2 else 0 for k in range(K)]
    choices, sets = ragged(seed, persons, K, signs)
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((2, K, K)) / 2
    precision = np.eye(K) + root @ root.swapaxes(1, 2)
    mean = rng.standard_normal((2, K, choices.P)).astype(np.float32)
    posterior = PersonPosterior.at_modes(
        choices, mean[0].astype(float), precision[0], np.zeros((K, choices.P), np.float32)
    )
    u = rng.standard_normal((2, K, choices.P)).astype(np.float32)
    states = posterior.states(u, precision, mean)
    back = posterior.states(np.zeros_like(u), precision, mean, b=states.b, ll=states.ll)
    np.testing.assert_allclose(back.u, u, atol=2e-3)  # float32: R is applied and inverted
    for chain in range(2):
        for n in range(persons):
            at = choices.lane[n]
            b = states.b[chain, :, at].astype(float)
            c = np.where(np.array(signs) == 0, b, np.array(signs) * np.exp(b))
            assert states.ll[chain, at] == pytest.approx(log_likelihood(sets[n], c), rel=1e-4, abs=1e-4)
            deviation = b - mean[chain, :, at]
            expected = -deviation @ precision[chain] @ deviation / 2
            assert states.prior[chain, at] == pytest.approx(expected, rel=1e-3, abs=1e-4)
            determinant = np.linalg.slogdet(posterior.hessian[at] + precision[chain])[1] / 2
            assert states.log_determinant[chain, at] == pytest.approx(determinant, rel=1e-4, abs=1e-4)


def test_the_library_and_numpy_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of both, with several groups of tiles; float32: 1e-4."""
    if person_posterior.compiled_library() is None:
        pytest.skip("the library is not compiled")
    choices, _ = ragged(3, 100, 3, [0, 1, -1])
    assert len(choices.groups) > 2
    rng = np.random.default_rng(0)
    precision, mean = np.tile(np.eye(3), (2, 1, 1)), np.zeros((2, 3, choices.P), np.float32)
    posterior = PersonPosterior.at_modes(choices, mean[0].astype(float), np.eye(3), mean[0])
    u = rng.standard_normal((2, 3, choices.P)).astype(np.float32)
    steps = np.full(choices.P, 0.8, np.float32)

    weights = rng.uniform(0, 2, choices.P).astype(np.float32)

    def run() -> list[np.ndarray]:
        states, accepted = posterior.states(u, precision, mean), np.zeros(choices.P, np.float32)
        posterior.move(states, precision, mean, steps, np.random.default_rng(1), accepted)
        return [*states[:4], *posterior.slopes(u, precision, mean, weights)]

    compiled = run()
    monkeypatch.setattr(person_posterior, "compiled_library", lambda: None)
    for one, other in zip(compiled, run(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("size", [np.inf, np.nan, 3e38])
def test_a_population_out_of_range_gives_numbers_that_are_rejected(way: str, size: float) -> None:
    """No error: a trajectory of the sampler that leaves the range of numbers has no density, and is rejected."""
    choices, _ = ragged(2, 20, 3)
    mean = np.zeros((1, 3, choices.P), np.float32)
    posterior = PersonPosterior.at_modes(choices, mean[0].astype(float), np.eye(3), mean[0])
    precision = np.full((1, 3, 3), size)
    with np.errstate(all="ignore"):
        states = posterior.states(np.ones_like(mean), precision, mean)
        posterior.slopes(np.ones_like(mean), precision, mean, np.ones(choices.P, np.float32))
    density = states.ll + states.prior - states.log_determinant
    assert not (density > 0).any()  # also true of NaN


def test_gradient_and_hessian_by_finite_differences() -> None:
    """Coefficients without constraints; the functions are in float32, the differences in double precision."""
    choices, sets = ragged(1, 5, 3)
    b = np.random.default_rng(0).standard_normal((3, choices.P)).astype(np.float32)
    gradient, hessian = choices.derivatives(b)
    for n in range(5):
        at, step = choices.lane[n], 1e-4
        value = b[:, at].astype(float)

        def slope(c: np.ndarray, k: int, own: list[np.ndarray] = sets[n], step: float = step) -> float:
            move = step * np.eye(3)[k]
            return (log_likelihood(own, c + move) - log_likelihood(own, c - move)) / (2 * step)

        np.testing.assert_allclose(gradient[:, at], [slope(value, k) for k in range(3)], atol=1e-5)
        second = [
            [
                (slope(value + step * np.eye(3)[j], k) - slope(value - step * np.eye(3)[j], k)) / (2 * step)
                for j in range(3)
            ]
            for k in range(3)
        ]
        np.testing.assert_allclose(-hessian[at], second, atol=1e-4)


def test_slopes_in_the_population_by_hand(way: str) -> None:
    """One person, one set, one other alternative with z = 2; u = 0.5, population N(0, 1 / P) with P = 1, H = h = 0.

    b = m + u / sqrt(P), so ll + prior - log |R| = -log(1 + exp(2 b)) - u^2 / 2 - log(P) / 2. With p = 1 / (1 + exp(-1))
    = 0.731059 at b = 0.5, the derivative in m is -2 p = -1.462117, and that in P is 2 p u / 2 - 1 / 2 = -0.134471. A
    weight of 3 multiplies the sum over persons.
    """
    choices = PersonChoices.of(np.array([[2.0]]), np.array([0, 1]), np.array([0]), 1, np.zeros(1, np.int64))
    posterior = PersonPosterior(choices, np.zeros((1, LANES), np.float32), np.zeros((LANES, 1, 1), np.float32))
    u, weights = np.full((1, 1, LANES), 0.5, np.float32), np.zeros(LANES, np.float32)
    weights[choices.lane[0]] = 3
    slopes = posterior.slopes(u, np.ones((1, 1, 1)), np.zeros((1, 1, LANES), np.float32), weights)
    assert slopes.mean[0, 0, choices.lane[0]] == pytest.approx(-1.462117, abs=1e-6)
    assert slopes.precision[0, 0, 0] == pytest.approx(3 * -0.134471, abs=2e-6)


@pytest.mark.parametrize("signs", [[0, 0, 0], [1, 0, -1]])
def test_slopes_in_the_population_by_finite_differences(signs: list[int], way: str) -> None:
    """Random directions in the precision and the means, two chains; differences of sums in float32: 1%."""
    choices, _ = ragged(5, 40, 3, signs)
    rng = np.random.default_rng(0)
    precision = np.linalg.inv(np.stack([np.eye(3) + 0.3, np.diag([0.5, 1.0, 2.0])]))
    mean = rng.standard_normal((2, 3, choices.P)) / 2
    posterior = PersonPosterior.at_modes(choices, mean[0], precision[0], np.zeros((3, choices.P), np.float32))
    u, weights = rng.standard_normal((2, 3, choices.P), dtype=np.float32), np.zeros(choices.P, np.float32)
    weights[choices.lane] = rng.uniform(0.5, 2, 40)

    def total(precision: np.ndarray, mean: np.ndarray) -> np.ndarray:
        states = posterior.states(u, precision, mean.astype(np.float32))
        return (states.ll + states.prior - states.log_determinant).astype(float) @ weights

    slopes = posterior.slopes(u, precision, mean.astype(np.float32), weights)
    h, move = 5e-3, rng.standard_normal((3, 3))
    move += move.T
    moved = (total(precision + h * move, mean) - total(precision - h * move, mean)) / (2 * h)
    np.testing.assert_allclose((slopes.precision * move).sum((1, 2)), moved, rtol=0.01, atol=0.1)
    shift = rng.standard_normal(mean.shape)
    shifted = (total(precision, mean + h * shift) - total(precision, mean - h * shift)) / (2 * h)
    np.testing.assert_allclose((slopes.mean * shift * weights).sum((1, 2)), shifted, rtol=0.01, atol=0.1)


def test_moves_sample_the_posterior(way: str) -> None:
    """One person with one part-worth: mean and deviation of the chain against the posterior by quadrature.

    1,600 chains of 60 moves give standard errors of .02 for the mean and the deviation.
    """
    z = np.array([[1.5], [-0.5], [2.0]])
    choices = PersonChoices.of(z, np.array([0, 2, 3]), np.array([0, 0]), 1, np.zeros(1, np.int64))
    grid = np.linspace(-6, 6, 4001)
    log_density = np.array([log_likelihood([z[:2], z[2:]], np.array([b])) for b in grid]) - (grid - 0.3) ** 2 / 2
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    mean = density @ grid
    deviation = np.sqrt(density @ (grid - mean) ** 2)
    chains = 400
    population = np.full((chains, 1, LANES), 0.3, np.float32)
    posterior = PersonPosterior.at_modes(
        choices, population[0].astype(float), np.eye(1), np.zeros((1, LANES), np.float32)
    )
    rng, precision = np.random.default_rng(0), np.ones((chains, 1, 1))
    states = posterior.states(rng.standard_normal(population.shape).astype(np.float32), precision, population)
    accepted, draws = np.zeros(LANES, np.float32), []
    for step in range(60):
        posterior.move(states, precision, population, np.full(LANES, 0.9, np.float32), rng, accepted)
        if step >= 20:
            draws.append(states.b[:, 0, choices.lane[0]].copy())
    assert np.mean(draws) == pytest.approx(mean, abs=0.06)
    assert np.std(draws) == pytest.approx(deviation, abs=0.06)
    assert 0.5 < accepted[choices.lane[0]] / (60 * chains) <= 1
