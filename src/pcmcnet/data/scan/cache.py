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
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.schema import Schema
from pcmcnet.errors import ArtifactError, InputError
from pcmcnet.storage.files import json_bytes, parse_json, write_bytes
from pcmcnet.storage.lock import Hold, remove_unheld

VERSION = 2
MANIFEST = "manifest.json"
_END = 2**16  # bytes of both ends of a source that are hashed
_MEANWHILE = (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY)  # what another process that makes the same entry may cause
_TRIES = 5  # to put an entry in its place
_active: set[str] = set()  # what this process is making
State = tuple[int, ...]  # of a file
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
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


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
    return {"file": name, "bytes": about.st_size, "changed": about.st_mtime_ns, "ends": _digest(ends)}


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a table read by some roles, in the folder of a cache."""

    cache: Path
    key: str
    identity: dict[str, Any]

    @classmethod
    def of(cls, cache: Path, table: Path, schema: Schema, files: Sequence[Path]) -> Entries:
        """Name the entries of a table that lies in these files."""
        name = json.dumps([str(table.resolve()), schema.to_dict()], sort_keys=True)
        return cls(cache, _digest(name.encode())[:16], identity_of(files, table, schema))

    def place(self, memory: int) -> Path:
        """Return where an entry for this much memory goes."""
        return self.cache / f"{self.key}-{_digest(json.dumps([self.identity, memory]).encode())[:8]}"

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
                remove_unheld(entry / MANIFEST)


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
def making(entry: Path) -> Iterator[Path]:
    """Yield a folder to make an entry in; it takes the entry's place only if the block succeeds."""
    beside = entry.with_name(f".{socket.gethostname()}.{os.getpid()}.{entry.name}-{threading.get_ident()}")
    _active.add(beside.name)
    try:
        _remove_unfinished(entry.parent)
        beside.mkdir(parents=True)
        yield beside
        for again in reversed(range(_TRIES)):
            if _is_same(entry, beside):
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


def _is_same(entry: Path, made: Path) -> bool:
    """Tell whether an entry is whole and what was just made."""
    found = Manifest.read(made)
    return found is not None and whole(entry, found.identity, found.memory) == found


def _remove_unfinished(cache: Path) -> None:
    """Remove what processes of this machine that are no more have left."""
    for folder in cache.glob(".*") if cache.is_dir() else ():
        found = _UNFINISHED.match(folder.name)
        ours = found and found["host"] == socket.gethostname() and folder.name not in _active
        if found and ours and not _is_running(int(found["process"])):
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(process: int) -> bool:
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def describe_shard(path: Path, loaded: int = 0) -> ShardFile:
    """Take down what a shard's file is like."""
    return ShardFile(path.name, path.stat().st_size, hash_file(path), loaded)


def state_of(path: Path) -> State:
    """Take down what changes with a file's content."""
    about = path.stat()
    return about.st_ino, about.st_size, about.st_mtime_ns


def hash_file(path: Path) -> str:
    """Return a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Checked:
    """Shards whose content was found to be what the manifest says; each is looked through once, until it changes.

    ``seen`` are those that were just made, which their hashes were taken of.
    """

    def __init__(self, entry: Path, seen: Mapping[str, State] | None = None) -> None:
        self.entry = entry
        self.hold = Hold(entry / MANIFEST)
        self.seen: dict[str, State] = dict(seen or {})

    def path(self, shard: ShardFile) -> Path:
        """Return the path of a shard that is whole."""
        path = self.entry / shard.name
        state: State = ()
        with suppress(OSError):
            state = state_of(path)
            if self.seen.get(shard.name) != state and hash_file(path) == shard.sha256:
                self.seen[shard.name] = state
        if not state or self.seen.get(shard.name) != state:
            raise ArtifactError(
                f"{path} is damaged, or was removed meanwhile: delete {self.entry} and scan the table again."
            )
        return path


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
