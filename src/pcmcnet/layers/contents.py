"""Prepared contents -> vectors: one small network for each column of contents.

A content encoder is any module that maps (u, ...), the distinct contents of a batch, to (u, width). What it gets for
one content is for its kind's code to say (:mod:`pcmcnet.data.contents`): standardised numbers for a vector; sines,
cosines and a trend for an instant; indices of categories for a list. It must treat contents one by one, so that a
vector depends on its content alone: no batch normalisation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pcmcnet.data.contents import ContentCode
from pcmcnet.data.encoding import SideEncoder
from pcmcnet.layers.representation import Representation, embedding_width

_WIDE = 64  # numbers, from which on a vector is first mapped to so many


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


def _vector(code: Any) -> nn.Module:
    (size,) = code.shape
    return nn.Linear(size, _WIDE) if size > _WIDE else nn.Identity()


FACTORIES: Mapping[str, Callable[[Any], nn.Module]] = {
    "vector": _vector,
    "datetime": lambda _: nn.Identity(),
    "multi": lambda code: Bag(len(code.categories)),
}


def representation_of(side: SideEncoder, *, dropout: float = 0.0) -> Representation:
    """Return the representation of one side's columns, freshly initialised."""
    encoders = [(FACTORIES[code.kind](code), code) for code in side.contents]
    widths = [(encoder, width_of(encoder, code)) for encoder, code in encoders]
    return Representation(side.n_numeric, side.cardinalities, dropout=dropout, encoders=widths)


@torch.no_grad()
def width_of(encoder: nn.Module, code: ContentCode) -> int:
    """Return the width of the vectors that an encoder gives, by asking it for that of a blank content."""
    device = next((p.device for p in encoder.parameters()), None)
    blank = torch.from_numpy(np.zeros((1, *code.shape), code.dtype)).to(device)
    return int(encoder(blank).shape[1])
