"""Work done part by part, several parts at a time.

Parts are cut by the data alone and each is computed by one thread, so results are the same bit for bit whatever the
number of threads. numpy's products have threads of their own, which would compete with those and round otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, TypeVar

import torch

T = TypeVar("T")
U = TypeVar("U")

_Number = tuple[Any, int]  # a library, and how many threads it has


def by_part(function: Callable[[T], U], parts: Sequence[T]) -> list[U]:
    """Call a function for every part; numpy and scipy let other threads run meanwhile."""
    if len(parts) < 2:
        return list(map(function, parts))
    with products_in_one_thread(), ThreadPoolExecutor(torch.get_num_threads()) as pool:
        return list(pool.map(function, parts))


@contextmanager
def products_in_one_thread() -> Iterator[None]:
    """Let every product of numpy's have one thread, until the last of those who asked for it at a time is done."""
    own = _one_thread.enter()
    try:
        yield
    finally:
        _one_thread.leave(own)


class _OneThread:
    """A limit for the process, which the first to enter sets and the last to leave lifts.

    Products that OpenMP divides have a limit in each thread, set and lifted by everyone who enters.
    """

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._before: list[_Number] = []

    def enter(self) -> list[_Number]:
        """Set the limit; returns what this thread alone had before."""
        with self._lock:
            if not self._inside:
                self._before = _limit([library for library in _blas() if not _is_of_a_thread(library)])
            self._inside += 1
            return _limit([library for library in _blas() if _is_of_a_thread(library)])

    def leave(self, own: list[_Number]) -> None:
        """Lift this thread's limit, and that of the process if nobody else is inside."""
        with self._lock:
            self._inside -= 1
            for library, number in own + ([] if self._inside else self._before):
                _set(library, number)
                _free(library)


_one_thread = _OneThread()


def _limit(libraries: list[Any]) -> list[_Number]:
    """Give libraries one thread; returns the numbers they had."""
    before = [(library, library.num_threads) for library in libraries]
    for library in libraries:
        _set(library, 1)
    return before


def _set(library: Any, number: int) -> None:
    """Set a number of threads, whoever set the one before."""
    _free(library)
    library.set_num_threads(number)


def _free(library: Any) -> None:
    """Undo what threadpoolctl 3.8 has begun: the thread that set a number for the process is the only one who may."""
    if hasattr(library, "clear_controlling_thread"):
        library.clear_controlling_thread(force=True)


def _is_of_a_thread(library: Any) -> bool:
    return getattr(library, "threading_layer", None) == "openmp"


@cache
def _blas() -> list[Any]:
    """Find the libraries of numpy's products: a search through all that are loaded."""
    from threadpoolctl import ThreadpoolController

    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]
