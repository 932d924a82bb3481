"""Log-probabilities of a batch put at the places of its sets on a CUDA device, in one kernel where torch takes a dozen.

Shapes: log p (B, J), positions of the sets (B,) -> log p (N,), set after set; and by how much a sum of p misses 1.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from pcmcnet.data.batches import EncodedSets
from pcmcnet.layers.gpu.launch import launch
from pcmcnet.layers.gpu.overlap import wait_for_earlier

BLOCK = 128  # alternatives at a time. By choice


def spread(log_p: Tensor, index: Tensor, data: EncodedSets, flat: Tensor) -> None:
    """Fill in float64 log p of the batch; the last place of ``flat`` is for the largest miss so far."""
    given = (log_p.contiguous(), index, data.starts, data.counts, flat, len(flat) - 1, log_p.shape[1])
    launch(_spread, (len(index),), *given, C=BLOCK, num_warps=1)


@triton.jit(do_not_specialize=["last", "J"])
def _spread(log_p, index, starts, counts, flat, last, J, C: tl.constexpr):
    wait_for_earlier()
    b = tl.program_id(0).to(tl.int64)
    k = tl.load(index + b)
    first, n = tl.load(starts + k), tl.load(counts + k)
    total = tl.zeros((), tl.float64)
    for begin in range(0, n, C):
        j = begin + tl.arange(0, C)
        x = tl.load(log_p + b * J + j, mask=j < n, other=float("-inf")).to(tl.float64)
        tl.store(flat + first + j, x, mask=j < n)
        total += tl.sum(tl.exp(x), 0)
    miss = tl.abs(total - 1.0)
    tl.atomic_max(flat + last, tl.where(miss == miss, miss, float("inf")))  # a NaN might get lost there
