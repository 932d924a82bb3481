"""Scores of all ordered pairs on a CUDA device: the products by matrix units, all else fused around them.

A tensor of one number per pair and unit costs about as much to move as to multiply. So the first hidden layer is built
from its two thin matrices in one pass, bias, activation and dropout of a later one happen where its product is read or
made, and the last one leaves a single number per pair. Products take float32 or bfloat16 and add up in float32. Where
the chip and the layer allow it, the last layer has kernels of its own (``hopper``).

Pairs are worked on in pieces of whole rows (b, i). What the backward pass needs is kept as long as all of it is within
a budget, and otherwise computed a second time, piece by piece: memory is bounded for any n.
Shapes: leave and enter (B, J, H) -> scores (B, J, J).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import chain
from types import ModuleType
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from pcmcnet.layers.gpu import backward, forward
from pcmcnet.layers.gpu.units import processors

KEPT = 3 << 30  # bytes kept from the forward to the backward pass, at most
PIECE = 1 << 19  # pairs of a piece
GLUON = ("3.6.",)  # versions of Triton with the language that the kernels for Hopper were run in

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
    for rows in network.pieces():
        network.forward(rows, scores, keep=False)
    return scores


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


class _FusedScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, options: FusedOptions, seeds: Tensor, *inputs: Tensor) -> Tensor:
        network = _Network(options, seeds, *inputs)
        scores, kept = network.new_scores(), []
        keep = network.kept_bytes <= options.kept
        for rows in network.pieces(kept=keep):
            state = network.forward(rows, scores, keep=keep)
            kept += [*state.inputs, *state.results] if keep else []
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
        unused = torch.empty_like(gradient)
        for rows in network.pieces(kept=bool(kept)):
            state = State(kept[:layers], kept[layers:]) if kept else network.forward(rows, unused)
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
        hopper = _hopper(leave.device)
        fits = hopper is not None and hopper.takes(self.hidden[-1][0], options.activation)
        self.hopper = hopper if fits else None
        self.kind: dict[str, Any] = {"ACT": options.activation, "DROP": options.dropout > 0}

    @property
    def kept_bytes(self) -> int:
        """Bytes of the states of all pieces."""
        per_pair = sum(weight.shape[0] + weight.shape[1] for weight, _ in self.hidden)
        return self.sets * self.places**2 * per_pair * self.hidden[0][0].element_size()

    def pieces(self, *, kept: bool = False) -> Iterator[range]:
        """Cut all rows into pieces; one is enough where all is kept."""
        rows = self.sets * self.places
        step = rows if kept else max(self.options.piece // self.places, 1)
        return (range(row, min(row + step, rows)) for row in range(0, rows, step))

    def new_scores(self) -> Tensor:
        return self.leave.new_empty(self.sets, self.places, self.places, dtype=torch.float32)

    def zero_gradients(self) -> Gradients:
        def zeros(like: Tensor) -> Tensor:
            return torch.zeros_like(like, dtype=torch.float32)

        layers = [zeros(t) for layer in self.hidden for t in layer]
        return Gradients(torch.empty_like(self.leave), zeros(self.enter), [*layers, zeros(self.weight).view(1, -1)])

    # -- forward ------------------------------------------------------------------------------------------------

    def forward(self, rows: range, scores: Tensor, *, keep: bool = True) -> State:
        """Compute the hidden layers of some rows, and fill in their scores."""
        h = self.spread(rows)
        inputs, results = [h], []
        for k, (weight, bias) in enumerate(self.hidden[:-1], 1):
            z = torch.mm(h, weight.t())
            h = torch.empty_like(z)
            self.over_pairs(forward.bend, z, bias, h, like=z, layer=k, rows=rows, size=4096, num_warps=4)
            inputs.append(h)
            results.append(z)
        results.append(self.finish(h, rows, scores, keep=keep))
        return State(inputs, results)

    def spread(self, rows: range) -> Tensor:
        """Build the first hidden layer of some rows."""
        h = self.leave.new_empty(len(rows) * self.places, self.width, dtype=self.options.dtype)
        block, entered = min(triton.next_power_of_2(self.width), 256), 8
        shape = {"C": block, "TJ": entered, "num_warps": 4}
        forward.spread[self.grid(rows, block, entered)](
            self.leave, self.enter, h, self.seeds, *self.where(rows), **self.kind, **shape
        )
        return h

    def finish(self, h: Tensor, rows: range, scores: Tensor, *, keep: bool) -> Tensor:
        """Fill in the scores; returns the result of the last product, or its slopes."""
        weight, bias = self.hidden[-1]
        layer, begin, end = len(self.hidden), rows.start * self.places, rows.stop * self.places
        if self.hopper is None:
            z = torch.mm(h, weight.t())
            each: dict[str, Any] = {"layer": layer, "rows": rows, "size": 4096, "num_warps": 4}
            self.over_pairs(forward.finish, z, bias, self.weight, self.shift, scores, like=z, **each)
            return z
        how = {"activation": self.options.activation, "dropout": (self.seeds, layer, begin, self.limit), "keep": keep}
        sums, slopes = self.hopper.finish_product(h, weight, bias, self.weight, **how)
        torch.add(sums, self.shift, out=scores.view(-1)[begin:end])
        assert isinstance(slopes, Tensor)
        return slopes

    # -- backward -----------------------------------------------------------------------------------------------

    def backward(self, rows: range, state: State, gradient: Tensor, sums: Gradients) -> None:
        """Add up what some rows contribute to the gradients."""
        each: dict[str, Any] = {"rows": rows, "size": 512, "num_warps": 2}
        scaled = self.hopper is not None
        if scaled:
            d = self.backward_from_slopes(rows, state, gradient, sums)
        else:
            z, last = state.results[-1], len(self.hidden)
            d, d_weight, d_bias = torch.empty_like(z), self.parts(z), self.parts(z)
            given = (z, self.hidden[-1][1], self.weight, gradient, d, d_weight, d_bias)
            self.over_pairs(backward.unfinish, *given, like=z, layer=last, programs=len(d_bias), **each)
            sums.layers[-1].add_(d_weight.sum(0))
            d = self.backward_through(last, d, d_bias, state, sums)
        for k in range(len(self.hidden) - 1, 0, -1):
            z = state.results[k - 1]
            d_bias = self.parts(d)
            bent = (z, self.hidden[k - 1][1], gradient, d, d_bias)
            self.over_pairs(backward.unbend, *bent, like=z, layer=k, programs=len(d_bias), SCALED=scaled, **each)
            scaled = False
            d = self.backward_through(k, d, d_bias, state, sums)
        self.gather(rows, d, gradient, sums, scaled=scaled)

    def backward_through(self, k: int, d: Tensor, d_bias: Tensor, state: State, sums: Gradients) -> Tensor:
        """Take a gradient by the result of a product to one by its input."""
        sums.layers[2 * k - 1].add_(d_bias.sum(0))
        sums.layers[2 * k - 2].add_(_outer(d, state.inputs[k - 1]))
        return d @ self.hidden[k - 1][0]

    def backward_from_slopes(self, rows: range, state: State, gradient: Tensor, sums: Gradients) -> Tensor:
        """Return the gradient by the input of the last product, yet to be multiplied by that of the scores."""
        assert self.hopper is not None
        weight, bias = self.hidden[-1]
        slopes, h = state.results[-1], state.inputs[-1]
        of_rows = gradient.view(-1)[rows.start * self.places : rows.stop * self.places]
        products, side = self.hopper.weighted_products(slopes, h, of_rows)
        sums.layers[-3].add_(products * self.weight[:, None])
        sums.layers[-2].add_(side * self.weight)
        sums.layers[-1].add_((products * weight).sum(1) + bias * side)
        return slopes @ (weight * self.weight[:, None]).to(weight.dtype)

    def gather(self, rows: range, d: Tensor, gradient: Tensor, sums: Gradients, *, scaled: bool) -> None:
        """Add up the gradient by the first layer over pairs with the same left, and the same entered, alternative."""
        block, entered = min(triton.next_power_of_2(self.width), 64), 8
        grid = self.grid(rows, block, entered)
        parts = d.new_empty(grid[1], len(rows), self.width)
        given = (self.leave, self.enter, gradient, d, parts, sums.enter, self.seeds)
        shape = {"SCALED": scaled, "C": block, "TJ": entered, "num_warps": 1}
        backward.gather[grid](*given, *self.where(rows), **self.kind, **shape)
        torch.sum(parts, 0, dtype=torch.float32, out=sums.leave.view(-1, self.width)[rows.start : rows.stop])

    # -- launches -----------------------------------------------------------------------------------------------

    def grid(self, rows: range, units: int, entered: int) -> tuple[int, int, int]:
        """Programs for blocks of units, of alternatives that are entered, and sets."""
        sets = (rows.stop - 1) // self.places - rows.start // self.places + 1
        return triton.cdiv(self.width, units), triton.cdiv(self.places, entered), sets

    def where(self, rows: range) -> tuple[int, ...]:
        """First set and rows of a piece, shape of all, and the limit below which units are dropped."""
        return rows.start // self.places, rows.start, len(rows), self.places, self.width, self.limit

    def parts(self, like: Tensor) -> Tensor:
        """Room for a sum over pairs by each program of those that share the pairs."""
        return like.new_empty(32 * processors(like.device), like.shape[1], dtype=torch.float32)

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
        **kind: Any,
    ) -> None:
        """Launch a kernel on (pairs, H), with so many numbers in a block; all blocks at once, or by some programs."""
        pairs, width = like.shape
        block = triton.next_power_of_2(width)
        pairs_of_block = max(size // block, 1)
        grid = (triton.cdiv(pairs, pairs_of_block) if programs is None else programs,)
        where = (layer, rows.start * self.places, pairs, width, self.limit)
        shape = {"C": block, "R": pairs_of_block, "num_warps": num_warps}
        kernel[grid](*given, self.seeds, *where, **kind, **self.kind, **shape)


def _outer(d: Tensor, h: Tensor) -> Tensor:  # (P, H), (P, D) -> (H, D)
    """Return d^T h in float32."""
    return torch.mm(d.t(), h) if d.dtype == torch.float32 else torch.mm(d.t(), h, out_dtype=torch.float32)


@cache
def _hopper(device: torch.device) -> ModuleType | None:
    """Load the kernels for Hopper, where they can run."""
    known = triton.__version__.startswith(GLUON) and find_spec("triton.experimental.gluon") is not None
    if not known or torch.cuda.get_device_capability(device) != (9, 0):
        return None
    from pcmcnet.layers.gpu import hopper

    return hopper
