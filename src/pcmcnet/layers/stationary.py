"""Pairwise rates -> choice probabilities.

Alternatives are the states of a continuous-time Markov chain; ``rates[..., i, j]`` is the rate of leaving i
for j. The choice probabilities p solve p @ G = 0 and sum(p) = 1, where G is ``rates`` with each diagonal
entry set to minus its row sum (Ragain & Ugander, 2016).

The law is found by the elimination of Grassmann, Taksar & Heyman (1985), which never subtracts: state
k = n-1, ..., 1 is taken out of the chain in turn, its visits replaced by direct transitions between the
states left,

    s_k = sum_{j<k} q_kj,    q_ij += q_ik q_kj / s_k    (i, j < k),

then put back, k = 1, ..., n-1, with the mass that balances what flows in and out,
p_k = sum_{i<k} p_i q_ik / s_k. Sums, products and quotients of non-negative numbers keep every component's
relative accuracy, where an LU solve loses small probabilities to cancellation and may return negative ones.

The gradient comes from the equation, with no graph through the elimination: for g = dL/dp, c = g . p and any
z with G z = g - c 1,

    dL/dq_ij = -p_i (z_j - z_i).

But where states change fast within groups and seldom between them, the z of a group agree in all their digits
and the differences are noise. So z is never formed: the same matrix is grown from the factors of the
elimination, one state at a time, and the elasticities q_ij dL/dq_ij come out to rounding error for any rates.
Shapes: rates (..., n, n), mask (..., n) -> p (..., n).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pcmcnet.errors import ChainError, PcmcNetError


def stationary_distribution(rates: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the stationary law of each chain; differentiable, once, in the rates.

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
    for name, value in (("rates", rates), ("mask", mask)):
        if not (isinstance(value, Tensor) or (value is None and name == "mask")):
            raise ChainError(f"{name}: expected a torch.Tensor, got {type(value).__name__}: use torch.as_tensor.")
    if rates.ndim < 2 or rates.shape[-1] != rates.shape[-2] or not rates.is_floating_point():
        raise ChainError(f"rates: expected floating numbers of shape (..., n, n), got {rates.dtype} {(*rates.shape,)}.")
    n, batch = rates.shape[-1], rates.shape[:-2]
    if mask is None:
        mask = rates.new_ones(*batch, n, dtype=torch.bool)
    if mask.shape != rates.shape[:-1]:
        raise ChainError(f"mask: expected shape {(*rates.shape[:-1],)}, got {(*mask.shape,)}.")
    if not rates.numel():
        if n == 0:
            raise ChainError("rates: a choice set needs at least one alternative, got n = 0.")
        return rates.sum(-1).to(_result_type(rates.dtype))
    flat, real = rates.reshape(-1, n, n), mask.reshape(-1, n).bool()
    order = _root_first(flat.detach(), real, batch)
    if order is not None:
        rows = order.unsqueeze(-1).expand(-1, n, n)
        flat = flat.gather(1, rows).gather(2, rows.mT)
        real = real.gather(1, order)
    p = solve_chain(flat, real)
    if order is not None:
        p = p.gather(1, order.argsort(1))
    if not bool(torch.isfinite(p).all()):
        where = _name(int((~torch.isfinite(p)).any(1).nonzero()[0]), batch)
        raise ChainError(f"{where}: the rates span more orders of magnitude than float64 can hold. Bring them closer.")
    return p.reshape(*batch, n)


def solve_chain(rates: Tensor, mask: Tensor) -> Tensor:  # (B, n, n), (B, n) -> (B, n)
    """Solve chains known to be sound: real states first in each set, and state 0 reached from all of them."""
    p: Tensor = _Stationary.apply(rates, mask)  # type: ignore[no-untyped-call]
    return p


def _root_first(rates: Tensor, mask: Tensor, batch: torch.Size) -> Tensor | None:
    """Check the chains; return the order (B, n) with a recurrent state first and padding last, if needed."""
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
    key = (~mask).long() * 2 + 1  # 0 root, 1 real, 3 padding
    if (pairs & (rates == 0)).any():
        root = _recurrent(rates, pairs, mask, batch)
        key[torch.arange(len(key), device=key.device), root] = 0
    elif (mask[:, :-1] >= mask[:, 1:]).all():
        return None
    return key.argsort(dim=1, stable=True)


def _recurrent(rates: Tensor, pairs: Tensor, mask: Tensor, batch: torch.Size) -> Tensor:  # -> (B,)
    """Find a state that all others reach. There is one exactly when the chain has one closed class."""
    n = rates.shape[-1]
    reach = ((rates > 0) & pairs | torch.eye(n, dtype=torch.bool, device=rates.device)).float()
    for _ in range(max(n - 1, 1).bit_length()):  # paths of 1, 2, 4, ... steps
        reach = (reach @ reach > 0).float()
    reached_by_all = ((reach > 0) | ~mask.unsqueeze(2)).all(1)  # (B, n); no real state reaches padding
    lost = ~reached_by_all.any(1)
    if lost.any():
        raise ChainError(
            f"{_name(int(lost.nonzero()[0]), batch)}: the chain has two or more closed classes, so its "
            f"stationary distribution is not unique; {int(lost.sum())} such sets. Give every pair a positive "
            f"rate in at least one direction."
        )
    return reached_by_all.int().argmax(1)


def _name(flat: int, batch: torch.Size) -> str:
    """Name a set by its index in the batch dimensions."""
    if not batch:
        return "the chain"
    index = []
    for size in reversed(batch):
        index.append(flat % size)
        flat //= size
    return f"choice set {index[0] if len(index) == 1 else tuple(reversed(index))}"


def _result_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type of the probabilities for rates of a type."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


class _Stationary(torch.autograd.Function):
    """GTH forward, its adjoint backward. Inside, the batch is the last axis: a step is one long vector."""

    @staticmethod
    def forward(ctx: Any, rates: Tensor, mask: Tensor) -> Tensor:
        work = torch.float32 if rates.device.type == "mps" else torch.float64
        real = mask.unsqueeze(2) & mask.unsqueeze(1)  # (B, n, n)
        real.diagonal(dim1=1, dim2=2).fill_(False)
        q = rates.masked_fill(~real, 0).permute(1, 2, 0).to(work).contiguous()  # (n, n, B)
        scale = q.amax((0, 1))
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        q /= scale
        present = mask.t()  # (n, B)
        exits = eliminate(q, present)
        p = substitute(q, exits, present)
        ctx.save_for_backward(q, exits, p, scale, present)
        ctx.dtype = rates.dtype
        return p.t().to(_result_type(rates.dtype)).contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        if torch.is_grad_enabled():  # create_graph=True; torch's once_differentiable would let a Hessian be 0
            raise PcmcNetError(
                "the stationary distribution has a first derivative only: leave create_graph=False and take "
                "second derivatives as finite differences of the gradient."
            )
        q, exits, p, scale, present = ctx.saved_tensors
        flow = pull_back(q, exits, p, grad.t().to(p.dtype), present) / scale  # (n, n, B)
        return flow.permute(2, 0, 1).to(ctx.dtype), None


def eliminate(q: Tensor, present: Tensor) -> Tensor:  # (n, n, B), (n, B) -> (n, B)
    """Take states out one by one, in place; returns the rates s_k of leaving k for the states below it.

    Afterwards the row q[k, :k] holds the probabilities of where k leaves for, and the column q[:k, k] the
    rates of entering k, both in the chain in which the states above k are already out.
    """
    n = len(q)
    exits = torch.ones_like(q[0])
    for k in range(n - 1, 0, -1):
        exits[k] = torch.where(present[k], q[k, :k].sum(0), 1)  # padding: any positive number will do
        q[k, :k] /= exits[k]
        q[:k, :k].addcmul_(q[:k, k].unsqueeze(1), q[k, :k].unsqueeze(0))
    return exits


def substitute(q: Tensor, exits: Tensor, present: Tensor) -> Tensor:  # -> (n, B)
    """Put the states back; the law is normalised at every step, so that nothing overflows."""
    p = torch.zeros_like(exits)
    p[0] = present[0].to(p.dtype)
    for k in range(1, len(q)):
        odds = (p[:k] * q[:k, k]).sum(0) / exits[k]  # mass of k against that of the states below it
        p[k] = odds / (1 + odds)
        p[:k] /= 1 + odds
    return p


def pull_back(q: Tensor, exits: Tensor, p: Tensor, grad: Tensor, present: Tensor) -> Tensor:  # -> (n, n, B)
    """Turn dL/dp into dL/dq by undoing ``substitute``, then ``eliminate``, with their factors.

    An entry above the state just put back keeps its gradient, as elimination only adds to it, so no earlier
    value of q is needed. Whatever ``grad`` holds at padding, even NaN, counts for nothing.
    """
    n = len(q)
    grad = torch.where(present, grad, 0)
    b = torch.where(present, grad - (grad * p).sum(0), 0)
    for k in range(n - 1, 0, -1):
        b[k] /= exits[k]
        b[:k].addcmul_(q[:k, k], b[k])
    flow = torch.zeros_like(q)
    for k in range(1, n):
        below, enter, leave = flow[:k, :k], q[:k, k], q[k, :k]
        flow[:k, k] = (below * leave).sum(1) + p[:k] * b[k]
        gain = (below * enter.unsqueeze(1)).sum(0)
        flow[k, :k] = (gain - (gain * leave).sum(0)) / exits[k] - p[k] * b[k]
    return flow
