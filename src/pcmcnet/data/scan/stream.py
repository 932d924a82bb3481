"""Scanned choice sets -> encoded parts, one buffer of several shards after the other.

Every epoch takes the shards in an order of its own, as many at a time as the memory allows. Sets are on a shard by the
hash of their id, so a buffer is a random part of the table, and batches are drawn from all of it. Its sets are in the
order of the table: with a buffer that holds everything, batches are those of a table in memory. While one buffer is in
use, a thread reads the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from pcmcnet.data.batches import EncodedSets
from pcmcnet.data.encoding import Encoder
from pcmcnet.data.scan.scanned import ScannedData

T = TypeVar("T")


@dataclass(frozen=True)
class EncodedStream:
    """A ``batches.Source`` of the sets of a scanned table, on a device."""

    data: ScannedData
    encoder: Encoder
    device: torch.device

    def __len__(self) -> int:
        return len(self.data)

    @property
    def mean_pairs(self) -> float:
        """Mean number of ordered pairs of a set."""
        return self.data.tally.pairs / self.data.tally.sets

    def parts(self, order: Sequence[int] | None = None) -> Iterator[EncodedSets]:
        """Go through all sets once, buffer by buffer, the shards shuffled by the numbers given."""
        n = len(self.data.manifest.shards)
        shuffled = None if order is None else np.random.default_rng([*order, n]).permutation(n).tolist()
        for part in ahead(self._read(group) for group in self.data.buffers(shuffled)):
            if part is not None:
                yield part.to(self.device)

    def _read(self, group: Sequence[int]) -> Callable[[], EncodedSets | None]:
        def read() -> EncodedSets | None:
            pieces, first = [], []
            for shard in self.data.shards(group):
                pieces.append(self.encoder.encode(shard.data))
                first.append(shard.first)
            return EncodedSets.join(pieces, np.argsort(np.concatenate(first))) if pieces else None

        return read


def ahead(tasks: Iterable[Callable[[], T]]) -> Iterator[T]:
    """Yield the results of tasks in their order, each begun in a thread while the one before is in use."""
    with ThreadPoolExecutor(1, thread_name_prefix="pcmcnet-read") as thread:
        waiting = None
        for task in tasks:
            following = thread.submit(task)
            if waiting is not None:
                yield waiting.result()
            waiting = following
        if waiting is not None:
            yield waiting.result()
