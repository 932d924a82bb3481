from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choice_tables import read, trips
from pcmcnet.errors import TrainingError
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.logit_likelihood import (
    LogitLikelihood,
    NonlinearLogitLikelihood,
    NonlinearNestedLikelihood,
    _solve,
)
from pcmcnet.models.logit.nested_likelihood import NestedRows
from pcmcnet.models.logit.parameter_bounds import Parameters


def problem(seed: int, sets: int, columns: int, largest: int = 5) -> tuple[LogitLikelihood, Any, Any]:
    """Return random sets, some of one alternative, their weights, and coefficients."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, largest + 1, sets)
    sizes[0] = 2
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    x = rng.normal(size=(offsets[-1], columns))
    return (
        LogitLikelihood.from_matrix(x, offsets, rng.integers(0, sizes)),
        rng.uniform(0.5, 2.0, sets),
        rng.normal(size=columns),
    )


def pairs(z: list[float]) -> LogitLikelihood:
    """Return sets of two alternatives and one column with given differences."""
    x = np.array([[v] for d in z for v in (0.0, d)])
    return LogitLikelihood.from_matrix(x, np.arange(0, 2 * len(z) + 1, 2), np.zeros(len(z), np.int64))


# -- likelihood ----------------------------------------------------------------------------------------------------


def test_differences_are_relative_to_the_chosen_alternative() -> None:
    x = np.array([[1.0], [4.0], [9.0], [7.0], [2.0], [5.0]])
    sets = LogitLikelihood.from_matrix(x, np.array([0, 3, 4, 6]), np.array([1, 0, 1]))
    assert sets.z.ravel().tolist() == [-3, 5, -3]
    assert sets.offsets.tolist() == [0, 2, 3]
    assert sets.sets.tolist() == [0, 2]
    assert sets.spread.tolist() == [np.sqrt((9 + 25 + 9) / 3)]


def test_the_log_likelihood_of_three_alternatives_is_that_by_hand() -> None:
    """Utilities are 0, log 2 and log 3, and the second is chosen: P = 2 / 6. A set of one has log-probability 0."""
    x = np.log([[1.0], [2.0], [3.0], [8.0]])
    sets = LogitLikelihood.from_matrix(x, np.array([0, 3, 4]), np.array([1, 0]))
    np.testing.assert_allclose(sets.log_likelihoods(np.ones(1)), [np.log(1 / 3), 0], rtol=1e-15, atol=0)
    _, p, _ = sets.evaluate(np.ones(1))
    np.testing.assert_allclose(p, [1 / 6, 3 / 6], rtol=1e-15)


def test_huge_utilities_do_not_overflow() -> None:
    ll, p, mean = pairs([1000.0, -1000.0]).evaluate(np.ones(1))
    assert ll.tolist() == [-1000, 0]
    assert p.tolist() == [1, 0]
    assert mean.ravel().tolist() == [1000, 0]


@given(seed=st.integers(0, 2**16), sets=st.integers(1, 30), columns=st.integers(1, 4), largest=st.integers(2, 7))
def test_scores_and_hessian_agree_with_finite_differences(seed: int, sets: int, columns: int, largest: int) -> None:
    logit, weights, b = problem(seed, sets, columns, largest)
    h = 1e-6
    steps = h * np.eye(columns)
    scores = np.stack([(logit.log_likelihoods(b + s) - logit.log_likelihoods(b - s)) / (2 * h) for s in steps], 1)
    # Central differences of values of order 1 with a step of 1e-6 are accurate to about 1e-9.
    np.testing.assert_allclose(logit.scores(b), scores, rtol=1e-6, atol=1e-7)
    bend = np.stack([weights @ (logit.scores(b + s) - logit.scores(b - s)) / (2 * h) for s in steps])
    _, p, mean = logit.evaluate(b)
    np.testing.assert_allclose(logit.hessian(p, mean, weights[logit.sets]), bend, rtol=1e-6, atol=1e-6)


def test_sums_over_many_rows_do_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    logit, weights, b = problem(0, 200, 3)
    whole = logit.hessian(*logit.evaluate(b)[1:], weights[logit.sets])
    monkeypatch.setattr("pcmcnet.models.logit.logit_likelihood._BLOCK", 7)
    parted, _, _ = problem(0, 200, 3)
    np.testing.assert_array_equal(parted.z, logit.z)
    np.testing.assert_allclose(parted.hessian(*parted.evaluate(b)[1:], weights[parted.sets]), whole, rtol=1e-12)


@given(seed=st.integers(0, 2**16), sets=st.integers(1, 60), part=st.integers(1, 90))
def test_chunks_of_whole_sets_give_the_same_likelihood(seed: int, sets: int, part: int) -> None:
    whole, weights, b = problem(seed, sets, 3)
    parted, _, _ = problem(seed, sets, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pcmcnet.models.logit.logit_likelihood._PART", part)
        assert parted._chunks[-1].rows.stop == len(parted.z)
        assert all(len(p.offsets) > 1 for p in parted._chunks)
    for ours, theirs in zip(parted.evaluate(b), whole.evaluate(b), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)
    ours, theirs = (s.hessian(*s.evaluate(b)[1:], weights[s.sets]) for s in (parted, whole))
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_sets_of_one_alternative_have_no_differences() -> None:
    sets = LogitLikelihood.from_matrix(np.ones((3, 2)), np.arange(4), np.zeros(3, np.int64))
    ll, p, mean = sets.evaluate(np.ones(2))
    assert (ll.shape, p.shape, mean.shape) == ((0,), (0,), (0, 2))
    assert not sets.hessian(p, mean, np.zeros(0)).any()


# -- maximum -------------------------------------------------------------------------------------------------------


def test_the_maximum_of_two_alternatives_has_the_closed_form() -> None:
    """z = -1 three times and 1 once: P(z = -1) = 3 / 4 = 1 / (1 + exp(-b)) gives b = log 3, and H = -4 P (1 - P)."""
    b, hessian, _ = pairs([-1, -1, -1, 1]).maximise(np.ones(4))
    np.testing.assert_allclose(b, [-np.log(1 / 3)], rtol=1e-12)
    np.testing.assert_allclose(hessian, [[-4 * 3 / 16]], rtol=1e-12)


@given(seed=st.integers(0, 2**16), columns=st.integers(1, 4))
def test_the_gradient_vanishes_at_the_maximum(seed: int, columns: int) -> None:
    logit, weights, _ = problem(seed, 200, columns)
    b, hessian, _ = logit.maximise(weights)
    np.testing.assert_allclose(weights @ logit.scores(b), 0, atol=1e-9)
    assert (np.linalg.eigvalsh(hessian) < 0).all()


@given(seed=st.integers(0, 2**16), columns=st.integers(2, 5))
def test_the_bounded_maximum_meets_the_kkt_conditions(seed: int, columns: int) -> None:
    """Between bounds the gradient is 0, at a bound it points outwards (Karush, Kuhn and Tucker)."""
    logit, weights, _ = problem(seed, 200, columns)
    rng = np.random.default_rng(seed)
    low = logit.maximise(weights)[0] + rng.normal(size=columns) / 2
    high = low + rng.exponential(size=columns)
    low[rng.random(columns) < 0.3] = -np.inf
    high[0] = low[0] = 0.3  # fixed
    start = np.clip(np.zeros(columns), low, high)
    b, _, _ = logit.maximise(weights, within=Parameters(("",) * columns, start, low, high))
    assert b[0] == 0.3
    assert ((low <= b) & (b <= high)).all()
    gradient = weights @ logit.scores(b)
    np.testing.assert_allclose(gradient[1:][(b > low)[1:] & (b < high)[1:]], 0, atol=1e-7)
    assert (gradient[1:][(b == low)[1:]] <= 0).all()
    assert (gradient[1:][(b == high)[1:]] >= 0).all()


def test_the_maximum_does_not_depend_on_the_start_or_on_scales() -> None:
    logit, weights, far = problem(1, 200, 3)
    b, _, _ = logit.maximise(weights)
    np.testing.assert_allclose(logit.maximise(weights, within=Parameters.free(10 * far))[0], b, rtol=1e-9)
    units = np.array([1e-6, 1.0, 1e6])
    scaled = LogitLikelihood(logit.z * units, logit.offsets, logit.sets, logit.n_sets)
    np.testing.assert_allclose(scaled.maximise(weights)[0] * units, b, rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-20, 1e20])
def test_the_maximum_does_not_depend_on_the_unit_of_weights(unit: float) -> None:
    logit, weights, _ = problem(1, 200, 3)
    b, hessian, _ = logit.maximise(weights)
    again, bend, _ = logit.maximise(unit * weights)
    np.testing.assert_allclose(again, b, rtol=1e-9)
    np.testing.assert_allclose(bend / unit, hessian, rtol=1e-9)


def test_a_weight_of_two_counts_a_set_twice() -> None:
    logit, weights, _ = problem(2, 60, 2)
    twice = LogitLikelihood(
        np.vstack([logit.z, logit.z]),
        np.concatenate([logit.offsets, logit.offsets[1:] + logit.offsets[-1]]),
        np.concatenate([logit.sets, logit.sets + logit.n_sets]),
        2 * logit.n_sets,
    )
    b, hessian, _ = logit.maximise(2 * weights)
    again, bend, _ = twice.maximise(np.concatenate([weights, weights]))
    np.testing.assert_allclose(again, b, rtol=1e-9)
    np.testing.assert_allclose(bend, hessian, rtol=1e-9)


@pytest.mark.parametrize("others", [0, 100_000])
def test_a_coefficient_without_finite_estimate_becomes_large(others: int) -> None:
    """The first column separates one set perfectly. The second varies in many ordinary sets."""
    rng = np.random.default_rng(0)
    z = np.vstack([[[-1.0, 0.0]], np.column_stack([np.zeros(others), rng.normal(size=others)])])
    z = z[:, : 1 + (others > 0)]
    logit = LogitLikelihood(z, np.arange(others + 2), np.arange(others + 1), others + 1)
    b, hessian, _ = logit.maximise(np.ones(others + 1))
    assert b[0] > 20
    assert 0 <= -hessian[0, 0] < 1e-9
    assert np.isfinite(b).all()


def test_a_column_of_zeros_does_not_change_other_coefficients() -> None:
    logit, weights, _ = problem(1, 200, 2)
    z = np.insert(logit.z, 1, 0.0, axis=1)
    still = LogitLikelihood(z, logit.offsets, logit.sets, logit.n_sets)
    assert still.spread[1] == 1
    b, _, _ = logit.maximise(weights)
    for settle in (True, False):
        result, hessian, _ = still.maximise(weights, settle=settle)
        np.testing.assert_allclose(result, [b[0], 0, b[1]], rtol=1e-9)
        assert not hessian[1].any()


def test_coefficients_are_0_if_all_sets_have_one_alternative() -> None:
    sets = LogitLikelihood.from_matrix(np.ones((3, 2)), np.arange(4), np.zeros(3, np.int64))
    b, hessian, _ = sets.maximise(np.ones(3))
    assert not b.any()
    assert not hessian.any()


def test_newton_steps_exist_for_a_singular_or_indefinite_hessian() -> None:
    """Second derivatives 2 and 0 with gradients 4 and 0 give steps 4 / 2 and 0. For -1, a ridge above 1 is added."""
    np.testing.assert_allclose(_solve(np.diag([2.0, 0.0]), np.array([4.0, 0.0])), [2, 0], rtol=1e-9)
    assert np.isfinite(_solve(-np.eye(2), np.ones(2))).all()
    for hopeless in (np.full((2, 2), np.nan), np.diag([np.inf, 1.0]), -1e200 * np.eye(2)):
        with pytest.raises(TrainingError, match="the Hessian of the log-likelihood is not finite: rescale columns"):
            _solve(hopeless, np.ones(2))


def test_steps_are_limited() -> None:
    logit, weights, _ = problem(3, 100, 2)
    with pytest.raises(TrainingError, match="has not converged after 1 iterations: raise max_iter"):
        logit.maximise(weights, max_iter=1)
    b, _, steps = logit.maximise(weights, max_iter=1, settle=False)
    assert steps == 1
    assert weights @ logit.log_likelihoods(b) > weights @ logit.log_likelihoods(np.zeros(2))


# -- Nonlinear likelihood ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [None, "purpose"])
@pytest.mark.parametrize("cost", [None, "price/10"])
def test_scores_are_derivatives_of_log_probabilities(cost: str | None, scale: str | None) -> None:
    roles = {"features": ["price", "minutes", "comfort"], "individual": ["purpose"]}
    data = read(trips(40, single=True), alternative="mode", **roles)
    formula = "price/10 + comfort:boxcox(minutes)/60 + minutes[car] | 1 | boxcox(minutes)/60"
    design = Design.learn(formula, data, cost=cost, scale=scale)
    chosen = data.require_chosen("a test")
    logit = NonlinearLogitLikelihood(partial(design.linearised, data), data)
    theta = np.random.default_rng(0).normal(size=len(design.names)) / 4
    theta[-1] = 0.7
    ll, scores = logit.objective(theta)
    assert scores.shape == (40, len(theta))
    v = design.utilities(data, theta)
    at = data.offsets[:-1] + chosen
    by_hand = [v[i] - np.log(np.exp(v[a:b]).sum()) for i, a, b in zip(at, data.offsets, data.offsets[1:], strict=False)]
    np.testing.assert_allclose(ll, by_hand, rtol=1e-10, atol=1e-12)
    for k, step in enumerate(1e-5 * np.eye(len(theta))):
        numeric = (logit.objective(theta + step)[0] - logit.objective(theta - step)[0]) / 2e-5
        np.testing.assert_allclose(scores[:, k], numeric, atol=1e-7, err_msg=design.names[k])


def test_scores_of_nested_sets_are_derivatives_of_log_probabilities() -> None:
    data = read(trips(30), features=["price", "minutes"])
    design = Design.learn("price/10 + boxcox(minutes)/60", data, cost="price/10")
    chosen = np.isin(np.arange(len(data.rows)), data.offsets[:-1] + data.require_chosen("a test"))
    nests = NestedRows.find(np.arange(len(data.rows)) % 2, data.offsets)
    logit = NonlinearNestedLikelihood(partial(design.linearised, data), 3, nests, chosen, np.eye(2))
    values = np.array([-0.4, 0.3, 0.6, 0.7, 0.9])
    _, scores = logit.evaluate(values)
    for k, step in enumerate(1e-5 * np.eye(5)):
        numeric = (logit.evaluate(values + step)[0] - logit.evaluate(values - step)[0]) / 2e-5
        np.testing.assert_allclose(scores[:, k], numeric, atol=1e-7)
    assert (logit.evaluate(np.array([-0.4, 0.3, 900.0, 0.7, 0.9]))[0] == -np.inf).all()


def test_exponents_that_overflow_are_out_of_bounds() -> None:
    data = read(trips(20), features=["price", "minutes"])
    design = Design.learn("boxcox(minutes) + price", data)
    logit = NonlinearLogitLikelihood(partial(design.linearised, data), data)
    ll, scores = logit.objective(np.array([-0.1, -0.1, 900.0]))
    assert (ll == -np.inf).all()
    assert (scores == 0).all()
    assert (logit.spread(np.array([0.0, 0.0, 1.0])) > 0).all()
