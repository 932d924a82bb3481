"""Scores of all ordered pairs with torch's own operators: all pairs in one pass or, on a CPU, chunk by chunk.

    h = leave_i + enter_j,    then for every layer    h <- W (m * a(h)) / (1 - p) + b

with the activation a, the dropout mask m and the dropout probability p. The last layer has one output, the score. All
other implementations compute the same formula. ``plain_scores`` evaluates the formula on all pairs in one pass, and
supports torch's compiler, every transform and every kind of derivative.

The temporaries of ``plain_scores`` have one number per pair and unit. In large batches, these temporaries exceed the
CPU cache and are allocated anew in each call, which takes longer than the matrix products. Larger batches are therefore
computed in chunks of pairs, in memory that the next chunk reuses, with a backward pass written by hand
(``chunked_scores``). No chunk contains padding. There are two kinds of chunks:

    rows     rows (set, i) with up to a given number of pairs. Adjacent sets of equal size are processed together.
             Halves are added, and gradients summed, block by block. Used for narrow networks, where these sums take
             much of the time.
    pairs    a given number of single pairs, found by their indices, without pairs of an alternative with itself. All
             chunks have about the same size and need few calls, which suits threads. Used for wide networks.

The chunks depend only on the data, so the dropout masks are the same for any number of threads. The activations that
the backward pass needs are saved up to a memory budget. Beyond the budget, activations are recomputed with the same
masks, so that memory is bounded for any n. Shapes: leave and enter (B, J, H) -> scores (B, J, J), for leaving row i and
entering column j; the values of a chunk have shape (P, .).
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
    """Score all pairs in one pass: (B, J, H), (B, J, H) -> (B, J, J)."""
    sets, places, _ = leave.shape
    grid = leave.unsqueeze(2) + enter.unsqueeze(1)
    h = grid.flatten(0, 2)  # products of tensors with more dimensions take more calls
    for k, (weight, bias) in enumerate(layers, 1):
        kind = options.dtype if k < len(layers) else weight.dtype
        h = apply_dropout(options.rule.apply(h.to(options.dtype)), options.dropout)
        h = F.linear(h.to(kind), weight.to(kind), bias.to(kind))
    return h.view(sets, places, places)


# -- chunks of pairs ---------------------------------------------------------------------------------------------------


class RowSegment(NamedTuple):
    """Pairs in rows ``begin`` to ``end`` of the sets ``first`` to ``last``, each of which has ``n`` alternatives."""

    first: int
    last: int
    begin: int
    end: int
    n: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of sets, rows and columns of the segment."""
        return self.last - self.first, self.end - self.begin, self.n

    def of(self, grid: Tensor) -> Tensor:  # (B, J, J) -> (sets, rows, n)
        """Select the pairs of this segment from a table of all pairs."""
        return grid[self.first : self.last, self.begin : self.end, : self.n]

    def left(self, rows: Tensor) -> Tensor:  # (B, J, H) -> (sets, rows, H)
        """Select the rows of the alternatives that are left in the pairs of this segment."""
        return rows[self.first : self.last, self.begin : self.end]

    def entered(self, rows: Tensor) -> Tensor:  # (B, J, H) -> (sets, n, H)
        """Select the rows of the alternatives that are entered in the pairs of this segment."""
        return rows[self.first : self.last, : self.n]


@dataclass(frozen=True)
class RowChunk:
    """A chunk that consists of all pairs of some rows, in segments."""

    segments: list[RowSegment]

    def __len__(self) -> int:
        return sum(math.prod(segment.shape) for segment in self.segments)

    def add_halves(self, leave: Tensor, enter: Tensor, memory: Memory) -> Tensor:  # (B, J, H), (B, J, H) -> (P, H)
        """Return the sum of the two halves of the first layer for each pair, computed block by block."""
        h = memory("sum", len(self), leave.shape[-1], leave.dtype)
        for segment, block in self.blocks(h):
            torch.add(segment.left(leave).unsqueeze(2), segment.entered(enter).unsqueeze(1), out=block)
        return h

    def write_scores(self, scores: Tensor, table: Tensor) -> None:  # (P,), (B, J, J)
        """Write the scores of the chunk to the table of all pairs."""
        for segment, block in self.blocks(scores):
            segment.of(table).copy_(block)

    def read_scores(self, table: Tensor) -> Tensor:  # (B, J, J) -> (P,)
        """Return the entries of the chunk from the table of all pairs."""
        return torch.cat([segment.of(table).flatten() for segment in self.segments])

    def add_gradients(self, g: Tensor, g_leave: Tensor, g_enter: Tensor) -> None:  # (P, H), (B, J, H), (B, J, H)
        """Add the gradients g w.r.t. the sums of first-layer halves to the gradients w.r.t. each half."""
        for segment, block in self.blocks(g):
            segment.left(g_leave).copy_(block.sum(2, dtype=g_leave.dtype))  # these rows are in no other chunk
            segment.entered(g_enter).add_(block.sum(1, dtype=g_enter.dtype))

    def blocks(self, flat: Tensor) -> Iterator[tuple[RowSegment, Tensor]]:
        """Yield each segment together with its block (sets, rows, n, ...) of the flat tensor (P, ...)."""
        begin = 0
        for segment in self.segments:
            end = begin + math.prod(segment.shape)
            yield segment, flat[begin:end].view(*segment.shape, *flat.shape[1:])
            begin = end


def cut_rows(sizes: Sequence[int], pairs: int) -> Iterator[RowChunk]:
    """Yield chunks of at most ``pairs`` pairs: adjacent sets of equal size, or rows of a set that exceeds a chunk."""
    chunk: list[RowSegment] = []
    room, first = pairs, 0
    for n, run in groupby(sizes):
        end = first + len(list(run))
        # 1. A set larger than a chunk is cut into chunks of some of its rows.
        if n**2 > pairs:
            rows = min(math.ceil(n / math.ceil(n**2 / pairs)), max(pairs // n, 1))  # chunks of about equal size
            for k, i in product(range(first, end), range(0, n, rows)):
                yield RowChunk([RowSegment(k, k + 1, i, min(i + rows, n), n)])
        # 2. Smaller sets fill the chunk, as many at a time as there is room for.
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
    """A chunk of single pairs, given by their positions in flattened tensors."""

    positions: Tensor  # (P,) in the scores of all sets
    left: Tensor  # (P,) row of the alternative left, in the halves
    entered: Tensor  # (P,) row of the alternative entered, in the halves

    def __len__(self) -> int:
        return len(self.positions)

    def add_halves(self, leave: Tensor, enter: Tensor, memory: Memory) -> Tensor:  # (B, J, H), (B, J, H) -> (P, H)
        """Return the sum of the two halves of the first layer for each pair, after copying both halves pair by pair."""
        shape, kind = (len(self), leave.shape[-1]), leave.dtype
        h = torch.index_select(leave.flatten(0, 1), 0, self.left, out=memory("left", *shape, kind))
        h += torch.index_select(enter.flatten(0, 1), 0, self.entered, out=memory("entered", *shape, kind))
        return h

    def write_scores(self, scores: Tensor, table: Tensor) -> None:  # (P,), (B, J, J)
        """Write the scores of the chunk to the table of all pairs."""
        table.view(-1).index_copy_(0, self.positions, scores)

    def read_scores(self, table: Tensor) -> Tensor:  # (B, J, J) -> (P,)
        """Return the entries of the chunk from the table of all pairs."""
        return table.view(-1).index_select(0, self.positions)

    def add_gradients(self, g: Tensor, g_leave: Tensor, g_enter: Tensor) -> None:  # (P, H), (B, J, H), (B, J, H)
        """Add the gradients g w.r.t. the sums of first-layer halves to the gradients w.r.t. each half."""
        g = g.to(g_leave.dtype)
        g_leave.view(-1, g.shape[1]).index_add_(0, self.left, g)
        g_enter.view(-1, g.shape[1]).index_add_(0, self.entered, g)


CpuChunk = RowChunk | PairChunk  # P pairs of a batch


def cut_pairs(positions: Tensor, places: int, chunks: int) -> list[PairChunk]:
    """Cut pairs, given by their positions (P,) in B x J x J, into up to ``chunks`` chunks of about equal size."""
    left = positions // places
    entered = left - left % places + positions % places
    columns = (indices.tensor_split(chunks) for indices in (positions, left, entered))
    return [PairChunk(*indices) for indices in zip(*columns, strict=True) if len(indices[0])]


def restrict_to_sets(chunks: Sequence[PairChunk], places: int) -> tuple[slice, list[PairChunk]]:
    """Return the sets that consecutive chunks cover, and the chunks with rows relative to the first of these sets."""
    first, last = (int(row) // places for row in (chunks[0].left[0], chunks[-1].left[-1]))
    start = first * places
    shifted = [PairChunk(chunk.positions, chunk.left - start, chunk.entered - start) for chunk in chunks]
    return slice(first, last + 1), shifted


# -- scores chunk by chunk ---------------------------------------------------------------------------------------------


def chunked_scores(
    leave: Tensor, enter: Tensor, layers: Sequence[Layer], options: PairOptions, mask: Tensor | None = None
) -> Tensor:
    """Score all ordered pairs of each set, with at least one layer: (B, J, H), (B, J, H) -> (B, J, J).

    With a mask (B, J), scores are defined only for pairs of two different real alternatives; other entries are
    arbitrary.
    """
    flat = list(chain.from_iterable(layers))
    widest = max([1, *(weight.shape[1] for weight, _ in layers)])
    work = chunks_by_thread(mask, leave.shape, widest, options)
    if torch.is_grad_enabled() and any(t.requires_grad for t in (leave, enter, *flat)):
        scores = _PairScores.apply(work, options, leave, enter, *flat)  # type: ignore[no-untyped-call]
        assert isinstance(scores, Tensor)
        return scores
    scores, _ = _forward(_CpuPairNetwork(options, leave, enter, *flat), work)
    return scores


class ThreadChunks(NamedTuple):
    """Chunks that one thread processes sequentially, and the dropout seed of each chunk."""

    sets: slice  # the sets with pairs in these chunks
    chunks: Sequence[CpuChunk]
    seeds: list[int]


def chunks_by_thread(mask: Tensor | None, shape: torch.Size, widest: int, options: PairOptions) -> list[ThreadChunks]:
    """Divide the pairs of B sets with up to J alternatives into chunks, and assign the chunks to threads."""
    sets, places, _ = shape
    # 1. A narrow network uses whole rows and one thread.
    if widest < options.single_pairs_from:
        sizes = [places] * sets if mask is None else (mask * torch.arange(1, places + 1)).amax(1).tolist()
        rows = list(cut_rows(sizes, max(options.chunk_numbers // widest, 1)))
        return [ThreadChunks(slice(0, sets), rows, _seeds(len(rows), options))]
    # 2. A wide network uses single pairs, in a number of equal chunks that threads share evenly.
    real = torch.ones(sets, places, places, dtype=torch.bool) if mask is None else real_pairs(mask)
    positions = real.flatten().nonzero().squeeze(1)
    numbers = len(positions) * widest
    even = settings.CPU_CHUNKS_MULTIPLE * math.ceil(numbers / (settings.CPU_CHUNKS_MULTIPLE * options.chunk_numbers))
    pairs = cut_pairs(positions, places, max(min(even, numbers // options.least_chunk_numbers), 1))
    # 3. Each thread gets consecutive chunks, with the sets that they need.
    seeds, workers = _seeds(len(pairs), options), max(min(threads(), len(pairs)), 1)
    ends = pairwise(len(pairs) * k // workers for k in range(workers + 1))
    return [ThreadChunks(*restrict_to_sets(pairs[a:b], places), seeds[a:b]) for a, b in ends if a < b]


def _seeds(number: int, options: PairOptions) -> list[int]:
    """Draw a seed for the dropout masks of each chunk."""
    if not options.dropout:
        return [0] * number
    drawn = torch.randint(2**63 - 1, (number,), generator=generator_on(torch.device("cpu")), device="cpu")
    seeds: list[int] = drawn.tolist()
    return seeds


# -- the network on a chunk of P pairs ----------------------------------------------------------------------------


class HiddenValues(NamedTuple):
    """Values of a hidden layer for the pairs of a chunk."""

    result: Tensor  # (P, H) after dropout; its scale 1 / (1 - p) is part of the weights
    saved: Tensor  # (P, H) input or result of the activation, from which its derivative follows
    mask: Tensor | None  # (P, H) dropout mask


class _CpuPairNetwork:
    """The layers, cast to the dtype of the products, with the dropout scale 1 / (1 - p) absorbed into the weights."""

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
        self.parameters = flat
        self.temporaries: dict[str, Tensor] = {}

    def for_thread(self, part: ThreadChunks) -> _CpuPairNetwork:
        """Return a copy of the network for the sets of one thread, with separate temporaries."""
        other = copy(self)
        other.leave, other.enter, other.temporaries = self.leave[part.sets], self.enter[part.sets], {}
        return other

    def allocate(self, part: ThreadChunks, budget: int) -> list[list[Tensor]]:
        """Allocate memory for the later layers of as many chunks as fit into a memory budget in bytes."""
        room = (budget - size * self.saved_bytes_per_pair for size in accumulate(map(len, part.chunks)))
        chunks = [chunk for chunk, left in zip(part.chunks, room, strict=True) if left >= 0]
        return [[bias.new_empty(len(chunk), len(bias)) for _, bias in self.hidden] for chunk in chunks]

    @property
    def saved_bytes_per_pair(self) -> int:
        """Number of bytes per pair that ``forward`` saves for the backward pass."""
        tensors = 2 if self.rule.needs_input else 1
        later = sum(len(bias) for _, bias in self.hidden)
        masks = self.leave.shape[-1] + later if self.options.dropout else 0
        return later * tensors * self.options.dtype.itemsize + masks

    def temporary(self, name: str, pairs: int, width: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return a temporary tensor, whose memory is reused by all chunks."""
        memory = self.temporaries.get(name)
        if memory is None or len(memory) < pairs:
            memory = self.temporaries[name] = torch.empty(pairs, width, dtype=dtype or self.options.dtype)
        return memory if len(memory) == pairs else memory[:pairs]

    def forward(self, chunk: CpuChunk, seed: int, memory: Sequence[Tensor] | None = None) -> list[HiddenValues]:
        """Compute the hidden layers, storing the later layers in ``memory`` if given, otherwise in temporaries."""
        pairs, generator = len(chunk), torch.Generator().manual_seed(seed) if self.options.dropout else None
        done = [self.first(chunk, self.draw_mask(pairs, self.leave.shape[-1], generator))]
        for k, (weight, bias) in enumerate(self.hidden):
            h = self.temporary(f"layer {k}", pairs, len(bias)) if memory is None else memory[k]
            torch.addmm(bias, done[-1].result, weight.t(), out=h)
            done.append(self.activate(h, self.draw_mask(pairs, len(bias), generator)))
        return done

    def first(self, chunk: CpuChunk, mask: Tensor | None) -> HiddenValues:
        """Compute the first hidden layer, which is cheap enough to be recomputed in the backward pass."""
        h = chunk.add_halves(self.leave, self.enter, self.temporary)
        if h.dtype != self.options.dtype:
            h = self.temporary("first", *h.shape).copy_(h)
        return self.activate(h, mask)

    def draw_mask(self, pairs: int, width: int, generator: torch.Generator | None) -> Tensor | None:
        return random_mask((pairs, width), self.options.dropout, generator) if generator else None

    def activate(self, h: Tensor, mask: Tensor | None) -> HiddenValues:
        y = self.rule.apply(h)
        saved = h if self.rule.needs_input else y
        return HiddenValues(self.drop_(y, mask), saved, mask)

    def drop_(self, h: Tensor, mask: Tensor | None) -> Tensor:
        return h if mask is None else h.mul_(self.temporary(f"mask {h.shape[1]}", *h.shape).copy_(mask))

    def backward(self, done: list[HiddenValues], g_scores: Tensor, sums: list[Tensor]) -> Tensor:
        """Return the gradient w.r.t. the sums of first-layer halves (P, H), and add the layers' gradients to ``sums``.

        ``g_scores`` (P,) is the gradient w.r.t. the scores.
        """
        # 1. The output layer.
        sums[-2][0].addmv_(done[-1].result.to(g_scores.dtype).t(), g_scores)
        sums[-1].add_(g_scores.sum())
        g = self.temporary(f"gradient {len(self.hidden)}", *done[-1].result.shape)
        torch.mul(g_scores.to(g.dtype).unsqueeze(1), self.slope, out=g)
        # 2. The hidden layers, from the last to the first: dropout and activation, then the product.
        for k in range(len(self.hidden), 0, -1):
            self.rule.pull_back_(self.drop_(g, done[k].mask), done[k].saved)
            # Sums over chunks have the type of the weights: bfloat16 would lose the contributions of later chunks.
            total, h = sums[2 * k - 2], done[k - 1].result
            if g.dtype == total.dtype:
                total.addmm_(g.t(), h)
            else:
                total.add_(g.t() @ h)
            sums[2 * k - 1].add_(g.sum(0, dtype=sums[0].dtype))
            weight, _ = self.hidden[k - 1]
            g = torch.mm(g, weight, out=self.temporary(f"gradient {k - 1}", len(g), weight.shape[1]))
        return self.rule.pull_back_(self.drop_(g, done[0].mask), done[0].saved)


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: list[ThreadChunks], options: PairOptions, *inputs: Tensor) -> Tensor:
        scores, values = _forward(_CpuPairNetwork(options, *inputs), parts, budget=options.budget(inputs[0].device))
        ctx.parts, ctx.options = parts, options
        ctx.ends = list(accumulate(map(len, values), initial=len(inputs)))
        ctx.save_for_backward(*inputs, *chain.from_iterable(values))
        return scores

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        saved, parts, gradient = ctx.saved_tensors, ctx.parts, gradient.contiguous()
        inputs, values = saved[: ctx.ends[0]], [saved[a:b] for a, b in pairwise(ctx.ends)]
        if torch.is_grad_enabled():  # create_graph=True
            return None, None, *_differentiable(ctx.options, parts, gradient, *inputs)
        # 1. Each thread computes the gradients of its part.
        network = _CpuPairNetwork(ctx.options, *inputs)
        sums = [torch.zeros_like(t, memory_format=torch.contiguous_format) for t in inputs]
        parts_and_saved = list(zip(parts, values, strict=True))
        results = run_in_threads(lambda work: _backward(network, *work, gradient), parts_and_saved)
        # 2. Add them up in the order of the parts, and apply the dropout scale of the weights.
        for part, gradients in zip(parts, results, strict=True):
            for total, g in zip((sums[0][part.sets], sums[1][part.sets], *sums[2:]), gradients, strict=True):
                total += g
        for g in sums[2::2]:
            g.mul_(network.scale)
        return None, None, *sums


def _differentiable(
    options: PairOptions, parts: list[ThreadChunks], gradient: Tensor, *inputs: Tensor
) -> tuple[Tensor, ...]:
    """Return the gradients, computed on all pairs in one pass by operators that can be differentiated again."""
    if options.dropout:
        raise PcmcNetError(
            "second derivatives of pairwise rates are not available with dropout: call eval() on the module first, or "
            "use dropout=0."
        )
    is_scored = torch.zeros_like(gradient)  # 1 for pairs in a chunk
    for chunk in chain.from_iterable(part.chunks for part in parts):
        chunk.write_scores(gradient.new_ones(len(chunk)), is_scored)

    def scores(leave: Tensor, enter: Tensor, *flat: Tensor) -> Tensor:
        return plain_scores(leave, enter, list(zip(flat[::2], flat[1::2], strict=True)), options)

    return pull_back(scores, inputs, gradient * is_scored)


def _forward(
    network: _CpuPairNetwork, parts: list[ThreadChunks], *, budget: int = 0
) -> tuple[Tensor, list[list[Tensor | None]]]:
    """Return the scores (B, J, J), and the values that each thread saves for the backward pass."""
    scores = network.weight.new_zeros(*network.leave.shape[:2], network.leave.shape[1])

    def score(work: tuple[ThreadChunks, list[list[Tensor]]]) -> list[Tensor | None]:
        part, memory = work
        local, saved = network.for_thread(part), list[Tensor | None]()
        for at, (chunk, seed) in enumerate(zip(part.chunks, part.seeds, strict=True)):
            done = local.forward(chunk, seed, memory[at] if at < len(memory) else None)
            chunk.write_scores(torch.addmv(local.bias, done[-1].result.to(local.weight.dtype), local.weight), scores)
            if at < len(memory):
                saved += [done[0].mask, *chain.from_iterable(done[1:])]
        return saved

    # Memory is allocated in this thread: memory that a worker frees returns to the system, and is slow to get again.
    memory = [network.allocate(part, budget // len(parts)) for part in parts]
    return scores, run_in_threads(score, list(zip(parts, memory, strict=True)))


def _backward(network: _CpuPairNetwork, part: ThreadChunks, saved: Sequence[Any], gradient: Tensor) -> list[Tensor]:
    """Return one thread's gradients w.r.t. the halves of the first layer and the later layers."""
    local = network.for_thread(part)
    inputs = (local.leave, local.enter, *local.parameters)
    g_leave, g_enter, *sums = (torch.zeros_like(t, memory_format=torch.contiguous_format) for t in inputs)
    size = 1 + 3 * len(local.hidden)
    saved_chunks = (saved[at : at + size] for at in range(0, len(saved), size))
    for chunk, seed in zip(part.chunks, part.seeds, strict=True):
        layers = next(saved_chunks, None)
        done = local.forward(chunk, seed) if layers is None else _unpack(local, chunk, layers)
        chunk.add_gradients(local.backward(done, chunk.read_scores(gradient), sums), g_leave, g_enter)
    return [g_leave, g_enter, *sums]


def _unpack(network: _CpuPairNetwork, chunk: CpuChunk, saved: Sequence[Any]) -> list[HiddenValues]:
    """Reconstruct the hidden layers of a chunk from saved values."""
    later = zip(saved[1::3], saved[2::3], saved[3::3], strict=True)
    return [network.first(chunk, saved[0]), *(HiddenValues(*layer) for layer in later)]
