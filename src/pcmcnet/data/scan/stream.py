"""Streaming of scanned choice sets as encoded buffers of several shards, read one after another.

In every epoch, the shards are shuffled and read in groups, called buffers, that fit into memory. The hash of the set id
determines the shard of a set, so a buffer is a random part of the table, and batches are drawn from the whole buffer.
The sets of a buffer are in the order of the table. If one buffer holds the whole table, the batches are therefore the
same as for a table in memory. A thread reads the next buffer while the current one is in use.

Each of n processes reads every n-th shard of a buffer, and only the set sizes of the other shards. All processes
therefore plan the same batches as a single process would, and each process holds a share of the sets of every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from pcmcnet.arrays import Ints
from pcmcnet.concurrency import results_in_order
from pcmcnet.data.batches import DistributedSets, EncodedPart, EncodedSets
from pcmcnet.data.encoder import Encoder
from pcmcnet.data.scan.cache import join_shards
from pcmcnet.data.scan.scanned import ScannedData


@dataclass(frozen=True)
class EncodedStream:
    """A ``batches.Source`` of a scanned table, on a device, for one process or for process ``rank`` of ``size``."""

    data: ScannedData
    encoder: Encoder
    device: torch.device
    rank: int = 0
    size: int = 1

    def __len__(self) -> int:
        return len(self.data)

    @property
    def mean_pairs(self) -> float:
        """Mean number of ordered pairs per set."""
        return self.data.tally.pairs / self.data.tally.sets

    @property
    def largest(self) -> int:
        """Size of the largest set."""
        return self.data.largest

    def parts(self, order: Sequence[int] | None = None, skip: int = 0) -> Iterator[EncodedPart]:
        """Yield all sets once, buffer by buffer.

        The numbers in ``order`` are the seed for the order of the shards. If ``order`` is None, the shards stay in
        table order. The first ``skip`` buffers are left out.
        """
        n = len(self.data.manifest.shards)
        shuffled = None if order is None else np.random.default_rng([*order, n]).permutation(n).tolist()
        read: Callable[[Sequence[int]], EncodedPart | None] = self._read if self.size == 1 else self._read_distributed
        for part in results_in_order(partial(read, group) for group in self._skip(self.data.buffers(shuffled), skip)):
            if part is not None:
                yield part.to(self.device)

    def _skip(self, groups: list[list[int]], skip: int) -> list[list[int]]:
        """Return the buffers that remain after ``skip`` buffers with selected sets."""
        for k, group in enumerate(groups):
            if not skip:
                return groups[k:]
            skip -= any(len(outline.first) for outline in self.data.outlines(group))
        return []

    def chunks(self) -> Iterator[EncodedSets]:
        """Yield all sets once, shard by shard, in every process."""
        for shard in self.data.shards():
            yield self.encoder.encode(shard.data).to(self.device)

    def _read(self, group: Sequence[int]) -> EncodedSets | None:
        """Read a buffer, or return None if it has no selected set."""
        if self.data.schema.contents:  # join first, so that contents of several shards are prepared once
            shards = list(self.data.shards(group))
            return self.encoder.encode(join_shards(shards)) if shards else None
        chunks, first = [], []
        for shard in self.data.shards(group):
            chunks.append(self.encoder.encode(shard.data))
            first.append(shard.first)
        return EncodedSets.join(chunks, _order(first)) if chunks else None

    def _read_distributed(self, group: Sequence[int]) -> DistributedSets | None:
        """Read this process's shards of a buffer, and the sizes of all sets. If no set is selected, return None."""
        outlines = list(self.data.outlines(group))
        order = _order([outline.first for outline in outlines])
        if not len(order):
            return None
        sizes = np.concatenate([outline.sizes for outline in outlines])
        shard = np.repeat(np.arange(len(group)), [len(outline.first) for outline in outlines])[order]
        is_local = shard % self.size == self.rank
        place = np.where(is_local, np.cumsum(is_local) - 1, -1)  # local sets are in the same order
        return DistributedSets(sizes=sizes[order], local=self._read(group[self.rank :: self.size]), place=place)


def _order(first: Sequence[Ints]) -> Ints:
    """Return the order that sorts the sets of several shards by table row. A stable sort is fast on sorted shards."""
    return np.argsort(np.concatenate(first), kind="stable")
