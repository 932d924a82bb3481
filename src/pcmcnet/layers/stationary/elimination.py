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

from pcmcnet.layers.stationary.scale import copied, scaled


def forward(rates: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the law (B, n) and what ``backward`` needs: factors, exits, the law as computed, scale; all flat."""
    q, scale = scaled(rates, mask)
    q, present = q.permute(1, 2, 0).contiguous(), mask.t()
    exits = eliminate(q, present)
    law = substitute(q, exits, present)
    return copied(law.t(), rates.dtype), q.view(-1), exits.view(-1), law.view(-1), scale


def backward(grad: Tensor, mask: Tensor, factors: Tensor, exits: Tensor, law: Tensor, scale: Tensor) -> Tensor:
    """Turn dL/dp (B, n) into the gradient in the rates (B, n, n)."""
    B, n = mask.shape
    q, exits, law = factors.view(n, n, B), exits.view(n, B), law.view(n, B)
    flow = pull_back(q, exits, law, grad.t().to(law.dtype), mask.t()) / scale  # (n, n, B)
    return copied(flow.permute(2, 0, 1), grad.dtype)


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
    n = len(q)
    grad = torch.where(present, grad, 0)
    b = torch.where(present, grad - (grad * p).sum(0), 0)
    rows, columns, steps, shares = q.unbind(0), q.unbind(1), exits.unbind(0), b.unbind(0)
    for k in range(n - 1, 0, -1):
        shares[k].div_(steps[k])
        b[:k].addcmul_(columns[k][:k], shares[k])
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
