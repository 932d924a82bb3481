"""Scores from the last hidden layer: a product, and on each of its tiles, while at hand, the rest of the layer."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

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
from pcmcnet.layers.pairwise.hopper.tiles import CHUNK, LAUNCH, ROWS, SLOPES, UNITS, tiles
from pcmcnet.layers.pairwise.triton.activation_dropout import drop_units, numbers_of_units, pair_numbers


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
    """Fill in parts of the scores (parts, all pairs); returns the slopes (room, H), if they are to be kept.

    ``dropout``: seeds, which of them is the layer's, and limit, which is 0 for no dropout. ``spare`` processors are
    left to other kernels.
    """
    seeds, layer, limit = dropout
    slopes = h.new_empty(len(h) if keep else 0, len(weight))
    launch(
        _last_layer_forward,
        (programs(weight, h.device, spare),),
        tiles(h, ROWS.value, CHUNK.value),
        tiles(weight, UNITS.value, CHUNK.value),
        tiles(slopes if keep else h, ROWS.value, UNITS.value),
        bias,
        w,
        numbers_of_units(len(weight), h.device),
        parts,
        bounds,
        seeds,
        layer,
        parts.shape[1],
        len(weight),
        limit,
        SLOPE=SLOPES[activation],
        KEEP=keep,
        DROP=limit != 0,
        CHUNKS=h.shape[1] // CHUNK.value,
        **LAUNCH,
    )
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
    """Multiply (pairs, D) by (H, D)^T; ``out`` (tiles across, room) gets parts of the scores.

    Rows are those of a piece, which begins with the pair ``bounds`` tells; scores stand at the numbers of pairs.
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
    """Return 1 above 0 and the slope elsewhere; why in one piece of code, see ``units.drop_units``."""
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
