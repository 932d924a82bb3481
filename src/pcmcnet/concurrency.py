"""Reliable handling of Ctrl-C, tasks in threads with results in order, and the command of a new Python process.

A library may swallow the KeyboardInterrupt that Ctrl-C raises, for example while a module is imported. The command line
therefore remembers every Ctrl-C, and long computations raise KeyboardInterrupt again.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from itertools import repeat
from types import FrameType
from typing import Any, TypeVar

from pcmcnet.errors import ResourceError, is_lack_of_resources
from pcmcnet_command import exit_interrupted

T = TypeVar("T")
U = TypeVar("U")
_interrupted = False
_task_map: ContextVar[Callable[..., Iterator[Any]]] = ContextVar("task_map", default=map)


@contextmanager
def tasks_run_by(workers_map: Callable[..., Iterator[Any]]) -> Iterator[None]:
    """Run the independent tasks of fits within the block by workers: ``workers_map`` works like ``map``."""
    token = _task_map.set(workers_map)
    try:
        yield
    finally:
        _task_map.reset(token)


def map_tasks(function: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
    """Yield ``function(item)`` for each item, in order; in this process, unless :func:`tasks_run_by` is active."""
    return _task_map.get()(function, items)


def remember_interrupts() -> None:
    """Remember each Ctrl-C and raise KeyboardInterrupt. Call this only in a program that then exits."""
    signal.signal(signal.SIGINT, _interrupt)


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """Exit immediately on Ctrl-C within a block of imports, if :func:`remember_interrupts` is active."""
    is_active = signal.getsignal(signal.SIGINT) is _interrupt
    if is_active:
        signal.signal(signal.SIGINT, exit_interrupted)
    try:
        yield
    finally:
        if is_active:
            remember_interrupts()


def was_interrupted() -> bool:
    """Return True if Ctrl-C was pressed after :func:`remember_interrupts` was called."""
    return _interrupted


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed. Long computations call this function at regular intervals."""
    if _interrupted:
        raise KeyboardInterrupt


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _interrupted  # noqa: PLW0603 - a signal concerns the whole process
    _interrupted = True
    signal.default_int_handler(number, frame)


# -- Tasks in threads --------------------------------------------------------------------------------------------------


def submit_or_run(pool: ThreadPoolExecutor, work: Callable[[], T]) -> Future[T]:
    """Submit work to a pool. If the interpreter is shutting down, run the work in the calling thread.

    Raises
    ------
    ResourceError
        If no thread can be started. The work is not run in the calling thread, because it stays in the pool's queue.
    """
    try:
        return pool.submit(work)
    except RuntimeError as error:
        if is_lack_of_resources(error):
            raise ResourceError(f"not enough memory or threads ({error}): raise the limits of this process.") from error
        if "shutdown" not in str(error):
            raise
    future = Future[T]()
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - a pool also stores any exception in the future
        future.set_exception(error)
    return future


def results_in_order(tasks: Iterable[Callable[[], T]], threads: int = 1) -> Generator[T, None, None]:
    """Yield the results in the order of the tasks. Up to ``threads`` later tasks run while the caller uses a result."""
    with ThreadPoolExecutor(threads, thread_name_prefix="pcmcnet-ahead") as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for task in tasks:
                waiting.append(submit_or_run(pool, partial(copy_context().run, task)))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # the caller stopped early: cancel the tasks that have not started
            for future in waiting:
                future.cancel()


def read_ahead(items: Iterator[T]) -> Generator[T, None, None]:
    """Yield items that are not None. A thread computes the next item while the caller uses the current one."""
    with closing(results_in_order(repeat(partial(next, items, None)))) as results:
        for item in results:
            if item is None:
                return
            yield item


# -- Processes ---------------------------------------------------------------------------------------------------------


def can_start_interpreter() -> bool:
    """Return True unless a new process would start a frozen program again instead of an interpreter."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def interpreter_command(program: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a new interpreter that runs a program.

    The new interpreter imports from the same folders as this one, but never from the working folder: a table may lie in
    a folder that also contains, say, a file ``json.py`` from someone else. ``python -c`` alone would run that file, as
    would an empty entry of PYTHONPATH.
    """
    # 1. Keep the options that exclude folders from the import path, and exclude the working folder (-P).
    options = ["-P", *(["-E"] if sys.flags.ignore_environment else []), *(["-s"] if sys.flags.no_user_site else [])]
    # 2. Replace the import path in the program, because PYTHONPATH cannot hold names that contain a colon.
    folders = [folder for folder in sys.path if folder]
    command = [sys.executable, *options, "-c", f"import sys; sys.path[:] = {folders!r}; {program}"]
    # 3. Remove empty entries, which stand for the working folder, from PYTHONPATH.
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return command, {**os.environ, "PYTHONPATH": os.pathsep.join(entries)}


def thread_count() -> int:
    """Return the number of threads for computations: PyTorch's number if it is loaded, otherwise its default."""
    if "torch" in sys.modules:
        import torch

        return torch.get_num_threads()
    limit = os.environ.get("OMP_NUM_THREADS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(limit) if limit.isdecimal() and int(limit) else cores
