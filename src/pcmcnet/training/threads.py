"""How many CPU threads a batch deserves.

Handing pieces of a small batch to several threads costs more than computing them on one, and where another process
wants the same cores the waiting makes it many times slower. So small batches run on a single thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

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
