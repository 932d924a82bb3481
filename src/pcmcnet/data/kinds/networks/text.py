"""Hashes and values of words -> vectors, and parts of a utility."""

import torch
from torch import Tensor, nn

from pcmcnet.data.kinds.networks.multi import BagWorth
from pcmcnet.data.kinds.text import BUCKETS


class Words(nn.Module):
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


class WordsWorth(BagWorth):
    """Worth of a text, by the hashes of its words and by its numbers."""

    def __init__(self) -> None:
        super().__init__(BUCKETS)
        self.value = nn.Parameter(torch.zeros(()))

    def forward(self, words: Tensor) -> Tensor:
        """(u, T, 4) three hashes and a value -> (u,)."""
        return super().forward(words[..., :3]) + self.value * words[..., 3].sum(1)
