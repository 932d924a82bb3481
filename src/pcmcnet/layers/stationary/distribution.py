"""Pairwise rates -> choice probabilities.

Alternatives are the states of a continuous-time Markov chain; ``rates[..., i, j]`` is the rate of leaving i
for j. The choice probabilities p solve p @ G = 0 and sum(p) = 1, where G is ``rates`` with each diagonal
entry set to minus its row sum (Ragain & Ugander, 2016).

Each chain must have a unique stationary distribution. The states of a chain are reordered so that the elimination (see
``elimination``) never divides by 0: a state that all others reach comes first, and padding comes last. Error messages
identify a set by its index in the batch. Whether a check raises an error, and whether states must be reordered, depends
on the values of the rates, which ``vmap`` and torch's compiler do not expose. Under ``vmap`` and the compiler, the
checks are therefore operators, which read the values at run time:

    pcmcnet::order(rates, mask, batch) -> order of the states
    pcmcnet::finite(p, batch) -> 0, or an error if a number is not finite

Shapes: rates (..., n, n), mask (..., n) -> p (..., n). The checks use a flat batch: rates (B, n, n), order (B, n).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import register_vmap

from pcmcnet.errors import ChainError
from pcmcnet.layers.stationary.elimination import result_type, working_type
from pcmcnet.layers.stationary.gradient import OPERATOR_LIBRARY, define_operator, solve_chain
from pcmcnet.layers.tensor_ops import needs_plain_operators

FLOAT_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


# -- checks ------------------------------------------------------------------------------------------------------------


def _check_chains(rates: Tensor, mask: Tensor, batch: Sequence[int]) -> Tensor | None:
    """Check the chains. Return an order (B, n) with a recurrent state first and padding last, or None if not needed."""
    # 1. Every rate between two real states must be finite and at least 0, and no set may be empty.
    n = rates.shape[-1]
    pairs = mask.unsqueeze(2) & mask.unsqueeze(1) & ~torch.eye(n, dtype=torch.bool, device=rates.device)
    invalid = pairs & ~(torch.isfinite(rates) & (rates >= 0))
    if invalid.any():
        b, i, j = invalid.nonzero()[0].tolist()
        raise ChainError(
            f"{set_name(b, batch)}: expected the rate from {i} to {j} to be finite and at least 0, "
            f"got {rates[b, i, j].item()} (invalid rates: {int(invalid.sum())})."
        )
    empty = ~mask.any(1)
    if empty.any():
        raise ChainError(
            f"{set_name(int(empty.nonzero()[0]), batch)}: expected at least one real alternative, got none."
        )
    # 2. Real states keep their order, then padding. If some rates are 0, a state that all others reach comes first.
    key = (~mask).long() * 2 + 1  # 0 root, 1 real, 3 padding
    if (pairs & (rates == 0)).any():
        root = _recurrent(rates, pairs, mask, batch)
        key[torch.arange(len(key), device=key.device), root] = 0
    elif (mask[:, :-1] >= mask[:, 1:]).all():
        return None
    return key.argsort(dim=1, stable=True)


def _recurrent(rates: Tensor, pairs: Tensor, mask: Tensor, batch: Sequence[int]) -> Tensor:  # -> (B,)
    """Return a state (B,) that all other states reach, which exists if and only if the chain has one closed class."""
    n = rates.shape[-1]
    reach = ((rates > 0) & pairs | torch.eye(n, dtype=torch.bool, device=rates.device)).float()
    for _ in range(max(n - 1, 1).bit_length()):  # paths of 1, 2, 4, ... steps
        longer = (reach @ reach > 0).float()
        if torch.equal(longer, reach):
            break
        reach = longer
    reached_by_all = ((reach > 0) | ~mask.unsqueeze(2)).all(1)  # (B, n); no real state reaches padding
    ambiguous = ~reached_by_all.any(1)
    if ambiguous.any():
        raise ChainError(
            f"{set_name(int(ambiguous.nonzero()[0]), batch)}: the chain has two or more closed classes, so its "
            f"stationary distribution is not unique (such sets: {int(ambiguous.sum())}). Give every pair a positive "
            f"rate in at least one direction."
        )
    return reached_by_all.int().argmax(1)


def set_name(flat: int, batch: Sequence[int]) -> str:
    """Return the name of a set for error messages: its index in the batch dimensions."""
    if not batch:
        return "the chain"
    index = []
    for size in reversed(batch):
        index.append(flat % size)
        flat //= size
    return f"choice set {index[0] if len(index) == 1 else tuple(reversed(index))}"


def _require_finite(p: Tensor, batch: Sequence[int]) -> None:
    """Raise an error if a probability (B, n) is not finite."""
    overflowed = ~torch.isfinite(p).all(1)
    if overflowed.any():
        name = set_name(int(overflowed.nonzero()[0]), batch)
        raise ChainError(
            f"{name}: the rates span more orders of magnitude than float64 can represent. Reduce their range."
        )


# -- the checks as operators -------------------------------------------------------------------------------------------


def _order(rates: Tensor, mask: Tensor, batch: Sequence[int]) -> Tensor:
    order = _check_chains(rates, mask, batch)
    return torch.arange(mask.shape[1], device=mask.device).repeat(len(mask), 1) if order is None else order


def _finite(p: Tensor, batch: Sequence[int]) -> Tensor:
    _require_finite(p, batch)
    return p.new_zeros(())


def _order_each(info: Any, dims: tuple[Any, ...], rates: Tensor, mask: Tensor, batch: Sequence[int]) -> tuple[Any, int]:
    rates, mask = merge_axes(info.batch_size, dims[:2], (rates, mask))
    return torch.ops.pcmcnet.order(rates, mask, [info.batch_size, *batch]).unflatten(0, (info.batch_size, -1)), 0


def _finite_each(info: Any, dims: tuple[Any, ...], p: Tensor, batch: Sequence[int]) -> tuple[Any, None]:
    (p,) = merge_axes(info.batch_size, dims[:1], (p,))
    return torch.ops.pcmcnet.finite(p, [info.batch_size, *batch]), None


def merge_axes(size: int, dims: Sequence[int | None], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Merge the ``vmap`` axis of each tensor, which has the given size and position, into the batch axis."""
    pairs = zip(tensors, dims, strict=True)
    return [(x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1) for x, dim in pairs]


def _order_shape(rates: Tensor, mask: Tensor, batch: Sequence[int]) -> Tensor:
    return torch.empty_like(mask, dtype=torch.int64)


define_operator("order(Tensor rates, Tensor mask, SymInt[] batch) -> Tensor", _order, _order_shape)
define_operator("finite(Tensor p, SymInt[] batch) -> Tensor", _finite, lambda p, batch: p.new_empty(()))
register_vmap("pcmcnet::order", _order_each, lib=OPERATOR_LIBRARY)
register_vmap("pcmcnet::finite", _finite_each, lib=OPERATOR_LIBRARY)


# -- the distribution --------------------------------------------------------------------------------------------------


def stationary_distribution(rates: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the stationary distribution of each chain, differentiable any number of times with respect to the rates.

    The leading dimensions ``...`` are batch dimensions and may be absent: rates (n, n) give probabilities (n,). The
    diagonal of ``rates`` is ignored, and multiplying all rates of a chain by a constant changes nothing. Rates may be 0
    as long as some state can be reached from all others. Transient states have probability 0.

    Parameters
    ----------
    rates
        Rates of leaving alternative i for alternative j, (..., n, n): finite, at least 0, and of any floating-point
        dtype.
    mask
        Mask (..., n), True for real alternatives and False for padding, which has probability 0 and gradient 0. Default
        None: all alternatives are real.

    Returns
    -------
    Tensor
        Probabilities (..., n), which sum to 1 over the last dimension. The probabilities have the dtype of ``rates``,
        or float32 if ``rates`` is half precision. The chains are solved in float64.

    Raises
    ------
    ChainError
        If ``rates`` is not a dense floating-point tensor of shape (..., n, n), ``mask`` does not have shape (..., n), a
        rate is negative or not finite, a set has no real alternative, or a chain has two or more closed classes.

    Examples
    --------
    >>> stationary_distribution(torch.tensor([[0.0, 1.0], [3.0, 0.0]]))
    tensor([0.7500, 0.2500])
    """
    # 1. Check types and shapes.
    for name, value in (("rates", rates), ("mask", mask)):
        if not (isinstance(value, Tensor) or (value is None and name == "mask")):
            raise ChainError(f"{name}: expected a torch.Tensor, got {type(value).__name__}: use torch.as_tensor.")
    if rates.layout != torch.strided or rates.is_nested or rates.is_meta:
        raise ChainError("rates: expected a dense tensor with values, got a sparse, nested or meta tensor.")
    if rates.ndim < 2 or rates.shape[-1] != rates.shape[-2] or rates.dtype not in FLOAT_TYPES:
        raise ChainError(
            f"rates: expected a floating-point dtype and shape (..., n, n), got {rates.dtype} {(*rates.shape,)}."
        )
    n, batch = rates.shape[-1], rates.shape[:-2]
    if mask is None:
        mask = rates.new_ones(*batch, n, dtype=torch.bool)
    if mask.shape != rates.shape[:-1]:
        raise ChainError(f"mask: expected shape {(*rates.shape[:-1],)}, got {(*mask.shape,)}.")
    if not rates.numel():
        if n == 0:
            raise ChainError("rates: expected at least one alternative per choice set, got n = 0.")
        return rates.sum(-1).to(result_type(rates.dtype))
    # 2. Check the chains and reorder their states.
    flat, real, as_operators = rates.reshape(-1, n, n), mask.reshape(-1, n).bool(), needs_plain_operators()
    order: Tensor | None = (torch.ops.pcmcnet.order if as_operators else _check_chains)(flat.detach(), real, batch)
    if order is not None:
        rows = order.unsqueeze(-1).expand(-1, n, n)
        flat = flat.gather(1, rows).gather(2, rows.mT)
        real = real.gather(1, order)
    # 3. Solve the chains, and return to the caller's order of states.
    p = solve_chain(flat.to(working_type(flat.device)), real).to(result_type(rates.dtype))
    if order is not None:
        p = p.gather(1, order.argsort(1))
    if as_operators:
        p = p + torch.ops.pcmcnet.finite(p.detach(), batch)
    else:
        _require_finite(p, batch)
    return p.reshape(*batch, n)
