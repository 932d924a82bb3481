"""Texts: words by hashes of themselves and of their ends, so that no vocabulary is kept and no model is downloaded.

A text is cut into words, numbers and signs, in lower case, of which the first 64 count. Of each a network gets 4
numbers: three hashes into ``BUCKETS`` (1.. of them; 0 is nothing) and a value.

    a word     itself, its first three letters, its last three letters               0
    a number   its length alone, with its first digit, with its first two digits     asinh of it, standardised

So words never seen share what their beginnings and endings have in common with known ones, and numbers near each
other share their leading digits and differ little in value. Texts that differ by white space or case alone are the
same to a network; they are kept as they are written, for encoders to which they are not.
"""

from __future__ import annotations

import math
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pcmcnet.data.columns.distinct import is_text
from pcmcnet.data.kinds.kind import (
    BadTypeError,
    Kind,
    NewContents,
    ReadContents,
    RowMoments,
    ScaleCode,
    number_distinct,
    object_array,
    register,
)

if TYPE_CHECKING:
    from torch import nn

BUCKETS = 4096
MAX_WORDS = 64  # words of a text
_MANY = 20  # more distinct texts than this are not the names of a few categories
_WORDS = 4  # more words than names mostly have
_WORD = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class TextCode(ScaleCode):
    """Standardisation of the numbers in texts, once bent."""

    kind: ClassVar[str] = "text"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what a network gets for one text, at least; longer ones have more rows."""
        return (1, 4)

    @classmethod
    def learn(cls, name: str, table: NDArray[Any]) -> TextCode:
        """Learn the mean and the scale of numbers."""
        values = numbers_in(table)
        return cls(name, float(values.mean()), float(values.std())) if values.size else cls(name, 0.0, 0.0)

    def prepare(self, table: NDArray[Any]) -> NDArray[np.float32]:
        """(U,) texts -> (U, T, 4) hashes and values; T is the number of words of the longest."""
        place: dict[str, int] = {}
        rows = [[place.setdefault(word, len(place) + 1) for word in split_words(text)] for text in table]
        known = np.zeros((len(place) + 1, 4), np.float32)
        for word, k in place.items():
            known[k] = self._numbers(word)
        at = np.zeros((len(rows), max(map(len, rows), default=0) or 1), np.int64)
        for out, row in zip(at, rows, strict=True):
            out[: len(row)] = row
        return known[at]

    def _numbers(self, word: str) -> tuple[float, ...]:
        if not word[0].isdecimal():
            return (*(hash_bucket(part) for part in (word, f"{word[:3]}-", f"-{word[-3:]}")), 0.0)
        digits = word.partition(".")[0]
        parts = (f"{len(digits)}:{digits[:n]}" for n in range(3))  # all digits would be learnt by heart
        value = (_bent(word) - self.mean) / self.scale if self.scale > 0 else 0.0
        return (*map(hash_bucket, parts), value)


def split_words(text: str) -> list[str]:
    """Cut a text into words, numbers and signs, the first of them.

    Examples
    --------
    >>> split_words("Non-stop for 1204.50 EUR!")
    ['non', '-', 'stop', 'for', '1204.50', 'eur', '!']
    """
    return [match[0] for match, _ in zip(_WORD.finditer(text.lower()), range(MAX_WORDS), strict=False)]


def numbers_in(table: NDArray[Any]) -> NDArray[np.float64]:
    """Return the numbers in texts, bent."""
    return np.array([_bent(word) for text in table for word in split_words(text) if word[0].isdecimal()], np.float64)


def _bent(number: str) -> float:
    return math.asinh(min(float(number), 1e30))


def hash_bucket(part: str) -> int:
    """Hash a part of a word to 1 .. BUCKETS, the same in every process."""
    return zlib.crc32(part.encode()) % BUCKETS + 1


class _TextLearner:
    """Count, mean and sum of squares about it of the numbers in distinct texts, and the least and the largest."""

    def __init__(self) -> None:
        self.new, self.moments = NewContents(), RowMoments()
        self.ends = (np.inf, -np.inf)

    def add(self, table: NDArray[Any]) -> None:
        numbers = numbers_in(table[self.new.are_new([text.encode() for text in table])])
        self.moments.add(numbers[:, None])
        self.ends = min(self.ends[0], *numbers.tolist(), np.inf), max(self.ends[1], *numbers.tolist(), -np.inf)

    def code(self, name: str) -> TextCode:
        if not self.moments.count:
            return TextCode(name, 0.0, 0.0)
        scale = 0.0 if self.ends[0] == self.ends[1] else float(self.moments.spread[0])
        return TextCode(name, float(self.moments.mean[0]), scale)


class TextKind(Kind):
    """Texts."""

    name, code, stored = "text", TextCode, pa.string()
    is_name = True
    learner_class = _TextLearner

    def read(self, values: pa.ChunkedArray, folder: Path | None = None) -> ReadContents:
        """Read texts: (n,) codes and (U,) distinct texts, as they are written."""
        if not (is_text(values.type) or pa.types.is_null(values.type)):
            raise BadTypeError("expected text")
        texts = values.to_pylist()
        present = np.array([text is not None for text in texts], np.bool_)
        return number_distinct(object_array([text for text in texts if text is not None]), present, len(texts))

    def recognise(self, column: str, texts: pa.Array) -> tuple[str, str] | None:
        """Know texts by their words, of which names have few."""
        count = pc.count_substring_regex(texts, r"\S+").to_numpy(zero_copy_only=False).mean()
        hint = f"declare kinds={{{column!r}: 'text'}} to read them as such"
        return (f"texts of {count:.0f} words on average", hint) if len(texts) > _MANY and count >= _WORDS else None

    def prepared_bytes(self, table: NDArray[Any]) -> int:
        """Return the most bytes of the longest text."""
        return 16 * min(max(map(len, table)) // 2 + 1, MAX_WORDS)  # no more words than every other letter

    def encoder(self, code: Any) -> nn.Module:
        """Embed words, look at three at a time, and pool."""
        from pcmcnet.data.kinds.networks import TextEncoder

        return TextEncoder()

    def worth(self, code: Any) -> nn.Module:
        """Sum the worths of words and numbers."""
        from pcmcnet.data.kinds.networks import TextPartWorth

        return TextPartWorth()

    def json_schema(self, size: int | None) -> dict[str, Any]:
        """Return the schema of a text."""
        return {"type": "string", "description": "A text."}


register(TextKind())
