"""Batches on a CUDA device: one kernel gathers a batch, and one kernel writes its results back.

PyTorch would need dozens of kernels for these two operations. ``gather`` returns the same batch as
:meth:`pcmcnet.data.batches.EncodedSets.gather`, in which padding repeats the first alternative. Shapes: positions (B,),
alternatives (N, F) -> (B, J, F), and sets (S, F) -> (B, F). ``scatter`` writes log-probabilities to the rows of their
alternatives, and computes the largest deviation of a probability sum from 1. Shapes: log p (B, J), positions of the
sets (B,) -> log p (N,) in the order of the sets.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcmcnet.data.batches import Batch, EncodedSets
from pcmcnet.layers.kernel_launch import is_collecting_kernels, launch, wait_for_earlier

GATHER_BLOCK = 1024  # numbers that a program copies at a time. Not tuned
SPREAD_BLOCK = 128  # alternatives that a program writes at a time. Not tuned


def gather(data: EncodedSets, index: Tensor, places: int) -> Batch:
    """Gather sets by positions (B,), padded to ``places`` alternatives, from data without contents or persons."""
    sets = len(index)
    features, individual = (data.numeric, data.categorical), (data.individual_numeric, data.individual_categorical)
    wide = [x.new_empty(sets, places, x.shape[1]) for x in features]
    thin = [x.new_empty(sets, x.shape[1]) for x in individual]
    mask = torch.empty(sets, places, dtype=torch.bool, device=index.device)
    chosen, weight = (x.new_empty(sets) for x in (data.chosen, data.weight))
    inputs = (index, data.starts, data.counts, *features, *individual, data.chosen, data.weight)
    widths = [x.shape[1] for x in (*features, *individual)]
    launch(_gather, (sets,), *inputs, *wide, *thin, chosen, weight, mask, places, *widths, C=GATHER_BLOCK)
    if is_collecting_kernels():  # nothing was launched, but the batch must hold valid categories
        return data.gather(index, places)
    return Batch(
        numeric=wide[0],
        categorical=wide[1],
        individual_numeric=thin[0],
        individual_categorical=thin[1],
        mask=mask,
        chosen=chosen,
        weight=weight,
    )


@triton.jit
def _copy_rows(rows, out, first, n, b, J, F, C: tl.constexpr):
    """Copy n rows, beginning at ``first``, to set b, and pad to J rows with copies of the first row."""
    out += b * J * F
    for begin in range(0, J * F, C):
        at = begin + tl.arange(0, C)
        place = at // F
        source = (first + tl.where(place < n, place, 0)) * F + at % F
        tl.store(out + at, tl.load(rows + source, mask=at < J * F), mask=at < J * F)


@triton.jit(do_not_specialize=["J", "F", "G", "F0", "G0"])
def _gather(
    index,
    starts,
    counts,
    numeric,
    categorical,
    individual_numeric,
    individual_categorical,
    chosen,
    weight,
    to_numeric,
    to_categorical,
    to_individual_numeric,
    to_individual_categorical,
    to_chosen,
    to_weight,
    mask,
    J,
    F,
    G,
    F0,
    G0,
    C: tl.constexpr,
):
    wait_for_earlier()
    b = tl.program_id(0).to(tl.int64)
    k = tl.load(index + b)
    first, n = tl.load(starts + k), tl.load(counts + k)
    _copy_rows(numeric, to_numeric, first, n, b, J, F, C)
    _copy_rows(categorical, to_categorical, first, n, b, J, G, C)
    _copy_rows(individual_numeric, to_individual_numeric, k, 1, b, 1, F0, C)
    _copy_rows(individual_categorical, to_individual_categorical, k, 1, b, 1, G0, C)
    tl.store(to_chosen + b, tl.load(chosen + k))
    tl.store(to_weight + b, tl.load(weight + k))
    for begin in range(0, J, C):
        place = begin + tl.arange(0, C)
        tl.store(mask + b * J + place, place < n, mask=place < J)


def scatter(log_p: Tensor, index: Tensor, data: EncodedSets, flat: Tensor) -> None:
    """Write log p of a batch to ``flat`` in float64, and the largest deviation of a sum from 1 to its last entry."""
    arguments = (log_p.contiguous(), index, data.starts, data.counts, flat, len(flat) - 1, log_p.shape[1])
    launch(_spread, (len(index),), *arguments, C=SPREAD_BLOCK, num_warps=1)


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
    tl.atomic_max(flat + last, tl.where(miss == miss, miss, float("inf")))  # atomic_max may drop NaN
