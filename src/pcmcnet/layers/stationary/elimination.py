"""The elimination of Grassmann, Taksar & Heyman (1985), one state at a time, for many small sets.

State k = n-1, ..., 1 is taken out of the chain in turn, its visits replaced by direct transitions between the
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
Shapes: the batch is the last axis, so that a step is one long vector: q (n, n, B), present (n, B) -> p (n, B).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._higher_order_ops import scan

from pcmcnet.layers.tensor_ops import real_pairs

# -- what every solver begins and ends with: rates of padding out, one scale a set, working and result types -----------


def scaled_rates(rates: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:  # (B, n, n), (B, n) -> (B, n, n), (B,)
    """Return the rates between real states over their largest, 0 elsewhere, in working precision, and that largest."""
    q = torch.where(real_pairs(mask), rates, 0).to(working_type(rates.device)).contiguous()
    scale = q.amax((1, 2)).clamp_min_(torch.finfo(q.dtype).tiny)  # a set without rates: anything positive will do
    q /= scale[:, None, None]
    return q, scale


def copy_as_result(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a contiguous copy in the result type; an operator's results may not share memory."""
    return value.to(result_type(dtype), copy=True, memory_format=torch.contiguous_format)


def working_type(device: torch.device) -> torch.dtype:
    """Return the type in which chains are solved: the widest of the device."""
    return torch.float32 if device.type == "mps" else torch.float64


def result_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type of the probabilities for rates of a type."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


# -- the elimination ---------------------------------------------------------------------------------------------------


def forward(rates: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the law (B, n) and what ``backward`` needs: factors, exits, the law as computed, scale; all flat."""
    q, scale = scaled_rates(rates, mask)
    q, present = q.permute(1, 2, 0).contiguous(), mask.t()
    exits = eliminate(q, present)
    law = substitute(q, exits, present)
    return copy_as_result(law.t(), rates.dtype), q.view(-1), exits.view(-1), law.view(-1), scale


def backward(grad: Tensor, mask: Tensor, factors: Tensor, exits: Tensor, law: Tensor, scale: Tensor) -> Tensor:
    """Turn dL/dp (B, n) into the gradient in the rates (B, n, n)."""
    B, n = mask.shape
    q, exits, law = factors.view(n, n, B), exits.view(n, B), law.view(n, B)
    flow = pull_back(q, exits, law, grad.t().to(law.dtype), mask.t()) / scale  # (n, n, B)
    return copy_as_result(flow.permute(2, 0, 1), grad.dtype)


def eliminate(q: Tensor, present: Tensor) -> Tensor:  # (n, n, B), (n, B) -> (n, B)
    """Take states out one by one, in place; returns the rates s_k of leaving k for the states below it.

    Afterwards the row q[k, :k] holds the probabilities of where k leaves for, and the column q[:k, k] the
    rates of entering k, both in the chain in which the states above k are already out.
    """
    exits = torch.zeros_like(q[0]).masked_fill_(~present, 1)  # padding: 1 + 0, as good as any positive number
    rows, columns, steps = q.unbind(0), q.unsqueeze(1).unbind(2), exits.unbind(0)
    for k in range(len(q) - 1, 0, -1):
        leave, s = rows[k][:k], steps[k]
        s += leave.sum(0)
        leave /= s
        q[:k, :k].addcmul_(columns[k][:k], leave)
    return exits


def substitute(q: Tensor, exits: Tensor, present: Tensor) -> Tensor:  # -> (n, B)
    """Put the states back; the law is normalised at every step, so that nothing overflows."""
    p = torch.zeros_like(q[0])
    p[0] = present[0]
    below, columns, steps, masses = p[:1], q.unbind(1), exits.unbind(0), p.unbind(0)
    for k in range(1, len(q)):
        odds = masses[k]  # mass of k against that of the states below it
        torch.sum(below * columns[k][:k], 0, out=odds)
        odds /= steps[k]
        below = p[: k + 1]
        below /= 1 + odds
    return p


def pull_back(q: Tensor, exits: Tensor, p: Tensor, grad: Tensor, present: Tensor) -> Tensor:  # -> (n, n, B)
    """Turn dL/dp into dL/dq by undoing ``substitute``, then ``eliminate``, with their factors.

    An entry above the state just put back keeps its gradient, as elimination only adds to it, so no earlier
    value of q is needed. Whatever ``grad`` holds at padding, even NaN, counts for nothing.
    """
    # 1. Undo the substitution: b_k is what a unit of flow into k is worth, from the last state to the first.
    n = len(q)
    grad = torch.where(present, grad, 0)
    b = torch.where(present, grad - (grad * p).sum(0), 0)
    rows, columns, steps, shares = q.unbind(0), q.unbind(1), exits.unbind(0), b.unbind(0)
    for k in range(n - 1, 0, -1):
        shares[k].div_(steps[k])
        b[:k].addcmul_(columns[k][:k], shares[k])
    # 2. Undo the elimination: put the states back one by one, each with its column and its row of the gradient.
    flow, back = torch.zeros_like(q), (p * b).unbind(0)
    flow_rows, flow_columns = flow.unbind(0), flow.unbind(1)
    for k in range(1, n):
        below, enter, leave, column = flow[:k, :k], columns[k][:k], rows[k][:k], flow_columns[k][:k]
        torch.sum(below * leave, 1, out=column)
        column.addcmul_(p[:k], shares[k])
        gain = (below * enter.unsqueeze(1)).sum(0)
        gain -= (gain * leave).sum(0)
        gain /= steps[k]
        torch.sub(gain, back[k], out=flow_rows[k][:k])
    return flow


# -- differentiable ----------------------------------------------------------------------------------------------------
# The elimination by torch's own operators, none of them in place: for all that the solvers do not answer to.
#
# Transforms of `torch.func`, tangents of the forward mode, and gradients that are to be differentiated again find here
# operators whose derivatives torch knows, of any order. The steps are those of `elimination`. Relative changes of sums
# and quotients are means and differences of those of their parts, so that derivatives are as accurate there. Vectors
# are copied out of the matrix: a view would keep all of it for the backward pass, and memory would grow as n^3. Shapes:
# rates (B, n, n), mask (B, n) -> p (B, n).


def differentiable_distribution(rates: Tensor, mask: Tensor) -> Tensor:
    """Solve chains known to be sound: real states first in each set, and state 0 reached from all of them."""
    # 1. Rates between real states, in units of the largest of the set.
    kind = working_type(rates.device)
    q = torch.where(real_pairs(mask), rates, 0).to(kind)
    q = q / q.detach().amax((1, 2), keepdim=True).clamp_min(torch.finfo(kind).tiny)  # the law ignores the scale
    # 2. Take the states out, from the last on, and note how each is entered and left.
    absent, taken = (~mask).to(kind), []
    for k in range(mask.shape[1] - 1, 0, -1):
        leave, enter = q[:, k, :k].clone(), q[:, :k, k].clone()
        s = leave.sum(1, keepdim=True) + absent[:, k, None]  # of padding: 1, as good as any positive number
        q = q[:, :k, :k] + enter.unsqueeze(2) * (leave / s).unsqueeze(1)
        taken.append((enter, s))
    # 3. Put them back, with the mass that balances what flows in and out.
    p = mask[:, :1].to(kind) if taken else mask.to(kind) + 0 * q[:, 0]  # of one alternative: derivatives of 0
    for enter, s in reversed(taken):
        odds = (p * enter).sum(1, keepdim=True) / s
        p = torch.cat([p, odds], 1) / (1 + odds)
    return p.to(result_type(rates.dtype))


# -- for export --------------------------------------------------------------------------------------------------------
# The elimination as a graph of plain operators, for programs that have torch or an ONNX runtime and nothing else.
#
# The numbers are those of `elimination`: the same sums, products and quotients, in float64, so that every probability
# keeps its relative accuracy. A graph has one shape for every step, so all n states stay in place and 0/1 factors say
# which are out; the steps are a scan over the states, whose number is known when the graph is run. Padding may lie
# anywhere. Shapes: rates (B, n, n), mask (B, n) bool -> p (B, n).


def exported_distribution(rates: Tensor, mask: Tensor) -> Tensor:
    """Solve chains of positive rates; a set of padding alone gets zeros."""
    q = torch.where(real_pairs(mask), rates, 0).double()
    state = torch.arange(mask.shape[1], device=mask.device)
    at, below = ((state.unsqueeze(1) == state).double(), (state.unsqueeze(1) > state).double())  # rows k: k, and i < k
    _, shares = scan(_take_out, q, (state, below), reverse=True)  # (n, B, n)
    first = (mask & (mask.cumsum(1) == 1)).double()
    p, _ = scan(_put_back, first, (at, shares))
    law: Tensor = p.to(rates.dtype)
    return law


def _take_out(q: Tensor, k: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Take state k out of the chain: (B, n, n) -> (B, n, n), and (B, n) how often k is entered over how soon left."""
    at, below = k[0].unsqueeze(0), k[1]
    leave, enter = q.index_select(1, at).squeeze(1) * below, q.index_select(2, at).squeeze(2) * below
    exits = leave.sum(1, keepdim=True)
    exits = torch.where(exits == 0, 1.0, exits)  # of the last state, and of padding: nothing is left or entered
    return q + enter.unsqueeze(2) * (leave / exits).unsqueeze(1), enter / exits


def _put_back(p: Tensor, k: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Put state k back: (B, n) -> (B, n), and (B, 1) its mass against that of the states below it."""
    at, shares = k
    odds = (p * shares).sum(1, keepdim=True)
    return (p + odds * at) / (1 + odds), odds
