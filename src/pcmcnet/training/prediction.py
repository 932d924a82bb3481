"""Log-probabilities of encoded choice sets by a network, batch after batch and without gradients.

A module maps a ``Batch`` to log-probabilities (B, J). Batches are as large as memory allows; on a GPU two of them are
under way at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from pcmcnet.arrays import Ints
from pcmcnet.data.batches import Batch, Coded, EncodedSets, plan_batches
from pcmcnet.interrupts import raise_if_heard
from pcmcnet.layers.threads import parts_for
from pcmcnet.training.device import device_of, undisturbed
from pcmcnet.training.device_batches import batches_on, in_turns

_NUMBERS = 2**21  # of the contents of a batch; a network has some tens of times as many in between
PREDICTED = 20_000_000  # pairs of a batch that keep a GPU busy while the next is prepared
TIMES = 20  # as many as in a batch of training, at most, if the network computes them in pieces (``in_pieces``)
TOGETHER = 2**15  # sets of such a batch, at most


@torch.no_grad()
def predict(
    module: nn.Module, data: EncodedSets, *, pair_budget: int, share: Callable[[Ints], Ints] | None = None
) -> Iterator[tuple[Ints, Batch, Tensor]]:
    """Go through all sets, or this process's share of each batch; yields positions, batch and log p (B, J)."""
    module.eval()
    device, plan = device_of(module), prediction_plan(module, data, pair_budget)
    if share is not None:
        plan = [own for sets in plan if len(own := share(sets))]
    alone = not _is_large(module) or data.contents or data.individual_contents  # encoders of these may be anyone's
    results = (_one_by_one if alone else in_turns)(module, batches_on(device, data, plan))
    for sets, (batch, log_p) in zip(plan, results, strict=True):
        raise_if_heard()  # in the main thread or another
        yield sets, batch, log_p


def prediction_plan(module: nn.Module, data: EncodedSets, pair_budget: int) -> list[Ints]:
    """Group sets into batches, those that take longest first: others are prepared meanwhile."""
    at_once, large = _at_once(data), _is_large(module)
    if large:
        pair_budget, at_once = max(pair_budget, min(PREDICTED, TIMES * pair_budget)), min(at_once, TOGETHER)
    plan = plan_batches(data.sizes, batch_size=at_once, pair_budget=pair_budget, tight=not large)
    return sorted(plan, key=lambda sets: -len(sets) * int(data.sizes[sets[-1]]) ** 2)


def _is_large(module: nn.Module) -> bool:
    """Tell whether a network takes large batches."""
    return device_of(module).type == "cuda" and bool(getattr(module, "in_pieces", False))


def _one_by_one(module: nn.Module, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Tensor]]:
    """Yield batches and what a module makes of them."""
    for batch in batches:
        with undisturbed(), parts_for(batch.mask.numel() * batch.mask.shape[1] * size_of(module)):
            result = module(batch)
        yield batch, result


def _at_once(data: EncodedSets) -> int:
    """Return how many sets to predict at once: as pairs allow, or fewer where contents such as pictures are large."""

    def width(columns: Sequence[Coded]) -> int:
        return sum(column.table[:1].numel() for column in columns)

    each = width(data.contents) * float(data.sizes.mean() if len(data) else 1) + width(data.individual_contents)
    return max(min(len(data), int(_NUMBERS / each)) if each else len(data), 1)


def size_of(module: nn.Module) -> int:
    """Number of parameters, which is about the number of multiplications per pair."""
    return sum(p.numel() for p in module.parameters())
