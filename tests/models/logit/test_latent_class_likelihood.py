"""The mixture of logits: posterior by hand, derivatives by differences, and monotone steps."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcmcnet.errors import TrainingError
from pcmcnet.models.logit.latent_class_likelihood import LatentClassLikelihood, log_shares, posterior
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.maximum_likelihood import maximise, numerical_hessian


def make(
    seed: int, classes: int, *, sets: int = 40, columns: int = 2, prior: float = 0.1, persons: int | None = None
) -> tuple[LatentClassLikelihood, Any]:
    """Return a mixture over sets of 1 to 4 alternatives and its parameters. Persons have one or more sets."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, sets)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    logits = LogitLikelihood.from_matrix(rng.normal(size=(offsets[-1], columns)), offsets, rng.integers(0, sizes))
    n = persons or sets
    individual = np.column_stack([np.ones(n), rng.normal(3, 2, n), rng.integers(0, 2, n)])
    mixture = LatentClassLikelihood(logits, np.arange(sets) % n, individual, rng.uniform(0.5, 2, n), classes, prior)
    return mixture, 0.5 * rng.normal(size=mixture.n_parameters)


seeds, numbers = st.integers(0, 2**16), st.integers(1, 3)
people = st.sampled_from([None, 7])


def test_the_posterior_is_that_found_by_hand() -> None:
    """Shares 1/4 and 3/4 times probabilities 1/2 and 1/3 are 1/8 and 1/4. Their sum is 3/8, a third of it the first."""
    total, r = posterior(np.log([[0.25 * 0.5, 0.75 / 3]]))
    np.testing.assert_allclose(np.exp(total), [3 / 8], rtol=1e-14)
    np.testing.assert_allclose(r, [[1 / 3, 2 / 3]], rtol=1e-14)


def test_the_likelihood_of_a_mixture_is_that_found_by_hand() -> None:
    """One set of two with z = 1: the choice has probability 1 / (1 + e^b), here 1/2 and 1/4. Shares are 1/2."""
    logits = LogitLikelihood.from_matrix(np.array([[0.0], [1.0]]), np.array([0, 2]), np.array([0]))
    mixture = LatentClassLikelihood(logits, np.arange(1), np.ones((1, 1)), np.ones(1), 2, 0.0)
    at = mixture.at(np.array([0.0, np.log(3), 0.0]))
    np.testing.assert_allclose(np.exp(at.log_p), [3 / 8], rtol=1e-14)
    np.testing.assert_allclose(at.r, [[2 / 3, 1 / 3]], rtol=1e-14)
    assert at.value == pytest.approx(np.log(3 / 8), rel=1e-14)


def test_large_and_small_tables_are_summed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over the sets of a person and over the rows of a set are sparse products in large tables."""
    mixture, x = make(3, 2, persons=7)
    small = mixture.hessian(x)
    for module in ("pcmcnet.data.columns.ragged", "pcmcnet.models.logit.latent_class_likelihood"):
        monkeypatch.setattr(f"{module}.SPARSE_PRODUCT", 0)
    np.testing.assert_allclose(make(3, 2, persons=7)[0].hessian(x), small, rtol=1e-12, atol=1e-12)


def test_the_likelihood_of_a_person_is_that_found_by_hand() -> None:
    """One person chooses the same twice: 1/2 (1/2)^2 + 1/2 (1/4)^2 = 5/32, and 4/5 of it belong to the first class.

    Two persons with one such choice each have (3/8)^2 = 9/64 instead.
    """
    logits = LogitLikelihood.from_matrix(np.array([[0.0], [1.0]] * 2), np.array([0, 2, 4]), np.array([0, 0]))
    x = np.array([0.0, np.log(3), 0.0])
    one = LatentClassLikelihood(logits, np.array([0, 0]), np.ones((1, 1)), np.ones(1), 2, 0.0).at(x)
    np.testing.assert_allclose(np.exp(one.log_p), [5 / 32], rtol=1e-14)
    np.testing.assert_allclose(one.r, [[4 / 5, 1 / 5]], rtol=1e-14)
    two = LatentClassLikelihood(logits, np.array([0, 1]), np.ones((2, 1)), np.ones(2), 2, 0.0).at(x)
    assert two.value == pytest.approx(np.log(9 / 64), rel=1e-14)


@given(seed=seeds, classes=numbers)
def test_shares_sum_to_1(seed: int, classes: int) -> None:
    mixture, x = make(seed, classes)
    at = mixture.at(x)
    np.testing.assert_allclose(at.r.sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.exp(at.log_pi).sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(at.log_pi, log_shares(mixture.covariates, mixture.split(x)[1]), rtol=1e-12)


def test_the_prior_applies_to_standardised_slopes_only() -> None:
    """Numbers are scaled by their standard deviation, indicators are not."""
    mixture, _ = make(0, 2, prior=0.3)
    precision = 0.3 * mixture.sets.spread**2
    expected = np.diag([*precision, *precision, 0, 0.3 * mixture.covariates[:, 1].var(), 0.3])
    np.testing.assert_allclose(mixture.prior, expected, rtol=1e-12)
    assert not make(0, 2, prior=0.0)[0].prior.any()


def test_a_sample_uses_the_scale_and_prior_of_the_whole_table() -> None:
    """In ten sets the second column and the individual column are constant."""
    whole, x = make(0, 2)
    logits = LogitLikelihood.from_matrix(np.outer(np.arange(20) % 2, [1.0, 0.0]), 2 * np.arange(11), np.arange(10) % 2)
    individual = np.column_stack([np.ones(10), np.full(10, 7.0), np.zeros(10)])
    sample = LatentClassLikelihood(logits, np.arange(10), individual, np.ones(10), 2, whole.strength, whole=whole)
    np.testing.assert_array_equal(sample.spread, whole.spread)
    np.testing.assert_array_equal(sample.prior, whole.prior)
    at, damping = sample.at(x), 1.0
    for _ in range(30):
        at, damping = sample.step(at, damping)
    np.testing.assert_allclose(at.b[:, 1], 0, atol=1e-6)  # only the prior informs it
    alone = LatentClassLikelihood(logits, np.arange(10), individual, np.ones(10), 2, whole.strength)
    np.testing.assert_array_equal(alone.spread[[1, 5, 6]], 1)


def test_nan_in_the_posterior_is_an_error() -> None:
    mixture, x = make(0, 2)
    at = mixture.at(x)
    with pytest.raises(TrainingError, match="the Hessian of the log-likelihood is not finite"):
        mixture.step(at._replace(r=np.full_like(at.r, np.nan)), 1.0)


def test_the_prior_is_the_same_for_all_pairs_of_classes() -> None:
    """The precision without means is 2 (I - 1/C). Its inverse gives every difference the variance 1."""
    mixture, _ = make(0, 3, prior=1.0)
    of_mark = mixture.prior[[8, 11]][:, [8, 11]]  # the last coefficient of the second and third class
    covariance = np.linalg.inv(of_mark)
    np.testing.assert_allclose([covariance[0, 0], covariance[1, 1]], 1, rtol=1e-12)
    assert covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1] == pytest.approx(1, rel=1e-12)


def test_parameters_are_split_and_joined() -> None:
    mixture, x = make(0, 3)
    b, g = mixture.split(x)
    assert b.shape == (3, 2)
    assert g.shape == (3, 3)
    assert not g[0].any()
    np.testing.assert_array_equal(mixture.join(b, g), x)
    turned = mixture.join(b[[2, 0, 1]], g[[2, 0, 1]])  # another class is the reference of the shares
    np.testing.assert_allclose(mixture.at(turned).log_p, mixture.at(x).log_p, rtol=1e-10, atol=1e-14)
    assert mixture.at(turned).value == pytest.approx(mixture.at(x).value, rel=1e-12)


@settings(max_examples=30)
@given(seed=seeds, classes=numbers, prior=st.sampled_from([0.0, 0.1, 2.0]), persons=people)
def test_scores_agree_with_differences_of_log_probabilities(
    seed: int, classes: int, prior: float, persons: int | None
) -> None:
    mixture, x = make(seed, classes, sets=12, prior=prior, persons=persons)
    ll, scores = mixture.objective(x)
    assert mixture.all_weights @ ll == pytest.approx(mixture.at(x).value, rel=1e-12)
    for k in range(len(x)):
        step = np.zeros_like(x)
        step[k] = 1e-5
        slope = (mixture.objective(x + step)[0] - mixture.objective(x - step)[0]) / 2e-5
        np.testing.assert_allclose(scores[:, k], slope, rtol=1e-6, atol=1e-7)


@settings(max_examples=30)
@given(seed=seeds, classes=numbers, prior=st.sampled_from([0.0, 0.1]), persons=people)
def test_the_hessian_agrees_with_differences_of_the_gradient(
    seed: int, classes: int, prior: float, persons: int | None
) -> None:
    mixture, x = make(seed, classes, prior=prior, persons=persons)
    exact = mixture.hessian(x)
    near = numerical_hessian(mixture.objective, x, mixture.all_weights)
    # Central differences with a step of 1e-5, of sums over 40 sets with numbers up to 10.
    np.testing.assert_allclose(exact, near, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(exact, exact.T, rtol=1e-10, atol=1e-10)


@settings(max_examples=30)
@given(
    seed=seeds,
    classes=numbers,
    prior=st.sampled_from([0.0, 0.1]),
    damping=st.sampled_from([1.0, 0.1, 1e-9]),
    persons=people,
)
def test_steps_never_lower_the_objective(
    seed: int, classes: int, prior: float, damping: float, persons: int | None
) -> None:
    mixture, x = make(seed, classes, prior=prior, persons=persons)
    at = mixture.at(x)
    for _ in range(15):
        following, damping = mixture.step(at, damping)
        assert following.value >= at.value
        at = following
    assert at.value > mixture.at(x).value


def test_damping_interpolates_between_newton_and_em() -> None:
    """Two classes near their maximum: the Hessian is negative definite and both steps gain."""
    mixture, x = make(1, 2, sets=200)
    best, _ = maximise(mixture.objective, x, mixture.all_weights, curvature=mixture.hessian)
    near = mixture.at(best + 0.01)
    em, damping = mixture.step(near, 1.0)
    np.testing.assert_allclose(em.x - near.x, mixture.direction(near, near.r), rtol=1e-8)
    assert damping < 1
    newton, _ = mixture.step(near, 0.0)
    gradient = mixture.all_weights @ mixture.objective(near.x)[1]
    np.testing.assert_allclose(newton.x - near.x, np.linalg.solve(-mixture.hessian(near.x), gradient), rtol=1e-6)
    assert newton.value > em.value


def test_steps_that_gain_less_than_expected_are_damped() -> None:
    mixture, x = make(3, 2, sets=200)
    far = mixture.at(20 * x)
    after, damping = mixture.step(far, 1e-6)
    assert after.value > far.value
    assert damping > 1e-6


def test_steps_converge_to_a_gradient_of_0() -> None:
    mixture, x = make(1, 2, sets=200)
    at, damping = mixture.at(x), 1.0
    for _ in range(40):
        at, damping = mixture.step(at, damping)
    np.testing.assert_allclose(mixture.all_weights @ mixture.objective(at.x)[1], 0, atol=1e-5)  # a sum over 200 sets
    assert np.linalg.eigvalsh(mixture.hessian(at.x))[-1] < 1e-6


def test_the_search_leaves_the_saddle_of_equal_classes() -> None:
    """With equal classes the gradient between them is 0, but the point is a saddle."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, 2))
    likes = np.where(np.arange(300) % 2, 3.0, -3.0)  # half of them like what the others dislike
    chosen = (x.reshape(300, 4, 2)[..., 0] * likes[:, None] + rng.gumbel(size=(300, 4))).argmax(1)
    sets = LogitLikelihood.from_matrix(x, 4 * np.arange(301), chosen)
    mixture = LatentClassLikelihood(sets, np.arange(300), np.ones((300, 1)), np.ones(300), 2, 0.1)
    alone = LatentClassLikelihood(sets, np.arange(300), np.ones((300, 1)), np.ones(300), 1, 0.1)
    one, _ = maximise(alone.objective, np.zeros(2), alone.all_weights, curvature=alone.hessian)
    both, _ = maximise(mixture.objective, np.array([*one, *one, 0]), mixture.all_weights, curvature=mixture.hessian)
    assert np.linalg.eigvalsh(mixture.hessian(np.array([*one, *one, 0])))[-1] > 1
    assert np.linalg.eigvalsh(mixture.hessian(both))[-1] < 0
    assert mixture.at(both).value > alone.at(one).value + 10
