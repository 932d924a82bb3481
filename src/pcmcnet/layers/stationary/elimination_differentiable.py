"""The elimination by torch's own operators, none of them in place: for all that the solvers do not answer to.

Transforms of ``torch.func``, tangents of the forward mode, and gradients that are to be differentiated again find here
operators whose derivatives torch knows, of any order. The steps are those of :mod:`elimination`. Relative changes of
sums and quotients are means and differences of those of their parts, so that derivatives are as accurate there. Vectors
are copied out of the matrix: a view would keep all of it for the backward pass, and memory would grow as n^3.
Shapes: rates (B, n, n), mask (B, n) -> p (B, n).
"""

from __future__ import annotations

import torch
from torch import Tensor

from pcmcnet.layers.pair_mask import real_pairs
from pcmcnet.layers.stationary.scale import result_type, working_type


def plain_law(rates: Tensor, mask: Tensor) -> Tensor:
    """Solve chains known to be sound: real states first in each set, and state 0 reached from all of them."""
    kind = working_type(rates.device)
    q = torch.where(real_pairs(mask), rates, 0).to(kind)
    q = q / q.detach().amax((1, 2), keepdim=True).clamp_min(torch.finfo(kind).tiny)  # the law ignores the scale
    absent, taken = (~mask).to(kind), []
    for k in range(mask.shape[1] - 1, 0, -1):
        leave, enter = q[:, k, :k].clone(), q[:, :k, k].clone()
        s = leave.sum(1, keepdim=True) + absent[:, k, None]  # of padding: 1, as good as any positive number
        q = q[:, :k, :k] + enter.unsqueeze(2) * (leave / s).unsqueeze(1)
        taken.append((enter, s))
    p = mask[:, :1].to(kind) if taken else mask.to(kind) + 0 * q[:, 0]  # of one alternative: derivatives of 0
    for enter, s in reversed(taken):
        odds = (p * enter).sum(1, keepdim=True) / s
        p = torch.cat([p, odds], 1) / (1 + odds)
    return p.to(result_type(rates.dtype))
