"""When strengths can be estimated, and their standard errors."""

import numpy as np
import pytest
import torch
from torch import Tensor

from pcmcnet.arrays import Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.connected import connected_groups
from pcmcnet.errors import InputError, TrainingError
from pcmcnet.models.bradley_terry import BradleyTerry
from pcmcnet.models.interface.choice_model import Floats
from pcmcnet.models.items.strengths import (
    StrengthEstimate,
    lbfgs,
    require_finite_strengths,
    standard_errors,
    value_and_gradient,
    with_equal_means,
)
from pcmcnet.models.items.universe import DistinctSets


def duels(*pairs: tuple[int, int, float, float]) -> DistinctSets:
    """Return sets {i, j} with the counts of both choices."""
    items = np.array([k for i, j, _, _ in pairs for k in (i, j)])
    counts = np.array([c for _, _, a, b in pairs for c in (a, b)], np.float64)
    return DistinctSets(items, 2 * np.arange(len(pairs) + 1), counts, np.arange(len(items)), np.ones(len(items), int))


def test_a_cycle_of_wins_connects_all_items() -> None:
    sets = duels((0, 1, 1, 0), (1, 2, 1, 0), (0, 2, 0, 1))
    assert connected_groups(sets.items, sets.offsets, 3).tolist() == [0, 0, 0]
    require_finite_strengths(sets, ("a", "b", "c"), np.zeros(3, int))


def test_a_chain_of_wins_does_not_connect_all_items() -> None:
    with pytest.raises(InputError, match=r"no finite estimate: .*3 such groups; Ford, 1957"):
        require_finite_strengths(duels((0, 1, 1, 0), (1, 2, 1, 0), (0, 2, 1, 0)), ("a", "b", "c"), np.zeros(3, int))


def test_groups_without_a_common_set_are_found() -> None:
    """Items 0 and 1 share sets, and so do 2 and 3; item 4 is in no set. The second group has no finite estimate."""
    sets = duels((0, 1, 1, 1), (2, 3, 1, 0))
    groups = connected_groups(sets.items, sets.offsets, 5)
    assert groups.tolist() == [0, 0, 1, 1, 2]
    with pytest.raises(InputError, match=r"finite estimate: 'c' always won.*\(2 such groups"):
        require_finite_strengths(sets, ("a", "b", "c", "d", "e"), groups)
    require_finite_strengths(duels((0, 1, 1, 1), (2, 3, 1, 1)), ("a", "b", "c", "d", "e"), groups)


def test_groups_get_equal_means_and_the_reference_0() -> None:
    """Deviations from the group means are 1, -1 and 2, -2; the reference is the second item."""
    assert with_equal_means(np.array([2.0, 0, 7, 3]), np.array([0, 0, 1, 1]), 1).tolist() == [2, 0, 3, -1]


def test_standard_errors_omit_the_reference() -> None:
    hessian = np.array([[9.0, 0.0, 1.0], [0.0, 4.0, 0.0], [1.0, 0.0, 0.25]])
    one_group = np.zeros(3, int)
    assert standard_errors(hessian, 0, np.array([0]), one_group).tolist() == [0, 0.5, 2]
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        standard_errors(np.diag([1.0, -1.0]), 0, np.array([0]), one_group[:2])


def test_standard_errors_across_groups_add_up() -> None:
    """Differences within two pairs have variances 1 and 4, so deviations from the means have 1/4 and 1."""
    pair = np.array([[1.0, -1.0], [-1.0, 1.0]])
    hessian = np.block([[pair, np.zeros((2, 2))], [np.zeros((2, 2)), pair / 4]])
    errors = standard_errors(hessian, 0, np.array([0, 2]), np.array([0, 0, 1, 1]))
    np.testing.assert_allclose(errors, [0, 1, np.sqrt(1.25), np.sqrt(1.25)], rtol=1e-12)


def test_a_flat_likelihood_raises_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def flat(self: BradleyTerry, sets: DistinctSets, n: int, fixed: Ints, ridge: float) -> StrengthEstimate:
        zeros: Floats = np.zeros((n, n))
        return StrengthEstimate(np.zeros(n), zeros, 1, True)

    monkeypatch.setattr(BradleyTerry, "_estimate", flat)
    table = {"set": [0, 0], "item": ["a", "b"], "chosen": [1, 0]}
    data = ChoiceData.from_long(table, choice_set="set", chosen="chosen", alternative="item")
    with pytest.raises(TrainingError, match="raise smoothing"):
        BradleyTerry().fit(data)


# -- L-BFGS ------------------------------------------------------------------------------------------------------------
# L-BFGS with gradients from torch.


def bowl(x: Tensor) -> Tensor:
    """Return a quadratic with minimum 3 at (1, 2)."""
    return ((x - torch.tensor([1.0, 2.0], dtype=torch.float64)) ** 2).sum() + 3


def test_the_minimum_of_a_quadratic_is_found() -> None:
    result = lbfgs(bowl, np.zeros(2), max_iter=50, tolerance=1e-15)
    np.testing.assert_allclose(result.x, [1, 2], rtol=0, atol=1e-7)
    assert result.value == pytest.approx(3, abs=1e-14)
    assert result.converged
    assert 0 < result.iterations < 50


def test_components_stay_within_the_bound() -> None:
    result = lbfgs(bowl, np.zeros(2), max_iter=50, tolerance=1e-15, bound=1.5)
    np.testing.assert_allclose(result.x, [1, 1.5], rtol=0, atol=1e-7)


def test_a_search_with_too_few_steps_is_not_converged() -> None:
    def valley(x: Tensor) -> Tensor:  # Rosenbrock's
        return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2

    assert not lbfgs(valley, np.array([-1.2, 1.0]), max_iter=2, tolerance=1e-15).converged


def test_nan_is_reported_as_a_breakdown() -> None:
    with pytest.raises(TrainingError, match="the objective became nan"):
        lbfgs(lambda x: (x * float("nan")).sum(), np.zeros(2), max_iter=5, tolerance=1e-9)


def test_value_and_gradient_agree_with_torch() -> None:
    value, gradient = value_and_gradient(bowl)(np.zeros(2))
    assert value == 8
    assert gradient.tolist() == [-2, -4]
