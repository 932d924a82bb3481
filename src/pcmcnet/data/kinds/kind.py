"""A kind of contents: all that tells it from other kinds, in one object, and the registry of these objects.

    raw column  --read-->  distinct contents  --learn-->  code  --prepare-->  (U, ...) numbers  --encoder-->  vectors

Reading checks every content and numbers equal ones alike; it knows nothing of models. A code is what a model keeps of
its training part (a scale, a vocabulary); it survives JSON, and turns any later table's contents into numbers. An
encoder maps these numbers to vectors, and a worth to a part of a utility.

A new kind is a subclass of :class:`Kind` and a call of :func:`register`. It must have a name, a code and
:meth:`Kind.read`. Everything else has a default: that of contents which are prepared as one row of numbers each, and
are written in JSON as text, or as numbers where they are numbers in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray

from pcmcnet.arrays import Ints
from pcmcnet.data.column_arrays import Contents
from pcmcnet.data.kinds.json_checks import is_string
from pcmcnet.data.kinds.previews import Pixels
from pcmcnet.data.kinds.streaming import Collected, Learning
from pcmcnet.errors import ConfigError, shown

if TYPE_CHECKING:
    from torch import nn

Read = tuple[NDArray[np.int32], NDArray[Any]]  # (n,) codes and (U, ...) distinct contents
Check = Callable[[Any], bool]

_WIDE = 64  # numbers, from which on a vector is first mapped to so many
_NEARLY_ALL = 0.9
_SEEN = 20  # contents, by which the size of the others is judged


class ContentCode(Protocol):
    """What a model keeps of the contents of one column of its training part; a frozen dataclass of plain values."""

    dtype: ClassVar[type[np.generic]]  # of what a network gets

    @property
    def kind(self) -> str:
        """Kind of the column."""

    @property
    def name(self) -> str:
        """Name of the column."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what a network gets for one content."""

    def prepare(self, table: NDArray[Any]) -> NDArray[Any]:
        """(U, ...) contents -> (U, *shape) numbers; all zeros stand for a missing content."""

    def sound(self) -> bool:
        """Tell whether the values are such as were saved."""


class Kind(ABC):
    """What is particular to one kind of contents."""

    name: ClassVar[str]
    code: ClassVar[Any]  # a class of codes, with learn(name, table)
    dtype: ClassVar[DTypeLike] = object  # of a table of distinct contents
    stored: ClassVar[pa.DataType | None] = None  # of objects in a cache on disk
    is_whole_number: ClassVar[bool] = False  # whether files without types are to be read as whole numbers

    # From a table

    @abstractmethod
    def read(self, values: pa.ChunkedArray, folder: Path | None = None) -> Read:
        """Read a column, whose gaps are ``GAP``; ``folder`` is that of the table's file, from which paths count.

        Raises
        ------
        BadContentError
            For a row that cannot be read.
        BadTypeError
            For a column whose type cannot hold such contents.
        """

    def recognise(self, column: str, texts: pa.Array) -> tuple[str, str] | None:
        """Say what distinct texts of an undeclared column are, and how to declare it; None where they are others."""
        return None

    def learner(self) -> Learning:
        """Return what learns a code from the contents of one part after the other."""
        return Collected(self.code)

    # On disk, and in memory

    def to_arrow(self, table: NDArray[Any]) -> pa.Array:
        """Write distinct contents, each a value."""
        if table.ndim == 2:
            return pa.FixedSizeListArray.from_arrays(pa.array(table.ravel()), max(table.shape[1], 1))
        return pa.array(table.tolist(), self.stored) if table.dtype == object else pa.array(table)

    def from_arrow(self, values: pa.Array) -> NDArray[Any]:
        """Read distinct contents: numbers where they lie, others as objects."""
        if pa.types.is_fixed_size_list(values.type):
            flat = values.flatten().to_numpy(zero_copy_only=True)
            return np.asarray(flat.reshape(len(values), values.type.list_size))
        if self.dtype is object:
            return objects(values.to_pylist())
        return np.asarray(values.to_numpy(zero_copy_only=False))

    def file_bytes(self, values: pa.Array, folder: Path) -> float:
        """Return about how many bytes a row takes beside those of its value."""
        return 0.0

    def prepared_bytes(self, table: NDArray[Any]) -> int:
        """Return about how many bytes a content takes once it is prepared for a network."""
        some = table[:_SEEN]
        return int(self.code.learn("", some).prepare(some).nbytes) // len(some)

    # In a network

    def encoder(self, code: Any) -> nn.Module:
        """Return a fresh module that maps what the code prepares to vectors: (u, *shape) -> (u, width)."""
        from torch import nn  # here, since only networks need it

        (size,) = code.shape
        return nn.Linear(size, _WIDE) if size > _WIDE else nn.Identity()

    def worth(self, code: Any) -> nn.Module | None:
        """Return a fresh module for a linear utility, (u, *shape) -> (u,); None where there is none."""
        from pcmcnet.data.kinds.networks.vector import VectorWorth

        return VectorWorth(*code.shape)

    # In a description, and in a saved model

    fact_checks: ClassVar[Mapping[str, Check]] = {}  # what each fact is, for a description that is read back

    def facts(self, column: Contents) -> dict[str, Any]:
        """Say of contents in use what a form needs to know, beside how many there are; plain values."""
        return {}

    def to_json(self, content: Any) -> Any:
        """Write a content as JSON has it, for people and for a request to a service."""
        if isinstance(content, np.ndarray):
            return [written(value) for value in content]
        return written(content) if isinstance(content, np.generic) else content

    def is_json(self, value: Any) -> bool:
        """Tell what :meth:`to_json` returns."""
        return is_string(value)

    def known_by(self, content: Any) -> str:
        """Return what tells a content from others, wherever :meth:`json_known_by` finds it in what JSON has."""
        return self.json_known_by(self.to_json(content))

    def json_known_by(self, value: Any) -> str:
        """Return what tells what :meth:`to_json` wrote from others."""
        return repr(value)

    def to_saved(self, content: Any) -> Any:
        """Write a content as JSON has it, so that :meth:`from_saved` reads the very same."""
        return content.tolist() if isinstance(content, np.generic | np.ndarray) else content

    def from_saved(self, contents: list[Any]) -> NDArray[Any]:
        """Read contents as a column has them."""
        return objects(contents) if self.dtype is object else np.array(contents, self.dtype)

    def choose(self, table: NDArray[Any], most: int) -> Ints:
        """Choose some of (U, ...) contents to be saved as examples: the first, the last and some between."""
        return np.unique(np.linspace(0, len(table) - 1, most).round().astype(np.int64))

    def plain(self, content: Any) -> Any:
        """Return a content as a person would expect it."""
        return content.item() if isinstance(content, np.generic) else content

    # In a request to a service

    arrow_type: ClassVar[pa.DataType] = pa.string()  # of the values that posted returns
    may_be_missing: ClassVar[bool] = True
    unknown: ClassVar[str | None] = None  # what to say when a module of the user's own knows no such content
    page_field: ClassVar[str] = "text"  # of the page: one of those of serving/page/contents.js
    choices: ClassVar[str] = "distinct"  # the fact that says how many there are to choose from
    is_name: ClassVar[bool] = False  # whether a content can name its alternative

    def json_schema(self, size: int | None) -> dict[str, Any]:
        """Return the JSON schema of a value; ``size`` is the fact of that name, where it is known."""
        return {"type": "string"}

    def posted(self, value: Any, *, size: int | None, pixels: Pixels) -> Any:
        """Check a value of a request, as far as reading does not; ValueError says what is wrong with it."""
        if not isinstance(value, str):
            raise ValueError(f"expected a {self.name}, got {shown(value)}")
        return value

    def read_posted(self, values: list[Any]) -> Read:
        """Read what :meth:`posted` returned, as a table with it would be read."""
        return self.read(pa.chunked_array([pa.array(values, self.arrow_type)]))

    # In a diagram

    def label(self, code: Any) -> str:
        """Say in a word or two what an encoder is given."""
        return self.name


KINDS: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Make a kind known by its name, from then on and in this process."""
    if kind.name in KINDS:
        raise ConfigError(f"there is a kind {kind.name!r} already: choose another name.")
    KINDS[kind.name] = kind


def objects(contents: list[Any]) -> NDArray[Any]:
    """Return (U,) contents as objects, whatever they are."""
    table = np.empty(len(contents), object)
    table[:] = contents
    return table


def mostly(texts: pa.Array, pattern: str) -> bool:
    """Tell whether nearly all texts match a pattern."""
    return bool(pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False).mean() >= _NEARLY_ALL)


def written(value: np.generic) -> Any:
    """Write a number with the digits that tell it from its neighbours: 0.1, not 0.10000000149."""
    return float(str(value)) if isinstance(value, np.floating) else value.item()
