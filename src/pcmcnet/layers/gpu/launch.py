"""Launching kernels; or only noting what would be launched, so that all of it is compiled side by side.

Kernels are compiled when they are first launched, one after the other, which takes longer than to train on a small
table. A step that launches nothing shows which kernels the next ones need.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

THREADS = 16
ALIGNED = 16  # bytes, which tensors as a whole are, and views of them need not be


class Launch(NamedTuple):
    """A kernel and what it would be given, types for tensors."""

    kernel: Any
    grid: tuple[int, ...]
    given: tuple[Any, ...]
    kind: dict[str, Any]


_noted: dict[int, list[Launch]] = {}  # by streams: a backward pass has another thread, and the stream of the forward


def launch(kernel: Any, grid: tuple[int, ...], *given: Any, **kind: Any) -> None:
    """Launch a kernel, or note it."""
    if noting():
        noted = Launch(kernel, grid, tuple(map(_type_of, given)), kind)
        _noted[torch.cuda.current_stream().cuda_stream].append(noted)
        return
    device = next(value.device for value in given if isinstance(value, Tensor))
    with torch.cuda.device(device) if device.index != torch.cuda.current_device() else nullcontext():
        kernel[grid](*given, **kind)


def _type_of(value: Any) -> Any:
    """Return what a kernel is compiled for in place of a tensor, whose memory is not to be kept."""
    if isinstance(value, Tensor):
        return value.dtype if value.data_ptr() % ALIGNED == 0 else value
    base = getattr(value, "base", None)  # of a description of tiles
    return value if base is None else replace(value, base=base.new_empty(0))


def noting() -> bool:
    """Tell whether launches on this stream are only noted."""
    return bool(_noted) and torch.cuda.current_stream().cuda_stream in _noted


@cache
def first_stream(device: torch.device) -> torch.cuda.Stream:
    """Return a stream whose kernels come before those of others."""
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


def compile_together(work: Callable[[], None], stream: torch.cuda.Stream) -> None:
    """Compile all kernels that some work launches on a stream. It is done without them: its results are of no use."""
    if not hasattr(triton, "AsyncCompileMode"):
        return
    noted: list[Launch] = []
    _noted[stream.cuda_stream] = noted
    try:
        with torch.cuda.stream(stream):
            work()
    finally:
        del _noted[stream.cuda_stream]
    stream.synchronize()
    device = stream.device
    with ThreadPoolExecutor(THREADS, initializer=torch.cuda.set_device, initargs=(device,)) as pool:
        with triton.AsyncCompileMode(pool):
            found = [kernel.warmup(*given, grid=grid, **kind) for kernel, grid, given, kind in noted]
        ready = {id(kernel): kernel for kernel in (f.result() if hasattr(f, "result") else f for f in found)}
        list(pool.map(_load, ready.values()))


def _load(kernel: Any) -> None:
    """Bring a compiled kernel to the device, and compile what launches it."""
    _ = kernel.run
