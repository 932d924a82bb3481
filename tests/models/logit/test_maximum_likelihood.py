from typing import Any

import numpy as np
import pytest

from pcmcnet.errors import TrainingError
from pcmcnet.models.logit.logit_likelihood import LogitLikelihood
from pcmcnet.models.logit.maximum_likelihood import eigh, maximise, numerical_hessian
from pcmcnet.models.logit.parameter_bounds import Parameters


def logit(seed: int = 0, sets: int = 200, columns: int = 3) -> tuple[LogitLikelihood, Any, Any]:
    """Return a logit and its objective, which gives log-probabilities and scores of the sets."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 5, sets)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    result = LogitLikelihood.from_matrix(rng.normal(size=(offsets[-1], columns)), offsets, rng.integers(0, sizes))
    return result, lambda b: (result.log_likelihoods(b), result.scores(b)), rng.uniform(0.5, 2, sets)


def test_the_maximum_of_a_logit_agrees_with_newtons_method() -> None:
    sets, objective, weights = logit()
    b, _, _ = sets.maximise(weights)
    result, steps = maximise(objective, np.zeros(3), weights)
    # Steps end if another one would gain less than 1e-12 of the log-likelihood.
    np.testing.assert_allclose(result, b, rtol=1e-5, atol=1e-5)
    assert steps > 0


def test_the_numerical_hessian_agrees_with_the_exact_one() -> None:
    sets, objective, weights = logit()
    b = np.array([0.3, -1.0, 0.0])
    exact = sets.hessian(*sets.evaluate(b)[1:], weights[sets.sets])
    np.testing.assert_allclose(numerical_hessian(objective, b, weights), exact, rtol=1e-7, atol=1e-7)
    scaled = numerical_hessian(objective, b, weights, scale=np.array([0.1, 1.0, 10.0]))
    np.testing.assert_allclose(scaled, exact, rtol=1e-4, atol=1e-4)  # a step of 1e-4 has an error of its square
    np.testing.assert_array_equal(scaled, scaled.T)


def test_given_scales_do_not_change_the_maximum() -> None:
    sets, objective, weights = logit()
    units = np.array([1e-6, 1.0, 1e6])

    def in_units(x: Any) -> Any:
        ll, scores = objective(x * units)
        return ll, scores * units

    b, _, _ = sets.maximise(weights)
    result, _ = maximise(in_units, np.zeros(3), weights, scale=1 / units)
    np.testing.assert_allclose(result * units, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("exact", [True, False])
def test_bounded_and_fixed_maxima_agree_with_newtons_method(exact: bool) -> None:
    sets, objective, weights = logit()
    free, _, _ = sets.maximise(weights)
    high = np.array([free[0] - 0.1, np.inf, 0.4])
    within = Parameters(("a", "b", "c"), np.array([-1.0, 0.0, 0.4]), np.array([-2.0, free[1] + 0.1, 0.4]), high)
    expected, _, _ = sets.maximise(weights, within=within)
    curvature = (lambda b: sets.hessian(*sets.evaluate(b)[1:], weights[sets.sets])) if exact else None
    result, _ = maximise(
        objective, np.array([[5.0, -5.0, 5.0], [0.0, 0.0, 0.0]]), weights, curvature=curvature, within=within
    )
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(within.at_bound(result), [True, True, False])
    assert result[2] == 0.4
    everything = Parameters(("a", "b", "c"), free, free, free)
    np.testing.assert_array_equal(maximise(objective, np.zeros(3), weights, within=everything)[0], free)


def test_the_search_leaves_a_saddle_within_bounds() -> None:
    """-(x^2 - 1)^2 - y^2 has a saddle at 0 and maxima at x = -1 and 1; only the bound at 0.5 can be reached."""

    def objective(b: Any) -> Any:
        x, y = b
        return np.array([-((x**2 - 1) ** 2) - y**2]), np.array([[-4 * x * (x**2 - 1), -2 * y]])

    within = Parameters(("x", "y"), np.zeros(2), np.array([-0.25, -1.0]), np.array([0.5, 1.0]))
    curvature = lambda b: np.diag([4 - 12 * b[0] ** 2, -2.0])  # noqa: E731
    result, _ = maximise(objective, np.array([0.0, 0.5]), np.ones(1), curvature=curvature, within=within)
    assert result[0] in (-0.25, 0.5)
    assert result[1] == pytest.approx(0, abs=1e-6)


def test_the_line_search_returns_from_invalid_parameters() -> None:
    """-(x - 1)^2 / 2 for x > 0 and invalid below: the line search shortens its step."""

    def objective(x: Any) -> Any:
        inside = x[0] > 0
        return np.array([-((x[0] - 1) ** 2) / 2 if inside else -np.inf]), np.array([[1 - x[0]]])

    result, _ = maximise(objective, np.array([9.0]), np.ones(1))
    np.testing.assert_allclose(result, [1], rtol=1e-5)


def test_a_search_without_maximum_ends_when_it_gains_nothing() -> None:
    """-exp(-x) has no maximum, but its gains vanish."""
    result, _ = maximise(lambda x: (-np.exp(-x), np.exp(-x)[:, None]), np.zeros(1), np.ones(1))
    assert np.isfinite(result).all()
    assert result[0] > 10


def test_a_likelihood_that_does_not_converge_is_an_error() -> None:
    """-(1 + x)^-1/4 rises so slowly that every step still gains, although each nearly doubles x."""

    def objective(x: Any) -> Any:
        root = (1 + np.maximum(x, 0)) ** -0.25
        return -root, (root**5 / 4)[:, None]

    with pytest.raises(TrainingError, match="the log-likelihood has not converged after"):
        maximise(objective, np.zeros(1), np.ones(1), max_iter=3)


def test_the_best_of_several_starts_is_returned() -> None:
    """-(x^2 - 1)^2 + x / 4 has a maximum near -1, and a higher one near 1."""

    def objective(x: Any) -> Any:
        return -((x**2 - 1) ** 2) + x / 4, (-4 * x * (x**2 - 1) + 0.25)[:, None]

    low, high = (maximise(objective, np.array([at]), np.ones(1))[0][0] for at in (-1.5, 1.5))
    assert low < 0 < high
    both, _ = maximise(objective, np.array([[-1.5], [1.5]]), np.ones(1))
    assert both[0] == pytest.approx(high, rel=1e-6)


def test_newton_steps_leave_a_saddle() -> None:
    """-(x^2 - 1)^2 has a minimum at 0 and maxima at -1 and 1."""

    def objective(x: Any) -> Any:
        return -((x**2 - 1) ** 2), (-4 * x * (x**2 - 1))[:, None]

    result, steps = maximise(objective, np.zeros(1), np.ones(1), curvature=lambda x: np.array([4 - 12 * x**2]))
    np.testing.assert_allclose(np.abs(result), 1, rtol=1e-5)  # a gain below 1e-12 ends the steps
    assert steps > 0


def test_a_hessian_without_eigenvalues_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    np.testing.assert_allclose(eigh(np.diag([3.0, 2.0]))[0], [2, 3], rtol=1e-15)
    problem = "the Hessian of the log-likelihood is not finite: rescale columns"
    for bad in (np.nan, np.inf):
        with pytest.raises(TrainingError, match=problem):
            eigh(np.diag([bad, 1.0]))

    def fail(_: Any) -> Any:
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    monkeypatch.setattr(np.linalg, "eigh", fail)
    with pytest.raises(TrainingError, match=problem):
        maximise(lambda x: (-(x**2), -2 * x[:, None]), np.ones(1), np.ones(1), curvature=lambda _: -2 * np.eye(1))
