"""The distinct values of an Arrow column: numbered, named, parsed.

A category is named by its text, the same whatever file or library the table came from: whole numbers
without a fraction (1, not 1.0), one zero, truth values in lower case, midnight as a date.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pcmcnet.data.arrow_numbers import array_from_numpy, array_to_numpy, to_numpy

UNREADABLE = (pa.ArrowException, ValueError, OverflowError)  # what Arrow raises for types and values beyond its means
_WHOLE = re.compile(r"(-?\d+)\.0+")
_TRUTH = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}  # as CSV writers put them
_TRUTHS = {"false": 0.0, "true": 1.0}


class Distinct(NamedTuple):
    """``values[codes[r]]`` is the value of row r; the code of a gap is -1."""

    codes: NDArray[np.int32]
    values: pa.Array


def is_text(kind: pa.DataType) -> bool:
    """Tell a string type of any layout."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def distinct(column: pa.ChunkedArray) -> Distinct:
    """Number the distinct values. Raises ``UNREADABLE`` for a type whose values cannot be compared."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_null(kind):
        return Distinct(np.full(len(column), -1, np.int32), pa.array([], pa.string()))
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        column = pc.add(column.cast(kind), pa.scalar(0.0, kind))  # one zero, not two
    if pa.types.is_dictionary(column.type):
        encoded = _one_dictionary(column)
        if encoded.dictionary.null_count or _repeats(encoded.dictionary):
            return distinct(column.cast(kind))
        return _without_nulls(encoded)
    if pa.types.is_integer(kind) and len(column) and not column.null_count:
        return _distinct_by_runs(to_numpy(column))
    return _without_nulls(_one_dictionary(column.dictionary_encode()))


def _distinct_by_runs(values: NDArray[Any]) -> Distinct:
    """Look up one value of each run of equal ones: the rows of a set mostly lie together."""
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    heads = array_from_numpy(values[starts]).dictionary_encode()
    return Distinct(np.repeat(array_to_numpy(heads.indices), np.diff(starts, append=len(values))), heads.dictionary)


def _one_dictionary(column: pa.ChunkedArray) -> pa.DictionaryArray:
    column = column.unify_dictionaries()
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _repeats(values: pa.Array) -> bool:
    return bool(pc.count_distinct(values).as_py() < len(values))


def _without_nulls(encoded: pa.DictionaryArray) -> Distinct:
    indices = encoded.indices
    if indices.null_count:
        indices = pc.fill_null(indices.cast(pa.int64()), -1)
    return Distinct(array_to_numpy(indices).astype(np.int32, copy=False), encoded.dictionary)


def by_first_row(found: Distinct) -> Distinct:
    """Number anew in the order of first rows, leaving out values that no row has."""
    first = first_rows(found.codes, len(found.values))
    if (np.diff(first) > 0).all() and (first < len(found.codes)).all():
        return found
    order = np.argsort(first, kind="stable")[: int((first < len(found.codes)).sum())]
    new = np.full(len(first) + 1, -1, np.int32)  # the last entry is for the gaps' -1
    new[order] = np.arange(len(order), dtype=np.int32)
    return Distinct(new[found.codes], found.values.take(array_from_numpy(order)))


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
    if pa.types.is_timestamp(kind):
        return [None if text is None else _name_of_instant(text) for text in texts]
    return [None if text is None else _name_of_text(text) for text in texts]


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


def truths(values: pa.Array) -> NDArray[np.float64]:
    """Parse each text as a number, or as false or true in any case; NaN for a gap and for anything else."""
    return np.array([_TRUTHS.get(str(text).strip().lower(), _parse(text)) for text in values.to_pylist()], np.float64)


def _parse(text: Any) -> float:
    try:
        return float(text) if "_" not in text else np.nan  # Python would read 1_000
    except (TypeError, ValueError):
        return np.nan
