"""What the steps of an epoch differ in, on a CUDA device: which sets, the learning rate, the seeds of dropout.

A recorded step takes them by its number, and the device counts the steps itself: nothing is launched but the graph.
Shapes: sets of all batches, one after the other (S,), where each batch begins (K,) -> sets of the next batch (B,).
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from pcmcnet.arrays import Ints
from pcmcnet.layers.gpu.launch import launch
from pcmcnet.layers.gpu.overlap import wait_for_earlier
from pcmcnet.layers.pairwise.triton.activation_dropout import scramble

SEEDS = 64  # of a step; a module that wants more draws them from a generator
BLOCK = 1024  # sets that are copied at a time. By choice


class EpochTape:
    """Holds an epoch in memory that stays where it is, as long as no later epoch is longer."""

    def __init__(self, device: torch.device) -> None:
        self.lr = torch.zeros((), device=device)  # of the step that was taken last
        self.seeds = torch.zeros(SEEDS, dtype=torch.int32, device=device)
        self.at = torch.zeros(2, dtype=torch.int64, device=device)  # number of the next step, and seed of the epoch
        self.sets, self.begins = (torch.zeros(0, dtype=torch.int64, device=device) for _ in range(2))
        self.rates = torch.zeros(0, device=device)

    def write(self, plan: Sequence[Ints], rates: Sequence[float], seed: int) -> bool:
        """Write an epoch from its first step on; returns whether it has found room in the same memory as before."""
        begins = np.cumsum([0, *(len(sets) for sets in plan[:-1])])
        epoch = {"sets": np.concatenate(plan), "begins": begins, "rates": np.array(rates, np.float32)}
        fits = all(len(values) <= len(getattr(self, name)) for name, values in epoch.items())
        for name, values in epoch.items():
            held: Tensor = getattr(self, name)
            if not fits:
                held = held.new_zeros(len(values))
                setattr(self, name, held)
            held[: len(values)].copy_(torch.from_numpy(values).pin_memory(), non_blocking=True)
        self.at.copy_(torch.tensor([0, seed % 2**31]).pin_memory(), non_blocking=True)
        return fits

    def take(self, count: int) -> Tensor:
        """Go on to the next step; returns the sets of its batch, so many."""
        index = self.sets.new_empty(count)
        given = (self.at, self.begins, self.sets, self.rates, index, self.lr, self.seeds, count)
        launch(_take, (1,), *given, S=SEEDS, C=BLOCK)
        return index


@triton.jit(do_not_specialize=["count"])
def _take(at, begins, sets, rates, index, lr, seeds, count, S: tl.constexpr, C: tl.constexpr):
    wait_for_earlier()
    step, seed, s = tl.load(at), tl.load(at + 1).to(tl.uint32), tl.arange(0, S)
    sets += tl.load(begins + step)
    for begin in range(0, count, C):
        b = begin + tl.arange(0, C)
        tl.store(index + b, tl.load(sets + b, mask=b < count), mask=b < count)
    tl.store(lr, tl.load(rates + step))
    drawn = scramble(scramble(scramble(seed) + step.to(tl.uint32)) + s.to(tl.uint32))
    tl.store(seeds + s, (drawn >> 1).to(tl.int32))
    tl.debug_barrier()  # until all threads have read the number of the step
    tl.store(at, step + 1)
