"""Prepared contents -> vectors: one small network for each column of contents.

A content encoder is any module that maps (u, ...), the distinct contents of a batch, to (u, width). What it gets for
one content is for its kind's code to say (:mod:`pcmcnet.data.contents`): standardised numbers for a vector; sines,
cosines and a trend for an instant; indices of categories for a list; hashes and values of words for a text; (C, H, W)
numbers from 0 to 1 for a picture. It must treat contents one by one, so that a vector depends on its content alone: no
batch normalisation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pcmcnet.data.contents import Frozen, FrozenCode
from pcmcnet.data.encoding import SideEncoder
from pcmcnet.data.kinds import ContentCode
from pcmcnet.data.kinds.text import BUCKETS
from pcmcnet.errors import ConfigError
from pcmcnet.layers.dropout import Dropout
from pcmcnet.layers.representation.curves import CURVES
from pcmcnet.layers.representation.module import Representation, embedding_width

_DROPPED = 0.3  # share of what a picture's fields show: pictures are few, and soon learnt by heart
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


class Picture(nn.Module):
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
            *layers, nn.Flatten(), Dropout(_DROPPED), nn.Linear(seen * sides[0] * sides[1], width)
        )
        self.scale = nn.LayerNorm(width)

    def forward(self, pixels: Tensor) -> Tensor:
        """(u, C, H, W) from 0 to 1 -> (u, width)."""
        vectors: Tensor = self.scale(self.layers(2 * pixels - 1))
        return vectors


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
    "text": lambda _: Words(),
    "image": lambda code: Picture(code.shape),
    "id": _needed,
}


def representation_of(
    side: SideEncoder, *, dropout: float = 0.0, own: Mapping[str, nn.Module | Frozen] | None = None
) -> Representation:
    """Return the representation of one side's columns, freshly initialised but for copies of ``own`` modules."""
    encoders = [(_encoder_of(code, own or {}), code) for code in side.contents]
    widths = [(encoder, width_of(encoder, code)) for encoder, code in encoders]
    curves = {k: CURVES[code.curve](code.knots) for k, code in enumerate(side.numeric) if code.curve and code.knots}
    modules = {
        k: code.name for k, code in enumerate(side.contents) if isinstance((own or {}).get(code.name), nn.Module)
    }
    parts: dict[str, Any] = {"encoders": widths, "own": modules, "curves": curves}
    return Representation(side.n_numeric, side.cardinalities, dropout=dropout, **parts)


def _encoder_of(code: ContentCode, own: Mapping[str, nn.Module | Frozen]) -> nn.Module:
    """Return a copy of the user's module, or a fresh one of the kind; what is frozen gives vectors beforehand."""
    given = own.get(code.name)
    if isinstance(given, nn.Module):
        return deepcopy(given)
    return FACTORIES["vector" if isinstance(code, FrozenCode) else code.kind](code)


@torch.no_grad()
def width_of(encoder: nn.Module, code: ContentCode) -> int:
    """Return the width of the vectors that an encoder gives, by asking it for those of two blank contents."""
    device = next((p.device for p in encoder.parameters()), None)
    dtype = np.float32 if code.dtype == np.uint8 else code.dtype  # pictures come as numbers from 0 to 1
    blank = torch.from_numpy(np.zeros((2, *code.shape), dtype)).to(device)
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
