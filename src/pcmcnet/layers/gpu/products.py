"""Matrix products with the hidden layers around them on the chip.

    finish_product   z = h weight^T, with ``finish`` on each tile while it is in registers
    score            a whole forward pass with two hidden layers and no dropout: thin matrices in, a number per pair out

``finish_product`` reads and writes through tensor descriptors, known to the hardware from compute capability 9.0 on.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import triton
import triton.language as tl

from pcmcnet.layers.gpu.units import act, drop


@triton.jit(do_not_specialize=["layer", "pair0", "pairs", "limit"])
def finish_product(
    h,
    weight,
    z,
    bias,
    w,
    out,
    seeds,
    layer,
    pair0,
    pairs,
    D,
    H,
    limit,
    ACT: tl.constexpr,
    DROP: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """Multiply (pairs, D) by (H, D)^T in tiles (M, N); ``out`` (tiles across, pairs) gets their parts of the scores."""
    across = tl.cdiv(H, N)
    for tile in tl.range(tl.program_id(0), tl.cdiv(pairs, M) * across, tl.num_programs(0), flatten=True):
        m, n = tile // across * M, tile % across * N
        total = tl.zeros((M, N), tl.float32)
        for k in range(0, D, K):
            total = tl.dot(h.load([m, k]), weight.load([n, k]).T, total)
        z.store([m, n], total.to(z.dtype))
        u, p = n + tl.arange(0, N), m + tl.arange(0, M)
        f = act(total + tl.load(bias + u, mask=u < H, other=0.0)[None, :], ACT)
        if DROP:
            f = drop(f, tl.load(seeds + layer), pair0 + p, u, limit)
        f = tl.sum(f * tl.load(w + u, mask=u < H, other=0.0)[None, :], 1)
        tl.store(out + (tile % across) * pairs + p, f, mask=p < pairs)


@triton.jit(do_not_specialize=["pairs", "J"])
def score(
    left,
    right,
    weight,
    bias,
    w,
    shift,
    out,
    pairs,
    J,
    D,
    H,
    ACT: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """Score pairs; ``weight`` is (D, H), the transpose of the layer's, D a multiple of K and H one of N."""
    for tile in range(tl.program_id(0), tl.cdiv(pairs, M), tl.num_programs(0)):
        p = tile * M + tl.arange(0, M)
        row = tl.minimum(p, pairs - 1) // J
        leave = left + row[:, None] * D
        enter = right + (row // J * J + tl.minimum(p, pairs - 1) - row * J)[:, None] * D
        f = tl.zeros((M,), tl.float32) + tl.load(shift)
        for n in range(0, H, N):
            u = n + tl.arange(0, N)
            total = tl.zeros((M, N), tl.float32)
            for k in range(0, D, K):
                v = k + tl.arange(0, K)
                z = tl.load(leave + v[None, :]) + tl.load(enter + v[None, :])
                h = act(z, ACT).to(weight.dtype.element_ty)
                total = tl.dot(h, tl.load(weight + v[:, None] * H + u[None, :]), total)
            f += tl.sum(act(total + tl.load(bias + u)[None, :], ACT) * tl.load(w + u)[None, :], 1)
        tl.store(out + p, f, mask=p < pairs)
