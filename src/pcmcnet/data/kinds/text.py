"""Texts, encoded as hashes of words and of their beginnings and endings.

No vocabulary is stored and no model is downloaded.

A text is converted to lower case and split into words, numbers and punctuation marks, of which only the first 64 are
used. Each word, number or punctuation mark becomes 4 numbers: three hashes from 1 to ``BUCKETS`` (0 is padding) and a
value.

             three hashes of                                               value
    word     itself, its first three letters, its last three letters       0
    number   its number of digits: alone, with its first digit, with       asinh of it, standardised
             its first two digits

An unseen word therefore shares features with known words that have the same beginning or ending. Numbers of similar
size share their leading digits and have similar values. Texts that differ only in white space or case are the same
input for a network. All texts are stored as written, because other encoders may distinguish case and white space.
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

BUCKETS = 4096  # hash values of a word
MAX_WORDS = 64  # of a text; later words are ignored
_MAX_CATEGORIES = 20  # a column with more distinct values may be texts
_MIN_TEXT_WORDS = 4  # mean number of words; names mostly have fewer
_WORD = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class TextCode(ScaleCode):
    """Mean and scale of asinh(x) over the numbers x in the texts of a column."""

    kind: ClassVar[str] = "text"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the shortest prepared text. Longer texts give arrays with more rows."""
        return (1, 4)

    @classmethod
    def learn(cls, name: str, table: NDArray[Any]) -> TextCode:
        """Learn the mean and scale of the numbers in texts."""
        values = numbers_in(table)
        return cls(name, float(values.mean()), float(values.std())) if values.size else cls(name, 0.0, 0.0)

    def prepare(self, table: NDArray[Any]) -> NDArray[np.float32]:
        """Prepare texts as hashes and values: (U,) -> (U, T, 4), where T is the number of words of the longest text."""
        # 1. Number the distinct words of all texts; 0 fills up shorter texts.
        index: dict[str, int] = {}
        rows = [[index.setdefault(word, len(index) + 1) for word in split_words(text)] for text in table]
        indices = np.zeros((len(rows), max(map(len, rows), default=0) or 1), np.int64)
        for out, row in zip(indices, rows, strict=True):
            out[: len(row)] = row
        # 2. Compute the 4 numbers of each distinct word once.
        numbers = np.zeros((len(index) + 1, 4), np.float32)
        for word, k in index.items():
            numbers[k] = self._numbers(word)
        return numbers[indices]

    def _numbers(self, word: str) -> tuple[float, ...]:
        if not word[0].isdecimal():
            return (*(hash_bucket(part) for part in (word, f"{word[:3]}-", f"-{word[-3:]}")), 0.0)
        digits = word.partition(".")[0]
        parts = (f"{len(digits)}:{digits[:n]}" for n in range(3))  # more digits would let a network memorise numbers
        value = (_asinh(word) - self.mean) / self.scale if self.scale > 0 else 0.0
        return (*map(hash_bucket, parts), value)


def split_words(text: str) -> list[str]:
    """Return the words, numbers and punctuation marks of a text, up to ``MAX_WORDS`` of them.

    Examples
    --------
    >>> split_words("Non-stop for 1204.50 EUR!")
    ['non', '-', 'stop', 'for', '1204.50', 'eur', '!']
    """
    return [match[0] for match, _ in zip(_WORD.finditer(text.lower()), range(MAX_WORDS), strict=False)]


def numbers_in(table: NDArray[Any]) -> NDArray[np.float64]:
    """Return asinh(x) for each number x in the texts."""
    return np.array([_asinh(word) for text in table for word in split_words(text) if word[0].isdecimal()], np.float64)


def _asinh(number: str) -> float:
    return math.asinh(min(float(number), 1e30))


def hash_bucket(part: str) -> int:
    """Return a hash of a part of a word, from 1 to ``BUCKETS``, which is the same in every process."""
    return zlib.crc32(part.encode()) % BUCKETS + 1


class _TextLearner:
    """Updates the mean, standard deviation, minimum and maximum of the numbers in distinct texts."""

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
        """Read texts and return codes (n,) and the distinct texts (U,), unchanged."""
        if not (is_text(values.type) or pa.types.is_null(values.type)):
            raise BadTypeError("expected text")
        texts = values.to_pylist()
        present = np.array([text is not None for text in texts], np.bool_)
        return number_distinct(object_array([text for text in texts if text is not None]), present, len(texts))

    def recognise(self, column: str, texts: pa.Array) -> tuple[str, str] | None:
        """Recognise texts by their mean number of words, which is larger than for names."""
        count = pc.mean(pc.count_substring_regex(texts, r"\S+")).as_py()
        hint = f"declare kinds={{{column!r}: 'text'}} to read them as texts"
        is_text_column = len(texts) > _MAX_CATEGORIES and count >= _MIN_TEXT_WORDS
        return (f"texts of {count:.0f} words on average", hint) if is_text_column else None

    def prepared_bytes(self, table: NDArray[Any]) -> int:
        """Return an upper bound on the number of bytes of the longest text."""
        return 16 * min(max(map(len, table)) // 2 + 1, MAX_WORDS)  # at most one word per two characters

    def encoder(self, code: Any) -> nn.Module:
        """Return a module that embeds words, convolves windows of three words, and pools over the text."""
        from pcmcnet.data.kinds.networks import TextEncoder

        return TextEncoder()

    def worth(self, code: Any) -> nn.Module:
        """Return a module that sums the part-worths of words and numbers."""
        from pcmcnet.data.kinds.networks import TextPartWorth

        return TextPartWorth()

    def json_schema(self, size: int | None) -> dict[str, Any]:
        """Return the JSON schema of a text."""
        return {"type": "string", "description": "A text."}


register(TextKind())
