"""Encoded columns -> vectors: embeddings for categories, identity or curves for numbers, encoders for contents.

A categorical column has a vector for each known category. Index 0, for categories never seen in training, is the zero
vector. Each distinct content of a batch is encoded once, and its vector handed out to all who have it. Numbers come
last, as they are, and before them what curves make of some of them. Shapes: numeric (..., F), categorical (..., C) ->
(..., width); both may be empty, and the width 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from pcmcnet.data.batches import Distinct
from pcmcnet.data.contents.frozen import Frozen
from pcmcnet.data.encoding import SideEncoder
from pcmcnet.errors import ConfigError
from pcmcnet.layers.dropout import Dropout
from pcmcnet.layers.generators import redirected
from pcmcnet.layers.representation.content_encoders import encoder_of, width_of
from pcmcnet.layers.representation.curves import CURVES, Piecewise, Spline


class Representation(nn.Module):
    """Put numbers, embedded categories and encoded contents side by side.

    Parameters
    ----------
    n_numeric
        Number of numeric inputs, passed through as they are.
    embeddings
        Number of known categories of each categorical input, and the width of its vectors.
    dropout
        Dropout of the embedded vectors.
    encoders
        Of each column of contents, with the width of its vectors.
    own
        Which of them are modules of the user's, by their places, for what columns.
    curves
        Of some numeric inputs, by their places.
    """

    def __init__(
        self,
        n_numeric: int,
        embeddings: Sequence[tuple[int, int]] = (),
        *,
        dropout: float = 0.0,
        encoders: Sequence[tuple[nn.Module, int]] = (),
        own: Mapping[int, str] | None = None,
        curves: Mapping[int, Piecewise | Spline] | None = None,
    ) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(c + 1, width, padding_idx=0) for c, width in embeddings)
        self.dropout = Dropout(dropout)
        self.encoders = nn.ModuleList(encoder for encoder, _ in encoders)
        self.own = {k: (name, encoders[k][1]) for k, name in (own or {}).items()}
        self.curved = {k: curve.width for k, curve in (curves or {}).items()}  # widths by places
        self.curves = nn.ModuleList((curves or {}).values())
        self.width = n_numeric + sum(width for _, width in (*embeddings, *encoders)) + sum(self.curved.values())

    def forward(self, numeric: Tensor, categorical: Tensor, contents: Sequence[Distinct] = ()) -> Tensor:
        """(..., F), (..., C), of each column of contents (u, ...) and (...) -> (..., width)."""
        assert len(contents) == len(self.encoders)
        encoded = [self._encoded(k, values).to(numeric.dtype)[place] for k, (values, place) in enumerate(contents)]
        encoded += [curve(numeric[..., k]) for k, curve in zip(self.curved, self.curves, strict=True)]
        if not len(self.embeddings):
            return torch.cat([*encoded, numeric], -1) if encoded else numeric
        parts = [embed(categorical[..., k]) for k, embed in enumerate(self.embeddings)]
        return torch.cat([self.dropout(torch.cat(parts, -1)), *encoded, numeric], -1)

    def _encoded(self, k: int, values: Tensor) -> Tensor:
        """Encode distinct contents; what a module of the user's does wrong is told with its column."""
        encoder = self.encoders[k]
        if k not in self.own:
            vectors: Tensor = encoder(values)
            return vectors
        name, width = self.own[k]
        told = f"column {name!r}: {type(encoder).__name__} was given {len(values):,} contents"
        try:
            with redirected() if encoder.training else nullcontext():
                found = encoder(values)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a user's module may raise anything
            raise ConfigError(f"{told}, and it failed: {type(error).__name__}: {error}") from error
        if not isinstance(found, Tensor) or found.shape != (len(values), width):
            shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ConfigError(f"{told} and should give vectors, shape ({len(values)}, {width}), got {shape}.")
        return found


def representation_of(
    side: SideEncoder, *, dropout: float = 0.0, own: Mapping[str, nn.Module | Frozen] | None = None
) -> Representation:
    """Return the representation of one side's columns, freshly initialised but for copies of ``own`` modules."""
    encoders = [(encoder_of(code, own or {}), code) for code in side.contents]
    widths = [(encoder, width_of(encoder, code)) for encoder, code in encoders]
    curves = {k: CURVES[code.curve](code.knots) for k, code in enumerate(side.numeric) if code.curve and code.knots}
    modules = {
        k: code.name for k, code in enumerate(side.contents) if isinstance((own or {}).get(code.name), nn.Module)
    }
    parts: dict[str, Any] = {"encoders": widths, "own": modules, "curves": curves}
    return Representation(side.n_numeric, side.embeddings, dropout=dropout, **parts)
