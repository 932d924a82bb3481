"""The likelihood of the nested logit against the formula written out, and its scores against differences."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcmcnet.data.ragged import log_softmax_by_set, sum_by_set
from pcmcnet.models.logits.estimation.nested_likelihood import FURTHEST, NestedSets, Nests, at_bound


def by_the_formula(v: Any, nest: Any, logsums: Any) -> Any:
    """Probabilities of one set, nest by nest."""
    inclusive = {m: np.log(sum(np.exp(v[nest == m] / logsums[m]))) for m in set(nest.tolist())}
    total = sum(np.exp(logsums[m] * value) for m, value in inclusive.items())
    return [
        np.exp(u / logsums[m] - inclusive[m]) * np.exp(logsums[m] * inclusive[m]) / total
        for u, m in zip(v, nest, strict=True)
    ]


def test_probabilities_by_hand() -> None:
    """Twins with l = 1/2 and utility log 2, and one apart: L = log 8, exp(L / 2) = sqrt 8, and exp(0) = 1."""
    nests = Nests.find(np.array([0, 1, 0]), np.array([0, 3]))
    p = np.exp(nests.log_probabilities(np.array([np.log(2), 0.0, np.log(2)]), np.array([0.5, 1.0])))
    both = np.sqrt(8) / (np.sqrt(8) + 1)
    np.testing.assert_allclose(p, [both / 2, 1 - both, both / 2], rtol=1e-14)


def make(seed: int, sets: int, nests: int, columns: int) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, sets)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    x = rng.normal(size=(offsets[-1], columns))
    return x, rng.integers(nests, size=len(x)), offsets, offsets[:-1] + rng.integers(0, sizes)


shapes = {"seed": st.integers(0, 2**16), "sets": st.integers(1, 6), "nests": st.integers(1, 4)}


@given(**shapes)
def test_probabilities_are_those_of_the_formula(seed: int, sets: int, nests: int) -> None:
    x, nest, offsets, _ = make(seed, sets, nests, 1)
    logsums = np.random.default_rng(seed).uniform(0.2, 2, nests)
    log_p = Nests.find(nest, offsets).log_probabilities(x[:, 0], logsums)
    for s in range(sets):
        inside = slice(offsets[s], offsets[s + 1])
        expected = by_the_formula(x[inside, 0], nest[inside], logsums)
        np.testing.assert_allclose(np.exp(log_p[inside]), expected, rtol=1e-10)
    np.testing.assert_allclose(sum_by_set(np.exp(log_p), offsets), 1, rtol=1e-12)


@given(**shapes)
def test_log_sums_of_1_give_the_multinomial_logit(seed: int, sets: int, nests: int) -> None:
    x, nest, offsets, _ = make(seed, sets, nests, 1)
    found = Nests.find(nest, offsets).log_probabilities(x[:, 0], np.ones(nests))
    np.testing.assert_allclose(found, log_softmax_by_set(x[:, 0], offsets), rtol=0, atol=1e-13)


@settings(max_examples=40)
@given(**shapes, columns=st.integers(1, 3), spread=st.floats(0.2, 3.0))
def test_scores_are_the_differences_of_the_log_probabilities(
    seed: int, sets: int, nests: int, columns: int, spread: float
) -> None:
    x, nest, offsets, picked = make(seed, sets, nests, columns)
    places = Nests.find(nest, offsets)
    free = places.with_two(nests)
    problem = NestedSets(x, places, picked, free)
    rng = np.random.default_rng(seed)
    theta = np.concatenate([rng.normal(size=columns), rng.uniform(-spread, spread, int(free.sum()))])
    for function, at in ((problem.objective, theta), (problem.evaluate, problem.values(theta))):
        ll, scores = function(at)
        logsums = np.ones(nests)
        logsums[free] = problem.values(theta)[columns:]
        whole = places.log_probabilities(x @ theta[:columns], logsums)
        np.testing.assert_allclose(ll, whole[picked], rtol=1e-10, atol=1e-12)
        for k in range(len(theta)):
            step = np.zeros_like(at)
            step[k] = 1e-5 * max(1e-2, min(1.0, abs(at[k])))
            slope = (function(at + step)[0] - function(at - step)[0]) / (2 * step[k])
            # Utilities over log-sums down to 0.1: third derivatives, and rounding over a step of 1e-7, come to that.
            np.testing.assert_allclose(scores[:, k], slope, rtol=1e-4, atol=1e-5)


def test_only_nests_that_ever_have_two_alternatives_have_a_log_sum() -> None:
    nests = Nests.find(np.array([0, 1, 0, 1, 2, 2]), np.array([0, 2, 4, 6]))
    assert nests.with_two(4).tolist() == [False, False, True, False]


@pytest.mark.parametrize(("theta", "bound"), [(-1e3, True), (1e3, True), (-3.0, False), (0.0, False), (2.0, False)])
def test_log_sums_stay_within_their_bounds(theta: float, bound: bool) -> None:
    problem = NestedSets(
        np.eye(3), Nests.find(np.array([0, 0, 1]), np.array([0, 3])), np.array([0]), np.array([1, 0]) > 0
    )
    values = problem.values(np.array([1.0, 2.0, 3.0, theta]))
    assert values[:3].tolist() == [1, 2, 3]
    assert abs(np.log(values[3])) <= FURTHEST + 1e-12
    assert at_bound(values[3]) is bound
    ll, scores = problem.objective(np.array([1.0, 2.0, 3.0, theta]))
    assert np.isfinite(ll).all()
    assert np.isfinite(scores).all()
