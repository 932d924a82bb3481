"""The same elimination for large sets: states are taken out in panels, and matrix products do most of the work.

Take the panel P = {m, ..., t-1} from the top of the states left. To its members, all states below m are one place,
entered at the rate sum_{j<m} q_kj: an elimination on |P| + 1 states gives the exits s_k and the panel's own factors,
U above the diagonal and L below it. The rows and columns that join the panel to the rest follow from two triangular
systems, and what the panel adds to the rates between the states below it from one product:

    (D - U) Q[P, :m] = Q[P, :m],    Q[:m, P] (I - L) = Q[:m, P],    Q[:m, :m] += Q[:m, P] Q[P, :m]    (new = old).

Off the diagonal the systems have no positive entry, so that solving them, too, only adds, multiplies and divides
numbers that are not negative, and every component keeps its relative accuracy. The gradient is grown likewise, from
the bottom: of the sums over i < k or j < k that state k of a panel asks for, the part below m is found for the whole
panel at once and the rest is thin.
Shapes: the batch is the first axis, as products want it: q (B, n, n), mask (B, n) -> p (B, n).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.linalg import solve_triangular

from pcmcnet.layers import settings
from pcmcnet.layers.stationary import elimination
from pcmcnet.layers.stationary.scale import copied, scaled


def forward(rates: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the law (B, n) and what ``backward`` needs: factors, exits, the law as computed, scale; all flat."""
    q, scale = scaled(rates, mask)
    with torch.autocast(q.device.type, enabled=False):
        exits = eliminate(q, mask)
        law = substitute(q, exits, mask)
    return copied(law, rates.dtype), q.view(-1), exits.view(-1), law.view(-1), scale


def backward(grad: Tensor, mask: Tensor, factors: Tensor, exits: Tensor, law: Tensor, scale: Tensor) -> Tensor:
    """Turn dL/dp (B, n) into the gradient in the rates (B, n, n)."""
    B, n = mask.shape
    q, exits, law = factors.view(B, n, n), exits.view(B, n), law.view(B, n)
    with torch.autocast(q.device.type, enabled=False):
        flow = pull_back(q, exits, law, grad.to(law.dtype), mask)
    flow /= scale[:, None, None]
    return flow.to(grad.dtype)


def panels(n: int) -> list[tuple[int, int]]:
    """Cut the states above 0 into panels [m, top), from the bottom."""
    return [(m, min(m + settings.ELIMINATION_BLOCK, n)) for m in range(1, n, settings.ELIMINATION_BLOCK)]


def eliminate(q: Tensor, mask: Tensor) -> Tensor:  # (B, n, n), (B, n) -> (B, n)
    """Take states out, in place, as ``elimination.eliminate`` does: the same factors, up to the order of the sums."""
    exits = torch.ones_like(q[:, 0])
    for m, top in reversed(panels(q.shape[1])):
        rows, columns, panel = q[:, m:top, :m], q[:, :m, m:top], q[:, m:top, m:top]
        chain = _with_one_below(panel)
        chain[1:, 0] = rows.sum(2).t()
        exits[:, m:top] = elimination.eliminate(chain, mask[:, m - 1 : top].t())[1:].t()
        panel.copy_(chain[1:, 1:].permute(2, 0, 1))
        system = _system(panel, exits[:, m:top])
        rows.copy_(solve_triangular(system, rows, upper=True))
        columns.copy_(solve_triangular(system, columns, upper=False, left=False, unitriangular=True))
        q[:, :m, :m].baddbmm_(columns, rows)
    return exits


def substitute(q: Tensor, exits: Tensor, mask: Tensor) -> Tensor:  # -> (B, n)
    """Put the states back, panel by panel; the law is normalised at every step, so that nothing overflows."""
    p = torch.zeros_like(exits)
    p[:, 0] = mask[:, 0]
    for m, top in panels(q.shape[1]):
        chain = _with_one_below(q[:, m:top, m:top])
        chain[0, 1:] = (p[:, None, :m] @ q[:, :m, m:top]).squeeze(1).t()
        law = elimination.substitute(chain, exits[:, m - 1 : top].t(), torch.ones_like(chain[0]))
        p[:, :m] *= law[:1].t()
        p[:, m:top] = law[1:].t()
    return p


def pull_back(q: Tensor, exits: Tensor, p: Tensor, grad: Tensor, mask: Tensor) -> Tensor:  # -> (B, n, n)
    """Turn dL/dp into dL/dq, as ``elimination.pull_back`` does."""
    grad = torch.where(mask, grad, 0)
    b = torch.where(mask, grad - (grad * p).sum(1, keepdim=True), 0).unsqueeze(2)  # (B, n, 1)
    for m, top in reversed(panels(q.shape[1])):
        b[:, m:top] = solve_triangular(_system(q[:, m:top, m:top], exits[:, m:top]), b[:, m:top], upper=True)
        b[:, :m].baddbmm_(q[:, :m, m:top], b[:, m:top])
    flow, pb = torch.zeros_like(q), p * b.squeeze(2)
    for m, top in panels(q.shape[1]):
        rows, columns, inner = flow[:, m:top, :top], flow[:, :m, m:top], flow[:, m:top, m:top]
        links = _system(q[:, m:top, m:top], exits[:, m:top]).mT
        given = p[:, :top, None] * b[:, m:top].mT  # p_i b_k
        known = given[:, :m].baddbmm(flow[:, :m, :m], q[:, m:top, :m].mT)
        columns.copy_(solve_triangular(links, known, upper=True, left=False, unitriangular=True))
        rows.copy_(q[:, :m, m:top].mT @ flow[:, :m, :top])
        inner.tril_(-1).add_(given[:, m:].triu(1))
        _finish(rows, q[:, m:top, :top], exits[:, m:top], pb[:, m:top])
    return flow


def _finish(flow: Tensor, q: Tensor, exits: Tensor, pb: Tensor) -> None:  # (B, b, t) twice, (B, b) twice
    """Grow the gradient in a panel's rows, in place, one state at a time.

    They come with what they gain from the states below the panel and, right of the diagonal, with p_i b_k.
    """
    m = q.shape[2] - q.shape[1]
    gains, columns = flow[:, None].unbind(2), flow[:, :, m:, None].unbind(2)  # (B, 1, t) and (B, b, 1) each
    leaves, enters = q[:, :, :, None].unbind(1), q[:, None, :, m:].unbind(3)  # (B, t, 1) and (B, 1, b) each
    steps, losses = (x[:, :, None, None].unbind(1) for x in (exits, exits * pb))  # (B, 1, 1) each
    for i in range(q.shape[1]):
        k = m + i
        before, gain, leave = flow[:, :i, :k], gains[i][:, :, :k], leaves[i][:, :k]
        columns[i][:, :i].baddbmm_(before, leave)
        gain.baddbmm_(enters[i][:, :, :i], before)
        gain -= torch.baddbmm(losses[i], gain, leave)
        gain /= steps[i]


def _with_one_below(panel: Tensor) -> Tensor:  # (B, b, b) -> (b + 1, b + 1, B)
    """Return the panel's chain with one more state, 0, for all states below it."""
    B, b, _ = panel.shape
    chain = panel.new_zeros(b + 1, b + 1, B)
    chain[1:, 1:] = panel.permute(1, 2, 0)
    return chain


def _system(panel: Tensor, exits: Tensor) -> Tensor:  # (B, b, b), (B, b) -> (B, b, b)
    """Return D - U above and on the diagonal; below it -L, where a solver takes the diagonal for ones."""
    system = -panel
    system.diagonal(dim1=1, dim2=2).copy_(exits)
    return system
