"""Scores of all ordered pairs of alternatives, the n^2 part of PCMC-Net.

    h = leave_i + enter_j,    then for every layer    h <- W (m * a(h)) / (1 - p) + b

with the activation a, the mask m of dropout and its probability p. The last layer has one output, the score.
Shapes: leave and enter (B, J, H) -> scores (B, J, J), row i being left and column j entered.

:func:`plain_scores` is that formula on a whole batch. On a CPU its temporaries, of one number per pair and unit, leave
the cache and come fresh from the system each time, which takes longer than the products. So larger batches go in
pieces: as many rows (set, i) as make some thousand pairs, of the real alternatives alone, in memory that every piece
uses again. The backward pass is written out. It needs the activations: they are kept as long as all that is kept is
within a budget, and from then on computed a second time, with the same masks of dropout: memory is bounded for any n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pcmcnet.layers.activations import ActivationRule
from pcmcnet.layers.dropout import dropped, random_mask
from pcmcnet.layers.pieces import Piece, blocks, count, cut

SMALL = 2**16  # numbers in the widest temporary: up to here the plain formula is as fast
PIECE = 2**19  # numbers in a temporary of a piece: 2 MiB
KEPT = 2**30  # bytes kept from the forward to the backward pass, at most

Layer = tuple[Tensor, Tensor]  # weight (out, in) and bias (out,)


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """How to compute the pairs.

    Parameters
    ----------
    activation, dropout
        Of the hidden layers; the dropout is 0 outside training.
    dtype
        Of the products and of what is between them; the last layer is in the type of its weights.
    small, piece, kept
        Numbers up to which the plain formula serves, numbers in a temporary of a piece, and bytes kept for the
        backward pass.
    """

    activation: ActivationRule
    dropout: float = 0.0
    dtype: torch.dtype = torch.float32
    small: int = SMALL
    piece: int = PIECE
    kept: int = KEPT


def pair_scores(
    leave: Tensor, enter: Tensor, layers: Sequence[Layer], options: PairOptions, mask: Tensor | None = None
) -> Tensor:
    """Score all ordered pairs of each set: (B, J, H), (B, J, H), mask (B, J) -> (B, J, J); anything at padding."""
    sets, places, _ = leave.shape
    widest = max((weight.shape[1] for weight, _ in layers), default=1)
    if not layers or leave.device.type != "cpu" or sets * places**2 * widest <= options.small:
        return plain_scores(leave, enter, layers, options)
    sizes = [places] * sets if mask is None else (mask * torch.arange(1, places + 1)).amax(1).tolist()
    pieces = list(cut(sizes, max(options.piece // widest, 1)))
    flat = list(chain.from_iterable(layers))
    if torch.is_grad_enabled() and any(t.requires_grad for t in (leave, enter, *flat)):
        scores = _PairScores.apply(pieces, options, leave, enter, *flat)  # type: ignore[no-untyped-call]
        assert isinstance(scores, Tensor)
        return scores
    scores, _, _ = _forward(_Network(options, leave, enter, *flat), pieces)
    return scores


def plain_scores(leave: Tensor, enter: Tensor, layers: Sequence[Layer], options: PairOptions) -> Tensor:
    """Evaluate the formula on all pairs at once: (B, J, H), (B, J, H) -> (B, J, J)."""
    sets, places, width = leave.shape
    grid = leave.unsqueeze(2) + enter.unsqueeze(1)
    h = grid.view(-1, width)  # products of more dimensions take more calls
    for k, (weight, bias) in enumerate(layers, 1):
        kind = options.dtype if k < len(layers) else weight.dtype
        h = dropped(options.activation.apply(h.to(options.dtype)), options.dropout)
        h = F.linear(h.to(kind), weight.to(kind), bias.to(kind))
    return h.view(sets, places, places)


# -- the network on a piece of P pairs ----------------------------------------------------------------------------


class Hidden(NamedTuple):
    """A hidden layer on a piece."""

    result: Tensor  # (P, H) after dropout, but for its scale, which is in the weights
    seen: Tensor  # (P, H) what the derivative of the activation is told from
    stays: Tensor | None  # (P, H) the mask of dropout


class _Network:
    """The layers in the type of the products, with the scale of dropout taken into the weights."""

    def __init__(self, options: PairOptions, leave: Tensor, enter: Tensor, *flat: Tensor) -> None:
        self.options, self.scale = options, 1 / (1 - options.dropout)
        self.leave, self.enter = leave.detach(), enter.detach()
        layers = [
            (weight.detach() * self.scale if options.dropout else weight.detach(), bias.detach())
            for weight, bias in zip(flat[::2], flat[1::2], strict=True)
        ]
        self.hidden = [(weight.to(options.dtype), bias.to(options.dtype)) for weight, bias in layers[:-1]]
        self.weight, self.bias = layers[-1]
        self.temporaries: dict[str, Tensor] = {}

    @property
    def kept_per_pair(self) -> int:
        """Bytes per pair that ``forward`` leaves with ``keep``."""
        tensors = 2 if self.options.activation.of_input else 1
        later = sum(len(bias) for _, bias in self.hidden)
        masks = self.leave.shape[-1] + later if self.options.dropout else 0
        return later * tensors * self.options.dtype.itemsize + masks

    def temporary(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return memory that is used for every piece again."""
        size = shape[0] * shape[1]
        if name not in self.temporaries or self.temporaries[name].numel() < size:
            self.temporaries[name] = torch.empty(size, dtype=dtype or self.options.dtype)
        return self.temporaries[name][:size].view(shape)

    def forward(self, piece: Piece, *, keep: bool, generator: torch.Generator | None = None) -> list[Hidden]:
        """Compute the hidden layers, those after the first in memory of their own with ``keep``."""
        done = [self.first(piece, self.mask(count(piece), self.leave.shape[-1], generator))]
        for k, (weight, bias) in enumerate(self.hidden):
            shape = len(done[-1].result), len(bias)
            h = weight.new_empty(shape) if keep else self.temporary(f"layer {k}", *shape)
            torch.addmm(bias, done[-1].result, weight.t(), out=h)
            done.append(self.activate(h, self.mask(*shape, generator)))
        return done

    def first(self, piece: Piece, stays: Tensor | None) -> Hidden:
        """Add the two halves of the first layer, pair by pair: cheap enough to be done again in the backward pass."""
        h = self.temporary("sum", count(piece), self.leave.shape[-1], dtype=self.leave.dtype)
        for segment, block in blocks(piece, h):
            torch.add(segment.left(self.leave).unsqueeze(2), segment.entered(self.enter).unsqueeze(1), out=block)
        if h.dtype != self.options.dtype:
            h = self.temporary("first", *h.shape).copy_(h)
        return self.activate(h, stays)

    def mask(self, pairs: int, width: int, generator: torch.Generator | None) -> Tensor | None:
        p = self.options.dropout
        return random_mask((pairs, width), p, generator) if p else None

    def activate(self, h: Tensor, stays: Tensor | None) -> Hidden:
        y = self.options.activation.apply(h)
        seen = h if self.options.activation.of_input else y
        return Hidden(self.drop_(y, stays), seen, stays)

    def drop_(self, h: Tensor, stays: Tensor | None) -> Tensor:
        return h if stays is None else h.mul_(self.temporary("mask", *h.shape).copy_(stays))

    def scores(self, last: Hidden) -> Tensor:  # -> (P,)
        return torch.mv(last.result.to(self.weight.dtype), self.weight[0]).add_(self.bias)

    def backward(self, done: list[Hidden], g_scores: Tensor, sums: list[Tensor]) -> Tensor:
        """Turn the gradient by the scores (P,) into that by the first sum (P, H), and add up those by the layers."""
        kind = self.options.dtype
        sums[-2][0].addmv_(done[-1].result.to(g_scores.dtype).t(), g_scores)
        sums[-1].add_(g_scores.sum())
        g = self.temporary("gradient 0", *done[-1].result.shape)
        torch.mul(g_scores.to(kind).unsqueeze(1), self.weight.to(kind), out=g)
        for k in range(len(self.hidden), 0, -1):
            self.options.activation.pull_back_(self.drop_(g, done[k].stays), done[k].seen)
            _add_product_(sums[2 * k - 2], g.t(), done[k - 1].result)
            sums[2 * k - 1].add_(g.sum(0, dtype=sums[0].dtype))
            weight, _ = self.hidden[k - 1]
            other = self.temporary(f"gradient {(len(self.hidden) - k + 1) % 2}", len(g), weight.shape[1])
            g = torch.mm(g, weight, out=other)
        return self.options.activation.pull_back_(self.drop_(g, done[0].stays), done[0].seen)


def _add_product_(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b, in the type of the total: sums over pieces in bfloat16 would lose the later ones."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    else:
        total.add_(a @ b)


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pieces: list[Piece], options: PairOptions, *inputs: Tensor) -> Tensor:
        network = _Network(options, *inputs)
        so_far = accumulate(count(piece) * network.kept_per_pair for piece in pieces)
        ctx.keep = sum(size <= options.kept for size in so_far)  # so many of the pieces
        scores, kept, ctx.states = _forward(network, pieces, keep=ctx.keep)
        ctx.save_for_backward(*inputs, *kept)
        ctx.pieces, ctx.options, ctx.inputs = pieces, options, len(inputs)
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, kept = ctx.saved_tensors[: ctx.inputs], ctx.saved_tensors[ctx.inputs :]
        network = _Network(ctx.options, *inputs)
        generator = torch.Generator()
        g_leave, g_enter, *sums = (torch.zeros_like(t) for t in inputs)
        for at, piece in enumerate(ctx.pieces):
            if at < ctx.keep:
                done = _unpack(network, piece, kept[at * len(kept) // ctx.keep : (at + 1) * len(kept) // ctx.keep])
            else:
                if ctx.options.dropout:
                    generator.set_state(ctx.states[at - ctx.keep].clone())  # a view is read wrongly
                done = network.forward(piece, keep=False, generator=generator)
            g_scores = torch.cat([segment.of(gradient).flatten() for segment in piece])
            for segment, block in blocks(piece, network.backward(done, g_scores, sums)):
                segment.left(g_leave).copy_(block.sum(2, dtype=g_leave.dtype))
                segment.entered(g_enter).add_(block.sum(1, dtype=g_enter.dtype))
        for g in sums[::2]:
            g.mul_(network.scale)
        return None, None, g_leave, g_enter, *sums


def _forward(
    network: _Network, pieces: Sequence[Piece], *, keep: int = 0
) -> tuple[Tensor, list[Tensor | None], Tensor]:
    """Score all pieces: (B, J, J), what the backward pass needs of the first ones, and how to repeat the others."""
    leave = network.leave
    scores = network.weight.new_zeros(*leave.shape[:2], leave.shape[1])
    kept: list[Tensor | None] = []
    # Of one block: small tensors that stay, allocated between large ones that go, would leave holes in the memory.
    states = torch.empty(len(pieces) - keep, len(torch.get_rng_state()), dtype=torch.uint8)
    for at, piece in enumerate(pieces):
        if at >= keep and network.options.dropout:
            states[at - keep] = torch.get_rng_state()
        done = network.forward(piece, keep=at < keep)
        for segment, block in blocks(piece, network.scores(done[-1])):
            segment.of(scores).copy_(block)
        if at < keep:
            kept += [done[0].stays, *chain.from_iterable(done[1:])]
    return scores, kept, states


def _unpack(network: _Network, piece: Piece, kept: Sequence[Any]) -> list[Hidden]:
    """Return the hidden layers of a piece from what was kept of them."""
    later = zip(kept[1::3], kept[2::3], kept[3::3], strict=True)
    return [network.first(piece, kept[0]), *(Hidden(*layer) for layer in later)]
