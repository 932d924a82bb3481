"""The simulated likelihood of the mixed logit, its scores and its Hessian."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, logsumexp

from pcmcnet.arrays import Floats, Ints
from pcmcnet.models.logit import mixed_likelihood
from pcmcnet.models.logit.draws import PersonDraws, hash_ids
from pcmcnet.models.logit.maximum_likelihood import numerical_hessian
from pcmcnet.models.logit.mixed_likelihood import SimulatedLikelihood
from pcmcnet.models.logit.random_coefficients import Distribution, MixingDistribution, RandomCoefficient

NORMAL = Distribution("normal")
COLUMNS = ("a", "b", "c")
GROUPS = np.array([0, 1, 2, 0, 2, 1, 1, 0, 1])  # of the sets, if there are scales


class OneUpOneDown(PersonDraws):
    """Two draws of a standard normal distribution: 1 and -1."""

    def of(self, keys: Ints) -> torch.Tensor:
        t = torch.tensor([1.0, -1.0]).div(math.sqrt(2)).erf()
        return t.expand(len(keys), self.dimensions, 2).clone()


def random(**laws: str) -> tuple[RandomCoefficient, ...]:
    return tuple(RandomCoefficient(COLUMNS.index(name), Distribution.parse(name, text)) for name, text in laws.items())


def problem(
    mixing: MixingDistribution, *, draws: int = 30, seed: int = 0, scale: float = 1.0, **changes: Any
) -> SimulatedLikelihood:
    """Nine sets of two to five alternatives, by four persons; sets of a person may have different scales."""
    rng = np.random.default_rng(seed)
    sizes = np.array([1, 4, 2, 3, 1, 2, 4, 1, 3])
    z = rng.standard_normal((sizes.sum(), len(mixing.columns))) * scale
    group = np.repeat(GROUPS, sizes)
    z = np.hstack([z, group[:, None] == np.arange(1, 1 + len(mixing.scales))])
    person = np.array([0, 1, 0, 2, 1, 1, 3, 3, 0])
    individual = rng.standard_normal((4, len(mixing.who)))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    if mixing.curves:
        changes["curves_of"] = curved(rng.uniform(0.5, 2, z.shape), z)
    created = SimulatedLikelihood(
        z, offsets, person, hash_ids("wxyz"), individual, mixing, PersonDraws("sobol", mixing.dimensions, draws, 0), 1e9
    )
    return dataclasses.replace(created, **changes) if changes else created


def curved(positive: Floats, z: Floats) -> Any:
    """Return columns a^r e^(s z_a), b^r and c, with first and second derivatives in r and s, by hand."""
    a, b, _ = positive.T
    zero = np.zeros(len(z))

    def columns(parameters: Floats) -> Floats:
        r, s = parameters
        f, g, h = a**r * np.exp(s * z[:, 0]), b**r, np.log(a)
        k = np.log(b)
        first = [f * h, g * k, zero], [f * z[:, 0], zero, zero]
        second = [f * h**2, g * k**2, zero], [f * h * z[:, 0], zero, zero], [f * z[:, 0] ** 2, zero, zero]
        parts = [[f, g, z[:, 2]], *first, second[0], second[1], second[1], second[2]]
        return np.column_stack([column for part in parts for column in part])

    return columns


MIXINGS = {
    "normal": MixingDistribution(COLUMNS, 3, random(a="normal", c="normal")),
    "lognormal": MixingDistribution(COLUMNS, 3, random(a="-lognormal", b="normal")),
    "bounded": MixingDistribution(COLUMNS, 3, random(a="johnson-sb(-1, 2)", b="+truncated-normal", c="triangular")),
    "correlated": MixingDistribution(COLUMNS, 3, random(a="normal", b="+lognormal", c="uniform"), group=(0, 1)),
    "all correlated": MixingDistribution(
        COLUMNS, 3, random(a="normal", b="-lognormal", c="johnson-sb(0, 1)"), group=(0, 1, 2)
    ),
    "means": MixingDistribution(
        COLUMNS, 3, random(a="+lognormal", c="-truncated-normal"), means=((0, 0), (0, 1), (1, 1)), who=("h", "i")
    ),
    "worths": MixingDistribution(COLUMNS, 3, random(a="-lognormal", c="normal"), cost=0),
    "correlated worths": MixingDistribution(
        COLUMNS, 2, random(a="normal", b="+lognormal", c="normal"), group=(0, 1), cost=1
    ),
    "component": MixingDistribution(COLUMNS, 2, random(b="normal", c="normal")),
    "scales": MixingDistribution(COLUMNS, 3, random(a="normal", c="-lognormal"), scales=("scale[u]", "scale[w]")),
    "scales of worths": MixingDistribution(
        COLUMNS, 3, random(a="-lognormal", c="normal"), cost=0, scales=("scale[u]", "scale[w]")
    ),
    "scales of components": MixingDistribution(
        COLUMNS, 2, random(a="normal", b="+truncated-normal", c="normal"), scales=("scale[u]", "scale[w]")
    ),
    "log-uniform": MixingDistribution(COLUMNS, 3, random(a="-log-uniform", b="normal", c="zbt")),
    "zero-bounded": MixingDistribution(
        COLUMNS, 3, random(a="zbu", b="zbt", c="+lognormal"), means=((0, 0), (1, 0)), who=("h",)
    ),
    "zero-bounded worths": MixingDistribution(COLUMNS, 3, random(a="zbt", c="zbu"), cost=0),
    "copulas": MixingDistribution(
        COLUMNS, 3, random(a="uniform", b="normal", c="triangular"), group=(0, 1, 2), means=((2, 0),), who=("h",)
    ),
    "copulas of logarithms": MixingDistribution(
        COLUMNS, 3, random(a="triangular", b="-log-uniform", c="+lognormal"), group=(0, 1)
    ),
    "copulas of worths": MixingDistribution(
        COLUMNS, 3, random(a="-log-uniform", b="normal", c="triangular"), group=(0, 2), cost=0
    ),
    "curves": MixingDistribution(COLUMNS, 3, random(a="normal", c="-lognormal"), curves=("lambda[a]", "s[a]")),
    "curves of worths": MixingDistribution(
        COLUMNS, 3, random(a="-lognormal", b="normal"), cost=0, curves=("lambda[a]", "s[a]")
    ),
    "turned": MixingDistribution(COLUMNS, 3, random(a="normal", b="+lognormal"), mirror=(-1, 1)),
}


def point(mixing: MixingDistribution) -> Floats:
    return np.random.default_rng(1).uniform(0.2, 0.7, len(mixing.names)) * np.where(mixing.basis == 0, 1, -0.8)


def test_the_likelihood_of_two_draws_is_that_found_by_hand() -> None:
    """b is log 3 or -log 3, so p = 1/4 or 3/4 in both of two sets: (1/16 + 9/16) / 2 = 5/16."""
    mixing = MixingDistribution(("x",), 1, (RandomCoefficient(0, NORMAL),))
    draws = OneUpOneDown("sobol", 1, 2, 0)
    sets = SimulatedLikelihood(
        np.ones((2, 1)), np.arange(3), np.zeros(2, int), np.zeros(1, int), np.zeros((1, 0)), mixing, draws, 0.0
    )
    ll, _, _ = sets.evaluate(np.array([0.0, math.log(3)]), "float64")
    assert ll[0] == pytest.approx(math.log(5 / 16), abs=1e-7)  # draws are float32


@pytest.mark.parametrize("name", MIXINGS)
def test_the_likelihood_averages_products_over_draws(name: str) -> None:
    """Computed in loops over persons, sets and draws."""
    mixing = MIXINGS[name]
    sets, x = problem(mixing), point(mixing)
    fixed = np.where(np.arange(3) < mixing.located, x[:3], 0.0)
    z = sets.z if sets.curves_of is None else sets.curves_of(x[-2:])
    expected = np.zeros(4)
    for n in range(4):
        draws = mixing.standard(sets.draws.of(sets.keys[n : n + 1])).double()
        locations = torch.from_numpy(mixing.locations(x, sets.covariates[n : n + 1]))
        values = mixing.sample(locations, torch.from_numpy(mixing.triangle(x)), draws).value[0].numpy()
        b = np.tile(fixed[:, None], (1, sets.draws.number))
        b[[r.column for r in mixing.random]] = values
        if mixing.cost is not None:
            b[[k for k in range(mixing.located) if k != mixing.cost]] *= -b[mixing.cost]
        total = np.zeros(sets.draws.number)
        for t in np.flatnonzero(sets.person == n):
            v = z[sets.offsets[t] : sets.offsets[t + 1], :3] @ b
            if mixing.scales:
                v *= (1.0, *x[-2:])[GROUPS[t]]
            total += log_softmax(np.vstack([np.zeros(v.shape[1]), v]), axis=0)[0]
        expected[n] = logsumexp(total) - math.log(sets.draws.number)
    np.testing.assert_allclose(sets.evaluate(x, "float64")[0], expected, rtol=1e-12)
    np.testing.assert_allclose(sets.evaluate(x, "float32")[0], expected, rtol=1e-5)  # single precision


@pytest.mark.parametrize("name", MIXINGS)
def test_scores_and_hessian_agree_with_central_differences(name: str) -> None:
    mixing = MIXINGS[name]
    sets, x, weights = problem(mixing), point(mixing), np.array([1.0, 2.0, 0.5, 1.5])
    _, scores, bend = sets.evaluate(x, "float64", weights=weights)
    step = 1e-5
    for k in range(len(x)):
        ahead, behind = (sets.evaluate(x + s * step * np.eye(len(x))[k], "float64")[0] for s in (1, -1))
        np.testing.assert_allclose(scores[:, k], (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-8)
    numerical = numerical_hessian(lambda at: sets.evaluate(at, "float64")[:2], x, weights)
    np.testing.assert_allclose(bend, numerical, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", MIXINGS)
def test_float32_agrees_with_float64_to_single_precision(name: str) -> None:
    sets, x, weights = problem(MIXINGS[name]), point(MIXINGS[name]), np.ones(4)
    for exact, single in zip(
        sets.evaluate(x, "float64", weights=weights), sets.evaluate(x, "float32", weights=weights), strict=True
    ):
        assert exact is not None
        assert single is not None
        np.testing.assert_allclose(single, exact, rtol=1e-4, atol=1e-5 * np.abs(exact).max())  # rounding of float32


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_large_utilities_neither_overflow_nor_lose_the_gradient(precision: Any) -> None:
    """For utilities of up to thousands, the log-sum is the largest utility."""
    mixing = MixingDistribution(COLUMNS, 3, random(a="normal", c="normal"))
    sets, x = problem(mixing, scale=1000.0), np.array([0.5, -0.2, 0.3, 0.0, 0.0])
    ll, scores, bend = sets.evaluate(x, precision, weights=np.ones(4))
    v = sets.z @ x[:3]
    top = np.maximum(np.maximum.reduceat(v, sets.offsets[:-1]), 0)
    np.testing.assert_allclose(ll, -np.bincount(sets.person, top), rtol=1e-5, atol=1e-5)
    assert np.isfinite(scores).all()
    assert bend is not None
    assert np.isfinite(bend).all()


def test_order_blocks_stored_draws_and_threads_have_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    mixing = MIXINGS["correlated"]
    sets, x, weights = problem(mixing), point(mixing), np.array([1.0, 2.0, 0.5, 1.5])
    expected = sets.evaluate(x, "float64", weights=weights)
    with monkeypatch.context() as patch:
        patch.setattr(mixed_likelihood, "_ON_CPU", 10 * 30)
        patch.setattr(mixed_likelihood, "_GRAM", 100)
        parts = problem(mixing, memory=0.0)
        assert len(parts.blocks) > 1
        for _ in range(2):
            for result, value in zip(parts.evaluate(x, "float64", weights=weights), expected, strict=True):
                np.testing.assert_allclose(result, value, rtol=1e-10, atol=1e-12)
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        one = parts.evaluate(x, "float32", weights=weights)
        torch.set_num_threads(3)
        three = parts.evaluate(x, "float32", weights=weights)
        torch.set_num_threads(before)
        for a, b in zip(one, three, strict=True):
            np.testing.assert_array_equal(a, b)
    turned = np.array([2, 0, 3, 1])  # persons are permuted: person n becomes turned[n]
    back = np.argsort(turned)
    moved = SimulatedLikelihood(
        sets.z, sets.offsets, turned[sets.person], sets.keys[back], sets.covariates[back], mixing, sets.draws, 1e9
    )
    ll, scores, bend = moved.evaluate(x, "float64", weights=weights[back])
    np.testing.assert_allclose(ll[turned], expected[0], rtol=1e-12)
    np.testing.assert_allclose(scores[turned], expected[1], rtol=1e-10, atol=1e-12)
    assert bend is not None
    assert expected[2] is not None
    np.testing.assert_allclose(bend, expected[2], rtol=1e-9, atol=1e-10)


def test_persons_with_sets_of_one_alternative_have_probability_1() -> None:
    mixing = MIXINGS["normal"]
    sets = problem(mixing, keys=hash_ids("wxyz!"), covariates=np.zeros((5, 0)))
    ll, scores, _ = sets.evaluate(point(mixing), "float64")
    assert ll[4] == 0
    assert not scores[4].any()


@pytest.mark.gpu
@pytest.mark.parametrize("name", MIXINGS)
def test_likelihoods_on_a_gpu_agree_with_a_cpu(name: str) -> None:
    mixing = MIXINGS[name]
    sets, x, weights = problem(mixing), point(mixing), np.ones(4)
    there = dataclasses.replace(sets, draws=dataclasses.replace(sets.draws, device=torch.device("cuda")), _stored={})
    for a, b in zip(
        sets.evaluate(x, "float64", weights=weights), there.evaluate(x, "float64", weights=weights), strict=True
    ):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)  # quantiles are computed on the device in float32
