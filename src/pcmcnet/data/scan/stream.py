"""Scanned choice sets -> encoded parts, one buffer of several shards after the other.

Every epoch takes the shards in an order of its own, as many at a time as the memory allows. Sets are on a shard by the
hash of their id, so a buffer is a random part of the table, and batches are drawn from all of it. Its sets are in the
order of the table: with a buffer that holds everything, batches are those of a table in memory. While one buffer is in
use, a thread reads the next.

Of several processes each reads every n-th shard of a buffer, and of the others only how large their sets are. So all of
them plan the batches that one process would, and each holds its own sets of every batch.
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
    """A ``batches.Source`` of the sets of a scanned table, on a device; for one process, or for the r-th of several."""

    data: ScannedData
    encoder: Encoder
    device: torch.device
    rank: int = 0
    size: int = 1

    def __len__(self) -> int:
        return len(self.data)

    @property
    def mean_pairs(self) -> float:
        """Mean number of ordered pairs of a set."""
        return self.data.tally.pairs / self.data.tally.sets

    @property
    def largest(self) -> int:
        """Size of the largest set."""
        return self.data.largest

    def parts(self, order: Sequence[int] | None = None, skip: int = 0) -> Iterator[EncodedPart]:
        """Go through all sets once, buffer by buffer, the shards shuffled by the numbers given."""
        n = len(self.data.manifest.shards)
        shuffled = None if order is None else np.random.default_rng([*order, n]).permutation(n).tolist()
        read: Callable[[Sequence[int]], EncodedPart | None] = self._read if self.size == 1 else self._read_own
        for part in results_in_order(partial(read, group) for group in self._after(self.data.buffers(shuffled), skip)):
            if part is not None:
                yield part.to(self.device)

    def _after(self, groups: list[list[int]], skip: int) -> list[list[int]]:
        """Leave out some buffers, not counting those that have no set of this part of the table."""
        for k, group in enumerate(groups):
            if not skip:
                return groups[k:]
            skip -= any(len(outline.first) for outline in self.data.outlines(group))
        return []

    def chunks(self) -> Iterator[EncodedSets]:
        """Go through all sets once, shard by shard, whichever process this is."""
        for shard in self.data.shards():
            yield self.encoder.encode(shard.data).to(self.device)

    def _read(self, group: Sequence[int]) -> EncodedSets | None:
        """Read a buffer; None where none of its sets is in this part of the table."""
        if self.data.schema.contents:  # what several shards hold is prepared once
            shards = list(self.data.shards(group))
            return self.encoder.encode(join_shards(shards)) if shards else None
        chunks, first = [], []
        for shard in self.data.shards(group):
            chunks.append(self.encoder.encode(shard.data))
            first.append(shard.first)
        return EncodedSets.join(chunks, _order(first)) if chunks else None

    def _read_own(self, group: Sequence[int]) -> DistributedSets | None:
        """Read every n-th shard of a buffer from the r-th on, and the sizes of the sets of all."""
        outlines = list(self.data.outlines(group))
        order = _order([outline.first for outline in outlines])
        if not len(order):
            return None
        sizes = np.concatenate([outline.sizes for outline in outlines])
        shard = np.repeat(np.arange(len(group)), [len(outline.first) for outline in outlines])[order]
        ours = shard % self.size == self.rank
        place = np.where(ours, np.cumsum(ours) - 1, -1)  # its own are in the same order
        return DistributedSets(sizes=sizes[order], local=self._read(group[self.rank :: self.size]), place=place)


def _order(first: Sequence[Ints]) -> Ints:
    """Put the sets of some shards in the order of the table; each shard is in it, which a stable sort is quick at."""
    return np.argsort(np.concatenate(first), kind="stable")
