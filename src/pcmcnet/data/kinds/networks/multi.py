"""Lists of categories -> vectors, and parts of a utility: sums over the parts of a list, in which 0 is none."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcmcnet.data.kinds.category import embedding_width


class Bag(nn.Module):
    """Sum of the embeddings of a list's categories; index 0 is none."""

    def __init__(self, cardinality: int) -> None:
        super().__init__()
        width = max(embedding_width(cardinality), 1)
        self.embedding = nn.EmbeddingBag(cardinality + 1, width, mode="sum", padding_idx=0)

    def forward(self, indices: Tensor) -> Tensor:
        """(u, L) -> (u, width)."""
        summed: Tensor = self.embedding(indices)
        return summed


class BagWorth(nn.Module):
    """Worth of a list, or of a text: the sum over its parts; index 0 is none."""

    def __init__(self, cardinality: int) -> None:
        super().__init__()
        self.parts = nn.Parameter(torch.zeros(cardinality + 1, 1))

    def forward(self, indices: Tensor) -> Tensor:
        """(u, ...) -> (u,)."""
        return F.embedding(indices.flatten(1).long(), self.parts, padding_idx=0).sum((1, 2))
