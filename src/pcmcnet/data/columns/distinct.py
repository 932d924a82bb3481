"""Distinct values of an Arrow column with their codes and names, conversion of text to numbers, and hashes of ids.

The name of a category is its value as text, in the same form for all files and libraries: integers without a fraction
(1, not 1.0), 0 without a sign, booleans in lower case, and timestamps at midnight as dates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pcmcnet.data.columns.arrays import array_from_numpy, array_to_numpy, to_numpy

UNREADABLE = (pa.ArrowException, ValueError, OverflowError)  # raised by Arrow for unsupported types and values
_WHOLE = re.compile(r"(-?\d+)\.0+")
_TRUTH = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}  # spellings of CSV writers
_TRUTHS = {"false": 0.0, "true": 1.0}


class DistinctValues(NamedTuple):
    """Distinct values and row codes: row r has the value ``values[codes[r]]``, or no value if its code is -1."""

    codes: NDArray[np.int32]
    values: pa.Array


def is_text(kind: pa.DataType) -> bool:
    """Return True for string types of any layout."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column's values, which for a dictionary type is the type of the dictionary's values."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def distinct(column: pa.ChunkedArray) -> DistinctValues:
    """Return the distinct values of a column, or raise an ``UNREADABLE`` exception if they cannot be compared."""
    kind = value_type(column.type)
    if pa.types.is_null(kind):
        return DistinctValues(np.full(len(column), -1, np.int32), pa.nulls(0, pa.string()))
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        zero = array_from_numpy(np.zeros(1, kind.to_pandas_dtype()))[0]
        column = pc.add(column.cast(kind), zero)  # turns -0.0 into 0.0
    if pa.types.is_dictionary(column.type):
        encoded = _one_dictionary(column)
        words = encoded.dictionary
        if words.null_count or pc.count_distinct(words).as_py() < len(words):
            return distinct(column.cast(kind))
        return _without_nulls(encoded)
    if pa.types.is_integer(kind) and len(column) and not column.null_count:
        # look up one value of each run of equal values: the rows of a set are mostly adjacent
        values = to_numpy(column)
        starts = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
        heads = array_from_numpy(values[starts]).dictionary_encode()
        return DistinctValues(
            np.repeat(array_to_numpy(heads.indices), np.diff(starts, append=len(values))), heads.dictionary
        )
    return _without_nulls(_one_dictionary(column.dictionary_encode()))


def _one_dictionary(column: pa.ChunkedArray) -> pa.DictionaryArray:
    column = column.unify_dictionaries()
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _without_nulls(encoded: pa.DictionaryArray) -> DistinctValues:
    indices = encoded.indices
    if indices.null_count:
        indices = pc.fill_null(indices.cast(pa.int64()), -1)
    return DistinctValues(array_to_numpy(indices).astype(np.int32, copy=False), encoded.dictionary)


def renumber_by_first_row(column: DistinctValues) -> DistinctValues:
    """Renumber distinct values in the order of their first rows, and leave out unused values."""
    codes, values = column
    first = first_rows(codes, len(values))
    if (np.diff(first) > 0).all() and (first < len(codes)).all():
        return column
    order = np.argsort(first, kind="stable")[: int((first < len(codes)).sum())]
    new = np.full(len(first) + 1, -1, np.int32)  # the last entry is for code -1: missing
    new[order] = np.arange(len(order), dtype=np.int32)
    return DistinctValues(new[codes], values.take(array_from_numpy(order)))


def first_rows(codes: NDArray[np.int32], n: int) -> NDArray[np.int64]:
    """Return the first row of each code, (n,). The entry of an unused code is the number of rows."""
    first = np.full(n + 1, len(codes))  # the last entry is for code -1: missing
    np.minimum.at(first, codes, np.arange(len(codes)))
    return first[:n]


def names(values: pa.Array) -> list[str | None]:
    """Return the text of each value (None if missing).

    Raise an ``UNREADABLE`` exception for a type without a text form.
    """
    kind = values.type
    if pa.types.is_floating(kind):
        return [_name_of_float(value) for value in values.to_numpy(zero_copy_only=False)]
    texts: list[str | None] = (values if is_text(kind) else values.cast(pa.string())).to_pylist()
    name = _name_of_instant if pa.types.is_timestamp(kind) else _name_of_text
    return [None if text is None else name(text) for text in texts]


def _name_of_float(value: np.floating[Any]) -> str | None:
    number = float(value)
    if np.isnan(number):
        return None
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else str(value)


def _name_of_instant(text: str) -> str:
    """Remove trailing zeros of seconds and the time 00:00:00, because programs write timestamps in different ways."""
    zone = "Z" if text.endswith("Z") else ""
    text = text.removesuffix("Z")
    if "." in text:
        text = text.rstrip("0").removesuffix(".")
    return text.removesuffix(" 00:00:00") + zone


def _name_of_text(text: str) -> str:
    whole = _WHOLE.fullmatch(text)
    if whole:
        return "0" if whole[1] == "-0" else whole[1]
    return _TRUTH.get(text, text)


def numbers(values: pa.Array) -> NDArray[np.float64]:
    """Return the number written in each text, or NaN for missing values and text that is not a number."""
    return np.array([_parse(text) for text in values.to_pylist()], dtype=np.float64)


def parse_flags(values: pa.Array) -> NDArray[np.float64]:
    """Convert strings to numbers: 0 for false, 1 for true, and NaN for missing values and other text."""
    return np.array([_TRUTHS.get(str(text).strip().lower(), _parse(text)) for text in values.to_pylist()], np.float64)


def _parse(text: Any) -> float:
    try:
        return float(text) if "_" not in text else np.nan  # Python accepts 1_000
    except (TypeError, ValueError):
        return np.nan


# -- Text to numbers ---------------------------------------------------------------------------------------------------
# Lossless conversion of text, for files without types such as CSV. A column becomes numeric only if every number,
# written again, gives the same text. So 7 differs from 007, 12.1 from 12.10 and 1000 from 1e3, and an account number of
# twenty digits keeps all digits.

_AMBIGUOUS = r"^-0$|[a-df-z]"  # negative zero, infinity and NaN, which programs write in different ways


class NumberFormat(NamedTuple):
    """A format in which numbers are written as text."""

    type: pa.DataType
    read: Callable[[pa.Array], pa.Array | None]  # returns None if a text is written in another way


def _read_lossless(kind: pa.DataType, text: pa.Array, *, fraction: bool = False) -> pa.Array | None:
    """Return the numbers in a text column, or None if writing the numbers does not reproduce the text.

    If ``fraction`` is True, integers must be written with a final .0.
    """
    try:
        numbers = text.cast(kind)
    except pa.ArrowInvalid:
        return None
    written = numbers.cast(pa.string())
    if fraction:
        written = pc.replace_substring_regex(written, r"^(-?\d+)$", r"\1.0")
    ambiguous = pa.types.is_floating(kind) and pc.any(pc.match_substring_regex(text, _AMBIGUOUS)).as_py()
    return numbers if written.equals(text) and not ambiguous else None


_read_integers, _read_floats = partial(_read_lossless, pa.int64()), partial(_read_lossless, pa.float64())


def _read_ids(text: pa.Array) -> pa.Array | None:
    """Return ids as integers, ignoring spaces around them, or None if an id is not an integer."""
    return _read_integers(pc.utf8_trim_whitespace(text))


NumberFormats = tuple[NumberFormat, ...]
ID_FORMATS = (NumberFormat(pa.int64(), _read_ids),)
NAME_FORMATS = (NumberFormat(pa.int64(), _read_integers),)
NUMBER_FORMATS = (
    *NAME_FORMATS,
    NumberFormat(pa.float64(), _read_floats),
    NumberFormat(pa.float64(), partial(_read_floats, fraction=True)),
)  # 3, 3.5 or 3.0


class FormatDetector:
    """Finds the number formats that fit a text column, which is read chunk by chunk."""

    def __init__(self, formats: Sequence[NumberFormat]) -> None:
        self.formats = list(formats)

    def update(self, text: pa.Array) -> None:
        """Drop the formats that do not fit a chunk of the column."""
        self.formats = [form for form in self.formats if form.read(text) is not None]

    @property
    def type(self) -> pa.DataType:
        """Type of the numbers, or the text type if no format fits."""
        return self.formats[0].type if self.formats else pa.string()


def as_ids(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return ids as integers if all are written as integers, otherwise unchanged. Small integers become int32."""
    codes, values = distinct(column)
    numbers = _read_ids(values.cast(pa.string()))
    if numbers is None:
        return column
    if len(numbers) and pc.max(pc.abs(numbers)).as_py() < 2**30:
        numbers = numbers.cast(pa.int32())
    is_missing = codes < 0
    return pa.chunked_array([numbers.take(array_from_numpy(codes, is_missing if is_missing.any() else None))])


def formats_for_copy(
    columns: Sequence[str], numbers: Collection[str], names: Collection[str]
) -> dict[str, NumberFormats]:
    """Return the number formats allowed for each column not in ``numbers``.

    Columns in ``names`` may hold only integers.
    """
    return {name: NAME_FORMATS if name in names else NUMBER_FORMATS for name in columns if name not in numbers}


def as_numbers(table: pa.Table, formats: Mapping[str, NumberFormats]) -> pa.Table:
    """Convert each text column to numbers if one of the column's ``formats`` fits all its values."""
    for position, name in enumerate(table.column_names):
        if name in formats:
            detector = FormatDetector(formats[name])
            for chunk in table[name].chunks:
                detector.update(chunk)
            table = table.set_column(position, name, table[name].cast(detector.type))
    return table


# -- Id hashes ---------------------------------------------------------------------------------------------------------
# A 64-bit key for each id, the same in every file and every run, and random draws derived from it. Equal ids have equal
# keys, so the key alone decides which partition a row belongs to and, combined with a seed, which part of a split its
# set belongs to; no set must be remembered. Numbers are hashed by the finaliser of SplitMix64 (Steele, Lea and Flood,
# 2014), other ids by the BLAKE2b hash of their text.

Keys = NDArray[np.uint64]


def keys_of(ids: pa.Array) -> Keys:
    """Return the hash keys of ids, none of which may be missing. Unsupported types raise ``UNREADABLE`` exceptions."""
    if pa.types.is_dictionary(ids.type):
        ids = ids.cast(ids.type.value_type)
    if pa.types.is_integer(ids.type):
        return mix_bits(ids.to_numpy(zero_copy_only=False).astype(np.int64, copy=False).view(np.uint64))
    if pa.types.is_floating(ids.type):
        numbers = ids.to_numpy(zero_copy_only=False).astype(np.float64) + 0.0  # turns -0.0 into 0.0
        return mix_bits(numbers.view(np.uint64))
    codes, values = distinct(pa.chunked_array([ids]))
    return text_keys(values.cast(pa.string()).to_pylist())[codes]


def text_keys(words: list[str]) -> Keys:
    """Return the hash keys of texts."""
    digests = b"".join(blake2b(word.encode(), digest_size=8).digest() for word in words)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def mix_bits(numbers: Keys) -> Keys:
    """Return the SplitMix64 hash of each integer."""
    with np.errstate(over="ignore"):
        z = numbers + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform_draws(keys: Keys, seed: int) -> NDArray[np.float64]:
    """Return a pseudorandom number in [0, 1) for each key. Equal keys and seeds give equal numbers."""
    salt = mix_bits(np.array([seed % 2**64], np.uint64))
    return (mix_bits(keys ^ salt) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def partition_numbers(keys: Keys, count: int) -> NDArray[np.int64]:
    """Return the partition number of each key, from 0 to ``count`` - 1."""
    return ((keys >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(np.int64)


def similar_values(values: Sequence[str | None]) -> str | None:
    """Return a warning about values that differ only in blanks or capital letters, or None.

    Examples
    --------
    >>> similar_values(["car", " train", "train"])
    "' train' and 'train' differ only in blanks or capital letters, so they count as different values"
    """
    first: dict[str, str] = {}
    for value in values:
        if value is not None:
            plain = " ".join(value.split()).casefold()
            if first.setdefault(plain, value) != value:
                one, other = first[plain], value
                return (
                    f"{one!r} and {other!r} differ only in blanks or capital letters, so they count as different values"
                )
    return None
