"""Work done part by part, several parts at a time.

Parts are cut by the data alone and each is computed by one thread, so results are the same bit for bit whatever the
number of threads. numpy's products have threads of their own, which would compete with those and round otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch

T = TypeVar("T")
U = TypeVar("U")


def by_part(function: Callable[[T], U], parts: Sequence[T]) -> list[U]:
    """Call a function for every part; numpy and scipy let other threads run meanwhile."""
    if len(parts) < 2:
        return list(map(function, parts))
    with products_in_one_thread(), ThreadPoolExecutor(torch.get_num_threads()) as pool:
        return list(pool.map(function, parts))


@contextmanager
def products_in_one_thread() -> Iterator[None]:
    """Let every product of numpy's have one thread."""
    with _blas().limit(limits=1, user_api="blas"):
        yield


@cache
def _blas() -> Any:
    """Find the library of numpy's products: a search through all that are loaded."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
