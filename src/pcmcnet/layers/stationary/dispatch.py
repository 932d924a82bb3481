"""Which solver finds a batch of laws, and what all of them agree on.

Set for set they return the same numbers up to rounding, so the choice is one of speed. It depends on the device and
on n alone, so that the backward pass, which sees the gradient (B, n) instead of the rates (B, n, n), comes to the same.
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from torch import Tensor

from pcmcnet.layers.gpu import has_triton
from pcmcnet.layers.stationary import elimination
from pcmcnet.layers.stationary import elimination_in_blocks as blocked

LARGE = 96  # from here on, products of panels save more time than their bookkeeping takes (measured for 1 to 64 sets)
FUSED = 128  # a set of this size still fits into one program of the fused kernel
KERNELS = "pcmcnet.layers.stationary.elimination_triton"


class Solver(Protocol):
    """A module of two functions. What one passes to the other is flat, in a layout known to the two alone."""

    def forward(self, rates: Tensor, mask: Tensor, /) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """(B, n, n), (B, n) -> p (B, n) in the result type; factors (B n n), exits (B n), law (B n), scale (B)."""

    def backward(
        self, grad: Tensor, mask: Tensor, factors: Tensor, exits: Tensor, law: Tensor, scale: Tensor, /
    ) -> Tensor:
        """(B, n), (B, n) and the four of ``forward`` -> gradient in the rates (B, n, n), in the type of ``grad``."""


def solver_for(sets: Tensor) -> Solver:  # (B, n, ...)
    """Return the solver for sets of this size on this device."""
    if is_fused(sets):
        return cast("Solver", import_module(KERNELS))
    return blocked if sets.shape[1] > LARGE else elimination


def is_fused(sets: Tensor) -> bool:  # (B, n, ...)
    """Tell whether the fused kernel solves sets of this size on this device."""
    return sets.device.type == "cuda" and has_triton() and sets.shape[1] <= FUSED
