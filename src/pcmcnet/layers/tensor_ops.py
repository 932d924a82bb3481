"""Tensor utilities: which pairs are real, which transforms are active, and whether kernels can run.

The fast paths of the layers support plain reverse mode: a forward pass, and a backward pass written by hand. Under a
transform of ``torch.func`` or in forward mode, the same formulas are composed of torch's own operators, which support
every transform.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual


def real_pairs(mask: Tensor) -> Tensor:  # (B, J) -> (B, J, J)
    """Return a mask that is True for each ordered pair of two different real alternatives."""
    pairs = mask.unsqueeze(2) & mask.unsqueeze(1)
    if torch.compiler.is_exporting():  # an exported graph cannot write to a part of a tensor
        return pairs & ~torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)
    pairs.diagonal(dim1=1, dim2=2).fill_(False)
    return pairs


# Versions of torch without this function always get the operators that support every transform.
_is_transform_active: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)


def is_transformed(*tensors: Tensor) -> bool:
    """Return True if a transform of ``torch.func`` is active or one of the tensors has a forward-mode tangent."""
    tangents = (unpack_dual(tensor).tangent for tensor in tensors)  # type: ignore[no-untyped-call]
    return _is_transform_active() or any(tangent is not None for tangent in tangents)


def needs_plain_operators(*tensors: Tensor) -> bool:
    """Return True under a transform or torch's compiler, which do not support this package's kernels."""
    return torch.compiler.is_compiling() or is_transformed(*tensors)


def pull_back(function: Callable[..., Tensor], inputs: Sequence[Tensor], gradient: Tensor) -> tuple[Tensor, ...]:
    """Return the vector-Jacobian product of a composition of torch's operators, which can be differentiated again."""
    from torch.func import vjp  # training does not need it

    gradients: tuple[Tensor, ...] = vjp(function, *inputs)[1](gradient)
    return gradients


# -- Triton kernels: `kernel_launch` needs Triton, this module does not ------------------------------------------------


@cache
def has_triton() -> bool:
    """Return True if Triton is installed, without importing it."""
    return find_spec("triton") is not None


def can_run_kernels(tensor: Tensor) -> bool:
    """Return True if elementwise Triton kernels can process the tensor: on CUDA, without transforms or the compiler."""
    return tensor.device.type == "cuda" and has_triton() and not needs_plain_operators(tensor)


def preload_kernels() -> None:
    """Load the CUDA driver, matrix products, Triton and its compiler, so that the first kernel starts without delay."""
    if has_triton() and torch.cuda.is_available():
        from pcmcnet.layers import likelihood_triton

        some = torch.ones(16, 16, device="cuda")
        torch.mm(some, some)
        likelihood_triton.compile_small_kernel()
