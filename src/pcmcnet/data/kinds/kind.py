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

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data.columns.arrays import MISSING_CODE, Contents, content_codes
from pcmcnet.data.columns.distinct import is_text
from pcmcnet.errors import ConfigError, describe_value

if TYPE_CHECKING:
    from torch import nn

# -- Values out of JSON ------------------------------------------------------------------------------------------------

MAX_FLOAT32 = float(np.finfo(np.float32).max)


def is_count(value: Any) -> bool:
    """Tell a whole number from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def is_whole(value: Any) -> bool:
    """Tell a whole number."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64


def is_number(value: Any) -> bool:
    """Tell a finite number that float32 holds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_FLOAT32


def is_string(value: Any) -> bool:
    """Tell a text."""
    return isinstance(value, str)


def are_numbers(value: Any) -> bool:
    """Tell a list of numbers."""
    return isinstance(value, list) and all(map(is_number, value))


def are_strings(value: Any) -> bool:
    """Tell a list of texts."""
    return isinstance(value, list) and all(map(is_string, value))


# -- Errors ------------------------------------------------------------------------------------------------------------
# What is wrong with a content, and in which row; the reader adds the column and the choice set.


class BadContentError(Exception):
    """A row that cannot be read."""

    def __init__(self, row: int, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.row, self.problem, self.remedy = row, problem, remedy


class BadTypeError(Exception):
    """A column whose type cannot hold contents of the kind; the message says what is expected."""


def require_no_bad_rows(bad: NDArray[np.bool_], problem: str, remedy: str, got: Any) -> None:
    """Refuse the first bad row, if there is one; ``got(row)`` says what stands there."""
    rows = np.flatnonzero(bad)
    if rows.size:
        first = int(rows[0])
        raise BadContentError(first, f"{problem}, got {got(first)}; {rows.size} such rows.", remedy)


# -- Streaming ---------------------------------------------------------------------------------------------------------
# A table in memory is one chunk, from which its code learns at once. Of several, each kind keeps what can be put
# together:
#
#     multi           the names found so far
#     image           the sizes and whether all are grey
#     datetime        the distinct instants, 8 bytes each
#     vector, text    count, mean and sum of squares about it, of contents whose hash of 8 bytes was not met before
#
# A content counts once, in whichever chunks it occurs. Means and scales are those of the whole table up to rounding.


class CodeLearner(Protocol):
    """What is known of the contents of some parts."""

    def add(self, table: NDArray[Any]) -> None:
        """Take in the distinct contents of one part."""

    def code(self, name: str) -> Any:
        """Return the code of all parts."""


class AllContentsLearner:
    """All distinct contents, for a code that learns from nothing less."""

    def __init__(self, code: Any) -> None:
        self.single = code
        self.found: NDArray[Any] | None = None

    def add(self, table: NDArray[Any]) -> None:
        """Take in the distinct contents of one part."""
        joined = table if self.found is None else np.concatenate([self.found, table])
        self.found = joined[content_codes(joined)[1]]

    def code(self, name: str) -> Any:
        """Return the code of all parts."""
        return self.single.learn(name, self.found)


class NewContents:
    """Tells contents that were not met before, by a hash of 8 bytes of each."""

    def __init__(self) -> None:
        self.seen = np.empty(0, np.uint64)

    def are_new(self, contents: list[bytes]) -> NDArray[np.bool_]:
        """(U,) which of some distinct contents are new; they are not, from then on."""
        digests = b"".join(blake2b(content, digest_size=8).digest() for content in contents)
        hashes = np.frombuffer(digests, np.uint64)
        place = np.searchsorted(self.seen, hashes)
        known = (place < len(self.seen)) & (np.append(self.seen, np.uint64(0))[place] == hashes)
        self.seen = np.union1d(self.seen, hashes)
        return np.asarray(~known)


class RowMoments:
    """Mean and spread of rows (n, D), put together from those of parts (Chan, Golub and LeVeque, 1983)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Floats = np.zeros(1)
        self.squares: Floats = np.zeros(1)

    def add(self, rows: Floats) -> None:
        """Take in more rows."""
        if not len(rows):
            return
        count, mean = len(rows), rows.mean(0)
        squares, apart = ((rows - mean) ** 2).sum(0), mean - self.mean
        total = self.count + count
        self.squares = self.squares + squares + apart**2 * self.count * count / total
        self.mean = self.mean + apart * count / total
        self.count = total

    @property
    def spread(self) -> Floats:
        """Standard deviation."""
        spread: Floats = np.sqrt(self.squares / max(self.count, 1))
        return spread


# -- Kind --------------------------------------------------------------------------------------------------------------

ReadContents = tuple[NDArray[np.int32], NDArray[Any]]  # (n,) codes and (U, ...) distinct contents
Check = Callable[[Any], bool]

_WIDE = 64  # numbers, from which on a vector is first mapped to so many
_NEARLY_ALL = 0.9
_SEEN = 20  # contents, by which the size of the others is judged


@dataclass(frozen=True, slots=True)
class ScaleCode:
    """Standardisation of one number for each content; ``scale`` 0 where all were one, or there were none."""

    name: str
    mean: float
    scale: float
    dtype: ClassVar[type[np.generic]] = np.float32

    def is_valid(self) -> bool:
        """Tell whether the values are such as were saved."""
        numbers = all(isinstance(x, int | float) and abs(x) < 1e300 for x in (self.mean, self.scale))
        return numbers and self.scale >= 0


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

    def is_valid(self) -> bool:
        """Tell whether the values are such as were saved."""


class PixelBudget:
    """How many more pixels the pictures of a request may have."""

    def __init__(self, most: int) -> None:
        self.most = self.left = most

    def take(self, count: int) -> None:
        """Count those of one picture; ValueError says that they are too many."""
        self.left -= count
        if self.left < 0:
            raise ValueError(f"expected at most {self.most:,} pixels in the pictures of a request: send smaller ones")


class Kind(ABC):
    """What is particular to one kind of contents."""

    name: ClassVar[str]
    code: ClassVar[Any]  # a class of codes, with learn(name, table)
    dtype: ClassVar[DTypeLike] = object  # of a table of distinct contents
    stored: ClassVar[pa.DataType | None] = None  # of objects in a cache on disk
    learner_class: ClassVar[type[CodeLearner] | None] = None  # learns a code from one chunk of contents after the other
    is_whole_number: ClassVar[bool] = False  # whether files without types are to be read as whole numbers

    # From a table

    @abstractmethod
    def read(self, values: pa.ChunkedArray, folder: Path | None = None) -> ReadContents:
        """Read a column; missing values get ``MISSING_CODE``, and paths are relative to ``folder``.

        BadContentError is for a row that cannot be read, BadTypeError for a type that cannot hold such contents.
        """

    def recognise(self, column: str, texts: pa.Array) -> tuple[str, str] | None:
        """Say what distinct texts of an undeclared column are, and how to declare it; None where they are others."""
        return None

    def learner(self) -> CodeLearner:
        """Return what learns a code from the contents of one part after the other."""
        return AllContentsLearner(self.code) if self.learner_class is None else self.learner_class()

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
            return object_array(values.to_pylist())
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
        from pcmcnet.data.kinds.networks import VectorPartWorth

        return VectorPartWorth(*code.shape)

    # In a description, and in a saved model

    fact_checks: ClassVar[Mapping[str, Check]] = {}  # what each fact is, for a description that is read back

    def facts(self, column: Contents) -> dict[str, Any]:
        """Say of contents in use what a form needs to know, beside how many there are; plain values."""
        return {}

    def to_json(self, content: Any) -> Any:
        """Write a content as JSON has it, for people and for a request to a service."""
        if isinstance(content, np.ndarray):
            return [json_number(value) for value in content]
        return json_number(content) if isinstance(content, np.generic) else content

    def is_json(self, value: Any) -> bool:
        """Tell what :meth:`to_json` returns."""
        return is_string(value)

    def content_key(self, content: Any) -> str:
        """Return what tells a content from others, wherever :meth:`json_content_key` finds it in what JSON has."""
        return self.json_content_key(self.to_json(content))

    def json_content_key(self, value: Any) -> str:
        """Return what tells what :meth:`to_json` wrote from others."""
        return repr(value)

    def to_saved(self, content: Any) -> Any:
        """Write a content as JSON has it, so that :meth:`from_saved` reads the very same."""
        return content.tolist() if isinstance(content, np.generic | np.ndarray) else content

    def from_saved(self, contents: list[Any]) -> NDArray[Any]:
        """Read contents as a column has them."""
        return object_array(contents) if self.dtype is object else np.array(contents, self.dtype)

    def choose_samples(self, table: NDArray[Any], most: int) -> Ints:
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

    def parse_posted(self, value: Any, *, size: int | None, pixels: PixelBudget) -> Any:
        """Check a value of a request, as far as reading does not; ValueError says what is wrong with it."""
        if not isinstance(value, str):
            raise ValueError(f"expected a {self.name}, got {describe_value(value)}")
        return value

    def read_posted(self, values: list[Any]) -> ReadContents:
        """Read what :meth:`parse_posted` returned, as a table with it would be read."""
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


def object_array(contents: list[Any]) -> NDArray[Any]:
    """Return (U,) contents as objects, whatever they are."""
    table = np.empty(len(contents), object)
    table[:] = contents
    return table


def mostly_match(texts: pa.Array, pattern: str) -> bool:
    """Tell whether nearly all texts match a pattern."""
    return bool(pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False).mean() >= _NEARLY_ALL)


def parse_texts(texts: pa.ChunkedArray, parse: Callable[[str], Any], expected: str, remedy: str) -> list[Any]:
    """Parse each distinct text once; gaps stay None. BadContentError names the first row whose text is not parsed."""
    parsed: dict[str | None, Any] = {None: None}
    rows = texts.to_pylist()
    for row, text in enumerate(rows):
        if text not in parsed:
            try:
                parsed[text] = parse(text)
            except (ValueError, RecursionError):
                short = text if len(text) <= 40 else f"{text[:39]}…"
                raise BadContentError(row, f"expected {expected}, got {short!r}.", remedy) from None
    return [parsed[text] for text in rows]


def number_distinct(contents: NDArray[Any], present: Any, rows: int, keys: NDArray[Any] | None = None) -> ReadContents:
    """Number the contents of the rows that are present, the others being gaps; ``keys`` tell contents apart."""
    codes = np.full(rows, MISSING_CODE, np.int32)
    codes[present], first = content_codes(contents if keys is None else keys)
    return codes, contents[first]


def json_number(value: np.generic) -> Any:
    """Write a number with the digits that tell it from its neighbours: 0.1, not 0.10000000149."""
    return float(str(value)) if isinstance(value, np.floating) else value.item()


# -- Arrow lists -------------------------------------------------------------------------------------------------------
# Columns of lists, from Arrow or, in files without types, from text such as `[0.5, 2]` or `["wifi", "pool"]`.


def as_lists(values: pa.ChunkedArray, item: str) -> pa.ChunkedArray:
    """Return a column of lists of ``item``, which names what is expected in them; gaps stay."""
    kind, types = values.type, pa.types
    if is_text(kind):
        lists = parse_texts(values, _list, f"a list of {item} such as '[1, 2]'", "Correct it.")
        try:
            return pa.chunked_array([pa.array(lists)])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise BadTypeError(f"expected lists of {item}, all of one type") from error
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or types.is_null(kind)):
        raise BadTypeError(f"expected lists of {item}, or text such as '[1, 2]'")
    return values


def _list(text: str) -> list[Any]:
    content = json.loads(text)
    if not isinstance(content, list):
        raise ValueError
    return content
