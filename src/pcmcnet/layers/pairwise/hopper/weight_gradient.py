"""Sums over pairs that hold all gradients of the last hidden layer: a product weighted by a number for each pair.

Programs share the pairs, and each leaves a part of the sums. One more kernel adds them up to gradients.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from pcmcnet.layers.gpu.launch import launch, processors
from pcmcnet.layers.gpu.overlap import wait_for_earlier
from pcmcnet.layers.pairwise.hopper.tiles import CHUNK, LAUNCH, ROWS, tiles


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
    """Fill in, or add to, the gradients of weight (H, D), bias (H,) and output weight (H,): ``layer`` and ``out``.

    A chunk of pairs is read whole: where there are fewer, h and ``gradient``, that by the scores, are to be 0. The
    latter is as long as all chunks. Gradients by weights are multiplied by the ``scale`` that these were given.
    """
    products, sums = _weight_sums(slopes, h, gradient, bounds)
    parts, units, width = products.shape
    shape = {"ADD": add, "P": 16, "C": triton.next_power_of_2(width), "num_warps": 4}
    launch(_add_up, (units,), products, sums, *layer, *out, scale, parts, units, width, **shape)


def _weight_sums(slopes: Tensor, h: Tensor, gradient: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """Return parts of G (parts, H, D) and s (parts, H): of slopes times h, and of slopes, weighted by the gradient."""
    room, width = slopes.shape
    across = 256 if h.shape[1] % 256 == 0 else 128
    count = (width // (2 * ROWS.value)) * (h.shape[1] // across)
    parts = min(max(processors(h.device) // count, 1), triton.cdiv(room, CHUNK.value))
    products = torch.empty(parts, width, h.shape[1], device=h.device)
    sums = torch.empty(parts, width, device=h.device)
    launch(
        _last_layer_weight_sums,
        (count * parts,),
        tiles(slopes, CHUNK.value, ROWS.value),
        tiles(h, CHUNK.value, across),
        gradient,
        products,
        sums,
        bounds,
        room,
        parts,
        width,
        h.shape[1],
        N=across,
        STAGES=4,
        **LAUNCH,
    )
    return products, sums


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
    """Turn the parts of a unit into its gradients."""
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
    """Each program has a tile (2 ROWS, N) of the result, and a part of the pairs."""
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
    begin = gl.where(part * each < chunks, part * each, gl.cdiv(room, CHUNK)) * CHUNK  # beyond the room all is 0
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
    """Weight a chunk in registers while the other half's product is under way."""
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
    """Weight pairs (ROWS, CHUNK) by g (CHUNK,), two at a time."""
    return gl.inline_asm_elementwise(
        "mul.rn.bf16x2 $0, $1, $2;", "=r,r,r", [c, g[None, :]], dtype=gl.bfloat16, is_pure=True, pack=2
    )
