"""The simulated likelihood of latent classes with random coefficients and of coefficients with a mass at 0."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, logsumexp

from pcmcnet.arrays import Floats, Ints
from pcmcnet.errors import ConfigError
from pcmcnet.models.logit.class_mixture_likelihood import ClassMixtureLikelihood
from pcmcnet.models.logit.draws import PersonDraws, Population, hash_ids
from pcmcnet.models.logit.latent_class_likelihood import LatentClassLikelihood
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.maximum_likelihood import numerical_hessian
from pcmcnet.models.logit.mixed_likelihood import SimulatedLikelihood
from pcmcnet.models.logit.mixing_classes import MixingClasses, MixturePopulation
from pcmcnet.models.logit.random_coefficients import Distribution, MixingDistribution, RandomCoefficient

COLUMNS = ("a", "b", "c")
PERSON = np.array([0, 1, 0, 2, 1, 1, 3, 3, 0])
WEIGHTS = np.array([1.0, 2.0, 0.5, 1.5])


def random(**laws: str) -> tuple[RandomCoefficient, ...]:
    parts = ((COLUMNS.index(name), Distribution.parse(name, text)) for name, text in laws.items())
    return tuple(RandomCoefficient(k, d) for k, d in parts)


def single(mixing: MixingDistribution, *, draws: int = 30, seed: int = 0) -> SimulatedLikelihood:
    """Nine sets of two to five alternatives, by four persons."""
    rng = np.random.default_rng(seed)
    sizes = np.array([1, 4, 2, 3, 1, 2, 4, 1, 3])
    z = rng.standard_normal((sizes.sum(), len(mixing.columns)))
    individual, offsets = rng.standard_normal((4, len(mixing.who))), np.concatenate([[0], np.cumsum(sizes)])
    generator = PersonDraws("sobol", mixing.dimensions, draws, 0)
    return SimulatedLikelihood(z, offsets, PERSON, hash_ids("wxyz"), individual, mixing, generator, 1e9)


def problem(classes: MixingClasses, **options: Any) -> ClassMixtureLikelihood:
    h = np.column_stack([np.ones(4), np.random.default_rng(5).standard_normal((4, len(classes.covariates) - 1))])
    return ClassMixtureLikelihood(single(classes.distributions[0], **options), classes, h)


def parameters(classes: MixingClasses, seed: int = 1) -> Floats:
    """Random parameters, with shares of zeros between 0.1 and 0.9."""
    x = 0.6 * np.random.default_rng(seed).standard_normal(len(classes.names))
    return np.array([0.5 + 0.4 * math.tanh(v) if "zero[" in n else v for n, v in zip(classes.names, x, strict=True)])


ONE = MixingDistribution(COLUMNS, 3, random(a="normal", b="-lognormal"))
MIXTURES = {
    "two classes": MixingClasses((ONE, ONE)),
    "three classes": MixingClasses((ONE,) * 3, ("constant", "income")),
    "zero inflation": MixingClasses((MixingDistribution(COLUMNS, 3, random(a="zero-inflated-normal", b="normal")),)),
    "two zero inflated": MixingClasses(
        (MixingDistribution(COLUMNS, 3, random(a="zero-inflated-triangular", c="-zero-inflated-lognormal")),)
    ),
    "truncated": MixingClasses((MixingDistribution(COLUMNS, 3, random(a="+zero-inflated-truncated-normal")),)),
    "correlated": MixingClasses(
        (
            MixingDistribution(
                COLUMNS, 3, random(a="zero-inflated-normal", b="zero-inflated-uniform", c="normal"), group=(0, 1, 2)
            ),
        )
    ),
    "means": MixingClasses(
        (MixingDistribution(COLUMNS, 3, random(a="zero-inflated-normal"), means=((0, 0),), who=("age",)),) * 2,
        ("constant", "income"),
    ),
    "wtp space": MixingClasses(
        (MixingDistribution(COLUMNS, 3, random(a="zero-inflated-normal", b="-lognormal"), cost=1),) * 2
    ),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_scores_and_hessian_are_derivatives_of_the_likelihood(name: str) -> None:
    """Central differences in float64 have a relative error of about 1e-8."""
    mixture = problem(MIXTURES[name])
    x = parameters(MIXTURES[name])
    ll, scores, hessian = mixture.evaluate(x, "float64", weights=WEIGHTS)
    for k in range(len(x)):
        step = np.zeros_like(x)
        step[k] = 1e-5
        ahead, behind = (mixture.evaluate(x + s * step, "float64", scores=False)[0] for s in (1, -1))
        np.testing.assert_allclose(scores[:, k], (ahead - behind) / 2e-5, atol=1e-7)
    numeric = numerical_hessian(lambda x: mixture.evaluate(x, "float64")[:2], x, WEIGHTS)
    np.testing.assert_allclose(hessian, numeric, atol=1e-6)
    assert np.isfinite(ll).all()


class OneUpOneDown(PersonDraws):
    """Two draws of a standard normal distribution: 1 and -1."""

    def of(self, keys: Ints) -> torch.Tensor:
        t = torch.tensor([1.0, -1.0]).div(math.sqrt(2)).erf()
        return t.expand(len(keys), self.dimensions, 2).clone()


def test_the_likelihood_of_a_mass_at_0_is_that_by_hand() -> None:
    """One person, one set of two alternatives with z = -1, and a coefficient a + b x with the draws x = 1 and -1.

    With a = 0.5, b = 0.25 and a share of zeros of 0.3, the utility of the other alternative is -0.75 and -0.25 if the
    coefficient is not 0, and 0 if it is. The likelihood is
    0.7 (1 / (1 + exp(-0.75)) + 1 / (1 + exp(-0.25))) / 2 + 0.3 / 2.
    """
    mixing = MixingDistribution(("a",), 1, (RandomCoefficient(0, Distribution.parse("a", "zero-inflated-normal")),))
    classes = MixingClasses((mixing,))
    assert classes.names == ("a", "sd[a]", "zero[a]")
    person = SimulatedLikelihood(
        np.array([[-1.0]]), np.array([0, 1]), np.array([0]), hash_ids("w"), np.zeros((1, 0)), mixing,
        OneUpOneDown("sobol", 1, 2, 0), 1e9,
    )  # fmt: skip
    mixture = ClassMixtureLikelihood(person, classes, np.ones((1, 1)))
    ll = mixture.evaluate(np.array([0.5, 0.25, 0.3]), "float64")[0]
    expected = 0.7 * (1 / (1 + math.exp(-0.75)) + 1 / (1 + math.exp(-0.25))) / 2 + 0.3 / 2
    assert math.exp(ll[0]) == pytest.approx(expected, rel=1e-6)  # the draws are float32
    # Given the choice, the mean coefficient is sum of (share x probability x coefficient) / likelihood.
    mean, _ = mixture.conditional(np.array([0.5, 0.25, 0.3]))
    products = 0.7 * (0.75 / (1 + math.exp(-0.75)) + 0.25 / (1 + math.exp(-0.25))) / 2
    assert mean[0, 0] == pytest.approx(products / expected, rel=1e-6)


def test_the_likelihood_of_classes_is_that_of_a_loop_over_classes_and_draws() -> None:
    """sum_c pi_c mean_r prod_t P(i_t | b_cr), written without the library except for the draws."""
    classes = MIXTURES["three classes"]
    mixture, x = problem(classes), parameters(classes)
    uniform = mixture.likelihood.draws.of(hash_ids("wxyz")).double()
    normal = (uniform.erfinv() * math.sqrt(2)).numpy()  # (N, D, R)
    g = np.vstack([np.zeros(2), x[15:].reshape(2, 2)])
    log_pi = log_softmax(mixture.covariates @ g.T, axis=1)
    joint = np.zeros((4, 3, normal.shape[2]))
    for c in range(3):
        a, b, fixed, spread_a, spread_b = x[5 * c : 5 * c + 5]
        for n in range(4):
            draws = a + spread_a * normal[n, 0], -np.exp(b + spread_b * normal[n, 1])
            for t in np.flatnonzero(n == PERSON):
                z = mixture.likelihood.z[mixture.likelihood.offsets[t] : mixture.likelihood.offsets[t + 1]]
                v = z[:, [0]] * draws[0] + z[:, [1]] * draws[1] + z[:, [2]] * fixed
                joint[n, c] -= np.log1p(np.exp(v).sum(0))
    expected = logsumexp(log_pi[:, :, None] + joint - math.log(normal.shape[2]), axis=(1, 2))
    np.testing.assert_allclose(mixture.evaluate(x, "float64")[0], expected, rtol=1e-6)  # the draws are float32


def test_equal_classes_are_one_class() -> None:
    x = parameters(MixingClasses((ONE,)))
    classes = MIXTURES["two classes"]
    plain = single(ONE).evaluate(x, "float64", weights=WEIGHTS)
    twice = problem(classes).evaluate(np.concatenate([x, x, [0.4]]), "float64", weights=WEIGHTS)
    np.testing.assert_allclose(twice[0], plain[0], rtol=1e-12)
    P = len(x)
    np.testing.assert_allclose(twice[1][:, :P] + twice[1][:, P : 2 * P], plain[1], atol=1e-12)
    both = np.vstack([np.eye(P), np.eye(P), np.zeros((1, P))])
    assert plain[2] is not None
    assert twice[2] is not None
    np.testing.assert_allclose(both.T @ twice[2] @ both, plain[2], atol=1e-10)


def test_classes_without_spreads_are_a_latent_class_logit() -> None:
    mixing = MixingDistribution(COLUMNS, 3, random(a="normal", c="normal"))
    classes = MixingClasses((mixing, mixing), ("constant", "income"))
    mixture, x = problem(classes), parameters(classes)
    b, g = x[:10].reshape(2, 5)[:, :3], x[10:]
    x[[3, 4, 8, 9]] = 0.0
    sets = LogitLikelihood(mixture.likelihood.z, mixture.likelihood.offsets, np.arange(9), 9)
    plain = LatentClassLikelihood(sets, PERSON, mixture.covariates, WEIGHTS, 2, 0.0)
    at = plain.at(np.concatenate([b.ravel(), g]))
    np.testing.assert_allclose(mixture.evaluate(x, "float64")[0], at.log_p, rtol=1e-12)
    np.testing.assert_allclose(mixture.class_posterior(x), at.r, rtol=1e-10)


def test_a_share_of_0_is_no_zero_inflation_and_a_share_of_1_a_coefficient_of_0() -> None:
    """Shares below 1e-8 count as 1e-8, which changes a log-likelihood by less than 1e-7."""
    classes = MIXTURES["zero inflation"]
    mixture, x = problem(classes), parameters(classes)
    plain = single(MixingDistribution(COLUMNS, 3, random(a="normal", b="normal"))).evaluate(x[:-1], "float64")[0]
    x[-1] = 0.0
    np.testing.assert_allclose(mixture.evaluate(x, "float64")[0], plain, atol=1e-7)
    without = single(MixingDistribution(COLUMNS, 3, random(b="normal")))
    x[-1], x[3:5] = 1.0, 0.0  # the spreads are 0, since b has other draws without the random coefficient of a
    np.testing.assert_allclose(
        mixture.evaluate(x, "float64")[0], without.evaluate(np.array([0.0, *x[1:3], 0.0]), "float64")[0], atol=1e-7
    )


def test_order_and_signs_of_the_classes_do_not_change_the_likelihood() -> None:
    classes = MIXTURES["three classes"]
    mixture, x = problem(classes), parameters(classes)
    ll, scores, _ = mixture.evaluate(x, "float64")
    ordered, matrix = classes.normalise(x, [2, 0, 1])
    other = ClassMixtureLikelihood(mixture.likelihood, ordered, mixture.covariates)
    y = matrix @ x
    np.testing.assert_allclose(other.evaluate(y, "float64")[0], ll, rtol=1e-12)
    np.testing.assert_allclose(other.evaluate(y, "float64")[1], scores @ np.linalg.inv(matrix), atol=1e-12)
    assert all(y[k] >= 0 for k, name in enumerate(ordered.names) if "sd[" in name)
    np.testing.assert_allclose(ordered.theta(y, 1)[:3], classes.theta(x, 0)[:3])


def test_draws_of_the_population_have_the_shares_of_the_members() -> None:
    classes = MIXTURES["two zero inflated"]
    x = parameters(classes)
    people = MixturePopulation(classes, x, PersonDraws("sobol", 2, 256, 0))
    weights, b = people.all_weights(np.zeros((1, 0)))[0], people.coefficients(np.zeros((1, 0)))[0]
    q = classes.zero_shares(x)[0]
    assert weights.sum() == pytest.approx(1)
    for share, k in zip(q, (0, 2), strict=True):
        assert weights[b[k].numpy() == 0].sum() == pytest.approx(share)
    sample = people.sample(np.zeros((1, 0)))[0]
    assert sample.shape == (3, 256)
    for share, k in zip(q, (0, 2), strict=True):
        assert (sample[k] == 0).double().mean().item() == pytest.approx(share, abs=3 / 256)  # rounded to whole draws


def test_a_population_without_a_mixture_has_equal_weights() -> None:
    people = Population(ONE, parameters(MixingClasses((ONE,))), PersonDraws("sobol", 2, 16, 0))
    assert people.weights(np.zeros((3, 0))) is None
    assert (people.all_weights(np.zeros((3, 0))) == 1 / 16).all()


def test_more_than_four_zero_inflated_coefficients_are_refused() -> None:
    names = tuple("abcde")
    laws = tuple(RandomCoefficient(k, Distribution("normal", zero_inflated=True)) for k in range(5))
    with pytest.raises(ConfigError, match="at most 4 zero-inflated coefficients, got 5"):
        MixingClasses((MixingDistribution(names, 5, laws),))
