"""Encoded choice sets -> batches of tensors.

A batch is padded to its own largest set, or little more. Sets of like size go together, and a batch has a budget of
pairs (the padded sum of n^2), so that memory is bounded whatever the sizes. Batches are formed on the
device that holds the data: a batch costs a few gathers and no transfer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from pcmcnet.arrays import Ints
from pcmcnet.errors import ConfigError, InputError

_PADDED, _FULL = 1.05, 0.25  # pairs with padding over those without, from this share of the budget on
_SORTED_TOGETHER = 32  # batches whose sets are sorted by size together: large for little padding, small for chance
_ROWS = 2**14  # that are compared at a time


class DistinctContents(NamedTuple):
    """The distinct contents of a column in a batch, of which each is encoded once, and who has which."""

    values: Tensor  # (u, ...)
    place: Tensor  # (B, J), or (B,) for the individual: positions among the values


class CodedContents(NamedTuple):
    """One column of contents: a code for each alternative, or each set, and what the codes stand for."""

    codes: Tensor  # (N,), or (S,) int64
    table: Tensor  # (U, ...)

    def at(self, index: Tensor) -> DistinctContents:
        """Take the contents at some places."""
        used, place = torch.unique(self.codes[index], return_inverse=True)
        values = self.table[used]
        return DistinctContents(
            values / 255 if values.dtype == torch.uint8 else values, place
        )  # pictures take a byte a pixel


@dataclass(frozen=True, slots=True)
class Batch:
    """B choice sets padded to J alternatives."""

    numeric: Tensor  # (B, J, F)
    categorical: Tensor  # (B, J, C) indices into the vocabularies
    individual_numeric: Tensor  # (B, F0)
    individual_categorical: Tensor  # (B, C0)
    mask: Tensor  # (B, J) True for real alternatives, which come first
    chosen: Tensor  # (B,) position of the choice; 0 where unknown
    weight: Tensor  # (B,)
    contents: tuple[DistinctContents, ...] = ()  # of the alternatives' columns of contents
    individual_contents: tuple[DistinctContents, ...] = ()
    person: Tensor | None = None  # (B,) a number for each person, where persons are known


class EncodedTable(Protocol):
    """Encoded choice sets that come in parts: one, where they are in memory, or one after the other from disk."""

    def parts(self, order: Sequence[int] | None = None, skip: int = 0) -> Iterator[EncodedPart]:
        """Go through all sets once, in an order that the numbers given decide on, such as seed and epoch.

        ``skip`` is how many parts to leave out at the start.
        """


class Source(EncodedTable, Protocol):
    """Choice sets to train on."""

    @property
    def device(self) -> torch.device:
        """Where the parts are put."""

    @property
    def mean_pairs(self) -> float:
        """Mean number of ordered pairs of a set."""

    @property
    def largest(self) -> int:
        """Size of the largest set."""

    def __len__(self) -> int: ...

    def chunks(self) -> Iterator[EncodedSets]:
        """Go through all sets once, in small parts that are the same for every process of a group."""


@dataclass(frozen=True)
class ConcatenatedTables:
    """Choice sets of several tables, one after the other."""

    tables: Sequence[EncodedTable]

    def parts(self, order: Sequence[int] | None = None, skip: int = 0) -> Iterator[EncodedPart]:
        """Go through all parts of all tables."""
        yield from islice((part for table in self.tables for part in table.parts(order)), skip, None)


@dataclass(frozen=True, kw_only=True)
class EncodedSets:
    """All choice sets of a table as tensors: flat over alternatives (N, .), or one row per set (S, .)."""

    sizes: Ints  # (S,) on the host, where batches are planned
    starts: Tensor  # (S,) where each set begins in the flat tensors
    counts: Tensor  # (S,) sizes again, on the device
    numeric: Tensor  # (N, F) float32
    categorical: Tensor  # (N, C) int64
    individual_numeric: Tensor  # (S, F0) float32
    individual_categorical: Tensor  # (S, C0) int64
    chosen: Tensor  # (S,) int64
    weight: Tensor  # (S,) float32
    contents: tuple[CodedContents, ...] = ()  # (N,) codes and what they stand for, of each column of contents
    individual_contents: tuple[CodedContents, ...] = ()  # (S,)
    persons: Ints | None = None  # (S,) a number for each person, where persons are known; on the host
    person: Tensor | None = None  # (S,) the same, on the device

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.starts.device

    @property
    def largest(self) -> int:
        """Size of the largest set."""
        return int(self.sizes.max(initial=0))

    @property
    def mean_pairs(self) -> float:
        """Mean number of ordered pairs of a set."""
        return float((self.sizes**2).mean())

    def parts(self, order: Sequence[int] | None = None, skip: int = 0) -> Iterator[EncodedSets]:
        """Yield the one part there is: batches are drawn from it in any order."""
        if not skip:
            yield self

    def chunks(self) -> Iterator[EncodedSets]:
        """Yield the one part there is."""
        yield self

    def to(self, device: torch.device) -> EncodedSets:
        """Copy the tensors to a device."""
        return self._each(lambda tensor: tensor.to(device))

    def pinned(self) -> EncodedSets:
        """Copy the tensors to memory of the host that a device can read by itself."""
        return self._each(lambda tensor: tensor.pin_memory())

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(tensor.nbytes for tensor in self._all())

    @property
    def is_contiguous(self) -> bool:
        """Whether each tensor is in one piece."""
        return all(tensor.is_contiguous() for tensor in self._all())

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """Keep the memory of the tensors until a stream is done with them."""
        for tensor in self._all():
            tensor.record_stream(stream)

    def _all(self) -> list[Tensor]:
        coded = [tensor for column in (*self.contents, *self.individual_contents) for tensor in column]
        return [*self._tensors().values(), *coded]

    def copy_(self, other: EncodedSets) -> EncodedSets | None:
        """Put other sets in the place of these, in the same memory; None where they do not fit."""
        ours, theirs = self._tensors(), other._tensors()
        if any(len(theirs[name]) > len(tensor) for name, tensor in ours.items()):
            return None
        for name, tensor in ours.items():
            tensor[: len(theirs[name])].copy_(theirs[name])
        return replace(self, sizes=other.sizes)

    @classmethod
    def join(cls, chunks: Sequence[EncodedSets], order: Ints) -> EncodedSets:
        """Put pieces together, their sets in the order given; alternatives stay where they are."""
        sizes = np.concatenate([piece.sizes for piece in chunks])
        index = torch.from_numpy(order)
        ends = np.cumsum([len(piece.numeric) for piece in chunks])
        starts = [piece.starts + (int(end) - len(piece.numeric)) for piece, end in zip(chunks, ends, strict=True)]

        def all_of(name: str) -> Tensor:
            return torch.cat([getattr(piece, name) for piece in chunks])

        of_sets = ("counts", "individual_numeric", "individual_categorical", "chosen", "weight")
        tensors: dict[str, Any] = {name: all_of(name)[index] for name in of_sets}
        tensors |= {name: all_of(name) for name in ("numeric", "categorical")}
        return cls(sizes=sizes[order], starts=torch.cat(starts)[index], **tensors)

    def _tensors(self) -> dict[str, Any]:
        return {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}

    def _each(self, move: Callable[[Tensor], Tensor]) -> EncodedSets:
        moved: dict[str, Any] = {name: move(tensor) for name, tensor in self._tensors().items()}
        for side in ("contents", "individual_contents"):
            moved[side] = tuple(CodedContents(*map(move, column)) for column in getattr(self, side))
        return replace(self, **moved)

    def require_variation_within_sets(self) -> None:
        """Raise InputError if the alternatives of every choice set are alike: a network without order cannot learn."""
        if not self.varies_within_sets():
            raise InputError(
                "no feature differs between the alternatives of any choice set: there is nothing to learn."
            )

    def varies_within_sets(self) -> bool:
        """Tell whether any feature tells two alternatives of a set apart: mostly the first rows do."""
        first = self.starts.repeat_interleave(self.counts)
        columns = (self.numeric, self.categorical, *(column.codes for column in self.contents))
        chunks = [slice(begin, begin + _ROWS) for begin in range(0, len(first), _ROWS)]
        return any(bool((x[rows] != x[first[rows]]).any()) for x in columns for rows in chunks)

    def batch(self, sets: Ints) -> Batch:
        """Gather some sets; their largest size is known on the host, so nothing waits for the device."""
        index = torch.from_numpy(np.ascontiguousarray(sets)).to(self.starts.device)
        return self.gather(index, int(self.sizes[sets].max()))

    def gather(self, index: Tensor, places: int) -> Batch:
        """Gather sets by positions (B,) on the device, padded to so many places, at least their largest size."""
        place = torch.arange(places, device=index.device)  # (J,)
        mask = place < self.counts[index].unsqueeze(1)  # (B, J)
        flat = self.starts[index].unsqueeze(1) + place.where(mask, place.new_zeros(()))  # padding repeats the first
        return Batch(
            numeric=self.numeric[flat],
            categorical=self.categorical[flat],
            individual_numeric=self.individual_numeric[index],
            individual_categorical=self.individual_categorical[index],
            mask=mask,
            chosen=self.chosen[index],
            weight=self.weight[index],
            contents=tuple(column.at(flat) for column in self.contents),
            individual_contents=tuple(column.at(index) for column in self.individual_contents),
            person=None if self.person is None else self.person[index],
        )


@dataclass(frozen=True, kw_only=True)
class DistributedSets:
    """A part of a table of which this process holds some sets, and others of its group the rest."""

    sizes: Ints  # (S,) of all sets, by which every process plans the same batches
    local: EncodedSets | None  # the sets that are here, if any
    place: Ints  # (S,) where among them each set is, -1 for those of others

    def share(self, sets: Ints) -> Ints:
        """Return where this process has some of the sets; there may be none."""
        places = self.place[sets]
        return places[places >= 0]

    def to(self, device: torch.device) -> DistributedSets:
        """Copy the tensors to a device."""
        return self if self.local is None else replace(self, local=self.local.to(device))


EncodedPart = EncodedSets | DistributedSets  # as a process alone has it, and as one of several has it


def plan_batches(
    sizes: Ints, *, batch_size: int, pair_budget: int, rng: np.random.Generator | None = None, tight: bool = True
) -> list[Ints]:
    """Group sets into batches of like size within both limits; one set may exceed the budget alone.

    Without ``rng`` the sets are sorted by size over the whole table. With it, the sets are shuffled, sorted
    within stretches of some batches only, and the batches shuffled again, so that every epoch differs.
    ``tight``: large batches end where padding would make up too much of them. Else they are as large as allowed.
    """
    if batch_size < 1 or pair_budget < 1:
        raise ConfigError(
            f"batch_size and pair_budget must be at least 1, got batch_size={batch_size} and pair_budget={pair_budget}."
        )
    order = np.arange(len(sizes)) if rng is None else rng.permutation(len(sizes))
    stretch = len(sizes) if rng is None else batch_size * _SORTED_TOGETHER
    plan: list[Ints] = []
    for begin in range(0, len(order), max(stretch, 1)):
        part = order[begin : begin + stretch]
        of_part = sizes[part]
        if len(part) and of_part.max() < 2**16:  # numbers of 16 bits are sorted by counting, in a fraction of the time
            of_part = of_part.astype(np.uint16)
        plan += _cut(part[np.argsort(of_part, kind="stable")], sizes, batch_size, pair_budget, tight)
    if rng is not None:
        plan = [plan[i] for i in rng.permutation(len(plan))]
    return plan


def plan_person_batches(
    persons: Ints, sizes: Ints, *, batch_size: int, pair_budget: int, rng: np.random.Generator
) -> list[Ints]:
    """Group sets into batches that hold all sets of a person, one after the other, in an order drawn by chance.

    A batch is closed by the person with whom it reaches ``batch_size`` sets, or whose successor would break the budget;
    one person may exceed both limits alone.
    """
    number = np.unique(persons, return_inverse=True)[1]
    order = np.argsort(rng.permutation(len(persons))[number], kind="stable")
    # fill the last batch with one person after the other, and begin another when it is full
    plan: list[list[Ints]] = [[]]
    held = largest = 0
    for sets in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
        size = int(sizes[sets].max())
        if held and (held >= batch_size or (held + len(sets)) * max(largest, size) ** 2 > pair_budget):
            plan.append([])
            held = largest = 0
        plan[-1].append(sets)
        held, largest = held + len(sets), max(largest, size)
    return [np.concatenate(sets) for sets in plan if sets]


def _cut(sets: Ints, sizes: Ints, batch_size: int, pair_budget: int, tight: bool) -> list[Ints]:
    """Cut sets sorted by size into batches; the last of a batch is its largest and sets its padding."""
    free = pair_budget * _FULL if tight else pair_budget
    if min(batch_size, len(sets)) * int(sizes[sets[-1:]].sum()) ** 2 <= free:  # no batch comes so far
        return [sets[begin : begin + batch_size] for begin in range(0, len(sets), batch_size)]
    chunks: list[Ints] = []
    begin = 0
    while begin < len(sets):
        most = max(pair_budget // max(int(sizes[sets[begin]]), 1) ** 2, 1)  # of the smallest: no more can fit
        end = min(begin + min(batch_size, most), len(sets))
        pairs = sizes[sets[begin:end]] ** 2
        padded = np.arange(1, end - begin + 1) * pairs
        over = padded > pair_budget
        if tight:
            over |= (padded > _PADDED * np.cumsum(pairs)) & (padded > free)
        end = begin + max(int(over.argmax()), 1) if over.any() else end
        chunks.append(sets[begin:end])
        begin = end
    return chunks
