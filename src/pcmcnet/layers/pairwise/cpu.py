"""Scores of all ordered pairs on a CPU, chunk of pairs by chunk of pairs, with the backward pass written out.

The formula is that of :mod:`plain`. There the temporaries, of one number per pair and unit, leave the cache and come
fresh from the system each time, which takes longer than the products. So larger batches go in chunks (see
``pair_chunks``), in memory that is used again for the next ones. Those of a wide network are shared out among the
threads. Chunks are cut by the data alone: any number of threads draws the same masks of dropout.

The backward pass needs the activations: they are kept as long as all that is kept is within a
budget, and from then on computed a second time, with the same masks: memory is bounded for any n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pcmcnet.errors import PcmcNetError
from pcmcnet.layers import settings
from pcmcnet.layers.dropout import random_mask
from pcmcnet.layers.generators import generator_on
from pcmcnet.layers.pair_mask import real_pairs
from pcmcnet.layers.pairwise.options import Layer, PairOptions
from pcmcnet.layers.pairwise.pair_chunks import Chunk, cut_pairs, cut_rows, within
from pcmcnet.layers.pairwise.plain import plain_scores
from pcmcnet.layers.threads import in_threads, threads
from pcmcnet.layers.transforms import pull_back


def chunked_scores(
    leave: Tensor, enter: Tensor, layers: Sequence[Layer], options: PairOptions, mask: Tensor | None = None
) -> Tensor:
    """Score all ordered pairs of each set: (B, J, H), (B, J, H) -> (B, J, J); at least one layer.

    With a mask (B, J) those of two different real alternatives, and anything elsewhere.
    """
    flat = list(chain.from_iterable(layers))
    widest = max([1, *(weight.shape[1] for weight, _ in layers)])
    parts = share_out(mask, leave.shape, widest, options)
    if torch.is_grad_enabled() and any(t.requires_grad for t in (leave, enter, *flat)):
        scores = _PairScores.apply(parts, options, leave, enter, *flat)  # type: ignore[no-untyped-call]
        assert isinstance(scores, Tensor)
        return scores
    scores, _ = _forward(_Network(options, leave, enter, *flat), parts)
    return scores


# -- who computes which pairs ---------------------------------------------------------------------------------------


class Part(NamedTuple):
    """Chunks that one thread computes, one after the other, and a seed of the masks of dropout for each."""

    sets: slice  # that it has pairs of
    chunks: Sequence[Chunk]
    seeds: list[int]


def share_out(mask: Tensor | None, shape: torch.Size, widest: int, options: PairOptions) -> list[Part]:
    """Cut the pairs of sets, whose halves have a shape (B, J, H), into chunks, and share them out among the threads."""
    sets, places, _ = shape
    if widest < options.single_pairs_from:
        sizes = [places] * sets if mask is None else (mask * torch.arange(1, places + 1)).amax(1).tolist()
        rows = list(cut_rows(sizes, max(options.chunk_numbers // widest, 1)))
        return [Part(slice(0, sets), rows, _seeds(len(rows), options))]
    real = torch.ones(sets, places, places, dtype=torch.bool) if mask is None else real_pairs(mask)
    where = real.flatten().nonzero().squeeze(1)
    numbers = len(where) * widest
    even = settings.CPU_CHUNKS_MULTIPLE * math.ceil(numbers / (settings.CPU_CHUNKS_MULTIPLE * options.chunk_numbers))
    pairs = cut_pairs(where, places, max(min(even, numbers // options.least_chunk_numbers), 1))
    seeds, parts = _seeds(len(pairs), options), max(min(threads(), len(pairs)), 1)
    ends = pairwise(len(pairs) * k // parts for k in range(parts + 1))
    return [Part(*within(pairs[a:b], places), seeds[a:b]) for a, b in ends if a < b]


def _seeds(number: int, options: PairOptions) -> list[int]:
    if not options.dropout:
        return [0] * number
    drawn = torch.randint(2**63 - 1, (number,), generator=generator_on(torch.device("cpu")), device="cpu")
    seeds: list[int] = drawn.tolist()
    return seeds


# -- the network on a chunk of P pairs ----------------------------------------------------------------------------


class Hidden(NamedTuple):
    """A hidden layer on a chunk."""

    result: Tensor  # (P, H) after dropout, but for its scale, which is in the weights
    seen: Tensor  # (P, H) what the derivative of the activation is told from
    stays: Tensor | None  # (P, H) the mask of dropout


class _Network:
    """The layers in the type of the products, with the scale of dropout taken into the weights."""

    def __init__(self, options: PairOptions, leave: Tensor, enter: Tensor, *flat: Tensor) -> None:
        self.options, self.rule, self.scale = options, options.rule, 1 / (1 - options.dropout)
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
        """Make memory for the layers after the first of as many chunks as leave what stays within a budget."""
        room = (budget - size * self.kept_per_pair for size in accumulate(map(len, part.chunks)))
        chunks = [chunk for chunk, left in zip(part.chunks, room, strict=True) if left >= 0]
        return [[bias.new_empty(len(chunk), len(bias)) for _, bias in self.hidden] for chunk in chunks]

    @property
    def kept_per_pair(self) -> int:
        """Bytes per pair of all that ``forward`` leaves for the backward pass."""
        tensors = 2 if self.rule.of_input else 1
        later = sum(len(bias) for _, bias in self.hidden)
        masks = self.leave.shape[-1] + later if self.options.dropout else 0
        return later * tensors * self.options.dtype.itemsize + masks

    def temporary(self, name: str, pairs: int, width: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return memory that is used for every chunk again."""
        memory = self.temporaries.get(name)
        if memory is None or len(memory) < pairs:
            memory = self.temporaries[name] = torch.empty(pairs, width, dtype=dtype or self.options.dtype)
        return memory if len(memory) == pairs else memory[:pairs]

    def forward(self, chunk: Chunk, seed: int, memory: Sequence[Tensor] | None = None) -> list[Hidden]:
        """Compute the hidden layers, those after the first in memory of their own if it is given."""
        pairs, generator = len(chunk), torch.Generator().manual_seed(seed) if self.options.dropout else None
        done = [self.first(chunk, self.mask(pairs, self.leave.shape[-1], generator))]
        for k, (weight, bias) in enumerate(self.hidden):
            h = self.temporary(f"layer {k}", pairs, len(bias)) if memory is None else memory[k]
            torch.addmm(bias, done[-1].result, weight.t(), out=h)
            done.append(self.activate(h, self.mask(pairs, len(bias), generator)))
        return done

    def first(self, chunk: Chunk, stays: Tensor | None) -> Hidden:
        """Add the two halves of the first layer, pair by pair: cheap enough to be done again in the backward pass."""
        h = chunk.halves(self.leave, self.enter, self.temporary)
        if h.dtype != self.options.dtype:
            h = self.temporary("first", *h.shape).copy_(h)
        return self.activate(h, stays)

    def mask(self, pairs: int, width: int, generator: torch.Generator | None) -> Tensor | None:
        return random_mask((pairs, width), self.options.dropout, generator) if generator else None

    def activate(self, h: Tensor, stays: Tensor | None) -> Hidden:
        y = self.rule.apply(h)
        seen = h if self.rule.of_input else y
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
            self.rule.pull_back_(self.drop_(g, done[k].stays), done[k].seen)
            _add_product_(sums[2 * k - 2], g.t(), done[k - 1].result)
            sums[2 * k - 1].add_(g.sum(0, dtype=sums[0].dtype))
            weight, _ = self.hidden[k - 1]
            g = torch.mm(g, weight, out=self.temporary(f"gradient {k - 1}", len(g), weight.shape[1]))
        return self.rule.pull_back_(self.drop_(g, done[0].stays), done[0].seen)


def _add_product_(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b, in the type of the total: sums over chunks in bfloat16 would lose the later ones."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    else:
        total.add_(a @ b)


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: list[Part], options: PairOptions, *inputs: Tensor) -> Tensor:
        scores, kept = _forward(_Network(options, *inputs), parts, budget=options.budget(inputs[0].device))
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
            "second derivatives of pairwise rates with dropout: its masks are drawn chunk by chunk, and once. Call "
            "eval() on the module first, or give it dropout=0."
        )
    counted = torch.zeros_like(gradient)
    for chunk in chain.from_iterable(part.chunks for part in parts):
        chunk.put(gradient.new_ones(len(chunk)), counted)

    def scores(leave: Tensor, enter: Tensor, *flat: Tensor) -> Tensor:
        return plain_scores(leave, enter, list(zip(flat[::2], flat[1::2], strict=True)), options)

    return pull_back(scores, inputs, gradient * counted)


def _forward(network: _Network, parts: list[Part], *, budget: int = 0) -> tuple[Tensor, list[list[Tensor | None]]]:
    """Score all pairs: (B, J, J), and keep what the backward pass needs of the first chunks of each part."""
    scores = network.weight.new_zeros(*network.leave.shape[:2], network.leave.shape[1])

    def score(work: tuple[Part, list[list[Tensor]]]) -> list[Tensor | None]:
        part, memory = work
        own, kept = network.on(part), list[Tensor | None]()
        for at, (chunk, seed) in enumerate(zip(part.chunks, part.seeds, strict=True)):
            done = own.forward(chunk, seed, memory[at] if at < len(memory) else None)
            chunk.put(own.scores(done[-1]), scores)
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
    for chunk, seed in zip(part.chunks, part.seeds, strict=True):
        layers = next(held, None)
        done = own.forward(chunk, seed) if layers is None else _unpack(own, chunk, layers)
        chunk.sum_up(own.backward(done, chunk.take(gradient), sums), g_leave, g_enter)
    return [g_leave, g_enter, *sums]


def _unpack(network: _Network, chunk: Chunk, kept: Sequence[Any]) -> list[Hidden]:
    """Return the hidden layers of a chunk from what was kept of them."""
    later = zip(kept[1::3], kept[2::3], kept[3::3], strict=True)
    return [network.first(chunk, kept[0]), *(Hidden(*layer) for layer in later)]
