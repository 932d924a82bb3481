"""Vectors from encoded columns: embeddings of categories, numeric columns and their curves, and encoded contents.

A categorical column has a vector for each known category. Categories unseen in training have index 0, the zero vector.
Numeric columns come last, unchanged, after the curves of numeric columns. The knots x_0 < ... < x_T of a curve are
quantiles of the training column. The curve of a number x is

    piecewise   e_t = (x - x_{t-1}) / (x_t - x_{t-1}), clipped to [0, 1] except in the first and last bin, t = 1..T
                (Gorishniy, Rubachev & Babenko, 2022)
    spline      the T + 3 cubic B-splines on the knots (de Boor, 1978), extended linearly beyond the end knots

so that a linear layer on top can represent any curve with kinks at the knots. This curve is continuous in x, twice
differentiable between the end knots for splines, and a straight line beyond the end knots.

Contents are the values of columns such as texts or pictures. Each distinct value in a batch is encoded once, and all
rows with this value share its vector. A content encoder is any module that maps the distinct values (u, ...) to vectors
(u, width). The encoder gets a vector as standardised numbers, a date and time as sines, cosines and a trend, and a list
as category indices. The encoder gets a text as hashes and values of words, and a picture as an array (C, H, W) of
numbers from 0 to 1. The encoder of each kind is in `pcmcnet.data.kinds.networks`, unless the user provides one. An
encoder must encode each value separately, so batch normalisation is not allowed. Shapes: numeric (..., F), categorical
(..., C) -> (..., width), where F, C and the width may be 0.
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

SPLINE_DEGREE = 3


class Piecewise(nn.Module):
    """Piecewise-linear features of a number: the position of the number within each bin."""

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
            self.register_buffer(name, values.float(), persistent=False)  # saved with the column's code

    def forward(self, x: Tensor) -> Tensor:
        """Return the piecewise-linear features: (...) -> (..., T)."""
        progress = (x.unsqueeze(-1) - self.starts) / self.widths
        return torch.maximum(torch.minimum(progress, self.high), self.low)


class Spline(nn.Module):
    """Cubic B-splines of a number, extended linearly beyond the end knots."""

    knots: Tensor
    slopes: Tensor

    def __init__(self, knots: Sequence[float]) -> None:
        super().__init__()
        at = torch.tensor(knots, dtype=torch.float64)
        self.width = len(at) - 1 + SPLINE_DEGREE
        ends = [at[:1].expand(SPLINE_DEGREE), at, at[-1:].expand(SPLINE_DEGREE)]
        # Only the first two splines have a slope at the first knot, and only the last two at the last knot.
        slopes = torch.zeros(2, self.width, dtype=torch.float64)
        first, last = SPLINE_DEGREE / (at[1] - at[0]), SPLINE_DEGREE / (at[-1] - at[-2])
        slopes[0, :2] = torch.stack([-first, first])
        slopes[1, -2:] = torch.stack([-last, last])
        self.register_buffer("knots", torch.cat(ends).float(), persistent=False)
        self.register_buffer("slopes", slopes.float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the values of the splines: (...) -> (..., T + 3)."""
        first, last = self.knots[0], self.knots[-1]
        inside = torch.maximum(torch.minimum(x, last), first)
        below, above = (x - first).clamp(max=0), (x - last).clamp(min=0)
        tangents = below.unsqueeze(-1) * self.slopes[0] + above.unsqueeze(-1) * self.slopes[1]
        return self._splines(inside.unsqueeze(-1)) + tangents

    def _splines(self, x: Tensor) -> Tensor:
        """Evaluate the splines by the recursion of Cox and de Boor, from degree d - 1 to degree d."""
        t = self.knots
        last = (t[1:] == t[-1]) & (t[:-1] < t[-1])  # the last bin includes its right end
        basis = ((x >= t[:-1]) & ((x < t[1:]) | (last & (x == t[-1])))).to(x.dtype)
        for d in range(1, SPLINE_DEGREE + 1):
            up, down = t[d:-1] - t[: -d - 1], t[d + 1 :] - t[1:-d]
            rising = (x - t[: -d - 1]) / up.where(up > 0, up.new_ones(())) * (up > 0)
            falling = (t[d + 1 :] - x) / down.where(down > 0, down.new_ones(())) * (down > 0)
            basis = rising * basis[..., :-1] + falling * basis[..., 1:]
        return basis


CURVES: Mapping[str, type[Piecewise | Spline]] = {"piecewise": Piecewise, "spline": Spline}


# -- encoders of contents ----------------------------------------------------------------------------------------------


def content_encoder(code: ContentCode, custom: Mapping[str, nn.Module | Frozen]) -> nn.Module:
    """Return a copy of the user's module or, without a module or if it is ``Frozen``, a new encoder for the kind."""
    module = custom.get(code.name)
    if isinstance(module, nn.Module):
        return deepcopy(module)
    encoder = network_kind(code).encoder(code)
    for parent in list(encoder.modules()):  # PyTorch's dropout would draw from the global generator
        for name, child in parent.named_children():
            if type(child) is nn.Dropout:
                setattr(parent, name, Dropout(child.p))
    return encoder


@torch.no_grad()
def encoder_width(encoder: nn.Module, code: ContentCode) -> int:
    """Determine the width of an encoder's vectors by encoding two blank values."""
    # 1. Make two blank contents on the encoder's device.
    device = next((p.device for p in encoder.parameters()), None)
    dtype = np.float32 if code.dtype == np.uint8 else code.dtype  # pictures are passed as numbers from 0 to 1
    blank = torch.from_numpy(np.zeros((2, *code.shape), dtype)).to(device)
    expected = (
        f"column {code.name!r}: expected {type(encoder).__name__} to map two contents of kind {code.kind} "
        f"({blank.dtype}, shape {tuple(blank.shape)}) to vectors of shape (2, width)"
    )
    # 2. Encode them without dropout, and check the vectors.
    training = encoder.training
    try:
        vectors: Any = encoder.eval()(blank)
    except Exception as error:  # a user's module may raise anything
        raise ConfigError(f"{expected}, but it raised {type(error).__name__}: {error}") from error
    finally:
        encoder.train(training)
    if not isinstance(vectors, Tensor) or vectors.ndim != 2 or len(vectors) != 2 or not vectors.is_floating_point():
        raise ConfigError(f"{expected}, got {_shape_of(vectors)}.")
    return vectors.shape[1]


def _shape_of(value: object) -> tuple[int, ...] | str:
    """Return the shape of a tensor, or the type name of any other value."""
    return tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__


# -- all columns of one side -------------------------------------------------------------------------------------------


class Representation(nn.Module):
    """Concatenate embedded categories, encoded contents, curves and numeric columns.

    Parameters
    ----------
    n_numeric
        Number of numeric columns, which are passed through unchanged.
    embeddings
        For each categorical column, the number of known categories and the width of its vectors. Default: none.
    dropout
        Dropout probability of the embedded vectors. Default: 0.
    encoders
        For each content column, its encoder and the width of its vectors. Default: none.
    custom
        Mapping from the positions in ``encoders`` of the user's modules to column names, for error messages. Default:
        none.
    curves
        Mapping from positions of numeric columns to their curves. Default: none.
    """

    def __init__(
        self,
        n_numeric: int,
        embeddings: Sequence[tuple[int, int]] = (),
        *,
        dropout: float = 0.0,
        encoders: Sequence[tuple[nn.Module, int]] = (),
        custom: Mapping[int, str] | None = None,
        curves: Mapping[int, Piecewise | Spline] | None = None,
    ) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(c + 1, width, padding_idx=0) for c, width in embeddings)
        self.dropout = Dropout(dropout)
        self.encoders = nn.ModuleList(encoder for encoder, _ in encoders)
        self.custom = {k: (name, encoders[k][1]) for k, name in (custom or {}).items()}
        self.curved = {k: curve.width for k, curve in (curves or {}).items()}  # widths by position
        self.curves = nn.ModuleList((curves or {}).values())
        self.width = n_numeric + sum(width for _, width in (*embeddings, *encoders)) + sum(self.curved.values())

    def forward(self, numeric: Tensor, categorical: Tensor, contents: Sequence[DistinctContents] = ()) -> Tensor:
        """Return the concatenated vectors of all columns.

        Parameters
        ----------
        numeric
            Numeric columns, (..., F).
        categorical
            Category indices (..., C), where 0 is an unseen category.
        contents
            For each content column, its distinct values (u, ...) and the position (...) of each row's value among them.
            Default: no columns.

        Returns
        -------
        Tensor
            Concatenated vectors, (..., width).

        Raises
        ------
        ConfigError
            If a user's module fails or returns vectors of the wrong shape.
        """
        assert len(contents) == len(self.encoders)
        encoded = [self._encoded(k, values).to(numeric.dtype)[place] for k, (values, place) in enumerate(contents)]
        encoded += [curve(numeric[..., k]) for k, curve in zip(self.curved, self.curves, strict=True)]
        if not len(self.embeddings):
            return torch.cat([*encoded, numeric], -1) if encoded else numeric
        parts = [embed(categorical[..., k]) for k, embed in enumerate(self.embeddings)]
        return torch.cat([self.dropout(torch.cat(parts, -1)), *encoded, numeric], -1)

    def _encoded(self, k: int, values: Tensor) -> Tensor:
        """Encode distinct values, or raise ConfigError with the column's name if the user's module fails."""
        encoder = self.encoders[k]
        vectors: Tensor
        if k not in self.custom:
            vectors = encoder(values)
            return vectors
        name, width = self.custom[k]
        count, kind = len(values), type(encoder).__name__
        try:
            with redirect_draws() if encoder.training else nullcontext():
                vectors = encoder(values)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a user's module may raise anything
            raise ConfigError(
                f"column {name!r}: {kind} failed on {count:,} values: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(vectors, Tensor) or vectors.shape != (count, width):
            expected = f"expected {kind} to return vectors of shape ({count}, {width})"
            raise ConfigError(f"column {name!r}: {expected}, got {_shape_of(vectors)}.")
        return vectors


def build_representation(
    side: SideEncoder, *, dropout: float = 0.0, custom: Mapping[str, nn.Module | Frozen] | None = None
) -> Representation:
    """Return a representation for the columns of alternatives or individuals, with copies of ``custom`` modules."""
    modules = custom or {}
    encoders = [(content_encoder(code, modules), code) for code in side.contents]
    widths = [(encoder, encoder_width(encoder, code)) for encoder, code in encoders]
    curves = {k: CURVES[code.curve](code.knots) for k, code in enumerate(side.numeric) if code.curve and code.knots}
    users = {k: code.name for k, code in enumerate(side.contents) if isinstance(modules.get(code.name), nn.Module)}
    parts: dict[str, Any] = {"encoders": widths, "custom": users, "curves": curves}
    return Representation(side.n_numeric, side.embeddings, dropout=dropout, **parts)
