"""Choice sets that stay on disk: a table larger than memory, of which one shard after the other is looked at."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Ints
from pcmcnet.concurrency import read_ahead
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns.distinct import uniform_draws
from pcmcnet.data.encoder import Encoder
from pcmcnet.data.files.read_files import column_names
from pcmcnet.data.scan.cache import FileState, Manifest, Shard, Tally, VerifiedShards, digest, join_shards, read_shard
from pcmcnet.data.scan.convert import convert_or_reuse, usable_workers
from pcmcnet.data.scan.memory import bytes_of
from pcmcnet.data.scan.workers import Processes, Workers
from pcmcnet.data.schema import Schema
from pcmcnet.data.subsets import generator, number_groups, require_shares
from pcmcnet.errors import ArtifactError, InputError, SchemaError
from pcmcnet.storage import package_version, parse_json, write_bytes

_DESCRIBED = 20_000  # sets that a description is made from
_TASKS, _TOGETHER = 16, 4  # tasks for each worker, at least; shards of a task at most: each takes but milliseconds
_BUFFERS = 4  # of the memory: one in use, one being read, and copies on the way

U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Drawn:
    """Sets, or groups of sets, whose draw lies between two bounds."""

    seed: int
    by: str | None
    low: float
    high: float

    def mask(self, shard: Shard) -> NDArray[np.bool_]:
        """Tell which sets of a shard these are."""
        drawn = uniform_draws(shard.keys_by(self.by), self.seed)
        return (drawn >= self.low) & (drawn < self.high)


@dataclass(frozen=True, slots=True)
class Counted:
    """Sets with a weight above 0."""

    def mask(self, shard: Shard) -> NDArray[np.bool_]:
        """Tell which sets of a shard these are."""
        return shard.data.weights > 0


class Outline(NamedTuple):
    """What of a shard belongs to a part, without its columns: a hundredth of it, more or less."""

    first: Ints  # (S,) row of the table where each set begins
    sizes: Ints  # (S,)
    rows: int  # of the table, unavailable ones included

    @classmethod
    def of(cls, shard: Shard, mask: NDArray[np.bool_]) -> Outline:
        """Look at some sets of a shard."""
        sizes = shard.data.sizes[mask]
        return cls(shard.first[mask], sizes, int(sizes.sum() + mask[shard.data.hidden_sets].sum()))

    @property
    def tally(self) -> Tally:
        """How many there are of what."""
        pairs, largest = int((self.sizes**2).sum()), int(self.sizes.max(initial=0))
        return Tally(len(self.sizes), int(self.sizes.sum()), self.rows, pairs, largest)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ScannedData:
    """Choice sets on disk, as :meth:`ChoiceData.scan` returns them.

    A model that trains in epochs takes it in the place of ``ChoiceData``, and every model predicts from it. Other
    things are done with a sample, or part by part.
    """

    folder: Path
    manifest: Manifest
    memory: int
    verified: VerifiedShards
    filters: tuple[Drawn | Counted, ...] = ()
    workers: Workers = field(default_factory=Processes)  # who look at shards where all are looked at

    @classmethod
    def of(
        cls, table: Any, schema: Schema, *, cache: Any, memory: str | int, workers: Workers | int | None = None
    ) -> ScannedData:
        """Scan a table; see :meth:`ChoiceData.scan`."""
        for what, path in (("table", table), ("cache", cache)):
            if not isinstance(path, str | os.PathLike) and not (path is None and what == "cache"):
                raise InputError(f"{what}: expected the path of a file or folder, got {type(path).__name__}.")
        if schema.wide and schema.choice_set not in column_names(Path(table)):
            raise SchemaError("a wide table cannot be scanned: read it whole, or write it as a long one.")
        if schema.rank is not None:
            raise SchemaError("a scanned table cannot hold rankings: read it whole, with ChoiceData.from_long.")
        if schema.outside is not None:
            raise SchemaError(
                f"a scanned table has no outside option: write rows of {schema.outside!r}, or read it whole, with "
                f"ChoiceData.from_long."
            )
        allowed = bytes_of(memory)
        place = None if cache is None else Path(cache)
        verified, manifest = convert_or_reuse(Path(table), schema, cache=place, memory=allowed, workers=workers)
        ready = usable_workers(workers, schema, manifest.tally.rows)
        return cls(folder=verified.entry, manifest=manifest, memory=allowed, verified=verified, workers=ready)

    def by(self, workers: Workers | None) -> ScannedData:
        """Return the same sets, looked at by others; None for this process alone."""
        return replace(self, workers=workers or Processes())

    @cached_property
    def schema(self) -> Schema:
        """The roles of the table's columns, with the kinds of all columns resolved."""
        return Schema.from_dict(self.manifest.schema)

    @cached_property
    def tally(self) -> Tally:
        """How many there are of what."""
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
        """Number of rows of the table, unavailable ones included."""
        return self.tally.rows

    def __repr__(self) -> str:
        tally = self.tally
        known = "choices known" if self.schema.chosen is not None else "choices unknown"
        return (
            f"ScannedData({tally.sets:,} choice sets of up to {tally.largest} alternatives, "
            f"{tally.alternatives:,} in all; {len(self.manifest.shards)} shards in {self.folder}; {known})"
        )

    # Parts

    def shards(self, which: Sequence[int] | None = None) -> Iterator[Shard]:
        """Open one shard after the other; those without any set of this part are left out."""
        for k in range(len(self.manifest.shards)) if which is None else which:
            shard = read_shard(self.verified.path(self.manifest.shards[k]), self.schema)
            shard = shard.subset(self._mask(shard))
            if len(shard.data):
                yield shard

    def outlines(self, which: Sequence[int] | None = None) -> Iterator[Outline]:
        """Look at one shard after the other without reading its columns, nor looking through it for damage."""
        for k in range(len(self.manifest.shards)) if which is None else which:
            shard = self._without_contents(k)
            yield Outline.of(shard, self._mask(shard))

    def _without_contents(self, k: int) -> Shard:
        """Map a shard into memory without its texts, lists and pictures."""
        return read_shard(self.folder / self.manifest.shards[k].name, self.schema, contents=False)

    def _mask(self, shard: Shard) -> NDArray[np.bool_]:
        """Tell which sets of a shard belong to this part."""
        mask = np.ones(len(shard.data), bool)
        for only in self.filters:
            mask &= only.mask(shard)
        return mask

    def parts(self) -> Iterator[ChoiceData]:
        """Yield all sets, some thousands at a time, as choice data whose columns lie on disk."""
        for shard in self.shards():
            yield shard.data

    def each(self, function: Callable[[ChoiceData], U]) -> Iterator[U]:
        """Yield what a function makes of each part, in their order; workers may share them."""
        look, count = partial(_on_shards, self.by(None), function), len(self.manifest.shards)
        most = 1 if self.schema.contents else _TOGETHER  # what is found of contents may be large
        step = min(max(count // (_TASKS * self.workers.count), 1), most)
        for found, seen in self.workers.map(look, [range(k, min(k + step, count)) for k in range(0, count, step)]):
            self.verified.seen |= seen
            yield from found

    def buffers(self, order: Sequence[int] | None = None) -> list[list[int]]:
        """Group shards, in the order given, into as many as the memory allows at once."""
        room = self.memory // _BUFFERS
        groups: list[list[int]] = []
        used = room
        for k in range(len(self.manifest.shards)) if order is None else order:
            size = self.manifest.shards[k].room
            if used + size > room:
                groups.append([])
                used = 0
            groups[-1].append(k)
            used += size
        return groups

    @property
    def fits(self) -> bool:
        """Whether all shards may be in memory at once."""
        return len(self.buffers()) == 1

    def read(self) -> ChoiceData:
        """Read everything into memory: the same as ``ChoiceData.from_long``, if it fits."""
        shards = list(self.shards())
        if not shards:
            raise InputError("there is no choice set to read.")
        return join_shards(shards)

    def read_if_fits(self) -> ChoiceData:
        """Read everything into memory, or say what else to ask for where it does not fit."""
        if not self.fits:
            raise InputError(
                "this needs all choice sets in memory, for which the scanned table is too large: ask for each of "
                "data.parts(), or for data.sample(n_sets). evaluate, score and predict_proba take the whole table."
            )
        return self.read()

    # As ChoiceData does

    def with_positive_weight(self) -> ScannedData:
        """Return the sets with a weight above 0."""
        return self if self.schema.weight is None else replace(self, filters=(*self.filters, Counted()))

    def require_chosen(self, purpose: str) -> None:
        """Say that ``purpose`` needs the choices, where they are not known."""
        if self.schema.chosen is None:
            raise InputError(f"{purpose} needs the choices: scan the table with chosen=<column>.")

    def split(
        self, parts: Sequence[float] = (0.8, 0.1, 0.1), *, seed: int = 0, by: str | None = None
    ) -> tuple[ScannedData, ...]:
        """Cut into random parts of about the given shares, keeping the groups of ``by`` together.

        Every group draws its part by itself, so the shares are met as closely as chance allows, and nothing is copied.
        The arguments are those of :meth:`ChoiceData.split`; ``by`` is the name of a column, or None.
        """
        generator(seed)  # says what is wrong with it
        by = self._group_column(by)
        ends = [0.0, *np.cumsum(require_shares(parts))[:-1].tolist(), 1.0]
        salted = int(seed) + len(self.filters) * 2**40  # a part of a part draws anew
        found = tuple(
            replace(self, filters=(*self.filters, Drawn(salted, by, low, high))) for low, high in pairwise(ends)
        )
        if not all(map(len, found)):
            raise InputError(f"{len(self)} choice sets are too few for {len(found)} parts: one would be empty.")
        return found

    def groups(self, by: str | None = None) -> Ints:
        """(S,) a number for each set in the order of the table, equal for sets of one group; see :meth:`split`."""
        column = self._group_column(by)
        first, keys = [], []
        for k in range(len(self.manifest.shards)):
            shard = self._without_contents(k)
            mask = self._mask(shard)
            first.append(shard.first[mask])
            keys.append(shard.keys_by(column)[mask])
        return number_groups(np.concatenate(keys)[np.argsort(np.concatenate(first), kind="stable")])

    def _group_column(self, by: str | None) -> str | None:
        """Return the column whose groups stay together; None where each set is a group of its own."""
        by = self.schema.person if by is None else by
        if by is None or by == self.schema.choice_set:
            return None
        if by in self.schema.contents:
            raise SchemaError(
                f"column {by!r} is of kind {self.schema.contents[by]}: only numbers and categories can group the "
                f"choice sets of a scanned table."
            )
        if by not in (*self.schema.individual, *self.schema.kept_columns):
            next(iter(self.shards())).keys_by(by)
        return by

    def sample(self, n_sets: int, seed: int = 0) -> ChoiceData:
        """Draw so many sets at random, or all where there are fewer, into memory."""
        generator(seed)
        if isinstance(n_sets, bool) or not isinstance(n_sets, int) or n_sets < 1:
            raise InputError(f"the number of sets must be a whole number of at least 1, got {n_sets!r}.")
        least = np.empty(0)
        for shard in self.shards():
            least = np.sort(np.concatenate([least, uniform_draws(shard.keys, seed)]))[:n_sets]
        below = [shard.subset(uniform_draws(shard.keys, seed) <= least[-1]) for shard in self.shards()]
        return join_shards([shard for shard in below if len(shard.data)])

    def concat(self, other: ScannedData) -> ScannedData:
        """Return the whole that two parts of one split make up."""
        ours, theirs = self.filters, other.filters
        same = isinstance(other, ScannedData) and other.folder == self.folder and ours[:-1] == theirs[:-1]
        if same and ours and isinstance(a := ours[-1], Drawn) and isinstance(b := theirs[-1], Drawn):
            first, second = sorted((a, b), key=lambda part: part.low)
            if (a.seed, a.by) == (b.seed, b.by) and first.high == second.low:
                return replace(self, filters=(*ours[:-1], replace(first, high=second.high)))
        raise InputError("only neighbouring parts of one split of a scanned table can be joined.")

    def chunks(self) -> Iterator[Shard]:
        """Open one shard after the other, as :meth:`shards` does; a thread opens the next while one is in use."""
        return read_ahead(self.shards())

    def by_row(self, values: Iterable[tuple[Ints, ArrayLike]]) -> NDArray[np.float64]:
        """Put values in the order of the table's rows, from the rows of the table of each shard and their values."""
        out, table_rows, done = np.empty(self.n_rows), np.empty(self.n_rows if self.filters else 0, np.int64), 0
        for rows, of_shard in values:
            if self.filters:  # rows of others lie between: they are sorted out at the end
                out[done : done + len(rows)], table_rows[done : done + len(rows)] = of_shard, rows
                done += len(rows)
            else:
                out[rows] = of_shard
        return out[np.argsort(table_rows)] if self.filters else out

    def fingerprint(self) -> str:
        """Return a SHA-256 of the table, of the part taken and of the memory, which decides on the order of batches."""
        return digest("\n".join([self.manifest.fingerprint, str(self.memory), *map(repr, self.filters)]).encode())

    def describe(self) -> dict[str, Any]:
        """Return what a fitted model keeps of the table, from a sample; see :meth:`ChoiceData.describe`."""
        return self.sample(_DESCRIBED).describe()


def _on_shards(
    data: ScannedData, function: Callable[[ChoiceData], U], which: range
) -> tuple[list[U], dict[str, FileState]]:
    """Call a function for what each of some shards has of a part of the table, if anything; all of them are whole."""
    found = [function(shard.data) for shard in data.shards(which)]
    return found, {name: data.verified.seen[name] for name in (data.manifest.shards[k].name for k in which)}


# -- Encoder cache -----------------------------------------------------------------------------------------------------
# Encoders learnt from a scanned table are kept beside its shards: resumed runs, second runs and the workers of a group
# begin to train without a look at all shards. A file is named after the part of the table and the way it was learnt,
# and goes with the shards when the table is converted anew. One that cannot be written or read is learnt again.


def learn_or_load_encoder(data: ScannedData, *, bend: bool = False, labels: bool = False) -> Encoder:
    """Learn an encoder, or take the one that was learnt before; see :meth:`Encoder.learn`."""
    parts = [repr(part) for part in data.filters]
    way = json.dumps([package_version("pcmcnet"), data.manifest.fingerprint, parts, bend, labels])
    place = data.folder / f"encoder-{digest(way.encode())[:16]}.json"
    # none, or a damaged one, is learnt
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, ArtifactError):
        saved = parse_json(place.read_bytes())
        if saved["sha256"] == digest(saved["encoder"].encode()):
            return Encoder.from_dict(parse_json(saved["encoder"]))
    with data.workers:
        encoder = Encoder.learn(data, bend=bend, labels=labels)
    text = json.dumps(encoder.to_dict())
    with suppress(ArtifactError):  # there is no room, or no right to write: whoever is next learns it again
        write_bytes(place, json.dumps({"encoder": text, "sha256": digest(text.encode())}).encode())
    return encoder
