"""What a code keeps of contents that come in parts, of which only one is in memory at a time.

A table in memory is one part, from which its code learns at once. Of several, each kind keeps what can be put together:

    multi           the names found so far
    image           the sizes and whether all are grey
    datetime        the distinct instants, 8 bytes each
    vector, text    count, mean and sum of squares about it, of contents whose hash of 8 bytes was not met before

A content counts once, in whichever parts it occurs. Means and scales are those of the whole table up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.data.columns import ContentKind
from pcmcnet.data.kinds.datetime import DatetimeCode
from pcmcnet.data.kinds.id import IdCode
from pcmcnet.data.kinds.image import ImageCode, size_and_grey
from pcmcnet.data.kinds.multi import MultiCode
from pcmcnet.data.kinds.text import TextCode, numbers_in
from pcmcnet.data.kinds.vector import VectorCode
from pcmcnet.errors import SchemaError


class Learning(Protocol):
    """What is known of the contents of some parts."""

    def add(self, table: NDArray[Any]) -> None:
        """Take in the distinct contents of one part."""

    def code(self, name: str) -> Any:
        """Return the code of all parts."""


class Learner:
    """Learns the code of one column from one part after the other; a single part is learnt from as it is."""

    def __init__(self, code: Any, kind: ContentKind) -> None:
        self.single, self.kind = code, kind
        self.first: NDArray[Any] | None = None
        self.rest: Learning | None = None

    def add(self, table: NDArray[Any]) -> None:
        """Take in the distinct contents of one part."""
        if not len(table):
            return
        if self.first is None:
            self.first = table
            return
        if self.rest is None:
            self.rest = _KINDS[self.kind]()
            self.rest.add(self.first)
        self.rest.add(table)

    def code(self, name: str) -> Any:
        """Return the code of all parts."""
        if self.first is None:
            raise SchemaError(f"column {name!r} has no content at all in the training part: leave it out.")
        return self.single.learn(name, self.first) if self.rest is None else self.rest.code(name)


class _New:
    """Tells contents that were not met before, by a hash of 8 bytes of each."""

    def __init__(self) -> None:
        self.seen = np.empty(0, np.uint64)

    def among(self, contents: list[bytes]) -> NDArray[np.bool_]:
        """(U,) which of some distinct contents are new; they are not, from then on."""
        digests = b"".join(blake2b(content, digest_size=8).digest() for content in contents)
        hashes = np.frombuffer(digests, np.uint64)
        place = np.searchsorted(self.seen, hashes)
        known = (place < len(self.seen)) & (np.append(self.seen, np.uint64(0))[place] == hashes)
        self.seen = np.union1d(self.seen, hashes)
        return np.asarray(~known)


class _Moments:
    """Mean and spread of rows (n, D), put together from those of parts (Chan, Golub and LeVeque, 1983)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Floats = np.zeros(1)
        self.squares: Floats = np.zeros(1)

    def add(self, rows: Floats) -> None:
        """Take in more rows."""
        if not len(rows):
            return
        count, mean = len(rows), rows.mean(0)
        squares, apart = ((rows - mean) ** 2).sum(0), mean - self.mean
        total = self.count + count
        self.squares = self.squares + squares + apart**2 * self.count * count / total
        self.mean = self.mean + apart * count / total
        self.count = total

    @property
    def spread(self) -> Floats:
        """Standard deviation."""
        spread: Floats = np.sqrt(self.squares / max(self.count, 1))
        return spread


class _Vectors:
    def __init__(self) -> None:
        self.new, self.moments = _New(), _Moments()
        self.first: NDArray[Any] | None = None
        self.constant: NDArray[np.bool_] = np.ones(1, np.bool_)

    def add(self, table: NDArray[Any]) -> None:
        self.first = table[:1].copy() if self.first is None else self.first
        self.constant = self.constant & (table == self.first).all(0)
        fresh = self.new.among([row.tobytes() for row in table])
        self.moments.add(table[fresh].astype(np.float64))

    def code(self, name: str) -> VectorCode:
        scale = np.where(self.constant, 0.0, self.moments.spread)
        return VectorCode(name, tuple(self.moments.mean.tolist()), tuple(scale.tolist()))


class _Texts:
    def __init__(self) -> None:
        self.new, self.moments = _New(), _Moments()
        self.ends = (np.inf, -np.inf)

    def add(self, table: NDArray[Any]) -> None:
        numbers = numbers_in(table[self.new.among([text.encode() for text in table])])
        self.moments.add(numbers[:, None])
        self.ends = min(self.ends[0], *numbers.tolist(), np.inf), max(self.ends[1], *numbers.tolist(), -np.inf)

    def code(self, name: str) -> TextCode:
        if not self.moments.count:
            return TextCode(name, 0.0, 0.0)
        scale = 0.0 if self.ends[0] == self.ends[1] else float(self.moments.spread[0])
        return TextCode(name, float(self.moments.mean[0]), scale)


class _Instants:
    def __init__(self) -> None:
        self.found = np.empty(0, "datetime64[us]")

    def add(self, table: NDArray[Any]) -> None:
        self.found = np.union1d(self.found, table)

    def code(self, name: str) -> DatetimeCode:
        return DatetimeCode.learn(name, self.found)


class _Names:
    def __init__(self) -> None:
        self.found: set[str] = set()

    def add(self, table: NDArray[Any]) -> None:
        self.found.update(name for names in table for name in names)

    def code(self, name: str) -> MultiCode:
        return MultiCode(name, tuple(sorted(self.found)))


class _Pictures:
    def __init__(self) -> None:
        self.found: set[tuple[tuple[int, int], bool]] = set()

    def add(self, table: NDArray[Any]) -> None:
        self.found.update(map(size_and_grey, table))

    def code(self, name: str) -> ImageCode:
        return ImageCode.of(name, {size for size, _ in self.found}, grey=all(grey for _, grey in self.found))


class _Ids:
    def add(self, table: NDArray[Any]) -> None:
        """Learn nothing."""

    def code(self, name: str) -> IdCode:
        return IdCode(name)


_KINDS: Mapping[str, Callable[[], Learning]] = {
    "vector": _Vectors,
    "datetime": _Instants,
    "multi": _Names,
    "text": _Texts,
    "image": _Pictures,
    "id": _Ids,
}
