"""Derivatives of the stationary distribution: its solvers as torch operators, each with its backward pass.

    pcmcnet::stationary(rates, mask) -> (p, factors, exits, working_p, scale)
    pcmcnet::stationary_backward(grad, mask, factors, exits, working_p, scale) -> gradient w.r.t. the rates

Plain reverse mode, which training uses, is one backward pass from the factors of the elimination. For higher-order
derivatives, gradients are computed by ``elimination.differentiable_distribution``. ``torch.compile`` and
``torch.export`` treat an operator as a single step and need only the shapes of its results. The operators are
registered through a ``torch.library.Library``: calls take less time than with ``torch.library.custom_op``, especially
the first call, which would load the compiler even if nothing is compiled. Shapes: rates (B, n, n), mask (B, n) bool ->
p (B, n); the other results are flat, see ``Solver``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.library import Library, register_autograd, register_fake

from pcmcnet.layers import settings
from pcmcnet.layers.stationary import elimination, elimination_in_blocks
from pcmcnet.layers.stationary.elimination import differentiable_distribution, result_type, working_type
from pcmcnet.layers.tensor_ops import has_triton, is_transformed, pull_back

# -- choice of a solver, and the interface of all solvers --------------------------------------------------------------
#     elimination                   one state at a time, for many small sets: a CPU, or any device without Triton
#     elimination_in_blocks         larger sets on the same devices
#     elimination_triton            one program per set on a CUDA device, up to a size that fits into registers
#     differentiable_distribution   torch's own operators: for `torch.func`, forward mode and second derivatives
#     exported_distribution         a graph of plain operators, used by `pcmcnet.models.networks.export`
#
# They return the same numbers up to rounding, so only speed matters. The choice among the first three depends on the
# device and on n alone: the backward pass, which has the gradient (B, n) and not the rates (B, n, n), makes the same
# choice. The thresholds are in `pcmcnet.layers.settings`.

ELIMINATION_KERNELS = "pcmcnet.layers.stationary.elimination_triton"
Results = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # p, factors, exits, working p, scale


class Solver(Protocol):
    """Protocol of solver modules, which pass flat tensors in a private layout from ``forward`` to ``backward``."""

    def forward(self, rates: Tensor, mask: Tensor, /) -> Results:
        """Solve the chains: (B, n, n), (B, n) -> p (B, n) in the result type, and four flat tensors for ``backward``.

        The flat tensors are factors (B w w) with w the ``factor_width``, exits (B n), p in working precision (B n), and
        scale (B).
        """

    def backward(
        self, grad: Tensor, mask: Tensor, factors: Tensor, exits: Tensor, p: Tensor, scale: Tensor, /
    ) -> Tensor:
        """Return the gradient w.r.t. the rates (B, n, n), given dL/dp (B, n) and the results of ``forward``."""


def solver_for(sets: Tensor) -> Solver:  # (B, n, ...)
    """Return the solver for the given set size and device."""
    if has_triton_solver(sets):
        return cast("Solver", import_module(ELIMINATION_KERNELS))
    return elimination_in_blocks if sets.shape[1] > settings.ELIMINATION_IN_BLOCKS_ABOVE_STATES else elimination


def has_triton_solver(sets: Tensor) -> bool:  # (B, n, ...)
    """Return True if the Triton kernel supports the given set size and device."""
    return sets.device.type == "cuda" and has_triton() and sets.shape[1] <= settings.ELIMINATION_TRITON_MAX_STATES


def factor_width(sets: Tensor) -> int:  # (B, n, ...)
    """Return the width of a set's matrix of factors: n or, with the Triton kernel, the next larger compiled width."""
    n = sets.shape[1]
    return next(w for w in settings.ELIMINATION_TRITON_WIDTHS if n <= w) if has_triton_solver(sets) else n


# -- the solvers as operators ------------------------------------------------------------------------------------------


def solve_chain(rates: Tensor, mask: Tensor) -> Tensor:  # (B, n, n), (B, n) -> (B, n)
    """Return the stationary distribution of valid chains, without the checks of :func:`stationary_distribution`.

    In each set, real alternatives must come first, and the first one must be reachable from all others. For
    ``torch.compile`` and ``torch.export`` this is one operator, ``pcmcnet::stationary``.

    Parameters
    ----------
    rates
        Rates of leaving i for j, (B, n, n), finite and at least 0. The diagonal is ignored.
    mask
        Mask (B, n), True for real alternatives.

    Returns
    -------
    Tensor
        Probabilities (B, n), which are 0 for padding.
    """
    if is_transformed(rates):
        return differentiable_distribution(rates, mask)
    p: Tensor = torch.ops.pcmcnet.stationary.default(rates, mask)[0]
    return p


def _solve(rates: Tensor, mask: Tensor) -> Results:
    return solver_for(rates).forward(rates, mask)


def _solve_shapes(rates: Tensor, mask: Tensor) -> Results:
    B, n = mask.shape
    work = result_type(rates.dtype) if has_triton_solver(rates) else working_type(rates.device)
    p, sizes = rates.new_empty(B, n, dtype=result_type(rates.dtype)), (B * factor_width(rates) ** 2, B * n, B * n, B)
    factors, exits, working_p, scale = (rates.new_empty(size, dtype=work) for size in sizes)
    return p, factors, exits, working_p, scale


def _pull_back(grad: Tensor, mask: Tensor, factors: Tensor, exits: Tensor, p: Tensor, scale: Tensor) -> Tensor:
    return solver_for(grad).backward(grad, mask, factors, exits, p, scale)


def _pull_back_shapes(grad: Tensor, mask: Tensor, factors: Tensor, exits: Tensor, p: Tensor, scale: Tensor) -> Tensor:
    return grad.new_empty(*grad.shape, grad.shape[1])


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Results) -> None:
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # otherwise torch makes gradients of zeros for the factors
    ctx.save_for_backward(*inputs, *output[1:])


def _differentiate(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, None]:
    if grad is None:
        return None, None
    rates, mask, *factors = ctx.saved_tensors
    if torch.is_grad_enabled():  # create_graph=True; with once_differentiable a Hessian would silently be 0
        real = torch.where(mask, grad, 0)  # padding may hold NaN
        return pull_back(partial(differentiable_distribution, mask=mask), [rates], real)[0], None
    return stationary_backward(grad, mask, *factors).to(rates.dtype), None


# Registered operators exist as long as this object.
OPERATOR_LIBRARY = Library("pcmcnet", "DEF")  # type: ignore[no-untyped-call]


def define_operator(schema: str, implementation: Callable[..., Any], shapes: Callable[..., Any]) -> None:
    """Register a torch operator under the name in its schema; ``shapes`` returns empty results for the compiler."""
    name = schema[: schema.index("(")]
    OPERATOR_LIBRARY.define(schema)  # type: ignore[no-untyped-call]
    OPERATOR_LIBRARY.impl(name, implementation, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    register_fake(f"pcmcnet::{name}", shapes, lib=OPERATOR_LIBRARY)


FACTORS = "Tensor factors, Tensor exits, Tensor working_p, Tensor scale"
define_operator(
    "stationary(Tensor rates, Tensor mask) -> (Tensor, Tensor, Tensor, Tensor, Tensor)", _solve, _solve_shapes
)
define_operator(f"stationary_backward(Tensor grad, Tensor mask, {FACTORS}) -> Tensor", _pull_back, _pull_back_shapes)
register_autograd("pcmcnet::stationary", _differentiate, setup_context=_save, lib=OPERATOR_LIBRARY)

stationary = torch.ops.pcmcnet.stationary.default
stationary_backward = torch.ops.pcmcnet.stationary_backward.default
