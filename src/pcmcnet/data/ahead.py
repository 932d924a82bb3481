"""Work that threads do before its result is asked for; results come in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from functools import partial
from itertools import repeat
from typing import TypeVar

T = TypeVar("T")


def begun(pool: ThreadPoolExecutor, work: Callable[[], T]) -> Future[T]:
    """Submit work to a pool; if the interpreter is shutting down, run it in the calling thread."""
    try:
        return pool.submit(work)
    except RuntimeError as error:
        if "shutdown" not in str(error):
            raise
    done = Future[T]()
    try:
        done.set_result(work())
    except Exception as error:  # noqa: BLE001 - as a pool does
        done.set_exception(error)
    return done


def ahead(tasks: Iterable[Callable[[], T]], threads: int = 1) -> Generator[T, None, None]:
    """Yield the results of tasks in their order; as many as there are threads run while one result is in use."""
    with ThreadPoolExecutor(threads, thread_name_prefix="pcmcnet-ahead") as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for task in tasks:
                waiting.append(begun(pool, partial(copy_context().run, task)))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # tasks that have not started are not needed any more
            for future in waiting:
                future.cancel()


def read_ahead(items: Iterator[T]) -> Generator[T, None, None]:
    """Yield items, none of which is None; a thread makes the next one while one is in use."""
    with closing(ahead(repeat(partial(next, items, None)))) as results:
        for item in results:
            if item is None:
                return
            yield item
