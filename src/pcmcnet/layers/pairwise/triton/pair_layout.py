"""Positions of pairs in memory: sorted by set and row, without padding or pairs of an alternative with itself.

A row (b, i), with index b J + i, stands for leaving alternative i of set b. The row has a pair (b, i, j) for every
other real alternative j. Real alternatives come first, so the position of the pair is

    starts_b + i (n_b - 1) + j - (j > i)        with starts_b the sum of n (n - 1) over the sets before.

Only the device knows the sizes n, so tensors have room for the pairs of padded sets, and kernels read the actual number
of pairs. Without a mask, all n^2 pairs are included, because the alternatives entered differ from the alternatives
left.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcmcnet.layers.kernel_launch import launch, wait_for_earlier


class DeviceChunk(NamedTuple):
    """A chunk of consecutive rows; ``bounds`` has the indices of its first pair and of the first pair after it."""

    rows: range
    bounds: Tensor  # (2,) int64
    room: int  # maximum number of pairs


@dataclass(frozen=True)
class PairLayout:
    """Memory positions of all pairs of B sets with up to J alternatives."""

    sizes: Tensor  # (B + 1,) int32, the last 0
    starts: Tensor  # (B + 1,) int64
    whole: Tensor  # (2,) int64, the bounds of all pairs
    places: int
    skip: bool  # whether pairs of an alternative with itself are left out

    @classmethod
    def of(cls, mask: Tensor | None, halves: Tensor) -> PairLayout:
        """Return the layout for the real alternatives in a mask (B, J), or for all alternatives if there is no mask."""
        sets, places, _ = halves.shape
        if mask is None:
            sizes = halves.new_full((sets + 1,), places, dtype=torch.int32)
            starts = torch.arange(sets + 1, device=halves.device) * places**2
            return cls(sizes, starts, starts[:: max(sets, 1)].contiguous(), places, False)
        sizes = torch.empty(sets + 1, dtype=torch.int32, device=mask.device)
        starts, whole = (torch.empty(count, dtype=torch.int64, device=mask.device) for count in (sets + 1, 2))
        shape = {"R": 16, "C": columns(places)}
        launch(_count, (triton.cdiv(sets + 1, 16),), mask.contiguous(), sizes, sets, places, **shape)
        launch(_add_up_pairs, (1,), sizes, starts, whole, sets, C=1024)
        return cls(sizes, starts, whole, places, True)

    @property
    def sets(self) -> int:
        """Number of sets."""
        return len(self.sizes) - 1

    @property
    def row(self) -> int:
        """Maximum number of pairs per row."""
        return self.places - self.skip

    def cut(self, rows: int) -> Iterator[DeviceChunk]:
        """Divide the rows into chunks of ``rows`` rows."""
        total = self.sets * self.places
        count = triton.cdiv(total, rows)
        if count == 1:
            yield DeviceChunk(range(total), self.whole, max(total * self.row, 1))
            return
        bounds = torch.empty(count, 2, dtype=torch.int64, device=self.sizes.device)
        shape = {"C": triton.next_power_of_2(count + 1), **self.kind}
        launch(_bounds, (1,), *self.tensors, bounds, count, rows, total, **shape)
        for k in range(count):
            part = range(k * rows, min((k + 1) * rows, total))
            yield DeviceChunk(part, bounds[k], max(len(part) * self.row, 1))

    @property
    def tensors(self) -> tuple[Tensor, Tensor, int]:
        """Kernel arguments that locate a pair."""
        return self.sizes, self.starts, self.places

    @property
    def kind(self) -> dict[str, Any]:
        """Compile-time constants of the kernels."""
        return {"SKIP": int(self.skip)}


def columns(places: int) -> int:
    """Return the block size for a row of J pairs: one of a few sizes, because kernels are compiled for each size."""
    return max(int(triton.next_power_of_2(places)), 64)


@triton.jit(do_not_specialize=["sets", "J"])
def _count(mask, sizes, sets, J, R: tl.constexpr, C: tl.constexpr):
    """Write the number of real (not padded) alternatives in each set."""
    wait_for_earlier()
    b, j = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, C)
    at = b.to(tl.int64)[:, None] * J + j[None, :]
    real = tl.load(mask + at, mask=(b < sets)[:, None] & (j < J)[None, :], other=0)
    tl.store(sizes + b, tl.max(tl.where(real != 0, j[None, :] + 1, 0), 1), mask=b <= sets)


@triton.jit(do_not_specialize=["sets"])
def _add_up_pairs(sizes, starts, whole, sets, C: tl.constexpr):
    """Write the start of each set's pairs, and the bounds of all pairs, with one program."""
    wait_for_earlier()
    before = tl.zeros((), tl.int64)
    for begin in range(0, sets + 1, C):
        b = begin + tl.arange(0, C)
        n = tl.load(sizes + b, mask=b < sets, other=0).to(tl.int64)
        pairs = n * tl.maximum(n - 1, 0)
        tl.store(starts + b, before + tl.cumsum(pairs, 0) - pairs, mask=b <= sets)
        before += tl.sum(pairs, 0)
    tl.store(whole, tl.zeros((), tl.int64))
    tl.store(whole + 1, before)


@triton.jit(do_not_specialize=["J", "count", "rows", "total"])
def _bounds(sizes, starts, J, out, count, rows, total, SKIP: tl.constexpr, C: tl.constexpr):
    """Write the index of the first pair of every ``rows``-th row, where one chunk ends and the next begins."""
    wait_for_earlier()
    k = tl.arange(0, C)
    row = tl.minimum(k.to(tl.int64) * rows, total)
    b = row // J
    n = tl.load(sizes + b, mask=k <= count, other=0)
    first = tl.load(starts + b, mask=k <= count, other=0) + tl.minimum(row - b * J, n) * tl.maximum(n - SKIP, 0)
    tl.store(out + 2 * k - 1, first, mask=(k > 0) & (k <= count))
    tl.store(out + 2 * k, first, mask=k < count)


@triton.jit
def set_of(sizes, starts, bounds, b):
    """Return the size of a set, and its first pair's position in a chunk, negative if the chunk begins after it."""
    return tl.load(sizes + b), tl.load(starts + b) - tl.load(bounds)


@triton.jit
def pairs_of(n, i, j, SKIP: tl.constexpr):
    """Return the positions of a row's pairs within its set, and a mask of the pairs that exist."""
    at = i * (n - SKIP) + j
    here = j < n
    if SKIP:
        at -= tl.where(j > i, 1, 0)
        here &= j != i
    return at, here


@triton.jit(do_not_specialize=["J", "set0", "row0", "rows", "room"])
def scores_to_grid(
    sizes,
    starts,
    J,
    bounds,
    parts,
    shift,
    out,
    set0,
    row0,
    rows,
    room,
    PARTS: tl.constexpr,
    SKIP: tl.constexpr,
    R: tl.constexpr,
    C: tl.constexpr,
):
    """Fill ``out`` (B, J, J) with sums of partial scores (PARTS, room) plus the shift, or 0 where no pair exists."""
    wait_for_earlier()
    b = set0 + tl.program_id(1)
    n, first = set_of(sizes, starts, bounds, b)
    i, j = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, C)
    row = b.to(tl.int64) * J + i
    ours = ((i < J) & (row >= row0) & (row < row0 + rows))[:, None] & (j < J)[None, :]
    at, here = pairs_of(n, i[:, None], j[None, :], SKIP)
    here &= ours & (i < n)[:, None]
    total = tl.zeros((R, C), tl.float32) + tl.load(shift)
    for part in tl.static_range(PARTS):
        total += tl.load(parts + part * room.to(tl.int64) + first + at, mask=here, other=0.0)
    tl.store(out + row[:, None] * J + j[None, :], tl.where(here, total, 0.0), mask=ours)


@triton.jit(do_not_specialize=["J", "set0", "row0", "rows", "room"])
def pairs_from_grid(
    sizes,
    starts,
    J,
    bounds,
    grid,
    out,
    set0,
    row0,
    rows,
    room,
    MORE: tl.constexpr,
    SKIP: tl.constexpr,
    R: tl.constexpr,
    C: tl.constexpr,
):
    """Copy the entries of a chunk's pairs from ``grid`` (B, J, J), and append MORE zeros."""
    wait_for_earlier()
    b = set0 + tl.program_id(1)
    n, first = set_of(sizes, starts, bounds, b)
    i, j = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, C)
    if (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
        after = tl.load(bounds + 1) - tl.load(bounds) + tl.arange(0, MORE)
        tl.store(out + after, tl.zeros((MORE,), tl.float32), mask=after < room)
    row = b.to(tl.int64) * J + i
    at, here = pairs_of(n, i[:, None], j[None, :], SKIP)
    here &= ((i < n) & (row >= row0) & (row < row0 + rows))[:, None]
    tl.store(out + first + at, tl.load(grid + row[:, None] * J + j[None, :], mask=here, other=0.0), mask=here)


@triton.jit(do_not_specialize=["room", "H"])
def zero_after_last_pair(h, bounds, room, H, R: tl.constexpr, C: tl.constexpr):
    """Set the rows of h (room, H) after the last pair to 0, up to the number of rows that the programs cover."""
    wait_for_earlier()
    r = tl.load(bounds + 1) - tl.load(bounds) + tl.program_id(0) * R + tl.arange(0, R)
    u = tl.program_id(1) * C + tl.arange(0, C)
    zeros = tl.zeros((R, C), h.dtype.element_ty)
    tl.store(h + r[:, None] * H + u[None, :], zeros, mask=(r < room)[:, None] & (u < H)[None, :])
