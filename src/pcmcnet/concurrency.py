"""Ctrl-C that is never lost, and tasks in threads with results in order.

The exception of a Ctrl-C may come where a library drops all of them, such as within an import. So it is remembered, and
long work raises it again.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from contextvars import copy_context
from functools import partial
from itertools import repeat
from types import FrameType
from typing import TypeVar

from pcmcnet_command import exit_interrupted

T = TypeVar("T")
_heard = False


def remember_interrupts() -> None:
    """Remember Ctrl-C from now on, beside raising its exception; for the command line, which ends after it."""
    signal.signal(signal.SIGINT, _interrupt)


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """Let Ctrl-C end the program on the spot where it is listened for: nothing is under way but imports."""
    listening = signal.getsignal(signal.SIGINT) is _interrupt
    if listening:
        signal.signal(signal.SIGINT, exit_interrupted)
    try:
        yield
    finally:
        if listening:
            remember_interrupts()


def was_interrupted() -> bool:
    """Tell whether Ctrl-C was pressed."""
    return _heard


def raise_if_interrupted() -> None:
    """Raise the exception of a Ctrl-C again; long work calls this now and then."""
    if _heard:
        raise KeyboardInterrupt


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _heard  # noqa: PLW0603 - a signal is the process's
    _heard = True
    signal.default_int_handler(number, frame)


# -- work that threads do before its result is asked for --------------------------------------------------------------


def submit_or_run(pool: ThreadPoolExecutor, work: Callable[[], T]) -> Future[T]:
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


def results_in_order(tasks: Iterable[Callable[[], T]], threads: int = 1) -> Generator[T, None, None]:
    """Yield the results of tasks in their order; as many as there are threads run while one result is in use."""
    with ThreadPoolExecutor(threads, thread_name_prefix="pcmcnet-ahead") as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for task in tasks:
                waiting.append(submit_or_run(pool, partial(copy_context().run, task)))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # tasks that have not started are not needed any more
            for future in waiting:
                future.cancel()


def read_ahead(items: Iterator[T]) -> Generator[T, None, None]:
    """Yield items, none of which is None; a thread makes the next one while one is in use."""
    with closing(results_in_order(repeat(partial(next, items, None)))) as results:
        for item in results:
            if item is None:
                return
            yield item
