"""Networks with random weights, and batches for them, in double precision."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations
from typing import Any

import numpy as np
import torch
from torch import nn

from pcmcnet.data import Batch, ChoiceData, Encoder
from pcmcnet.models.networks.averaged_members import NetworkSpec


def scrambled(model: Any, data: ChoiceData, *, scale: float = 0.5, seed: int = 0) -> tuple[Any, Batch]:
    """Return a network of the model with normal weights, and a batch of all sets."""
    encoder = Encoder.learn(data, labels=model.config.labels)
    network: nn.Module = model._build(encoder, NetworkSpec()).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in network.parameters():
            weights.copy_(scale * torch.randn(weights.shape, generator=generator))
    batch = encoder.encode(data).batch(np.arange(len(data)))
    return network, replace(batch, numeric=batch.numeric.double(), individual_numeric=batch.individual_numeric.double())


def chosen_places(batch: Batch, s: int, places: Sequence[int]) -> Batch:
    """Return one set alone with some of its alternatives, in the given order and without padding."""
    at = torch.tensor(places)
    return Batch(
        batch.numeric[s : s + 1, at],
        batch.categorical[s : s + 1, at],
        batch.individual_numeric[s : s + 1],
        batch.individual_categorical[s : s + 1],
        batch.mask[s : s + 1, at],
        batch.chosen[s : s + 1],
        batch.weight[s : s + 1],
    )


def largest_set(batch: Batch) -> tuple[int, int]:
    """Return the position and size of the largest set."""
    sizes = batch.mask.sum(1)
    return int(sizes.argmax()), int(sizes.max())


def subsets(of: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all subsets, the smallest first."""
    return chain.from_iterable(combinations(of, n) for n in range(len(of) + 1))


@torch.no_grad()
def log_odds_terms(network: Any, batch: Batch, s: int, n: int) -> dict[tuple[int, ...], float]:
    """Return Möbius terms of log p(0) / p(1) in a set of n: what each group of others adds beyond its subgroups."""
    odds = {}
    for others in subsets(range(2, n)):
        log_p = network(chosen_places(batch, s, [0, 1, *others]))[0]
        odds[others] = float(log_p[0] - log_p[1])
    return {group: sum((-1) ** (len(group) - len(part)) * odds[part] for part in subsets(group)) for group in odds}
