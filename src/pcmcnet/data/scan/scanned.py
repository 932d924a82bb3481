"""Choice sets on disk: a table larger than memory, which is read shard by shard."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Ints
from pcmcnet.checks import bytes_of
from pcmcnet.concurrency import read_ahead
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.chunked_data import ChunkedData
from pcmcnet.data.columns.distinct import uniform_draws
from pcmcnet.data.encoder import Encoder
from pcmcnet.data.files.read_files import column_names
from pcmcnet.data.scan.cache import FileState, Manifest, Shard, Tally, VerifiedShards, digest, join_shards, read_shard
from pcmcnet.data.scan.convert import convert_or_reuse, usable_workers
from pcmcnet.data.scan.workers import Processes, Workers
from pcmcnet.data.schema import Schema
from pcmcnet.data.subsets import generator, number_groups, require_shares
from pcmcnet.errors import ArtifactError, InputError, SchemaError
from pcmcnet.storage import package_version, parse_json, write_bytes

_DESCRIBED_SETS = 20_000  # sampled for a description
_MIN_TASKS_PER_WORKER = 16
_MAX_SHARDS_PER_TASK = 4  # a shard takes only milliseconds
_BUFFERS = 4  # in memory at a time: one in use, one being read, and copies

U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class RandomPart:
    """Filter for one part of a random split: the sets, or groups of sets, whose uniform draw is in [low, high)."""

    seed: int
    by: str | None
    low: float
    high: float

    @property
    def identity(self) -> str:
        """Text that represents the filter in the fingerprints of saved runs.

        The text must not change between releases.
        """
        return f"Drawn(seed={self.seed!r}, by={self.by!r}, low={self.low!r}, high={self.high!r})"

    def mask(self, shard: Shard) -> NDArray[np.bool_]:
        """Return the mask of the selected sets of a shard."""
        draws = uniform_draws(shard.keys_by(self.by), self.seed)
        return (draws >= self.low) & (draws < self.high)


@dataclass(frozen=True, slots=True)
class PositiveWeight:
    """Filter for the sets with a weight above 0."""

    identity: ClassVar[str] = "Counted()"  # in fingerprints of saved runs, which must not change

    def mask(self, shard: Shard) -> NDArray[np.bool_]:
        """Return the mask of the selected sets of a shard."""
        return shard.data.weights > 0


class Outline(NamedTuple):
    """First rows and sizes of a shard's selected sets, without the columns (about 1% of the data)."""

    first: Ints  # (S,) first row of each set in the table
    sizes: Ints  # (S,) numbers of available alternatives
    rows: int  # number of rows of the table, including unavailable alternatives

    @classmethod
    def of(cls, shard: Shard, mask: NDArray[np.bool_]) -> Outline:
        """Return the outline of the sets that a mask selects."""
        sizes = shard.data.sizes[mask]
        return cls(shard.first[mask], sizes, int(sizes.sum() + mask[shard.data.hidden_sets].sum()))

    @property
    def tally(self) -> Tally:
        """Counts of sets, alternatives, rows and pairs."""
        pairs, largest = int((self.sizes**2).sum()), int(self.sizes.max(initial=0))
        return Tally(len(self.sizes), int(self.sizes.sum()), self.rows, pairs, largest)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ScannedData(ChunkedData):
    """Choice sets on disk, as returned by :meth:`ChoiceData.scan`.

    Models that are trained in epochs accept scanned data instead of ``ChoiceData``, and every model can predict from
    it. For other uses, draw a :meth:`sample` or iterate over the :meth:`parts`.

    Parameters
    ----------
    folder
        Folder of the converted table.
    manifest
        Manifest with the content and sources of the folder.
    memory
        Maximum memory for the choice sets, in bytes.
    verified
        The shards, verified when they are first read.
    filters
        Filters that select parts of the table. By default, all sets are used.
    workers
        Workers that share computations on all shards. By default, only the current process is used.
    """

    folder: Path
    manifest: Manifest
    memory: int
    verified: VerifiedShards
    filters: tuple[RandomPart | PositiveWeight, ...] = ()
    workers: Workers = field(default_factory=Processes)

    @classmethod
    def of(
        cls, table: Any, schema: Schema, *, cache: Any, memory: str | int, workers: Workers | int | None = None
    ) -> ScannedData:
        """Scan a table, as described in :meth:`ChoiceData.scan`.

        Parameters
        ----------
        table
            Path of a file or a folder.
        schema
            Roles of the columns.
        cache
            Folder for the converted table. If None, a folder next to the table is used.
        memory
            Memory for the choice sets, as a string such as "1 GiB" or a number of bytes.
        workers
            Number of processes, or a :class:`Workers` object. If None (default), there are two processes for a large
            table, otherwise one.

        Returns
        -------
        The scanned table.

        Raises
        ------
        InputError
            If ``table`` or ``cache`` is not a path, or if the cache cannot be written.
        SchemaError
            If the table does not fit its roles, or if scans do not support a role.
        ConfigError
            If ``memory`` is too small or not a valid amount.
        """
        for argument, path in (("table", table), ("cache", cache)):
            if not isinstance(path, str | os.PathLike) and not (path is None and argument == "cache"):
                raise InputError(f"{argument}: expected the path of a file or folder, got {type(path).__name__}.")
        if schema.wide and schema.choice_set not in column_names(Path(table)):
            raise SchemaError(
                "scan does not support wide tables: convert the table to long form, or read it into memory."
            )
        if schema.rank is not None:
            raise SchemaError("scan does not support rankings: use ChoiceData.from_long.")
        if schema.counts is not None:
            raise SchemaError("scan does not support counts: use ChoiceData.from_long.")
        if schema.outside is not None:
            raise SchemaError(
                f"scan does not support an outside option: add rows for {schema.outside!r} to the table, or use "
                f"ChoiceData.from_long."
            )
        budget = bytes_of(memory)
        root = None if cache is None else Path(cache)
        verified, manifest = convert_or_reuse(Path(table), schema, cache=root, memory=budget, workers=workers)
        pool = usable_workers(workers, schema, manifest.tally.rows)
        return cls(folder=verified.entry, manifest=manifest, memory=budget, verified=verified, workers=pool)

    def by(self, workers: Workers | None) -> ScannedData:
        """Return the same choice sets with other workers.

        Parameters
        ----------
        workers
            Workers that read the shards. If None, only the current process is used.
        """
        return replace(self, workers=workers or Processes())

    @cached_property
    def schema(self) -> Schema:
        """The roles of the table's columns, with the kinds of all columns resolved."""
        return Schema.from_dict(self.manifest.schema)

    @cached_property
    def tally(self) -> Tally:
        """Counts of sets, alternatives, rows and pairs."""
        if not self.filters:
            return self.manifest.tally
        return sum((outline.tally for outline in self.outlines()), Tally())

    def __len__(self) -> int:
        return self.tally.sets

    @property
    def n_alternatives(self) -> int:
        """Number of available alternatives over all sets."""
        return self.tally.alternatives

    @property
    def largest(self) -> int:
        """Size of the largest set."""
        return self.tally.largest

    @property
    def n_rows(self) -> int:
        """Number of rows of the table, including unavailable alternatives."""
        return self.tally.rows

    def __repr__(self) -> str:
        tally = self.tally
        choices = "choices known" if self.schema.chosen is not None else "choices unknown"
        return (
            f"ScannedData({tally.sets:,} choice sets of up to {tally.largest} alternatives, "
            f"{tally.alternatives:,} in all; {len(self.manifest.shards)} shards in {self.folder}; {choices})"
        )

    # Shards

    def shards(self, numbers: Sequence[int] | None = None) -> Iterator[Shard]:
        """Yield each shard that has selected sets, reduced to the selected sets.

        Parameters
        ----------
        numbers
            Positions of the shards. If None (default), all shards are used.
        """
        for k in range(len(self.manifest.shards)) if numbers is None else numbers:
            shard = read_shard(self.verified.path(self.manifest.shards[k]), self.schema)
            shard = shard.subset(self._mask(shard))
            if len(shard.data):
                yield shard

    def outlines(self, numbers: Sequence[int] | None = None) -> Iterator[Outline]:
        """Yield the outlines of shards, without reading their columns or verifying their hashes.

        Parameters
        ----------
        numbers
            Positions of the shards. If None (default), all shards are used.
        """
        for k in range(len(self.manifest.shards)) if numbers is None else numbers:
            shard = self._without_contents(k)
            yield Outline.of(shard, self._mask(shard))

    def _without_contents(self, k: int) -> Shard:
        """Return a shard without its content columns, such as texts or images."""
        return read_shard(self.folder / self.manifest.shards[k].name, self.schema, contents=False)

    def _mask(self, shard: Shard) -> NDArray[np.bool_]:
        """Return the mask of the selected sets of a shard."""
        mask = np.ones(len(shard.data), bool)
        for part in self.filters:
            mask &= part.mask(shard)
        return mask

    def parts(self) -> Iterator[ChoiceData]:
        """Yield all sets as ChoiceData objects of a few thousand sets each, with memory-mapped columns."""
        for shard in self.shards():
            yield shard.data

    def each(self, function: Callable[[ChoiceData], U]) -> Iterator[U]:
        """Yield ``function(part)`` for each part in :meth:`parts`, in the order of the parts.

        Parameters
        ----------
        function
            Function of one argument, a ChoiceData. Workers may call the function in other processes, so the function
            must be defined at module level, or be a ``partial`` of a module-level function.
        """
        task, count = partial(_on_shards, self.by(None), function), len(self.manifest.shards)
        max_shards = 1 if self.schema.contents else _MAX_SHARDS_PER_TASK  # results on contents may be large
        step = min(max(count // (_MIN_TASKS_PER_WORKER * self.workers.count), 1), max_shards)
        for results, states in self.workers.map(task, [range(k, min(k + step, count)) for k in range(0, count, step)]):
            self.verified.seen |= states
            yield from results

    def buffers(self, order: Sequence[int] | None = None) -> list[list[int]]:
        """Group shards into buffers that fit into memory.

        Parameters
        ----------
        order
            Positions of the shards, in reading order. If None (default), the shards are in table order.
        """
        limit = self.memory // _BUFFERS
        groups: list[list[int]] = []
        used = limit
        for k in range(len(self.manifest.shards)) if order is None else order:
            size = self.manifest.shards[k].memory_bytes
            if used + size > limit:
                groups.append([])
                used = 0
            groups[-1].append(k)
            used += size
        return groups

    @property
    def fits(self) -> bool:
        """Whether all shards fit into memory."""
        return len(self.buffers()) == 1

    def read(self) -> ChoiceData:
        """Read all sets into memory.

        Returns
        -------
        The same choice data that ``ChoiceData.from_long`` would return.

        Raises
        ------
        InputError
            If no choice set is selected.
        """
        shards = list(self.shards())
        if not shards:
            raise InputError("no choice set is selected: there is nothing to read.")
        return join_shards(shards)

    def read_if_fits(self) -> ChoiceData:
        """Read all sets into memory, or raise InputError if they do not fit."""
        if not self.fits:
            raise InputError(
                "all choice sets are needed in memory, but the scanned table is too large: process data.parts() one by "
                "one, or draw data.sample(n_sets). evaluate, score and predict_proba support the whole table."
            )
        return self.read()

    # Methods of ChoiceData

    def with_positive_weight(self) -> ScannedData:
        """Return the sets with a weight above 0."""
        return self if self.schema.weight is None else replace(self, filters=(*self.filters, PositiveWeight()))

    def require_chosen(self, purpose: str) -> None:
        """Raise InputError if the table has no choices.

        Parameters
        ----------
        purpose
            Subject of the error message, such as "fit".
        """
        if self.schema.chosen is None:
            raise InputError(f"{purpose} needs the choices: scan the table with chosen=<column>.")

    def split(
        self, parts: Sequence[float] = (0.8, 0.1, 0.1), *, seed: int = 0, by: str | None = None
    ) -> tuple[ScannedData, ...]:
        """Split the sets at random into parts of about the given shares. Nothing is copied.

        Each group is assigned to a part independently, so the actual shares vary at random.

        Parameters
        ----------
        parts
            Shares of the parts, (0.8, 0.1, 0.1) by default.
        seed
            Seed of the split. Default 0.
        by
            Name of an individual-level or kept column. Sets with equal values stay together. By default, the sets of a
            person stay together, if the table has persons.

        Returns
        -------
        The parts.

        Raises
        ------
        InputError
            If a share is not valid, or if a part would be empty.
        SchemaError
            If the column cannot be used to group sets.
        """
        generator(seed)  # raises if the seed is not valid
        by = self._group_column(by)
        ends = [0.0, *np.cumsum(require_shares(parts))[:-1].tolist(), 1.0]
        salted = int(seed) + len(self.filters) * 2**40  # a split of a part must be independent of the first split
        splits = tuple(
            replace(self, filters=(*self.filters, RandomPart(salted, by, low, high))) for low, high in pairwise(ends)
        )
        if not all(map(len, splits)):
            raise InputError(f"{len(self)} choice sets are too few for {len(splits)} parts: one would be empty.")
        return splits

    def groups(self, by: str | None = None) -> Ints:
        """Return a group number for each set.

        Parameters
        ----------
        by
            Name of an individual-level or kept column, by default the person column. Without persons, each set is a
            separate group by default.

        Returns
        -------
        Group numbers (S,) in table order, equal for sets with equal values.

        Raises
        ------
        SchemaError
            If the column cannot be used to group sets.
        """
        column = self._group_column(by)
        first, keys = [], []
        for k in range(len(self.manifest.shards)):
            shard = self._without_contents(k)
            mask = self._mask(shard)
            first.append(shard.first[mask])
            keys.append(shard.keys_by(column)[mask])
        return number_groups(np.concatenate(keys)[np.argsort(np.concatenate(first), kind="stable")])

    def _group_column(self, by: str | None) -> str | None:
        """Return the column that groups the sets, or None if each set is a separate group."""
        by = self.schema.person if by is None else by
        if by is None or by == self.schema.choice_set:
            return None
        if by in self.schema.contents:
            raise SchemaError(
                f"column {by!r} is of kind {self.schema.contents[by]}: only numeric and categorical columns can group "
                f"the choice sets of a scanned table."
            )
        if by not in (*self.schema.individual, *self.schema.kept_columns):
            next(iter(self.shards())).keys_by(by)  # raises that there is no such column
        return by

    def sample(self, n_sets: int, seed: int = 0) -> ChoiceData:
        """Draw a random sample of choice sets and read it into memory.

        Parameters
        ----------
        n_sets
            Number of sets to draw. If the table has fewer sets, the sample holds all of them.
        seed
            Seed of the draw. Default 0.

        Returns
        -------
        The sample, in the order of the table.

        Raises
        ------
        InputError
            If the number of sets is not a whole number of at least 1.
        """
        generator(seed)  # raises if the seed is not valid
        if isinstance(n_sets, bool) or not isinstance(n_sets, int) or n_sets < 1:
            raise InputError(f"the number of sets must be a whole number of at least 1, got {n_sets!r}.")
        # 1. Find the n_sets least of the random numbers of all sets.
        least = np.empty(0)
        for shard in self.shards():
            least = np.sort(np.concatenate([least, uniform_draws(shard.keys, seed)]))[:n_sets]
        # 2. Read the sets with these numbers.
        samples = [shard.subset(uniform_draws(shard.keys, seed) <= least[-1]) for shard in self.shards()]
        return join_shards([shard for shard in samples if len(shard.data)])

    def concat(self, other: ScannedData) -> ScannedData:
        """Return the union of two neighbouring parts of the same split.

        Parameters
        ----------
        other
            The other part of the split.

        Returns
        -------
        The union.

        Raises
        ------
        InputError
            If the two objects are not neighbouring parts of one split.
        """
        ours, theirs = self.filters, other.filters
        is_related = isinstance(other, ScannedData) and other.folder == self.folder and ours[:-1] == theirs[:-1]
        if is_related and ours and isinstance(a := ours[-1], RandomPart) and isinstance(b := theirs[-1], RandomPart):
            first, second = sorted((a, b), key=lambda part: part.low)
            if (a.seed, a.by) == (b.seed, b.by) and first.high == second.low:
                return replace(self, filters=(*ours[:-1], replace(first, high=second.high)))
        raise InputError("only neighbouring parts of the same split of a scanned table can be joined.")

    def chunks(self) -> Iterator[Shard]:
        """Yield the same shards as :meth:`shards`. A thread opens the next shard while the current one is in use."""
        return read_ahead(self.shards())

    def by_row(self, values: Iterable[tuple[Ints, ArrayLike]]) -> NDArray[np.float64]:
        """Arrange the values of all shards in the order of the table's rows.

        Parameters
        ----------
        values
            Table rows and values of each shard.
        """
        out, table_rows, done = np.empty(self.n_rows), np.empty(self.n_rows if self.filters else 0, np.int64), 0
        for rows, of_shard in values:
            if self.filters:  # only some rows of the table: sorted at the end
                out[done : done + len(rows)], table_rows[done : done + len(rows)] = of_shard, rows
                done += len(rows)
            else:
                out[rows] = of_shard
        return out[np.argsort(table_rows)] if self.filters else out

    def by_set(self, values: Iterable[tuple[Ints, NDArray[np.float64]]]) -> NDArray[np.float64]:
        """Return the values of all shards in the order of the choice sets, which is that of their first rows.

        Parameters
        ----------
        values
            First row of each choice set in the table, and values of the choice sets, of each shard.
        """
        shards = list(values)
        if not shards:
            return np.empty(0)
        first, of_sets = (np.concatenate(arrays) for arrays in zip(*shards, strict=True))
        return np.asarray(of_sets[np.argsort(first)], np.float64)

    def fingerprint(self) -> str:
        """Return a SHA-256 hash of the table, its filters and the memory limit, which affects the order of batches."""
        identities = [part.identity for part in self.filters]
        return digest("\n".join([self.manifest.fingerprint, str(self.memory), *identities]).encode())

    def describe(self) -> dict[str, Any]:
        """Return the summary that a fitted model saves, computed from a sample by :meth:`ChoiceData.describe`."""
        return self.sample(_DESCRIBED_SETS).describe()


def _on_shards(
    data: ScannedData, function: Callable[[ChoiceData], U], numbers: range
) -> tuple[list[U], dict[str, FileState]]:
    """Apply a function to the given shards, and return the results and the states of the verified shard files."""
    results = [function(shard.data) for shard in data.shards(numbers)]
    return results, {name: data.verified.seen[name] for name in (data.manifest.shards[k].name for k in numbers)}


# -- Encoder cache -----------------------------------------------------------------------------------------------------
# Encoders learnt from a scanned table are stored with its shards, so that resumed runs, second runs and the workers of
# a group start to train without reading all shards. The name of a file depends on the part of the table and on the
# options of the encoder. A file that cannot be written or read is not used: the encoder is learnt again.


def learn_or_load_encoder(data: ScannedData, *, bend: bool = False, labels: bool = False) -> Encoder:
    """Return the stored encoder of a table, or learn it with :meth:`Encoder.learn` and store it."""
    parts = [part.identity for part in data.filters]
    inputs = json.dumps([package_version("pcmcnet"), data.manifest.fingerprint, parts, bend, labels])
    path = data.folder / f"encoder-{digest(inputs.encode())[:16]}.json"
    # 1. Load the encoder, unless its file is missing or damaged.
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, ArtifactError):
        saved = parse_json(path.read_bytes())
        if saved["sha256"] == digest(saved["encoder"].encode()):
            return Encoder.from_dict(parse_json(saved["encoder"]))
    # 2. Learn and store it. Without space or write permission, it is learnt again the next time.
    with data.workers:
        encoder = Encoder.learn(data, bend=bend, labels=labels)
    text = json.dumps(encoder.to_dict())
    with suppress(ArtifactError):
        write_bytes(path, json.dumps({"encoder": text, "sha256": digest(text.encode())}).encode())
    return encoder
