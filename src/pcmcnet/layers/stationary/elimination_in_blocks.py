"""The elimination for large sets: states are removed in panels, with most of the work in matrix products.

The panel P = {m, ..., t-1} consists of the last remaining states. For the states of the panel, all states below m act
as one state, entered at the rate sum_{j<m} q_kj. An elimination on |P| + 1 states gives the exits s_k and the panel's
factors, U above the diagonal and L below the diagonal. The rows and columns that link the panel to the rest follow from
two triangular systems, and the rates that the panel adds between the states below it follow from one product:

    (D - U) Q[P, :m] = Q[P, :m],    Q[:m, P] (I - L) = Q[:m, P],    Q[:m, :m] += Q[:m, P] Q[P, :m]    (new = old).

The matrices of these systems have no positive entry off the diagonal, so their inverses have no negative entry. Solving
these systems therefore only adds, multiplies and divides non-negative numbers, and every component keeps its relative
accuracy. The gradient is also built panel by panel, starting with the first states. State k of a panel needs sums over
i < k or j < k: the part of these sums below m is computed for the whole panel in one product, and the rest is small.
The steps inside a panel are in :mod:`panel`. Shapes: the batch is the first axis, as matrix products expect: q (B, n,
n), mask (B, n) -> p (B, n).
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
    """Return p (B, n), and flat tensors for ``backward``: factors, exits, p in working precision, scale."""
    q, scale = scaled_rates(rates, mask)
    with torch.autocast(q.device.type, enabled=False):
        exits = eliminate(q, mask)
        p = substitute(q, exits, mask)
    return copy_as_result(p, rates.dtype), q.view(-1), exits.view(-1), p.view(-1), scale


def backward(grad: Tensor, mask: Tensor, factors: Tensor, exits: Tensor, p: Tensor, scale: Tensor) -> Tensor:
    """Return the gradient w.r.t. the rates (B, n, n), given dL/dp (B, n)."""
    B, n = mask.shape
    q, exits, p = factors.view(B, n, n), exits.view(B, n), p.view(B, n)
    with torch.autocast(q.device.type, enabled=False):
        flow = pull_back(q, exits, p, grad.to(p.dtype), mask)
    flow /= scale[:, None, None]
    return flow.to(grad.dtype)


def panel_steps(q: Tensor) -> ModuleType:
    """Return the module with the steps inside a panel: kernels on a CUDA device, otherwise torch's operators."""
    return import_module(PANEL_KERNELS) if q.device.type == "cuda" and has_triton() else panel


def panels(n: int, width: int) -> list[tuple[int, int]]:
    """Divide the states above 0 into panels [m, top), in ascending order."""
    return [(m, min(m + width, n)) for m in range(1, n, width)]


def eliminate(q: Tensor, mask: Tensor) -> Tensor:  # (B, n, n), (B, n) -> (B, n)
    """Remove the states, in place, with the same factors as ``elimination.eliminate`` up to the order of sums."""
    steps, exits = panel_steps(q), torch.ones_like(q[:, 0])
    for m, top in reversed(panels(q.shape[1], steps.panel_width())):
        # 1. The factors of the panel itself.
        steps.eliminate_panel(q, exits, mask, m, top)
        # 2. Its rows and columns below m, by the inverses of the triangular systems.
        upper, lower = steps.triangular_inverses(q, exits, m, top)
        rows, columns = q[:, m:top, :m], q[:, :m, m:top]
        rows.copy_(upper @ rows)
        columns.copy_(columns @ lower)
        # 3. The transitions through the panel become direct ones.
        q[:, :m, :m].baddbmm_(columns, rows)
    return exits


def substitute(q: Tensor, exits: Tensor, mask: Tensor) -> Tensor:  # -> (B, n)
    """Restore the states, panel by panel; the distribution is normalised at every step, so that nothing overflows."""
    steps, p = panel_steps(q), torch.zeros_like(exits)
    p[:, 0] = mask[:, 0]
    for m, top in panels(q.shape[1], steps.panel_width()):
        steps.restore_panel(q, exits, p, (p[:, None, :m] @ q[:, :m, m:top]).squeeze(1), m, top)
    return p


def pull_back(q: Tensor, exits: Tensor, p: Tensor, grad: Tensor, mask: Tensor) -> Tensor:  # -> (B, n, n)
    """Return dL/dq, given dL/dp, as ``elimination.pull_back`` does."""
    # 1. Undo the substitution, panel by panel from the top.
    steps, grad = panel_steps(q), torch.where(mask, grad, 0)
    b = torch.where(mask, grad - (grad * p).sum(1, keepdim=True), 0).unsqueeze(2)  # (B, n, 1)
    cuts = panels(q.shape[1], steps.panel_width())
    inverses = {}
    for m, top in reversed(cuts):
        upper, _ = inverses[m] = steps.triangular_inverses(q, exits, m, top)
        b[:, m:top] = upper @ b[:, m:top]
        b[:, :m].baddbmm_(q[:, :m, m:top], b[:, m:top])
    # 2. Undo the elimination from the bottom: first the columns of a panel, then its rows.
    flow, pb = torch.zeros_like(q), p * b.squeeze(2)
    for m, top in cuts:
        outer = p[:, :top, None] * b[:, m:top].mT  # p_i b_k
        upper, lower = inverses[m]
        flow[:, :m, m:top] = outer[:, :m].baddbmm(flow[:, :m, :m], q[:, m:top, :m].mT) @ lower.mT
        flow[:, m:top, :top] = q[:, :m, m:top].mT @ flow[:, :m, :top]
        flow[:, m:top, m:top].tril_(-1).add_(outer[:, m:].triu(1))
        steps.finish_gradient(flow, q, exits, pb, upper, m, top)
    return flow
