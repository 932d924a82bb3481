"""Dropout whose masks are cheap to draw on a CPU: four entries from each 64-bit random number.

Drawing one random number per entry takes longer there than the matrix products of a wide hidden layer. With 16 bits
per entry the probability of dropping is met to 2^-17. Elsewhere this is PyTorch's own dropout.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    """Set a share ``p`` of the entries to 0 and scale the others by 1 / (1 - p), in training only."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """(...) -> (...)."""
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        kept = _random_int16(x.numel()).view(x.shape) >= round(self.p * 2**16) - 2**15
        return x * kept.to(x.dtype).div_(1 - self.p)


def _random_int16(count: int) -> Tensor:  # -> (count,)
    """Draw evenly from all 16-bit integers, by the global generator of torch."""
    numbers = torch.empty((count + 3) // 4, dtype=torch.int64)
    numbers.random_(-(2**63), None)
    return numbers.view(torch.int16)[:count]
