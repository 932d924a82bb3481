"""Frozen encoders map content values to vectors, computed once per distinct value and cached in memory and on disk.

    contents  --module or function-->  (U, W) numbers

The cache looks up a vector by a hash of the encoded value and the identity of the encoder. A module is identified by
its class, structure and weights, and a function by its name. The vectors of the last call stay in memory, so a fit runs
the encoder once per distinct value. If ``cache`` is a folder, later fits and predictions in any process also use the
cached vectors. When a saved model is loaded, the vectors that a function returns are checked: see
:mod:`pcmcnet.data.kinds.contents`.
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
# Vectors on disk by the hash of their content: one SQLite file per encoder in a folder. SQLite writes a batch of
# vectors completely or not at all, also if other processes read and write. Each vector has a checksum. A vector with a
# wrong checksum, or in a damaged file, counts as missing: it is computed and written again. A folder that cannot be
# written costs time but does not change results.

Vectors = Mapping[bytes, NDArray[np.float32]]

_KEYS_PER_QUERY = 500
_LOCK_TIMEOUT = 60.0  # seconds to wait for another process that writes
_TABLE = "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB, checksum INTEGER) WITHOUT ROWID"


class VectorCache:
    """Cached vectors of one encoder."""

    def __init__(self, folder: Path, encoder: str) -> None:
        self.path = folder / f"{encoder}.sqlite"

    def find(self, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """Return the cached vectors of the given keys."""
        vectors: dict[bytes, NDArray[np.float32]] = {}
        if not self.path.exists():
            return vectors
        with self._without_errors(), closing(self._connect()) as cache:
            for begin in range(0, len(keys), _KEYS_PER_QUERY):
                some = keys[begin : begin + _KEYS_PER_QUERY]
                marks = ", ".join("?" * len(some))
                rows = cache.execute(f"SELECT key, vector, checksum FROM vectors WHERE key IN ({marks})", some)
                vectors |= {
                    key: np.frombuffer(vector, "<f4")
                    for key, vector, checksum in rows
                    if _checksum(key, vector) == checksum
                }
        return vectors

    def store(self, vectors: Vectors) -> None:
        """Write the vectors in one transaction, so that either all or none are stored."""
        plain = {key: vector.astype("<f4").tobytes() for key, vector in vectors.items()}
        rows = [(key, vector, _checksum(key, vector)) for key, vector in plain.items()]
        with self._without_errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connect()) as cache, cache:
                cache.execute(_TABLE)
                cache.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    def _connect(self) -> Any:
        import sqlite3  # imported here: only this cache needs it

        return sqlite3.connect(self.path, timeout=_LOCK_TIMEOUT)

    @contextmanager
    def _without_errors(self) -> Iterator[None]:
        """Log cache errors as warnings instead of raising them, and delete a damaged cache file."""
        import sqlite3

        try:
            yield
        except sqlite3.OperationalError as error:
            log.warning("cache %s cannot be used (%s): vectors are computed but not stored", self.path, error)
        except sqlite3.DatabaseError as error:
            log.warning("cache %s is damaged (%s): its vectors are computed again", self.path, error)
            for file in (self.path, self.path.with_name(f"{self.path.name}-journal")):
                file.unlink(missing_ok=True)
        except OSError as error:
            log.warning("cache %s cannot be used (%s): vectors are computed but not stored", self.path, error.strerror)


def _checksum(key: bytes, vector: bytes) -> int:
    return zlib.crc32(vector, zlib.crc32(key))


# -- Frozen ------------------------------------------------------------------------------------------------------------

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Frozen:
    """A pretrained encoder of a content column, such as texts or images, that stays unchanged when a model is fitted.

    Parameters
    ----------
    encode
        A torch module, which gets the same tensors as a trainable encoder, or a function that maps a list of values to
        an array or tensor with one vector per value. A function gets texts as ``str``, pictures as RGB Pillow images,
        timestamps as ``datetime``, lists as tuples of ``str``, vectors as arrays and ids as ``int``.
    transform
        Only for a module: a function that maps one value, in the form listed under ``encode``, to a tensor. The tensors
        are stacked and passed to the module. By default, the module gets the values as prepared for a network.
    cache
        Folder in which the vectors are cached, by value and encoder. By default, only the vectors of the last table are
        kept, in memory.
    name
        Name that identifies a function in the cache. Change the name whenever the function returns different vectors. A
        module, or a method of a module such as ``model.encode``, is identified by its class and weights and needs no
        name.
    batch_size
        Number of values that one call encodes. Default 64.

    Raises
    ------
    ConfigError
        If ``encode`` is not callable, if ``transform`` is given with a function, if ``cache`` is a file, or if a
        function has a cache but no name.

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
            value = f"the class {encode.__name__}" if isinstance(encode, type) else repr(encode)
            raise ConfigError(f"Frozen: expected a torch module or a function, got {value}.")
        if transform is not None and not isinstance(encode, nn.Module):
            raise ConfigError("Frozen: transform is not supported with a function, which receives the original values.")
        require_number("Frozen: batch_size", batch_size, whole=True, low=1)
        self.encode, self.transform, self.name, self.batch_size = encode, transform, name, batch_size
        self.cache = None if cache is None else Path(cache)
        if self.cache is not None and self.cache.exists() and not self.cache.is_dir():
            raise ConfigError(f"Frozen: the cache must be a folder, but {self.cache} is a file.")
        self._function, self._bound = _unwrapped(encode)
        if self.cache is not None and name is None and self._module is None:
            raise ConfigError(
                f"Frozen: {self.label} needs a name to be cached. Give it a name, and change the name whenever its "
                f"vectors change, as in Frozen(function, name='tf-idf 1', cache=...)."
            )
        self._last: tuple[str, dict[bytes, NDArray[np.float32]]] = ("", {})

    @classmethod
    def sentences(cls, model: Any, *, cache: str | Path | None = None, batch_size: int = 64) -> Frozen:
        """Return a frozen encoder of texts that uses a sentence-transformers model. Nothing is downloaded.

        Parameters
        ----------
        model
            The model object, or the folder it was saved in.
        cache
            Folder for the vectors. By default, only the vectors of the last table are kept, in memory.
        batch_size
            Number of texts that one call encodes, 64 by default.

        Returns
        -------
        The encoder.

        Raises
        ------
        ConfigError
            If the folder does not exist, if sentence-transformers is not installed, or if the model has no ``encode``
            method.
        """
        if isinstance(model, str | Path):
            if not Path(model).is_dir():
                raise ConfigError(
                    f"Frozen.sentences: {model} is not a folder. Give the folder of a saved model, or the model itself."
                )
            model = _package("sentence_transformers", "sentence-transformers").SentenceTransformer(
                str(model), local_files_only=True
            )
        if not callable(getattr(model, "encode", None)):
            raise ConfigError(
                f"Frozen.sentences: expected a sentence-transformers model with an encode method, "
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
        """Return a frozen encoder of pictures, such as a torchvision or timm model without its last layer.

        Nothing is downloaded.

        Parameters
        ----------
        backbone
            The module.
        transform
            Function that maps an RGB Pillow image to a tensor, such as torchvision's ``weights.transforms()``. For a
            timm model, the default is the transform of its pretrained configuration.
        cache
            Folder for the vectors. By default, only the vectors of the last table are kept, in memory.
        batch_size
            Number of pictures that one call encodes, 64 by default.

        Returns
        -------
        The encoder.

        Raises
        ------
        ConfigError
            If ``transform`` is None and the backbone is not a timm model.
        """
        if transform is None and hasattr(backbone, "pretrained_cfg"):
            data = _package("timm", "timm").data
            transform = data.create_transform(**data.resolve_model_data_config(backbone), is_training=False)
        if transform is None:
            raise ConfigError(
                "Frozen.pictures: expected a transform from a picture to a tensor, such as torchvision's "
                "weights.transforms(), got none."
            )
        return cls(backbone, transform=transform, cache=cache, batch_size=batch_size)

    @property
    def label(self) -> str:
        """Name of the encoder in messages."""
        kind = type(self._function) if isinstance(self._function, nn.Module) else self._function
        return f"Frozen({getattr(kind, '__qualname__', type(kind).__qualname__)})"

    @property
    def sees_contents(self) -> bool:
        """Whether the encoder takes the original values instead of prepared values."""
        return self.transform is not None or not isinstance(self.encode, nn.Module)

    @property
    def identity(self) -> str:
        """Hash of everything that the vectors depend on, except the encoded values."""
        digest = hashlib.blake2b(digest_size=16)
        names = [self.label, self.name, self._bound, None if self.transform is None else _stable_text(self.transform)]
        digest.update(json.dumps(names).encode())
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
        """Return the vectors (U, W) of distinct values (U, ...), taken from the cache or computed.

        Parameters
        ----------
        column, kind
            Name and kind of the column.
        table
            The distinct values.
        code
            Code that prepares the values for a module, or None if the encoder takes the original values.
        identity
            The encoder's :attr:`identity`, if the caller has already computed it.

        Returns
        -------
        The vectors.

        Raises
        ------
        ConfigError
            If the encoder fails, or if it returns vectors that differ in size or are not finite.
        """
        encoder_hash = self.identity if identity is None else identity
        cache_name = hashlib.blake2b(f"{encoder_hash} {kind} {code!r}".encode(), digest_size=16).hexdigest()
        keys = [_key(content) for content in table]
        cache = None if self.cache is None else VectorCache(self.cache, cache_name)
        # 1. Look the vectors up in memory and in the cache.
        last_name, last_vectors = self._last
        vectors = {key: last_vectors[key] for key in keys if key in last_vectors} if last_name == cache_name else {}
        if cache is not None and (absent := [key for key in keys if key not in vectors]):
            vectors |= cache.find(absent)
        # 2. Encode the other contents and store their vectors.
        new = np.array([k for k, key in enumerate(keys) if key not in vectors], np.int64)
        for begin in range(0, len(new), self.batch_size):
            batch = new[begin : begin + self.batch_size]
            encoded = self.encode_batch(column, kind, table[batch], code)
            computed = {keys[k]: vector for k, vector in zip(batch, encoded, strict=True)}
            vectors |= computed
            if cache is not None:
                cache.store(computed)
        if len(new) or cache_name != last_name:  # otherwise memory already has all of them
            self._last = (cache_name, vectors)
        sizes = {len(vector) for vector in vectors.values()}
        if len(sizes) > 1:
            raise ConfigError(f"column {column!r}: {self.label} returned vectors of different sizes: {sorted(sizes)}.")
        return np.stack([vectors[key] for key in keys])

    def encode_batch(
        self, column: str, kind: str, table: NDArray[Any], code: ContentCode | None
    ) -> NDArray[np.float32]:
        """Run the encoder on the given values, without the cache, and check the vectors.

        Parameters
        ----------
        column, kind
            Name and kind of the column, for error messages.
        table
            Values to encode.
        code
            Code that prepares the values for a module, or None if the encoder takes the original values.

        Returns
        -------
        numpy.ndarray
            One vector for each value.

        Raises
        ------
        ConfigError
            If the encoder fails, or if it does not return finite vectors of the same size.
        """
        call = f"column {column!r}: {self.label} was given {len(table)} values of kind {kind}"
        try:
            with torch.no_grad(), _in_eval_mode(self._module):
                output = self.encode(self._inputs(kind, table, code))
                plain = output.detach().float().cpu().numpy() if isinstance(output, Tensor) else output
                vectors = np.array(plain, np.float32)
        except Exception as error:  # a user's function may raise anything
            raise ConfigError(f"{call} and failed: {error}") from error
        if vectors.ndim != 2 or len(vectors) != len(table) or not vectors.shape[1]:
            raise ConfigError(
                f"{call}: expected one vector for each value, all of the same size, got shape {vectors.shape}."
            )
        if not np.isfinite(vectors).all():
            raise ConfigError(f"{call}: expected finite vectors, got NaN or infinite numbers.")
        return vectors

    def _inputs(self, kind: str, table: NDArray[Any], code: ContentCode | None) -> Any:
        """Return the values in the form that the encoder takes. The inputs of a module are on the module's device."""
        parameters = self.encode.parameters() if isinstance(self.encode, nn.Module) else iter(())
        device = next((parameter.device for parameter in parameters), None)
        if code is not None:
            prepared = torch.from_numpy(code.prepare(table)).to(device)
            return prepared / 255 if prepared.dtype == torch.uint8 else prepared  # pictures: 0 to 1, as in a network
        contents = [KINDS[kind].plain(content) for content in table]
        return contents if self.transform is None else torch.stack([self.transform(c) for c in contents]).to(device)

    @property
    def _module(self) -> nn.Module | None:
        """The module whose weights determine the vectors, or None for a plain function."""
        owner = getattr(self._function, "__self__", self._function)
        return owner if isinstance(owner, nn.Module) else None


@contextmanager
def _in_eval_mode(module: nn.Module | None) -> Iterator[None]:
    """Switch a module and all its submodules to evaluation mode inside the ``with`` block."""
    modes = [] if module is None else [(part, part.training) for part in module.modules()]
    for part, _ in modes:
        part.training = False
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def _unwrapped(function: Any) -> tuple[Any, list[str]]:
    """Return the function wrapped by a ``functools.partial``, and the bound arguments as text."""
    bound = []
    while isinstance(function, functools.partial):
        bound.append(_stable_text((function.args, sorted(function.keywords.items()))))
        function = function.func
    return function, bound


def _stable_text(value: Any) -> str:
    """Return a value as text without memory addresses, so that the text is the same in every process."""
    qualified_name = getattr(value, "__qualname__", None)
    return str(qualified_name) if qualified_name is not None else _ADDRESS.sub("", repr(value))


def _key(content: Any) -> bytes:
    """Return the hash of a value."""
    if isinstance(content, np.ndarray | np.generic):
        content = content.tobytes()
    return hashlib.sha256(content if isinstance(content, bytes) else json.dumps(content).encode()).digest()


def _package(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"Frozen needs the package {name}, which is not installed: pip install {name}.") from error
