"""Prepared contents -> vectors: one small network for each column of contents.

A content encoder is any module that maps (u, ...), the distinct contents of a batch, to (u, width). What it gets for
one content is for its kind's code to say (:mod:`pcmcnet.data.contents`): standardised numbers for a vector; sines,
cosines and a trend for an instant; indices of categories for a list. It must treat contents one by one, so that a
vector depends on its content alone: no batch normalisation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pcmcnet.data.contents import ContentCode
from pcmcnet.data.encoding import SideEncoder
from pcmcnet.errors import ConfigError
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


def _needed(code: Any) -> nn.Module:
    raise ConfigError(
        f"column {code.name!r} is of kind {code.kind}, which needs a module of your own: "
        f"PCMCNet(encoders={{{code.name!r}: MyModule()}})."
    )


FACTORIES: Mapping[str, Callable[[Any], nn.Module]] = {
    "vector": _vector,
    "datetime": lambda _: nn.Identity(),
    "multi": lambda code: Bag(len(code.categories)),
    "id": _needed,
}


def representation_of(
    side: SideEncoder, *, dropout: float = 0.0, own: Mapping[str, nn.Module] | None = None
) -> Representation:
    """Return the representation of one side's columns, freshly initialised but for copies of ``own`` modules."""
    given = own or {}
    encoders = [
        (deepcopy(given[code.name]) if code.name in given else FACTORIES[code.kind](code), code)
        for code in side.contents
    ]
    widths = [(encoder, width_of(encoder, code)) for encoder, code in encoders]
    return Representation(side.n_numeric, side.cardinalities, dropout=dropout, encoders=widths)


@torch.no_grad()
def width_of(encoder: nn.Module, code: ContentCode) -> int:
    """Return the width of the vectors that an encoder gives, by asking it for those of two blank contents."""
    device = next((p.device for p in encoder.parameters()), None)
    blank = torch.from_numpy(np.zeros((2, *code.shape), code.dtype)).to(device)
    training = encoder.training
    try:
        found: Any = encoder.eval()(blank)
    except Exception as error:  # a user's module may raise anything
        raise ConfigError(f"{_told(encoder, code, blank)}, and it failed: {error}") from error
    finally:
        encoder.train(training)
    if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != 2 or not found.is_floating_point():
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ConfigError(f"{_told(encoder, code, blank)}, got {shape}.")
    return found.shape[1]


def _told(encoder: nn.Module, code: ContentCode, blank: Tensor) -> str:
    return (
        f"column {code.name!r}: {type(encoder).__name__} was given two contents of kind {code.kind}, "
        f"{blank.dtype} of shape {tuple(blank.shape)}, and should give vectors, shape (2, width)"
    )
