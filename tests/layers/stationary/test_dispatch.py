"""Which solver is chosen."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from pcmcnet.layers.stationary import dispatch as solvers
from pcmcnet.layers.stationary import elimination
from pcmcnet.layers.stationary import elimination_in_blocks as blocked
from pcmcnet.layers.stationary.dispatch import FUSED, LARGE, solver_for


def sets(n: int, device: str = "cpu") -> Any:
    """Stand for a batch on a device that need not be there."""
    return SimpleNamespace(shape=(2, n), device=torch.device(device))


@pytest.mark.parametrize(("n", "expected"), [(1, elimination), (LARGE, elimination), (LARGE + 1, blocked)])
@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_large_sets_are_solved_in_panels(n: int, expected: ModuleType, device: str) -> None:
    assert solver_for(sets(n, device)) is expected


def test_rates_and_their_gradient_get_one_solver() -> None:
    assert solver_for(torch.ones(2, 97, 97)) is solver_for(torch.ones(2, 97)) is blocked
    assert solver_for(torch.ones(97, 3, 3)) is solver_for(torch.ones(97, 3)) is elimination


def test_a_gpu_without_triton_is_served_like_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solvers, "has_triton", lambda: False)
    assert solver_for(sets(3, "cuda")) is elimination
    assert solver_for(sets(LARGE + 1, "cuda")) is blocked


def test_a_gpu_with_triton_uses_the_kernel_up_to_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = ModuleType(solvers.KERNELS)
    monkeypatch.setitem(sys.modules, solvers.KERNELS, kernels)
    monkeypatch.setattr(solvers, "has_triton", lambda: True)
    assert solver_for(sets(3, "cuda")) is kernels
    assert solver_for(sets(FUSED, "cuda")) is kernels
    assert solver_for(sets(FUSED + 1, "cuda")) is blocked
    assert solver_for(sets(3, "cpu")) is elimination
