"""The folder of a scanned table: shards, and a manifest that says what they were made from.

An entry of the cache is named after the table's place and its roles, then after its sources as they are now (sizes,
times of change, hashes of both ends of each file) and the memory it was made for. So a scan of a changed table, or for
less memory, makes another entry beside it, and who reads the first goes on undisturbed. Entries of former sources are
removed once nobody holds them. An entry is made under another name and renamed once it is complete, so an interrupted
conversion leaves nothing that looks finished; what it leaves is removed by the next one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.arrays import Ints
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns.arrays import MISSING_CODE, Categorical, Column, Columns, Contents, Numeric, array_to_numpy
from pcmcnet.data.columns.distinct import Keys, keys_of, mix_bits, text_keys
from pcmcnet.data.files.read_files import one_line
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.schema import Schema
from pcmcnet.errors import ArtifactError, InputError
from pcmcnet.storage import SharedLock, is_alive, json_bytes, parse_json, remove_if_unlocked, write_bytes

# -- Shards ------------------------------------------------------------------------------------------------------------
# Choice sets <-> an Arrow file that is mapped into memory: one row per set, its alternatives as a list.
#
#     set       id, key (its hash), first (of its rows in the table), chosen, weight, individual and kept columns
#     shown     list of its alternatives: row (in the table), place (among the shard's rows), label, features
#     hidden    list of those that are not available: row, place
#
# Columns are known by their places in the schema, so that they may have any names. Categories and contents are
# dictionaries: each distinct one is there once. Numbers are read where they lie, and only what is asked for is read.


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Some choice sets of a larger table, in the order of their first rows."""

    data: ChoiceData  # its rows are numbered from 0 in the table's order
    keys: Keys  # (S,)
    first: Ints  # (S,) row of the table where each set begins
    shown_rows: Ints  # (N,) row of the table of each alternative
    hidden_rows: Ints  # likewise of those that are not available

    @property
    def table_rows(self) -> Ints:
        """(n_rows,) the table's row of each of this part's rows."""
        rows = np.empty(self.data.n_rows, np.int64)
        rows[self.data.rows], rows[self.data.hidden_rows] = self.shown_rows, self.hidden_rows
        return rows

    def subset(self, mask: NDArray[np.bool_]) -> Shard:
        """Keep some of the sets."""
        if mask.all():
            return self
        return Shard(
            data=self.data.subset(mask),
            keys=self.keys[mask],
            first=self.first[mask],
            shown_rows=self.shown_rows[np.repeat(mask, self.data.sizes)],
            hidden_rows=self.hidden_rows[mask[self.data.hidden_sets]],
        )

    def keys_by(self, column: str | None) -> Keys:
        """Return a key for each set, equal for equal values of an individual or kept column."""
        if column is None:
            return self.keys
        self.data.groups(column)  # says what is wrong with the name
        found = {**self.data.individual, **self.data.keep}[column]
        if isinstance(found, Categorical):
            return text_keys(list(found.categories))[found.codes]
        assert isinstance(found, Numeric)  # ScannedData.split refuses others
        return mix_bits((found.values.astype(np.float64) + 0.0).view(np.uint64))


def write_shard(path: Path, data: ChoiceData, numbers: Ints) -> None:
    """Write the sets of a part of a table whose rows have these numbers there."""
    # 1. The alternatives, set after set: available ones, then the others.
    shown: dict[str, Any] = {"row": pa.array(numbers[data.rows]), "place": pa.array(data.rows)}
    if data.labels is not None:
        shown["label"] = _to_arrow(data.labels)
    shown |= {f"feature {k}": _to_arrow(column) for k, column in enumerate(data.features.values())}
    order = np.argsort(data.hidden_sets, kind="stable")
    hidden_rows = data.hidden_rows[order]
    hidden = {"row": pa.array(numbers[hidden_rows]), "place": pa.array(hidden_rows)}
    ends = np.cumsum(np.bincount(data.hidden_sets, minlength=len(data)))
    # 2. The sets, each with the row of the table where it begins.
    ids = pa.array(data.set_ids)
    first = numbers[data.rows[data.offsets[:-1]]]  # rows of a set are in table order
    np.minimum.at(first, data.hidden_sets, numbers[data.hidden_rows])
    sets: dict[str, Any] = {"id": ids, "key": pa.array(keys_of(ids)), "first": pa.array(first)}
    if data.chosen is not None:
        sets["chosen"] = pa.array(data.chosen)
    sets["weight"] = pa.array(data.weights)
    for role, columns in (("individual", data.individual), ("keep", data.keep)):
        sets |= {f"{role} {k}": _to_arrow(column) for k, column in enumerate(columns.values())}
    sets["shown"] = _lists(data.offsets, shown)
    sets["hidden"] = _lists(np.concatenate([[0], ends]), hidden)
    batch = pa.RecordBatch.from_arrays(list(sets.values()), list(sets))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def read_shard(path: Path, schema: Schema, *, contents: bool = True) -> Shard:
    """Map a shard into memory; texts, lists and pictures are read, unless the contents are to be left out."""
    try:
        with pa.memory_map(str(path)) as file:
            batch = pa.ipc.open_file(file).get_batch(0)
        return _shard(batch, schema, contents=contents)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise ArtifactError(
            f"{path} cannot be read ({one_line(error)}): delete the cache {path.parent} and scan again."
        ) from error


def _shard(batch: pa.RecordBatch, schema: Schema, *, contents: bool) -> Shard:
    kinds: dict[str, str | None] = dict(schema.contents) if contents else dict.fromkeys(schema.contents)
    shown, hidden = batch.column("shown"), batch.column("hidden")
    fields, away = (
        {field.name: lists.values.field(field.name) for field in lists.values.type} for lists in (shown, hidden)
    )

    def of_sets(role: str, names: tuple[str, ...]) -> Columns:
        return _columns({name: batch.column(f"{role} {k}") for k, name in enumerate(names)}, kinds)

    data = ChoiceData(
        schema=schema,
        offsets=_numbers(shown.offsets).astype(np.int64),
        set_ids=array_to_numpy(batch.column("id")),
        chosen=_numbers(batch.column("chosen")) if "chosen" in batch.schema.names else None,
        weights=_numbers(batch.column("weight")),
        features=_columns({name: fields[f"feature {k}"] for k, name in enumerate(schema.features)}, kinds),
        labels=_categorical(fields["label"]) if "label" in fields else None,
        individual=of_sets("individual", schema.individual),
        keep=of_sets("keep", schema.kept_columns),
        rows=_numbers(fields["place"]),
        hidden_rows=_numbers(away["place"]),
        hidden_sets=np.repeat(np.arange(batch.num_rows), np.diff(_numbers(hidden.offsets))),
    )
    return Shard(
        data=data,
        keys=_numbers(batch.column("key")),
        first=_numbers(batch.column("first")),
        shown_rows=_numbers(fields["row"]),
        hidden_rows=_numbers(away["row"]),
    )


def join_shards(shards: list[Shard]) -> ChoiceData:
    """Put all sets of some shards into one table, with sets and rows in the order of the larger one."""
    parts = [shard.data for shard in shards]
    while len(parts) > 1:
        pairs = [parts[k : k + 2] for k in range(0, len(parts), 2)]
        parts = [pair[0].concat(pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
    whole = parts[0]
    rank = np.empty(whole.n_rows, np.int64)
    rank[np.argsort(np.concatenate([shard.table_rows for shard in shards]))] = np.arange(whole.n_rows)
    whole = replace(whole, rows=rank[whole.rows], hidden_rows=rank[whole.hidden_rows])
    return whole.subset(np.argsort(np.concatenate([shard.first for shard in shards])))


def _lists(offsets: Ints, fields: dict[str, Any]) -> pa.ListArray:
    values = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


def _columns(arrays: dict[str, pa.Array], kinds: dict[str, str | None]) -> Columns:
    """Read columns; those whose kind is None are left out."""
    columns: dict[str, Column] = {}
    for name, values in arrays.items():
        if (kind := kinds.get(name)) is not None:
            codes = array_to_numpy(values.indices.fill_null(MISSING_CODE)).astype(np.int32)
            columns[name] = Contents(codes, KINDS[kind].from_arrow(values.dictionary), kind)
        elif name not in kinds:
            columns[name] = _categorical(values) if pa.types.is_dictionary(values.type) else Numeric(_numbers(values))
    return columns


def _to_arrow(column: Column) -> pa.Array:
    if isinstance(column, Numeric):
        return pa.array(column.values)
    if isinstance(column, Contents):
        used = column.compact()
        codes = pa.array(used.codes, mask=used.codes == MISSING_CODE)
        return pa.DictionaryArray.from_arrays(codes, KINDS[used.kind].to_arrow(used.table))
    counts = np.bincount(column.codes, minlength=len(column.categories))  # some may not be used here
    words = pa.array([column.categories[k] for k in np.flatnonzero(counts)], pa.string())
    codes = (np.cumsum(counts > 0) - 1).astype(np.int32)[column.codes]
    return pa.DictionaryArray.from_arrays(pa.array(codes), words)


def _categorical(values: pa.DictionaryArray) -> Categorical:
    return Categorical(_numbers(values.indices), tuple(values.dictionary.to_pylist()))


def _numbers(values: pa.Array) -> NDArray[Any]:
    """Numbers where they lie; there are no gaps."""
    return np.from_dlpack(values)


# -- Cache -------------------------------------------------------------------------------------------------------------

VERSION = 2
MANIFEST = "manifest.json"
_END = 2**16  # bytes of both ends of a source that are hashed
_MEANWHILE = (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY)  # what another process that makes the same entry may cause
_TRIES = 5  # to put an entry in its place
_active: set[str] = set()  # what this process is making
FileState = tuple[int, ...]  # of a file
_UNFINISHED = re.compile(r"\.(?P<host>.+)\.(?P<process>\d+)\.[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A shard's file with what tells whether it is whole."""

    name: str
    bytes: int
    sha256: str
    loaded: int = 0  # bytes of its contents, once they are prepared for a network

    @property
    def room(self) -> int:
        """Bytes that it takes in memory, about."""
        return self.bytes + self.loaded


@dataclass(frozen=True, slots=True)
class Tally:
    """Numbers of sets, alternatives, rows and ordered pairs; the largest set."""

    sets: int = 0
    alternatives: int = 0
    rows: int = 0
    pairs: int = 0
    largest: int = 0

    @classmethod
    def of(cls, data: ChoiceData) -> Tally:
        """Count choice sets."""
        sizes = data.sizes
        return cls(len(sizes), int(sizes.sum()), data.n_rows, int((sizes**2).sum()), int(sizes.max(initial=0)))

    def __add__(self, other: Tally) -> Tally:
        """Put two parts together."""
        sums = [a + b for a, b in zip(astuple(self), astuple(other), strict=True)]
        return Tally(*sums[:-1], largest=max(self.largest, other.largest))  # type: ignore[misc]  # the rest are four


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What a cache holds, and what it was made from."""

    identity: dict[str, Any]  # version, sources and roles
    memory: int  # that the conversion was allowed
    schema: dict[str, Any]  # the roles, with all kinds resolved
    tally: Tally
    shards: tuple[ShardFile, ...]

    def write(self, folder: Path) -> None:
        """Write to the folder of the shards."""
        write_bytes(folder / MANIFEST, json_bytes(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """Read from such a folder; None where there is none that can be used."""
        try:
            entries = parse_json((folder / MANIFEST).read_bytes())
            shards = tuple(ShardFile(**shard) for shard in entries.pop("shards"))
            return cls(**(entries | {"tally": Tally(**entries["tally"])}), shards=shards)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the roles and of all shards."""
        roles = {role: value for role, value in self.schema.items() if role != "columns"}  # not what they are called
        parts = [json.dumps(roles, sort_keys=True), *(shard.sha256 for shard in self.shards)]
        return digest("\n".join(parts).encode())


def identity_of(files: Sequence[Path], root: Path, schema: Schema) -> dict[str, Any]:
    """Say what a conversion depends on."""
    return {"version": VERSION, "sources": sources_of(files, root), "roles": schema.to_dict()}


def sources_of(files: Sequence[Path], root: Path) -> list[dict[str, Any]]:
    """Say by what it is known that files have changed."""
    return [_source(file, root) for file in files]


def _source(file: Path, root: Path) -> dict[str, Any]:
    about = file.stat()
    with file.open("rb") as content:
        ends = content.read(_END)
        content.seek(max(about.st_size - _END, 0))
        ends += content.read(_END)
    name = file.relative_to(root).as_posix() if file != root else file.name
    return {"file": name, "bytes": about.st_size, "changed": about.st_mtime_ns, "ends": digest(ends)}


@dataclass(frozen=True, slots=True)
class CacheEntries:
    """The entries of a table read by some roles, in the folder of a cache."""

    cache: Path
    key: str
    identity: dict[str, Any]

    @classmethod
    def of(cls, cache: Path, table: Path, schema: Schema, files: Sequence[Path]) -> CacheEntries:
        """Name the entries of a table that lies in these files."""
        name = json.dumps([str(table.resolve()), schema.to_dict()], sort_keys=True)
        return cls(cache, digest(name.encode())[:16], identity_of(files, table, schema))

    def place(self, memory: int) -> Path:
        """Return where an entry for this much memory goes."""
        return self.cache / f"{self.key}-{digest(json.dumps([self.identity, memory]).encode())[:8]}"

    def find(self, memory: int) -> tuple[Path, Manifest] | None:
        """Return the entry for the most memory of those that need no more than this, if there is one."""
        there = sorted(self.cache.glob("[!.]*-*")) if self.cache.is_dir() else ()
        found = [(entry, manifest) for entry in there if (manifest := self._fitting(entry, memory))]
        return max(found, key=lambda pair: pair[1].memory, default=None)

    def _fitting(self, entry: Path, memory: int) -> Manifest | None:
        """Return the manifest of an entry by these roles, or by roles that the table has made these: a model's."""
        if entry.name.startswith(f"{self.key}-"):
            return whole(entry, self.identity, memory)
        made = Manifest.read(entry)
        if made is None or made.schema != json.loads(json.dumps(self.identity["roles"])):
            return None
        return whole(entry, {**self.identity, "roles": made.identity.get("roles")}, memory)

    def remove_former(self) -> None:
        """Remove entries of other sources that nobody holds."""
        for entry in self.cache.glob(f"{self.key}*"):
            manifest = Manifest.read(entry)
            if manifest is None or manifest.identity != json.loads(json.dumps(self.identity)):
                remove_if_unlocked(entry / MANIFEST)


def whole(entry: Path, identity: dict[str, Any], memory: int) -> Manifest | None:
    """Return the manifest of an entry that is of these sources, for no more memory, and complete."""
    found = Manifest.read(entry)
    if found is None or found.identity != json.loads(json.dumps(identity)) or found.memory > memory:
        return None
    for shard in found.shards:
        path = entry / shard.name
        if not path.is_file() or path.stat().st_size != shard.bytes:
            return None
    return found


@contextmanager
def new_entry(entry: Path) -> Iterator[Path]:
    """Yield a folder to make an entry in; it takes the entry's place only if the block succeeds."""
    beside = entry.with_name(f".{socket.gethostname()}.{os.getpid()}.{entry.name}-{threading.get_ident()}")
    _active.add(beside.name)
    try:
        _remove_unfinished(entry.parent)
        beside.mkdir(parents=True)
        yield beside
        for again in reversed(range(_TRIES)):
            made = Manifest.read(beside)
            if made is not None and whole(entry, made.identity, made.memory) == made:
                return  # another process has made it meanwhile, and may be reading it
            try:
                _put_in_place(beside, entry)
                return
            except OSError as error:
                if not again or error.errno not in _MEANWHILE:
                    raise
    except OSError as error:
        raise InputError(
            f"the cache {entry.parent} cannot be written: {error.strerror or error}. "
            f"Make room, or choose another folder by cache."
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        _active.discard(beside.name)


def _put_in_place(made: Path, entry: Path) -> None:
    old = entry.with_name(f"{made.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if entry.exists():
        entry.rename(old)
    made.rename(entry)
    shutil.rmtree(old, ignore_errors=True)


def _remove_unfinished(cache: Path) -> None:
    """Remove what processes of this machine that are no more have left."""
    for folder in cache.glob(".*") if cache.is_dir() else ():
        found = _UNFINISHED.match(folder.name)
        if found is None or found["host"] != socket.gethostname() or folder.name in _active:
            continue
        process = int(found["process"])
        if process == os.getpid() or not is_alive(process):
            shutil.rmtree(folder, ignore_errors=True)


def describe_shard(path: Path, loaded: int = 0) -> ShardFile:
    """Take down what a shard's file is like."""
    return ShardFile(path.name, path.stat().st_size, hash_file(path), loaded)


def file_state(path: Path) -> FileState:
    """Take down what changes with a file's content."""
    about = path.stat()
    return about.st_ino, about.st_size, about.st_mtime_ns


def digest(content: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()


def hash_file(path: Path) -> str:
    """Return a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class VerifiedShards:
    """Shards whose content was found to be what the manifest says; each is looked through once, until it changes.

    ``seen`` are those that were just made, which their hashes were taken of.
    """

    def __init__(self, entry: Path, seen: Mapping[str, FileState] | None = None) -> None:
        self.entry = entry
        self.hold = SharedLock(entry / MANIFEST)
        self.seen: dict[str, FileState] = dict(seen or {})

    def path(self, shard: ShardFile) -> Path:
        """Return the path of a shard that is whole."""
        path = self.entry / shard.name
        state: FileState = ()
        with suppress(OSError):
            state = file_state(path)
            if self.seen.get(shard.name) != state and hash_file(path) == shard.sha256:
                self.seen[shard.name] = state
        if not state or self.seen.get(shard.name) != state:
            raise ArtifactError(
                f"{path} is damaged, or was removed meanwhile: delete {self.entry} and scan the table again."
            )
        return path
