"""What a code keeps of contents that come in parts, of which only one is in memory at a time.

A table in memory is one part, from which its code learns at once. Of several, each kind keeps what can be put together:

    multi           the names found so far
    image           the sizes and whether all are grey
    datetime        the distinct instants, 8 bytes each
    vector, text    count, mean and sum of squares about it, of contents whose hash of 8 bytes was not met before

A content counts once, in whichever parts it occurs. Means and scales are those of the whole table up to rounding.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.data.column_arrays import number_contents


class Learning(Protocol):
    """What is known of the contents of some parts."""

    def add(self, table: NDArray[Any]) -> None:
        """Take in the distinct contents of one part."""

    def code(self, name: str) -> Any:
        """Return the code of all parts."""


class Collected:
    """All distinct contents, for a code that learns from nothing less."""

    def __init__(self, code: Any) -> None:
        self.single = code
        self.found: NDArray[Any] | None = None

    def add(self, table: NDArray[Any]) -> None:
        """Take in the distinct contents of one part."""
        joined = table if self.found is None else np.concatenate([self.found, table])
        self.found = joined[number_contents(joined)[1]]

    def code(self, name: str) -> Any:
        """Return the code of all parts."""
        return self.single.learn(name, self.found)


class New:
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


class Moments:
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
