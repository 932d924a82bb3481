"""Which columns are numbers, and which are categories: as declared, or else by their types and their texts.

A column is one of categories if its type is a dictionary or boolean, and one of numbers if its type is. Text becomes
categories, unless it plainly is something else:

    nearly all plain numbers, a few other words        refused: mistakes
    nearly all numbers, many distinct ones             refused: $12.50, 5%, 1,200, or 12.5 held as text
    numbers, few distinct ones; dates; lists; texts    categories, and the log says what else they could be

Numbers with leading zeros, such as postcodes, are names.
"""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pcmcnet.data.column_reader import CORRECT, Reader
from pcmcnet.data.distinct import is_text, numbers
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.schema import Schema
from pcmcnet.errors import SchemaError

log = logging.getLogger("pcmcnet")

AS_OTHERS = "expected a number as in the other rows"
_FEW = 0.1  # up to this share of text among numbers is taken for mistakes, not for categories
_MANY = 20  # more distinct numbers than this are prices rather than codes

_SIGN = r"(?:[$€£¥₹]|USD|EUR|GBP|JPY|CHF|CAD|AUD|CNY|INR)"
_DIGITS = r"(?:\d+(?:\.\d*)?|\.\d+|\d{1,3}(?:[,' \x{a0}\x{202f}]\d{3})+(?:\.\d+)?|\d+,\d+|\d{1,3}(?:\.\d{3})+(?:,\d+)?)"
_NUMBER = rf"^\s*[-+]?\s*{_SIGN}?\s*[-+]?{_DIGITS}\s*(?:%|{_SIGN})?\s*$"
_NAME = r"^0\d+$"


def categorical_inputs(reader: Reader, schema: Schema) -> tuple[str, ...]:
    """Return which inputs of models are categories."""
    if schema.categorical is not None:
        return schema.categorical
    inputs = [c for c in (*schema.individual, *schema.table_features) if c not in schema.kinds]
    return tuple(c for c in inputs if is_categorical(reader, c))


def is_categorical(reader: Reader, column: str) -> bool:
    """Tell the default kind of a column: dictionaries, booleans and text are categories, unless text spoils numbers."""
    kind = reader.columns[column].type
    if pa.types.is_dictionary(kind) and not reader.dictionaries_are_text:
        return True
    if not (pa.types.is_dictionary(kind) or is_text(kind)):
        return bool(pa.types.is_boolean(kind))
    codes, values = reader.distinct_values(column)
    mistakes = mistaken_text(column, values, np.bincount(codes + 1, minlength=len(values) + 1)[1:])  # without gaps
    reader.refuse_text(column, codes, values, mistakes, AS_OTHERS, CORRECT)
    return True


def mistaken_text(column: str, values: pa.Array, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which distinct texts, of which there are so many each, are mistakes among numbers.

    Raises
    ------
    SchemaError
        When the column is one of numbers held as text.
    """
    none, total = np.zeros(len(values), np.bool_), int(counts.sum())
    spoils = ~np.isfinite(numbers(values))
    if spoils.any() and not spoils.all() and counts[spoils].sum() <= _FEW * total:
        return spoils
    texts = pa.array(values.to_pylist(), pa.string())  # old releases of Arrow cannot cast views
    written = ~spoils | _match(texts, _NUMBER)
    share = counts[written].sum() / max(total, 1)
    if written.any() and share >= 1 - _FEW and not _match(texts, _NAME).any():
        _say_numbers(column, texts, written, share)
    elif (hint := _other_kind(column, texts)) is not None:
        what, remedy = hint
        log.warning(
            "column %r holds %s, and is taken as %d categories: %s, or list it in categorical.",
            column,
            what,
            len(values),
            remedy,
        )
    return none


def _say_numbers(column: str, texts: pa.Array, written: NDArray[np.bool_], share: float) -> None:
    """Refuse many distinct numbers held as text, and say of few that they are taken as categories."""
    example = texts[int(np.argmax(written))].as_py()
    count = int(written.sum())
    if count > _MANY:
        raise SchemaError(
            f"column {column!r}: expected numbers, got numbers held as text such as {example!r}; {share:.0%} of its "
            f"values, {count} distinct ones, each of which would be a category. Store them as plain numbers (1234.5 "
            f"for '$1,234.50', 0.05 for '5%'), or list the column in categorical."
        )
    log.warning(
        "column %r holds numbers as text, such as %r, and is taken as %d categories: store it as numbers if that is "
        "what they are, or list it in categorical.",
        column,
        example,
        len(texts),
    )


def _other_kind(column: str, texts: pa.Array) -> tuple[str, str] | None:
    """Say what else text may be, and how to declare it; None for names."""
    hints = (kind.recognise(column, texts) for kind in KINDS.values())
    return next(filter(None, hints), None) if len(texts) else None


def _match(texts: pa.Array, pattern: str) -> NDArray[np.bool_]:
    return np.asarray(pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False), np.bool_)
