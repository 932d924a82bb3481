"""Data-parallel training: several processes train one network, each on its share of every batch.

    batch of sets S, process r of n:   S_r = every n-th set of S from the r-th on, if each process holds all sets,
                                             or the sets of S that it holds, if each has read a part of the table
    gradient  =  sum_r  d/dw  sum_{s in S_r} weight_s nll_s   /   sum_r sum_{s in S_r} weight_s

Up to rounding, the result is the gradient that a single process would compute for the whole batch S. Rounding errors
grow with the number of steps, so the weights differ from those of a single process. All processes of a group plan the
same batches, take the same steps and reach the same weights. The first process writes the checkpoints. Each process
draws its own dropout masks.

The caller passes the function that sums a tensor over processes, for example one from ``torch.distributed``. The
training loop itself depends only on the :class:`ProcessGroup`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pcmcnet.arrays import Ints

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ProcessGroup:
    """One process of a group, which by default consists of a single process."""

    rank: int = 0
    size: int = 1
    sum_over_processes: Callable[[Tensor], object] = lambda tensor: None  # replaces a tensor by its sum over processes
    on_checkpoint: Callable[[], object] = lambda: None  # called by the first process after writing a checkpoint

    @property
    def is_first(self) -> bool:
        """Whether this is the first process, which writes shared files."""
        return self.rank == 0

    def share(self, sets: Ints) -> Ints:
        """Return this process's share of a batch: every n-th set, so that each process gets large and small sets."""
        return sets[self.rank :: self.size]

    def seed(self, drawn: int) -> int:
        """Return the seed of this process, which is the drawn seed itself in the first process."""
        return (drawn + self.rank) % 2**63

    def add_gradients(self, parameters: Iterable[Tensor], loss: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Replace the gradient of this process's summed loss with the gradient of the mean loss over the whole batch.

        Gradients, loss and weight are sent in one message. The function returns the loss and the weight of the whole
        batch.
        """
        import torch  # slow: models without networks do without it

        # 1. Sum a row of all gradients, loss and weight over processes; a process without a share adds zeros.
        parameters = [p for p in parameters if p.requires_grad]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([*(g.flatten() for g in gradients), torch.stack([loss, weight])])
        self.sum_over_processes(flat)
        # 2. Divide by the weight; the new gradients are views of the row.
        loss, weight = flat[-2], flat[-1]
        flat = flat / weight
        begin = 0
        for parameter in parameters:
            parameter.grad = flat[begin : begin + parameter.numel()].view_as(parameter)
            begin += parameter.numel()
        return loss, weight


_group: ContextVar[ProcessGroup] = ContextVar("group", default=ProcessGroup())  # noqa: B039 - frozen


def current_group() -> ProcessGroup:
    """Return the process group of the current context."""
    return _group.get()


@contextmanager
def training_in_group(group: ProcessGroup) -> Iterator[None]:
    """Train as one process of a group inside the block, which every process of the group runs."""
    token = _group.set(group)
    try:
        yield
    finally:
        _group.reset(token)
