"""Probabilities -> log-likelihood of the choices. Shapes: probabilities (B, J), chosen (B,)."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def log_probabilities(p: Tensor, mask: Tensor) -> Tensor:  # (B, J), (B, J) -> (B, J)
    """Take logs; padding gets -inf without a NaN in the gradient."""
    return p.where(mask, torch.ones_like(p)).log().masked_fill(~mask, -math.inf)


def choice_nll(log_p: Tensor, chosen: Tensor) -> Tensor:  # (B, J), (B,) -> (B,)
    """Return minus the log-probability of each choice."""
    return -log_p.gather(1, chosen.unsqueeze(1)).squeeze(1)
