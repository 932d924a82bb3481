"""Scores of all ordered pairs on a CUDA device: the products by matrix units, all else fused around them.

A tensor of one number per pair and unit costs about as much to move as to multiply. So the first hidden layer is built
from its two thin matrices in one pass, bias, activation and dropout of a later one happen where its product is read or
made, and the last one leaves a single number per pair. Products take float32 or bfloat16 and add up in float32.

Pairs are worked on in pieces of whole rows (b, i). What the backward pass needs is kept as long as all of it is within
a budget, and otherwise computed a second time, piece by piece: memory is bounded for any n.
Shapes: leave and enter (B, J, H) -> scores (B, J, J).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton.tools.tensor_descriptor import TensorDescriptor

from pcmcnet.layers.gpu import backward, forward, products

KEPT = 3 << 30  # bytes kept from the forward to the backward pass, at most
PIECE = 1 << 19  # pairs of a piece
TILE = {"M": 128, "N": 256, "K": 64, "num_warps": 8, "num_stages": 3}  # of a product; measured on an H200

Layer = tuple[Tensor, Tensor]  # weight (out, in) and bias (out,)


@dataclass(frozen=True)
class FusedOptions:
    """How to compute the pairs: activation by name, dropout, type of the products, and the budgets."""

    activation: str
    dropout: float
    dtype: torch.dtype
    kept: int = KEPT
    piece: int = PIECE


def fused_scores(leave: Tensor, enter: Tensor, layers: Sequence[Layer], options: FusedOptions) -> Tensor:
    """Score all ordered pairs of each set by hidden layers after the first, at least one, and the output layer."""
    flat = list(chain.from_iterable(layers))
    seeds = torch.randint(2**31 - 1, (len(layers),), device=leave.device, dtype=torch.int32)
    if torch.is_grad_enabled() and any(t.requires_grad for t in (leave, enter, *flat)):
        scores = _FusedScores.apply(options, seeds, leave, enter, *flat)  # type: ignore[no-untyped-call]
        assert isinstance(scores, Tensor)
        return scores
    network = _Network(options, seeds, leave, enter, *flat)
    scores = network.new_scores()
    if network.scores_at_once(scores):
        return scores
    for rows in network.pieces():
        network.forward(rows, scores)
    return scores


class State(NamedTuple):
    """What the backward pass needs of a piece: inputs and results of the products of the hidden layers."""

    inputs: Sequence[Tensor]
    results: Sequence[Tensor]


@dataclass(frozen=True)
class Gradients:
    """Sums over all pieces."""

    leave: Tensor
    enter: Tensor
    layers: list[Tensor]


class _FusedScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, options: FusedOptions, seeds: Tensor, *inputs: Tensor) -> Tensor:
        network = _Network(options, seeds, *inputs)
        scores, kept = network.new_scores(), []
        keep = network.kept_bytes <= options.kept
        for rows in network.pieces():
            state = network.forward(rows, scores)
            if keep:
                kept += [*state.inputs, *state.results]
        ctx.save_for_backward(seeds, *inputs, *kept)
        ctx.options, ctx.inputs = options, len(inputs)
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        seeds, *saved = ctx.saved_tensors
        inputs, kept = saved[: ctx.inputs], saved[ctx.inputs :]
        network = _Network(ctx.options, seeds, *inputs)
        gradient = gradient.contiguous()
        sums = network.zero_gradients()
        layers = len(network.hidden)
        for at, rows in enumerate(network.pieces()):
            own = kept[2 * layers * at : 2 * layers * (at + 1)]
            state = State(own[:layers], own[layers:]) if own else network.forward(rows, None)
            network.backward(rows, state, gradient, sums)
        for weight in sums.layers[::2]:
            weight.mul_(network.scale)
        return None, None, sums.leave, sums.enter, *sums.layers, gradient.sum().view(1)


class _Network:
    """The layers in the type of the products, and how the kernels are launched."""

    def __init__(self, options: FusedOptions, seeds: Tensor, leave: Tensor, enter: Tensor, *flat: Tensor) -> None:
        self.options, self.seeds = options, seeds
        self.leave, self.enter = leave.detach().contiguous(), enter.detach().contiguous()
        self.sets, self.places, self.width = leave.shape
        weights, biases = [w.detach() for w in flat[:-2:2]], [b.detach() for b in flat[1:-2:2]]
        self.scale = 1 / (1 - options.dropout)  # is in the weights
        self.hidden = [((w * self.scale).to(options.dtype), b) for w, b in zip(weights, biases, strict=True)]
        self.weight, self.shift = flat[-2].detach().view(-1) * self.scale, flat[-1].detach()
        limit = round(options.dropout * 2**32)
        self.limit = limit - 2**32 if limit >= 2**31 else limit  # the same 32 bits
        self.kind: dict[str, Any] = {"ACT": options.activation, "DROP": options.dropout > 0}

    @property
    def kept_bytes(self) -> int:
        """Bytes of the states of all pieces."""
        per_pair = sum(weight.shape[0] + weight.shape[1] for weight, _ in self.hidden)
        return self.sets * self.places**2 * per_pair * self.hidden[0][0].element_size()

    def pieces(self) -> Iterator[range]:
        """Cut all rows into pieces."""
        rows, step = self.sets * self.places, max(self.options.piece // self.places, 1)
        return (range(row, min(row + step, rows)) for row in range(0, rows, step))

    def new_scores(self) -> Tensor:
        return self.leave.new_empty(self.sets, self.places, self.places, dtype=torch.float32)

    def zero_gradients(self) -> Gradients:
        def zeros(like: Tensor) -> Tensor:
            return torch.zeros_like(like, dtype=torch.float32)

        layers = [zeros(t) for layer in self.hidden for t in layer]
        return Gradients(torch.empty_like(self.leave), zeros(self.enter), [*layers, zeros(self.weight).view(1, -1)])

    # -- forward ------------------------------------------------------------------------------------------------

    def scores_at_once(self, scores: Tensor) -> bool:
        """Do without any tensor of pairs by units, where a single kernel can; tells whether it did."""
        (weight, bias), *more = self.hidden
        fits = weight.dtype == torch.bfloat16 and weight.shape[1] % 64 == 0 and weight.shape[0] % 128 == 0
        if more or self.options.dropout or not fits:
            return False
        across = {**TILE, "N": 256 if weight.shape[0] % 256 == 0 else 128}
        products.score[(_processors(scores.device),)](
            self.leave.to(weight.dtype),
            self.enter.to(weight.dtype),
            weight.t().contiguous(),
            bias,
            self.weight,
            self.shift,
            scores,
            scores.numel(),
            self.places,
            weight.shape[1],
            weight.shape[0],
            ACT=self.options.activation,
            **across,
        )
        return True

    def forward(self, rows: range, scores: Tensor | None) -> State:
        """Compute the hidden layers of some rows, and fill in their scores."""
        h = self.spread(rows)
        inputs, results = [], []
        for k, (weight, bias) in enumerate(self.hidden, 1):
            z = h.new_empty(len(h), len(bias))
            inputs.append(h)
            results.append(z)
            if k == len(self.hidden) and scores is not None:
                self.finish(h, weight, z, bias, k, rows, scores)
                continue
            torch.mm(h, weight.t(), out=z)
            if k < len(self.hidden):
                h = torch.empty_like(z)
                self.over_pairs(forward.bend, z, bias, h, like=z, layer=k, rows=rows, size=4096, num_warps=4)
        return State(inputs, results)

    def spread(self, rows: range) -> Tensor:
        """Build the first hidden layer of some rows."""
        h = self.leave.new_empty(len(rows) * self.places, self.width, dtype=self.options.dtype)
        block = triton.next_power_of_2(self.width)
        entered = max(4096 // block, 1)
        grid = (triton.cdiv(len(rows), 8), triton.cdiv(self.places, entered))
        where = (rows.start, len(rows), self.places, self.width, self.limit)
        shape = {"C": block, "TI": 8, "TJ": entered, "num_warps": 4}
        forward.spread[grid](self.leave, self.enter, h, self.seeds, *where, **self.kind, **shape)
        return h

    def finish(
        self, h: Tensor, weight: Tensor, z: Tensor, bias: Tensor, layer: int, rows: range, scores: Tensor
    ) -> None:
        """Fill z with the last product, and in the scores that follow from it."""
        if not _tiled(h, weight):
            torch.mm(h, weight.t(), out=z)
            each: dict[str, Any] = {"layer": layer, "rows": rows, "size": 4096, "num_warps": 4}
            self.over_pairs(forward.finish, z, bias, self.weight, self.shift, scores, like=z, **each)
            return
        parts = scores.new_empty(triton.cdiv(len(weight), TILE["N"]), len(h))
        operands = (
            TensorDescriptor.from_tensor(h, [TILE["M"], TILE["K"]]),
            TensorDescriptor.from_tensor(weight, [TILE["N"], TILE["K"]]),
            TensorDescriptor.from_tensor(z, [TILE["M"], TILE["N"]]),
        )
        begin, end = rows.start * self.places, rows.stop * self.places
        where = (layer, begin, len(h), h.shape[1], len(weight), self.limit)
        given = (bias, self.weight, parts, self.seeds)
        products.finish_product[(_processors(h.device),)](*operands, *given, *where, **self.kind, **TILE)
        torch.add(parts.sum(0), self.shift, out=scores.view(-1)[begin:end])

    # -- backward -----------------------------------------------------------------------------------------------

    def backward(self, rows: range, state: State, gradient: Tensor, sums: Gradients) -> None:
        """Add up what some rows contribute to the gradients."""
        last = len(self.hidden)
        z = state.results[-1]
        d, d_weight, d_bias = torch.empty_like(z), self.parts(z), self.parts(z)
        given = (z, self.hidden[-1][1], self.weight, gradient, d, d_weight, d_bias)
        each: dict[str, Any] = {"rows": rows, "size": 512, "num_warps": 2, "programs": len(d_bias)}
        self.over_pairs(backward.unfinish, *given, like=z, layer=last, **each)
        sums.layers[-1].add_(d_weight.sum(0))
        for k in range(last, 0, -1):
            weight, _ = self.hidden[k - 1]
            sums.layers[2 * k - 1].add_(d_bias.sum(0))
            sums.layers[2 * k - 2].add_(_outer(d, state.inputs[k - 1]))
            d = d @ weight
            if k > 1:
                z, d_bias = state.results[k - 2], self.parts(d)
                self.over_pairs(backward.unbend, z, self.hidden[k - 2][1], d, d_bias, like=z, layer=k - 1, **each)
        self.gather(rows, d, sums)

    def gather(self, rows: range, d: Tensor, sums: Gradients) -> None:
        """Add up the gradient by the first layer over pairs with the same left, and the same entered, alternative."""
        block = min(triton.next_power_of_2(self.width), 64)
        entered = 8
        first = rows.start // self.places
        grid = (
            triton.cdiv(self.width, block),
            triton.cdiv(self.places, entered),
            (rows.stop - 1) // self.places - first + 1,
        )
        parts = d.new_empty(grid[1], len(rows), self.width, dtype=torch.float32)
        where = (first, rows.start, len(rows), self.places, self.width, self.limit)
        shape = {"C": block, "TJ": entered, "num_warps": 1}
        given = (self.leave, self.enter, d, parts, sums.enter, self.seeds)
        backward.gather[grid](*given, *where, **self.kind, **shape)
        torch.sum(parts, 0, out=sums.leave.view(-1, self.width)[rows.start : rows.stop])

    def parts(self, like: Tensor) -> Tensor:
        """Room for a sum over pairs by each program of those that share the pairs."""
        return like.new_empty(32 * _processors(like.device), like.shape[1], dtype=torch.float32)

    def over_pairs(
        self,
        kernel: Any,
        *given: Tensor,
        like: Tensor,
        layer: int,
        rows: range,
        size: int,
        num_warps: int,
        programs: int | None = None,
    ) -> None:
        """Launch a kernel on (pairs, H), with so many numbers in a block; all blocks at once, or by some programs."""
        pairs, width = like.shape
        block = triton.next_power_of_2(width)
        pairs_of_block = max(size // block, 1)
        grid = (triton.cdiv(pairs, pairs_of_block) if programs is None else programs,)
        where = (layer, rows.start * self.places, pairs, width, self.limit)
        shape = {"C": block, "R": pairs_of_block, "num_warps": num_warps}
        kernel[grid](*given, self.seeds, *where, **self.kind, **shape)


def _outer(d: Tensor, h: Tensor) -> Tensor:  # (P, H), (P, D) -> (H, D)
    """Return d^T h in float32."""
    return torch.mm(d.t(), h) if d.dtype == torch.float32 else torch.mm(d.t(), h, out_dtype=torch.float32)


def _tiled(h: Tensor, weight: Tensor) -> bool:
    """Tell whether our kernel takes a product: from 128 units on, where tensor descriptors are known."""
    wide = min(weight.shape) >= 128 and all(width % 8 == 0 for width in weight.shape)
    return wide and h.dtype == torch.bfloat16 and _capability(h.device) >= (9, 0)


@cache
def _processors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)
