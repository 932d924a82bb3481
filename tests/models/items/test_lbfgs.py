"""L-BFGS with gradients from torch."""

import numpy as np
import pytest
import torch
from torch import Tensor

from pcmcnet.errors import TrainingError
from pcmcnet.models.items.lbfgs import lbfgs, value_and_gradient


def bowl(x: Tensor) -> Tensor:
    """Least at (1, 2), where it is 3."""
    return ((x - torch.tensor([1.0, 2.0], dtype=torch.float64)) ** 2).sum() + 3


def test_a_bowl_has_its_minimum_where_it_was_put() -> None:
    found = lbfgs(bowl, np.zeros(2), max_iter=50, tolerance=1e-15)
    np.testing.assert_allclose(found.at, [1, 2], rtol=0, atol=1e-7)
    assert found.value == pytest.approx(3, abs=1e-14)
    assert found.converged
    assert 0 < found.iterations < 50


def test_no_component_leaves_the_bound() -> None:
    found = lbfgs(bowl, np.zeros(2), max_iter=50, tolerance=1e-15, bound=1.5)
    np.testing.assert_allclose(found.at, [1, 1.5], rtol=0, atol=1e-7)


def test_a_search_cut_short_is_not_converged() -> None:
    def valley(x: Tensor) -> Tensor:  # Rosenbrock's
        return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2

    assert not lbfgs(valley, np.array([-1.2, 1.0]), max_iter=2, tolerance=1e-15).converged


def test_a_value_that_is_no_number_is_a_breakdown() -> None:
    with pytest.raises(TrainingError, match="the objective became nan"):
        lbfgs(lambda x: (x * float("nan")).sum(), np.zeros(2), max_iter=5, tolerance=1e-9)


def test_value_and_gradient_are_those_of_torch() -> None:
    value, gradient = value_and_gradient(bowl)(np.zeros(2))
    assert value == 8
    assert gradient.tolist() == [-2, -4]
