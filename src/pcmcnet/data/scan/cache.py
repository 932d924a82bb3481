"""Cache of a scanned table: a folder with shards, and a manifest that describes them and their sources.

The name of a cache entry depends on the path and roles of the table, on the state of its source files, and on the
memory limit. The state of a file consists of its size, its modification time, and a hash of its beginning and end. A
scan of a changed table, or with less memory, therefore creates a new entry, and readers of the old entry can continue.
Entries of outdated sources are removed when no reader uses them. An entry is created under a temporary name and renamed
when it is complete, so an interrupted conversion leaves no entry that looks complete. The next conversion removes the
temporary folder of an interrupted conversion.
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
# Choice sets <-> a memory-mapped Arrow file with one row per set and its alternatives as a list.
#
#     set       id, key (hash of the id), first (row of the table), chosen, weight, individual and kept columns
#     shown     list of available alternatives: row (of the table), place (row of the shard), label, features
#     hidden    list of unavailable alternatives: row, place
#
# Columns are stored by their position in the schema, so their names may be arbitrary. Categories and contents are
# dictionaries of distinct values. Numbers are read without a copy, and only the columns in use are read from disk.


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Choice sets from one shard file of a scanned table, in the order of their first rows."""

    data: ChoiceData  # its rows are numbered from 0, in the order of the table
    keys: Keys  # (S,) hashes of the set ids
    first: Ints  # (S,) first row of each set in the table
    shown_rows: Ints  # (N,) row of each available alternative in the table
    hidden_rows: Ints  # row of each unavailable alternative in the table

    @property
    def table_rows(self) -> Ints:
        """Row number in the table of each row of the shard, (n_rows,)."""
        rows = np.empty(self.data.n_rows, np.int64)
        rows[self.data.rows], rows[self.data.hidden_rows] = self.shown_rows, self.hidden_rows
        return rows

    def subset(self, mask: NDArray[np.bool_]) -> Shard:
        """Return the shard with only the selected sets."""
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
        """Return a key for each set. Sets with equal values of an individual-level or kept column have equal keys."""
        if column is None:
            return self.keys
        self.data.groups(column)  # raises if there is no such column
        values = {**self.data.individual, **self.data.keep}[column]
        if isinstance(values, Categorical):
            return text_keys(list(values.categories))[values.codes]
        assert isinstance(values, Numeric)  # ScannedData.split accepts no other columns
        return mix_bits((values.values.astype(np.float64) + 0.0).view(np.uint64))


def write_shard(path: Path, data: ChoiceData, numbers: Ints) -> None:
    """Write choice sets as a shard. ``numbers`` are the row numbers of their alternatives in the whole table."""
    # 1. The alternatives of each set: available ones, then unavailable ones.
    shown: dict[str, Any] = {"row": pa.array(numbers[data.rows]), "place": pa.array(data.rows)}
    if data.labels is not None:
        shown["label"] = _to_arrow(data.labels)
    shown |= {f"feature {k}": _to_arrow(column) for k, column in enumerate(data.features.values())}
    order = np.argsort(data.hidden_sets, kind="stable")
    hidden_rows = data.hidden_rows[order]
    hidden = {"row": pa.array(numbers[hidden_rows]), "place": pa.array(hidden_rows)}
    ends = np.cumsum(np.bincount(data.hidden_sets, minlength=len(data)))
    # 2. The sets, each with its first row in the table.
    ids = pa.array(data.set_ids)
    first = numbers[data.rows[data.offsets[:-1]]]  # the rows of a set are in the order of the table
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
    """Map a shard into memory. If ``contents`` is True, content columns such as texts or images are also read."""
    try:
        with pa.memory_map(str(path)) as file:
            batch = pa.ipc.open_file(file).get_batch(0)
        return _to_shard(batch, schema, contents=contents)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise ArtifactError(
            f"{path} cannot be read ({one_line(error)}): delete the cache {path.parent} and scan again."
        ) from error


def _to_shard(batch: pa.RecordBatch, schema: Schema, *, contents: bool) -> Shard:
    kinds: dict[str, str | None] = dict(schema.contents) if contents else dict.fromkeys(schema.contents)
    shown, hidden = batch.column("shown"), batch.column("hidden")
    shown_fields, hidden_fields = (
        {field.name: lists.values.field(field.name) for field in lists.values.type} for lists in (shown, hidden)
    )

    def set_columns(role: str, names: tuple[str, ...]) -> Columns:
        return _columns({name: batch.column(f"{role} {k}") for k, name in enumerate(names)}, kinds)

    data = ChoiceData(
        schema=schema,
        offsets=_numbers(shown.offsets).astype(np.int64),
        set_ids=array_to_numpy(batch.column("id")),
        chosen=_numbers(batch.column("chosen")) if "chosen" in batch.schema.names else None,
        weights=_numbers(batch.column("weight")),
        features=_columns({name: shown_fields[f"feature {k}"] for k, name in enumerate(schema.features)}, kinds),
        labels=_categorical(shown_fields["label"]) if "label" in shown_fields else None,
        individual=set_columns("individual", schema.individual),
        keep=set_columns("keep", schema.kept_columns),
        rows=_numbers(shown_fields["place"]),
        hidden_rows=_numbers(hidden_fields["place"]),
        hidden_sets=np.repeat(np.arange(batch.num_rows), np.diff(_numbers(hidden.offsets))),
    )
    return Shard(
        data=data,
        keys=_numbers(batch.column("key")),
        first=_numbers(batch.column("first")),
        shown_rows=_numbers(shown_fields["row"]),
        hidden_rows=_numbers(hidden_fields["row"]),
    )


def join_shards(shards: list[Shard]) -> ChoiceData:
    """Return the choice sets of the given shards in memory, with sets and rows in the order of the table."""
    # 1. Concatenate in pairs, so that each set is copied log2(n) times instead of n times.
    parts = [shard.data for shard in shards]
    while len(parts) > 1:
        pairs = [parts[k : k + 2] for k in range(0, len(parts), 2)]
        parts = [pair[0].concat(pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
    joined = parts[0]
    # 2. Number the rows, and sort the sets, in the order of the table.
    rank = np.empty(joined.n_rows, np.int64)
    rank[np.argsort(np.concatenate([shard.table_rows for shard in shards]))] = np.arange(joined.n_rows)
    joined = replace(joined, rows=rank[joined.rows], hidden_rows=rank[joined.hidden_rows])
    return joined.subset(np.argsort(np.concatenate([shard.first for shard in shards])))


def _lists(offsets: Ints, fields: dict[str, Any]) -> pa.ListArray:
    values = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


def _columns(arrays: dict[str, pa.Array], kinds: dict[str, str | None]) -> Columns:
    """Read all columns except those whose kind is None."""
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
    counts = np.bincount(column.codes, minlength=len(column.categories))  # a shard may not use all categories
    words = pa.array([column.categories[k] for k in np.flatnonzero(counts)], pa.string())
    codes = (np.cumsum(counts > 0) - 1).astype(np.int32)[column.codes]
    return pa.DictionaryArray.from_arrays(pa.array(codes), words)


def _categorical(values: pa.DictionaryArray) -> Categorical:
    return Categorical(_numbers(values.indices), tuple(values.dictionary.to_pylist()))


def _numbers(values: pa.Array) -> NDArray[Any]:
    """Return the numbers of an Arrow array that has no missing values, without a copy."""
    return np.from_dlpack(values)


# -- Cache -------------------------------------------------------------------------------------------------------------

VERSION = 2
MANIFEST = "manifest.json"
_HASHED_BYTES = 2**16  # at each end of a source file
_RACE_ERRORS = (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY)  # if another process creates the same entry
_RENAME_ATTEMPTS = 5  # to move an entry into place
_active: set[str] = set()  # temporary folders of this process
FileState = tuple[int, ...]  # inode, size and modification time of a file
_UNFINISHED = re.compile(r"\.(?P<host>.+)\.(?P<process>\d+)\.[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class ShardFile:
    """File of a shard, with its size and hash to detect damage."""

    name: str
    bytes: int
    sha256: str
    loaded: int = 0  # bytes of its contents after they are prepared for a network

    @property
    def memory_bytes(self) -> int:
        """Approximate size of the shard in memory, in bytes."""
        return self.bytes + self.loaded


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of choice sets, alternatives, rows and ordered pairs, and the size of the largest set."""

    sets: int = 0
    alternatives: int = 0
    rows: int = 0
    pairs: int = 0
    largest: int = 0

    @classmethod
    def of(cls, data: ChoiceData) -> Tally:
        """Count the sets, alternatives, rows and pairs of choice data."""
        sizes = data.sizes
        return cls(len(sizes), int(sizes.sum()), data.n_rows, int((sizes**2).sum()), int(sizes.max(initial=0)))

    def __add__(self, other: Tally) -> Tally:
        """Return the combined counts of two tables."""
        sums = [a + b for a, b in zip(astuple(self), astuple(other), strict=True)]
        return Tally(*sums[:-1], largest=max(self.largest, other.largest))  # type: ignore[misc]  # four other fields


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """Content and sources of a cache entry."""

    identity: dict[str, Any]  # version, sources and roles
    memory: int  # bytes that the conversion could use
    schema: dict[str, Any]  # the roles, with resolved kinds
    tally: Tally
    shards: tuple[ShardFile, ...]

    def write(self, folder: Path) -> None:
        """Write the manifest to the folder that holds the shards."""
        write_bytes(folder / MANIFEST, json_bytes(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """Read the manifest of a folder, or return None if there is no valid manifest."""
        try:
            entries = parse_json((folder / MANIFEST).read_bytes())
            shards = tuple(ShardFile(**shard) for shard in entries.pop("shards"))
            return cls(**(entries | {"tally": Tally(**entries["tally"])}), shards=shards)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the roles and of all shards."""
        roles = {role: value for role, value in self.schema.items() if role != "columns"}  # column names do not matter
        parts = [json.dumps(roles, sort_keys=True), *(shard.sha256 for shard in self.shards)]
        return digest("\n".join(parts).encode())


def sources_of(files: Sequence[Path], root: Path) -> list[dict[str, Any]]:
    """Return each file's name, size, modification time, and hash of its beginning and end, which reveal changes."""
    return [_source(file, root) for file in files]


def _source(file: Path, root: Path) -> dict[str, Any]:
    status = file.stat()
    with file.open("rb") as content:
        ends = content.read(_HASHED_BYTES)
        content.seek(max(status.st_size - _HASHED_BYTES, 0))
        ends += content.read(_HASHED_BYTES)
    name = file.relative_to(root).as_posix() if file != root else file.name
    return {"file": name, "bytes": status.st_size, "changed": status.st_mtime_ns, "ends": digest(ends)}


@dataclass(frozen=True, slots=True)
class CacheEntries:
    """The cache entries of a table, for given roles of its columns."""

    cache: Path
    key: str
    identity: dict[str, Any]

    @classmethod
    def of(cls, cache: Path, table: Path, schema: Schema, files: Sequence[Path]) -> CacheEntries:
        """Return the entries of a table that consists of ``files``."""
        name = json.dumps([str(table.resolve()), schema.to_dict()], sort_keys=True)
        identity = {"version": VERSION, "sources": sources_of(files, table), "roles": schema.to_dict()}
        return cls(cache, digest(name.encode())[:16], identity)

    def place(self, memory: int) -> Path:
        """Return the path of the entry for an amount of memory in bytes."""
        return self.cache / f"{self.key}-{digest(json.dumps([self.identity, memory]).encode())[:8]}"

    def find(self, memory: int) -> tuple[Path, Manifest] | None:
        """Return the usable entry with the largest memory limit up to ``memory``, or None if no entry is usable."""
        folders = sorted(self.cache.glob("[!.]*-*")) if self.cache.is_dir() else ()
        entries = [(entry, manifest) for entry in folders if (manifest := self._usable_manifest(entry, memory))]
        return max(entries, key=lambda pair: pair[1].memory, default=None)

    def _usable_manifest(self, entry: Path, memory: int) -> Manifest | None:
        """Return the manifest of an entry with the same roles, as declared or, for a fitted model, as resolved."""
        if entry.name.startswith(f"{self.key}-"):
            return complete_manifest(entry, self.identity, memory)
        manifest = Manifest.read(entry)
        if manifest is None or manifest.schema != json.loads(json.dumps(self.identity["roles"])):
            return None
        return complete_manifest(entry, {**self.identity, "roles": manifest.identity.get("roles")}, memory)

    def remove_former(self) -> None:
        """Remove entries of outdated sources, unless a reader uses them."""
        for entry in self.cache.glob(f"{self.key}*"):
            manifest = Manifest.read(entry)
            if manifest is None or manifest.identity != json.loads(json.dumps(self.identity)):
                remove_if_unlocked(entry / MANIFEST)


def complete_manifest(entry: Path, identity: dict[str, Any], memory: int) -> Manifest | None:
    """Return the manifest of a complete entry with the given identity and at most the given memory, or else None."""
    manifest = Manifest.read(entry)
    if manifest is None or manifest.identity != json.loads(json.dumps(identity)) or manifest.memory > memory:
        return None
    for shard in manifest.shards:
        path = entry / shard.name
        if not path.is_file() or path.stat().st_size != shard.bytes:
            return None
    return manifest


@contextmanager
def new_entry(entry: Path) -> Iterator[Path]:
    """Yield a temporary folder for a new entry. If the ``with`` block succeeds, the folder becomes the entry."""
    temporary = entry.with_name(f".{socket.gethostname()}.{os.getpid()}.{entry.name}-{threading.get_ident()}")
    _active.add(temporary.name)
    try:
        # 1. The caller writes the shards and the manifest.
        _remove_unfinished(entry.parent)
        temporary.mkdir(parents=True)
        yield temporary
        # 2. Rename the folder; another process may create, replace or remove the same entry at the same time.
        for remaining_attempts in reversed(range(_RENAME_ATTEMPTS)):
            manifest = Manifest.read(temporary)
            if manifest is not None and complete_manifest(entry, manifest.identity, manifest.memory) == manifest:
                return  # another process has created the same entry and may be reading it
            try:
                _replace_entry(temporary, entry)
                return
            except OSError as error:
                if not remaining_attempts or error.errno not in _RACE_ERRORS:
                    raise
    except OSError as error:
        raise InputError(
            f"the cache {entry.parent} cannot be written: {error.strerror or error}. "
            f"Free some space, or choose another folder with cache=."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        _active.discard(temporary.name)


def _replace_entry(new: Path, entry: Path) -> None:
    old = entry.with_name(f"{new.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if entry.exists():
        entry.rename(old)
    new.rename(entry)
    shutil.rmtree(old, ignore_errors=True)


def _remove_unfinished(cache: Path) -> None:
    """Remove the temporary folders of processes that have ended on this machine."""
    for folder in cache.glob(".*") if cache.is_dir() else ():
        match = _UNFINISHED.match(folder.name)
        if match is None or match["host"] != socket.gethostname() or folder.name in _active:
            continue
        process = int(match["process"])
        if process == os.getpid() or not is_alive(process):
            shutil.rmtree(folder, ignore_errors=True)


def describe_shard(path: Path, loaded: int = 0) -> ShardFile:
    """Return the name, size and hash of a shard file."""
    return ShardFile(path.name, path.stat().st_size, hash_file(path), loaded)


def file_state(path: Path) -> FileState:
    """Return the inode, size and modification time of a file, which reveal whether it has changed."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def digest(content: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class VerifiedShards:
    """The shards of an entry, each verified against its hash in the manifest before it is first read.

    A shard is verified again if its file changes. ``seen`` holds the file states of shards that this process has
    already verified or written. The entry is locked against removal as long as this object exists.
    """

    def __init__(self, entry: Path, seen: Mapping[str, FileState] | None = None) -> None:
        self.entry = entry
        self.lock = SharedLock(entry / MANIFEST)
        self.seen: dict[str, FileState] = dict(seen or {})

    def path(self, shard: ShardFile) -> Path:
        """Return the path of a shard, or raise ArtifactError if its file is damaged or missing."""
        path = self.entry / shard.name
        state: FileState = ()
        with suppress(OSError):
            state = file_state(path)
            if self.seen.get(shard.name) != state and hash_file(path) == shard.sha256:
                self.seen[shard.name] = state
        if not state or self.seen.get(shard.name) != state:
            raise ArtifactError(f"{path} is damaged or was removed: delete {self.entry} and scan the table again.")
        return path
