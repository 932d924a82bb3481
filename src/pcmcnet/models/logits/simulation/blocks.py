"""Persons in blocks: what one product of matrices takes at a time.

A block holds some persons with all rows of their sets, as z (N, m, K): persons of like numbers of rows go together, and
those with fewer than m have rows of zeros at the end. Nothing is padded to a number of sets or alternatives: sets are
stretches of rows, whatever their sizes. Blocks are cut by the data and the number of draws alone, never by threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data.ragged import stretches


@dataclass(frozen=True)
class Block:
    """N persons with their T sets, and N x m rows."""

    persons: Ints  # (N,)
    rows: Ints  # of the table, in the order in which they stand here
    z: Tensor  # (N, m, K)
    set_of_row: Tensor  # (N m,) rows of zeros count to the last set before them
    rows_of_set: Tensor  # (T,) how many
    person_of_set: Tensor  # (T,)
    empty_rows: Tensor  # those of zeros

    def sum_rows(self, values: Tensor) -> Tensor:  # (..., N m, R) -> (..., T, R)
        """Sum over the rows of each set."""
        return _sums(values, self.set_of_row, self.rows_of_set)

    def sum_sets(self, values: Tensor) -> Tensor:  # (..., T, R) -> (..., N, R)
        """Sum over the sets of each person."""
        counts = torch.bincount(self.person_of_set, minlength=len(self.persons))
        return _sums(values, self.person_of_set, counts)

    def largest(self, values: Tensor) -> Tensor:  # (N m, R) -> (T, R)
        """Return the largest value of each set."""
        ends = self.rows_of_set.cumsum(0)
        most = int(self.rows_of_set.max())
        members = (ends - self.rows_of_set)[:, None] + torch.arange(most, device=ends.device)
        return values[torch.minimum(members, ends[:, None] - 1)].amax(1)


def _sums(values: Tensor, owner: Tensor, counts: Tensor) -> Tensor:
    """Sum neighbours; on a GPU in one order every time, which ``index_add_`` has only on a CPU."""
    if values.is_cuda:
        lead = values.shape[:-2]
        flat = values.reshape(-1, *values.shape[-2:]).movedim(-2, 0).contiguous()
        sums = torch.segment_reduce(flat, "sum", lengths=counts, axis=0)
        return sums.movedim(0, -2).reshape(*lead, len(counts), values.shape[-1])
    out = values.new_zeros(*values.shape[:-2], len(counts), values.shape[-1])
    return out.index_add_(-2, owner, values)


def blocks(z: Floats, offsets: Ints, person: Ints, elements: int, device: torch.device) -> Iterator[Block]:
    """Cut sets (M, K), with their persons (T,), into blocks of about so many rows, and at least one person.

    Parameters
    ----------
    z, offsets
        (M, K) rows of all sets, and (T + 1,) where each set begins.
    person
        (T,) number of each set's person; the sets of a person need not follow each other.
    elements
        Rows of a block, at most, unless a single person has more.
    device
        Where the blocks are to be.
    """
    # 1. Sets person by person, and how many rows each person has.
    order = np.argsort(person, kind="stable")
    known, counts = np.unique(person, return_counts=True)  # persons that have rows
    sizes = np.diff(offsets)[order]
    first = np.cumsum(counts) - counts
    rows = np.add.reduceat(sizes, first) if len(known) else sizes
    # 2. Persons of like numbers of rows go together, so that little is padded.
    ranked = np.argsort(rows, kind="stable")
    for group in _cuts(rows[ranked], elements):
        members = ranked[group]
        yield _block(z, offsets, known[members], order[stretches(first[members], counts[members])], person, device)


def _cuts(rows: Ints, most: int) -> Iterator[slice]:
    """Cut persons, ordered by their numbers of rows, where a block is full."""
    begin = 0
    while begin < len(rows):
        end = begin + 1
        while end < len(rows) and (end + 1 - begin) * rows[end] <= most:
            end += 1
        yield slice(begin, end)
        begin = end


def _block(z: Floats, offsets: Ints, persons: Ints, sets: Ints, person: Ints, device: torch.device) -> Block:
    """Put the rows of some sets, person after person, into a block."""
    # 1. Whose each set is, how many rows a person has, and the most of them, m.
    place = {int(n): k for k, n in enumerate(persons)}
    owner = np.array([place[int(n)] for n in person[sets]], np.int64)
    sizes = np.diff(offsets)[sets]
    per_person = np.bincount(owner, sizes, minlength=len(persons)).astype(np.int64)
    m = int(per_person.max())
    # 2. Empty rows are counted to the person's last set.
    ends = np.cumsum(np.bincount(owner, minlength=len(persons)))
    padded = sizes.copy()
    padded[ends - 1] += m - per_person
    # 3. The rows of every person from the beginning of its m on; zeros after them.
    filled = np.zeros((len(persons) * m, z.shape[1]))
    inside = stretches(np.arange(len(persons)) * m, per_person)
    rows = stretches(offsets[sets], sizes)
    filled[inside] = z[rows]
    empty = np.setdiff1d(np.arange(len(filled)), inside)

    def to(values: Floats | Ints) -> Tensor:
        return torch.from_numpy(values).to(device)

    set_of_row = np.repeat(np.arange(len(sets)), padded)
    return Block(
        persons, rows, to(filled.reshape(len(persons), m, -1)), to(set_of_row), to(padded), to(owner), to(empty)
    )
