"""Network modules for content columns: encoders that return vectors, and part-worths of a linear utility.

A kind imports this file only to create a network module, so PyTorch is not needed to read, scan and code tables.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcmcnet.data.kinds.category import embedding_width
from pcmcnet.data.kinds.text import BUCKETS

_DROPOUT = 0.3  # of the features of a picture: distinct pictures are few and easily memorised


class VectorPartWorth(nn.Module):
    """Part-worth of a vector: a weighted sum of its coordinates."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.zeros(size))

    def forward(self, vectors: Tensor) -> Tensor:
        """Compute part-worths: (u, size) -> (u,)."""
        return vectors @ self.slopes


class PictureEncoder(nn.Module):
    """Encoder of pictures: 3 x 3 convolutions with max-pooling until height and width are at most 4, then a linear map.

    The output is narrow and normalised: a narrow vector cannot memorise individual pictures, so it generalises better
    to unseen ones.
    """

    def __init__(self, shape: tuple[int, int, int], width: int = 8, channels: int = 32) -> None:
        super().__init__()
        depth, *sides = shape
        layers: list[nn.Module] = [nn.Conv2d(depth, channels // 2, 3, padding=1), nn.ReLU()]
        depth = channels // 2
        while max(sides) > 4:
            layers += [nn.MaxPool2d(2, ceil_mode=True), nn.Conv2d(depth, channels, 3, padding=1), nn.ReLU()]
            depth, sides = channels, [-(-side // 2) for side in sides]
        self.layers = nn.Sequential(
            *layers, nn.Flatten(), nn.Dropout(_DROPOUT), nn.Linear(depth * sides[0] * sides[1], width)
        )
        self.scale = nn.LayerNorm(width)

    def forward(self, pixels: Tensor) -> Tensor:
        """Encode pictures with values from 0 to 1: (u, C, H, W) -> (u, width)."""
        vectors: Tensor = self.scale(self.layers(2 * pixels - 1))
        return vectors


class BagEncoder(nn.Module):
    """Encoder of lists: the sum of the embeddings of their categories. Index 0 adds nothing."""

    def __init__(self, cardinality: int) -> None:
        super().__init__()
        width = max(embedding_width(cardinality), 1)
        self.embedding = nn.EmbeddingBag(cardinality + 1, width, mode="sum", padding_idx=0)

    def forward(self, indices: Tensor) -> Tensor:
        """Encode lists of indices: (u, L) -> (u, width)."""
        summed: Tensor = self.embedding(indices)
        return summed


class BagPartWorth(nn.Module):
    """Part-worth of a list or a text: the sum of the part-worths of its items. Index 0 adds nothing."""

    def __init__(self, cardinality: int) -> None:
        super().__init__()
        self.parts = nn.Parameter(torch.zeros(cardinality + 1, 1))

    def forward(self, indices: Tensor) -> Tensor:
        """Compute the part-worths of lists of indices: (u, ...) -> (u,)."""
        return F.embedding(indices.flatten(1).long(), self.parts, padding_idx=0).sum((1, 2))


class TextEncoder(nn.Module):
    """Encoder of texts: embeds the hashes of each word, convolves windows of three words, and pools over the text.

    Mean pooling shows how frequent a pattern is, and max pooling shows whether the pattern occurs. The mean embedding
    bypasses the convolution. For a text without words, the output depends only on the biases.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(BUCKETS + 1, width // 2, padding_idx=0)
        self.window = nn.Conv1d(width // 2 + 1, width, 3, padding=1)
        self.out = nn.Linear(width // 2 + 2 * width, width)
        self.scale = nn.LayerNorm(width)

    def forward(self, words: Tensor) -> Tensor:
        """Encode texts, given as three hashes and a value per word: (u, T, 4) -> (u, width)."""
        hashes, values = words[..., :3].long(), words[..., 3:]
        real = (hashes[..., :1] > 0).to(values.dtype)  # (u, T, 1)
        count = real.sum(1).clamp(min=1)  # (u, 1)
        embedded = self.embedding(hashes).sum(2)  # (u, T, E)
        patterns = self.window(torch.cat([embedded, values], -1).mT).relu().mT * real  # (u, T, width), at least 0
        pooled = [embedded.sum(1) / count, patterns.sum(1) / count, patterns.amax(1)]
        vectors: Tensor = self.scale(self.out(torch.cat(pooled, -1)))
        return vectors


class TextPartWorth(BagPartWorth):
    """Part-worth of a text: the sum of the part-worths of its word hashes and of its numbers."""

    def __init__(self) -> None:
        super().__init__(BUCKETS)
        self.value = nn.Parameter(torch.zeros(()))

    def forward(self, words: Tensor) -> Tensor:
        """Compute the part-worths of texts, given as three hashes and a value per word: (u, T, 4) -> (u,)."""
        return super().forward(words[..., :3]) + self.value * words[..., 3].sum(1)
