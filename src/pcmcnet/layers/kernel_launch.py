"""Launch Triton kernels, or only note what would be launched, so that all of it is compiled side by side.

To launch a kernel and to bring its programs to the processors takes longer than many a small kernel computes. On Hopper
chips and later, a kernel whose first statement is ``wait_for_earlier()`` is launched while the one before it in its
stream is still at work (programmatic dependent launch), and waits there for all that was written before.

Kernels are compiled when they are first launched, one after the other, which takes longer than to train on a small
table. A step that launches nothing shows which kernels the next ones need: see ``compile_in_parallel``.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc"

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from pcmcnet.layers import settings

HOPPER = (9, 0)
WAIT = "wait_for_earlier()"  # as kernels call it
ALIGNED = 16  # bytes, which tensors as a whole are, and views of them need not be

_capabilities = [torch.cuda.get_device_capability(k) for k in range(torch.cuda.device_count())]
EARLY = tl.constexpr(torch.version.hip is None and min(_capabilities, default=(0, 0)) >= HOPPER)  # on every device


@triton.jit
def wait_for_earlier():
    """Wait until all earlier kernels of the stream are done, and let the next one come to wait for this."""
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()


class Launch(NamedTuple):
    """A kernel and what it would be given, types for tensors."""

    kernel: Any
    grid: tuple[int, ...]
    given: tuple[Any, ...]
    kind: dict[str, Any]


_noted: dict[int, list[Launch]] = {}  # by streams: a backward pass has another thread, and the stream of the forward


def launch(kernel: Any, grid: tuple[int, ...], *given: Any, **kind: Any) -> None:
    """Launch a kernel, or note it; before the one before it ends, if the kernel says itself that it waits for that."""
    if _waits(kernel):
        kind["launch_pdl"] = True
    if is_collecting_kernels():
        stream = torch.cuda.current_stream()
        _noted[stream.cuda_stream].append(Launch(kernel, grid, tuple(map(_type_of, given)), kind))
        stream.query()  # as a launch would, it brings the device to this thread, which operators of torch rely on
        return
    device = next(value.device for value in given if isinstance(value, Tensor))
    with torch.cuda.device(device) if device.index != torch.cuda.current_device() else nullcontext():
        kernel[grid](*given, **kind)


@cache
def _waits(kernel: Any) -> bool:
    return bool(EARLY.value) and WAIT in kernel.src


def _type_of(value: Any) -> Any:
    """Return what a kernel is compiled for in place of a tensor, whose memory is not to be kept."""
    if isinstance(value, Tensor):
        return value.dtype if value.data_ptr() % ALIGNED == 0 else value
    base = getattr(value, "base", None)  # of a description of tiles
    return value if base is None else replace(value, base=base.new_empty(0))


def is_collecting_kernels() -> bool:
    """Tell whether launches on this stream are only noted."""
    return bool(_noted) and torch.cuda.current_stream().cuda_stream in _noted


@cache
def high_priority_stream(device: torch.device) -> torch.cuda.Stream:
    """Return a stream whose kernels come before those of others."""
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


@cache
def multiprocessor_count(device: torch.device) -> int:
    """Return how many blocks that fill a multiprocessor run at once."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def compile_in_parallel(work: Callable[[], None], stream: torch.cuda.Stream) -> None:
    """Compile all kernels that some work launches on a stream. It is done without them: its results are of no use.

    None is begun before all are known: the work would wait for Python's lock, and its last kernels for the work.
    """
    if not hasattr(triton, "AsyncCompileMode"):
        return
    noted = _noted[stream.cuda_stream] = []
    try:
        with torch.cuda.stream(stream):
            work()
    finally:
        del _noted[stream.cuda_stream]
    copy_context().run(_compile, noted, stream.device)  # Triton would stay in that mode after an error
    stream.synchronize()


def _compile(noted: Iterable[Launch], device: torch.device) -> None:
    """Compile kernels side by side."""
    pool = _Compilers(settings.KERNEL_COMPILER_THREADS, initializer=torch.cuda.set_device, initargs=(device,))
    with torch.cuda.device(device), pool, triton.AsyncCompileMode(pool):
        for kernel, grid, given, kind in noted:
            kernel.warmup(*given, grid=grid, **kind)


class _Compilers(ThreadPoolExecutor):
    """Threads that compile a kernel, bring it to the device, and compile what launches it."""

    def submit(self, make: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        def loaded() -> Any:
            kernel = make(*given, **named)
            _ = kernel.run
            return kernel

        return super().submit(loaded)
