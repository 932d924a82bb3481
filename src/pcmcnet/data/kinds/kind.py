"""Base class and registry of the kinds of content columns, such as texts or images.

    raw column  --read-->  distinct contents  --learn-->  code  --prepare-->  (U, ...) numbers  --encoder-->  vectors

The contents of a column are its values, such as texts, pictures or vectors. Reading a column checks every value and
gives equal values the same index, whatever the model. A code holds what a model learns about a column from the training
data, such as a scale or a vocabulary. The code is saved as JSON and converts the values of later tables to numbers. An
encoder maps the numbers of a value to a vector, and a part-worth module maps them to a term of the utility.

A new kind needs a subclass of :class:`Kind` and a call to :func:`register`. The subclass must define a name, a code and
:meth:`Kind.read`. All other methods have defaults, which are suitable if each value is prepared as one row of numbers.
By default, values are strings in JSON, or numbers if they are numbers in memory.
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
from pcmcnet.errors import ConfigError, describe_value, such_rows

if TYPE_CHECKING:
    from torch import nn

# -- JSON values -------------------------------------------------------------------------------------------------------

MAX_FLOAT32 = float(np.finfo(np.float32).max)


def is_count(value: Any) -> bool:
    """Return True for a whole number of at least 0."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def is_whole(value: Any) -> bool:
    """Return True for a whole number."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64


def is_number(value: Any) -> bool:
    """Return True for a finite number in the range of float32."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_FLOAT32


def is_string(value: Any) -> bool:
    """Return True for a string."""
    return isinstance(value, str)


def are_numbers(value: Any) -> bool:
    """Return True for a list of numbers."""
    return isinstance(value, list) and all(map(is_number, value))


def are_strings(value: Any) -> bool:
    """Return True for a list of strings."""
    return isinstance(value, list) and all(map(is_string, value))


# -- Errors ------------------------------------------------------------------------------------------------------------
# An error of a kind names the problem and the row; the reader of the table adds the column and the choice set.


class BadContentError(Exception):
    """Error for a row without a valid value."""

    def __init__(self, row: int, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.row, self.problem, self.remedy = row, problem, remedy


class BadTypeError(Exception):
    """Error for a column type that the kind does not support. The message states the expected type."""


def require_no_bad_rows(bad: NDArray[np.bool_], problem: str, remedy: str, got: Any) -> None:
    """Raise BadContentError for the first row that ``bad`` marks, if any. ``got(row)`` describes the value of a row."""
    rows = np.flatnonzero(bad)
    if rows.size:
        first = int(rows[0])
        raise BadContentError(first, f"{problem}, got {got(first)}; {such_rows(rows.size)}.", remedy)


# -- Streaming ---------------------------------------------------------------------------------------------------------
# A table in memory is one chunk, and its code is learnt in one step. A larger table is learnt chunk by chunk; each kind
# keeps a summary that can be merged:
#
#     multi           the category names so far
#     image           the sizes, and whether all pictures are grey
#     datetime        the distinct timestamps, 8 bytes each
#     vector, text    count, mean and sum of squared deviations of distinct contents, found by 8-byte hashes
#
# A content counts once even if it is in several chunks. Means and scales are those of the whole table up to rounding.


class CodeLearner(Protocol):
    """Learns a code from the values of a column, chunk by chunk."""

    def add(self, table: NDArray[Any]) -> None:
        """Add the distinct values of one chunk."""

    def code(self, name: str) -> Any:
        """Return the code learnt from all chunks."""


class AllContentsLearner:
    """Collects all distinct values, for codes that cannot be learnt from a summary."""

    def __init__(self, code: Any) -> None:
        self.code_class = code
        self.contents: NDArray[Any] | None = None

    def add(self, table: NDArray[Any]) -> None:
        """Add the distinct values of one chunk."""
        joined = table if self.contents is None else np.concatenate([self.contents, table])
        self.contents = joined[content_codes(joined)[1]]

    def code(self, name: str) -> Any:
        """Return the code learnt from all chunks."""
        return self.code_class.learn(name, self.contents)


class NewContents:
    """Finds values that did not occur in earlier chunks, by their 8-byte hashes."""

    def __init__(self) -> None:
        self.hashes = np.empty(0, np.uint64)  # sorted

    def are_new(self, contents: list[bytes]) -> NDArray[np.bool_]:
        """Return the mask (U,) of the distinct values that are new, and store the hashes of all values."""
        digests = b"".join(blake2b(content, digest_size=8).digest() for content in contents)
        hashes = np.frombuffer(digests, np.uint64)
        position = np.searchsorted(self.hashes, hashes)
        is_old = (position < len(self.hashes)) & (np.append(self.hashes, np.uint64(0))[position] == hashes)
        self.hashes = np.union1d(self.hashes, hashes)
        return np.asarray(~is_old)


class RowMoments:
    """Mean and standard deviation of rows (n, D), updated chunk by chunk (Chan, Golub and LeVeque, 1983)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Floats = np.zeros(1)
        self.squares: Floats = np.zeros(1)

    def add(self, rows: Floats) -> None:
        """Add rows."""
        if not len(rows):
            return
        count, mean = len(rows), rows.mean(0)
        squares, difference = ((rows - mean) ** 2).sum(0), mean - self.mean
        total = self.count + count
        self.squares = self.squares + squares + difference**2 * self.count * count / total
        self.mean = self.mean + difference * count / total
        self.count = total

    @property
    def spread(self) -> Floats:
        """Standard deviation."""
        spread: Floats = np.sqrt(self.squares / max(self.count, 1))
        return spread


# -- Kind --------------------------------------------------------------------------------------------------------------

ReadContents = tuple[NDArray[np.int32], NDArray[Any]]  # (n,) codes and (U, ...) distinct contents
Check = Callable[[Any], bool]

_MAX_WIDTH = 64  # a wider vector is first mapped linearly to this width
_NEARLY_ALL = 0.9  # share of texts that must match the form of a kind
_SIZE_SAMPLE = 20  # contents from which the memory of the others is estimated


@dataclass(frozen=True, slots=True)
class ScaleCode:
    """Standardisation of one number per value. ``scale`` is 0 if all training numbers were equal."""

    name: str
    mean: float
    scale: float
    dtype: ClassVar[type[np.generic]] = np.float32

    def is_valid(self) -> bool:
        """Return True if the fields, as read from a saved model, are valid."""
        numbers = all(isinstance(x, int | float) and abs(x) < 1e300 for x in (self.mean, self.scale))
        return numbers and self.scale >= 0


class ContentCode(Protocol):
    """Code of one content column: a frozen dataclass of plain values that a model learns from the training data."""

    dtype: ClassVar[type[np.generic]]  # of the prepared contents

    @property
    def kind(self) -> str:
        """Kind of the column."""

    @property
    def name(self) -> str:
        """Name of the column."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one prepared value."""

    def prepare(self, table: NDArray[Any]) -> NDArray[Any]:
        """Prepare values for a network: (U, ...) -> (U, *shape) numbers. A missing value is represented by zeros."""

    def is_valid(self) -> bool:
        """Return True if the fields, as read from a saved model, are valid."""


class PixelBudget:
    """Limit on the total number of pixels of the pictures in a request."""

    def __init__(self, max_pixels: int) -> None:
        self.max_pixels = self.remaining = max_pixels

    def spend(self, count: int) -> None:
        """Subtract the pixels of one picture from the budget, or raise ValueError if too few pixels remain."""
        self.remaining -= count
        if self.remaining < 0:
            limit = f"expected at most {self.max_pixels:,} pixels in the pictures of a request"
            raise ValueError(f"{limit}: send smaller pictures")


class Kind(ABC):
    """One kind of content column: how values are read, coded, encoded, saved, described and sent in requests."""

    name: ClassVar[str]
    code: ClassVar[Any]  # class of the codes, with learn(name, table)
    dtype: ClassVar[DTypeLike] = object  # of an array of distinct contents
    stored: ClassVar[pa.DataType | None] = None  # Arrow type on disk, for contents that are Python objects
    learner_class: ClassVar[type[CodeLearner] | None] = None  # learns a code chunk by chunk; None: AllContentsLearner
    is_whole_number: ClassVar[bool] = False  # whether columns of untyped files are read as whole numbers

    # From a table

    @abstractmethod
    def read(self, values: pa.ChunkedArray, folder: Path | None = None) -> ReadContents:
        """Read a column. Missing values get the code ``MISSING_CODE``.

        Parameters
        ----------
        values
            The column.
        folder
            Folder of the table's file, to which relative paths refer, or None for a table in memory.

        Returns
        -------
        The codes (n,) and the distinct values (U, ...).

        Raises
        ------
        BadContentError
            If a row has no valid value.
        BadTypeError
            If the column type is not supported.
        """

    def recognise(self, column: str, texts: pa.Array) -> tuple[str, str] | None:
        """Return a description of a text column and how to declare it, or None if the column is not of this kind."""
        return None

    def learner(self) -> CodeLearner:
        """Return an object that learns a code chunk by chunk."""
        return AllContentsLearner(self.code) if self.learner_class is None else self.learner_class()

    # On disk and in memory

    def to_arrow(self, table: NDArray[Any]) -> pa.Array:
        """Return the distinct values of a content column as an Arrow array."""
        if table.ndim == 2:
            return pa.FixedSizeListArray.from_arrays(pa.array(table.ravel()), max(table.shape[1], 1))
        return pa.array(table.tolist(), self.stored) if table.dtype == object else pa.array(table)

    def from_arrow(self, values: pa.Array) -> NDArray[Any]:
        """Return the distinct values in an Arrow array: numbers without a copy, other values as objects."""
        if pa.types.is_fixed_size_list(values.type):
            flat = values.flatten().to_numpy(zero_copy_only=True)
            return np.asarray(flat.reshape(len(values), values.type.list_size))
        if self.dtype is object:
            return object_array(values.to_pylist())
        return np.asarray(values.to_numpy(zero_copy_only=False))

    def file_bytes(self, values: pa.Array, folder: Path) -> float:
        """Return the approximate number of bytes per row outside the table, for example in picture files."""
        return 0.0

    def prepared_bytes(self, table: NDArray[Any]) -> int:
        """Return the approximate number of bytes of a value that is prepared for a network."""
        sample = table[:_SIZE_SAMPLE]
        return int(self.code.learn("", sample).prepare(sample).nbytes) // len(sample)

    # In a network

    def encoder(self, code: Any) -> nn.Module:
        """Return a new module that maps prepared values to vectors: (u, *shape) -> (u, width)."""
        from torch import nn  # imported here: only networks need PyTorch

        (size,) = code.shape
        return nn.Linear(size, _MAX_WIDTH) if size > _MAX_WIDTH else nn.Identity()

    def worth(self, code: Any) -> nn.Module | None:
        """Return a new module for part-worths in a linear utility, (u, *shape) -> (u,), or None if there are none."""
        from pcmcnet.data.kinds.networks import VectorPartWorth

        return VectorPartWorth(*code.shape)

    # In a description and in a saved model

    fact_checks: ClassVar[Mapping[str, Check]] = {}  # checks of the facts in a saved description

    def facts(self, column: Contents) -> dict[str, Any]:
        """Return the facts about a column that an input form needs, except the number of distinct values."""
        return {}

    def to_json(self, content: Any) -> Any:
        """Return a value as JSON, in the readable form that requests to a service contain."""
        if isinstance(content, np.ndarray):
            return [json_number(value) for value in content]
        return json_number(content) if isinstance(content, np.generic) else content

    def is_json(self, value: Any) -> bool:
        """Return True if a value is a valid result of :meth:`to_json`."""
        return is_string(value)

    def content_key(self, content: Any) -> str:
        """Return a key that identifies a value, equal to :meth:`json_content_key` of the value's JSON form."""
        return self.json_content_key(self.to_json(content))

    def json_content_key(self, value: Any) -> str:
        """Return the key of a value from its JSON form."""
        return repr(value)

    def to_saved(self, content: Any) -> Any:
        """Return a value in a JSON form from which :meth:`from_saved` restores it exactly."""
        return content.tolist() if isinstance(content, np.generic | np.ndarray) else content

    def from_saved(self, contents: list[Any]) -> NDArray[Any]:
        """Restore the values of a content column from the result of :meth:`to_saved`."""
        return object_array(contents) if self.dtype is object else np.array(contents, self.dtype)

    def choose_samples(self, table: NDArray[Any], max_samples: int) -> Ints:
        """Return the indices of the distinct values (U, ...) to save as samples, evenly spaced from first to last."""
        return np.unique(np.linspace(0, len(table) - 1, max_samples).round().astype(np.int64))

    def plain(self, content: Any) -> Any:
        """Return a value as a plain Python object, for user-supplied functions."""
        return content.item() if isinstance(content, np.generic) else content

    # In a request to a service

    arrow_type: ClassVar[pa.DataType] = pa.string()  # of the values that parse_posted returns
    may_be_missing: ClassVar[bool] = True
    unknown: ClassVar[str | None] = None  # message if a module of the user does not know a content
    page_field: ClassVar[str] = "text"  # input field on the page: one of those of serving/page/contents.js
    choices: ClassVar[str] = "distinct"  # the fact with the number of values to choose from
    is_name: ClassVar[bool] = False  # whether a content can serve as the name of its alternative

    def json_schema(self, size: int | None) -> dict[str, Any]:
        """Return the JSON schema of a value. ``size`` is the entry ``size`` of :meth:`facts`, if known."""
        return {"type": "string"}

    def parse_posted(self, value: Any, *, size: int | None, pixels: PixelBudget) -> Any:
        """Return a value of a request, or raise ValueError if it fails a check that :meth:`read` does not perform."""
        if not isinstance(value, str):
            raise ValueError(f"expected a value of kind {self.name}, got {describe_value(value)}")
        return value

    def read_posted(self, values: list[Any]) -> ReadContents:
        """Read values returned by :meth:`parse_posted` in the same way as a column of a table."""
        return self.read(pa.chunked_array([pa.array(values, self.arrow_type)]))

    # In a diagram

    def label(self, code: Any) -> str:
        """Return the kind and size of the column's values in a few words."""
        return self.name


KINDS: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Register a kind under its name in the current process."""
    if kind.name in KINDS:
        raise ConfigError(f"kind {kind.name!r} already exists: choose another name.")
    KINDS[kind.name] = kind


def object_array(contents: list[Any]) -> NDArray[Any]:
    """Return values as an array of objects (U,), even if the values are sequences."""
    table = np.empty(len(contents), object)
    table[:] = contents
    return table


def mostly_match(texts: pa.Array, pattern: str) -> bool:
    """Return True if nearly all texts match a pattern."""
    return bool(pc.mean(pc.match_substring_regex(texts, pattern)).as_py() >= _NEARLY_ALL)


def parse_texts(texts: pa.ChunkedArray, parse: Callable[[str], Any], expected: str, remedy: str) -> list[Any]:
    """Parse each distinct text once.

    Missing texts stay None, and a text that cannot be parsed raises BadContentError.
    """
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
    """Return the codes of all rows and the distinct values, given the values of the ``present`` rows.

    Values are equal if their ``keys`` are equal. By default, the values themselves are the keys.
    """
    codes = np.full(rows, MISSING_CODE, np.int32)
    codes[present], first = content_codes(contents if keys is None else keys)
    return codes, contents[first]


def json_number(value: np.generic) -> Any:
    """Return a NumPy number as a Python number with the fewest digits that identify it: 0.1, not 0.10000000149."""
    return float(str(value)) if isinstance(value, np.floating) else value.item()


# -- Arrow lists -------------------------------------------------------------------------------------------------------
# Columns of lists: Arrow lists or, in untyped files, text such as `[0.5, 2]` or `["wifi", "pool"]`.


def as_lists(values: pa.ChunkedArray, item: str) -> pa.ChunkedArray:
    """Return a column as lists. Missing values stay missing. ``item`` describes the list items in error messages."""
    kind, types = values.type, pa.types
    if is_text(kind):
        lists = parse_texts(values, _list, f"a list of {item} such as '[1, 2]'", "Correct it.")
        try:
            return pa.chunked_array([pa.array(lists)])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise BadTypeError(f"expected lists of {item}, all of the same type") from error
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or types.is_null(kind)):
        raise BadTypeError(f"expected lists of {item}, or text such as '[1, 2]'")
    return values


def _list(text: str) -> list[Any]:
    content = json.loads(text)
    if not isinstance(content, list):
        raise ValueError
    return content
