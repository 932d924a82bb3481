"""Log-probabilities of encoded choice sets, predicted by a network in batches and without gradients.

Batches are as large as memory allows. On a GPU, two batches overlap. The function ``compute`` can return other results
for the same batches, such as rates or coefficients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pcmcnet.arrays import Ints
from pcmcnet.concurrency import raise_if_interrupted
from pcmcnet.data.batches import Batch, CodedContents, EncodedSets, plan_batches
from pcmcnet.layers.threads import one_thread_per_operation
from pcmcnet.training.device import batches_on, device_of, predict_on_two_streams
from pcmcnet.training.network import ChoiceNetwork
from pcmcnet.training.torch_settings import default_torch_settings

BatchFunction = Callable[[Batch], Tensor]

CONTENT_NUMBERS_PER_BATCH = 2**21  # the network's hidden layers hold some tens of times as many
GPU_PAIRS_PER_BATCH = 20_000_000  # enough to keep a GPU busy while the next batch is prepared
GPU_PAIR_BUDGETS_PER_BATCH = 20  # relative to training batches; for networks that compute in chunks
GPU_SETS_PER_BATCH = 2**15  # maximum


@torch.no_grad()
def predict(
    network: ChoiceNetwork,
    data: EncodedSets,
    *,
    pair_budget: int,
    share: Callable[[Ints], Ints] | None = None,
    compute: BatchFunction | None = None,
) -> Iterator[tuple[Ints, Batch, Tensor]]:
    """Predict all sets in batches, and yield the positions, the sets and the log-probabilities of each batch.

    Parameters
    ----------
    network
        The network.
    data
        Encoded choice sets to predict.
    pair_budget
        Maximum number of ordered pairs of alternatives in a training batch. On a GPU, prediction may use larger
        batches.
    share
        Function that selects the sets of a batch for this process, if several processes share the work. If None
        (default), this process predicts all sets.
    compute
        Function of a batch whose results are yielded instead of log-probabilities. If None (default), the network
        itself is used.

    Yields
    ------
    tuple
        Positions of the sets (B,), the batch, and its log-probabilities (B, J) or the results of ``compute``.
    """
    # 1. Plan the batches, and select this process's share of each.
    network.eval()
    plan = prediction_plan(network, data, pair_budget)
    if share is not None:
        plan = [shared for sets in plan if len(shared := share(sets))]
    batches = batches_on(device_of(network), data, plan)
    # 2. Two batches overlap on a GPU, unless content encoders run: those of a user may have shared state.
    overlap = _takes_large_batches(network) and not (data.contents or data.individual_contents)
    results = (predict_on_two_streams if overlap else _one_by_one)(network, batches, compute or network)
    # 3. Yield results as they are computed; Ctrl-C ends prediction in any thread.
    for sets, (batch, result) in zip(plan, results, strict=True):
        raise_if_interrupted()
        yield sets, batch, result


def prediction_plan(network: ChoiceNetwork, data: EncodedSets, pair_budget: int) -> list[Ints]:
    """Group sets into batches, with the slowest batches first, so that later batches are prepared in the meantime."""
    sets_per_batch, large = _sets_per_batch(data), _takes_large_batches(network)
    if large:
        pair_budget = max(pair_budget, min(GPU_PAIRS_PER_BATCH, GPU_PAIR_BUDGETS_PER_BATCH * pair_budget))
        sets_per_batch = min(sets_per_batch, GPU_SETS_PER_BATCH)
    limits: dict[str, Any] = {"batch_size": sets_per_batch, "pair_budget": pair_budget, "pairs": network.count_pairs}
    plan = plan_batches(data.sizes, **limits, tight=not large)
    return sorted(plan, key=lambda sets: -len(sets) * int(network.count_pairs(data.sizes[sets[-1:]])[0]))


def _takes_large_batches(network: ChoiceNetwork) -> bool:
    """Return True if the network is on a GPU and computes large batches in chunks."""
    return device_of(network).type == "cuda" and network.computes_in_chunks


def _one_by_one(
    network: ChoiceNetwork, batches: Iterable[Batch], compute: BatchFunction
) -> Iterator[tuple[Batch, Tensor]]:
    """Yield batches and their results, one after another."""
    for batch in batches:
        with (
            default_torch_settings(),
            one_thread_per_operation(pairs_of(network, batch) * parameter_count(network)),
        ):
            result = compute(batch)
        yield batch, result


def pairs_of(network: ChoiceNetwork, batch: Batch) -> int:
    """Return the number of pairs that the network scores in a batch, including padding."""
    sets, places = batch.mask.shape
    return sets * int(network.count_pairs(np.array([places]))[0])


def _sets_per_batch(data: EncodedSets) -> int:
    """Return the maximum number of sets in a batch: all sets, or fewer if contents such as pictures are large."""

    def width(columns: Sequence[CodedContents]) -> int:
        return sum(column.table[:1].numel() for column in columns)

    each = width(data.contents) * float(data.sizes.mean() if len(data) else 1) + width(data.individual_contents)
    return max(min(len(data), int(CONTENT_NUMBERS_PER_BATCH / each)) if each else len(data), 1)


def parameter_count(module: nn.Module) -> int:
    """Return the number of parameters, which approximates the number of multiplications per pair."""
    return sum(p.numel() for p in module.parameters())
