"""Encoders that are not trained: contents -> vectors, once for each distinct content, kept in memory and on disk.

    contents  --module or function-->  (U, W) numbers

Vectors are known again by a hash of the content and by what gave them: class, structure and weights of a module, or the
name of a function. What was asked for last stays in memory, so that a fit runs the encoder once for a content; with a
folder as ``cache``, so do all later fits and predictions of any process. A saved model also knows a function by what it
gives: see :mod:`pcmcnet.data.kinds.contents`.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import logging
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pcmcnet.checks import require_number
from pcmcnet.data.kinds import KINDS, ContentCode
from pcmcnet.errors import ConfigError

log = logging.getLogger("pcmcnet")

# -- Vector cache ------------------------------------------------------------------------------------------------------
# Vectors of contents on disk, by the hashes of the contents: one SQLite file for each encoder in a folder.
# SQLite writes a batch of vectors whole or not at all, whoever else reads and writes at the time. Each vector stands
# beside a checksum. One that does not fit it, and all of a file that is damaged, are as if they were not there: they
# are computed and written again. A folder that cannot be written costs time, never a result.

Vectors = Mapping[bytes, NDArray[np.float32]]

_ASKED = 500  # keys of one question
_PATIENCE = 60.0  # seconds to wait for another process that writes
_TABLE = "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB, checksum INTEGER) WITHOUT ROWID"


class VectorCache:
    """The vectors that one encoder gave."""

    def __init__(self, folder: Path, encoder: str) -> None:
        self.path = folder / f"{encoder}.sqlite"

    def find(self, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """Return the vectors that are there."""
        found: dict[bytes, NDArray[np.float32]] = {}
        if not self.path.exists():
            return found
        with self._trouble(), closing(self._opened()) as cache:
            for begin in range(0, len(keys), _ASKED):
                some = keys[begin : begin + _ASKED]
                marks = ", ".join("?" * len(some))
                rows = cache.execute(f"SELECT key, vector, checksum FROM vectors WHERE key IN ({marks})", some)
                found |= {key: np.frombuffer(vector, "<f4") for key, vector, sum_ in rows if _sum(key, vector) == sum_}
        return found

    def keep(self, vectors: Vectors) -> None:
        """Write vectors, all of them or none."""
        plain = {key: vector.astype("<f4").tobytes() for key, vector in vectors.items()}
        rows = [(key, vector, _sum(key, vector)) for key, vector in plain.items()]
        with self._trouble():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._opened()) as cache, cache:
                cache.execute(_TABLE)
                cache.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    def _opened(self) -> Any:
        import sqlite3  # here, since few need it

        return sqlite3.connect(self.path, timeout=_PATIENCE)

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        """Throw away a damaged file, and go on without one that cannot be used."""
        import sqlite3

        try:
            yield
        except sqlite3.OperationalError as error:
            log.warning("%s cannot be used (%s): vectors are computed and not kept", self.path, error)
        except sqlite3.DatabaseError as error:
            log.warning("%s is damaged (%s): its vectors are computed again", self.path, error)
            for file in (self.path, self.path.with_name(f"{self.path.name}-journal")):
                file.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s cannot be used (%s): vectors are computed and not kept", self.path, error.strerror)


def _sum(key: bytes, vector: bytes) -> int:
    return zlib.crc32(vector, zlib.crc32(key))


# -- Frozen ------------------------------------------------------------------------------------------------------------

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Frozen:
    """An encoder that stays as it is, for a column of contents.

    Parameters
    ----------
    encode
        A torch module, which is given what any module of your own is; or a function that is given a list of contents as
        they are (texts as ``str``, pictures as RGB images of Pillow, instants as ``datetime``, lists as tuples of
        ``str``, vectors as arrays, ids as ``int``) and gives as many vectors of one size, as an array or a tensor.
    transform
        For a module that is to see contents as they are: makes a tensor of each, which are then stacked.
    cache
        Folder for the vectors; they are known again by content and encoder. None keeps those of the last table only.
    name
        For the cache, what tells a function from others: change it whenever the function gives other vectors. A module,
        or a method of one such as ``model.encode``, is known by its class and weights, and needs none.
    batch_size
        Number of contents to be encoded at a time.

    Examples
    --------
    >>> lengths = Frozen(lambda texts: [[len(text)] for text in texts], name="lengths")
    >>> lengths.vectors("about", "text", np.array(["a room", "a suite"], object)).tolist()
    [[6.0], [7.0]]
    """

    def __init__(
        self,
        encode: Callable[..., Any],
        *,
        transform: Callable[[Any], Tensor] | None = None,
        cache: str | Path | None = None,
        name: str | None = None,
        batch_size: int = 64,
    ) -> None:
        if isinstance(encode, type) or not callable(encode):
            what = f"the class {encode.__name__}" if isinstance(encode, type) else repr(encode)
            raise ConfigError(f"Frozen: expected a torch module or a function, got {what}.")
        if transform is not None and not isinstance(encode, nn.Module):
            raise ConfigError("Frozen: transform is for a torch module; a function is given contents as they are.")
        require_number("Frozen: batch_size", batch_size, whole=True, low=1)
        self.encode, self.transform, self.name, self.batch_size = encode, transform, name, batch_size
        self.cache = None if cache is None else Path(cache)
        if self.cache is not None and self.cache.exists() and not self.cache.is_dir():
            raise ConfigError(f"Frozen: the cache must be a folder, and {self.cache} is a file.")
        self._function, self._bound = _unwrapped(encode)
        if self.cache is not None and name is None and self._module is None:
            raise ConfigError(
                f"Frozen: what {self.label} gives cannot be known again in a cache: give it a name that changes "
                f"whenever its vectors do, as in Frozen(function, name='tf-idf 1', cache=...)."
            )
        self._last: tuple[str, dict[bytes, NDArray[np.float32]]] = ("", {})

    @classmethod
    def sentences(cls, model: Any, *, cache: str | Path | None = None, batch_size: int = 64) -> Frozen:
        """Encode texts by an installed model of sentence-transformers: its object, or the folder it was saved in.

        Nothing is downloaded.
        """
        if isinstance(model, str | Path):
            if not Path(model).is_dir():
                raise ConfigError(
                    f"Frozen.sentences: {model} is no folder. Give the folder of a saved model, or the model itself."
                )
            model = _package("sentence_transformers", "sentence-transformers").SentenceTransformer(
                str(model), local_files_only=True
            )
        if not callable(getattr(model, "encode", None)):
            raise ConfigError(
                f"Frozen.sentences: expected a model with a method encode, as those of sentence-transformers have, "
                f"got {type(model).__name__}."
            )
        return cls(model.encode, cache=cache, batch_size=batch_size)

    @classmethod
    def pictures(
        cls,
        backbone: nn.Module,
        transform: Callable[[Any], Tensor] | None = None,
        *,
        cache: str | Path | None = None,
        batch_size: int = 64,
    ) -> Frozen:
        """Encode pictures by an installed backbone, such as one of torchvision or timm without its last layer.

        ``transform`` makes a tensor of an RGB image of Pillow, such as ``weights.transforms()`` of torchvision; for a
        model of timm it is found by timm itself. Nothing is downloaded.
        """
        if transform is None and hasattr(backbone, "pretrained_cfg"):
            data = _package("timm", "timm").data
            transform = data.create_transform(**data.resolve_model_data_config(backbone), is_training=False)
        if transform is None:
            raise ConfigError(
                "Frozen.pictures: give the transform that makes a tensor of a picture, such as weights.transforms() of "
                "torchvision."
            )
        return cls(backbone, transform=transform, cache=cache, batch_size=batch_size)

    @property
    def label(self) -> str:
        """Name what is frozen."""
        kind = type(self._function) if isinstance(self._function, nn.Module) else self._function
        return f"Frozen({getattr(kind, '__qualname__', type(kind).__qualname__)})"

    @property
    def sees_contents(self) -> bool:
        """Whether it is given contents as they are, not what a network gets of them."""
        return self.transform is not None or not isinstance(self.encode, nn.Module)

    @property
    def identity(self) -> str:
        """Return a hash of what the vectors depend on beside the contents."""
        digest = hashlib.blake2b(digest_size=16)
        words = [self.label, self.name, self._bound, None if self.transform is None else _written(self.transform)]
        digest.update(json.dumps(words).encode())
        if self._module is not None:
            digest.update(repr(self._module).encode())
            for name, tensor in (*self._module.named_parameters(), *self._module.named_buffers()):
                digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
                digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def vectors(
        self,
        column: str,
        kind: str,
        table: NDArray[Any],
        code: ContentCode | None = None,
        *,
        identity: str | None = None,
    ) -> NDArray[np.float32]:
        """(U, ...) distinct contents -> (U, W); ``code`` makes of them what a network gets.

        ``identity`` is what the encoder has, where that is known already.
        """
        whose = self.identity if identity is None else identity
        way = hashlib.blake2b(f"{whose} {kind} {code!r}".encode(), digest_size=16).hexdigest()
        keys = [_key(content) for content in table]
        cache = None if self.cache is None else VectorCache(self.cache, way)
        # 1. Take what is in memory or in the cache.
        last, vectors = self._last
        known = {key: vectors[key] for key in keys if key in vectors} if last == way else {}
        if cache is not None and (left := [key for key in keys if key not in known]):
            known |= cache.find(left)
        # 2. Encode the rest, and keep it.
        new = np.array([k for k, key in enumerate(keys) if key not in known], np.int64)
        for begin in range(0, len(new), self.batch_size):
            some = new[begin : begin + self.batch_size]
            found = self.encoded(column, kind, table[some], code)
            fresh = {keys[k]: vector for k, vector in zip(some, found, strict=True)}
            known |= fresh
            if cache is not None:
                cache.keep(fresh)
        if len(new) or way != last:  # else it was part of what is in memory
            self._last = (way, known)
        sizes = {len(vector) for vector in known.values()}
        if len(sizes) > 1:
            raise ConfigError(f"column {column!r}: {self.label} gave vectors of different sizes: {sorted(sizes)}.")
        return np.stack([known[key] for key in keys])

    def encoded(self, column: str, kind: str, table: NDArray[Any], code: ContentCode | None) -> NDArray[np.float32]:
        """Encode some contents, whatever is kept of them, and check what comes back."""
        told = f"column {column!r}: {self.label} was given {len(table)} contents of kind {kind}"
        try:
            with torch.no_grad(), _at_rest(self._module):
                found = self.encode(self._given(kind, table, code))
                plain = found.detach().float().cpu().numpy() if isinstance(found, Tensor) else found
                vectors = np.array(plain, np.float32)
        except Exception as error:  # a user's function may raise anything
            raise ConfigError(f"{told}, and it failed: {error}") from error
        if vectors.ndim != 2 or len(vectors) != len(table) or not vectors.shape[1]:
            raise ConfigError(f"{told}, and should give as many vectors of one size, got shape {vectors.shape}.")
        if not np.isfinite(vectors).all():
            raise ConfigError(f"{told}, and gave vectors with numbers that are not finite.")
        return vectors

    def _given(self, kind: str, table: NDArray[Any], code: ContentCode | None) -> Any:
        parameters = self.encode.parameters() if isinstance(self.encode, nn.Module) else iter(())
        device = next((parameter.device for parameter in parameters), None)
        if code is not None:
            prepared = torch.from_numpy(code.prepare(table)).to(device)
            return prepared / 255 if prepared.dtype == torch.uint8 else prepared  # as a network gets pictures
        contents = [KINDS[kind].plain(content) for content in table]
        return contents if self.transform is None else torch.stack([self.transform(c) for c in contents]).to(device)

    @property
    def _module(self) -> nn.Module | None:
        """The module whose weights the vectors depend on, if there is one."""
        owner = getattr(self._function, "__self__", self._function)
        return owner if isinstance(owner, nn.Module) else None


@contextmanager
def _at_rest(module: nn.Module | None) -> Iterator[None]:
    """Switch off dropout and the like."""
    modes = [] if module is None else [(part, part.training) for part in module.modules()]
    for part, _ in modes:
        part.training = False
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def _unwrapped(function: Any) -> tuple[Any, list[str]]:
    """Return what a partial is of, and what it binds."""
    bound = []
    while isinstance(function, functools.partial):
        bound.append(_written((function.args, sorted(function.keywords.items()))))
        function = function.func
    return function, bound


def _written(value: Any) -> str:
    """Write a value the same in every process."""
    named = getattr(value, "__qualname__", None)
    return str(named) if named is not None else _ADDRESS.sub("", repr(value))


def _key(content: Any) -> bytes:
    """Hash a content."""
    if isinstance(content, np.ndarray | np.generic):
        content = content.tobytes()
    return hashlib.sha256(content if isinstance(content, bytes) else json.dumps(content).encode()).digest()


def _package(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"this needs the package {name}, which is not installed: pip install {name}.") from error
