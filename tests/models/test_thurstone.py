"""Normal utilities: the quadrature against scipy's and closed forms, and the fit against known parameters."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr, ndtri
from scipy.stats import norm

from choice_tables import item_choices
from pcmcnet.models import Thurstone
from pcmcnet.models.items.universe import DistinctSets
from pcmcnet.models.thurstone import _hessian, normal_log_p


def probabilities(mu: list[float]) -> np.ndarray:
    return normal_log_p(torch.tensor([mu], dtype=torch.float64), torch.ones(1, len(mu), dtype=torch.bool))[0].numpy()


def by_quad(mu: np.ndarray, i: int) -> float:
    """Return the log-probability by adaptive quadrature, scaled by the maximum of the integrand on a grid."""
    others = np.delete(mu, i)

    def log_integrand(x: float) -> float:
        return float(norm.logpdf(x - mu[i]) + log_ndtr(x - others).sum())

    grid = np.linspace(mu.min() - 3, mu.max() + 6, 400)
    top = max(log_integrand(x) for x in grid)
    at = grid[int(np.argmax([log_integrand(x) for x in grid]))]
    value, _ = quad(lambda x: math.exp(log_integrand(x) - top), at - 10, at + 10, epsabs=0, epsrel=1e-12, limit=200)
    return math.log(value) + top


@given(st.floats(-12, 12))
def test_two_items_have_the_closed_form(difference: float) -> None:
    expected = log_ndtr(np.array([difference, -difference]) / np.sqrt(2))
    np.testing.assert_allclose(probabilities([difference, 0.0]), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("n", "spread"), [(3, 1.0), (5, 3.0), (10, 2.0), (40, 1.0)])
def test_the_quadrature_agrees_with_scipy(n: int, spread: float) -> None:
    mu = np.random.default_rng(n).normal(size=n) * spread
    result = probabilities(mu.tolist())
    for i in {0, int(mu.argmin()), int(mu.argmax())}:
        assert result[i] == pytest.approx(by_quad(mu, i), abs=1e-10)


def test_equal_items_share_equally_and_padding_has_no_effect() -> None:
    np.testing.assert_allclose(np.exp(probabilities([1.3] * 300)), 1 / 300, rtol=1e-12)
    mu = torch.tensor([[0.3, -1.0, 0.5], [0.3, -1.0, 99.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    result = normal_log_p(mu, mask)
    assert result[1, 2] == -math.inf
    np.testing.assert_allclose(result[1, :2], probabilities([0.3, -1.0]), rtol=0, atol=1e-12)


def test_the_gradient_is_exact() -> None:
    mu = torch.tensor([[0.3, -1.0, 0.5], [2.0, -1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    mask = torch.ones(2, 3, dtype=torch.bool)
    assert torch.autograd.gradcheck(lambda m: normal_log_p(m, mask), mu)


def test_a_fit_to_two_items_has_the_closed_form() -> None:
    """z = Phi^-1(3/4): mu = -sqrt 2 z; variance of z is p (1 - p) / (n phi(z)^2), by the delta method."""
    model = Thurstone(smoothing=0).fit(item_choices({("ab", "a"): 30, ("ba", "b"): 10}))
    z = ndtri(0.75)
    # L-BFGS stops if a step gains less than 1e-12, which is about 1e-6 from the maximum.
    np.testing.assert_allclose(model.strengths_, [0, -np.sqrt(2) * z], rtol=0, atol=1e-5)
    error = np.sqrt(2 * 0.75 * 0.25 / 40) / norm.pdf(z)
    np.testing.assert_allclose(model.errors_, [0, error], rtol=1e-5)


def test_the_hessian_agrees_with_differences_for_sets_of_any_size() -> None:
    """Sets of two, three and one are padded together. Second differences are accurate to about 1e-6."""
    items, offsets = np.array([0, 1, 0, 1, 2, 2]), np.array([0, 2, 5, 6])
    counts = np.array([3.0, 5.0, 2.0, 6.0, 4.0, 1.0])
    sets = DistinctSets(items, offsets, counts, np.arange(6), np.ones(6, int))
    model, mu, h = Thurstone(), np.array([0.0, 0.4, -0.7]), 1e-3
    result = sum(_hessian(mu, batch) for batch in sets.batches())

    def nll(s: np.ndarray) -> float:
        return -float(counts @ model._item_log_p(sets, mu + s))

    I = h * np.eye(3)
    expected = [[(nll(u + v) - nll(u - v) - nll(v - u) + nll(-u - v)) / (4 * h * h) for u in I] for v in I]
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-5)  # h^2 times fourth derivatives of 21 choices
    np.testing.assert_allclose(result.sum(0), 0, rtol=0, atol=1e-12)  # a shift of all means changes nothing


def test_known_means_are_recovered_within_their_errors() -> None:
    """Each estimate from 3,000 choices in sets of 3 of 4 items is within 4 standard errors."""
    rng = np.random.default_rng(1)
    truth = np.array([0.0, -0.4, -0.8, -1.6])
    sets = []
    for _ in range(3000):
        items = rng.permutation(4)[:3]
        best = items[np.argmax(truth[items] + rng.normal(size=3))]
        sets.append(("".join("abcd"[i] for i in items), "abcd"[best]))
    model = Thurstone().fit(item_choices(sets))
    assert (np.abs(model.strengths_ - truth)[1:] < 4 * model.errors_[1:]).all()
    assert model.errors_.max() < 0.15
    assert model.record_.converged


def test_pairs_are_predicted_by_the_difference_of_means() -> None:
    data = item_choices(
        {("ab", "a"): 5, ("ba", "b"): 3, ("bc", "b"): 4, ("cb", "c"): 4, ("ac", "a"): 6, ("ca", "c"): 2}
    )
    model = Thurstone().fit(data)
    a, b, _ = model.strengths_
    assert model.predict_proba(data)[0] == pytest.approx(ndtr((a - b) / np.sqrt(2)), abs=1e-10)
