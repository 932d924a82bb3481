"""Which of PyTorch's ways to differentiate is at work.

Fast paths here know the plain reverse mode: a forward pass, and a backward pass written by hand. A transform of
``torch.func`` or a tangent of the forward mode asks for more; then the same formulas are composed of torch's own
operators, which answer to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

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
