"""Work done part by part, several parts at a time.

Parts are cut by the data alone and each is computed by one thread, so results are the same bit for bit whatever the
number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

import torch

T = TypeVar("T")
U = TypeVar("U")


def by_part(function: Callable[[T], U], parts: Sequence[T]) -> list[U]:
    """Call a function for every part; numpy and scipy let other threads run meanwhile."""
    if len(parts) < 2:
        return list(map(function, parts))
    with _blas().limit(limits=1, user_api="blas"), ThreadPoolExecutor(torch.get_num_threads()) as pool:
        return list(pool.map(function, parts))


@cache
def _blas() -> Any:
    """Find numpy's products, whose own threads would compete with those above and round otherwise."""
    return import_module("threadpoolctl").ThreadpoolController()
