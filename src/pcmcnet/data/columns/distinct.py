"""The distinct values of an Arrow column: numbered, named, parsed.

A category is named by its text, the same whatever file or library the table came from: whole numbers
without a fraction (1, not 1.0), one zero, truth values in lower case, midnight as a date.
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

UNREADABLE = (pa.ArrowException, ValueError, OverflowError)  # what Arrow raises for types and values beyond its means
_WHOLE = re.compile(r"(-?\d+)\.0+")
_TRUTH = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}  # as CSV writers put them
_TRUTHS = {"false": 0.0, "true": 1.0}


class DistinctValues(NamedTuple):
    """``values[codes[r]]`` is the value of row r; the code of a gap is -1."""

    codes: NDArray[np.int32]
    values: pa.Array


def is_text(kind: pa.DataType) -> bool:
    """Tell a string type of any layout."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values, also where a column holds them as codes into a dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def distinct(column: pa.ChunkedArray) -> DistinctValues:
    """Number the distinct values. Raises ``UNREADABLE`` for a type whose values cannot be compared."""
    kind = value_type(column.type)
    if pa.types.is_null(kind):
        return DistinctValues(np.full(len(column), -1, np.int32), pa.array([], pa.string()))
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        column = pc.add(column.cast(kind), pa.scalar(0.0, kind))  # one zero, not two
    if pa.types.is_dictionary(column.type):
        encoded = _one_dictionary(column)
        words = encoded.dictionary
        if words.null_count or pc.count_distinct(words).as_py() < len(words):
            return distinct(column.cast(kind))
        return _without_nulls(encoded)
    if pa.types.is_integer(kind) and len(column) and not column.null_count:
        # look up one value of each run of equal ones: the rows of a set mostly lie together
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


def renumber_by_first_row(found: DistinctValues) -> DistinctValues:
    """Number anew in the order of first rows, leaving out values that no row has."""
    first = first_rows(found.codes, len(found.values))
    if (np.diff(first) > 0).all() and (first < len(found.codes)).all():
        return found
    order = np.argsort(first, kind="stable")[: int((first < len(found.codes)).sum())]
    new = np.full(len(first) + 1, -1, np.int32)  # the last entry is for the gaps' -1
    new[order] = np.arange(len(order), dtype=np.int32)
    return DistinctValues(new[found.codes], found.values.take(array_from_numpy(order)))


def first_rows(codes: NDArray[np.int32], n: int) -> NDArray[np.int64]:
    """(n,) the first row with each code, or the number of rows for a code without one."""
    first = np.full(n + 1, len(codes))  # the last entry is for the gaps' -1
    np.minimum.at(first, codes, np.arange(len(codes)))
    return first[:n]


def names(values: pa.Array) -> list[str | None]:
    """Name each value by its text; None for a gap. Raises ``UNREADABLE`` for a type without text form."""
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
    """Leave out a fraction of 0 and midnight, which writers spell each in their own way."""
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
    """Parse each text; NaN for a gap and where it is no number."""
    return np.array([_parse(text) for text in values.to_pylist()], dtype=np.float64)


def parse_flags(values: pa.Array) -> NDArray[np.float64]:
    """Parse each text as a number, or as false or true in any case; NaN for a gap and for anything else."""
    return np.array([_TRUTHS.get(str(text).strip().lower(), _parse(text)) for text in values.to_pylist()], np.float64)


def _parse(text: Any) -> float:
    try:
        return float(text) if "_" not in text else np.nan  # Python would read 1_000
    except (TypeError, ValueError):
        return np.nan


# -- Text to numbers ---------------------------------------------------------------------------------------------------
# What a file without types, such as a CSV, has written down, without loss.
# Text is read as numbers only where each of them, written again, is the same text. So 7 stays apart from 007, 12.1 from
# 12.10 and 1000 from 1e3, and an account of twenty digits keeps them all.

_ODD = r"^-0$|[a-df-z]"  # what others write as -0.0, Infinity or NaN


class NumberFormat(NamedTuple):
    """A way to write numbers: their type, and how to read texts by it, or None where one is written otherwise."""

    type: pa.DataType
    read: Callable[[pa.Array], pa.Array | None]


def _read_as(kind: pa.DataType, text: pa.Array, *, fraction: bool = False) -> pa.Array | None:
    """Read numbers of a type that, written again, are the same text; whole ones with .0 for a ``fraction``."""
    try:
        numbers = text.cast(kind)
    except pa.ArrowInvalid:
        return None
    written = numbers.cast(pa.string())
    if fraction:
        written = pc.replace_substring_regex(written, r"^(-?\d+)$", r"\1.0")
    odd = pa.types.is_floating(kind) and pc.any(pc.match_substring_regex(text, _ODD)).as_py()
    return numbers if written.equals(text) and not odd else None


_whole, _short = partial(_read_as, pa.int64()), partial(_read_as, pa.float64())


def _id(text: pa.Array) -> pa.Array | None:
    """Read whole numbers; spaces around an id are no part of it."""
    return _whole(pc.utf8_trim_whitespace(text))


NumberFormats = tuple[NumberFormat, ...]
ID_FORMATS = (NumberFormat(pa.int64(), _id),)
NAME_FORMATS = (NumberFormat(pa.int64(), _whole),)
NUMBER_FORMATS = (
    *NAME_FORMATS,
    NumberFormat(pa.float64(), _short),
    NumberFormat(pa.float64(), partial(_short, fraction=True)),
)  # 3, 3.5 or 3.0


class FormatDetector:
    """The forms that a column of text keeps to, as one part of it after the other is looked at."""

    def __init__(self, forms: Sequence[NumberFormat]) -> None:
        self.forms = list(forms)

    def look(self, text: pa.Array) -> None:
        """Give up the forms that some text is not written in."""
        self.forms = [form for form in self.forms if form.read(text) is not None]

    @property
    def type(self) -> pa.DataType:
        """Type of the numbers, or text where no form is left."""
        return self.forms[0].type if self.forms else pa.string()


def as_ids(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return ids as whole numbers, of no more bits than a small one needs, where all are written as such."""
    codes, values = distinct(column)
    numbers = _id(values.cast(pa.string()))
    if numbers is None:
        return column
    if len(numbers) and pc.max(pc.abs(numbers)).as_py() < 2**30:
        numbers = numbers.cast(pa.int32())
    gaps = codes < 0
    return pa.chunked_array([numbers.take(pa.array(codes, mask=gaps if gaps.any() else None))])


def forms_for_copy(
    columns: Sequence[str], numbers: Collection[str], names: Collection[str]
) -> dict[str, NumberFormats]:
    """Return the forms of all columns but ``numbers``: names, such as ids, may be whole numbers alone."""
    return {name: NAME_FORMATS if name in names else NUMBER_FORMATS for name in columns if name not in numbers}


def as_numbers(table: pa.Table, forms: Mapping[str, NumberFormats]) -> pa.Table:
    """Return a table whose columns of text are numbers where nothing is lost by it."""
    for place, name in enumerate(table.column_names):
        if name in forms:
            writing = FormatDetector(forms[name])
            for chunk in table[name].chunks:
                writing.look(chunk)
            table = table.set_column(place, name, table[name].cast(writing.type))
    return table


# -- Id hashes ---------------------------------------------------------------------------------------------------------
# A number of 64 bits for each id, the same in every file and every run, and random draws made from it. Equal ids have
# equal keys, so a key says which pile a row goes to, and, mixed with a seed, which part of a split its set falls into:
# nothing has to be remembered of sets seen before. Numbers are mixed by the finaliser of SplitMix64 (Steele, Lea and
# Flood, 2014); other ids are hashed by their text.

Keys = NDArray[np.uint64]


def keys_of(ids: pa.Array) -> Keys:
    """Return the keys of ids without gaps. Raises ``distinct.UNREADABLE`` for a type whose values have no text."""
    if pa.types.is_dictionary(ids.type):
        ids = ids.cast(ids.type.value_type)
    if pa.types.is_integer(ids.type):
        return mix_bits(ids.to_numpy(zero_copy_only=False).astype(np.int64, copy=False).view(np.uint64))
    if pa.types.is_floating(ids.type):
        numbers = ids.to_numpy(zero_copy_only=False).astype(np.float64) + 0.0  # one zero, not two
        return mix_bits(numbers.view(np.uint64))
    codes, values = distinct(pa.chunked_array([ids]))
    return text_keys(values.cast(pa.string()).to_pylist())[codes]


def text_keys(words: list[str]) -> Keys:
    """Return the keys of texts."""
    digests = b"".join(blake2b(word.encode(), digest_size=8).digest() for word in words)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def mix_bits(numbers: Keys) -> Keys:
    """Spread whole numbers over all of 64 bits."""
    with np.errstate(over="ignore"):
        z = numbers + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform_draws(keys: Keys, seed: int) -> NDArray[np.float64]:
    """Draw a number from 0 to 1 for each key, the same whenever the seed is."""
    salt = mix_bits(np.array([seed % 2**64], np.uint64))
    return (mix_bits(keys ^ salt) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def partition_numbers(keys: Keys, count: int) -> NDArray[np.int64]:
    """Return which of so many piles each key belongs to."""
    return ((keys >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(np.int64)
