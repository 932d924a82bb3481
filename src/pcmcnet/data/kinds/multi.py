"""Lists of categories, such as the services of a hotel: a bag of words in which order does not count, but number does.

Categories are numbered 1..c in the training vocabulary; 0 stands for none: for those never seen in training, and behind
the end of lists that are shorter than others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pcmcnet.data.columns import GAP, ContentKind, number_contents
from pcmcnet.data.distinct import UNREADABLE, names
from pcmcnet.data.kinds.arrow_lists import as_lists
from pcmcnet.data.kinds.errors import BadTypeError, refuse


@dataclass(frozen=True, slots=True)
class MultiCode:
    """Vocabulary of one column; category k has the index k + 1."""

    name: str
    categories: tuple[str, ...]
    kind: ClassVar[ContentKind] = "multi"
    dtype: ClassVar[type[np.generic]] = np.int64

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what a network gets for one list, at least; longer ones are wider."""
        return (1,)

    @classmethod
    def learn(cls, name: str, table: NDArray[Any]) -> MultiCode:
        """Learn the vocabulary."""
        return cls(name, tuple(sorted({word for words in table for word in words})))

    def prepare(self, table: NDArray[Any]) -> NDArray[np.int64]:
        """(U,) lists -> (U, L) indices, known categories first; L is the length of the longest.

        Examples
        --------
        >>> lists = np.array([("pool", "wifi"), ("spa", "wifi", "wifi")], object)
        >>> MultiCode("services", ("pool", "wifi")).prepare(lists).tolist()
        [[1, 2], [2, 2]]
        """
        place = {word: k + 1 for k, word in enumerate(self.categories)}
        known = [[place[word] for word in words if word in place] for words in table]
        out = np.zeros((len(known), max(map(len, known), default=0) or 1), np.int64)
        for row, indices in zip(out, known, strict=True):
            row[: len(indices)] = indices
        return out

    def sound(self) -> bool:
        """Tell whether the values are such as were saved."""
        return all(isinstance(word, str) for word in self.categories)


def read_lists(values: pa.ChunkedArray) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Read lists of names: (n,) codes and (U,) distinct lists, each sorted."""
    lists = as_lists(values, "names").combine_chunks()
    codes, table = np.full(len(lists), GAP, np.int32), np.empty(0, object)
    if pa.types.is_null(lists.type):
        return codes, table
    present = np.flatnonzero(lists.is_valid().to_numpy(zero_copy_only=False))
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)[present].astype(np.int64)
    try:
        words = names(pc.list_flatten(lists))
    except UNREADABLE as error:
        raise BadTypeError("expected lists of names") from error
    ends = np.cumsum(lengths)
    found = np.empty(len(present), object)
    found[:] = [tuple(words[end - n : end]) for end, n in zip(ends, lengths, strict=True)]
    bad = np.zeros(len(lists), np.bool_)
    bad[present] = [None in row for row in found]
    refuse(bad, "expected the name of a category", "Correct the list, or leave the entry out.", lambda _: "nothing")
    for k, row in enumerate(found):
        found[k] = tuple(sorted(row))
    codes[present], first = number_contents(found)
    return codes, found[first]
