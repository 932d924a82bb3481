"""CPU threads: the number of threads used for a batch, and the division of work among threads.

PyTorch splits every operation among its threads. The threads wait for each other after each operation, and all but one
wait while a single thread works, for example to draw random numbers. Waiting threads keep their cores busy, so a fit
becomes many times slower if another process needs the same cores. In measurements, a second thread made no network
faster, even on two idle cores. Networks therefore run each operation on one thread. A large batch of a wide network is
divided into parts, and each thread computes one part from beginning to end. Small networks that do not depend on each
other are trained in parallel. The number of parts depends on the number of threads that PyTorch may use, never on the
load of the machine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TypeVar

import torch

from pcmcnet.layers import settings

T = TypeVar("T")
U = TypeVar("U")


@contextmanager
def one_thread_if_small(multiplications: float) -> Iterator[None]:
    """Use one thread inside the ``with`` block if the work is small, and restore the number of threads afterwards."""
    before = _operation_threads()
    large = multiplications >= settings.MIN_MULTIPLICATIONS_FOR_THREADS
    with nullcontext() if large or before == 1 else _one_thread(before):
        yield


@contextmanager
def one_thread_per_operation(multiplications: float) -> Iterator[None]:
    """Run each operation in the ``with`` block on one thread; :func:`run_in_threads` still divides large batches."""
    with at_most(threads() if multiplications >= settings.MIN_MULTIPLICATIONS_FOR_THREADS else 1):
        yield


@contextmanager
def at_most(count: int) -> Iterator[None]:
    """Run each operation in the ``with`` block on one thread, and divide large batches among at most ``count``."""
    outer = getattr(_local, "parts", None)
    before, parts = _operation_threads(), min(threads(), max(1, count))
    _local.parts = parts
    try:
        with _one_thread(before):
            yield
    finally:
        _local.parts = outer


def threads() -> int:
    """Return the number of threads among which :func:`run_in_threads` divides work."""
    return getattr(_local, "parts", None) or _operation_threads()


def run_in_threads(function: Callable[[T], U], parts: Sequence[T]) -> list[U]:
    """Call a function on every part in parallel, one thread per part, without gradients, and return the results.

    A single part runs in the calling thread. If one part raises an error, the others still finish.
    """
    if len(parts) < 2:
        return list(map(function, parts))
    inference, count = torch.is_inference_mode_enabled(), threads()

    def call(part: T) -> U:
        with torch.inference_mode(inference), torch.no_grad():  # modes are thread-local
            return function(part)

    with _one_thread(_operation_threads()):  # some versions of PyTorch share one number for products among all threads
        futures = _submit(_pool(count, os.getpid()), call, parts)
        rest = [call(part) for part in parts[len(futures) :]]
        return [*(future.result() for future in futures), *rest]


def iterate_in_parallel(
    function: Callable[[T], U], parts: Sequence[T], *, max_workers: int, on_abort: Callable[[], object]
) -> Generator[U, None, None]:
    """Yield the result of a function for every part, in order, running up to ``max_workers`` parts in parallel threads.

    If the next part in order fails, if an interrupt occurs, or if the caller stops iterating, no further parts are
    started, ``on_abort`` is called, and the running parts are awaited.
    """
    if min(max_workers, len(parts)) < 2:
        yield from map(function, parts)
        return

    def call(part: T) -> U:
        _local.initialised, _local.parts = True, 1
        torch.set_num_threads(1)
        return function(part)

    with ThreadPoolExecutor(min(max_workers, len(parts)), "pcmcnet-side") as pool:
        try:
            futures = _submit(pool, call, parts)
            for future in futures:
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            on_abort()
            raise
    yield from map(function, parts[len(futures) :])


def _submit(pool: ThreadPoolExecutor, call: Callable[[T], U], parts: Sequence[T]) -> list[Future[U]]:
    """Submit parts to a pool, and return the futures: fewer than the parts if the interpreter is shutting down."""
    futures: list[Future[U]] = []
    try:
        futures.extend(pool.submit(call, part) for part in parts)
    except RuntimeError as error:
        if "shutdown" not in str(error):
            raise
    return futures


_local = threading.local()
_lowered: list[int] = []  # numbers of threads before each active ``_one_thread`` block


@contextmanager
def _one_thread(before: int) -> Iterator[None]:
    """Compute on one thread inside the ``with`` block, and restore ``before`` threads afterwards."""
    _lowered.append(before)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _lowered.remove(before)


def _operation_threads() -> int:
    """Return the number of threads that an operation uses in this Python thread.

    At its first operation, a Python thread inherits the number of threads that any Python thread set last. If this
    number is 1 because of an active ``_one_thread`` block, the number from before the block is used instead.
    """
    if not getattr(_local, "initialised", False):
        _local.initialised = True
        for number in _lowered[:1] if torch.get_num_threads() == 1 else ():
            torch.set_num_threads(number)
    return torch.get_num_threads()


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Return a pool whose workers use one thread each.

    Each process has a separate pool, because threads do not survive a fork.
    """
    return ThreadPoolExecutor(threads, "pcmcnet-part", initializer=torch.set_num_threads, initargs=(1,))
