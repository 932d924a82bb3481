"""The product that two kernels are built around: (pairs, D) by (H, D)^T, tile by tile, and what becomes of a tile.

A program keeps the weights of some units in shared memory for good, and pairs come by in tiles. Two groups of four
warps take turns: while one multiplies, the other works on the tile that it has multiplied before. One more warp has the
tiles copied into shared memory, some chunks ahead.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import torch
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

from pcmcnet.layers import settings
from pcmcnet.layers.gpu.launch import processors
from pcmcnet.layers.pairwise.hopper.tiles import CHUNK, ROWS, UNITS

STAGES = gl.constexpr(settings.HOPPER_CHUNKS_AHEAD)  # chunks that are copied ahead


def unit_tiles(weight: Tensor) -> int:
    """Return how many tiles stand side by side across the units of a layer."""
    return len(weight) // int(UNITS.value)


def programs(weight: Tensor, device: torch.device, spare: int = 0) -> int:
    """Return how many programs to launch: equally many for every part of the units."""
    across = unit_tiles(weight)
    return across * max((processors(device) - spare) // across, 1)


@gluon.jit
def shared_memory(h, weight, result, KEEP: gl.constexpr, CHUNKS: gl.constexpr):
    """Return room for chunks of the pairs, for the weights and for a tile of the result of each group; and barriers."""
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
    """Wait until the weights are there, which is once."""
    _, _, _, barriers = shared
    mbarrier.wait(barriers[3].index(0), 0)


@gluon.jit
def share(bounds, across):
    """Return a program's first tile, the end of all tiles, the distance of its tiles, and its part of the units."""
    pairs = (gl.load(bounds + 1) - gl.load(bounds)).to(gl.int32)
    return gl.program_id(0) // across, gl.cdiv(pairs, ROWS), gl.num_programs(0) // across, gl.program_id(0) % across


@gluon.jit
def bring_tiles(h, weight, shared, bounds, across, CHUNKS: gl.constexpr):
    """Have the weights, and then all tiles of a program, copied into shared memory."""
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
    """Return a tile (ROWS, UNITS) of the product, added to x, at the group's turn; and the number of its next chunk.

    ``i`` is the number of the tile's first chunk. Tiles of both groups alternate, so every other tile is one's own.
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
        mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES), count=1, pred=k > 0)  # the one before is done
        i += 1
    x = warpgroup_mma_wait(0, deps=(x,))
    mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES), count=1)
    return x, i + CHUNKS


@gluon.jit
def copy_out(x, result, m, n, room):
    """Have a tile copied out, once what was copied before has left."""
    tma.store_wait(0)
    room.store(x.to(gl.bfloat16))
    fence_async_shared()
    tma.async_copy_shared_to_global(result, [m, n], room)
