"""CPU threads: how many a batch deserves, and how they share it.

Handing a small batch to several threads costs more than computing it on one, and where another process wants the
same cores the waiting makes it many times slower. So small batches run on a single thread.

Of a large one of a wide network each thread takes a part, and computes it from beginning to end. Threads that share
every operation instead, as PyTorch's do, wait for each other after each of them, and for what one alone does, such as
drawing random numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch

T = TypeVar("T")
U = TypeVar("U")

SMALL = 2e7  # multiplications in a batch: about a millisecond on one core


@contextmanager
def threads_for(multiplications: float) -> Iterator[None]:
    """Use one thread for small work within the block; the number of threads is put back afterwards."""
    before = torch.get_num_threads()
    if multiplications < SMALL and before > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


def in_threads(function: Callable[[T], U], parts: Sequence[T]) -> list[U]:
    """Call a function for every part, all at once, each in a thread that computes alone, and without gradients.

    A single part is left to the calling thread. After an error in one of them, the others still come to their end.
    """
    if len(parts) < 2:
        return list(map(function, parts))
    inference, here = torch.is_inference_mode_enabled(), torch.get_num_threads()

    def call(part: T) -> U:
        with torch.inference_mode(inference), torch.no_grad():  # modes are those of a thread
            return function(part)

    try:
        torch.set_num_threads(1)  # in some versions of PyTorch the number for products is one of all threads
        pool = _pool(here, os.getpid())
        begun: list[Future[U]] = []
        try:
            begun.extend(pool.submit(call, part) for part in parts)
        except RuntimeError as error:  # no pool takes work once the main thread has ended; others may go on
            if "shutdown" not in str(error):
                raise
        rest = [call(part) for part in parts[len(begun) :]]
        return [*(each.result() for each in begun), *rest]
    finally:
        torch.set_num_threads(here)


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Make threads that compute alone; for each process, as those of another one are not there after a fork."""
    return ThreadPoolExecutor(threads, "pcmcnet-part", initializer=torch.set_num_threads, initargs=(1,))
