"""Text -> numbers without loss: what a file without types, such as a CSV, has written down.

Text is read as numbers only where each of them, written again, is the same text. So 7 stays apart from 007, 12.1 from
12.10 and 1000 from 1e3, and an account of twenty digits keeps them all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pcmcnet.data.distinct import distinct

_ODD = r"^-0$|[a-df-z]"  # what others write as -0.0, Infinity or NaN


class Form(NamedTuple):
    """A way to write numbers: their type, and how to read texts by it, or None where one is written otherwise."""

    type: pa.DataType
    read: Callable[[pa.Array], pa.Array | None]


def _whole(text: pa.Array) -> pa.Array | None:
    return _same(text, pa.int64(), lambda numbers: numbers.cast(pa.string()))


def _id(text: pa.Array) -> pa.Array | None:
    """Read whole numbers; spaces around an id are no part of it."""
    return _whole(pc.utf8_trim_whitespace(text))


def _short(text: pa.Array) -> pa.Array | None:
    return _same(text, pa.float64(), lambda numbers: numbers.cast(pa.string()))


def _with_fraction(text: pa.Array) -> pa.Array | None:
    def write(numbers: pa.Array) -> pa.Array:
        return pc.replace_substring_regex(numbers.cast(pa.string()), r"^(-?\d+)$", r"\1.0")

    return _same(text, pa.float64(), write)


def _same(text: pa.Array, kind: pa.DataType, write: Callable[[pa.Array], pa.Array]) -> pa.Array | None:
    try:
        numbers = text.cast(kind)
    except pa.ArrowInvalid:
        return None
    odd = pa.types.is_floating(kind) and pc.any(pc.match_substring_regex(text, _ODD)).as_py()
    return numbers if write(numbers).equals(text) and not odd else None


Forms = tuple[Form, ...]
IDS = (Form(pa.int64(), _id),)
NAMES = (Form(pa.int64(), _whole),)
NUMBERS = (Form(pa.int64(), _whole), Form(pa.float64(), _short), Form(pa.float64(), _with_fraction))  # 3, 3.5 or 3.0


class Writing:
    """The forms that a column of text keeps to, as one part of it after the other is looked at."""

    def __init__(self, forms: Sequence[Form]) -> None:
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


def forms_for_copy(columns: Sequence[str], numbers: Collection[str], names: Collection[str]) -> dict[str, Forms]:
    """Return the forms of all columns but ``numbers``: names, such as ids, may be whole numbers alone."""
    return {name: NAMES if name in names else NUMBERS for name in columns if name not in numbers}


def as_numbers(table: pa.Table, forms: Mapping[str, Forms]) -> pa.Table:
    """Return a table whose columns of text are numbers where nothing is lost by it."""
    for place, name in enumerate(table.column_names):
        if name in forms:
            writing = Writing(forms[name])
            for chunk in table[name].chunks:
                writing.look(chunk)
            table = table.set_column(place, name, table[name].cast(writing.type))
    return table
