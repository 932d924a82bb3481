"""Which implementation of the elimination finds a batch of stationary distributions, and what all of them agree on.

    elimination                   one state at a time, for many small sets: a CPU, or any device without Triton
    elimination_in_blocks         the same for larger sets
    elimination_triton            one program per set on a CUDA device, up to a size that fits into registers
    elimination_differentiable    torch's own operators: for ``torch.func``, forward mode and second derivatives
    elimination_for_export        a graph of plain operators; :mod:`pcmcnet.models.saving.export` asks for it by name

Set for set they return the same numbers up to rounding, so the choice is one of speed. Among the first three it depends
on the device and on n alone, so that the backward pass, which sees the gradient (B, n) instead of the rates (B, n, n),
comes to the same. The thresholds are in :mod:`pcmcnet.layers.settings`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from torch import Tensor

from pcmcnet.layers import settings
from pcmcnet.layers.gpu import has_triton
from pcmcnet.layers.stationary import elimination, elimination_in_blocks

KERNELS = "pcmcnet.layers.stationary.elimination_triton"


class Solver(Protocol):
    """A module of two functions. What one passes to the other is flat, in a layout known to the two alone."""

    def forward(self, rates: Tensor, mask: Tensor, /) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """(B, n, n), (B, n) -> p (B, n) in the result type; factors (B w w), exits (B n), law (B n), scale (B).

        w is the ``factor_width``.
        """

    def backward(
        self, grad: Tensor, mask: Tensor, factors: Tensor, exits: Tensor, law: Tensor, scale: Tensor, /
    ) -> Tensor:
        """(B, n), (B, n) and the four of ``forward`` -> gradient in the rates (B, n, n), in the type of ``grad``."""


def solver_for(sets: Tensor) -> Solver:  # (B, n, ...)
    """Return the solver for sets of this size on this device."""
    if is_fused(sets):
        return cast("Solver", import_module(KERNELS))
    return elimination_in_blocks if sets.shape[1] > settings.ELIMINATION_IN_BLOCKS_ABOVE else elimination


def is_fused(sets: Tensor) -> bool:  # (B, n, ...)
    """Tell whether the Triton kernel solves sets of this size on this device."""
    return sets.device.type == "cuda" and has_triton() and sets.shape[1] <= settings.ELIMINATION_TRITON_UP_TO


def factor_width(sets: Tensor) -> int:  # (B, n, ...)
    """Return the width of the matrix of factors of a set: n, or the next of few on a GPU."""
    n = sets.shape[1]
    return next(w for w in settings.ELIMINATION_TRITON_WIDTHS if n <= w) if is_fused(sets) else n
