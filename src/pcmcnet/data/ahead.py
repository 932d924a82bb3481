"""Work that is begun before its turn: tasks in threads, their results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


def ahead(tasks: Iterable[Callable[[], T]], threads: int = 1) -> Iterator[T]:
    """Yield the results of tasks in their order; as many as there are threads are under way while one is in use."""
    with ThreadPoolExecutor(threads, thread_name_prefix="pcmcnet-ahead") as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for task in tasks:
                waiting.append(pool.submit(copy_context().run, task))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # nobody waits for what has not begun
            for future in waiting:
                future.cancel()
