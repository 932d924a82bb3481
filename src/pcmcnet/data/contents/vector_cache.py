"""Vectors of contents on disk, by the hashes of the contents: one SQLite file for each encoder in a folder.

SQLite writes a batch of vectors whole or not at all, whoever else reads and writes at the time. Each vector stands
beside a checksum. One that does not fit it, and all of a file that is damaged, are as if they were not there: they are
computed and written again. A folder that cannot be written costs time, never a result.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = Mapping[bytes, NDArray[np.float32]]

_ASKED = 500  # keys of one question
_PATIENCE = 60.0  # seconds to wait for another process that writes
_TABLE = "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB, checksum INTEGER) WITHOUT ROWID"

log = logging.getLogger("pcmcnet")


class VectorCache:
    """The vectors that one encoder gave."""

    def __init__(self, folder: Path, encoder: str) -> None:
        self.path = folder / f"{encoder}.sqlite"

    def find(self, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """Return the vectors that are there."""
        found: dict[bytes, NDArray[np.float32]] = {}
        if not self.path.exists():
            return found
        with self._trouble(), closing(self._opened()) as cache:
            for begin in range(0, len(keys), _ASKED):
                some = keys[begin : begin + _ASKED]
                marks = ", ".join("?" * len(some))
                rows = cache.execute(f"SELECT key, vector, checksum FROM vectors WHERE key IN ({marks})", some)
                found |= {key: np.frombuffer(vector, "<f4") for key, vector, sum_ in rows if _sum(key, vector) == sum_}
        return found

    def keep(self, vectors: Vectors) -> None:
        """Write vectors, all of them or none."""
        plain = {key: vector.astype("<f4").tobytes() for key, vector in vectors.items()}
        rows = [(key, vector, _sum(key, vector)) for key, vector in plain.items()]
        with self._trouble():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._opened()) as cache, cache:
                cache.execute(_TABLE)
                cache.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    def _opened(self) -> Any:
        import sqlite3  # here, since few need it

        return sqlite3.connect(self.path, timeout=_PATIENCE)

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        """Throw away a damaged file, and go on without one that cannot be used."""
        import sqlite3

        try:
            yield
        except sqlite3.OperationalError as error:
            log.warning("%s cannot be used (%s): vectors are computed and not kept", self.path, error)
        except sqlite3.DatabaseError as error:
            log.warning("%s is damaged (%s): its vectors are computed again", self.path, error)
            for left in (self.path, self.path.with_name(f"{self.path.name}-journal")):
                left.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s cannot be used (%s): vectors are computed and not kept", self.path, error.strerror)


def _sum(key: bytes, vector: bytes) -> int:
    return zlib.crc32(vector, zlib.crc32(key))
