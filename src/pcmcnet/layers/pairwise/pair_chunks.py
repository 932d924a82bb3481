"""Chunks: the pairs of a batch that are computed at a time, cut in either of two ways; padding is in none.

Rows    as many rows (set, i) as make so many pairs. Sets of one size that stand side by side go together. Halves are
        added, and gradients summed, block by block: fast for narrow networks, where these are much of the work.
Pairs   so many pairs one by one, found by their indices, without those of an alternative with itself. All chunks have
        one size and take few calls, which is what threads want; for wide networks, where adding and summing is little.

The pairs of a chunk are a table (P, ...). Shapes: halves (B, J, H), scores (B, J, J).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

Memory = Callable[[str, int, int, torch.dtype], Tensor]  # name, pairs, width, type -> (pairs, width) to write to


class Chunk(Protocol):
    """Some pairs."""

    def __len__(self) -> int:
        """Return their number P."""

    def halves(self, leave: Tensor, enter: Tensor, memory: Memory) -> Tensor:  # (B, J, H), (B, J, H) -> (P, H)
        """Add what is left and what is entered."""

    def put(self, scores: Tensor, table: Tensor) -> None:  # (P,), (B, J, J)
        """Write scores to their places."""

    def take(self, table: Tensor) -> Tensor:  # (B, J, J) -> (P,)
        """Read scores from their places."""

    def sum_up(self, g: Tensor, g_leave: Tensor, g_enter: Tensor) -> None:  # (P, H), (B, J, H), (B, J, H)
        """Add gradients by the sums of halves to those by the halves."""


# -- by rows ------------------------------------------------------------------------------------------------------


class Segment(NamedTuple):
    """Rows ``begin`` to ``end`` of the pairs of the sets ``first`` to ``last``, each of ``n`` alternatives."""

    first: int
    last: int
    begin: int
    end: int
    n: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Sets, rows, columns."""
        return self.last - self.first, self.end - self.begin, self.n

    def of(self, grid: Tensor) -> Tensor:  # (B, J, J) -> (sets, rows, n)
        """Return this part of a table over all pairs."""
        return grid[self.first : self.last, self.begin : self.end, : self.n]

    def left(self, rows: Tensor) -> Tensor:  # (B, J, H) -> (sets, rows, H)
        """Return what is left in these pairs."""
        return rows[self.first : self.last, self.begin : self.end]

    def entered(self, rows: Tensor) -> Tensor:  # (B, J, H) -> (sets, n, H)
        """Return what is entered in these pairs."""
        return rows[self.first : self.last, : self.n]


@dataclass(frozen=True)
class RowChunk:
    """All pairs of some rows, segment after segment."""

    segments: list[Segment]

    def __len__(self) -> int:
        return sum(math.prod(segment.shape) for segment in self.segments)

    def halves(self, leave: Tensor, enter: Tensor, memory: Memory) -> Tensor:
        """Add what is left and what is entered, block by block."""
        h = memory("sum", len(self), leave.shape[-1], leave.dtype)
        for segment, block in self.blocks(h):
            torch.add(segment.left(leave).unsqueeze(2), segment.entered(enter).unsqueeze(1), out=block)
        return h

    def put(self, scores: Tensor, table: Tensor) -> None:
        """Write scores to their places."""
        for segment, block in self.blocks(scores):
            segment.of(table).copy_(block)

    def take(self, table: Tensor) -> Tensor:
        """Read scores from their places."""
        return torch.cat([segment.of(table).flatten() for segment in self.segments])

    def sum_up(self, g: Tensor, g_leave: Tensor, g_enter: Tensor) -> None:
        """Add gradients by the sums of halves to those by the halves."""
        for segment, block in self.blocks(g):
            segment.left(g_leave).copy_(block.sum(2, dtype=g_leave.dtype))  # no other chunk has these rows
            segment.entered(g_enter).add_(block.sum(1, dtype=g_enter.dtype))

    def blocks(self, flat: Tensor) -> Iterator[tuple[Segment, Tensor]]:
        """Go through the segments, each with its part of a table (P, ...) as (sets, rows, n, ...)."""
        begin = 0
        for segment in self.segments:
            end = begin + math.prod(segment.shape)
            yield segment, flat[begin:end].view(*segment.shape, *flat.shape[1:])
            begin = end


def cut_rows(sizes: Sequence[int], pairs: int) -> Iterator[RowChunk]:
    """Cut sets into chunks of at most so many pairs: sets of one size together, rows of a set too large for a chunk."""
    chunk: list[Segment] = []
    room, first = pairs, 0
    for n, run in groupby(sizes):
        end = first + len(list(run))
        if n**2 > pairs:
            rows = min(math.ceil(n / math.ceil(n**2 / pairs)), max(pairs // n, 1))  # chunks of like size
            yield from (
                RowChunk([Segment(k, k + 1, i, min(i + rows, n), n)])
                for k in range(first, end)
                for i in range(0, n, rows)
            )
        while first < end and 0 < n**2 <= pairs:
            if room < n**2:
                yield RowChunk(chunk)
                chunk, room = [], pairs
            last = min(first + room // n**2, end)
            chunk.append(Segment(first, last, 0, n, n))
            room -= (last - first) * n**2
            first = last
        first = end
    if chunk:
        yield RowChunk(chunk)


# -- one by one ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairChunk:
    """Single pairs."""

    where: Tensor  # (P,) among the scores of all sets, flat
    left: Tensor  # (P,) among the rows of the halves given, flat
    entered: Tensor  # (P,) likewise

    def __len__(self) -> int:
        return len(self.where)

    def halves(self, leave: Tensor, enter: Tensor, memory: Memory) -> Tensor:
        """Add what is left and what is entered, both copied pair by pair."""
        shape, kind = (len(self), leave.shape[-1]), leave.dtype
        h = torch.index_select(leave.flatten(0, 1), 0, self.left, out=memory("left", *shape, kind))
        h += torch.index_select(enter.flatten(0, 1), 0, self.entered, out=memory("entered", *shape, kind))
        return h

    def put(self, scores: Tensor, table: Tensor) -> None:
        """Write scores to their places."""
        table.view(-1).index_copy_(0, self.where, scores)

    def take(self, table: Tensor) -> Tensor:
        """Read scores from their places."""
        return table.view(-1).index_select(0, self.where)

    def sum_up(self, g: Tensor, g_leave: Tensor, g_enter: Tensor) -> None:
        """Add gradients by the sums of halves to those by the halves."""
        g = g.to(g_leave.dtype)
        g_leave.view(-1, g.shape[1]).index_add_(0, self.left, g)
        g_enter.view(-1, g.shape[1]).index_add_(0, self.entered, g)


def cut_pairs(where: Tensor, places: int, chunks: int) -> list[PairChunk]:
    """Cut pairs, given by their places (P,) in B x J x J, into so many chunks of one size, or fewer."""
    left = where // places
    entered = left - left % places + where % places
    made = zip(*(rows.tensor_split(chunks) for rows in (where, left, entered)), strict=True)
    return [PairChunk(*each) for each in made if len(each[0])]


def within(chunks: Sequence[PairChunk], places: int) -> tuple[slice, list[PairChunk]]:
    """Return the sets that chunks in their order have pairs of, and the chunks for the halves of these alone."""
    first, last = (int(row) // places for row in (chunks[0].left[0], chunks[-1].left[-1]))
    start = first * places
    return slice(first, last + 1), [PairChunk(each.where, each.left - start, each.entered - start) for each in chunks]
