"""Work that is begun before its turn: tasks in threads, their results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TypeVar

T = TypeVar("T")


def begun(pool: ThreadPoolExecutor, work: Callable[[], T]) -> Future[T]:
    """Hand work to a pool. None takes any once the main thread has ended: another one of the user's then does it."""
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
    """Yield the results of tasks in their order; as many as there are threads are under way while one is in use."""
    with ThreadPoolExecutor(threads, thread_name_prefix="pcmcnet-ahead") as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for task in tasks:
                waiting.append(begun(pool, partial(copy_context().run, task)))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # nobody waits for what has not begun
            for future in waiting:
                future.cancel()
