"""When strengths can be estimated, and their standard errors."""

import numpy as np
import pytest
import torch
from torch import Tensor

from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError, TrainingError
from pcmcnet.models.bradley_terry import BradleyTerry
from pcmcnet.models.interface.choice_model import Floats
from pcmcnet.models.items.strengths import (
    StrengthEstimate,
    lbfgs,
    require_comparable,
    standard_errors,
    value_and_gradient,
)
from pcmcnet.models.items.universe import DistinctSets


def duels(*pairs: tuple[int, int, float, float]) -> DistinctSets:
    """Return sets {i, j} with the counts of both choices."""
    items = np.array([k for i, j, _, _ in pairs for k in (i, j)])
    counts = np.array([c for _, _, a, b in pairs for c in (a, b)], np.float64)
    return DistinctSets(items, 2 * np.arange(len(pairs) + 1), counts, np.arange(len(items)), np.ones(len(items), int))


def test_a_cycle_of_wins_connects_all_items() -> None:
    require_comparable(duels((0, 1, 1, 0), (1, 2, 1, 0), (0, 2, 0, 1)), ("a", "b", "c"))


def test_a_chain_of_wins_does_not_connect_all_items() -> None:
    with pytest.raises(InputError, match=r"no finite estimate: .*3 such groups; Ford, 1957"):
        require_comparable(duels((0, 1, 1, 0), (1, 2, 1, 0), (0, 2, 1, 0)), ("a", "b", "c"))


def test_groups_without_a_common_set_are_named() -> None:
    with pytest.raises(InputError, match=r"connects 'a', 'b' with 'c', 'd'.*2 unconnected groups"):
        require_comparable(duels((0, 1, 1, 1), (2, 3, 1, 1)), ("a", "b", "c", "d"))


def test_standard_errors_omit_the_reference() -> None:
    hessian = np.array([[9.0, 0.0, 1.0], [0.0, 4.0, 0.0], [1.0, 0.0, 0.25]])
    assert standard_errors(hessian, reference=0).tolist() == [0, 0.5, 2]
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        standard_errors(np.diag([1.0, -1.0]), reference=0)


def test_a_flat_likelihood_raises_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def flat(self: BradleyTerry, sets: DistinctSets, n: int, reference: int, ridge: float) -> StrengthEstimate:
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
