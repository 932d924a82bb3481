"""The likelihood of nested and cross-nested logits against formulas, and its scores against differences."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcmcnet.data.columns.ragged import log_softmax_by_set, log_sum_exp_by_set, sum_by_set
from pcmcnet.models.logit.nested_likelihood import (
    MAX_LOGSUM,
    MIN_LOGSUM,
    Allocation,
    NestedLikelihood,
    NestedRows,
    is_at_search_limit,
    mark_diverging_logsums,
)
from pcmcnet.models.logit.standard_errors import Estimates

# A tree with two levels: nest 0 holds the nests 1 and 2; 3 and 4 are at the top.
TREE = np.array([[0, 1], [0, 1], [0, 2], [0, 2], [0, 2], [3, -1], [3, -1], [4, -1]])
PARENTS = [-1, 0, 0, -1, -1]
COUNTS = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]], float)

shapes = {"seed": st.integers(0, 2**16), "sets": st.integers(1, 6)}


def make(seed: int, sets: int, columns: int) -> tuple[Any, Any, Any, Any]:
    """Return random sets of one to eight leaves of the tree in any order: x, leaf, offsets, chosen."""
    rng = np.random.default_rng(seed)
    leaf = [rng.permutation(len(TREE))[: rng.integers(1, len(TREE) + 1)] for _ in range(sets)]
    offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in leaf])])
    chosen = np.zeros(offsets[-1], bool)
    chosen[rng.integers(offsets[:-1], offsets[1:])] = True
    return rng.normal(size=(len(chosen), columns)), np.concatenate(leaf), offsets, chosen


def by_the_formula(v: Any, leaf: Any, logsums: Any) -> Any:
    """Return the probabilities of one set, node by node, with a softmax of log-sums at the root."""

    def node_log_sum(node: int) -> float:
        below = [value for value, path in zip(v, TREE[leaf], strict=True) if path[path >= 0][-1] == node]
        below += [node_log_sum(m) for m, parent in enumerate(PARENTS) if parent == node and m in TREE[leaf]]
        return float(logsums[node] * np.log(np.sum(np.exp(np.array(below) / logsums[node]))))

    root = np.log(sum(np.exp(node_log_sum(m)) for m in (0, 3, 4) if m in TREE[leaf]))
    probabilities = []
    for value, path in zip(v, TREE[leaf], strict=True):
        log_p, above, scale = 0.0, root, 1.0
        for node in [m for m in path if m >= 0]:
            log_p += (node_log_sum(node) - above) / scale
            above, scale = node_log_sum(node), logsums[node]
        probabilities.append(np.exp(log_p + (value - above) / scale))
    return probabilities


def test_probabilities_are_those_found_by_hand() -> None:
    """A nest of two with l = 1/2 and utility log 2, and one more: L = log 8, exp(L / 2) = sqrt 8, and exp(0) = 1."""
    nests = NestedRows.find(np.array([0, 1, 0]), np.array([0, 3]))
    v, logsums = np.array([np.log(2), 0.0, np.log(2)]), np.array([0.5, 1.0])
    both = np.sqrt(8) / (np.sqrt(8) + 1)
    np.testing.assert_allclose(np.exp(nests.log_probabilities(v, logsums)), [both / 2, 1 - both, both / 2], rtol=1e-14)
    np.testing.assert_allclose(nests.inclusive_values(v, logsums), [np.log(np.sqrt(8) + 1)], rtol=1e-14)


def test_a_nest_within_a_nest_has_the_values_found_by_hand() -> None:
    """All utilities are 0. A nest of two with l = 1/4 has 2^(1/4); with a third, l = 1/2: (sqrt 2 + 1)^(1/2)."""
    nests = NestedRows.find(np.array([[0, 1], [0, 1], [0, -1], [2, -1]]), np.array([0, 4]))
    p = np.exp(nests.log_probabilities(np.zeros(4), np.array([0.5, 0.25, 1.0])))
    land = np.sqrt(np.sqrt(2) + 1) / (np.sqrt(np.sqrt(2) + 1) + 1)
    twins = np.sqrt(2) / (np.sqrt(2) + 1)
    np.testing.assert_allclose(p, [land * twins / 2, land * twins / 2, land * (1 - twins), 1 - land], rtol=1e-14)


@given(**shapes)
def test_probabilities_follow_the_formula(seed: int, sets: int) -> None:
    x, leaf, offsets, _ = make(seed, sets, 1)
    logsums = np.random.default_rng(seed).uniform(0.2, 2, len(PARENTS))
    log_p = NestedRows.find(TREE[leaf], offsets).log_probabilities(x[:, 0], logsums)
    for s in range(sets):
        inside = slice(offsets[s], offsets[s + 1])
        np.testing.assert_allclose(
            np.exp(log_p[inside]), by_the_formula(x[inside, 0], leaf[inside], logsums), rtol=1e-10
        )
    np.testing.assert_allclose(sum_by_set(np.exp(log_p), offsets), 1, rtol=1e-12)


@given(**shapes)
def test_log_sums_of_1_give_the_multinomial_logit(seed: int, sets: int) -> None:
    x, leaf, offsets, _ = make(seed, sets, 1)
    log_p = NestedRows.find(TREE[leaf], offsets).log_probabilities(x[:, 0], np.ones(len(PARENTS)))
    np.testing.assert_allclose(log_p, log_softmax_by_set(x[:, 0], offsets), rtol=0, atol=1e-13)


@given(seed=st.integers(0, 2**16))
def test_an_added_alternative_raises_no_other_probability(seed: int) -> None:
    """Regularity, for log-sums that are at most those of their parents: no probability rises."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, len(TREE) + 1))
    leaf, v = rng.permutation(len(TREE))[:size], rng.normal(scale=2, size=size)
    relative = rng.uniform(0.1, 1, COUNTS.shape[1])
    logsums = np.prod(relative**COUNTS, axis=1)
    whole = NestedRows.find(TREE[leaf], np.array([0, size])).log_probabilities(v, logsums)
    less = NestedRows.find(TREE[leaf[:-1]], np.array([0, size - 1])).log_probabilities(v[:-1], logsums)
    assert (whole[:-1] <= less + 1e-12).all()  # rounding


def differences(function: Any, at: Any) -> Any:
    """Return central differences of log-probabilities, column by column."""
    columns = []
    for k in range(len(at)):
        step = np.zeros_like(at)
        step[k] = 1e-5 * max(1e-2, min(1.0, abs(at[k])))
        columns.append((function(at + step)[0] - function(at - step)[0]) / (2 * step[k]))
    return np.stack(columns, axis=1)


@settings(max_examples=40)
@given(**shapes, columns=st.integers(1, 3))
def test_scores_agree_with_differences_of_log_probabilities(seed: int, sets: int, columns: int) -> None:
    x, leaf, offsets, chosen = make(seed, sets, columns)
    places = NestedRows.find(TREE[leaf], offsets)
    problem = NestedLikelihood(x, places, chosen, COUNTS)
    rng = np.random.default_rng(seed)
    values = np.concatenate([rng.normal(size=columns), rng.uniform(0.4, 1.5, COUNTS.shape[1])])
    ll, _ = problem.evaluate(values)
    logsums = np.prod(values[columns:] ** COUNTS, axis=1)
    whole = places.log_probabilities(x @ values[:columns], logsums)
    np.testing.assert_allclose(ll, whole[chosen], rtol=1e-10, atol=1e-12)
    theta = problem.search(values)
    np.testing.assert_allclose(problem.values(theta), values, rtol=1e-12)
    for function, at in ((problem.objective, theta), (problem.evaluate, values)):
        scores = function(at)[1]
        # Utilities are divided by log-sums as small as 0.16, so third derivatives are large.
        np.testing.assert_allclose(scores, differences(function, at), rtol=1e-6, atol=1e-6)


def shared(seed: int, sets: int, columns: int) -> tuple[NestedLikelihood, Any, Any, Any]:
    """Return four alternatives in three nests (one in all, two in two, one in one) and the alternatives of rows."""
    pairs = np.array([[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [2, 1], [2, 2], [3, 2]])  # alternative, nest
    own, rest = np.zeros((8, 4)), np.zeros((8, 4))
    own[[0, 1, 3, 5], [0, 1, 2, 3]] = 1
    rest[[1, 2, 2, 4, 6], [0, 0, 1, 2, 3]] = 1
    rng = np.random.default_rng(seed)
    x, picked = rng.normal(size=(sets, 4, columns)), rng.integers(4, size=sets)
    nests = NestedRows.find(np.tile(pairs[:, 1], sets), 8 * np.arange(sets + 1))
    allocation = Allocation(np.tile(np.arange(8), sets), np.zeros(8), own, rest)
    chosen = (pairs[:, 0] == picked[:, None]).ravel()
    rows = x[:, pairs[:, 0]].reshape(-1, columns)
    values = np.concatenate([rng.normal(size=columns), rng.uniform(0.3, 1, 3), rng.uniform(0.1, 0.9, 4)])
    return NestedLikelihood(rows, nests, chosen, np.eye(3), allocation), values, x, picked


def cross_nested(v: Any, alpha: Any, logsums: Any) -> Any:  # (J,), (J, M), (M,) -> (J,)
    """Return the probabilities of the cross-nested logit by its formula."""
    y = (alpha * np.exp(v)[:, None]) ** (1 / logsums)
    nest = y.sum(0) ** logsums
    probabilities: Any = (y / y.sum(0) * nest / nest.sum()).sum(1)
    return probabilities


@settings(max_examples=40)
@given(**shapes, columns=st.integers(1, 2))
def test_shared_alternatives_follow_the_formula(seed: int, sets: int, columns: int) -> None:
    problem, values, x, picked = shared(seed, sets, columns)
    b, logsums, (s, t, u, w) = np.split(values, [columns, columns + 3])
    alpha = np.array([[s, (1 - s) * t, (1 - s) * (1 - t)], [u, 1 - u, 0], [0, w, 1 - w], [0, 0, 1]])
    expected = [cross_nested(x[k] @ b, alpha, logsums)[picked[k]] for k in range(sets)]
    np.testing.assert_allclose(problem.evaluate(values)[0], np.log(expected), rtol=1e-10)
    for function, at in ((problem.objective, problem.search(values)), (problem.evaluate, values)):
        np.testing.assert_allclose(function(at)[1], differences(function, at), rtol=1e-6, atol=1e-6)


@given(seed=st.integers(0, 2**16))
def test_shared_alternatives_with_log_sums_of_1_are_a_logit(seed: int) -> None:
    problem, values, x, picked = shared(seed, 3, 2)
    values[2:5] = 1.0
    expected = log_softmax_by_set((x @ values[:2]).ravel(), 4 * np.arange(4)).reshape(3, 4)[np.arange(3), picked]
    np.testing.assert_allclose(problem.evaluate(values)[0], expected, rtol=1e-12)
    np.testing.assert_allclose(problem.evaluate(values)[1][:, 5:], 0, atol=1e-12)  # allocations have no effect


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_an_allocation_at_its_bound_is_finite(share: float) -> None:
    problem, values, _, _ = shared(0, 4, 1)
    values[4:] = share
    ll, scores = problem.evaluate(values)
    assert np.isfinite(scores).all()
    assert np.isfinite(ll).all()


@given(seed=st.integers(0, 2**16))
def test_an_added_shared_alternative_raises_no_other_probability(seed: int) -> None:
    """Regularity of the cross-nested logit: the copies of the last alternative are left out."""
    problem, values, x, _ = shared(seed, 1, 1)
    v = problem.allocation.logs(values[4:]) + (x[0, [0, 0, 0, 1, 1, 2, 2, 3], 0]) * values[0]  # type: ignore[union-attr]
    nest, starts = np.array([0, 1, 2, 0, 1, 1, 2, 2]), np.array([0, 3, 5, 7, 8])

    def p(leave: int) -> Any:
        copies = NestedRows.find(nest[:leave], np.array([0, leave])).log_probabilities(v[:leave], values[1:4])
        return log_sum_exp_by_set(copies, starts[starts <= leave])

    assert (p(8)[:3] <= p(7) + 1e-12).all()  # rounding


def test_only_nests_with_two_alternatives_have_a_log_sum() -> None:
    nests = NestedRows.find(np.array([0, 1, 0, 1, 2, 2]), np.array([0, 2, 4, 6]))
    assert nests.has_two_children(4).tolist() == [False, False, True, False]
    tree = NestedRows.find(np.array([[0, 1], [0, 2], [3, 4], [3, 4]]), np.array([0, 2, 4]))
    assert tree.has_two_children(5).tolist() == [True, False, False, False, True]


# -- Bounds of log-sums ------------------------------------------------------------------------------------------------
# Log-sums without finite estimate, and the coefficients that grow with them.


def estimates_of(values: list[float], **more: tuple[str, ...]) -> Estimates:
    """Return two coefficients and two log-sums with errors of 1."""
    return Estimates(
        names=("a", "b", "logsum[m]", "logsum[n]"),
        values=np.array(values),
        null=np.zeros(4),
        covariances={"classical": np.eye(4)},
        log_likelihood=-1.0,
        null_log_likelihood=-2.0,
        n_sets=10,
        steps=1,
        **more,  # type: ignore[arg-type]
    )


LOGSUMS = ("logsum[m]", "logsum[n]")


@pytest.mark.parametrize(
    ("value", "at_limit"), [(MIN_LOGSUM, True), (0.2, False), (1.0, False), (50.0, False), (MAX_LOGSUM, True)]
)
def test_log_sums_at_the_search_limit_are_detected(value: float, at_limit: bool) -> None:
    assert is_at_search_limit(value) is at_limit


def test_a_coefficient_that_grows_with_a_log_sum_has_no_finite_error() -> None:
    """H_aa = -1 and H_am = .02: as l_m grows from 100 by its own size, a = 2 grows by 2 and b is constant."""
    hessian = -np.eye(4)
    hessian[0, 2] = hessian[2, 0] = 0.02
    marked = mark_diverging_logsums(
        estimates_of([2.0, 2.0, MAX_LOGSUM, 0.5], at_bound=("logsum[m]",)), hessian, LOGSUMS
    )
    assert marked.unbounded == ("a", "logsum[m]")
    assert marked.at_bound == ()
    assert marked.standard_errors() == {"a": np.inf, "b": 1.0, "logsum[m]": np.inf, "logsum[n]": 1.0}


def test_log_sums_that_diverge_together_are_judged_together() -> None:
    """a would grow with either of them, but not with both: it depends on their difference."""
    hessian = -np.eye(4)
    hessian[0, 2:] = hessian[2:, 0] = [0.02, -0.02]
    assert (
        mark_diverging_logsums(estimates_of([2.0, 2.0, MAX_LOGSUM, MAX_LOGSUM]), hessian, LOGSUMS).unbounded == LOGSUMS
    )
    assert "a" in mark_diverging_logsums(estimates_of([2.0, 2.0, MAX_LOGSUM, 1.0]), hessian, LOGSUMS).unbounded


def test_given_bounds_and_fixed_values_are_not_reported() -> None:
    at_its_bound = estimates_of([1.0, 1.0, MAX_LOGSUM, 0.5], at_bound=("logsum[m]",))
    assert mark_diverging_logsums(at_its_bound, -np.eye(4), ("logsum[n]",)) is at_its_bound
    fixed = estimates_of([1.0, 1.0, MAX_LOGSUM, 0.5], fixed=("logsum[m]",))
    assert mark_diverging_logsums(fixed, -np.eye(4), LOGSUMS) is fixed
