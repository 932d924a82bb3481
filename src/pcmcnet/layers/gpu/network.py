"""The pair network on a CUDA device: hidden layers after the first and the output layer, forward and backward.

Products take float32 or bfloat16 and add up in float32. Where the chip and the layer allow it, the last layer has
kernels of its own (``hopper``).

Pairs are worked on in pieces of whole rows (b, i); see ``layout``. What the backward pass needs is kept as long as all
of it is within a budget, and otherwise computed a second time, piece by piece: memory is bounded for any n.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from pcmcnet.layers.gpu import backward, forward, layout
from pcmcnet.layers.gpu.launch import launch
from pcmcnet.layers.gpu.layout import Layout, Piece
from pcmcnet.layers.gpu.options import FusedOptions, hopper_kernels
from pcmcnet.layers.gpu.units import processors


class State(NamedTuple):
    """What the backward pass needs of a piece: inputs and results of the products of the hidden layers.

    Of the last result it is the slopes alone, where the kernels for Hopper made it.
    """

    inputs: Sequence[Tensor]
    results: Sequence[Tensor]


@dataclass(frozen=True)
class Gradients:
    """Sums over all pieces."""

    leave: Tensor
    enter: Tensor
    layers: list[Tensor]


class Network:
    """The layers in the type of the products, and how the kernels are launched."""

    def __init__(
        self, options: FusedOptions, places: Layout, seeds: Tensor, leave: Tensor, enter: Tensor, *flat: Tensor
    ) -> None:
        self.options, self.layout, self.seeds = options, places, seeds
        self.leave, self.enter = _rows(leave.detach()), _rows(enter.detach())
        self.sets, self.places, self.width = leave.shape
        weights, biases = [w.detach() for w in flat[:-2:2]], [b.detach() for b in flat[1:-2:2]]
        self.scale = 1 / (1 - options.dropout)  # is in the weights
        self.hidden = [((w * self.scale).to(options.dtype), b) for w, b in zip(weights, biases, strict=True)]
        self.weight, self.shift = flat[-2].detach().view(-1) * self.scale, flat[-1].detach()
        limit = round(options.dropout * 2**32)
        self.limit = limit - 2**32 if limit >= 2**31 else limit  # the same 32 bits
        hopper = hopper_kernels(leave.device)
        fits = hopper is not None and hopper.takes(self.hidden[-1][0], options.activation)
        self.hopper = hopper if fits else None
        self.units: dict[str, Any] = {"ACT": options.activation, "DROP": options.dropout > 0}
        self.kind = {**self.units, **places.kind}

    @property
    def kept_bytes(self) -> int:
        """Bytes of the states of all pieces."""
        per_pair = sum(weight.shape[0] + weight.shape[1] for weight, _ in self.hidden)
        return self.sets * self.places * self.layout.row * per_pair * self.hidden[0][0].element_size()

    def pieces(self, *, kept: bool = False) -> Iterator[Piece]:
        """Cut all rows into pieces; one is enough where all is kept."""
        return self.layout.cut(self.sets * self.places if kept else max(self.options.piece // self.places, 1))

    def all_scores(self, *, keep: bool) -> tuple[Tensor, list[Tensor]]:
        """Return the scores, and what the backward pass needs if that is to be kept and within the budget."""
        scores = self.leave.new_empty(self.sets, self.places, self.places, dtype=torch.float32)
        kept: list[Tensor] = []
        whole = keep and self.kept_bytes <= self.options.kept
        for piece in self.pieces(kept=whole):
            state = self.forward(piece, scores, keep=whole)
            kept += [*state.inputs, *state.results] if whole else []
        return scores, kept

    def all_gradients(self, kept: Sequence[Tensor], gradient: Tensor, dtype: torch.dtype) -> Gradients:
        """Return the gradients by everything; those by the halves in a type of their own."""
        gradient = gradient.contiguous()
        unused = torch.empty_like(gradient)

        def zeros(like: Tensor) -> Tensor:
            return torch.zeros_like(like, dtype=torch.float32)

        layers = [zeros(t) for layer in self.hidden for t in layer]
        layers += [zeros(self.weight).view(1, -1), zeros(self.shift)]
        leave, enter = (gradient.new_empty(self.leave.shape, dtype=dtype) for _ in range(2))
        sums = Gradients(leave, enter, layers)
        count = len(self.hidden)
        for piece in self.pieces(kept=bool(kept)):
            state = State(kept[:count], kept[count:]) if kept else self.forward(piece, unused)
            self.backward(piece, state, gradient, sums)
        for weight in layers[:-1:2]:
            weight.mul_(self.scale)
        return sums

    # -- forward ------------------------------------------------------------------------------------------------

    def forward(self, piece: Piece, scores: Tensor, *, keep: bool = True) -> State:
        """Compute the hidden layers of some rows, and fill in their scores."""
        h = self.spread(piece)
        inputs, results = [h], []
        for k, (weight, bias) in enumerate(self.hidden[:-1], 1):
            z = torch.mm(h, weight.t())
            h = torch.empty_like(z)
            self.over_pairs(forward.bend, z, bias, h, like=z, layer=k, piece=piece, size=4096, num_warps=4)
            inputs.append(h)
            results.append(z)
        parts, result = self.finish(h, piece, keep=keep)
        self.over_sets(layout.place, piece, parts, self.shift, scores, room=piece.room, PARTS=len(parts))
        results.append(result)
        return State(inputs, results)

    def spread(self, piece: Piece) -> Tensor:
        """Build the first hidden layer of some rows."""
        h = self.leave.new_empty(piece.room, self.width, dtype=self.options.dtype)
        block, entered = min(triton.next_power_of_2(self.width), 256), 8
        grid = (triton.cdiv(self.width, block), *self.grid(piece, entered))
        shape = {"C": block, "TJ": entered, "num_warps": 4}
        given = (self.leave, self.enter, h, self.seeds)
        launch(forward.spread, grid, *self.find(piece), *given, *self.where(piece), *self.thin, **self.kind, **shape)
        chunk = 64 if self.hopper is not None and len(self.hidden) == 1 else piece.room  # of pairs that a product reads
        launch(layout.clear, (triton.cdiv(chunk, 64), grid[0]), h, piece.bounds, piece.room, self.width, R=64, C=block)
        return h

    def finish(self, h: Tensor, piece: Piece, *, keep: bool) -> tuple[Tensor, Tensor]:
        """Return parts of the scores, and the result of the last product, or its slopes."""
        weight, bias = self.hidden[-1]
        last = len(self.hidden)
        if self.hopper is None:
            z, parts = torch.mm(h, weight.t()), self.leave.new_empty(1, piece.room, dtype=torch.float32)
            each: dict[str, Any] = {"layer": last, "piece": piece, "size": 4096, "num_warps": 4}
            self.over_pairs(forward.finish, z, bias, self.weight, parts, like=z, **each)
            return parts, z
        how = {"activation": self.options.activation, "dropout": (self.seeds, last, self.limit), "keep": keep}
        parts, slopes = self.hopper.finish_product(h, weight, bias, self.weight, bounds=piece.bounds, **how)
        return parts, slopes

    # -- backward -----------------------------------------------------------------------------------------------

    def backward(self, piece: Piece, state: State, gradient: Tensor, sums: Gradients) -> None:
        """Add up what some rows contribute to the gradients."""
        df = gradient.new_zeros(piece.room)
        self.over_sets(layout.pick, piece, gradient, df)
        sums.layers[-1].add_(df.sum())
        each: dict[str, Any] = {"piece": piece, "size": 512, "num_warps": 2}
        scaled = self.hopper is not None
        if scaled:
            d = self.backward_from_slopes(piece, state, df, sums)
        else:
            z, last = state.results[-1], len(self.hidden)
            d, d_weight, d_bias = torch.empty_like(z), self.parts(z), self.parts(z)
            given = (z, self.hidden[-1][1], self.weight, df, d, d_weight, d_bias)
            self.over_pairs(backward.unfinish, *given, like=z, layer=last, programs=len(d_bias), **each)
            sums.layers[-2].add_(d_weight.sum(0))
            d = self.backward_through(last, d, d_bias, state, sums)
        for k in range(len(self.hidden) - 1, 0, -1):
            z = state.results[k - 1]
            d_bias = self.parts(d)
            bent = (z, self.hidden[k - 1][1], df, d, d_bias)
            self.over_pairs(backward.unbend, *bent, like=z, layer=k, programs=len(d_bias), SCALED=scaled, **each)
            scaled = False
            d = self.backward_through(k, d, d_bias, state, sums)
        self.gather(piece, d, df, sums, scaled=scaled)

    def backward_through(self, k: int, d: Tensor, d_bias: Tensor, state: State, sums: Gradients) -> Tensor:
        """Take a gradient by the result of a product to one by its input."""
        sums.layers[2 * k - 1].add_(d_bias.sum(0))
        sums.layers[2 * k - 2].add_(_outer(d, state.inputs[k - 1]))
        return d @ self.hidden[k - 1][0]

    def backward_from_slopes(self, piece: Piece, state: State, df: Tensor, sums: Gradients) -> Tensor:
        """Return the gradient by the input of the last product, yet to be multiplied by that of the scores."""
        assert self.hopper is not None
        weight, bias = self.hidden[-1]
        slopes, h = state.results[-1], state.inputs[-1]
        products, side = self.hopper.weighted_products(slopes, h, df, piece.bounds)
        sums.layers[-4].addcmul_(products, self.weight[:, None])
        sums.layers[-3].addcmul_(side, self.weight)
        sums.layers[-2].add_((products * weight).sum(1) + bias * side)
        return slopes @ (weight * self.weight[:, None]).to(weight.dtype)

    def gather(self, piece: Piece, d: Tensor, df: Tensor, sums: Gradients, *, scaled: bool) -> None:
        """Add up the gradient by the first layer over pairs with the same left, and the same entered, alternative."""
        block, entered = min(triton.next_power_of_2(self.width), 64), 8
        grid = (triton.cdiv(self.width, block), *self.grid(piece, entered))
        parts = d.new_empty(grid[1], len(piece.rows), self.width)
        given = (self.leave, self.enter, df, d, parts, sums.enter, self.seeds)
        shape = {"SCALED": scaled, "C": block, "TJ": entered, "num_warps": 1}
        launch(backward.gather, grid, *self.find(piece), *given, *self.where(piece), *self.thin, **self.kind, **shape)
        width, rows = min(triton.next_power_of_2(self.width), 512), len(piece.rows)
        launch(
            backward.add_parts,
            (triton.cdiv(rows, 4), triton.cdiv(self.width, width)),
            self.layout.sizes,
            self.places,
            parts,
            sums.leave,
            piece.rows.start,
            rows,
            self.width,
            TJ=entered,
            R=4,
            C=width,
        )

    # -- launches -----------------------------------------------------------------------------------------------

    def grid(self, piece: Piece, entered: int) -> tuple[int, int]:
        """Programs for blocks of so many alternatives, and for the sets of a piece."""
        rows = piece.rows
        return triton.cdiv(self.places, entered), (rows.stop - 1) // self.places - rows.start // self.places + 1

    def find(self, piece: Piece) -> tuple[Any, ...]:
        """Where sets and their pairs are."""
        return *self.layout.tensors, piece.bounds

    def where(self, piece: Piece) -> tuple[int, ...]:
        """First set and rows of a piece."""
        return piece.rows.start // self.places, piece.rows.start, len(piece.rows)

    @property
    def thin(self) -> tuple[int, ...]:
        """Distances of rows of the halves, the number of units, and the limit below which they are dropped."""
        return self.leave.stride(1), self.enter.stride(1), self.width, self.limit

    def parts(self, like: Tensor) -> Tensor:
        """Room for a sum over pairs by each program of those that share the pairs."""
        return like.new_empty(32 * processors(like.device), like.shape[1], dtype=torch.float32)

    def over_sets(self, kernel: Any, piece: Piece, *given: Tensor, room: int | None = None, **kind: Any) -> None:
        """Launch a kernel between (B, J, J) and the pairs of a piece."""
        last = () if room is None else (room,)
        shape = {"R": 8, "C": layout.columns(self.places), **self.layout.kind, **kind}
        launch(kernel, self.grid(piece, 8), *self.find(piece), *given, *self.where(piece), *last, **shape)

    def over_pairs(
        self,
        kernel: Any,
        *given: Tensor,
        like: Tensor,
        layer: int,
        piece: Piece,
        size: int,
        num_warps: int,
        programs: int | None = None,
        **kind: Any,
    ) -> None:
        """Launch a kernel on (room, H), with so many numbers in a block; all blocks at once, or by some programs."""
        room, width = like.shape
        block = triton.next_power_of_2(width)
        pairs_of_block = max(size // block, 1)
        grid = (triton.cdiv(room, pairs_of_block) if programs is None else programs,)
        shape = {"C": block, "R": pairs_of_block, "num_warps": num_warps}
        launch(
            kernel,
            grid,
            *given,
            piece.bounds,
            self.seeds,
            layer,
            room,
            width,
            self.limit,
            **kind,
            **self.units,
            **shape,
        )


def _rows(half: Tensor) -> Tensor:
    """Return (B, J, H) with rows at equal distances."""
    even = half.stride(2) == 1 and half.stride(0) == half.shape[1] * half.stride(1)
    return half if even else half.contiguous()


def _outer(d: Tensor, h: Tensor) -> Tensor:  # (P, H), (P, D) -> (H, D)
    """Return d^T h in float32."""
    return torch.mm(d.t(), h) if d.dtype == torch.float32 else torch.mm(d.t(), h, out_dtype=torch.float32)
