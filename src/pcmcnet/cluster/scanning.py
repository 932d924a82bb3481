"""Scan a table by the workers of Ray: they share its pieces, then its shards, and make the bytes of one process.

All machines see the table and the folder of the cache. A piece whose worker dies is done again, from its beginning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from pcmcnet.cluster.engine import connected
from pcmcnet.data import ScannedData, Schema
from pcmcnet.data.scan.workers import keep_freed_memory
from pcmcnet.errors import PcmcNetError

T = TypeVar("T")
U = TypeVar("U")

_WAITING = 2  # pieces for each worker that are handed out at a time


def scan(
    table: str | Path,
    *,
    workers: int = 2,
    cache: str | Path | None = None,
    memory: str | int = "1 GiB",
    **roles: Any,
) -> ScannedData:
    """Scan a table as :meth:`ChoiceData.scan` does, by several workers.

    Parameters
    ----------
    table, cache
        Paths that all workers see.
    workers
        Processes that share the table, each of which takes up to two fifths of ``memory`` meanwhile.
    memory, roles
        As for :meth:`ChoiceData.scan`.
    """
    return scan_by_roles(table, Schema.from_dict(roles), workers=workers, cache=cache, memory=memory)


def scan_by_roles(table: str | Path, schema: Schema, *, workers: int, cache: Any, memory: str | int) -> ScannedData:
    """Do the same with roles that are known."""
    place = None if cache is None else Path(cache).absolute()
    with connected(workers) as ray:
        found = ScannedData.of(
            Path(table).absolute(), schema, cache=place, memory=memory, workers=RayWorkers(ray, workers)
        )
    return found.by(None)


class RayWorkers:
    """Workers of a Ray that this process is connected to."""

    def __init__(self, ray: Any, count: int) -> None:
        self.ray, self.count = ray, count

    def __enter__(self) -> RayWorkers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        pass

    def map(self, function: Callable[[T], U], items: Sequence[T]) -> Iterator[U]:
        """Yield what a function makes of each item, in their order; what it raises is raised in its turn."""
        given, task = self.ray.put(function), self.ray.remote(_call).options(num_cpus=1)
        begun: deque[Any] = deque()
        try:
            for item in items:
                begun.append(task.remote(given, item))
                if len(begun) > _WAITING * self.count:
                    yield self._result(begun.popleft())
            while begun:
                yield self._result(begun.popleft())
        finally:
            for left in begun:
                self.ray.cancel(left)

    def _result(self, begun: Any) -> Any:
        found = self.ray.get(begun)
        if isinstance(found, PcmcNetError):
            raise found
        return found


def _call(function: Callable[[T], U], item: T) -> U | PcmcNetError:
    """Do a piece of the work; an error of ours is a result, as doing it again would not help."""
    keep_freed_memory()
    try:
        return function(item)
    except PcmcNetError as error:
        return error
