"""Launch Triton kernels, or collect kernels without launching them, so that they can be compiled in parallel.

For a small kernel, the launch often takes longer than the computation. On Hopper GPUs and later, a kernel whose first
statement is ``wait_for_earlier()`` is launched while the previous kernel of its stream is still running (programmatic
dependent launch). The kernel then waits for the results of all earlier kernels.

Triton compiles each kernel at its first launch, so kernels are compiled one after another, which takes longer than
training on a small table. A dry run, which launches nothing, collects the kernels that later steps need, and
``compile_in_parallel`` compiles them together.
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

HOPPER_CAPABILITY = (9, 0)
WAIT_CALL = "wait_for_earlier()"  # as it is written in kernels
ALIGNMENT_BYTES = 16  # of the address of a whole tensor; a view may start anywhere

_capabilities = [torch.cuda.get_device_capability(k) for k in range(torch.cuda.device_count())]
# Programmatic dependent launch is used only if every device supports it.
EARLY = tl.constexpr(torch.version.hip is None and min(_capabilities, default=(0, 0)) >= HOPPER_CAPABILITY)


@triton.jit
def wait_for_earlier():
    """Wait for all earlier kernels of the stream, and allow the next kernel to be launched."""
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()


class Launch(NamedTuple):
    """A collected kernel launch: the kernel and its arguments, with tensors replaced by their types."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    kind: dict[str, Any]


_collected: dict[int, list[Launch]] = {}  # by stream: a backward pass runs in another thread, but on the same stream


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **kind: Any) -> None:
    """Launch or collect a kernel. A kernel that calls ``wait_for_earlier`` is launched before the previous one ends."""
    if _waits(kernel):
        kind["launch_pdl"] = True
    if is_collecting_kernels():
        stream = torch.cuda.current_stream()
        _collected[stream.cuda_stream].append(Launch(kernel, grid, tuple(map(_type_of, arguments)), kind))
        stream.query()  # like a launch, this makes the device current in this thread, as torch expects
        return
    device = next(value.device for value in arguments if isinstance(value, Tensor))
    with torch.cuda.device(device) if device.index != torch.cuda.current_device() else nullcontext():
        kernel[grid](*arguments, **kind)


@cache
def _waits(kernel: Any) -> bool:
    return bool(EARLY.value) and WAIT_CALL in kernel.src


def _type_of(value: Any) -> Any:
    """Return a placeholder for a kernel argument, sufficient for compilation, so that no tensor is kept in memory."""
    if isinstance(value, Tensor):
        return value.dtype if value.data_ptr() % ALIGNMENT_BYTES == 0 else value
    base = getattr(value, "base", None)  # a tensor descriptor refers to its tensor
    return value if base is None else replace(value, base=base.new_empty(0))


def is_collecting_kernels() -> bool:
    """Return True if launches on the current stream are collected instead of executed."""
    return bool(_collected) and torch.cuda.current_stream().cuda_stream in _collected


@cache
def high_priority_stream(device: torch.device) -> torch.cuda.Stream:
    """Return a stream whose kernels are scheduled before those of other streams."""
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


@cache
def multiprocessor_count(device: torch.device) -> int:
    """Return the number of multiprocessors of a device."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def compile_in_parallel(work: Callable[[], None], stream: torch.cuda.Stream) -> None:
    """Compile all kernels that ``work`` would launch on a stream.

    Nothing is launched, so the results of ``work`` are meaningless. Compilation starts after all kernels have been
    collected. Otherwise, the compiler threads would slow down ``work`` by holding Python's global interpreter lock, and
    the last kernels would be compiled late.
    """
    if not hasattr(triton, "AsyncCompileMode"):
        return
    launches = _collected[stream.cuda_stream] = []
    try:
        with torch.cuda.stream(stream):
            work()
    finally:
        del _collected[stream.cuda_stream]
    copy_context().run(_compile, launches, stream.device)  # after an error Triton would stay in async mode
    stream.synchronize()


def _compile(launches: Iterable[Launch], device: torch.device) -> None:
    """Compile the collected kernels in parallel."""
    pool = _Compilers(settings.KERNEL_COMPILER_THREADS, initializer=torch.cuda.set_device, initargs=(device,))
    with torch.cuda.device(device), pool, triton.AsyncCompileMode(pool):
        for kernel, grid, arguments, kind in launches:
            kernel.warmup(*arguments, grid=grid, **kind)


class _Compilers(ThreadPoolExecutor):
    """Thread pool whose workers compile a kernel, load it onto the device, and compile its launcher."""

    def submit(self, make: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Future[Any]:
        def loaded() -> Any:
            kernel = make(*arguments, **keywords)
            _ = kernel.run
            return kernel

        return super().submit(loaded)
