"""Scores of pairs -> rates, by torch's operators.

A rate form makes the score f of a pair a rate:

    relu       q = max(0, f) + epsilon    (the paper's)
    softplus   q = log(1 + exp f) + epsilon
    exp        q = exp f + epsilon

The time scale does not change the stationary distribution, so the rates of a set are divided by their largest; for
``exp`` that happens before exponentiating and nothing overflows. A floor far below what matters keeps every chain
irreducible. Shapes: scores (B, J, J), mask (B, J) -> rates (B, J, J).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from pcmcnet.layers.pair_mask import real_pairs

RateForm = Literal["relu", "softplus", "exp"]

FLOOR = math.exp(-40)  # of the largest rate in the set; keeps probabilities and gradients within float32


def plain_rates(scores: Tensor, mask: Tensor, *, rate: RateForm, epsilon: float) -> Tensor:
    """Turn scores into rates whose largest in each set is about 1: (B, J, J), (B, J) -> (B, J, J)."""
    scores = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    pairs = real_pairs(mask)
    if rate == "exp":
        top = _largest(scores, pairs)
        if epsilon > 0:
            top = top.clamp(min=math.log(epsilon))
        q = (scores - top).clamp(max=0).exp()
        if epsilon > 0:
            q = q + epsilon * torch.exp(-top)
    else:
        if rate == "softplus" and epsilon == 0:  # from -40 down it is exp to the last digit: do not underflow
            scores = scores - (_largest(scores, pairs) + 40).clamp(max=0)
        q = (F.relu(scores) if rate == "relu" else F.softplus(scores)) + epsilon
        q = q / _largest(q, pairs).clamp(min=torch.finfo(q.dtype).tiny)
    return above_floor(q)


def above_floor(rates: Tensor) -> Tensor:
    """Add the floor to rates of at most 1. A graph for ONNX has it in other words: sums with so little are left out."""
    return (rates / FLOOR + 1) * FLOOR if torch.compiler.is_exporting() else rates + FLOOR


def _largest(values: Tensor, pairs: Tensor) -> Tensor:  # (B, J, J), (B, J, J) -> (B, 1, 1)
    """Return the largest value over the pairs of each set, finite and a constant to the gradient; 1 without a pair."""
    top = values.detach().masked_fill(~pairs, -math.inf).amax((1, 2), keepdim=True)
    return top.nan_to_num(nan=math.nan, posinf=torch.finfo(top.dtype).max, neginf=1.0)  # a NaN stays one
