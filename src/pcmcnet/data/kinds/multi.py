"""Lists of categories, such as the services of a hotel.

A list is treated as a bag: repeated categories count, but their order does not matter.

The categories of the training vocabulary are numbered 1..c. Index 0 denotes a category never seen in training, and also
pads shorter lists.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pcmcnet.data.columns.arrays import MISSING_CODE, Contents
from pcmcnet.data.columns.distinct import UNREADABLE, names
from pcmcnet.data.kinds import category
from pcmcnet.data.kinds.category import MAX_LISTED_CATEGORIES
from pcmcnet.data.kinds.kind import (
    BadTypeError,
    Kind,
    PixelBudget,
    ReadContents,
    are_strings,
    as_lists,
    is_count,
    mostly_match,
    number_distinct,
    object_array,
    register,
    require_no_bad_rows,
)
from pcmcnet.errors import describe_value

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class MultiCode:
    """Vocabulary of one column. The category at position k has index k + 1."""

    name: str
    categories: tuple[str, ...]
    kind: ClassVar[str] = "multi"
    dtype: ClassVar[type[np.generic]] = np.int64

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the shortest prepared list. Longer lists give wider arrays."""
        return (1,)

    @classmethod
    def learn(cls, name: str, table: NDArray[Any]) -> MultiCode:
        """Learn the vocabulary of a column."""
        return cls(name, tuple(sorted({word for words in table for word in words})))

    def prepare(self, table: NDArray[Any]) -> NDArray[np.int64]:
        """Prepare lists as zero-padded category indices: (U,) -> (U, L), where L is the length of the longest list.

        Examples
        --------
        >>> lists = np.array([("pool", "wifi"), ("spa", "wifi", "wifi")], object)
        >>> MultiCode("services", ("pool", "wifi")).prepare(lists).tolist()
        [[1, 2], [2, 2]]
        """
        index = {word: k + 1 for k, word in enumerate(self.categories)}
        lists = [[index[word] for word in words if word in index] for words in table]
        out = np.zeros((len(lists), max(map(len, lists), default=0) or 1), np.int64)
        for row, indices in zip(out, lists, strict=True):
            row[: len(indices)] = indices
        return out

    def is_valid(self) -> bool:
        """Return True if the fields, as read from a saved model, are valid."""
        return all(isinstance(word, str) for word in self.categories)


class _MultiLearner:
    """Collects the category names."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def add(self, table: NDArray[Any]) -> None:
        self.names.update(name for names in table for name in names)

    def code(self, name: str) -> MultiCode:
        return MultiCode(name, tuple(sorted(self.names)))


class MultiKind(Kind):
    """Lists of categories."""

    name, code, stored = "multi", MultiCode, pa.list_(pa.string())
    arrow_type, page_field, choices = pa.list_(pa.string()), "multi", "words"
    learner_class = _MultiLearner
    fact_checks: ClassVar[Any] = {"categories": are_strings, "words": is_count}

    def read(self, values: pa.ChunkedArray, folder: Path | None = None) -> ReadContents:
        """Read lists of names and return codes (n,) and distinct lists (U,), each sorted."""
        lists = as_lists(values, "names").combine_chunks()
        if pa.types.is_null(lists.type):
            return np.full(len(lists), MISSING_CODE, np.int32), np.empty(0, object)
        present = np.flatnonzero(lists.is_valid().to_numpy(zero_copy_only=False))
        lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)[present].astype(np.int64)
        try:
            words = names(pc.list_flatten(lists))
        except UNREADABLE as error:
            raise BadTypeError("expected lists of names") from error
        ends = np.cumsum(lengths)
        listed = [tuple(words[end - n : end]) for end, n in zip(ends, lengths, strict=True)]
        bad = np.zeros(len(lists), np.bool_)
        bad[present] = [None in row for row in listed]
        require_no_bad_rows(
            bad, "expected the name of a category", "Correct the list, or leave the entry out.", lambda _: "nothing"
        )
        return number_distinct(object_array([tuple(sorted(row)) for row in listed]), present, len(lists))

    def recognise(self, column: str, texts: pa.Array) -> tuple[str, str] | None:
        """Recognise lists of names or numbers by their brackets."""
        hint = f"declare kinds={{{column!r}: 'multi'}} for lists of names, or 'vector' for lists of numbers"
        return ("lists", hint) if mostly_match(texts, r"^\s*\[.*\]\s*$") else None

    def to_arrow(self, table: NDArray[Any]) -> pa.Array:
        """Return the distinct lists as an Arrow array."""
        return pa.array(list(map(list, table)), self.stored)

    def from_arrow(self, values: pa.Array) -> NDArray[Any]:
        """Return the distinct lists that an Arrow array holds."""
        return self.from_saved(values.to_pylist())

    def prepared_bytes(self, table: NDArray[Any]) -> int:
        """Return the number of bytes of the longest prepared list."""
        return 8 * max(map(len, table))

    def facts(self, column: Contents) -> dict[str, Any]:
        """Return the most frequent categories and the total number of categories."""
        rows = np.bincount(column.codes[column.codes != MISSING_CODE], minlength=len(column.table)).tolist()
        words: Counter[str] = Counter()
        for listed, count in zip(column.table, rows, strict=True):
            words.update(dict.fromkeys(listed, count))
        most = sorted(words, key=lambda word: (-words[word], word))[:MAX_LISTED_CATEGORIES]
        return {"categories": sorted(most), "words": len(words)}

    def encoder(self, code: Any) -> nn.Module:
        """Return a module that sums the embeddings of the categories."""
        from pcmcnet.data.kinds.networks import BagEncoder

        return BagEncoder(len(code.categories))

    def worth(self, code: Any) -> nn.Module:
        """Return a module that sums the part-worths of the categories."""
        from pcmcnet.data.kinds.networks import BagPartWorth

        return BagPartWorth(len(code.categories))

    def to_json(self, content: Any) -> list[str]:
        """Return a list of names."""
        return list(content)

    def from_saved(self, contents: list[Any]) -> NDArray[Any]:
        """Restore lists from saved values."""
        return object_array([tuple(content) for content in contents])

    def is_json(self, value: Any) -> bool:
        """Return True for a valid list of names in a description."""
        return are_strings(value)

    def json_schema(self, size: int | None) -> dict[str, Any]:
        """Return the JSON schema of a list of categories."""
        return {"type": "array", "items": category.json_schema()}

    def parse_posted(self, value: Any, *, size: int | None, pixels: PixelBudget) -> list[str]:
        """Check that a value is a list of names. Numbers and booleans in the list are converted to text."""
        if not isinstance(value, list):
            raise ValueError(f"expected a list of categories, got {describe_value(value)}")
        for name in value:
            if not isinstance(name, str | int | float):
                raise ValueError(f"expected a list of categories, got {describe_value(name)} in the list")
            if isinstance(name, float) and not np.isfinite(name):
                raise ValueError("expected a list of categories, got a list with a number that is not finite")
        return [str(name) for name in value]

    def label(self, code: Any) -> str:
        """Return the kind and the number of categories."""
        return f"{self.name}, {len(code.categories):,}"


register(MultiKind())
