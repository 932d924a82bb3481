"""Scores of all ordered pairs of alternatives, the n^2 part of PCMC-Net.

    h = leave_i + enter_j,    then for every layer    h <- W (m * a(h)) / (1 - p) + b

with the activation a, the mask m of dropout and its probability p. The last layer has one output, the score.
Shapes: leave and enter (B, J, H) -> scores (B, J, J), row i being left and column j entered.

:func:`plain_scores` is that formula on a whole batch. On a CPU its temporaries, of one number per pair and unit, leave
the cache and come fresh from the system each time, which takes longer than the products. So larger batches go in
pieces (see ``pieces``), in memory that is used again for the next ones. Those of a wide network are shared out among
the threads. Pieces are cut by the data alone: any number of threads draws the same masks of dropout.

The backward pass is written out. It needs the activations: they are kept as long as all that is kept is within a
budget, and from then on computed a second time, with the same masks: memory is bounded for any n.
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

from pcmcnet.errors import PcmcNetError
from pcmcnet.layers.activations import ActivationRule
from pcmcnet.layers.dropout import dropped, random_mask
from pcmcnet.layers.generators import generator_on
from pcmcnet.layers.pair_mask import real_pairs
from pcmcnet.layers.pairwise.pair_chunks import Piece, cut_pairs, cut_rows, within
from pcmcnet.layers.threads import in_threads
from pcmcnet.layers.transforms import is_transformed, pull_back

SMALL = 2**16  # numbers in the widest temporary: up to here the plain formula is as fast
PIECE = 2**19  # numbers in a temporary of a piece, at most: 2 MiB of float32
LEAST = 2**18  # and at least, if threads are to share
EVEN = 16  # large batches are cut into a multiple of it, so that most numbers of threads share them evenly
WIDE = 256  # units from which single pairs, and threads for parts of them, are faster than rows
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
    small, piece, least, wide, kept
        Numbers up to which the plain formula serves, numbers in a temporary of a piece at most and at least, units from
        which threads share the pieces, and bytes kept for the backward pass.
    """

    activation: ActivationRule
    dropout: float = 0.0
    dtype: torch.dtype = torch.float32
    small: int = SMALL
    piece: int = PIECE
    least: int = LEAST
    wide: int = WIDE
    kept: int = KEPT


def pair_scores(
    leave: Tensor, enter: Tensor, layers: Sequence[Layer], options: PairOptions, mask: Tensor | None = None
) -> Tensor:
    """Score all ordered pairs of each set: (B, J, H), (B, J, H) -> (B, J, J).

    With a mask (B, J) those of two different real alternatives, and anything elsewhere.
    """
    sets, places, _ = leave.shape
    widest, flat = max([1, *(weight.shape[1] for weight, _ in layers)]), list(chain.from_iterable(layers))
    if not layers or leave.device.type != "cpu" or torch.compiler.is_compiling():
        return plain_scores(leave, enter, layers, options)
    if sets * places**2 * widest <= options.small or is_transformed(leave, enter, *flat):
        return plain_scores(leave, enter, layers, options)
    parts = share_out(mask, leave.shape, widest, options)
    if torch.is_grad_enabled() and any(t.requires_grad for t in (leave, enter, *flat)):
        scores = _PairScores.apply(parts, options, leave, enter, *flat)  # type: ignore[no-untyped-call]
        assert isinstance(scores, Tensor)
        return scores
    scores, _ = _forward(_Network(options, leave, enter, *flat), parts)
    return scores


def plain_scores(leave: Tensor, enter: Tensor, layers: Sequence[Layer], options: PairOptions) -> Tensor:
    """Evaluate the formula on all pairs at once: (B, J, H), (B, J, H) -> (B, J, J)."""
    sets, places, _ = leave.shape
    grid = leave.unsqueeze(2) + enter.unsqueeze(1)
    h = grid.flatten(0, 2)  # products of more dimensions take more calls
    for k, (weight, bias) in enumerate(layers, 1):
        kind = options.dtype if k < len(layers) else weight.dtype
        h = dropped(options.activation.apply(h.to(options.dtype)), options.dropout)
        h = F.linear(h.to(kind), weight.to(kind), bias.to(kind))
    return h.view(sets, places, places)


# -- who computes which pairs ---------------------------------------------------------------------------------------


class Part(NamedTuple):
    """Pieces that one thread computes, one after the other, and a seed of the masks of dropout for each."""

    sets: slice  # that it has pairs of
    pieces: Sequence[Piece]
    seeds: list[int]


def share_out(mask: Tensor | None, shape: torch.Size, widest: int, options: PairOptions) -> list[Part]:
    """Cut the pairs of sets, whose halves have a shape (B, J, H), into pieces, and share them out among the threads."""
    sets, places, _ = shape
    if widest < options.wide:
        sizes = [places] * sets if mask is None else (mask * torch.arange(1, places + 1)).amax(1).tolist()
        rows = list(cut_rows(sizes, max(options.piece // widest, 1)))
        return [Part(slice(0, sets), rows, _seeds(len(rows), options))]
    real = torch.ones(sets, places, places, dtype=torch.bool) if mask is None else real_pairs(mask)
    where = real.flatten().nonzero().squeeze(1)
    numbers = len(where) * widest
    even = EVEN * math.ceil(numbers / (EVEN * options.piece))
    pairs = cut_pairs(where, places, max(min(even, numbers // options.least), 1))
    seeds, parts = _seeds(len(pairs), options), max(min(torch.get_num_threads(), len(pairs)), 1)
    ends = pairwise(len(pairs) * k // parts for k in range(parts + 1))
    return [Part(*within(pairs[a:b], places), seeds[a:b]) for a, b in ends if a < b]


def _seeds(number: int, options: PairOptions) -> list[int]:
    if not options.dropout:
        return [0] * number
    drawn = torch.randint(2**63 - 1, (number,), generator=generator_on(torch.device("cpu")), device="cpu")
    seeds: list[int] = drawn.tolist()
    return seeds


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
        weight, self.bias = layers[-1]
        self.weight, self.slope = weight[0], weight.to(options.dtype)
        self.given = flat
        self.temporaries: dict[str, Tensor] = {}

    def on(self, part: Part) -> _Network:
        """Return this network on the sets of a part, with temporaries of its own."""
        other = copy(self)
        other.leave, other.enter, other.temporaries = self.leave[part.sets], self.enter[part.sets], {}
        return other

    def kept(self, part: Part, budget: int) -> list[list[Tensor]]:
        """Make memory for the layers after the first of as many pieces as leave what stays within a budget."""
        room = (budget - size * self.kept_per_pair for size in accumulate(map(len, part.pieces)))
        pieces = [piece for piece, left in zip(part.pieces, room, strict=True) if left >= 0]
        return [[bias.new_empty(len(piece), len(bias)) for _, bias in self.hidden] for piece in pieces]

    @property
    def kept_per_pair(self) -> int:
        """Bytes per pair of all that ``forward`` leaves for the backward pass."""
        tensors = 2 if self.options.activation.of_input else 1
        later = sum(len(bias) for _, bias in self.hidden)
        masks = self.leave.shape[-1] + later if self.options.dropout else 0
        return later * tensors * self.options.dtype.itemsize + masks

    def temporary(self, name: str, pairs: int, width: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return memory that is used for every piece again."""
        memory = self.temporaries.get(name)
        if memory is None or len(memory) < pairs:
            memory = self.temporaries[name] = torch.empty(pairs, width, dtype=dtype or self.options.dtype)
        return memory if len(memory) == pairs else memory[:pairs]

    def forward(self, piece: Piece, seed: int, memory: Sequence[Tensor] | None = None) -> list[Hidden]:
        """Compute the hidden layers, those after the first in memory of their own if it is given."""
        pairs, generator = len(piece), torch.Generator().manual_seed(seed) if self.options.dropout else None
        done = [self.first(piece, self.mask(pairs, self.leave.shape[-1], generator))]
        for k, (weight, bias) in enumerate(self.hidden):
            h = self.temporary(f"layer {k}", pairs, len(bias)) if memory is None else memory[k]
            torch.addmm(bias, done[-1].result, weight.t(), out=h)
            done.append(self.activate(h, self.mask(pairs, len(bias), generator)))
        return done

    def first(self, piece: Piece, stays: Tensor | None) -> Hidden:
        """Add the two halves of the first layer, pair by pair: cheap enough to be done again in the backward pass."""
        h = piece.halves(self.leave, self.enter, self.temporary)
        if h.dtype != self.options.dtype:
            h = self.temporary("first", *h.shape).copy_(h)
        return self.activate(h, stays)

    def mask(self, pairs: int, width: int, generator: torch.Generator | None) -> Tensor | None:
        return random_mask((pairs, width), self.options.dropout, generator) if generator else None

    def activate(self, h: Tensor, stays: Tensor | None) -> Hidden:
        y = self.options.activation.apply(h)
        seen = h if self.options.activation.of_input else y
        return Hidden(self.drop_(y, stays), seen, stays)

    def drop_(self, h: Tensor, stays: Tensor | None) -> Tensor:
        return h if stays is None else h.mul_(self.temporary(f"mask {h.shape[1]}", *h.shape).copy_(stays))

    def scores(self, last: Hidden) -> Tensor:  # -> (P,)
        return torch.addmv(self.bias, last.result.to(self.weight.dtype), self.weight)

    def backward(self, done: list[Hidden], g_scores: Tensor, sums: list[Tensor]) -> Tensor:
        """Turn the gradient by the scores (P,) into that by the first sum (P, H), and add up those by the layers."""
        sums[-2][0].addmv_(done[-1].result.to(g_scores.dtype).t(), g_scores)
        sums[-1].add_(g_scores.sum())
        g = self.temporary(f"gradient {len(self.hidden)}", *done[-1].result.shape)
        torch.mul(g_scores.to(g.dtype).unsqueeze(1), self.slope, out=g)
        for k in range(len(self.hidden), 0, -1):
            self.options.activation.pull_back_(self.drop_(g, done[k].stays), done[k].seen)
            _add_product_(sums[2 * k - 2], g.t(), done[k - 1].result)
            sums[2 * k - 1].add_(g.sum(0, dtype=sums[0].dtype))
            weight, _ = self.hidden[k - 1]
            g = torch.mm(g, weight, out=self.temporary(f"gradient {k - 1}", len(g), weight.shape[1]))
        return self.options.activation.pull_back_(self.drop_(g, done[0].stays), done[0].seen)


def _add_product_(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b, in the type of the total: sums over pieces in bfloat16 would lose the later ones."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    else:
        total.add_(a @ b)


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: list[Part], options: PairOptions, *inputs: Tensor) -> Tensor:
        scores, kept = _forward(_Network(options, *inputs), parts, budget=options.kept)
        ctx.parts, ctx.options = parts, options
        ctx.ends = list(accumulate(map(len, kept), initial=len(inputs)))
        ctx.save_for_backward(*inputs, *chain.from_iterable(kept))
        return scores

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        saved, parts, gradient = ctx.saved_tensors, ctx.parts, gradient.contiguous()
        inputs, kept = saved[: ctx.ends[0]], [saved[a:b] for a, b in pairwise(ctx.ends)]
        if torch.is_grad_enabled():  # create_graph=True
            return None, None, *_differentiable(ctx.options, parts, gradient, *inputs)
        network = _Network(ctx.options, *inputs)
        sums = [torch.zeros_like(t, memory_format=torch.contiguous_format) for t in inputs]
        found = in_threads(lambda work: _backward(network, *work, gradient), list(zip(parts, kept, strict=True)))
        for part, own in zip(parts, found, strict=True):
            for total, g in zip((sums[0][part.sets], sums[1][part.sets], *sums[2:]), own, strict=True):
                total += g
        for g in sums[2::2]:
            g.mul_(network.scale)
        return None, None, *sums


def _differentiable(options: PairOptions, parts: list[Part], gradient: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Find the gradients on all pairs at once, by operators that can be differentiated again."""
    if options.dropout:
        raise PcmcNetError(
            "second derivatives of pairwise rates with dropout: its masks are drawn piece by piece, and once. Call "
            "eval() on the module first, or give it dropout=0."
        )
    counted = torch.zeros_like(gradient)
    for piece in chain.from_iterable(part.pieces for part in parts):
        piece.put(gradient.new_ones(len(piece)), counted)

    def scores(leave: Tensor, enter: Tensor, *flat: Tensor) -> Tensor:
        return plain_scores(leave, enter, list(zip(flat[::2], flat[1::2], strict=True)), options)

    return pull_back(scores, inputs, gradient * counted)


def _forward(network: _Network, parts: list[Part], *, budget: int = 0) -> tuple[Tensor, list[list[Tensor | None]]]:
    """Score all pairs: (B, J, J), and keep what the backward pass needs of the first pieces of each part."""
    scores = network.weight.new_zeros(*network.leave.shape[:2], network.leave.shape[1])

    def score(work: tuple[Part, list[list[Tensor]]]) -> list[Tensor | None]:
        part, memory = work
        own, kept = network.on(part), list[Tensor | None]()
        for at, (piece, seed) in enumerate(zip(part.pieces, part.seeds, strict=True)):
            done = own.forward(piece, seed, memory[at] if at < len(memory) else None)
            piece.put(own.scores(done[-1]), scores)
            if at < len(memory):
                kept += [done[0].stays, *chain.from_iterable(done[1:])]
        return kept

    # From this thread: what one of the others frees goes back to the system, and comes fresh from it each time.
    memory = [network.kept(part, budget // len(parts)) for part in parts]
    return scores, in_threads(score, list(zip(parts, memory, strict=True)))


def _backward(network: _Network, part: Part, kept: Sequence[Any], gradient: Tensor) -> list[Tensor]:
    """Turn the gradient by the scores into those by the halves of a part, left and entered, and by the layers."""
    own = network.on(part)
    kinds = (own.leave, own.enter, *own.given)
    g_leave, g_enter, *sums = (torch.zeros_like(t, memory_format=torch.contiguous_format) for t in kinds)
    size = 1 + 3 * len(own.hidden)
    held = (kept[at : at + size] for at in range(0, len(kept), size))
    for piece, seed in zip(part.pieces, part.seeds, strict=True):
        layers = next(held, None)
        done = own.forward(piece, seed) if layers is None else _unpack(own, piece, layers)
        piece.sum_up(own.backward(done, piece.take(gradient), sums), g_leave, g_enter)
    return [g_leave, g_enter, *sums]


def _unpack(network: _Network, piece: Piece, kept: Sequence[Any]) -> list[Hidden]:
    """Return the hidden layers of a piece from what was kept of them."""
    later = zip(kept[1::3], kept[2::3], kept[3::3], strict=True)
    return [network.first(piece, kept[0]), *(Hidden(*layer) for layer in later)]
