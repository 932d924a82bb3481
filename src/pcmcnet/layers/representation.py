"""Encoded columns -> vectors: embeddings for categories, identity for numbers, encoders for contents.

A categorical column with c known categories gets an embedding of width min(ceil(c / 2), 50), the paper's
rule. Index 0, for categories never seen in training, is the zero vector. Each distinct content of a batch is
encoded once, and its vector handed out to all who have it. Shapes: numeric (..., F), categorical (..., C) ->
(..., width); both may be empty, and the width 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pcmcnet.data.batches import Distinct
from pcmcnet.layers.dropout import Dropout


def embedding_width(cardinality: int) -> int:
    """Return the paper's rule of thumb for the width of an embedding."""
    return min((cardinality + 1) // 2, 50)


class Representation(nn.Module):
    """Put numbers, embedded categories and encoded contents side by side.

    Parameters
    ----------
    n_numeric
        Number of numeric inputs, passed through as they are.
    cardinalities
        Number of known categories of each categorical input.
    dropout
        Dropout of the embedded vectors.
    encoders
        Of each column of contents, with the width of its vectors.
    """

    def __init__(
        self,
        n_numeric: int,
        cardinalities: Sequence[int] = (),
        *,
        dropout: float = 0.0,
        encoders: Sequence[tuple[nn.Module, int]] = (),
    ) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(c + 1, embedding_width(c), padding_idx=0) for c in cardinalities)
        self.dropout = Dropout(dropout)
        self.encoders = nn.ModuleList(encoder for encoder, _ in encoders)
        self.width = n_numeric + sum(embedding_width(c) for c in cardinalities) + sum(width for _, width in encoders)

    def forward(self, numeric: Tensor, categorical: Tensor, contents: Sequence[Distinct] = ()) -> Tensor:
        """(..., F), (..., C), of each column of contents (u, ...) and (...) -> (..., width)."""
        encoded = [encode(values)[place] for encode, (values, place) in zip(self.encoders, contents, strict=True)]
        if not len(self.embeddings):
            return torch.cat([*encoded, numeric], -1) if encoded else numeric
        parts = [embed(categorical[..., k]) for k, embed in enumerate(self.embeddings)]
        return torch.cat([self.dropout(torch.cat(parts, -1)), *encoded, numeric], -1)
