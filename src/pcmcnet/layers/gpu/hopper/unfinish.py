"""The gradient by the input of the last hidden layer: a product of slopes, weighted by pair, dropped units left out."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

from pcmcnet.layers.gpu.hopper.product import (
    bring_tiles,
    copy_out,
    drop_units,
    in_two,
    multiply,
    numbers_of_pairs,
    shared_memory,
)
from pcmcnet.layers.gpu.hopper.tiles import CHUNK, LAUNCH, ROWS, columns, tiles
from pcmcnet.layers.gpu.launch import launch
from pcmcnet.layers.gpu.units import numbers_of_units, processors


def unfinish_product(
    slopes: Tensor, weight: Tensor, gradient: Tensor, *, bounds: Tensor, dropout: tuple[Tensor, int, int]
) -> Tensor:
    """Return slopes (room, H) times weight (D, H)^T, each row times its gradient (room,); anything after the last pair.

    ``dropout``: seeds, which of them is that of the layer before, and limit, which is 0 for no dropout.
    """
    seeds, layer, limit = dropout
    width = columns(len(weight))
    out = torch.empty(len(slopes), len(weight), dtype=slopes.dtype, device=slopes.device)
    launch(
        _unfinish_product,
        (processors(slopes.device),),
        tiles(slopes, ROWS.value, CHUNK.value),
        tiles(weight, width, CHUNK.value),
        tiles(out, ROWS.value, width // 2),
        gradient,
        numbers_of_units(len(weight), slopes.device),
        bounds,
        seeds,
        layer,
        len(weight),
        slopes.shape[1],
        limit,
        DROP=limit != 0,
        N=width,
        **LAUNCH,
    )
    return out


@gluon.jit(do_not_specialize=["layer", "limit"])
def _unfinish_product(
    slopes,
    weight,
    out,
    gradient,
    numbers,
    bounds,
    seeds,
    layer,
    D,
    H,
    limit,
    DROP: gl.constexpr,
    N: gl.constexpr,
):
    shared = shared_memory(slopes, weight, out, True, N)
    shape = (bounds, D // N, H // CHUNK)
    given = (gradient, numbers, seeds + layer, limit)
    gl.warp_specialize(
        [
            (_unfinish_half, (0, shared, out, given, shape, DROP, N)),
            (_unfinish_half, (1, shared, out, given, shape, DROP, N)),
            (bring_tiles, (slopes, weight, shared, shape, N)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def _unfinish_half(half: gl.constexpr, shared, out, given, shape, DROP: gl.constexpr, N: gl.constexpr):
    gradient, numbers, seed, limit = given
    bounds, across, chunks = shape
    pair0 = gl.load(bounds)
    pairs = (gl.load(bounds + 1) - pair0).to(gl.int32)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    columns: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N // 2, 16])
    i = 0
    for tile in range(gl.program_id(0), gl.cdiv(pairs, 2 * ROWS) * across, gl.num_programs(0)):
        m, n = tile // across * 2 * ROWS + half * ROWS, tile % across * N
        p = m + gl.arange(0, ROWS, gl.SliceLayout(1, columns))
        g = gl.load(gradient + p, mask=p < pairs, other=0.0)
        x, i = multiply(half, shared, chunks, i, layout, N)
        a, b = numbers_of_pairs(pair0 + p, seed)
        sides = in_two(x, N, columns)
        for side in gl.static_range(2):  # while one is copied out, the other is worked on
            first = n + side * (N // 2)
            y = sides[side] * g[:, None]
            if DROP:
                u = first + gl.arange(0, N // 2, gl.SliceLayout(0, columns))
                y = drop_units(y, a, b, numbers + u, limit)
            copy_out(y, out, m, first, shared[2].index(half))
    tma.store_wait(0)
