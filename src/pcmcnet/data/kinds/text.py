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
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.data.columns import GAP, ContentKind, number_contents
from pcmcnet.data.distinct import is_text
from pcmcnet.data.kinds.errors import BadTypeError

BUCKETS = 4096
LONGEST = 64  # words of a text
_WORD = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class TextCode:
    """Standardisation of the numbers in texts, once bent; ``scale`` 0 where they were all one, or there were none."""

    name: str
    mean: float
    scale: float
    kind: ClassVar[ContentKind] = "text"
    dtype: ClassVar[type[np.generic]] = np.float32

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
        rows = [[place.setdefault(word, len(place) + 1) for word in words(text)] for text in table]
        known = np.zeros((len(place) + 1, 4), np.float32)
        for word, k in place.items():
            known[k] = self._numbers(word)
        at = np.zeros((len(rows), max(map(len, rows), default=0) or 1), np.int64)
        for out, row in zip(at, rows, strict=True):
            out[: len(row)] = row
        return known[at]

    def _numbers(self, word: str) -> tuple[float, ...]:
        if not word[0].isdecimal():
            return (*(bucket(part) for part in (word, f"{word[:3]}-", f"-{word[-3:]}")), 0.0)
        digits = word.partition(".")[0]
        parts = (f"{len(digits)}:{digits[:n]}" for n in range(3))  # all digits would be learnt by heart
        value = (_bent(word) - self.mean) / self.scale if self.scale > 0 else 0.0
        return (*map(bucket, parts), value)

    def sound(self) -> bool:
        """Tell whether the values are such as were saved."""
        numbers = all(isinstance(x, int | float) and abs(x) < 1e300 for x in (self.mean, self.scale))
        return numbers and self.scale >= 0


def words(text: str) -> list[str]:
    """Cut a text into words, numbers and signs, the first of them.

    Examples
    --------
    >>> words("Non-stop for 1204.50 EUR!")
    ['non', '-', 'stop', 'for', '1204.50', 'eur', '!']
    """
    return [match[0] for match, _ in zip(_WORD.finditer(text.lower()), range(LONGEST), strict=False)]


def numbers_in(table: NDArray[Any]) -> NDArray[np.float64]:
    """Return the numbers in texts, bent."""
    return np.array([_bent(word) for text in table for word in words(text) if word[0].isdecimal()], np.float64)


def _bent(number: str) -> float:
    return math.asinh(min(float(number), 1e30))


def bucket(part: str) -> int:
    """Hash a part of a word to 1 .. BUCKETS, the same in every process."""
    return zlib.crc32(part.encode()) % BUCKETS + 1


def read_texts(values: pa.ChunkedArray) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Read texts: (n,) codes and (U,) distinct texts, as they are written."""
    if not (is_text(values.type) or pa.types.is_null(values.type)):
        raise BadTypeError("expected text")
    texts = values.to_pylist()
    codes, found = np.full(len(texts), GAP, np.int32), np.empty(len(texts), object)
    found[:] = texts
    present = np.array([text is not None for text in texts], np.bool_)
    codes[present], first = number_contents(found[present])
    return codes, found[present][first]
