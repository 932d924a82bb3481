"""Kernels that begin and end a training step captured as a CUDA graph: reading the batch, and updating the weights.

A captured step reads its sets, its learning rate and its dropout seeds from the ``EpochTape``, at the position given by
the number of steps so far. The device counts the steps, so that the host only launches the graph. Shapes: concatenated
sets of all batches (S,), start of each batch (K,) -> sets of the next batch (B,).

``ClippedAdam`` updates all weights in two kernels, however many weights there are. In torch's multi-tensor functions,
each program of a kernel updates 65,536 weights. A small network therefore has only a few programs, and a step waits
longer for these programs than for the products of its first layer. In ``ClippedAdam``, each program updates only
``WEIGHTS_PER_PROGRAM`` weights. The formulas are the same as in :mod:`pcmcnet.training.adam` and
:func:`pcmcnet.training.step.clip_gradients`. A table holds the addresses of the weights, their running means and their
step counts. Gradients, whose addresses differ between captured graphs, are first copied into one buffer.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from pcmcnet.arrays import Ints
from pcmcnet.layers.kernel_launch import launch, wait_for_earlier
from pcmcnet.layers.pairwise.triton.elementwise import scramble
from pcmcnet.training.adam import BETAS, EPS, Adam, Slot

SEEDS_PER_STEP = 64  # a network that needs more draws them from a generator
SETS_PER_COPY = 1024  # sets of a batch copied at a time. Not tuned
WEIGHTS_PER_PROGRAM = 1024  # not tuned
PARTIAL_SUMS = 256  # partial sums of the squared gradient, one per program. Not tuned


class EpochTape:
    """The batches of an epoch in device memory, whose addresses change only if a later epoch is longer."""

    def __init__(self, device: torch.device) -> None:
        self.lr = torch.zeros((), device=device)  # of the last step
        self.seeds = torch.zeros(SEEDS_PER_STEP, dtype=torch.int32, device=device)
        self.at = torch.zeros(2, dtype=torch.int64, device=device)  # number of the next step; seed of the epoch
        self.sets, self.begins = (torch.zeros(0, dtype=torch.int64, device=device) for _ in range(2))
        self.rates = torch.zeros(0, device=device)

    def write(self, plan: Sequence[Ints], rates: Sequence[float], seed: int) -> bool:
        """Write a new epoch to the tape, and return True if the epoch fits into the existing memory."""
        # 1. Lay out the epoch: sets of all batches, start of each batch, learning rates.
        begins = np.cumsum([0, *(len(sets) for sets in plan[:-1])])
        epoch = {"sets": np.concatenate(plan), "begins": begins, "rates": np.array(rates, np.float32)}
        fits = all(len(values) <= len(getattr(self, name)) for name, values in epoch.items())
        # 2. Copy it into the memory that captured graphs read or, if that is too short, into new memory.
        for name, values in epoch.items():
            tape: Tensor = getattr(self, name)
            if not fits:
                tape = tape.new_zeros(len(values))
                setattr(self, name, tape)
            tape[: len(values)].copy_(torch.from_numpy(values).pin_memory(), non_blocking=True)
        # 3. Start at the first step.
        self.at.copy_(torch.tensor([0, seed % 2**31]).pin_memory(), non_blocking=True)
        return fits

    def take(self, count: int) -> Tensor:
        """Advance to the next step, and return the ``count`` sets of its batch."""
        index = self.sets.new_empty(count)
        arguments = (self.at, self.begins, self.sets, self.rates, index, self.lr, self.seeds, count)
        launch(_take, (1,), *arguments, S=SEEDS_PER_STEP, C=SETS_PER_COPY)
        return index


class WeightTable(NamedTuple):
    """Addresses of some weights and of their optimiser state in the device's memory."""

    slots: Tensor  # (K, 6): addresses of weight, mean, square and step; start in the row, count
    decays: Tensor  # (K,)
    blocks: Tensor  # (programs, 2): a slot, and the first number within it


class ClippedAdam:
    """Adam steps with gradient clipping, for weights that are all float32 and contiguous."""

    def __init__(self, adam: Adam, max_norm: float) -> None:
        self.adam, self.max_norm = adam, max_norm
        self.tables: dict[tuple[int, ...], WeightTable] = {}

    @staticmethod
    def takes(adam: Adam) -> bool:
        """Return True if all weights are contiguous and float32, as the kernels require."""
        return all(s.weight.dtype == torch.float32 and s.weight.is_contiguous() for s in adam.slots)

    def step(self, loss: Tensor, weight: Tensor, total: Tensor) -> None:
        """Update the weights that have a gradient, and add loss, weight and unclipped norm to the totals (3,)."""
        # 1. Find the weights with a gradient; each combination of them gets one table.
        moved = tuple(k for k, slot in enumerate(self.adam.slots) if slot.weight.grad is not None)
        if moved not in self.tables:
            self.tables[moved] = _table([self.adam.slots[k] for k in moved])
        slots, decays, blocks = self.tables[moved]
        # 2. Copy all gradients into one row, and compute partial sums of their squares.
        row = torch.cat([g.flatten() for k in moved if (g := self.adam.slots[k].weight.grad) is not None])
        parts = row.new_empty(PARTIAL_SUMS)
        count = {"K": len(slots), "S": triton.next_power_of_2(len(slots))}
        launch(_square_sums, (PARTIAL_SUMS,), row, parts, slots, len(row), **count, C=WEIGHTS_PER_PROGRAM)
        # 3. Clip by the norm, update the weights, and add to the totals.
        arguments = (row, parts, slots, decays, blocks, self.adam.lr, self.max_norm, loss, weight, total)
        betas = {"B1": BETAS[0], "B2": BETAS[1], "LOG1": math.log(BETAS[0]), "LOG2": math.log(BETAS[1]), "EPSILON": EPS}
        launch(_move, (len(blocks),), *arguments, **betas, P=PARTIAL_SUMS, C=WEIGHTS_PER_PROGRAM)


def _table(slots: Sequence[Slot]) -> WeightTable:
    """Return the address table of some weights, in the order of their gradients in the buffer."""
    places, blocks, begin = [], [], 0
    for k, slot in enumerate(slots):
        tensors = (slot.weight, slot.exp_avg, slot.exp_avg_sq, slot.step)
        places.append([*(tensor.data_ptr() for tensor in tensors), begin, slot.weight.numel()])
        blocks += [[k, first] for first in range(0, slot.weight.numel(), WEIGHTS_PER_PROGRAM)]
        begin += slot.weight.numel()
    device = slots[0].weight.device
    decays = torch.tensor([slot.decay for slot in slots], dtype=torch.float32, device=device)
    return WeightTable(torch.tensor(places, device=device), decays, torch.tensor(blocks, device=device))


@triton.jit(do_not_specialize=["count"])
def _take(at, begins, sets, rates, index, lr, seeds, count, S: tl.constexpr, C: tl.constexpr):
    """Copy the sets, the learning rate and the seeds of the next step, and increment the step count."""
    wait_for_earlier()
    step, seed, s = tl.load(at), tl.load(at + 1).to(tl.uint32), tl.arange(0, S)
    sets += tl.load(begins + step)
    for begin in range(0, count, C):
        b = begin + tl.arange(0, C)
        tl.store(index + b, tl.load(sets + b, mask=b < count), mask=b < count)
    tl.store(lr, tl.load(rates + step))
    drawn = scramble(scramble(scramble(seed) + step.to(tl.uint32)) + s.to(tl.uint32))
    tl.store(seeds + s, (drawn >> 1).to(tl.int32))
    tl.debug_barrier()  # all threads must have read the number of the step
    tl.store(at, step + 1)


@triton.jit(do_not_specialize=["count"])
def _square_sums(row, parts, slots, count, K: tl.constexpr, S: tl.constexpr, C: tl.constexpr):
    """Compute partial sums of the squared gradient, and increment the step count of each weight."""
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
    """Update one block of a weight tensor."""
    wait_for_earlier()
    # 1. Compute the norm of the whole gradient, and locate this block of a weight.
    norm = tl.sqrt(tl.sum(tl.load(parts + tl.arange(0, P)), 0))
    slot, first = tl.load(blocks + 2 * tl.program_id(0)), tl.load(blocks + 2 * tl.program_id(0) + 1)
    place, at = slots + slot * 6, first + tl.arange(0, C)
    here = at < tl.load(place + 5)
    w = tl.load(place).to(tl.pointer_type(tl.float32)) + at
    m = tl.load(place + 1).to(tl.pointer_type(tl.float32)) + at
    v = tl.load(place + 2).to(tl.pointer_type(tl.float32)) + at
    step = tl.load(tl.load(place + 3).to(tl.pointer_type(tl.float32))).to(tl.float64)
    rate = tl.load(lr)
    # 2. Clip the gradient, and update the running means of it and of its square.
    g = tl.load(row + tl.load(place + 4) + at, mask=here, other=0.0)
    g *= tl.minimum(limit / (norm + 1e-6), 1.0, propagate_nan=tl.PropagateNan.ALL)
    old, mean, square = tl.load(w, mask=here), tl.load(m, mask=here), tl.load(v, mask=here)
    mean += (g - mean) * (1.0 - B1)
    square = square * B2 + g * g * (1.0 - B2)
    tl.store(m, mean, mask=here)
    tl.store(v, square, mask=here)
    # 3. Apply the decoupled decay, then the step of Adam with bias-corrected means.
    unbiased = (1.0 - tl.exp(step * LOG1)).to(tl.float32)
    spread = tl.sqrt(1.0 - tl.exp(step * LOG2)).to(tl.float32)
    old -= rate * tl.load(decays + slot) * old
    tl.store(w, old - rate / unbiased * mean / (tl.sqrt(square) / spread + EPSILON), mask=here)
    # 4. One program adds to the totals of the epoch.
    if tl.program_id(0) == 0:
        tl.store(total, tl.load(total) + tl.load(loss).to(tl.float64))
        tl.store(total + 1, tl.load(total + 1) + tl.load(weight).to(tl.float64))
        tl.store(total + 2, tl.load(total + 2) + norm.to(tl.float64))
