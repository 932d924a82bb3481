"""Launch Triton kernels, or collect them without launching, so that all of them are compiled in parallel.

Launching a small kernel and starting its programs often takes longer than running it. On Hopper GPUs and later,
a kernel whose first statement is ``wait_for_earlier()`` is launched while the previous kernel of its stream still runs
(programmatic dependent launch), and then waits for the results of all earlier kernels.

Triton compiles each kernel at its first launch, so kernels are compiled one after another, which takes longer than
training on a small table. A step that launches nothing shows which kernels the next steps need: see
``compile_in_parallel``.
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
    """Wait for all earlier kernels of the stream, and allow the next one to be launched."""
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()


class Launch(NamedTuple):
    """A collected launch: the kernel and its arguments, with types in place of tensors."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    kind: dict[str, Any]


_collected: dict[int, list[Launch]] = {}  # by stream: a backward pass runs in another thread, but on the same stream


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **kind: Any) -> None:
    """Launch a kernel, or collect it. If it calls ``wait_for_earlier``, it is launched before the previous one ends."""
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
    """Return what replaces an argument when its kernel is compiled, so that no tensor is kept in memory."""
    if isinstance(value, Tensor):
        return value.dtype if value.data_ptr() % ALIGNMENT_BYTES == 0 else value
    base = getattr(value, "base", None)  # a tensor descriptor refers to its tensor
    return value if base is None else replace(value, base=base.new_empty(0))


def is_collecting_kernels() -> bool:
    """Return True if launches on this stream are collected and not executed."""
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
    collected. Otherwise the compiling threads would slow down ``work`` by holding Python's lock, and the compilation of
    its last kernels would start late.
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
    """Compile kernels in parallel."""
    pool = _Compilers(settings.KERNEL_COMPILER_THREADS, initializer=torch.cuda.set_device, initargs=(device,))
    with torch.cuda.device(device), pool, triton.AsyncCompileMode(pool):
        for kernel, grid, arguments, kind in launches:
            kernel.warmup(*arguments, grid=grid, **kind)


class _Compilers(ThreadPoolExecutor):
    """Threads that compile a kernel, load it onto the device, and compile its launcher."""

    def submit(self, make: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Future[Any]:
        def loaded() -> Any:
            kernel = make(*arguments, **keywords)
            _ = kernel.run
            return kernel

        return super().submit(loaded)
