"""Networks of contents, kind by kind: contents -> vectors, and contents -> parts of a utility.

Only networks need PyTorch: a kind imports this module when it is asked for an encoder or a worth, and tables are read,
scanned and learnt from without it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcmcnet.data.kinds.category import embedding_width
from pcmcnet.data.kinds.text import BUCKETS

_DROPPED = 0.3  # share of what a picture's fields show: pictures are few, and soon learnt by heart


class VectorPartWorth(nn.Module):
    """Worth of a vector, for kinds whose contents become one row of numbers: a sum of coordinates with weights."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.zeros(size))

    def forward(self, vectors: Tensor) -> Tensor:
        """(u, size) -> (u,)."""
        return vectors @ self.slopes


class PictureEncoder(nn.Module):
    """Convolutions of 3 x 3, each halving the sides until they are at most 4, then a linear map to a unit scale.

    The vector is narrow: with less room for a picture's own traits, unseen pictures are told by what they share with
    others.
    """

    def __init__(self, shape: tuple[int, int, int], width: int = 8, channels: int = 32) -> None:
        super().__init__()
        seen, *sides = shape
        layers: list[nn.Module] = [nn.Conv2d(seen, channels // 2, 3, padding=1), nn.ReLU()]
        seen = channels // 2
        while max(sides) > 4:
            layers += [nn.MaxPool2d(2, ceil_mode=True), nn.Conv2d(seen, channels, 3, padding=1), nn.ReLU()]
            seen, sides = channels, [-(-side // 2) for side in sides]
        self.layers = nn.Sequential(
            *layers, nn.Flatten(), nn.Dropout(_DROPPED), nn.Linear(seen * sides[0] * sides[1], width)
        )
        self.scale = nn.LayerNorm(width)

    def forward(self, pixels: Tensor) -> Tensor:
        """(u, C, H, W) from 0 to 1 -> (u, width)."""
        vectors: Tensor = self.scale(self.layers(2 * pixels - 1))
        return vectors


class BagEncoder(nn.Module):
    """Sum of the embeddings of a list's categories; index 0 is none."""

    def __init__(self, cardinality: int) -> None:
        super().__init__()
        width = max(embedding_width(cardinality), 1)
        self.embedding = nn.EmbeddingBag(cardinality + 1, width, mode="sum", padding_idx=0)

    def forward(self, indices: Tensor) -> Tensor:
        """(u, L) -> (u, width)."""
        summed: Tensor = self.embedding(indices)
        return summed


class BagPartWorth(nn.Module):
    """Worth of a list, or of a text: the sum over its parts; index 0 is none."""

    def __init__(self, cardinality: int) -> None:
        super().__init__()
        self.parts = nn.Parameter(torch.zeros(cardinality + 1, 1))

    def forward(self, indices: Tensor) -> Tensor:
        """(u, ...) -> (u,)."""
        return F.embedding(indices.flatten(1).long(), self.parts, padding_idx=0).sum((1, 2))


class TextEncoder(nn.Module):
    """Embed the hashes of each word, look at three words at a time, and pool over the text.

    The mean keeps how much there is of something, the maximum whether it is there at all; the plain bag of embeddings
    is a short cut past the convolution. A text without words has the vector of the bias alone.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(BUCKETS + 1, width // 2, padding_idx=0)
        self.window = nn.Conv1d(width // 2 + 1, width, 3, padding=1)
        self.out = nn.Linear(width // 2 + 2 * width, width)
        self.scale = nn.LayerNorm(width)

    def forward(self, words: Tensor) -> Tensor:
        """(u, T, 4) three hashes and a value -> (u, width)."""
        hashes, values = words[..., :3].long(), words[..., 3:]
        real = (hashes[..., :1] > 0).to(values.dtype)  # (u, T, 1)
        count = real.sum(1).clamp(min=1)  # (u, 1)
        embedded = self.embedding(hashes).sum(2)  # (u, T, E)
        seen = self.window(torch.cat([embedded, values], -1).mT).relu().mT * real  # (u, T, width), none below 0
        pooled = [embedded.sum(1) / count, seen.sum(1) / count, seen.amax(1)]
        vectors: Tensor = self.scale(self.out(torch.cat(pooled, -1)))
        return vectors


class TextPartWorth(BagPartWorth):
    """Worth of a text, by the hashes of its words and by its numbers."""

    def __init__(self) -> None:
        super().__init__(BUCKETS)
        self.value = nn.Parameter(torch.zeros(()))

    def forward(self, words: Tensor) -> Tensor:
        """(u, T, 4) three hashes and a value -> (u,)."""
        return super().forward(words[..., :3]) + self.value * words[..., 3].sum(1)
