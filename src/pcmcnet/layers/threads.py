"""CPU threads: how many a batch deserves, and how they share it.

Threads that share every operation, as PyTorch's do, wait for each other after each of them, and for what one alone
does, such as drawing random numbers. Those who wait keep their cores busy: where another process wants the same cores,
that makes a fit many times slower, and on two idle cores no network gains from it (measured). So networks compute each
operation on a single thread, and of a large batch of a wide network each thread takes a part, from beginning to end.
Small networks that do not depend on each other are trained side by side.
How many parts there are depends on the number of threads that PyTorch is allowed, never on the load.
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
    """Use one thread for small work within the block; the number of threads is put back afterwards."""
    before = _number()
    large = multiplications >= settings.MIN_MULTIPLICATIONS_FOR_THREADS
    with nullcontext() if large or before == 1 else _one_thread(before):
        yield


@contextmanager
def one_thread_per_operation(multiplications: float) -> Iterator[None]:
    """Compute each operation on one thread within the block; only parts of large work are shared out among threads."""
    before, outside = threads(), getattr(_known, "parts", None)
    _known.parts = before if multiplications >= settings.MIN_MULTIPLICATIONS_FOR_THREADS else 1
    try:
        with _one_thread(_number()):
            yield
    finally:
        _known.parts = outside


def threads() -> int:
    """Return among how many threads work is to be shared out here."""
    return getattr(_known, "parts", None) or _number()


def run_in_threads(function: Callable[[T], U], parts: Sequence[T]) -> list[U]:
    """Call a function for every part, all at once, each in a thread that computes alone, and without gradients.

    A single part is left to the calling thread. After an error in one of them, the others still come to their end.
    """
    if len(parts) < 2:
        return list(map(function, parts))
    inference, here = torch.is_inference_mode_enabled(), threads()

    def call(part: T) -> U:
        with torch.inference_mode(inference), torch.no_grad():  # modes are those of a thread
            return function(part)

    with _one_thread(_number()):  # in some versions of PyTorch the number for products is one of all threads
        begun = _begun(_pool(here, os.getpid()), call, parts)
        rest = [call(part) for part in parts[len(begun) :]]
        return [*(each.result() for each in begun), *rest]


def iterate_in_parallel(
    function: Callable[[T], U], parts: Sequence[T], *, max_workers: int, on_abort: Callable[[], object]
) -> Generator[U, None, None]:
    """Yield what a function returns for every part, in their order, while so many are under way, each in a thread.

    When it is the turn of one that failed, or an interrupt comes, or nobody wants the rest, no others begin; those that
    have begun are told to give up, and waited for.
    """
    if min(max_workers, len(parts)) < 2:
        yield from map(function, parts)
        return

    def call(part: T) -> U:
        _known.here, _known.parts = True, 1
        torch.set_num_threads(1)
        return function(part)

    with ThreadPoolExecutor(min(max_workers, len(parts)), "pcmcnet-side") as pool:
        try:
            begun = _begun(pool, call, parts)
            for each in begun:
                yield each.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            on_abort()
            raise
    yield from map(function, parts[len(begun) :])


def _begun(pool: ThreadPoolExecutor, call: Callable[[T], U], parts: Sequence[T]) -> list[Future[U]]:
    """Hand parts to threads. No pool takes work once the main thread has ended; others may go on."""
    begun: list[Future[U]] = []
    try:
        begun.extend(pool.submit(call, part) for part in parts)
    except RuntimeError as error:
        if "shutdown" not in str(error):
            raise
    return begun


_known = threading.local()
_lowered: list[int] = []  # numbers of those who compute on a single thread for a while


@contextmanager
def _one_thread(before: int) -> Iterator[None]:
    """Compute on one thread within the block, and note the number that it had before."""
    _lowered.append(before)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _lowered.remove(before)


def _number() -> int:
    """Return how many threads an operation has here.

    PyTorch gives a Python thread, at its first operation, the number that any other has set last. Where that is one
    for the while of a small batch, the thread gets what the other had before.
    """
    if not getattr(_known, "here", False):
        _known.here = True
        for number in _lowered[:1] if torch.get_num_threads() == 1 else ():
            torch.set_num_threads(number)
    return torch.get_num_threads()


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Make threads that compute alone; for each process, as those of another one are not there after a fork."""
    return ThreadPoolExecutor(threads, "pcmcnet-part", initializer=torch.set_num_threads, initargs=(1,))
