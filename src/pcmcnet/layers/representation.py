"""Encoded columns -> vectors: embeddings for categories, identity or curves for numbers, encoders for contents.

A categorical column has a vector for each known category. Index 0, for categories never seen in training, is the zero
vector. Numbers come last, as they are, and before them what curves make of some of them. The knots x_0 < ... < x_T of a
curve are quantiles of the training column. Of a number x a network gets

    piecewise   e_t = (x - x_{t-1}) / (x_t - x_{t-1}), within 0 and 1 but for the first and the last bin, t = 1..T
                (Gorishniy, Rubachev & Babenko, 2022)
    spline      the T + 3 cubic B-splines on the knots (de Boor, 1978), continued by their tangents beyond the last

so that a linear layer above is any curve with bends at the knots: continuous in x, for splines with two derivatives in
between, and a straight line beyond the ends.

Each distinct content of a batch is encoded once, and its vector handed out to all who have it. A content encoder is any
module that maps (u, ...), the distinct contents, to (u, width). What it gets for one content is for its kind's code to
say: standardised numbers for a vector; sines, cosines and a trend for an instant; indices of categories for a list;
hashes and values of words for a text; (C, H, W) numbers from 0 to 1 for a picture. The module of each kind is in
`pcmcnet.data.kinds.networks`, or is the user's own. It must treat contents one by one, so that a vector depends on its
content alone: no batch normalisation.
Shapes: numeric (..., F), categorical (..., C) -> (..., width); both may be empty, and the width 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pcmcnet.data.batches import DistinctContents
from pcmcnet.data.encoder import SideEncoder
from pcmcnet.data.kinds import ContentCode
from pcmcnet.data.kinds.contents import network_kind
from pcmcnet.data.kinds.frozen import Frozen
from pcmcnet.errors import ConfigError
from pcmcnet.layers.generators import redirect_draws
from pcmcnet.layers.perceptron import Dropout

DEGREE = 3  # of the splines


class Piecewise(nn.Module):
    """How far a number has come through each bin."""

    starts: Tensor
    widths: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, knots: Sequence[float]) -> None:
        super().__init__()
        at = torch.tensor(knots, dtype=torch.float64)
        self.width = len(at) - 1
        for name, values in {
            "starts": at[:-1],
            "widths": at.diff(),
            "low": torch.tensor([-math.inf] + [0.0] * (self.width - 1)),
            "high": torch.tensor([1.0] * (self.width - 1) + [math.inf]),
        }.items():
            self.register_buffer(name, values.float(), persistent=False)  # the knots are kept with the column's code

    def forward(self, x: Tensor) -> Tensor:
        """(...) -> (..., T)."""
        through = (x.unsqueeze(-1) - self.starts) / self.widths
        return torch.maximum(torch.minimum(through, self.high), self.low)


class Spline(nn.Module):
    """Cubic B-splines, and their tangents beyond the ends."""

    knots: Tensor
    slopes: Tensor

    def __init__(self, knots: Sequence[float]) -> None:
        super().__init__()
        at = torch.tensor(knots, dtype=torch.float64)
        self.width = len(at) - 1 + DEGREE
        ends = [at[:1].expand(DEGREE), at, at[-1:].expand(DEGREE)]
        # Only the first two splines have a slope at the first knot, and only the last two at the last one.
        slopes = torch.zeros(2, self.width, dtype=torch.float64)
        first, last = DEGREE / (at[1] - at[0]), DEGREE / (at[-1] - at[-2])
        slopes[0, :2] = torch.stack([-first, first])
        slopes[1, -2:] = torch.stack([-last, last])
        self.register_buffer("knots", torch.cat(ends).float(), persistent=False)
        self.register_buffer("slopes", slopes.float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(...) -> (..., T + 3)."""
        first, last = self.knots[0], self.knots[-1]
        inside = torch.maximum(torch.minimum(x, last), first)
        below, above = (x - first).clamp(max=0), (x - last).clamp(min=0)
        tangents = below.unsqueeze(-1) * self.slopes[0] + above.unsqueeze(-1) * self.slopes[1]
        return self._splines(inside.unsqueeze(-1)) + tangents

    def _splines(self, x: Tensor) -> Tensor:
        """Cox and de Boor's recursion: from splines of degree d - 1 to those of degree d."""
        t = self.knots
        last = (t[1:] == t[-1]) & (t[:-1] < t[-1])  # the last bin holds its end as well
        found = ((x >= t[:-1]) & ((x < t[1:]) | (last & (x == t[-1])))).to(x.dtype)
        for d in range(1, DEGREE + 1):
            up, down = t[d:-1] - t[: -d - 1], t[d + 1 :] - t[1:-d]
            rising = (x - t[: -d - 1]) / up.where(up > 0, up.new_ones(())) * (up > 0)
            falling = (t[d + 1 :] - x) / down.where(down > 0, down.new_ones(())) * (down > 0)
            found = rising * found[..., :-1] + falling * found[..., 1:]
        return found


CURVES: Mapping[str, type[Piecewise | Spline]] = {"piecewise": Piecewise, "spline": Spline}


# -- encoders of contents ----------------------------------------------------------------------------------------------


def content_encoder(code: ContentCode, own: Mapping[str, nn.Module | Frozen]) -> nn.Module:
    """Return a copy of the user's module, or a fresh one of the kind; what is frozen gives vectors beforehand."""
    given = own.get(code.name)
    if isinstance(given, nn.Module):
        return deepcopy(given)
    encoder = network_kind(code).encoder(code)
    for module in list(encoder.modules()):  # PyTorch's dropout would draw from another generator
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, Dropout(child.p))
    return encoder


@torch.no_grad()
def encoder_width(encoder: nn.Module, code: ContentCode) -> int:
    """Return the width of the vectors that an encoder gives, by asking it for those of two blank contents."""
    # 1. Two blank contents, on the encoder's device.
    device = next((p.device for p in encoder.parameters()), None)
    dtype = np.float32 if code.dtype == np.uint8 else code.dtype  # pictures come as numbers from 0 to 1
    blank = torch.from_numpy(np.zeros((2, *code.shape), dtype)).to(device)
    expected = (
        f"column {code.name!r}: {type(encoder).__name__} was given two contents of kind {code.kind}, "
        f"{blank.dtype} of shape {tuple(blank.shape)}, and should give vectors, shape (2, width)"
    )
    # 2. Their vectors, without dropout.
    training = encoder.training
    try:
        vectors: Any = encoder.eval()(blank)
    except Exception as error:  # a user's module may raise anything
        raise ConfigError(f"{expected}, and it failed: {error}") from error
    finally:
        encoder.train(training)
    if not isinstance(vectors, Tensor) or vectors.ndim != 2 or len(vectors) != 2 or not vectors.is_floating_point():
        raise ConfigError(f"{expected}, got {_shape_of(vectors)}.")
    return vectors.shape[1]


def _shape_of(value: object) -> tuple[int, ...] | str:
    """Return the shape of a tensor, or the name of any other type."""
    return tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__


# -- all columns of one side -------------------------------------------------------------------------------------------


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

    def forward(self, numeric: Tensor, categorical: Tensor, contents: Sequence[DistinctContents] = ()) -> Tensor:
        """(..., F), (..., C), of each column of contents (u, ...) and (...) -> (..., width)."""
        assert len(contents) == len(self.encoders)
        encoded = [self._encoded(k, values).to(numeric.dtype)[place] for k, (values, place) in enumerate(contents)]
        encoded += [curve(numeric[..., k]) for k, curve in zip(self.curved, self.curves, strict=True)]
        if not len(self.embeddings):
            return torch.cat([*encoded, numeric], -1) if encoded else numeric
        parts = [embed(categorical[..., k]) for k, embed in enumerate(self.embeddings)]
        return torch.cat([self.dropout(torch.cat(parts, -1)), *encoded, numeric], -1)

    def _encoded(self, k: int, values: Tensor) -> Tensor:
        """Encode distinct contents; an error of the user's own module names its column."""
        encoder = self.encoders[k]
        vectors: Tensor
        if k not in self.own:
            vectors = encoder(values)
            return vectors
        name, width = self.own[k]
        call = f"column {name!r}: {type(encoder).__name__} was given {len(values):,} contents"
        try:
            with redirect_draws() if encoder.training else nullcontext():
                vectors = encoder(values)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a user's module may raise anything
            raise ConfigError(f"{call}, and it failed: {type(error).__name__}: {error}") from error
        if not isinstance(vectors, Tensor) or vectors.shape != (len(values), width):
            shape = f"({len(values)}, {width}), got {_shape_of(vectors)}"
            raise ConfigError(f"{call} and should give vectors, shape {shape}.")
        return vectors


def build_representation(
    side: SideEncoder, *, dropout: float = 0.0, own: Mapping[str, nn.Module | Frozen] | None = None
) -> Representation:
    """Return the representation of one side's columns, freshly initialised but for copies of ``own`` modules."""
    own = own or {}
    encoders = [(content_encoder(code, own), code) for code in side.contents]
    widths = [(encoder, encoder_width(encoder, code)) for encoder, code in encoders]
    curves = {k: CURVES[code.curve](code.knots) for k, code in enumerate(side.numeric) if code.curve and code.knots}
    users = {k: code.name for k, code in enumerate(side.contents) if isinstance(own.get(code.name), nn.Module)}
    parts: dict[str, Any] = {"encoders": widths, "own": users, "curves": curves}
    return Representation(side.n_numeric, side.embeddings, dropout=dropout, **parts)
