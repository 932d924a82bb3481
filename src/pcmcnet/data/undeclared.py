"""Text of which nobody has said what it is: it becomes categories, unless it plainly is something else.

    nearly all plain numbers, a few other words        refused: mistakes
    nearly all numbers, many distinct ones             refused: $12.50, 5%, 1,200, or 12.5 held as text
    numbers, few distinct ones; dates; lists; texts    categories, and the log says what else they could be

Numbers with leading zeros, such as postcodes, are names. Columns listed in ``categorical``, and those whose type says
so (dictionaries), are not judged.
"""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pcmcnet.data.distinct import numbers
from pcmcnet.errors import SchemaError

log = logging.getLogger("pcmcnet")

_FEW = 0.1  # up to this share of text among numbers is taken for mistakes, not for categories
_MANY = 20  # more distinct numbers than this are prices rather than codes
_WORDS = 4  # more words than names mostly have: a text

_SIGN = r"(?:[$€£¥₹]|USD|EUR|GBP|JPY|CHF|CAD|AUD|CNY|INR)"
_DIGITS = r"(?:\d+(?:\.\d*)?|\.\d+|\d{1,3}(?:[,' \x{a0}\x{202f}]\d{3})+(?:\.\d+)?|\d+,\d+|\d{1,3}(?:\.\d{3})+(?:,\d+)?)"
_NUMBER = rf"^\s*[-+]?\s*{_SIGN}?\s*[-+]?{_DIGITS}\s*(?:%|{_SIGN})?\s*$"
_NAME = r"^0\d+$"
_INSTANT = r"^\s*\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.*)?$"
_LIST = r"^\s*\[.*\]\s*$"


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
    known = len(texts)
    if not known:
        return None
    if _match(texts, _INSTANT).sum() >= (1 - _FEW) * known:
        return "dates or times", f"declare kinds={{{column!r}: 'datetime'}} to read them as such"
    if _match(texts, _LIST).sum() >= (1 - _FEW) * known:
        return "lists", f"declare kinds={{{column!r}: 'multi'}} for lists of names, or 'vector' for lists of numbers"
    words = pc.count_substring_regex(texts, r"\S+").to_numpy(zero_copy_only=False).mean()
    if known > _MANY and words >= _WORDS:
        return f"texts of {words:.0f} words on average", f"declare kinds={{{column!r}: 'text'}} to read them as such"
    return None


def _match(texts: pa.Array, pattern: str) -> NDArray[np.bool_]:
    return np.asarray(pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False), np.bool_)
