"""Vectors -> a part of a utility, for all kinds whose contents become one row of numbers each."""

import torch
from torch import Tensor, nn


class VectorWorth(nn.Module):
    """Worth of a vector: a sum of its coordinates with weights."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.zeros(size))

    def forward(self, vectors: Tensor) -> Tensor:
        """(u, size) -> (u,)."""
        return vectors @ self.slopes
