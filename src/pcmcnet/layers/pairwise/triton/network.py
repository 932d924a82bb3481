"""Scores of all ordered pairs on a CUDA device, forward and backward: matrix products, with fused kernels around them.

Moving a tensor with one number per pair and unit takes about as long as multiplying it. Therefore, one pass builds the
first hidden layer from two matrices with one row per alternative. The bias, activation and dropout of a later layer are
applied where its product is read or written. The last layer writes a single number per pair. Products are computed in
float32 or bfloat16, with sums in float32. If the GPU and the layer allow it, the last layer has special kernels
(``hopper``).

Pairs are processed in chunks of whole rows (b, i); see ``pair_layout``. Values for the backward pass are saved if they
all fit into a memory budget. Otherwise, the values are recomputed chunk by chunk, so that memory is bounded for any n.
Shapes: leave and enter (B, J, H) -> scores (B, J, J).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import chain, repeat
from types import ModuleType
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from pcmcnet.errors import PcmcNetError
from pcmcnet.layers import settings
from pcmcnet.layers.generators import kernel_seeds
from pcmcnet.layers.kernel_launch import high_priority_stream, is_collecting_kernels, launch, multiprocessor_count
from pcmcnet.layers.pairwise.rate_forms import Layer, PairOptions
from pcmcnet.layers.pairwise.triton import hidden_layers
from pcmcnet.layers.pairwise.triton import pair_layout as layout
from pcmcnet.layers.pairwise.triton.hidden_layers import FirstLayer, first_layer_gradients, halves, packed_inputs
from pcmcnet.layers.pairwise.triton.pair_layout import DeviceChunk, PairLayout

PROGRAMS_PER_PROCESSOR = 32  # programs that share the pairs of a chunk; each writes a partial sum


class ChunkState(NamedTuple):
    """Values saved for the backward pass of a chunk: inputs and results of the products of the hidden layers.

    The Hopper kernels save the slopes instead of the last result.
    """

    inputs: Sequence[Tensor]
    results: Sequence[Tensor]


@dataclass(frozen=True)
class Gradients:
    """Gradients of the pair network, summed over all chunks."""

    halves: Tensor  # leave and enter, adjacent (B, J, 2 H)
    layers: list[Tensor]
    shift: Tensor | None


class TritonPairNetwork:
    """The layers, cast to the dtype of the products, and the kernel launches that evaluate them."""

    def __init__(
        self, options: PairOptions, places: PairLayout, seeds: Tensor, leave: Tensor, enter: Tensor, *flat: Tensor
    ) -> None:
        self.options, self.layout, self.seeds = options, places, seeds
        self.leave, self.enter = _rows(leave.detach()), _rows(enter.detach())
        self.sets, self.places, self.width = leave.shape
        weights, biases = [w.detach() for w in flat[:-2:2]], [b.detach() for b in flat[1:-2:2]]
        self.scale = 1 / (1 - options.dropout)  # part of the weights
        hopper = _hopper_kernels(leave.device)
        takes_layer = hopper is not None and hopper.fits(weights[-1], options.dtype, options.activation)
        self.hopper = hopper if takes_layer else None
        scaled = [(w * self.scale).to(options.dtype) for w in (weights if self.hopper is None else weights[:-1])]
        self.weight, self.shift = flat[-2].detach().view(-1), flat[-1].detach()
        if self.hopper is None:
            self.weight = self.weight * self.scale
        else:
            last, self.weight, self.back = self.hopper.scaled_weights(weights[-1], self.weight, self.scale)
            scaled.append(last)
        self.hidden = list(zip(scaled, biases, strict=True))
        self.kept: list[DeviceChunk] | None = None  # the single chunk, if its state is saved
        limit = round(options.dropout * 2**32)
        self.limit = limit - 2**32 if limit >= 2**31 else limit  # the same 32 bits as a signed number
        self.units: dict[str, Any] = {"ACT": options.activation, "DROP": options.dropout > 0}
        self.kind = {**self.units, **places.kind}

    @property
    def state_bytes(self) -> int:
        """Number of bytes needed to save the states of all chunks."""
        per_pair = sum(weight.shape[0] + weight.shape[1] for weight, _ in self.hidden)
        return self.sets * self.places * self.layout.row * per_pair * self.hidden[0][0].element_size()

    def chunks(self, pairs: int | None = None) -> Iterator[DeviceChunk]:
        """Return chunks of about ``pairs`` pairs, or a single chunk by default."""
        return self.layout.cut(self.sets * self.places if pairs is None else max(pairs // self.places, 1))

    @property
    def pairs_at_once(self) -> int:
        """Pairs per chunk without a backward pass: as many as memory allows, because fewer chunks need fewer launches.

        A large batch has at least four chunks, because no other work overlaps with building the first layer of the
        first chunk.
        """
        room = self.options.budget(self.leave.device) // (2 * self.width * self.hidden[0][0].element_size())
        quarter = self.sets * self.places * self.layout.row // 4
        return max(2 * self.options.chunk_pairs, min(room, quarter))

    def all_scores(self, *, keep: bool) -> tuple[Tensor, list[Tensor]]:
        """Return the scores and, if ``keep`` is True and memory suffices, the values for the backward pass."""
        whole = keep and self.state_bytes <= self.options.budget(self.leave.device)
        chunks, parts = list(self.chunks(None if whole else self.pairs_at_once)), self.parts_of_scores()
        self.kept = chunks if whole else None
        saved: list[Tensor] = []
        if whole:
            state = self.forward(chunks[0], self.first_hidden(chunks[0], clear=True), parts)
            saved = [*state.inputs, *state.results]
        elif len(chunks) > 1 and self.hopper is not None:
            self.score_in_turns(chunks, parts)
        else:
            for chunk in chunks:
                self.forward(chunk, self.first_hidden(chunk), parts, keep=False)
        scores = self.leave.new_empty(self.sets, self.places, self.places, dtype=torch.float32)
        everything = DeviceChunk(range(self.sets * self.places), chunks[0].bounds, parts.shape[1])
        tensors = (parts, self.shift, scores)
        self.over_sets(layout.scores_to_grid, everything, *tensors, room=everything.room, PARTS=len(parts))
        return scores, saved

    def score_in_turns(self, chunks: Sequence[DeviceChunk], parts: Tensor) -> None:
        """Score chunks, building the first hidden layer of each chunk while the products of the previous chunk run.

        Building a layer is limited by memory bandwidth, and products by the tensor cores, so the two run on separate
        multiprocessors. Products have priority.
        """
        here = torch.cuda.current_stream(self.leave.device)
        first = here if is_collecting_kernels() else high_priority_stream(self.leave.device)
        # Chunks alternate between two slots: memory for the first hidden layer, and events for built and multiplied.
        slots = [(self.room(chunks[0]), torch.cuda.Event(), torch.cuda.Event()) for _ in range(2)]  # type: ignore[no-untyped-call]
        try:
            for k, chunk in enumerate(chunks):
                room, built, done = slots[k % 2]
                # 1. Build the first hidden layer, once the chunk that used the slot before is done.
                if k > 1:
                    here.wait_event(done)
                if k > 0:
                    torch.cuda._sleep(settings.GPU_PAUSE_CYCLES)  # type: ignore[no-untyped-call]
                h = self.first_hidden(chunk, room)
                built.record(here)
                # 2. Run the products on the stream with priority.
                first.wait_event(built)
                with torch.cuda.stream(first):
                    self.forward(chunk, h, parts, keep=False, spare=settings.GPU_PROCESSORS_LEFT_FREE)
                done.record(first)
        finally:  # kernels that still run use memory that may be freed from now on
            here.wait_stream(first)

    def all_gradients(
        self, kept: Sequence[Tensor], gradient: Tensor, dtype: torch.dtype, *, shift: bool = True
    ) -> Gradients:
        """Return the gradients w.r.t. the first-layer halves (as ``dtype``), the layers and, if requested, the shift.

        On a Hopper GPU, the first chunk initialises the gradients of the last hidden layer. All other gradients start
        at 0.
        """
        gradient = gradient.contiguous()
        allocate = torch.zeros_like if self.hopper is None else torch.empty_like
        last = [*self.hidden[-1], self.weight.view(1, -1)]
        layers = [torch.zeros_like(t, dtype=torch.float32) for layer in self.hidden[:-1] for t in layer]
        layers += [allocate(t, dtype=torch.float32) for t in last]
        halves = gradient.new_empty(self.sets, self.places, 2 * self.width, dtype=dtype)
        sums = Gradients(halves, layers, torch.zeros_like(self.shift) if shift else None)
        count, unused = len(self.hidden), self.parts_of_scores() if not kept else None
        for chunk in self.kept or self.chunks(self.options.chunk_pairs):
            if unused is None:
                state = ChunkState(kept[:count], kept[count:])
            else:
                state = self.forward(chunk, self.first_hidden(chunk, clear=True), unused)
            self.backward(chunk, state, gradient, sums)
        for weight in layers[: None if self.hopper is None else -3 : 2]:
            weight.mul_(self.scale)
        return sums

    # -- forward ------------------------------------------------------------------------------------------------

    def forward(self, chunk: DeviceChunk, h: Tensor, parts: Tensor, *, keep: bool = True, spare: int = 0) -> ChunkState:
        """Compute the hidden layers of a chunk, given the first hidden layer, and write partial scores."""
        inputs, results = [h], []
        for k, (weight, bias) in enumerate(self.hidden[:-1], 1):
            z = torch.mm(h, weight.t())
            h = torch.empty_like(z)
            self.over_pairs(hidden_layers.later_hidden, z, bias, h, like=z, layer=k, chunk=chunk)
            inputs.append(h)
            results.append(z)
        results.append(self.last_hidden(h, chunk, parts, keep=keep, spare=spare))
        return ChunkState(inputs, results)

    def room(self, chunk: DeviceChunk) -> Tensor:
        """Allocate memory for the first hidden layer of a chunk."""
        return self.leave.new_empty(chunk.room, self.width, dtype=self.options.dtype)

    def first_hidden(self, chunk: DeviceChunk, room: Tensor | None = None, *, clear: bool = False) -> Tensor:
        """Build the first hidden layer of a chunk.

        If ``clear`` is True, rows after the last pair are set to 0, because sums over pairs read beyond the last pair.
        """
        h = self.room(chunk) if room is None else room[: chunk.room]
        block, entered = min(triton.next_power_of_2(self.width), 256), 8
        grid = (triton.cdiv(self.width, block), *self.grid(chunk, entered))
        shape = {**self.kind, "C": block, "TJ": entered, "num_warps": 4}
        tensors = (self.leave, self.enter, h, self.seeds)
        launch(hidden_layers.first_hidden, grid, *self.find(chunk), *tensors, *self.where(chunk), *self.thin, **shape)
        if clear:
            read = settings.GPU_PAIRS_PER_READ
            rows = read if self.hopper is not None and len(self.hidden) == 1 else chunk.room
            blocks = (triton.cdiv(rows, read), grid[0])
            launch(layout.zero_after_last_pair, blocks, h, chunk.bounds, chunk.room, self.width, R=read, C=block)
        return h

    def parts_of_scores(self) -> Tensor:
        """Allocate memory for the partial scores of all pairs, with one partial score per tile of units."""
        count = 1 if self.hopper is None else self.hopper.unit_tiles(self.hidden[-1][0])
        pairs = self.sets * self.places * self.layout.row
        return self.leave.new_empty(count, max(pairs, 1), dtype=torch.float32)

    def last_hidden(self, h: Tensor, chunk: DeviceChunk, parts: Tensor, *, keep: bool, spare: int) -> Tensor:
        """Write partial scores, and return the result of the last product, or the slopes on a Hopper GPU."""
        weight, bias = self.hidden[-1]
        last = len(self.hidden)
        if self.hopper is None:
            z = torch.mm(h, weight.t())
            self.over_pairs(hidden_layers.last_hidden, z, bias, self.weight, parts, like=z, layer=last, chunk=chunk)
            return z
        how = {"activation": self.options.activation, "dropout": (self.seeds, last, self.limit)}
        tensors = (h, weight, bias, self.weight, parts)
        slopes: Tensor = self.hopper.last_layer_forward(*tensors, bounds=chunk.bounds, keep=keep, spare=spare, **how)
        return slopes

    # -- backward -----------------------------------------------------------------------------------------------

    def backward(self, chunk: DeviceChunk, state: ChunkState, gradient: Tensor, sums: Gradients) -> None:
        """Add the contributions of a chunk to the gradients."""
        # 1. The gradient w.r.t. the scores, by pair, with 0 after the last pair; its sum is the gradient of the shift.
        read = settings.GPU_PAIRS_PER_READ
        room = triton.cdiv(chunk.room, read) * read
        df = gradient.new_zeros(room) if self.hopper is None or sums.shift is not None else gradient.new_empty(room)
        self.over_sets(layout.pairs_from_grid, chunk, gradient, df, room=room, MORE=read)
        if sums.shift is not None:
            sums.shift.add_(df.sum())
        # 2. The output layer and the last hidden layer.
        if self.hopper is not None:
            d = self.backward_from_slopes(chunk, state, df, sums)
        else:
            z, last = state.results[-1], len(self.hidden)
            d, d_weight, d_bias = torch.empty_like(z), self.parts(z), self.parts(z)
            tensors = (z, self.hidden[-1][1], self.weight, df, d, d_weight, d_bias)
            self.over_pairs(hidden_layers.last_hidden_backward, *tensors, like=z, layer=last, chunk=chunk, shared=True)
            sums.layers[-1].add_(d_weight.sum(0))
            d = self.backward_through(last, d, d_bias, state, sums)
        # 3. The hidden layers between two products, from the last to the first of them.
        for k in range(len(self.hidden) - 1, 0, -1):
            z, bias, d_bias = state.results[k - 1], self.hidden[k - 1][1], self.parts(d)
            kernel = hidden_layers.later_hidden_backward
            self.over_pairs(kernel, z, bias, d, d_bias, like=z, layer=k, chunk=chunk, shared=True)
            d = self.backward_through(k, d, d_bias, state, sums)
        # 4. The first layer: sums over the pairs of each alternative.
        self.first_hidden_backward(chunk, d, sums)

    def backward_through(self, k: int, d: Tensor, d_bias: Tensor, state: ChunkState, sums: Gradients) -> Tensor:
        """Return the gradient w.r.t. the input of a product, given the gradient w.r.t. its result.

        The gradients of the weight and the bias are added to ``sums``.
        """
        sums.layers[2 * k - 1].add_(d_bias.sum(0))
        sums.layers[2 * k - 2].add_(_outer(d, state.inputs[k - 1]))
        return d @ self.hidden[k - 1][0]

    def backward_from_slopes(self, chunk: DeviceChunk, state: ChunkState, df: Tensor, sums: Gradients) -> Tensor:
        """Return the gradient w.r.t. the input of the last product, which is 0 where the input was dropped."""
        assert self.hopper is not None
        slopes, h, where = state.results[-1], state.inputs[-1], {"bounds": chunk.bounds}
        tensors = (slopes, h, df, (*self.hidden[-1], self.weight), sums.layers[-3:])
        self.hopper.last_layer_gradients(*tensors, scale=self.scale, add=chunk.rows.start > 0, **where)
        dropout = (self.seeds, len(self.hidden) - 1, self.limit)
        d: Tensor = self.hopper.last_layer_input_gradient(slopes, self.back, df, dropout=dropout, **where)
        return d

    def first_hidden_backward(self, chunk: DeviceChunk, d: Tensor, sums: Gradients) -> None:
        """Sum the gradient w.r.t. the first layer over the pairs leaving, and the pairs entering, each alternative."""
        block = min(triton.next_power_of_2(self.width), 64)
        entered = 32 if triton.cdiv(self.places, 16) % 2 == 0 else 16  # the larger block if it adds no padding
        grid = (triton.cdiv(self.width, block), *self.grid(chunk, entered))
        parts = d.new_empty(grid[1], len(chunk.rows), self.width)
        leave, enter = sums.halves.chunk(2, -1)
        tensors = (self.leave, self.enter, d, parts, enter, self.seeds)
        dropped = self.hopper is not None and len(self.hidden) == 1  # already done by the Hopper kernel
        shape = {**self.kind, "DROP": self.kind["DROP"] and not dropped, "C": block, "TJ": entered, "num_warps": 1}
        where = (*self.find(chunk), *tensors, *self.where(chunk), *self.thin, enter.stride(1))
        launch(hidden_layers.first_hidden_backward, grid, *where, **shape)
        # Add up the partial sums of the blocks of entered alternatives.
        width, rows = min(triton.next_power_of_2(self.width), 512), len(chunk.rows)
        grid_of_sums = (triton.cdiv(rows, 4), triton.cdiv(self.width, width))
        rest = (self.layout.sizes, self.places, parts, leave, chunk.rows.start, rows, self.width, leave.stride(1))
        launch(hidden_layers.sum_row_parts, grid_of_sums, *rest, TJ=entered, R=4, C=width)

    # -- launches -----------------------------------------------------------------------------------------------

    def grid(self, chunk: DeviceChunk, entered: int) -> tuple[int, int]:
        """Return the launch grid of a chunk: the numbers of blocks of ``entered`` alternatives and of sets."""
        rows = chunk.rows
        return triton.cdiv(self.places, entered), (rows.stop - 1) // self.places - rows.start // self.places + 1

    def find(self, chunk: DeviceChunk) -> tuple[Any, ...]:
        """Return the kernel arguments that locate the sets of a chunk and their pairs."""
        return *self.layout.tensors, chunk.bounds

    def where(self, chunk: DeviceChunk) -> tuple[int, ...]:
        """Return the first set, the first row and the number of rows of a chunk."""
        return chunk.rows.start // self.places, chunk.rows.start, len(chunk.rows)

    @property
    def thin(self) -> tuple[int, ...]:
        """Row strides of the two halves of the first layer, number of units, and dropout limit."""
        return self.leave.stride(1), self.enter.stride(1), self.width, self.limit

    def parts(self, like: Tensor) -> Tensor:
        """Allocate memory for the partial sums of the programs that share the pairs."""
        return like.new_empty(
            PROGRAMS_PER_PROCESSOR * multiprocessor_count(like.device), like.shape[1], dtype=torch.float32
        )

    def over_sets(self, kernel: Any, chunk: DeviceChunk, *tensors: Tensor, room: int, **kind: Any) -> None:
        """Launch a kernel that copies between a (B, J, J) tensor and the pairs of a chunk."""
        shape = {"R": 8, "C": layout.columns(self.places), **self.layout.kind, **kind}
        launch(kernel, self.grid(chunk, 8), *self.find(chunk), *tensors, *self.where(chunk), room, **shape)

    def over_pairs(
        self, kernel: Any, *tensors: Tensor, like: Tensor, layer: int, chunk: DeviceChunk, shared: bool = False
    ) -> None:
        """Launch a kernel on a (room, H) tensor. Programs process one block of pairs or, if ``shared``, many blocks."""
        room, width = like.shape
        block = triton.next_power_of_2(width)
        numbers, warps = (512, 2) if shared else (4096, 4)
        pairs = max(numbers // block, 1)
        grid = (PROGRAMS_PER_PROCESSOR * multiprocessor_count(like.device) if shared else triton.cdiv(room, pairs),)
        where = (chunk.bounds, self.seeds, layer, room, width, self.limit)
        launch(kernel, grid, *tensors, *where, **self.units, C=block, R=pairs, num_warps=warps)


@cache
def _hopper_kernels(device: torch.device) -> ModuleType | None:
    """Return the module with the Hopper kernels for the last hidden layer, or None if they are not supported."""
    is_tested = triton.__version__.startswith(settings.HOPPER_TRITON_VERSIONS)
    capability = torch.cuda.get_device_capability(device)
    if not is_tested or find_spec("triton.experimental.gluon") is None or capability != (9, 0):
        return None
    from pcmcnet.layers.pairwise.triton import hopper

    return hopper


def _rows(half: Tensor) -> Tensor:
    """Return one half of the first layer (B, J, H), with a constant stride between rows."""
    even = half.stride(2) == 1 and half.stride(0) == half.shape[1] * half.stride(1)
    return half if even else half.contiguous()


def _outer(d: Tensor, h: Tensor) -> Tensor:  # (P, H), (P, D) -> (H, D)
    """Return d^T h in float32."""
    return torch.mm(d.t(), h) if d.dtype == torch.float32 else torch.mm(d.t(), h, out_dtype=torch.float32)


# -- scores as an operator of torch ------------------------------------------------------------------------------------

HALVES = 2  # tensors: leave and enter


def scores_of_halves(
    leave: Tensor, enter: Tensor, layers: Sequence[Layer], options: PairOptions, mask: Tensor | None = None
) -> Tensor:
    """Score the ordered pairs of each set with the layers after the first: at least one hidden layer, and the output.

    With a mask (B, J), whose real alternatives come first, pairs of two different real alternatives are scored, and all
    other scores are 0. Without a mask all pairs are scored.
    """
    if len(leave) > settings.GPU_SETS_PER_LAUNCH:
        parts = zip(_split(leave), _split(enter), _split(mask), strict=False)
        return torch.cat([scores_of_halves(a, b, layers, options, real) for a, b, real in parts])
    return _scores((leave, enter), layers, options, PairLayout.of(mask, leave))


def scores_of_inputs(
    first: FirstLayer, layers: Sequence[Layer], options: PairOptions, mask: Tensor | None = None
) -> Tensor:
    """Score the ordered pairs as ``scores_of_halves`` does, from the inputs of the first layer, in bfloat16."""
    if len(first.alternatives) > settings.GPU_SETS_PER_LAUNCH:
        parts = zip(_split(first.individual), _split(first.alternatives), _split(mask), strict=False)
        split = ((FirstLayer(individual, alternatives, *first[2:]), real) for individual, alternatives, real in parts)
        return torch.cat([scores_of_inputs(layer, layers, options, real) for layer, real in split])
    return _scores(first, layers, options, PairLayout.of(mask, first.alternatives))


def _split(sets: Tensor | None) -> Iterable[Any]:
    """Split a tensor into the sets of each launch, or yield None for every launch if there is no mask."""
    return repeat(None) if sets is None else torch.split(sets, settings.GPU_SETS_PER_LAUNCH)


def _scores(first: Sequence[Tensor], layers: Sequence[Layer], options: PairOptions, places: PairLayout) -> Tensor:
    inputs = [*first, *chain.from_iterable(layers)]
    seeds = kernel_seeds(inputs[0].device, len(layers))
    if torch.is_grad_enabled() and any(t.requires_grad for t in inputs):
        scores = _Scores.apply(options, places, seeds, len(first), *inputs)  # type: ignore[no-untyped-call]
        assert isinstance(scores, Tensor)
        return scores
    leave, enter, *_ = _halves(inputs[: len(first)])
    return TritonPairNetwork(options, places, seeds, leave, enter, *inputs[len(first) :]).all_scores(keep=False)[0]


def _halves(first: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the two halves of the first layer and, if this function computes them, the packed inputs."""
    if len(first) == HALVES:
        return first
    layer = FirstLayer(*(tensor.detach() for tensor in first))
    packed = packed_inputs(layer)
    return *halves(layer, packed), packed


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, options: PairOptions, places: PairLayout, seeds: Tensor, first: int, *inputs: Tensor
    ) -> Tensor:
        leave, enter, *packed = _halves(inputs[:first])
        network = TritonPairNetwork(options, places, seeds, leave, enter, *inputs[first:])
        scores, kept = network.all_scores(keep=True)
        ctx.network, ctx.counts = network, (first, len(inputs), len(inputs) + len(packed))
        ctx.save_for_backward(*inputs, *packed, *kept)  # the inputs too: torch then detects if they were modified
        return scores

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True
            raise PcmcNetError(
                "second derivatives are not supported by the GPU kernels for pairwise rates: use torch.func (hessian, "
                "or grad of grad), which does not use these kernels, or a CPU."
            )
        (first, count, end), saved = ctx.counts, ctx.saved_tensors
        packed, kept = saved[count:end], saved[end:]
        dtype = torch.bfloat16 if packed else torch.float32
        sums = ctx.network.all_gradients(kept, gradient, dtype, shift=ctx.needs_input_grad[-1])
        if not packed:
            return None, None, None, None, *sums.halves.chunk(2, -1), *sums.layers, sums.shift
        needs_gradient = (ctx.needs_input_grad[4], ctx.needs_input_grad[5])
        of_first = first_layer_gradients(FirstLayer(*saved[:first]), packed[0], sums.halves, of_inputs=needs_gradient)
        return None, None, None, None, *of_first, *sums.layers, sums.shift
