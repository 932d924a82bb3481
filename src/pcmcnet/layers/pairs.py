"""Scores of all ordered pairs of alternatives, the n^2 part of PCMC-Net.

    h = leave_i + enter_j,    then for every layer    h <- W (m * a(h)) / (1 - p) + b

with the activation a, the mask m of dropout and its probability p. The last layer has one output, the score.
Shapes: leave and enter (B, J, H) -> scores (B, J, J), row i being left and column j entered.

:func:`plain_scores` is that formula on a whole batch. On a CPU its temporaries, of one number per pair and unit, leave
the cache and come fresh from the system each time, which takes longer than the products. So of larger batches the pairs
that count are written in a row, with neither padding nor those of an alternative with itself, and computed piece by
piece, some hundred pairs in memory that is used again for the next ones. Each thread computes a part of the pieces,
which are the same for any number of threads, and so are the masks of dropout.

The backward pass is written out. It needs the activations: they are kept as long as all that is kept is within a
budget, and from then on computed a second time, with the same masks of dropout: memory is bounded for any n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pcmcnet.layers.activations import ActivationRule
from pcmcnet.layers.dropout import dropped, random_mask
from pcmcnet.layers.threads import in_threads

SMALL = 2**16  # numbers in the widest temporary: up to here the plain formula is as fast
PIECE = 2**19  # numbers in a temporary of a piece, at most: 2 MiB of float32
LEAST = 2**18  # and at least, where there are so many: less is not worth a thread
EVEN = 16  # pieces make a multiple of this, so that most numbers of threads share them evenly
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
    small, piece, least, kept
        Numbers up to which the plain formula serves, numbers in a temporary of a piece at most and at least, and bytes
        kept for the backward pass.
    """

    activation: ActivationRule
    dropout: float = 0.0
    dtype: torch.dtype = torch.float32
    small: int = SMALL
    piece: int = PIECE
    least: int = LEAST
    kept: int = KEPT


def pair_scores(
    leave: Tensor, enter: Tensor, layers: Sequence[Layer], options: PairOptions, mask: Tensor | None = None
) -> Tensor:
    """Score all ordered pairs of each set: (B, J, H), (B, J, H) -> (B, J, J).

    With a mask (B, J) those of two different real alternatives, and anything elsewhere.
    """
    sets, places, _ = leave.shape
    widest = max((weight.shape[1] for weight, _ in layers), default=1)
    if not layers or leave.device.type != "cpu" or sets * places**2 * widest <= options.small:
        return plain_scores(leave, enter, layers, options)
    real = torch.ones(sets, places, places, dtype=torch.bool) if mask is None else real_pairs(mask)
    shares = share_out(real, widest, options)
    flat = list(chain.from_iterable(layers))
    if torch.is_grad_enabled() and any(t.requires_grad for t in (leave, enter, *flat)):
        scores = _PairScores.apply(shares, options, leave, enter, *flat)  # type: ignore[no-untyped-call]
        assert isinstance(scores, Tensor)
        return scores
    scores, _ = _forward(_Network(options, leave, enter, *flat), shares)
    return scores


def real_pairs(mask: Tensor) -> Tensor:  # (B, J) -> (B, J, J)
    """Mark the ordered pairs of two different real alternatives."""
    pairs = mask.unsqueeze(2) & mask.unsqueeze(1)
    pairs.diagonal(dim1=1, dim2=2).fill_(False)
    return pairs


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


# -- who computes which pairs ---------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """Pairs that are computed at a time, by what is left and what is entered among the rows of their part."""

    left: Tensor  # (P,)
    entered: Tensor  # (P,)
    seed: int  # of the masks of dropout


class Part(NamedTuple):
    """Pieces that one thread computes, one after the other."""

    rows: slice  # of the halves (B J, H)
    pieces: list[Piece]

    @property
    def pairs(self) -> list[int]:
        """Their number, piece by piece."""
        return [len(piece.left) for piece in self.pieces]


class Shares(NamedTuple):
    """All pairs, in parts, and where they are in the table of scores."""

    parts: list[Part]
    where: Tensor  # (P,)
    shape: torch.Size  # (B, J, J)

    def table(self, scores: Tensor) -> Tensor:  # (P,) -> (B, J, J)
        """Put scores in their places, and 0 elsewhere."""
        return scores.new_zeros(self.shape.numel()).index_copy_(0, self.where, scores).view(self.shape)

    def of(self, table: Tensor) -> Tensor:  # (B, J, J) -> (P,)
        """Take what a table has for the pairs."""
        return table.flatten().index_select(0, self.where)

    def split(self, flat: Tensor) -> tuple[Tensor, ...]:  # (P,) -> (P,) of each part
        """Split what all pairs have by parts."""
        return flat.split_with_sizes([sum(part.pairs) for part in self.parts])


def share_out(real: Tensor, widest: int, options: PairOptions) -> Shares:
    """Cut the pairs that count, true in (B, J, J), into pieces of one size, and share these out among the threads."""
    places = real.shape[1]
    where = real.flatten().nonzero().squeeze(1)
    numbers = len(where) * widest
    pieces = max(min(EVEN * math.ceil(numbers / (EVEN * options.piece)), numbers // options.least), 1)
    seeds = torch.randint(2**63 - 1, (pieces,)).tolist() if options.dropout else [0] * pieces
    left = where // places
    entered = left - left % places + where % places
    made = zip(left.tensor_split(pieces), entered.tensor_split(pieces), seeds, strict=True)
    cut = [Piece(*each) for each in made if len(each[0])]
    parts = min(torch.get_num_threads(), len(cut))
    ends = [len(cut) * k // parts for k in range(parts + 1)] if parts else []
    return Shares([_part(cut[a:b], places) for a, b in pairwise(ends)], where, real.shape)


def _part(pieces: list[Piece], places: int) -> Part:
    """Make a part of pieces that have the rows of all sets."""
    first, last = (int(row) // places * places for row in (pieces[0].left[0], pieces[-1].left[-1]))
    own = [Piece(piece.left - first, piece.entered - first, piece.seed) for piece in pieces]
    return Part(slice(first, last + places), own)


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
        self.leave, self.enter = (half.detach().flatten(0, 1) for half in (leave, enter))  # (B J, H)
        layers = [
            (weight.detach() * self.scale if options.dropout else weight.detach(), bias.detach())
            for weight, bias in zip(flat[::2], flat[1::2], strict=True)
        ]
        self.hidden = [(weight.to(options.dtype), bias.to(options.dtype)) for weight, bias in layers[:-1]]
        weight, self.bias = layers[-1]
        self.weight, self.slope = weight[0], weight.to(options.dtype)
        self.given = flat
        self.temporaries: dict[str, Tensor] = {}

    def on(self, part: Part) -> _Network:
        """Return this network on the rows of a part, with temporaries of its own."""
        other = copy(self)
        other.leave, other.enter, other.temporaries = self.leave[part.rows], self.enter[part.rows], {}
        return other

    @property
    def kept_per_pair(self) -> int:
        """Bytes per pair that ``forward`` leaves with ``keep``."""
        tensors = 2 if self.options.activation.of_input else 1
        later = sum(len(bias) for _, bias in self.hidden)
        masks = self.leave.shape[-1] + later if self.options.dropout else 0
        return later * tensors * self.options.dtype.itemsize + masks

    def temporary(self, name: str, pairs: int, width: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return memory that is used for every piece again, of which the first are the largest."""
        if name not in self.temporaries:
            self.temporaries[name] = torch.empty(pairs, width, dtype=dtype or self.options.dtype)
        memory = self.temporaries[name]
        return memory if len(memory) == pairs else memory[:pairs]

    def forward(self, piece: Piece, *, keep: bool) -> list[Hidden]:
        """Compute the hidden layers, those after the first in memory of their own with ``keep``."""
        pairs, generator = len(piece.left), torch.Generator().manual_seed(piece.seed)
        done = [self.first(piece, self.mask(pairs, self.leave.shape[-1], generator))]
        for k, (weight, bias) in enumerate(self.hidden):
            h = weight.new_empty(pairs, len(bias)) if keep else self.temporary(f"layer {k}", pairs, len(bias))
            torch.addmm(bias, done[-1].result, weight.t(), out=h)
            done.append(self.activate(h, self.mask(pairs, len(bias), generator)))
        return done

    def first(self, piece: Piece, stays: Tensor | None) -> Hidden:
        """Add the two halves of the first layer, pair by pair: cheap enough to be done again in the backward pass."""
        shape, kind = (len(piece.left), self.leave.shape[-1]), self.leave.dtype
        h = torch.index_select(self.leave, 0, piece.left, out=self.temporary("left", *shape, kind))
        h += torch.index_select(self.enter, 0, piece.entered, out=self.temporary("entered", *shape, kind))
        if kind != self.options.dtype:
            h = self.temporary("first", *shape).copy_(h)
        return self.activate(h, stays)

    def mask(self, pairs: int, width: int, generator: torch.Generator) -> Tensor | None:
        p = self.options.dropout
        return random_mask((pairs, width), p, generator) if p else None

    def activate(self, h: Tensor, stays: Tensor | None) -> Hidden:
        y = self.options.activation.apply(h)
        seen = h if self.options.activation.of_input else y
        return Hidden(self.drop_(y, stays), seen, stays)

    def drop_(self, h: Tensor, stays: Tensor | None) -> Tensor:
        return h if stays is None else h.mul_(self.temporary(f"mask {h.shape[1]}", *h.shape).copy_(stays))

    def score(self, last: Hidden, scores: Tensor) -> None:  # -> (P,)
        torch.addmv(self.bias, last.result.to(self.weight.dtype), self.weight, out=scores)

    def backward(self, done: list[Hidden], g_scores: Tensor, sums: list[Tensor]) -> Tensor:
        """Turn the gradient by the scores (P,) into that by the first sum (P, H), and add up those by the layers."""
        sums[-2][0].addmv_(done[-1].result.to(g_scores.dtype).t(), g_scores)
        sums[-1].add_(g_scores.sum())
        g = self.temporary("gradient 0", *done[-1].result.shape)
        torch.mul(g_scores.to(g.dtype).unsqueeze(1), self.slope, out=g)
        for k in range(len(self.hidden), 0, -1):
            self.options.activation.pull_back_(self.drop_(g, done[k].stays), done[k].seen)
            _add_product_(sums[2 * k - 2], g.t(), done[k - 1].result)
            sums[2 * k - 1].add_(g.sum(0, dtype=sums[0].dtype))
            weight, _ = self.hidden[k - 1]
            g = torch.mm(g, weight, out=self.temporary(f"gradient {k}", len(g), weight.shape[1]))
        return self.options.activation.pull_back_(self.drop_(g, done[0].stays), done[0].seen)


def _add_product_(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b, in the type of the total: sums over pieces in bfloat16 would lose the later ones."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    else:
        total.add_(a @ b)


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, shares: Shares, options: PairOptions, *inputs: Tensor) -> Tensor:
        scores, kept = _forward(_Network(options, *inputs), shares, budget=options.kept)
        ctx.shares, ctx.options = shares, options
        ctx.ends = list(accumulate(map(len, kept), initial=len(inputs)))
        ctx.save_for_backward(*inputs, *chain.from_iterable(kept))
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        saved, parts = ctx.saved_tensors, ctx.shares.parts
        inputs, kept = saved[: ctx.ends[0]], [saved[a:b] for a, b in pairwise(ctx.ends)]
        network = _Network(ctx.options, *inputs)
        work = list(zip(parts, ctx.shares.split(ctx.shares.of(gradient)), kept, strict=True))
        sums = [torch.zeros_like(t) for t in (network.leave, network.enter, *network.given)]
        for part, found in zip(parts, in_threads(lambda each: _backward(network, *each), work), strict=True):
            for total, g in zip((sums[0][part.rows], sums[1][part.rows], *sums[2:]), found, strict=True):
                total += g
        for g in sums[2::2]:
            g.mul_(network.scale)
        return None, None, *(g.view_as(t) for g, t in zip(sums, inputs, strict=True))


def _forward(network: _Network, shares: Shares, *, budget: int = 0) -> tuple[Tensor, list[list[Tensor | None]]]:
    """Score all pairs: (B, J, J), and keep what the backward pass needs of the first pieces of each part.

    Scores have their memory from the beginning: small tensors that stay, allocated between large ones that go, would
    leave holes.
    """
    scores = network.weight.new_empty(len(shares.where))

    def score(work: tuple[Part, Tensor]) -> list[Tensor | None]:
        part, into = work
        own, room = network.on(part), budget // len(shares.parts)
        kept: list[Tensor | None] = []
        for piece, found in zip(part.pieces, into.split_with_sizes(part.pairs), strict=True):
            room -= len(piece.left) * own.kept_per_pair
            done = own.forward(piece, keep=room >= 0)
            own.score(done[-1], found)
            if room >= 0:
                kept += [done[0].stays, *chain.from_iterable(done[1:])]
        return kept

    kept = in_threads(score, list(zip(shares.parts, shares.split(scores), strict=True)))
    return shares.table(scores), kept


def _backward(network: _Network, part: Part, gradient: Tensor, kept: Sequence[Any]) -> list[Tensor]:
    """Turn the gradient by the scores of a part (P,) into those by its rows, left and entered, and by the layers."""
    own = network.on(part)
    g_leave, g_enter, *sums = (torch.zeros_like(t) for t in (own.leave, own.enter, *own.given))
    size = 1 + 3 * len(own.hidden)
    held = (kept[at : at + size] for at in range(0, len(kept), size))
    for piece, g_scores in zip(part.pieces, gradient.split_with_sizes(part.pairs), strict=True):
        layers = next(held, None)
        done = own.forward(piece, keep=False) if layers is None else _unpack(own, piece, layers)
        g = own.backward(done, g_scores, sums).to(g_leave.dtype)
        g_leave.index_add_(0, piece.left, g)
        g_enter.index_add_(0, piece.entered, g)
    return [g_leave, g_enter, *sums]


def _unpack(network: _Network, piece: Piece, kept: Sequence[Any]) -> list[Hidden]:
    """Return the hidden layers of a piece from what was kept of them."""
    later = zip(kept[1::3], kept[2::3], kept[3::3], strict=True)
    return [network.first(piece, kept[0]), *(Hidden(*layer) for layer in later)]
