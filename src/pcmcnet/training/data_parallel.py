"""Several processes that train one network together, each on its share of every batch.

    batch of sets S, process r of n:   S_r = every n-th set of S from the r-th on, where each holds all sets,
                                             or those of S that it holds, where each has read a part of the table
    gradient  =  sum_r  d/dw  sum_{s in S_r} weight_s nll_s   /   sum_r sum_{s in S_r} weight_s

which is the gradient of one process that holds all of S, up to rounding, whose effects grow with the steps: the weights
are not those of one process. All processes of a group plan the same batches, take the same steps and come to the same
weights as each other; the first of them writes the checkpoints. Dropout is drawn by each for itself.

How sums are taken over the processes is given from outside (``torch.distributed`` for instance): the loop only asks
which group it is in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

from pcmcnet.arrays import Ints


@dataclass(frozen=True)
class ProcessGroup:
    """A process among others; the default is one process alone."""

    rank: int = 0
    size: int = 1
    sum_over_processes: Callable[[Tensor], object] = lambda tensor: (
        None
    )  # replaces a tensor by its sum over all processes
    on_checkpoint: Callable[[], object] = lambda: None  # called by the first process after it has written a checkpoint

    @property
    def is_first(self) -> bool:
        """Whether this process writes what all of them share."""
        return self.rank == 0

    def share(self, sets: Ints) -> Ints:
        """Return this process's share of a batch: every n-th set, so that large and small ones are spread evenly."""
        return sets[self.rank :: self.size]

    def seed(self, drawn: int) -> int:
        """Return this process's own seed; that of the first is the one drawn."""
        return (drawn + self.rank) % 2**63

    def add_gradients(self, parameters: Iterable[Tensor], loss: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Turn gradients of the sums of the shares into the gradient of the batch's mean.

        One message for all: gradients, loss and weight. Returns the loss and the weight of the whole batch.
        """
        # 1. One row of all gradients, 0 for a process without a share, then loss and weight; summed over processes.
        parameters = [p for p in parameters if p.requires_grad]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([*(g.flatten() for g in gradients), torch.stack([loss, weight])])
        self.sum_over_processes(flat)
        # 2. The mean over the batch, as views of the row.
        loss, weight = flat[-2], flat[-1]
        flat = flat / weight
        begin = 0
        for parameter in parameters:
            parameter.grad = flat[begin : begin + parameter.numel()].view_as(parameter)
            begin += parameter.numel()
        return loss, weight


_group: ContextVar[ProcessGroup] = ContextVar("group", default=ProcessGroup())  # noqa: B039 - frozen


def current_group() -> ProcessGroup:
    """Return the group of processes in which this context trains."""
    return _group.get()


@contextmanager
def training_in_group(group: ProcessGroup) -> Iterator[None]:
    """Share the training within the block among the processes of a group, which all run the same block."""
    token = _group.set(group)
    try:
        yield
    finally:
        _group.reset(token)
