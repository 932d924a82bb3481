"""The same elimination for large sets: states are taken out in panels, and matrix products do most of the work.

Take the panel P = {m, ..., t-1} from the top of the states left. To its members, all states below m are one place,
entered at the rate sum_{j<m} q_kj: an elimination on |P| + 1 states gives the exits s_k and the panel's own factors,
U above the diagonal and L below it. The rows and columns that join the panel to the rest follow from two triangular
systems, and what the panel adds to the rates between the states below it from one product:

    (D - U) Q[P, :m] = Q[P, :m],    Q[:m, P] (I - L) = Q[:m, P],    Q[:m, :m] += Q[:m, P] Q[P, :m]    (new = old).

Off the diagonal the systems have no positive entry and their inverses no negative one, so that solving them, too, only
adds, multiplies and divides numbers that are not negative, and every component keeps its relative accuracy.
The gradient is grown likewise, from the bottom: of the sums over i < k or j < k that state k of a panel asks for, the
part below m is found for the whole panel at once and the rest is thin. What happens inside a panel is in :mod:`panel`.
Shapes: the batch is the first axis, as products want it: q (B, n, n), mask (B, n) -> p (B, n).
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from pcmcnet.layers.stationary import panel
from pcmcnet.layers.stationary.elimination import copy_as_result, scaled_rates
from pcmcnet.layers.tensor_ops import has_triton

PANEL_KERNELS = "pcmcnet.layers.stationary.panel_triton"


def forward(rates: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the law (B, n) and what ``backward`` needs: factors, exits, the law as computed, scale; all flat."""
    q, scale = scaled_rates(rates, mask)
    with torch.autocast(q.device.type, enabled=False):
        exits = eliminate(q, mask)
        law = substitute(q, exits, mask)
    return copy_as_result(law, rates.dtype), q.view(-1), exits.view(-1), law.view(-1), scale


def backward(grad: Tensor, mask: Tensor, factors: Tensor, exits: Tensor, law: Tensor, scale: Tensor) -> Tensor:
    """Turn dL/dp (B, n) into the gradient in the rates (B, n, n)."""
    B, n = mask.shape
    q, exits, law = factors.view(B, n, n), exits.view(B, n), law.view(B, n)
    with torch.autocast(q.device.type, enabled=False):
        flow = pull_back(q, exits, law, grad.to(law.dtype), mask)
    flow /= scale[:, None, None]
    return flow.to(grad.dtype)


def panel_steps(q: Tensor) -> ModuleType:
    """Return the module with the steps inside a panel: kernels on a CUDA device, else PyTorch's operators."""
    return import_module(PANEL_KERNELS) if q.device.type == "cuda" and has_triton() else panel


def panels(n: int, width: int) -> list[tuple[int, int]]:
    """Cut the states above 0 into panels [m, top), from the bottom."""
    return [(m, min(m + width, n)) for m in range(1, n, width)]


def eliminate(q: Tensor, mask: Tensor) -> Tensor:  # (B, n, n), (B, n) -> (B, n)
    """Take states out, in place, as ``elimination.eliminate`` does: the same factors, up to the order of the sums."""
    inside, exits = panel_steps(q), torch.ones_like(q[:, 0])
    for m, top in reversed(panels(q.shape[1], inside.width())):
        inside.take_out(q, exits, mask, m, top)
        upper, lower = inside.inverses(q, exits, m, top)
        rows, columns = q[:, m:top, :m], q[:, :m, m:top]
        rows.copy_(upper @ rows)
        columns.copy_(columns @ lower)
        q[:, :m, :m].baddbmm_(columns, rows)
    return exits


def substitute(q: Tensor, exits: Tensor, mask: Tensor) -> Tensor:  # -> (B, n)
    """Put the states back, panel by panel; the law is normalised at every step, so that nothing overflows."""
    inside, p = panel_steps(q), torch.zeros_like(exits)
    p[:, 0] = mask[:, 0]
    for m, top in panels(q.shape[1], inside.width()):
        inside.put_back(q, exits, p, (p[:, None, :m] @ q[:, :m, m:top]).squeeze(1), m, top)
    return p


def pull_back(q: Tensor, exits: Tensor, p: Tensor, grad: Tensor, mask: Tensor) -> Tensor:  # -> (B, n, n)
    """Turn dL/dp into dL/dq, as ``elimination.pull_back`` does."""
    # 1. Undo the substitution, panel by panel from the top.
    inside, grad = panel_steps(q), torch.where(mask, grad, 0)
    b = torch.where(mask, grad - (grad * p).sum(1, keepdim=True), 0).unsqueeze(2)  # (B, n, 1)
    cuts = panels(q.shape[1], inside.width())
    known = {}
    for m, top in reversed(cuts):
        upper, _ = known[m] = inside.inverses(q, exits, m, top)
        b[:, m:top] = upper @ b[:, m:top]
        b[:, :m].baddbmm_(q[:, :m, m:top], b[:, m:top])
    # 2. Undo the elimination from the bottom: columns of a panel, then what its rows gain from the states below it.
    flow, pb = torch.zeros_like(q), p * b.squeeze(2)
    for m, top in cuts:
        given = p[:, :top, None] * b[:, m:top].mT  # p_i b_k
        upper, lower = known[m]
        flow[:, :m, m:top] = given[:, :m].baddbmm(flow[:, :m, :m], q[:, m:top, :m].mT) @ lower.mT
        flow[:, m:top, :top] = q[:, :m, m:top].mT @ flow[:, :m, :top]
        flow[:, m:top, m:top].tril_(-1).add_(given[:, m:].triu(1))
        inside.finish(flow, q, exits, pb, upper, m, top)
    return flow
