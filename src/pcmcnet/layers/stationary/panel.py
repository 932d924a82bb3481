"""Steps of the blocked elimination inside one panel of states, with torch's operators.

The panel is P = {m, ..., t-1}. The steps outside a panel are in :mod:`elimination_in_blocks`. For the states of the
panel, all states below m act as one state, so the panel is a chain of |P| + 1 states, which :mod:`elimination` solves.
:mod:`panel_triton` has the same functions for a CUDA device. Shapes: q and flow (B, n, n), exits, mask, p and pb (B,
n), matrices of a panel (B, b, b).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.linalg import solve_triangular

from pcmcnet.layers import settings
from pcmcnet.layers.stationary import elimination


def panel_width() -> int:
    """Return the number of states per panel."""
    return settings.ELIMINATION_BLOCK_STATES


def eliminate_panel(q: Tensor, exits: Tensor, mask: Tensor, m: int, top: int) -> None:
    """Write the factors of the panel to q[P, P], and the rates of leaving each state for lower states to exits[P]."""
    panel = q[:, m:top, m:top]
    chain = _add_state_below(panel)
    chain[1:, 0] = q[:, m:top, :m].sum(2).t()
    exits[:, m:top] = elimination.eliminate(chain, mask[:, m - 1 : top].t())[1:].t()
    panel.copy_(chain[1:, 1:].permute(2, 0, 1))


def triangular_inverses(q: Tensor, exits: Tensor, m: int, top: int) -> tuple[Tensor, Tensor]:
    """Return the inverses of D - U and of I - L, neither of which has a negative entry."""
    system = -q[:, m:top, m:top]
    system.diagonal(dim1=1, dim2=2).copy_(exits[:, m:top])
    one = torch.eye(top - m, dtype=q.dtype, device=q.device).expand_as(system)
    return solve_triangular(system, one, upper=True), solve_triangular(system, one, upper=False, unitriangular=True)


def restore_panel(q: Tensor, exits: Tensor, p: Tensor, inflow: Tensor, m: int, top: int) -> None:  # inflow (B, b)
    """Extend the distribution p[:m], which sums to 1, to the panel, given the flow from lower states into the panel."""
    chain = _add_state_below(q[:, m:top, m:top])
    chain[0, 1:] = inflow.t()
    masses = elimination.substitute(chain, exits[:, m - 1 : top].t(), torch.ones_like(chain[0]))
    p[:, :m] *= masses[:1].t()
    p[:, m:top] = masses[1:].t()


def finish_gradient(flow: Tensor, q: Tensor, exits: Tensor, pb: Tensor, upper: Tensor, m: int, top: int) -> None:
    """Complete the rows of the panel in the gradient, in place, one state at a time.

    The rows already contain the contributions of the states below the panel and, to the right of the diagonal, p_i b_k.
    The argument ``upper`` is used only by the Triton version of this function.
    """
    flow, q, exits, pb = flow[:, m:top, :top], q[:, m:top, :top], exits[:, m:top], pb[:, m:top]
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


def _add_state_below(panel: Tensor) -> Tensor:  # (B, b, b) -> (b + 1, b + 1, B)
    """Return the chain of the panel with an additional state 0 that represents all states below the panel."""
    B, b, _ = panel.shape
    chain = panel.new_zeros(b + 1, b + 1, B)
    chain[1:, 1:] = panel.permute(1, 2, 0)
    return chain
