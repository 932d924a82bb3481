"""Grouping of encoded choice sets into batches of tensors.

A batch is padded to the size of its largest set. Sets of similar size share a batch. The number of pairs in a batch,
including padding, is limited, which bounds memory for sets of any size. Batches are formed on the device that holds the
data, so a batch needs only a few gather operations and no transfer.
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

_MAX_PADDING = 1.05  # largest ratio of pairs with padding to pairs without it ...
_MIN_FILLED = 0.25  # ... in batches that fill at least this share of the pair budget
_BATCHES_PER_SORT = (
    32  # batches whose sets are sorted by size at a time: more means less padding, but less random order
)
_ROWS_PER_COMPARISON = 2**14


PairCount = Callable[[Ints], Ints]  # sizes of sets -> number of pairs that a network scores in each


class DistinctContents(NamedTuple):
    """Distinct values of a content column in a batch, each encoded once, and the position of each row's value."""

    values: Tensor  # (u, ...)
    place: Tensor  # (B, J), or (B,) for a column of the individual: positions in ``values``


class CodedContents(NamedTuple):
    """A content column, such as texts or images: one code per alternative or set, and a table of distinct values."""

    codes: Tensor  # (N,), or (S,) int64
    table: Tensor  # (U, ...)

    def at(self, index: Tensor) -> DistinctContents:
        """Return the distinct values at the given positions."""
        used, place = torch.unique(self.codes[index], return_inverse=True)
        values = self.table[used]
        return DistinctContents(
            values / 255 if values.dtype == torch.uint8 else values, place
        )  # images have one byte per channel


@dataclass(frozen=True, slots=True)
class Batch:
    """B choice sets padded to J alternatives."""

    numeric: Tensor  # (B, J, F)
    categorical: Tensor  # (B, J, C) indices into the vocabularies
    individual_numeric: Tensor  # (B, F0)
    individual_categorical: Tensor  # (B, C0)
    mask: Tensor  # (B, J) True for real alternatives, which come first
    chosen: Tensor  # (B,) position of the chosen alternative; 0 if unknown
    weight: Tensor  # (B,)
    contents: tuple[DistinctContents, ...] = ()  # one for each content column of the alternatives
    individual_contents: tuple[DistinctContents, ...] = ()
    person: Tensor | None = None  # (B,) number of the person, if persons are declared
    log_expansion: Tensor | None = None  # (B, J) logarithms of the expansion factors of sampled alternatives


class EncodedTable(Protocol):
    """Encoded choice sets in parts: a single part in memory, or several parts that are read from disk one by one."""

    def parts(self, order: Sequence[int] | None = None, skip: int = 0) -> Iterator[EncodedPart]:
        """Yield all sets once, in parts.

        Parameters
        ----------
        order
            Seed of the random order of the parts, as a sequence of numbers such as (seed, epoch). If None, the parts
            are in table order.
        skip
            Number of parts to skip at the start.
        """


class Source(EncodedTable, Protocol):
    """Encoded choice sets to train on."""

    @property
    def device(self) -> torch.device:
        """Device of the parts."""

    @property
    def mean_pairs(self) -> float:
        """Mean number of ordered pairs per set."""

    @property
    def largest(self) -> int:
        """Size of the largest set."""

    def __len__(self) -> int: ...

    def chunks(self) -> Iterator[EncodedSets]:
        """Yield all sets once, in small chunks that are the same in every process of a group."""


@dataclass(frozen=True)
class ConcatenatedTables:
    """Encoded choice sets of several tables, one table after another."""

    tables: Sequence[EncodedTable]

    def parts(self, order: Sequence[int] | None = None, skip: int = 0) -> Iterator[EncodedPart]:
        """Yield the parts of all tables."""
        yield from islice((part for table in self.tables for part in table.parts(order)), skip, None)


@dataclass(frozen=True, kw_only=True)
class EncodedSets:
    """All choice sets of a table as tensors, with one row per alternative (N, .) or per set (S, .)."""

    sizes: Ints  # (S,) on the host, where batches are planned
    starts: Tensor  # (S,) first alternative of each set
    counts: Tensor  # (S,) copy of ``sizes`` on the device
    numeric: Tensor  # (N, F) float32
    categorical: Tensor  # (N, C) int64
    individual_numeric: Tensor  # (S, F0) float32
    individual_categorical: Tensor  # (S, C0) int64
    chosen: Tensor  # (S,) int64
    weight: Tensor  # (S,) float32
    contents: tuple[CodedContents, ...] = ()  # (N,) codes, with the table of distinct contents of each column
    individual_contents: tuple[CodedContents, ...] = ()  # (S,)
    persons: Ints | None = None  # (S,) number of the person, if persons are declared; on the host
    person: Tensor | None = None  # (S,) copy of ``persons`` on the device
    log_expansion: Tensor | None = None  # (N,) logarithms of the expansion factors of sampled alternatives

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.starts.device

    @property
    def largest(self) -> int:
        """Size of the largest set."""
        return int(self.sizes.max(initial=0))

    @property
    def mean_pairs(self) -> float:
        """Mean number of ordered pairs per set."""
        return float((self.sizes**2).mean())

    def parts(self, order: Sequence[int] | None = None, skip: int = 0) -> Iterator[EncodedSets]:
        """Yield all sets as a single part, unless ``skip`` is positive."""
        if not skip:
            yield self

    def chunks(self) -> Iterator[EncodedSets]:
        """Yield all sets as one chunk."""
        yield self

    def to(self, device: torch.device) -> EncodedSets:
        """Copy the tensors to a device."""
        return self._each(lambda tensor: tensor.to(device))

    def pinned(self) -> EncodedSets:
        """Copy the tensors to page-locked host memory."""
        return self._each(lambda tensor: tensor.pin_memory())

    @property
    def nbytes(self) -> int:
        """Total size of the tensors, in bytes."""
        return sum(tensor.nbytes for tensor in self._all())

    @property
    def is_contiguous(self) -> bool:
        """Whether every tensor is contiguous."""
        return all(tensor.is_contiguous() for tensor in self._all())

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """Keep the memory of the tensors allocated until ``stream`` has finished using them."""
        for tensor in self._all():
            tensor.record_stream(stream)

    def _all(self) -> list[Tensor]:
        coded = [tensor for column in (*self.contents, *self.individual_contents) for tensor in column]
        return [*self._tensors().values(), *coded]

    def copy_(self, other: EncodedSets) -> EncodedSets | None:
        """Overwrite these sets in place with the sets of ``other``, or return None if ``other`` is too large."""
        targets, sources = self._tensors(), other._tensors()
        if any(len(sources[name]) > len(tensor) for name, tensor in targets.items()):
            return None
        for name, tensor in targets.items():
            tensor[: len(sources[name])].copy_(sources[name])
        return replace(self, sizes=other.sizes)

    @classmethod
    def join(cls, chunks: Sequence[EncodedSets], order: Ints) -> EncodedSets:
        """Concatenate chunks and arrange their sets in the given order.

        The flat tensors of alternatives are not reordered.
        """
        sizes = np.concatenate([chunk.sizes for chunk in chunks])
        index = torch.from_numpy(order)
        ends = np.cumsum([len(chunk.numeric) for chunk in chunks])
        starts = [chunk.starts + (int(end) - len(chunk.numeric)) for chunk, end in zip(chunks, ends, strict=True)]

        def concatenated(name: str) -> Tensor:
            return torch.cat([getattr(chunk, name) for chunk in chunks])

        one_per_set = ("counts", "individual_numeric", "individual_categorical", "chosen", "weight")
        tensors: dict[str, Any] = {name: concatenated(name)[index] for name in one_per_set}
        tensors |= {name: concatenated(name) for name in ("numeric", "categorical")}
        return cls(sizes=sizes[order], starts=torch.cat(starts)[index], **tensors)

    def _tensors(self) -> dict[str, Any]:
        return {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}

    def _each(self, move: Callable[[Tensor], Tensor]) -> EncodedSets:
        moved: dict[str, Any] = {name: move(tensor) for name, tensor in self._tensors().items()}
        for side in ("contents", "individual_contents"):
            moved[side] = tuple(CodedContents(*map(move, column)) for column in getattr(self, side))
        return replace(self, **moved)

    def require_variation_within_sets(self) -> None:
        """Raise InputError if no feature differs between the alternatives of any choice set."""
        if not self.varies_within_sets():
            raise InputError(
                "no feature differs between the alternatives of any choice set: there is nothing to learn."
            )

    def varies_within_sets(self) -> bool:
        """Return True if any feature varies within any choice set. Checking the first rows is usually enough."""
        first = self.starts.repeat_interleave(self.counts)
        columns = (self.numeric, self.categorical, *(column.codes for column in self.contents))
        step = _ROWS_PER_COMPARISON
        chunks = [slice(begin, begin + step) for begin in range(0, len(first), step)]
        return any(bool((x[rows] != x[first[rows]]).any()) for x in columns for rows in chunks)

    def batch(self, sets: Ints) -> Batch:
        """Gather the given sets as a batch.

        The size of the largest set is known on the host, so no device synchronisation is needed.
        """
        index = torch.from_numpy(np.ascontiguousarray(sets)).to(self.starts.device)
        return self.gather(index, int(self.sizes[sets].max()))

    def gather(self, index: Tensor, places: int) -> Batch:
        """Gather the sets at ``index`` (B,) on the device, padded to ``places`` alternatives.

        ``places`` must be at least the size of the largest selected set.
        """
        place = torch.arange(places, device=index.device)  # (J,)
        mask = place < self.counts[index].unsqueeze(1)  # (B, J)
        flat = self.starts[index].unsqueeze(1) + place.where(
            mask, place.new_zeros(())
        )  # padding repeats the first alternative
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
            log_expansion=None if self.log_expansion is None else self.log_expansion[flat],
        )


@dataclass(frozen=True, kw_only=True)
class DistributedSets:
    """A part of a table whose sets are distributed over the processes of a group."""

    sizes: Ints  # (S,) sizes of all sets: every process plans the same batches
    local: EncodedSets | None  # the sets of this process, if any
    place: Ints  # (S,) position of each set in ``local``; -1 for sets of other processes

    def share(self, sets: Ints) -> Ints:
        """Return the positions in ``local`` of the given sets that this process holds."""
        places = self.place[sets]
        return places[places >= 0]

    def to(self, device: torch.device) -> DistributedSets:
        """Copy the tensors to a device."""
        return self if self.local is None else replace(self, local=self.local.to(device))


EncodedPart = EncodedSets | DistributedSets  # in a single process | in one process of a group


def plan_batches(
    sizes: Ints,
    *,
    batch_size: int,
    pair_budget: int,
    pairs: PairCount = np.square,
    rng: np.random.Generator | None = None,
    tight: bool = True,
) -> list[Ints]:
    """Group sets of similar size into batches.

    Parameters
    ----------
    sizes
        Sizes of the sets, (S,).
    batch_size
        Maximum number of sets in a batch.
    pair_budget
        Maximum number of pairs in a batch, including padding. A single set may exceed this limit.
    pairs
        Function that returns the number of pairs of sets of given sizes. Default: all ordered pairs of alternatives.
    rng
        Random generator that shuffles the sets. The shuffled sets are sorted by size within groups of 32 batches, and
        the batches are shuffled again, so every epoch differs. If None, all sets are sorted by size.
    tight
        Whether a large batch ends early if padding would exceed 5% of its pairs, True by default.

    Returns
    -------
    list of arrays
        Positions of the sets in each batch.

    Raises
    ------
    ConfigError
        If ``batch_size`` or ``pair_budget`` is below 1.
    """
    if batch_size < 1 or pair_budget < 1:
        raise ConfigError(
            f"batch_size and pair_budget must be at least 1, got batch_size={batch_size} and pair_budget={pair_budget}."
        )
    order = np.arange(len(sizes)) if rng is None else rng.permutation(len(sizes))
    step = len(sizes) if rng is None else batch_size * _BATCHES_PER_SORT
    plan: list[Ints] = []
    for begin in range(0, len(order), max(step, 1)):
        sets = order[begin : begin + step]
        keys = sizes[sets]
        if len(sets) and keys.max() < 2**16:
            keys = keys.astype(np.uint16)  # NumPy sorts 16-bit integers by radix sort, several times faster
        plan += _cut(sets[np.argsort(keys, kind="stable")], pairs(sizes), batch_size, pair_budget, tight)
    if rng is not None:
        plan = [plan[i] for i in rng.permutation(len(plan))]
    return plan


def plan_person_batches(
    persons: Ints,
    sizes: Ints,
    *,
    batch_size: int,
    pair_budget: int,
    pairs: PairCount = np.square,
    rng: np.random.Generator,
) -> list[Ints]:
    """Group sets into batches, with all sets of a person in the same batch and persons in random order.

    A batch ends when it has at least ``batch_size`` sets, or when adding the next person would exceed ``pair_budget``.
    The sets of a single person may exceed both limits.
    """
    number = np.unique(persons, return_inverse=True)[1]
    order = np.argsort(rng.permutation(len(persons))[number], kind="stable")
    # add one person at a time to the last batch, and start a new batch when it is full
    plan: list[list[Ints]] = [[]]
    of_set = pairs(sizes)  # (S,)
    n_sets = most = 0  # sets of the last batch, and pairs of its largest set
    for sets in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
        largest = int(of_set[sets].max())
        if n_sets and (n_sets >= batch_size or (n_sets + len(sets)) * max(most, largest) > pair_budget):
            plan.append([])
            n_sets = most = 0
        plan[-1].append(sets)
        n_sets, most = n_sets + len(sets), max(most, largest)
    return [np.concatenate(sets) for sets in plan if sets]


def _cut(sets: Ints, of_set: Ints, batch_size: int, pair_budget: int, tight: bool) -> list[Ints]:
    """Cut sets that are sorted by size into batches, each padded to the size of its last set, which is the largest."""
    unrestricted = pair_budget * _MIN_FILLED if tight else pair_budget
    if min(batch_size, len(sets)) * int(of_set[sets[-1:]].sum()) <= unrestricted:  # no limit but the batch size
        return [sets[begin : begin + batch_size] for begin in range(0, len(sets), batch_size)]
    batches: list[Ints] = []
    begin = 0
    while begin < len(sets):
        # upper bound on the number of sets: all as small as the first
        max_sets = max(pair_budget // max(int(of_set[sets[begin]]), 1), 1)
        end = min(begin + min(batch_size, max_sets), len(sets))
        # end before the first set that breaks the budget, or that adds too much padding
        pairs = of_set[sets[begin:end]]
        padded = np.arange(1, end - begin + 1) * pairs
        over = padded > pair_budget
        if tight:
            over |= (padded > _MAX_PADDING * np.cumsum(pairs)) & (padded > unrestricted)
        end = begin + max(int(over.argmax()), 1) if over.any() else end
        batches.append(sets[begin:end])
        begin = end
    return batches
