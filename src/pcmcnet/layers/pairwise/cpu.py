"""Scores of all ordered pairs by torch's own operators: all pairs at once, or, on a CPU, chunk by chunk.

    h = leave_i + enter_j,    then for every layer    h <- W (m * a(h)) / (1 - p) + b

with the activation a, the mask m of dropout and its probability p. The last layer has one output, the score. All other
implementations compute the same. ``plain_scores`` takes all pairs at once, and can be compiled, transformed and
differentiated in every way.

Its temporaries, of one number per pair and unit, leave the cache of a CPU and come fresh from the system each time,
which takes longer than the products. So larger batches go in chunks of pairs, in memory that is used again for the next
ones, with the backward pass written out (``chunked_scores``). Padding is in no chunk. They are cut in two ways:

    rows     as many rows (set, i) as make so many pairs. Sets of one size that stand side by side go together. Halves
             are added, and gradients summed, block by block: for narrow networks, where these are much of the work.
    pairs    so many pairs one by one, found by their indices, without those of an alternative with itself. All chunks
             have one size and take few calls, which is what threads want: for wide networks.

Chunks are cut by the data alone: any number of threads draws the same masks of dropout. The backward pass needs the
activations: they are kept as long as all that is kept is within a budget, and from then on computed a second time, with
the same masks: memory is bounded for any n.
Shapes: leave and enter (B, J, H) -> scores (B, J, J), row i being left and column j entered; a chunk is a table (P, .).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, pairwise, product
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pcmcnet.errors import PcmcNetError
from pcmcnet.layers import settings
from pcmcnet.layers.generators import generator_on
from pcmcnet.layers.pairwise.rate_forms import Layer, PairOptions
from pcmcnet.layers.perceptron import apply_dropout, random_mask
from pcmcnet.layers.tensor_ops import pull_back, real_pairs
from pcmcnet.layers.threads import run_in_threads, threads

Memory = Callable[[str, int, int, torch.dtype], Tensor]  # name, pairs, width, type -> (pairs, width) to write to


def plain_scores(leave: Tensor, enter: Tensor, layers: Sequence[Layer], options: PairOptions) -> Tensor:
    """Evaluate the formula on all pairs at once: (B, J, H), (B, J, H) -> (B, J, J)."""
    sets, places, _ = leave.shape
    grid = leave.unsqueeze(2) + enter.unsqueeze(1)
    h = grid.flatten(0, 2)  # products of more dimensions take more calls
    for k, (weight, bias) in enumerate(layers, 1):
        kind = options.dtype if k < len(layers) else weight.dtype
        h = apply_dropout(options.rule.apply(h.to(options.dtype)), options.dropout)
        h = F.linear(h.to(kind), weight.to(kind), bias.to(kind))
    return h.view(sets, places, places)


# -- chunks of pairs ---------------------------------------------------------------------------------------------------


class RowSegment(NamedTuple):
    """Rows ``begin`` to ``end`` of the pairs of the sets ``first`` to ``last``, each of ``n`` alternatives."""

    first: int
    last: int
    begin: int
    end: int
    n: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Sets, rows, columns."""
        return self.last - self.first, self.end - self.begin, self.n

    def of(self, grid: Tensor) -> Tensor:  # (B, J, J) -> (sets, rows, n)
        """Return this part of a table over all pairs."""
        return grid[self.first : self.last, self.begin : self.end, : self.n]

    def left(self, rows: Tensor) -> Tensor:  # (B, J, H) -> (sets, rows, H)
        """Return what is left in these pairs."""
        return rows[self.first : self.last, self.begin : self.end]

    def entered(self, rows: Tensor) -> Tensor:  # (B, J, H) -> (sets, n, H)
        """Return what is entered in these pairs."""
        return rows[self.first : self.last, : self.n]


@dataclass(frozen=True)
class RowChunk:
    """All pairs of some rows, segment after segment."""

    segments: list[RowSegment]

    def __len__(self) -> int:
        return sum(math.prod(segment.shape) for segment in self.segments)

    def halves(self, leave: Tensor, enter: Tensor, memory: Memory) -> Tensor:  # (B, J, H), (B, J, H) -> (P, H)
        """Add what is left and what is entered, block by block."""
        h = memory("sum", len(self), leave.shape[-1], leave.dtype)
        for segment, block in self.blocks(h):
            torch.add(segment.left(leave).unsqueeze(2), segment.entered(enter).unsqueeze(1), out=block)
        return h

    def put(self, scores: Tensor, table: Tensor) -> None:  # (P,), (B, J, J)
        """Write scores to their places."""
        for segment, block in self.blocks(scores):
            segment.of(table).copy_(block)

    def take(self, table: Tensor) -> Tensor:  # (B, J, J) -> (P,)
        """Read scores from their places."""
        return torch.cat([segment.of(table).flatten() for segment in self.segments])

    def sum_up(self, g: Tensor, g_leave: Tensor, g_enter: Tensor) -> None:  # (P, H), (B, J, H), (B, J, H)
        """Add gradients by the sums of halves to those by the halves."""
        for segment, block in self.blocks(g):
            segment.left(g_leave).copy_(block.sum(2, dtype=g_leave.dtype))  # no other chunk has these rows
            segment.entered(g_enter).add_(block.sum(1, dtype=g_enter.dtype))

    def blocks(self, flat: Tensor) -> Iterator[tuple[RowSegment, Tensor]]:
        """Go through the segments, each with its part of a table (P, ...) as (sets, rows, n, ...)."""
        begin = 0
        for segment in self.segments:
            end = begin + math.prod(segment.shape)
            yield segment, flat[begin:end].view(*segment.shape, *flat.shape[1:])
            begin = end


def cut_rows(sizes: Sequence[int], pairs: int) -> Iterator[RowChunk]:
    """Cut sets into chunks of at most so many pairs: sets of one size together, rows of a set too large for a chunk."""
    chunk: list[RowSegment] = []
    room, first = pairs, 0
    for n, run in groupby(sizes):
        end = first + len(list(run))
        # 1. Sets larger than a chunk: some rows of one set each.
        if n**2 > pairs:
            rows = min(math.ceil(n / math.ceil(n**2 / pairs)), max(pairs // n, 1))  # chunks of like size
            for k, i in product(range(first, end), range(0, n, rows)):
                yield RowChunk([RowSegment(k, k + 1, i, min(i + rows, n), n)])
        # 2. Others fill up the chunk, as many at a time as it has room for.
        while first < end and 0 < n**2 <= pairs:
            if room < n**2:
                yield RowChunk(chunk)
                chunk, room = [], pairs
            last = min(first + room // n**2, end)
            chunk.append(RowSegment(first, last, 0, n, n))
            room -= (last - first) * n**2
            first = last
        first = end
    if chunk:
        yield RowChunk(chunk)


@dataclass(frozen=True)
class PairChunk:
    """Single pairs."""

    where: Tensor  # (P,) among the scores of all sets, flat
    left: Tensor  # (P,) among the rows of the halves given, flat
    entered: Tensor  # (P,) likewise

    def __len__(self) -> int:
        return len(self.where)

    def halves(self, leave: Tensor, enter: Tensor, memory: Memory) -> Tensor:  # (B, J, H), (B, J, H) -> (P, H)
        """Add what is left and what is entered, both copied pair by pair."""
        shape, kind = (len(self), leave.shape[-1]), leave.dtype
        h = torch.index_select(leave.flatten(0, 1), 0, self.left, out=memory("left", *shape, kind))
        h += torch.index_select(enter.flatten(0, 1), 0, self.entered, out=memory("entered", *shape, kind))
        return h

    def put(self, scores: Tensor, table: Tensor) -> None:  # (P,), (B, J, J)
        """Write scores to their places."""
        table.view(-1).index_copy_(0, self.where, scores)

    def take(self, table: Tensor) -> Tensor:  # (B, J, J) -> (P,)
        """Read scores from their places."""
        return table.view(-1).index_select(0, self.where)

    def sum_up(self, g: Tensor, g_leave: Tensor, g_enter: Tensor) -> None:  # (P, H), (B, J, H), (B, J, H)
        """Add gradients by the sums of halves to those by the halves."""
        g = g.to(g_leave.dtype)
        g_leave.view(-1, g.shape[1]).index_add_(0, self.left, g)
        g_enter.view(-1, g.shape[1]).index_add_(0, self.entered, g)


CpuChunk = RowChunk | PairChunk  # some pairs of a batch, P of them


def cut_pairs(where: Tensor, places: int, chunks: int) -> list[PairChunk]:
    """Cut pairs, given by their places (P,) in B x J x J, into so many chunks of one size, or fewer."""
    left = where // places
    entered = left - left % places + where % places
    made = zip(*(rows.tensor_split(chunks) for rows in (where, left, entered)), strict=True)
    return [PairChunk(*each) for each in made if len(each[0])]


def restrict_to_sets(chunks: Sequence[PairChunk], places: int) -> tuple[slice, list[PairChunk]]:
    """Return the sets that chunks in their order have pairs of, and the chunks for the halves of these alone."""
    first, last = (int(row) // places for row in (chunks[0].left[0], chunks[-1].left[-1]))
    start = first * places
    return slice(first, last + 1), [PairChunk(each.where, each.left - start, each.entered - start) for each in chunks]


# -- scores chunk by chunk ---------------------------------------------------------------------------------------------


def chunked_scores(
    leave: Tensor, enter: Tensor, layers: Sequence[Layer], options: PairOptions, mask: Tensor | None = None
) -> Tensor:
    """Score all ordered pairs of each set: (B, J, H), (B, J, H) -> (B, J, J); at least one layer.

    With a mask (B, J) those of two different real alternatives, and anything elsewhere.
    """
    flat = list(chain.from_iterable(layers))
    widest = max([1, *(weight.shape[1] for weight, _ in layers)])
    parts = chunks_by_thread(mask, leave.shape, widest, options)
    if torch.is_grad_enabled() and any(t.requires_grad for t in (leave, enter, *flat)):
        scores = _PairScores.apply(parts, options, leave, enter, *flat)  # type: ignore[no-untyped-call]
        assert isinstance(scores, Tensor)
        return scores
    scores, _ = _forward(_CpuPairNetwork(options, leave, enter, *flat), parts)
    return scores


class ThreadChunks(NamedTuple):
    """Chunks that one thread computes, one after the other, and a seed of the masks of dropout for each."""

    sets: slice  # that it has pairs of
    chunks: Sequence[CpuChunk]
    seeds: list[int]


def chunks_by_thread(mask: Tensor | None, shape: torch.Size, widest: int, options: PairOptions) -> list[ThreadChunks]:
    """Cut the pairs of sets, whose halves have a shape (B, J, H), into chunks, and share them out among the threads."""
    sets, places, _ = shape
    # 1. A narrow network: whole rows, one thread.
    if widest < options.single_pairs_from:
        sizes = [places] * sets if mask is None else (mask * torch.arange(1, places + 1)).amax(1).tolist()
        rows = list(cut_rows(sizes, max(options.chunk_numbers // widest, 1)))
        return [ThreadChunks(slice(0, sets), rows, _seeds(len(rows), options))]
    # 2. A wide one: single pairs, in as many chunks of one size as threads share evenly.
    real = torch.ones(sets, places, places, dtype=torch.bool) if mask is None else real_pairs(mask)
    where = real.flatten().nonzero().squeeze(1)
    numbers = len(where) * widest
    even = settings.CPU_CHUNKS_MULTIPLE * math.ceil(numbers / (settings.CPU_CHUNKS_MULTIPLE * options.chunk_numbers))
    pairs = cut_pairs(where, places, max(min(even, numbers // options.least_chunk_numbers), 1))
    # 3. Consecutive chunks for each thread, with the sets that they need.
    seeds, parts = _seeds(len(pairs), options), max(min(threads(), len(pairs)), 1)
    ends = pairwise(len(pairs) * k // parts for k in range(parts + 1))
    return [ThreadChunks(*restrict_to_sets(pairs[a:b], places), seeds[a:b]) for a, b in ends if a < b]


def _seeds(number: int, options: PairOptions) -> list[int]:
    if not options.dropout:
        return [0] * number
    drawn = torch.randint(2**63 - 1, (number,), generator=generator_on(torch.device("cpu")), device="cpu")
    seeds: list[int] = drawn.tolist()
    return seeds


# -- the network on a chunk of P pairs ----------------------------------------------------------------------------


class HiddenValues(NamedTuple):
    """A hidden layer on a chunk."""

    result: Tensor  # (P, H) after dropout, but for its scale, which is in the weights
    seen: Tensor  # (P, H) what the derivative of the activation is told from
    stays: Tensor | None  # (P, H) the mask of dropout


class _CpuPairNetwork:
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

    def on(self, part: ThreadChunks) -> _CpuPairNetwork:
        """Return this network on the sets of a part, with temporaries of its own."""
        other = copy(self)
        other.leave, other.enter, other.temporaries = self.leave[part.sets], self.enter[part.sets], {}
        return other

    def kept(self, part: ThreadChunks, budget: int) -> list[list[Tensor]]:
        """Make memory for the layers after the first of as many chunks as leave what stays within a budget."""
        room = (budget - size * self.kept_per_pair for size in accumulate(map(len, part.chunks)))
        chunks = [chunk for chunk, left in zip(part.chunks, room, strict=True) if left >= 0]
        return [[bias.new_empty(len(chunk), len(bias)) for _, bias in self.hidden] for chunk in chunks]

    @property
    def kept_per_pair(self) -> int:
        """Bytes per pair of all that ``forward`` leaves for the backward pass."""
        tensors = 2 if self.rule.needs_input else 1
        later = sum(len(bias) for _, bias in self.hidden)
        masks = self.leave.shape[-1] + later if self.options.dropout else 0
        return later * tensors * self.options.dtype.itemsize + masks

    def temporary(self, name: str, pairs: int, width: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return memory that is used for every chunk again."""
        memory = self.temporaries.get(name)
        if memory is None or len(memory) < pairs:
            memory = self.temporaries[name] = torch.empty(pairs, width, dtype=dtype or self.options.dtype)
        return memory if len(memory) == pairs else memory[:pairs]

    def forward(self, chunk: CpuChunk, seed: int, memory: Sequence[Tensor] | None = None) -> list[HiddenValues]:
        """Compute the hidden layers, those after the first in memory of their own if it is given."""
        pairs, generator = len(chunk), torch.Generator().manual_seed(seed) if self.options.dropout else None
        done = [self.first(chunk, self.mask(pairs, self.leave.shape[-1], generator))]
        for k, (weight, bias) in enumerate(self.hidden):
            h = self.temporary(f"layer {k}", pairs, len(bias)) if memory is None else memory[k]
            torch.addmm(bias, done[-1].result, weight.t(), out=h)
            done.append(self.activate(h, self.mask(pairs, len(bias), generator)))
        return done

    def first(self, chunk: CpuChunk, stays: Tensor | None) -> HiddenValues:
        """Add the two halves of the first layer, pair by pair: cheap enough to be done again in the backward pass."""
        h = chunk.halves(self.leave, self.enter, self.temporary)
        if h.dtype != self.options.dtype:
            h = self.temporary("first", *h.shape).copy_(h)
        return self.activate(h, stays)

    def mask(self, pairs: int, width: int, generator: torch.Generator | None) -> Tensor | None:
        return random_mask((pairs, width), self.options.dropout, generator) if generator else None

    def activate(self, h: Tensor, stays: Tensor | None) -> HiddenValues:
        y = self.rule.apply(h)
        seen = h if self.rule.needs_input else y
        return HiddenValues(self.drop_(y, stays), seen, stays)

    def drop_(self, h: Tensor, stays: Tensor | None) -> Tensor:
        return h if stays is None else h.mul_(self.temporary(f"mask {h.shape[1]}", *h.shape).copy_(stays))

    def backward(self, done: list[HiddenValues], g_scores: Tensor, sums: list[Tensor]) -> Tensor:
        """Turn the gradient by the scores (P,) into that by the first sum (P, H), and add up those by the layers."""
        # 1. The output layer.
        sums[-2][0].addmv_(done[-1].result.to(g_scores.dtype).t(), g_scores)
        sums[-1].add_(g_scores.sum())
        g = self.temporary(f"gradient {len(self.hidden)}", *done[-1].result.shape)
        torch.mul(g_scores.to(g.dtype).unsqueeze(1), self.slope, out=g)
        # 2. The hidden layers, from the last on: dropout and activation, then the product.
        for k in range(len(self.hidden), 0, -1):
            self.rule.pull_back_(self.drop_(g, done[k].stays), done[k].seen)
            # Sums over chunks have the type of the weights: in bfloat16 they would lose the later ones.
            total, h = sums[2 * k - 2], done[k - 1].result
            if g.dtype == total.dtype:
                total.addmm_(g.t(), h)
            else:
                total.add_(g.t() @ h)
            sums[2 * k - 1].add_(g.sum(0, dtype=sums[0].dtype))
            weight, _ = self.hidden[k - 1]
            g = torch.mm(g, weight, out=self.temporary(f"gradient {k - 1}", len(g), weight.shape[1]))
        return self.rule.pull_back_(self.drop_(g, done[0].stays), done[0].seen)


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: list[ThreadChunks], options: PairOptions, *inputs: Tensor) -> Tensor:
        scores, kept = _forward(_CpuPairNetwork(options, *inputs), parts, budget=options.budget(inputs[0].device))
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
        # 1. Each thread turns the gradient of its part into sums of its own.
        network = _CpuPairNetwork(ctx.options, *inputs)
        sums = [torch.zeros_like(t, memory_format=torch.contiguous_format) for t in inputs]
        found = run_in_threads(lambda work: _backward(network, *work, gradient), list(zip(parts, kept, strict=True)))
        # 2. Add these up in the order of the parts; the scale of dropout belongs to the weights.
        for part, own in zip(parts, found, strict=True):
            for total, g in zip((sums[0][part.sets], sums[1][part.sets], *sums[2:]), own, strict=True):
                total += g
        for g in sums[2::2]:
            g.mul_(network.scale)
        return None, None, *sums


def _differentiable(
    options: PairOptions, parts: list[ThreadChunks], gradient: Tensor, *inputs: Tensor
) -> tuple[Tensor, ...]:
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


def _forward(
    network: _CpuPairNetwork, parts: list[ThreadChunks], *, budget: int = 0
) -> tuple[Tensor, list[list[Tensor | None]]]:
    """Score all pairs: (B, J, J), and keep what the backward pass needs of the first chunks of each part."""
    scores = network.weight.new_zeros(*network.leave.shape[:2], network.leave.shape[1])

    def score(work: tuple[ThreadChunks, list[list[Tensor]]]) -> list[Tensor | None]:
        part, memory = work
        own, kept = network.on(part), list[Tensor | None]()
        for at, (chunk, seed) in enumerate(zip(part.chunks, part.seeds, strict=True)):
            done = own.forward(chunk, seed, memory[at] if at < len(memory) else None)
            chunk.put(torch.addmv(own.bias, done[-1].result.to(own.weight.dtype), own.weight), scores)
            if at < len(memory):
                kept += [done[0].stays, *chain.from_iterable(done[1:])]
        return kept

    # From this thread: what one of the others frees goes back to the system, and comes fresh from it each time.
    memory = [network.kept(part, budget // len(parts)) for part in parts]
    return scores, run_in_threads(score, list(zip(parts, memory, strict=True)))


def _backward(network: _CpuPairNetwork, part: ThreadChunks, kept: Sequence[Any], gradient: Tensor) -> list[Tensor]:
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


def _unpack(network: _CpuPairNetwork, chunk: CpuChunk, kept: Sequence[Any]) -> list[HiddenValues]:
    """Return the hidden layers of a chunk from what was kept of them."""
    later = zip(kept[1::3], kept[2::3], kept[3::3], strict=True)
    return [network.first(chunk, kept[0]), *(HiddenValues(*layer) for layer in later)]
