"""Small questions about tensors: which pairs count, which transforms are at work, and whether kernels can run.

Fast paths of the layers know the plain reverse mode: a forward pass, and a backward pass written by hand. A transform
of ``torch.func`` or a tangent of the forward mode asks for more; then the same formulas are composed of torch's own
operators, which answer to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual


def real_pairs(mask: Tensor) -> Tensor:  # (B, J) -> (B, J, J)
    """Mark the ordered pairs of two different real alternatives."""
    pairs = mask.unsqueeze(2) & mask.unsqueeze(1)
    if torch.compiler.is_exporting():  # an exported graph writes to no part of a tensor
        return pairs & ~torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)
    pairs.diagonal(dim1=1, dim2=2).fill_(False)
    return pairs


# Without it, all calls take the way that answers to every transform.
_in_func: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)


def is_transformed(*given: Tensor) -> bool:
    """Tell whether a transform of ``torch.func`` is active, or one of the tensors has a tangent."""
    return _in_func() or any(unpack_dual(tensor).tangent is not None for tensor in given)  # type: ignore[no-untyped-call]


def needs_plain_operators(*given: Tensor) -> bool:
    """Tell whether kernels of our own are to stand back: for a transform, or for torch's compiler."""
    return torch.compiler.is_compiling() or is_transformed(*given)


def pull_back(function: Callable[..., Tensor], inputs: Sequence[Tensor], gradient: Tensor) -> tuple[Tensor, ...]:
    """Differentiate a composition of torch's operators in reverse; the result can be differentiated again."""
    from torch.func import vjp  # not needed by those who train

    gradients: tuple[Tensor, ...] = vjp(function, *inputs)[1](gradient)
    return gradients


# -- Triton kernels: `kernel_launch` needs Triton, this module does not ------------------------------------------------


@cache
def has_triton() -> bool:
    """Tell whether Triton is installed, without loading it."""
    return find_spec("triton") is not None


def can_run_kernels(given: Tensor) -> bool:
    """Tell whether small passes over a tensor have kernels here; the compiler of torch makes its own."""
    return given.device.type == "cuda" and has_triton() and not needs_plain_operators(given)


def preload_kernels() -> None:
    """Load what the first kernels wait for, which takes a second or two: driver, products, Triton and its compiler."""
    if has_triton() and torch.cuda.is_available():
        from pcmcnet.layers import likelihood_triton

        some = torch.ones(16, 16, device="cuda")
        torch.mm(some, some)
        likelihood_triton.compile_small_kernel()
