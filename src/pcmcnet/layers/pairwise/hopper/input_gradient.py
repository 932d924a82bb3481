"""The gradient by the input of the last hidden layer: a product of slopes, weighted by pair, dropped units left out."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

from pcmcnet.layers.gpu.launch import launch
from pcmcnet.layers.pairwise.hopper.matrix_product import (
    bring_tiles,
    copy_out,
    multiply,
    programs,
    share,
    shared_memory,
    wait_for_weights,
)
from pcmcnet.layers.pairwise.hopper.tiles import CHUNK, LAUNCH, ROWS, UNITS, tiles
from pcmcnet.layers.pairwise.triton.activation_dropout import drop_units, numbers_of_units, pair_numbers


def last_layer_input_gradient(
    slopes: Tensor, weight: Tensor, gradient: Tensor, *, bounds: Tensor, dropout: tuple[Tensor, int, int]
) -> Tensor:
    """Return slopes (room, H) times weight (D, H)^T, each row times its gradient (room,); anything after the last pair.

    ``dropout``: seeds, which of them is that of the layer before, and limit, which is 0 for no dropout.
    """
    seeds, layer, limit = dropout
    out = torch.empty(len(slopes), len(weight), dtype=slopes.dtype, device=slopes.device)
    launch(
        _last_layer_input_gradient,
        (programs(weight, slopes.device),),
        tiles(slopes, ROWS.value, CHUNK.value),
        tiles(weight, UNITS.value, CHUNK.value),
        tiles(out, ROWS.value, UNITS.value),
        gradient,
        numbers_of_units(len(weight), slopes.device),
        bounds,
        seeds,
        layer,
        len(weight),
        limit,
        DROP=limit != 0,
        CHUNKS=slopes.shape[1] // CHUNK.value,
        **LAUNCH,
    )
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
