"""The elimination as a graph of plain operators, for programs that have torch or an ONNX runtime and nothing else.

The numbers are those of ``elimination``: the same sums, products and quotients, in float64, so that every probability
keeps its relative accuracy. A graph has one shape for every step, so all n states stay in place and 0/1 factors say
which are out; the steps are a scan over the states, whose number is known when the graph is run. Padding may lie
anywhere. Shapes: rates (B, n, n), mask (B, n) bool -> p (B, n).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._higher_order_ops import scan

from pcmcnet.layers.pair_mask import real_pairs


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
