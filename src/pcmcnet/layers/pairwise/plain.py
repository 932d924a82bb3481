"""Scores of all ordered pairs of alternatives by torch's own operators, all pairs at once.

    h = leave_i + enter_j,    then for every layer    h <- W (m * a(h)) / (1 - p) + b

with the activation a, the mask m of dropout and its probability p. The last layer has one output, the score. The other
implementations compute the same. This one can be compiled, transformed and differentiated in every way.
Shapes: leave and enter (B, J, H) -> scores (B, J, J), row i being left and column j entered.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from pcmcnet.layers.dropout import dropped
from pcmcnet.layers.pairwise.options import Layer, PairOptions


def plain_scores(leave: Tensor, enter: Tensor, layers: Sequence[Layer], options: PairOptions) -> Tensor:
    """Evaluate the formula on all pairs at once: (B, J, H), (B, J, H) -> (B, J, J)."""
    sets, places, _ = leave.shape
    grid = leave.unsqueeze(2) + enter.unsqueeze(1)
    h = grid.flatten(0, 2)  # products of more dimensions take more calls
    for k, (weight, bias) in enumerate(layers, 1):
        kind = options.dtype if k < len(layers) else weight.dtype
        h = dropped(options.rule.apply(h.to(options.dtype)), options.dropout)
        h = F.linear(h.to(kind), weight.to(kind), bias.to(kind))
    return h.view(sets, places, places)
