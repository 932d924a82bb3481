"""The elimination of Grassmann, Taksar & Heyman (1985), one state at a time, for many small sets.

The states k = n-1, ..., 1 are removed from the chain one after another. Visits to k become direct transitions between
the remaining states,

    s_k = sum_{j<k} q_kj,    q_ij += q_ik q_kj / s_k    (i, j < k).

Then the states k = 1, ..., n-1 are restored, each with the mass that balances its inflow and outflow,
p_k = sum_{i<k} p_i q_ik / s_k. Sums, products and quotients of non-negative numbers preserve the relative accuracy of
every component, whereas an LU solve loses small probabilities to cancellation and may return negative ones.

The gradient follows from the equation for p, without differentiating through the elimination: for g = dL/dp, c = g . p
and any z with G z = g - c 1,

    dL/dq_ij = -p_i (z_j - z_i).

However, if transitions are fast within groups of states and rare between groups, the values z of the states of a group
agree in all digits, and the differences between these values are rounding noise. So z is never formed: the same matrix
is built from the factors of the elimination, one state at a time, and the elasticities q_ij dL/dq_ij are exact to
rounding error for any rates. Shapes: the batch is the last axis, so that each step works on long vectors: q (n, n, B),
present (n, B) -> p (n, B).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._higher_order_ops import scan

from pcmcnet.layers.tensor_ops import real_pairs

# -- first and last steps of every solver: mask and scale the rates, convert types -------------------------------------


def scaled_rates(rates: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:  # (B, n, n), (B, n) -> (B, n, n), (B,)
    """Return the rates between real states (0 elsewhere), divided by the largest rate, and the largest rate."""
    q = torch.where(real_pairs(mask), rates, 0).to(working_type(rates.device)).contiguous()
    scale = q.amax((1, 2)).clamp_min_(torch.finfo(q.dtype).tiny)  # a set without rates: any positive number works
    q /= scale[:, None, None]
    return q, scale


def copy_as_result(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a contiguous copy with the result dtype, because the results of an operator must not share memory."""
    return value.to(result_type(dtype), copy=True, memory_format=torch.contiguous_format)


def working_type(device: torch.device) -> torch.dtype:
    """Return the dtype in which chains are solved: the most precise dtype that the device supports."""
    return torch.float32 if device.type == "mps" else torch.float64


def result_type(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of the probabilities, given the dtype of the rates."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


# -- the elimination ---------------------------------------------------------------------------------------------------


def forward(rates: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return p (B, n), and flat tensors for ``backward``: factors, exits, p in working precision, scale."""
    q, scale = scaled_rates(rates, mask)
    q, present = q.permute(1, 2, 0).contiguous(), mask.t()
    exits = eliminate(q, present)
    p = substitute(q, exits, present)
    return copy_as_result(p.t(), rates.dtype), q.view(-1), exits.view(-1), p.view(-1), scale


def backward(grad: Tensor, mask: Tensor, factors: Tensor, exits: Tensor, p: Tensor, scale: Tensor) -> Tensor:
    """Return the gradient w.r.t. the rates (B, n, n), given dL/dp (B, n)."""
    B, n = mask.shape
    q, exits, p = factors.view(n, n, B), exits.view(n, B), p.view(n, B)
    flow = pull_back(q, exits, p, grad.t().to(p.dtype), mask.t()) / scale  # (n, n, B)
    return copy_as_result(flow.permute(2, 0, 1), grad.dtype)


def eliminate(q: Tensor, present: Tensor) -> Tensor:  # (n, n, B), (n, B) -> (n, B)
    """Remove the states one by one, in place, and return the rates s_k of leaving k for the states below k.

    Afterwards, the row q[k, :k] contains the jump probabilities from k, and the column q[:k, k] the rates of entering
    k, both in the chain without the states above k.
    """
    exits = torch.zeros_like(q[0]).masked_fill_(~present, 1)  # padding: 1, but any positive number works
    rows, columns, steps = q.unbind(0), q.unsqueeze(1).unbind(2), exits.unbind(0)
    for k in range(len(q) - 1, 0, -1):
        leave, s = rows[k][:k], steps[k]
        s += leave.sum(0)
        leave /= s
        q[:k, :k].addcmul_(columns[k][:k], leave)
    return exits


def substitute(q: Tensor, exits: Tensor, present: Tensor) -> Tensor:  # -> (n, B)
    """Restore the states one by one, normalising the distribution at every step so that nothing overflows."""
    p = torch.zeros_like(q[0])
    p[0] = present[0]
    below, columns, steps, masses = p[:1], q.unbind(1), exits.unbind(0), p.unbind(0)
    for k in range(1, len(q)):
        odds = masses[k]  # mass of k relative to the mass of the states below it
        torch.sum(below * columns[k][:k], 0, out=odds)
        odds /= steps[k]
        below = p[: k + 1]
        below /= 1 + odds
    return p


def pull_back(q: Tensor, exits: Tensor, p: Tensor, grad: Tensor, present: Tensor) -> Tensor:  # -> (n, n, B)
    """Return dL/dq, given dL/dp, by backpropagating through ``substitute`` and then ``eliminate``, using the factors.

    Elimination only adds to the entries of q, so each entry keeps its gradient, and no earlier value of q is needed.
    Values of ``grad`` at padding, even NaN, are ignored.
    """
    # 1. Undo the substitution, from the last state to the first: b_k is the derivative of L w.r.t. the flow into k.
    n = len(q)
    grad = torch.where(present, grad, 0)
    b = torch.where(present, grad - (grad * p).sum(0), 0)
    rows, columns, steps, shares = q.unbind(0), q.unbind(1), exits.unbind(0), b.unbind(0)
    for k in range(n - 1, 0, -1):
        shares[k].div_(steps[k])
        b[:k].addcmul_(columns[k][:k], shares[k])
    # 2. Undo the elimination: restore the states one by one, each with its column and its row of the gradient.
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
# The elimination with torch's own operators, none of them in place, for derivatives that the solvers do not support:
# transforms of `torch.func`, forward mode, and gradients that are differentiated again. Torch differentiates these
# operators to any order. The steps are the same as in `eliminate` and `substitute`. The relative change in a sum or
# quotient is a mean or difference of the relative changes in its parts, so the derivatives are as accurate as the
# values. Vectors are copied out of the matrix: a view would keep the whole matrix for the backward pass, and memory
# would grow as n^3. Shapes: rates (B, n, n), mask (B, n) -> p (B, n).


def differentiable_distribution(rates: Tensor, mask: Tensor) -> Tensor:
    """Solve valid chains, in which real states come first and all real states reach state 0."""
    # 1. Divide the rates between real states by the largest rate of the set.
    kind = working_type(rates.device)
    q = torch.where(real_pairs(mask), rates, 0).to(kind)
    q = q / q.detach().amax((1, 2), keepdim=True).clamp_min(torch.finfo(kind).tiny)  # p does not depend on it
    # 2. Remove the states from the last to the second; record how each is entered, and its exit rate.
    absent, removed = (~mask).to(kind), []
    for k in range(mask.shape[1] - 1, 0, -1):
        leave, enter = q[:, k, :k].clone(), q[:, :k, k].clone()
        s = leave.sum(1, keepdim=True) + absent[:, k, None]  # padding: 1, but any positive number works
        q = q[:, :k, :k] + enter.unsqueeze(2) * (leave / s).unsqueeze(1)
        removed.append((enter, s))
    # 3. Restore them, each with the mass that balances its inflow and outflow.
    p = mask[:, :1].to(kind) if removed else mask.to(kind) + 0 * q[:, 0]  # for one alternative the derivatives are 0
    for enter, s in reversed(removed):
        odds = (p * enter).sum(1, keepdim=True) / s
        p = torch.cat([p, odds], 1) / (1 + odds)
    return p.to(result_type(rates.dtype))


# -- for export --------------------------------------------------------------------------------------------------------
# The elimination as a graph of plain operators, for programs that have only torch or an ONNX runtime.
#
# The sums, products and quotients are the same as in `eliminate` and `substitute`, in float64, so that every
# probability keeps its relative accuracy. All steps of a graph have one shape, so all n states stay in place and
# factors of 0 and 1 mark the removed ones. The steps are a scan over the states, whose number is known when the graph
# runs. Padding may be anywhere. Shapes: rates (B, n, n), mask (B, n) bool -> p (B, n).


def exported_distribution(rates: Tensor, mask: Tensor) -> Tensor:
    """Solve chains with positive rates; the result is 0 for a set without real alternatives."""
    q = torch.where(real_pairs(mask), rates, 0).double()
    state = torch.arange(mask.shape[1], device=mask.device)
    at, below = ((state.unsqueeze(1) == state).double(), (state.unsqueeze(1) > state).double())  # rows k: k, and i < k
    _, shares = scan(_remove_state, q, (state, below), reverse=True)  # (n, B, n)
    first = (mask & (mask.cumsum(1) == 1)).double()
    p, _ = scan(_restore_state, first, (at, shares))
    result: Tensor = p.to(rates.dtype)
    return result


def _remove_state(q: Tensor, k: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the rates (B, n, n) after removing k, and the rates (B, n) of entering k divided by its exit rate."""
    at, below = k[0].unsqueeze(0), k[1]
    leave, enter = q.index_select(1, at).squeeze(1) * below, q.index_select(2, at).squeeze(2) * below
    exits = leave.sum(1, keepdim=True)
    exits = torch.where(exits == 0, 1.0, exits)  # the last state and padding: no rates, any divisor works
    return q + enter.unsqueeze(2) * (leave / exits).unsqueeze(1), enter / exits


def _restore_state(p: Tensor, k: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the distribution after restoring state k (B, n), and the mass of k relative to the lower states (B, 1)."""
    at, shares = k
    odds = (p * shares).sum(1, keepdim=True)
    return (p + odds * at) / (1 + odds), odds
