"""Pairwise rates -> choice probabilities.

Alternatives are the states of a continuous-time Markov chain; ``rates[..., i, j]`` is the rate of leaving i
for j. The choice probabilities p solve p @ G = 0 and sum(p) = 1, where G is ``rates`` with each diagonal
entry set to minus its row sum (Ragain & Ugander, 2016).

The chains are checked: whether they have one stationary law. Their states are put in order, so that the elimination
(see ``elimination``) meets no division by 0: a state that all others reach comes first, and padding last. Errors name a
set by its index in the batch. What is raised, and whether states have to be put in order, depends on the numbers, which
``vmap`` and torch's compiler do not show. To them the checks are operators, that look at the numbers when these are
there:

    pcmcnet::order(rates, mask, batch) -> order of the states
    pcmcnet::finite(p, batch) -> 0, if all numbers are finite

Shapes: rates (..., n, n), mask (..., n) -> p (..., n). The checks have one flat batch: rates (B, n, n), order (B, n).
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

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


# -- checks ------------------------------------------------------------------------------------------------------------


def _ordered(rates: Tensor, mask: Tensor, batch: Sequence[int]) -> Tensor | None:
    """Check the chains; return the order (B, n) with a recurrent state first and padding last, if needed."""
    # 1. Every rate between two real states is a number of at least 0, and no set is empty.
    n = rates.shape[-1]
    pairs = mask.unsqueeze(2) & mask.unsqueeze(1) & ~torch.eye(n, dtype=torch.bool, device=rates.device)
    wrong = pairs & ~(torch.isfinite(rates) & (rates >= 0))
    if wrong.any():
        b, i, j = wrong.nonzero()[0].tolist()
        raise ChainError(
            f"{_name(b, batch)}: the rate of leaving {i} for {j} is {rates[b, i, j].item()}, "
            f"expected a finite number of at least 0; {int(wrong.sum())} such rates."
        )
    empty = ~mask.any(1)
    if empty.any():
        raise ChainError(f"{_name(int(empty.nonzero()[0]), batch)}: all alternatives are masked out.")
    # 2. States in their order, padding behind them; where some rates are 0, a state that all others reach in front.
    key = (~mask).long() * 2 + 1  # 0 root, 1 real, 3 padding
    if (pairs & (rates == 0)).any():
        root = _recurrent(rates, pairs, mask, batch)
        key[torch.arange(len(key), device=key.device), root] = 0
    elif (mask[:, :-1] >= mask[:, 1:]).all():
        return None
    return key.argsort(dim=1, stable=True)


def _recurrent(rates: Tensor, pairs: Tensor, mask: Tensor, batch: Sequence[int]) -> Tensor:  # -> (B,)
    """Find a state that all others reach. There is one exactly when the chain has one closed class."""
    n = rates.shape[-1]
    reach = ((rates > 0) & pairs | torch.eye(n, dtype=torch.bool, device=rates.device)).float()
    for _ in range(max(n - 1, 1).bit_length()):  # paths of 1, 2, 4, ... steps
        longer = (reach @ reach > 0).float()
        if torch.equal(longer, reach):
            break
        reach = longer
    reached_by_all = ((reach > 0) | ~mask.unsqueeze(2)).all(1)  # (B, n); no real state reaches padding
    lost = ~reached_by_all.any(1)
    if lost.any():
        raise ChainError(
            f"{_name(int(lost.nonzero()[0]), batch)}: the chain has two or more closed classes, so its "
            f"stationary distribution is not unique; {int(lost.sum())} such sets. Give every pair a positive "
            f"rate in at least one direction."
        )
    return reached_by_all.int().argmax(1)


def _name(flat: int, batch: Sequence[int]) -> str:
    """Name a set by its index in the batch dimensions."""
    if not batch:
        return "the chain"
    index = []
    for size in reversed(batch):
        index.append(flat % size)
        flat //= size
    return f"choice set {index[0] if len(index) == 1 else tuple(reversed(index))}"


def _require_finite(p: Tensor, batch: Sequence[int]) -> None:
    broken = ~torch.isfinite(p).all(1)
    if broken.any():
        where = _name(int(broken.nonzero()[0]), batch)
        raise ChainError(f"{where}: the rates span more orders of magnitude than float64 can hold. Bring them closer.")


# -- the checks as operators -------------------------------------------------------------------------------------------


def _order(rates: Tensor, mask: Tensor, batch: Sequence[int]) -> Tensor:
    order = _ordered(rates, mask, batch)
    return torch.arange(mask.shape[1], device=mask.device).repeat(len(mask), 1) if order is None else order


def _finite(p: Tensor, batch: Sequence[int]) -> Tensor:
    _require_finite(p, batch)
    return p.new_zeros(())


def _order_each(info: Any, dims: tuple[Any, ...], rates: Tensor, mask: Tensor, batch: Sequence[int]) -> tuple[Any, int]:
    rates, mask = _folded(info.batch_size, dims[:2], (rates, mask))
    return torch.ops.pcmcnet.order(rates, mask, [info.batch_size, *batch]).unflatten(0, (info.batch_size, -1)), 0


def _finite_each(info: Any, dims: tuple[Any, ...], p: Tensor, batch: Sequence[int]) -> tuple[Any, None]:
    (p,) = _folded(info.batch_size, dims[:1], (p,))
    return torch.ops.pcmcnet.finite(p, [info.batch_size, *batch]), None


def _folded(size: int, dims: Sequence[int | None], given: Sequence[Tensor]) -> list[Tensor]:
    """Make the axis of a ``vmap``, of a size and at its place in each tensor, part of the batch."""
    moved = (x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in zip(given, dims, strict=True))
    return [x.flatten(0, 1) for x in moved]


def _order_shape(rates: Tensor, mask: Tensor, batch: Sequence[int]) -> Tensor:
    return torch.empty_like(mask, dtype=torch.int64)


define_operator("order(Tensor rates, Tensor mask, SymInt[] batch) -> Tensor", _order, _order_shape)
define_operator("finite(Tensor p, SymInt[] batch) -> Tensor", _finite, lambda p, batch: p.new_empty(()))
register_vmap("pcmcnet::order", _order_each, lib=OPERATOR_LIBRARY)
register_vmap("pcmcnet::finite", _finite_each, lib=OPERATOR_LIBRARY)


# -- the distribution --------------------------------------------------------------------------------------------------


def stationary_distribution(rates: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the stationary distribution of each chain; differentiable in the rates, any number of times.

    The diagonal of ``rates`` is ignored and the time scale does not matter. Some rates may be 0 as long as
    one state can be reached from all others; states that cannot be returned to get probability 0.

    Parameters
    ----------
    rates
        (..., n, n) non-negative rates of leaving i for j, in any floating type. The elimination runs in
        float64; the result has the type of ``rates``, or float32 for a half-precision one.
    mask
        (..., n) true for the real alternatives; padded ones get probability 0 and gradient 0.

    Returns
    -------
    Tensor
        (..., n) probabilities.

    Raises
    ------
    ChainError
        For rates that are no tensor, negative or not finite, for an empty set, and for a chain with two closed classes.

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
        raise ChainError("rates: expected a dense tensor with numbers, got one that is sparse, nested or meta.")
    if rates.ndim < 2 or rates.shape[-1] != rates.shape[-2] or rates.dtype not in FLOATS:
        raise ChainError(f"rates: expected floating numbers of shape (..., n, n), got {rates.dtype} {(*rates.shape,)}.")
    n, batch = rates.shape[-1], rates.shape[:-2]
    if mask is None:
        mask = rates.new_ones(*batch, n, dtype=torch.bool)
    if mask.shape != rates.shape[:-1]:
        raise ChainError(f"mask: expected shape {(*rates.shape[:-1],)}, got {(*mask.shape,)}.")
    if not rates.numel():
        if n == 0:
            raise ChainError("rates: a choice set needs at least one alternative, got n = 0.")
        return rates.sum(-1).to(result_type(rates.dtype))
    # 2. Check the chains and put their states in order.
    flat, real, as_operators = rates.reshape(-1, n, n), mask.reshape(-1, n).bool(), needs_plain_operators()
    order: Tensor | None = (torch.ops.pcmcnet.order if as_operators else _ordered)(flat.detach(), real, batch)
    if order is not None:
        rows = order.unsqueeze(-1).expand(-1, n, n)
        flat = flat.gather(1, rows).gather(2, rows.mT)
        real = real.gather(1, order)
    # 3. Solve, and put the law back into the order of the caller.
    p = solve_chain(flat.to(working_type(flat.device)), real).to(result_type(rates.dtype))
    if order is not None:
        p = p.gather(1, order.argsort(1))
    if as_operators:
        p = p + torch.ops.pcmcnet.finite(p.detach(), batch)
    else:
        _require_finite(p, batch)
    return p.reshape(*batch, n)
