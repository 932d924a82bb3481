"""Pieces of the pairs of a batch: enough rows of enough sets to make so many pairs, and no padding.

Sets of one size that stand side by side go together, as in a batch sorted by size they do, so that a piece takes few
calls. The pairs of a piece are a table (P, ...), segment after segment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from torch import Tensor


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


Piece = list[Segment]


def cut(sizes: Sequence[int], pairs: int) -> Iterator[Piece]:
    """Cut sets into pieces of at most so many pairs: sets of one size together, rows of a set too large for a piece."""
    piece: Piece = []
    room, first = pairs, 0
    for n, run in groupby(sizes):
        end = first + len(list(run))
        if n**2 > pairs:
            rows = min(math.ceil(n / math.ceil(n**2 / pairs)), max(pairs // n, 1))  # pieces of like size
            yield from (
                [Segment(k, k + 1, i, min(i + rows, n), n)] for k in range(first, end) for i in range(0, n, rows)
            )
        while first < end and 0 < n**2 <= pairs:
            if room < n**2:
                yield piece
                piece, room = [], pairs
            last = min(first + room // n**2, end)
            piece.append(Segment(first, last, 0, n, n))
            room -= (last - first) * n**2
            first = last
        first = end
    if piece:
        yield piece


def count(piece: Piece) -> int:
    """Return the number of pairs in a piece."""
    return sum(math.prod(segment.shape) for segment in piece)


def blocks(piece: Piece, flat: Tensor) -> Iterator[tuple[Segment, Tensor]]:
    """Go through the segments, each with its part of a flat tensor (P, ...) as (sets, rows, n, ...)."""
    begin = 0
    for segment in piece:
        end = begin + math.prod(segment.shape)
        yield segment, flat[begin:end].view(*segment.shape, *flat.shape[1:])
        begin = end
