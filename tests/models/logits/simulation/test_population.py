"""Probabilities over draws that all choice sets share."""

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp

from pcmcnet.models.logits.simulation import population
from pcmcnet.models.logits.simulation.coefficients import Mixing, Random
from pcmcnet.models.logits.simulation.distributions import Distribution
from pcmcnet.models.logits.simulation.draws import Draws
from pcmcnet.models.logits.simulation.population import Population

PLAIN = Mixing(("a", "b"), 2, (Random(1, Distribution("normal")),))
BY_WHO = Mixing(("a", "b"), 2, (Random(1, Distribution("lognormal")),), means=((0, 0),), who=("h",))


@pytest.mark.parametrize("mixing", [PLAIN, BY_WHO])
def test_probabilities_are_means_over_draws(mixing: Mixing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population, "_NUMBERS", 100)
    rng = np.random.default_rng(0)
    sizes = np.array([3, 1, 2, 5])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    x, h = rng.standard_normal((11, 2)), rng.standard_normal((4, len(mixing.who)))
    parameters = rng.uniform(0.2, 0.5, len(mixing.names))
    people = Population(mixing, parameters, Draws("sobol", 1, 20, 0))
    found, sums = people.log_probabilities(x, offsets, h), people.log_sums(x, offsets, h)
    for s in range(4):
        inside = slice(offsets[s], offsets[s + 1])
        v = x[inside] @ people.coefficients(h[s : s + 1])[0].numpy()
        np.testing.assert_allclose(found[inside], np.log(np.exp(log_softmax(v, axis=0)).mean(axis=1)), rtol=1e-10)
        np.testing.assert_allclose(sums[s], logsumexp(v, axis=0), rtol=1e-12)


def test_a_spread_of_0_is_the_multinomial_logit() -> None:
    people = Population(PLAIN, np.array([0.3, -0.2, 0.0]), Draws("halton", 1, 10, 0))
    x = np.random.default_rng(0).standard_normal((3, 2))
    found = people.log_probabilities(x, np.array([0, 3]), np.zeros((1, 0)))
    np.testing.assert_allclose(found, log_softmax(x @ [0.3, -0.2]))
