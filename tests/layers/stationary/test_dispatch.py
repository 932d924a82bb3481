"""Which solver is chosen."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from pcmcnet.layers.settings import ELIMINATION_IN_BLOCKS_ABOVE as LARGE
from pcmcnet.layers.settings import ELIMINATION_TRITON_UP_TO as FUSED
from pcmcnet.layers.stationary import dispatch, elimination, elimination_in_blocks
from pcmcnet.layers.stationary.dispatch import solver_for


def sets(n: int, device: str = "cpu") -> Any:
    """Stand for a batch on a device that need not be there."""
    return SimpleNamespace(shape=(2, n), device=torch.device(device))


@pytest.mark.parametrize(
    ("n", "expected"), [(1, elimination), (LARGE, elimination), (LARGE + 1, elimination_in_blocks)]
)
@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_large_sets_are_solved_in_panels(n: int, expected: ModuleType, device: str) -> None:
    assert solver_for(sets(n, device)) is expected


def test_rates_and_their_gradient_get_one_solver() -> None:
    assert solver_for(torch.ones(2, 97, 97)) is solver_for(torch.ones(2, 97)) is elimination_in_blocks
    assert solver_for(torch.ones(97, 3, 3)) is solver_for(torch.ones(97, 3)) is elimination


def test_a_gpu_without_triton_is_served_like_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "has_triton", lambda: False)
    assert solver_for(sets(3, "cuda")) is elimination
    assert solver_for(sets(LARGE + 1, "cuda")) is elimination_in_blocks


def test_a_gpu_with_triton_uses_the_kernel_up_to_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = ModuleType(dispatch.KERNELS)
    monkeypatch.setitem(sys.modules, dispatch.KERNELS, kernels)
    monkeypatch.setattr(dispatch, "has_triton", lambda: True)
    assert solver_for(sets(3, "cuda")) is kernels
    assert solver_for(sets(FUSED, "cuda")) is kernels
    assert solver_for(sets(FUSED + 1, "cuda")) is elimination_in_blocks
    assert solver_for(sets(3, "cpu")) is elimination
