"""Sampler of the hierarchical logit: derivatives of the density of the population."""

from typing import Any

import numpy as np
import pytest

from pcmcnet.models.logit.hierarchical_sampler import (
    HierarchicalSampler,
    PopulationPrior,
    PopulationStates,
    SamplerSettings,
)
from pcmcnet.models.logit.person_posterior import PersonChoices

K, G, CHAINS = 3, 2, 2


@pytest.fixture(scope="module", params=["half-t", "inverse-wishart"])
def prior(request: pytest.FixtureRequest) -> PopulationPrior:
    return PopulationPrior(request.param, K)


def populations(seed: int) -> PopulationStates:
    """Return two populations with random parameters."""
    rng = np.random.default_rng(seed)
    return PopulationStates.of_parameters(0.5 * rng.standard_normal((CHAINS, K * G + K * (K + 1) // 2)), K, G)


def test_slopes_of_the_prior_by_hand() -> None:
    """One part-worth with mean 1 and variance 1, half-t prior: nu = 2, A = 5, precision of the mean 0.01.

    In the mean: -0.01. In the logarithm of the diagonal: 2 of the Jacobian, -(nu + 2), and -1 of the mean's
    density. In the precision: -0.01 / 2 - (nu + 1) / 2 * nu / (nu + 1 / 25) = -0.005 - 3 / 2.04.
    """
    means, diagonal, precision = PopulationPrior("half-t", 1).slopes(np.ones((1, 1, 1)), np.ones((1, 1, 1)))
    assert means.item() == pytest.approx(-0.01)
    assert diagonal.item() == -3
    assert precision.item() == pytest.approx(-0.005 - 3 / 2.04)


def test_slopes_of_the_prior_by_finite_differences(prior: PopulationPrior) -> None:
    """Each argument on its own, in double precision."""
    population, rng, h = populations(0), np.random.default_rng(1), 1e-5
    point = [population.coefficients, population.log_diagonal, population.precision]
    for argument, slopes in enumerate(prior.slopes(population.coefficients, population.precision)):
        move = rng.standard_normal(point[argument].shape)
        move = move + move.swapaxes(1, 2) if argument == 2 else move

        def density(size: float, argument: int = argument, move: Any = move) -> np.ndarray:
            return prior.log_density(*(p + size * move if k == argument else p for k, p in enumerate(point)))

        expected = (slopes * move).reshape(CHAINS, -1).sum(1)
        np.testing.assert_allclose((density(h) - density(-h)) / (2 * h), expected, rtol=1e-6)


def test_slopes_of_the_population_by_finite_differences(prior: PopulationPrior) -> None:
    """All parameters in random directions, with covariates and weights; persons are in float32: 1%."""
    rng, N, T = np.random.default_rng(0), 40, 6
    choices = PersonChoices.of(
        rng.standard_normal((N * T * 2, K)),
        np.arange(0, N * T * 2 + 1, 2),
        np.repeat(np.arange(N), T),
        N,
        np.array([0, 1, 0]),
    )
    z, weights = np.column_stack([np.ones(N), rng.standard_normal(N)]), rng.uniform(0.5, 1.5, N)
    settings = SamplerSettings(chains=CHAINS, burn_in=10, kept=10, thin=1, person_draws=10)
    sampler = HierarchicalSampler(choices, z, weights, prior, settings)
    state, point = sampler.start(rng, np.zeros(K)), populations(2).parameters

    def density(phi: np.ndarray) -> np.ndarray:
        population = PopulationStates.of_parameters(phi, K, G)
        mean = sampler.means(population.coefficients)
        return sampler._log_density(population, state.posterior.states(state.persons.u, population.precision, mean))

    slopes = sampler._slopes(PopulationStates.of_parameters(point, K, G), state)
    for _ in range(3):
        move, h = rng.standard_normal(point.shape), 5e-3
        difference = (density(point + h * move) - density(point - h * move)) / (2 * h)
        np.testing.assert_allclose((slopes * move).sum(1), difference, rtol=0.01, atol=0.1)
