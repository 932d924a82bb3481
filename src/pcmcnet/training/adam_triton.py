"""Clipping, Adam and the totals of a step on a CUDA device: two kernels for all weights, whatever their number.

torch's functions for many tensors give 65,536 numbers to a program, so that a small network has a handful of programs,
and a step waits for them longer than for the products of its first layer. Here a program has ``BLOCK`` numbers.
The formulas are those of :mod:`pcmcnet.training.adam` and :func:`pcmcnet.training.step.clip_gradients`.
A table tells programs where weights, means, squares and numbers of steps are; gradients, which are in other memory in
each recorded graph, are put in a row first.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcmcnet.layers.gpu.launch import launch
from pcmcnet.layers.gpu.overlap import wait_for_earlier
from pcmcnet.training.adam import BETAS, EPS, Adam, Slot

BLOCK = 1024  # weights of a program. By choice
PARTS = 256  # sums of squares of a gradient. By choice


class Table(NamedTuple):
    """Where what belongs to some weights is."""

    slots: Tensor  # (K, 6): addresses of weights, means, squares and steps; first number in the row, how many
    decays: Tensor  # (K,)
    blocks: Tensor  # (programs, 2): a slot, and the first of its numbers


class ClippedAdam:
    """The steps of an ``Adam`` whose weights are all float32, in one piece each, with gradients clipped before."""

    def __init__(self, adam: Adam, limit: float) -> None:
        self.adam, self.limit = adam, limit
        self.tables: dict[tuple[int, ...], Table] = {}

    @staticmethod
    def takes(adam: Adam) -> bool:
        """Tell whether all weights are of the kind that the kernels know."""
        return all(s.weight.dtype == torch.float32 and s.weight.is_contiguous() for s in adam.slots)

    def step(self, loss: Tensor, weight: Tensor, total: Tensor) -> None:
        """Move the weights that have a gradient; add loss, weight and the norm before clipping to the totals (3,)."""
        moved = tuple(k for k, slot in enumerate(self.adam.slots) if slot.weight.grad is not None)
        if moved not in self.tables:
            self.tables[moved] = _table([self.adam.slots[k] for k in moved])
        slots, decays, blocks = self.tables[moved]
        row = torch.cat([g.flatten() for k in moved if (g := self.adam.slots[k].weight.grad) is not None])
        parts = row.new_empty(PARTS)
        count = {"K": len(slots), "S": triton.next_power_of_2(len(slots))}
        launch(_square_sums, (PARTS,), row, parts, slots, len(row), **count, C=BLOCK)
        given = (row, parts, slots, decays, blocks, self.adam.lr, self.limit, loss, weight, total)
        betas = {"B1": BETAS[0], "B2": BETAS[1], "LOG1": math.log(BETAS[0]), "LOG2": math.log(BETAS[1]), "EPSILON": EPS}
        launch(_move, (len(blocks),), *given, **betas, P=PARTS, C=BLOCK)


def _table(slots: Sequence[Slot]) -> Table:
    places, blocks, begin = [], [], 0
    for k, slot in enumerate(slots):
        there = (slot.weight, slot.exp_avg, slot.exp_avg_sq, slot.step)
        places.append([*(tensor.data_ptr() for tensor in there), begin, slot.weight.numel()])
        blocks += [[k, first] for first in range(0, slot.weight.numel(), BLOCK)]
        begin += slot.weight.numel()
    device = slots[0].weight.device
    decays = torch.tensor([slot.decay for slot in slots], dtype=torch.float32, device=device)
    return Table(torch.tensor(places, device=device), decays, torch.tensor(blocks, device=device))


@triton.jit(do_not_specialize=["count"])
def _square_sums(row, parts, slots, count, K: tl.constexpr, S: tl.constexpr, C: tl.constexpr):
    """Fill in parts of the sum of squares; count a step."""
    wait_for_earlier()
    at = tl.program_id(0) * C + tl.arange(0, C)
    total = tl.zeros((C,), tl.float32)
    for begin in range(0, count, tl.num_programs(0) * C):
        g = tl.load(row + begin + at, mask=begin + at < count, other=0.0)
        total += g * g
    tl.store(parts + tl.program_id(0), tl.sum(total, 0))
    if tl.program_id(0) == 0:
        k = tl.arange(0, S)
        step = tl.load(slots + k * 6 + 3, mask=k < K, other=0).to(tl.pointer_type(tl.float32))
        tl.store(step, tl.load(step, mask=k < K, other=0.0) + 1.0, mask=k < K)


@triton.jit(do_not_specialize=["limit"])
def _move(
    row,
    parts,
    slots,
    decays,
    blocks,
    lr,
    limit,
    loss,
    weight,
    total,
    B1: tl.constexpr,
    B2: tl.constexpr,
    LOG1: tl.constexpr,
    LOG2: tl.constexpr,
    EPSILON: tl.constexpr,
    P: tl.constexpr,
    C: tl.constexpr,
):
    """Move a block of a weight."""
    wait_for_earlier()
    norm = tl.sqrt(tl.sum(tl.load(parts + tl.arange(0, P)), 0))
    slot, first = tl.load(blocks + 2 * tl.program_id(0)), tl.load(blocks + 2 * tl.program_id(0) + 1)
    place, at = slots + slot * 6, first + tl.arange(0, C)
    here = at < tl.load(place + 5)
    w = tl.load(place).to(tl.pointer_type(tl.float32)) + at
    m = tl.load(place + 1).to(tl.pointer_type(tl.float32)) + at
    v = tl.load(place + 2).to(tl.pointer_type(tl.float32)) + at
    step = tl.load(tl.load(place + 3).to(tl.pointer_type(tl.float32))).to(tl.float64)
    rate = tl.load(lr)
    g = tl.load(row + tl.load(place + 4) + at, mask=here, other=0.0)
    g *= tl.minimum(limit / (norm + 1e-6), 1.0, propagate_nan=tl.PropagateNan.ALL)
    old, mean, square = tl.load(w, mask=here), tl.load(m, mask=here), tl.load(v, mask=here)
    mean += (g - mean) * (1.0 - B1)
    square = square * B2 + g * g * (1.0 - B2)
    tl.store(m, mean, mask=here)
    tl.store(v, square, mask=here)
    unbiased = (1.0 - tl.exp(step * LOG1)).to(tl.float32)
    spread = tl.sqrt(1.0 - tl.exp(step * LOG2)).to(tl.float32)
    old -= rate * tl.load(decays + slot) * old
    tl.store(w, old - rate / unbiased * mean / (tl.sqrt(square) / spread + EPSILON), mask=here)
    if tl.program_id(0) == 0:
        tl.store(total, tl.load(total) + tl.load(loss).to(tl.float64))
        tl.store(total + 1, tl.load(total + 1) + tl.load(weight).to(tl.float64))
        tl.store(total + 2, tl.load(total + 2) + norm.to(tl.float64))
