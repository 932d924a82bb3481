"""Factors of the rates -> choice probabilities, with checks: the public function of this layer.

Whether a check raises an error depends on the values of the factors, which ``vmap`` and torch's compiler do not expose.
Under these, the checks are therefore an operator, which reads the values at run time:

    pcmcnet::valid_factors(log_u, log_v, mask, batch) -> 0, or an error

Shapes: log_u, log_v (..., n, r), mask (..., n) -> p (..., n).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import register_vmap

from pcmcnet.errors import ChainError
from pcmcnet.layers.factored.solution import log_factored_distribution
from pcmcnet.layers.stationary.distribution import FLOAT_TYPES, merge_axes, set_name
from pcmcnet.layers.stationary.elimination import result_type, working_type
from pcmcnet.layers.stationary.gradient import OPERATOR_LIBRARY, define_operator
from pcmcnet.layers.tensor_ops import needs_plain_operators


def factored_distribution(log_u: Tensor, log_v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the stationary distribution of chains with the rates q_ij = sum_k u_ik v_jk, in linear time.

    The rates of a chain with n alternatives are given by r factors, and are never formed: time and memory are
    proportional to n. With one factor, the distribution is a multinomial logit, v_i / u_i up to a constant. The result
    is the same as ``stationary_distribution(u @ v.T)``, and differentiable any number of times.

    Parameters
    ----------
    log_u
        Logarithms of the rates of leaving alternative i through factor k, (..., n, r): finite, of any floating-point
        dtype.
    log_v
        Logarithms of the weights with which factor k leads to alternative j, (..., n, r).
    mask
        Mask (..., n), True for real alternatives and False for padding, which has probability 0 and gradient 0. Default
        None: all alternatives are real.

    Returns
    -------
    Tensor
        Probabilities (..., n), which sum to 1 over the last dimension. They have the dtype of ``log_u``, or float32 if
        ``log_u`` is half precision. The chains are solved in float64.

    Raises
    ------
    ChainError
        If ``log_u`` and ``log_v`` are not dense floating-point tensors of the same shape (..., n, r), ``mask`` does not
        have shape (..., n), a value is not finite, or a set has no real alternative.

    Examples
    --------
    >>> log_u, log_v = torch.tensor([[0.0], [0.0]]), torch.tensor([[1.0], [3.0]]).log()
    >>> factored_distribution(log_u, log_v)
    tensor([0.2500, 0.7500])
    """
    # 1. Check types and shapes.
    for name, value in (("log_u", log_u), ("log_v", log_v), ("mask", mask)):
        if not (isinstance(value, Tensor) or (value is None and name == "mask")):
            raise ChainError(f"{name}: expected a torch.Tensor, got {type(value).__name__}: use torch.as_tensor.")
    for name, value in (("log_u", log_u), ("log_v", log_v)):
        if value.layout != torch.strided or value.is_nested or value.is_meta:
            raise ChainError(f"{name}: expected a dense tensor with values, got a sparse, nested or meta tensor.")
        if value.ndim < 2 or value.dtype not in FLOAT_TYPES:
            raise ChainError(
                f"{name}: expected a floating-point dtype and shape (..., n, r), got {value.dtype} {(*value.shape,)}."
            )
    if log_u.shape != log_v.shape:
        raise ChainError(f"log_v: expected the shape of log_u, {(*log_u.shape,)}, got {(*log_v.shape,)}.")
    *batch, n, rank = log_u.shape
    if n == 0 or rank == 0:
        raise ChainError(f"log_u: expected at least one alternative and one factor, got n = {n} and r = {rank}.")
    if mask is None:
        mask = log_u.new_ones(*batch, n, dtype=torch.bool)
    if mask.shape != log_u.shape[:-1]:
        raise ChainError(f"mask: expected shape {(*batch, n)}, got {(*mask.shape,)}.")
    # 2. Check the values.
    flat_u, flat_v, real = log_u.reshape(-1, n, rank), log_v.reshape(-1, n, rank), mask.reshape(-1, n).bool()
    values, zero = (flat_u.detach(), flat_v.detach(), real, batch), None
    if needs_plain_operators(log_u, log_v):
        zero = torch.ops.pcmcnet.valid_factors(*values)
    else:
        _require_valid(*values)
    # 3. Solve the chains, and exponentiate before rounding: a float32 cannot hold the logarithm of a small probability.
    work, dtype = working_type(log_u.device), result_type(log_u.dtype)
    p = log_factored_distribution(flat_u.to(work), flat_v.to(work), real).exp()
    if zero is not None:
        p = p + zero  # the result of the checks must be used, or a compiler drops them
    return p.to(dtype).reshape(*batch, n)


# -- the checks of the values --------------------------------------------------------------------------------------


def _require_valid(log_u: Tensor, log_v: Tensor, mask: Tensor, batch: Sequence[int]) -> None:
    """Raise ChainError for a value that is not finite, or a set without real alternatives."""
    empty = ~mask.any(1)
    if empty.any():
        where = set_name(int(empty.nonzero()[0]), batch)
        raise ChainError(f"{where}: expected at least one real alternative, got none.")
    for name, value in (("log_u", log_u), ("log_v", log_v)):
        wrong = ~torch.isfinite(value) & mask.unsqueeze(2)
        if wrong.any():
            b, i, k = wrong.nonzero()[0].tolist()
            raise ChainError(
                f"{name}, {set_name(b, batch)}, alternative {i}, factor {k}: expected a finite number, got "
                f"{value[b, i, k].item()} (such values: {int(wrong.sum())})."
            )


def _valid(log_u: Tensor, log_v: Tensor, mask: Tensor, batch: Sequence[int]) -> Tensor:
    _require_valid(log_u, log_v, mask, batch)
    return log_u.new_zeros((), dtype=working_type(log_u.device))


def _valid_shape(log_u: Tensor, *_: Any) -> Tensor:
    return log_u.new_empty((), dtype=working_type(log_u.device))


def _valid_each(
    info: Any, dims: tuple[Any, ...], log_u: Tensor, log_v: Tensor, mask: Tensor, batch: Sequence[int]
) -> tuple[Any, None]:
    merged = merge_axes(info.batch_size, dims[:3], (log_u, log_v, mask))
    return torch.ops.pcmcnet.valid_factors(*merged, [info.batch_size, *batch]), None


define_operator(
    "valid_factors(Tensor log_u, Tensor log_v, Tensor mask, SymInt[] batch) -> Tensor", _valid, _valid_shape
)
register_vmap("pcmcnet::valid_factors", _valid_each, lib=OPERATOR_LIBRARY)
