"""The last hidden layer on a Hopper GPU, for activations act(x) = c x with a constant slope c on each side of 0.

    scores    f_p = sum_u w_u c_pu x_pu,   x = h weight^T + bias             the slopes c, 0 where dropped, may be saved
    backward  with g_p = dL/df_p:   G = sum_p g_p c_p h_p^T  and  s = sum_p g_p c_p   give all gradients of the layer:
              d weight = w G,   d bias = w s,   d w = rows of (weight G) + bias s,   d h_p = g_p (c_p (w weight))

Only the slopes c are saved for the backward pass, and no pass over pairs and units is needed between the products.
Every kernel has two groups of four warps: while one group processes its results, the other keeps the tensor cores busy.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from pcmcnet.layers import settings
from pcmcnet.layers.kernel_launch import launch, multiprocessor_count, wait_for_earlier
from pcmcnet.layers.pairwise.triton.elementwise import drop_units, numbers_of_units, pair_numbers
from pcmcnet.layers.perceptron import NEGATIVE_SLOPES

# -- tiles of matrices, and the layers that consist of whole tiles -----------------------------------------------------

ROWS = gl.constexpr(settings.HOPPER_TILE_PAIRS)  # pairs per tile
UNITS = gl.constexpr(settings.HOPPER_TILE_UNITS)  # units per tile
CHUNK = gl.constexpr(settings.HOPPER_TILE_INPUTS)  # inputs multiplied at a time
LAUNCH = {"num_warps": 4, "maxnreg": 168}  # the two groups get most registers, the copying warp few


def fits(weight: Tensor, dtype: torch.dtype, activation: str) -> bool:
    """Return True if the Hopper kernels support the layer's size and activation and the dtype of the product."""
    whole = all(width % UNITS.value == 0 and width <= settings.HOPPER_MAX_LAYER_UNITS for width in weight.shape)
    return activation in NEGATIVE_SLOPES and dtype == torch.bfloat16 and whole


def tiles(matrix: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """Return the TMA descriptor for reading tiles of a matrix."""
    return TensorDescriptor.from_tensor(matrix, [rows, columns], _layout(rows, columns))


@cache
def _layout(rows: int, columns: int) -> gl.NVMMASharedLayout:
    return gl.NVMMASharedLayout.get_default_for([rows, columns], gl.bfloat16)


# -- weights of the last hidden layer in the form that its kernels read, converted in one pass -------------------------
#
#     weight (H, D) -> c weight,    w (H,) -> c w,    and for the backward pass the transpose of c w (c weight)
#
# with the dropout scale c = 1 / (1 - dropout). Matrices are in bfloat16.

BLOCK = 64  # units, and inputs, per program; the widths are multiples of it


def scaled_weights(weight: Tensor, w: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the scaled weight, the scaled output weight, and the transposed matrix for the backward pass."""
    units, width = weight.shape
    forth = torch.empty_like(weight, dtype=torch.bfloat16, memory_format=torch.contiguous_format)
    back, out = forth.new_empty(width, units), torch.empty_like(w)
    grid = (units // BLOCK, width // BLOCK)
    launch(_scale, grid, weight.contiguous(), w, forth, out, back, scale, units, width, C=BLOCK, num_warps=4)
    return forth, out, back


@triton.jit(do_not_specialize=["scale"])
def _scale(weight, w, forth, out, back, scale, H, D, C: tl.constexpr):
    wait_for_earlier()
    u, d = tl.program_id(0) * C + tl.arange(0, C), tl.program_id(1) * C + tl.arange(0, C)
    v = tl.load(w + u) * scale
    x = (tl.load(weight + u[:, None] * D + d[None, :]) * scale).to(tl.bfloat16)
    tl.store(forth + u[:, None] * D + d[None, :], x)
    y = (x.to(tl.float32) * v[:, None]).to(tl.bfloat16)
    tl.store(back + d[:, None] * H + u[None, :], tl.trans(y))
    if tl.program_id(1) == 0:
        tl.store(out + u, v)


# -- the product in two of the kernels: (pairs, D) by (H, D)^T, tile by tile -------------------------------------------
# A program keeps the weights of some units in shared memory and processes tiles of pairs. Two groups of four warps
# alternate: while one multiplies, the other processes the tile that it has just multiplied. One more warp starts the
# copies of tiles into shared memory, some chunks ahead.

STAGES = gl.constexpr(settings.HOPPER_CHUNKS_AHEAD)  # chunks copied ahead


def unit_tiles(weight: Tensor) -> int:
    """Return the number of tiles that cover the units of a layer."""
    return len(weight) // int(UNITS.value)


def _operands(pairs: Tensor, weight: Tensor) -> tuple[TensorDescriptor, TensorDescriptor]:
    """Return the two factors of the product, (pairs, D) and (H, D), as descriptors of their tiles."""
    return tiles(pairs, ROWS.value, CHUNK.value), tiles(weight, UNITS.value, CHUNK.value)


def programs(weight: Tensor, device: torch.device, spare: int = 0) -> int:
    """Return the number of programs, a multiple of the number of unit tiles, with ``spare`` multiprocessors free."""
    across = unit_tiles(weight)
    return across * max((multiprocessor_count(device) - spare) // across, 1)


@gluon.jit
def shared_memory(h, weight, result, KEEP: gl.constexpr, CHUNKS: gl.constexpr):
    """Allocate barriers, and memory for chunks of pairs, for the weights and for a result tile of each group."""
    hs = gl.allocate_shared_memory(gl.bfloat16, [STAGES, ROWS, CHUNK], h.layout)
    ws = gl.allocate_shared_memory(gl.bfloat16, [CHUNKS, UNITS, CHUNK], weight.layout)
    kept = gl.allocate_shared_memory(gl.bfloat16, [2, ROWS if KEEP else 8, UNITS], result.layout)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    loaded = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(empty.index(i), count=1)
        mbarrier.init(ready.index(i), count=1)
    for i in gl.static_range(2):
        mbarrier.init(turns.index(i), count=1)
    mbarrier.init(loaded.index(0), count=1)
    return hs, ws, kept, (empty, ready, turns, loaded)


@gluon.jit
def wait_for_weights(shared):
    """Wait until the weights have been loaded, which happens once per program."""
    _, _, _, barriers = shared
    mbarrier.wait(barriers[3].index(0), 0)


@gluon.jit
def share(bounds, across):
    """Return a program's first tile, the end of all tiles, the step between its tiles, and its tile of units."""
    pairs = (gl.load(bounds + 1) - gl.load(bounds)).to(gl.int32)
    return gl.program_id(0) // across, gl.cdiv(pairs, ROWS), gl.num_programs(0) // across, gl.program_id(0) % across


@gluon.jit
def bring_tiles(h, weight, shared, bounds, across, CHUNKS: gl.constexpr):
    """Start the copies of the weights, and then of all tiles of a program, into shared memory."""
    hs, ws, _, barriers = shared
    empty, ready, _, loaded = barriers
    begin, end, step, part = share(bounds, across)
    mbarrier.expect(loaded.index(0), CHUNKS * weight.block_type.nbytes)
    for c in gl.static_range(CHUNKS):
        tma.async_copy_global_to_shared(weight, [part * UNITS, c * CHUNK], loaded.index(0), ws.index(c))
    i = 0
    for tile in range(begin, end, step):
        for k in range(CHUNKS):
            at = i % STAGES
            full = ready.index(at)
            mbarrier.wait(empty.index(at), (i // STAGES & 1) ^ 1)
            mbarrier.expect(full, h.block_type.nbytes)
            tma.async_copy_global_to_shared(h, [tile * ROWS, k * CHUNK], full, hs.index(at))
            i += 1


@gluon.jit
def multiply(group: gl.constexpr, shared, i, x, CHUNKS: gl.constexpr):
    """Wait for the group's turn, then return a product tile (ROWS, UNITS), added to x, and the next chunk's index.

    ``i`` is the index of the tile's first chunk. The tiles of the two groups alternate.
    """
    hs, ws, _, barriers = shared
    empty, ready, turns, _ = barriers
    mbarrier.wait(turns.index(group), (i // (2 * CHUNKS) & 1) ^ (1 - group))
    for k in range(CHUNKS):
        at = i % STAGES
        mbarrier.wait(ready.index(at), i // STAGES & 1)
        x = warpgroup_mma(hs.index(at), ws.index(k).permute((1, 0)), x, is_async=True)
        mbarrier.arrive(turns.index(1 - group), count=1, pred=k == CHUNKS - 1)
        x = warpgroup_mma_wait(1, deps=(x,))
        mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES), count=1, pred=k > 0)  # the previous chunk is done
        i += 1
    x = warpgroup_mma_wait(0, deps=(x,))
    mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES), count=1)
    return x, i + CHUNKS


@gluon.jit
def copy_out(x, result, m, n, room):
    """Start copying a tile to global memory once the previous copy is done."""
    tma.store_wait(0)
    room.store(x.to(gl.bfloat16))
    fence_async_shared()
    tma.async_copy_shared_to_global(result, [m, n], room)


# -- scores: the product, and the rest of the layer on each tile while it is in registers ------------------------------


def last_layer_forward(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    w: Tensor,
    parts: Tensor,
    *,
    activation: str,
    bounds: Tensor,
    dropout: tuple[Tensor, int, int],
    keep: bool,
    spare: int = 0,
) -> Tensor:
    """Write partial scores (parts, all pairs), and return the slopes (room, H), or no rows if ``keep`` is False.

    The argument ``dropout`` contains the seeds, the index of the layer's seed, and the limit, which is 0 without
    dropout. The kernel leaves ``spare`` multiprocessors to other kernels.
    """
    seeds, layer, limit = dropout
    slopes = h.new_empty(len(h) if keep else 0, len(weight))
    matrices = (*_operands(h, weight), tiles(slopes if keep else h, ROWS.value, UNITS.value))
    vectors = (bias, w, numbers_of_units(len(weight), h.device), parts, bounds, seeds)
    kind = {"SLOPE": NEGATIVE_SLOPES[activation], "KEEP": keep, "DROP": limit != 0, "CHUNKS": h.shape[1] // CHUNK.value}
    sizes = (layer, parts.shape[1], len(weight), limit)
    launch(_last_layer_forward, (programs(weight, h.device, spare),), *matrices, *vectors, *sizes, **kind, **LAUNCH)
    return slopes


@gluon.jit(do_not_specialize=["layer", "room", "limit"])
def _last_layer_forward(
    h,
    weight,
    slopes,
    bias,
    w,
    numbers,
    out,
    bounds,
    seeds,
    layer,
    room,
    H,
    limit,
    SLOPE: gl.constexpr,
    KEEP: gl.constexpr,
    DROP: gl.constexpr,
    CHUNKS: gl.constexpr,
):
    """Multiply h (pairs, D) by the transposed weight (H, D), and write partial scores to ``out`` (tiles across, room).

    The rows of h are the pairs of a chunk, and ``bounds`` holds the index of the first pair. Scores are written to the
    positions of the pairs.
    """
    shared = shared_memory(h, weight, slopes, KEEP, CHUNKS)
    layer_of = (bias, w, numbers, out, seeds + layer, room, limit)
    across = H // UNITS
    gl.warp_specialize(
        [
            (_forward_tiles, (0, shared, slopes, layer_of, bounds, across, SLOPE, KEEP, DROP, CHUNKS)),
            (_forward_tiles, (1, shared, slopes, layer_of, bounds, across, SLOPE, KEEP, DROP, CHUNKS)),
            (bring_tiles, (h, weight, shared, bounds, across, CHUNKS)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def _forward_tiles(
    group: gl.constexpr,
    shared,
    slopes,
    layer_of,
    bounds,
    across,
    SLOPE: gl.constexpr,
    KEEP: gl.constexpr,
    DROP: gl.constexpr,
    CHUNKS: gl.constexpr,
):
    bias, w, numbers, out, seed, room, limit = layer_of
    begin, end, step, part = share(bounds, across)
    pair0 = gl.load(bounds)
    pairs = (gl.load(bounds + 1) - pair0).to(gl.int32)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, UNITS, 16])
    u = part * UNITS + gl.arange(0, UNITS, gl.SliceLayout(0, layout))
    shift, v, c_u = gl.load(bias + u), gl.load(w + u), gl.load(numbers + u).to(gl.uint32)
    i = group * CHUNKS
    wait_for_weights(shared)
    for tile in range(begin + group * step, end, 2 * step):
        y, i = multiply(group, shared, i, gl.zeros((ROWS, UNITS), gl.float32, layout) + shift[None, :], CHUNKS)
        p = tile * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
        if KEEP or DROP:
            c = _slopes(y, SLOPE)
            if DROP:
                a, b = pair_numbers(pair0 + p, gl.load(seed))
                c = drop_units(c, a, b, c_u, limit)
            f = c * y
        else:
            f = gl.maximum(y, SLOPE * y)
        score = gl.sum(f * v[None, :], 1)
        if KEEP:
            copy_out(c, slopes, tile * ROWS, part * UNITS, shared[2].index(group))
        gl.store(out + part.to(gl.int64) * room + pair0 + p, score, mask=p < pairs)
    tma.store_wait(0)


@gluon.jit
def _slopes(x, SLOPE: gl.constexpr):
    """Return 1 where x > 0 and SLOPE elsewhere, in inline assembly for the reason given in ``drop_units``."""
    return gl.inline_asm_elementwise(
        """{
        .reg .pred up;
        setp.gt.f32 up, $1, 0f00000000;
        selp.f32 $0, 0f3F800000, $2, up;
        }""",
        "=f,f,f",
        [x, gl.full_like(x, SLOPE)],
        dtype=gl.float32,
        is_pure=True,
        pack=1,
    )


# -- gradient w.r.t. the input: a product of slopes, weighted by pair, without dropped units ---------------------------


def last_layer_input_gradient(
    slopes: Tensor, weight: Tensor, gradient: Tensor, *, bounds: Tensor, dropout: tuple[Tensor, int, int]
) -> Tensor:
    """Return slopes (room, H) times weight (D, H)^T, with each row multiplied by its gradient (room,).

    Rows after the last pair are arbitrary. The argument ``dropout`` contains the seeds, the index of the previous
    layer's seed, and the limit, which is 0 without dropout.
    """
    seeds, layer, limit = dropout
    out = torch.empty(len(slopes), len(weight), dtype=slopes.dtype, device=slopes.device)
    matrices = (*_operands(slopes, weight), tiles(out, ROWS.value, UNITS.value))
    arguments = (gradient, numbers_of_units(len(weight), slopes.device), bounds, seeds, layer, len(weight), limit)
    kind = {"DROP": limit != 0, "CHUNKS": slopes.shape[1] // CHUNK.value}
    launch(_last_layer_input_gradient, (programs(weight, slopes.device),), *matrices, *arguments, **kind, **LAUNCH)
    return out


@gluon.jit(do_not_specialize=["layer", "limit"])
def _last_layer_input_gradient(
    slopes, weight, out, gradient, numbers, bounds, seeds, layer, D, limit, DROP: gl.constexpr, CHUNKS: gl.constexpr
):
    shared = shared_memory(slopes, weight, out, True, CHUNKS)
    given = (gradient, numbers, seeds + layer, limit)
    across = D // UNITS
    gl.warp_specialize(
        [
            (_input_gradient_tiles, (0, shared, out, given, bounds, across, DROP, CHUNKS)),
            (_input_gradient_tiles, (1, shared, out, given, bounds, across, DROP, CHUNKS)),
            (bring_tiles, (slopes, weight, shared, bounds, across, CHUNKS)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def _input_gradient_tiles(
    group: gl.constexpr, shared, out, given, bounds, across, DROP: gl.constexpr, CHUNKS: gl.constexpr
):
    gradient, numbers, seed, limit = given
    begin, end, step, part = share(bounds, across)
    pair0 = gl.load(bounds)
    pairs = (gl.load(bounds + 1) - pair0).to(gl.int32)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, UNITS, 16])
    u = part * UNITS + gl.arange(0, UNITS, gl.SliceLayout(0, layout))
    c_u = gl.load(numbers + u).to(gl.uint32)
    i = group * CHUNKS
    wait_for_weights(shared)
    for tile in range(begin + group * step, end, 2 * step):
        p = tile * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
        g = gl.load(gradient + p, mask=p < pairs, other=0.0)
        x, i = multiply(group, shared, i, gl.zeros((ROWS, UNITS), gl.float32, layout), CHUNKS)
        y = x * g[:, None]
        if DROP:
            a, b = pair_numbers(pair0 + p, gl.load(seed))
            y = drop_units(y, a, b, c_u, limit)
        copy_out(y, out, tile * ROWS, part * UNITS, shared[2].index(group))
    tma.store_wait(0)


# -- gradients of the layer: sums over pairs, a product weighted by a number for each pair -----------------------------
# Programs share the pairs, and each writes partial sums. Another kernel adds them up to gradients.


def last_layer_gradients(
    slopes: Tensor,
    h: Tensor,
    gradient: Tensor,
    layer: Sequence[Tensor],
    out: Sequence[Tensor],
    *,
    bounds: Tensor,
    scale: float,
    add: bool,
) -> None:
    """Compute the gradients of weight (H, D), bias (H,) and output weight (H,), and write or add them to ``out``.

    ``gradient`` is the gradient w.r.t. the scores. The kernel reads whole tiles of pairs, so h and ``gradient`` must
    extend to the end of the last tile, with 0 after the last pair. Gradients of weights are multiplied by the dropout
    ``scale``.
    """
    # 1. Divide the pairs into as many parts as there are processors for each tile of the result.
    (room, units), width = slopes.shape, h.shape[1]
    across = 256 if width % 256 == 0 else 128
    count = (units // (2 * ROWS.value)) * (width // across)
    parts = min(max(multiprocessor_count(h.device) // count, 1), triton.cdiv(room, CHUNK.value))
    # 2. Compute partial sums of G (parts, H, D) and of s (parts, H): slopes times h, and slopes, weighted by gradient.
    products, sums = torch.empty(parts, units, width, device=h.device), torch.empty(parts, units, device=h.device)
    matrices = (tiles(slopes, CHUNK.value, ROWS.value), tiles(h, CHUNK.value, across))
    arguments = (gradient, products, sums, bounds, room, parts, units, width)
    launch(_last_layer_weight_sums, (count * parts,), *matrices, *arguments, N=across, STAGES=4, **LAUNCH)
    # 3. Add them up to the gradients of the layer.
    shape = {"ADD": add, "P": 16, "C": triton.next_power_of_2(width), "num_warps": 4}
    launch(_add_up, (units,), products, sums, *layer, *out, scale, parts, units, width, **shape)


@triton.jit(do_not_specialize=["scale", "parts"])
def _add_up(
    products,
    sums,
    weight,
    bias,
    w,
    d_weight,
    d_bias,
    d_w,
    scale,
    parts,
    H,
    D,
    ADD: tl.constexpr,
    P: tl.constexpr,
    C: tl.constexpr,
):
    """Sum the partial sums of a unit to obtain its gradients."""
    wait_for_earlier()
    u, p, d = tl.program_id(0), tl.arange(0, P), tl.arange(0, C)
    g, s = tl.zeros((C,), tl.float32), tl.zeros((P,), tl.float32)
    for begin in range(0, parts, P):
        row, here = (begin + p) * H + u, begin + p < parts
        at = row.to(tl.int64)[:, None] * D + d[None, :]
        g += tl.sum(tl.load(products + at, mask=here[:, None] & (d < D)[None, :], other=0.0), 0)
        s += tl.load(sums + row, mask=here, other=0.0)
    side, out = tl.sum(s, 0), tl.load(w + u)
    own = tl.sum(g * tl.load(weight + u * D + d, mask=d < D, other=0.0).to(tl.float32), 0) + tl.load(bias + u) * side
    g, side, own = g * (out * scale), side * out, own * scale
    if ADD:
        g += tl.load(d_weight + u * D + d, mask=d < D, other=0.0)
        side += tl.load(d_bias + u)
        own += tl.load(d_w + u)
    tl.store(d_weight + u * D + d, g, mask=d < D)
    tl.store(d_bias + u, side)
    tl.store(d_w + u, own)


@gluon.jit(do_not_specialize=["room", "parts"])
def _last_layer_weight_sums(
    slopes, h, gradient, out, sums, bounds, room, parts, H, D, N: gl.constexpr, STAGES: gl.constexpr
):
    """Compute partial sums, where each program processes a tile (2 ROWS, N) of the result and a part of the pairs."""
    cs = gl.allocate_shared_memory(gl.bfloat16, [2 * STAGES, CHUNK, ROWS], slopes.layout)
    hs = gl.allocate_shared_memory(gl.bfloat16, [STAGES, CHUNK, N], h.layout)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(empty.index(i), count=2)
        mbarrier.init(ready.index(i), count=1)
    across = D // N
    tiles = H // (2 * ROWS) * across
    tile, part = gl.program_id(0) % tiles, gl.program_id(0) // tiles
    m, n = tile // across * 2 * ROWS, tile % across * N
    chunks = gl.cdiv((gl.load(bounds + 1) - gl.load(bounds)).to(gl.int32), CHUNK)
    each = gl.cdiv(chunks, parts)
    begin = (
        gl.where(part * each < chunks, part * each, gl.cdiv(room, CHUNK)) * CHUNK
    )  # values beyond the room are read as 0
    steps = gl.maximum(gl.minimum(each, chunks - part * each), 1)
    shared = (cs, hs, empty, ready)
    where = (begin, steps, part * each < chunks, m, n, part, H, D)
    gl.warp_specialize(
        [
            (_multiply_half, (0, shared, gradient, out, sums, where, N, STAGES)),
            (_multiply_half, (1, shared, gradient, out, sums, where, N, STAGES)),
            (_bring_pairs, (slopes, h, shared, where, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def _bring_pairs(slopes, h, shared, where, STAGES: gl.constexpr):
    cs, hs, empty, ready = shared
    begin, steps, _, m, n, _, _, _ = where
    for i in range(steps):
        at = i % STAGES
        full = ready.index(at)
        mbarrier.wait(empty.index(at), (i // STAGES & 1) ^ 1)
        mbarrier.expect(full, 2 * slopes.block_type.nbytes + h.block_type.nbytes)
        tma.async_copy_global_to_shared(slopes, [begin + i * CHUNK, m], full, cs.index(2 * at))
        tma.async_copy_global_to_shared(h, [begin + i * CHUNK, n], full, hs.index(at))
        tma.async_copy_global_to_shared(slopes, [begin + i * CHUNK, m + ROWS], full, cs.index(2 * at + 1))


@gluon.jit
def _multiply_half(half: gl.constexpr, shared, gradient, out, sums, where, N: gl.constexpr, STAGES: gl.constexpr):
    """Compute one half of the result, weighting each chunk in registers while the product of the other half runs."""
    cs, hs, empty, ready = shared
    begin, steps, any_pairs, m, n, part, H, D = where
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    total = gl.zeros((ROWS, N), gl.float32, layout)
    side = gl.zeros((ROWS,), gl.float32, gl.SliceLayout(1, operand))
    g = gradient + begin + gl.arange(0, CHUNK, gl.SliceLayout(0, operand))
    weights = gl.load(g, mask=any_pairs, other=0.0).to(gl.bfloat16)
    for i in range(steps):
        at = i % STAGES
        g += CHUNK
        following = gl.load(g, mask=i + 1 < steps, other=0.0)
        mbarrier.wait(ready.index(at), i // STAGES & 1)
        a = _weighted(cs.index(2 * at + half).permute((1, 0)).load(operand), weights)
        total = warpgroup_mma(a, hs.index(at), total, is_async=True)
        if n == 0:
            side += gl.sum(a.to(gl.float32), 1)
        weights = following.to(gl.bfloat16)
        total, a = warpgroup_mma_wait(0, deps=(total, a))
        mbarrier.arrive(empty.index(at), count=1)
    u = m + half * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    v = n + gl.arange(0, N, gl.SliceLayout(0, layout))
    gl.store(out + (part * H + u)[:, None] * D + v[None, :], total)
    if n == 0:
        t = m + half * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, operand))
        gl.store(sums + part * H + t, side)


@gluon.jit
def _weighted(c, g):
    """Multiply the slopes (ROWS, CHUNK) by the gradients g (CHUNK,) of the pairs, two pairs at a time."""
    return gl.inline_asm_elementwise(
        "mul.rn.bf16x2 $0, $1, $2;", "=r,r,r", [c, g[None, :]], dtype=gl.bfloat16, is_pure=True, pack=2
    )
