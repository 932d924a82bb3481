"""The device that a network is on, the settings of torch under which it computes, and batches on the device.

A process may set autocast, inference mode, a default device and a default dtype for all of torch. These are for the
caller's own code. A model has its own dtypes and devices: under another setting it would learn other weights, or fail
half-way. :func:`default_torch_settings` ignores such settings within a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, replace
from functools import cache
from threading import Thread
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pcmcnet.arrays import Ints
from pcmcnet.data.batches import Batch, DistinctContents, EncodedSets
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.encoder import Encoder
from pcmcnet.errors import ConfigError
from pcmcnet.layers.generators import SeededGenerators, drawing_from, redirect_draws
from pcmcnet.layers.tensor_ops import has_triton, preload_kernels

T = TypeVar("T")

_AUTOCAST_DEVICES = ("cpu", "cuda", "mps", "xpu")  # autocast is a setting of each kind of device
_FACTORIES = {torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn}  # that use the default dtype

_loading: list[Thread] = []


# -- devices ------------------------------------------------------------------------------------------------------


def resolve_device(name: str) -> torch.device:
    """Return the device of this name; raise if it is not there or cannot compute."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise ConfigError(f"device {name!r} is not to be had here: {str(error).splitlines()[0]}") from error
    return device


def device_of(module: nn.Module) -> torch.device:
    """Return the device of a module's weights."""
    return next(module.parameters()).device


def start_preloading(name: str) -> None:
    """Load in a thread what the first kernel on a device of this name waits for."""
    if name in ("auto", "cuda", "cuda:0"):
        thread = Thread(target=_load_quietly)
        thread.start()
        _loading.append(thread)


def wait_for_preloading() -> None:
    """Wait for the threads of :func:`start_preloading`: loading would disturb the recording of a CUDA graph."""
    for thread in _loading:
        thread.join()


def _load_quietly() -> None:
    with suppress(Exception):  # the next caller meets the same error, and reports it
        preload_kernels()


# -- settings of torch --------------------------------------------------------------------------------------------


@contextmanager
def default_torch_settings() -> Iterator[None]:
    """Compute within the block as if the caller had set nothing for this thread."""
    # 1. Find what is set. Nothing is, as a rule: leave at once.
    cast = [kind for kind in _AUTOCAST_DEVICES if torch.is_autocast_enabled(kind)]
    elsewhere, inference = torch.empty(0).device.type != "cpu", torch.is_inference_mode_enabled()
    if not (cast or elsewhere or inference):
        yield
        return
    # 2. Undo each setting until the end of the block.
    with ExitStack() as stack:
        for kind in cast:
            stack.enter_context(torch.autocast(kind, enabled=False))
        if inference:
            stack.enter_context(torch.inference_mode(False))
        if elsewhere:
            stack.enter_context(torch.device("cpu"))
        yield


@contextmanager
def seeded_initialisation(seed: int) -> Iterator[None]:
    """Build modules within the block in float32, with initial weights from a seed; other threads notice nothing."""
    with default_torch_settings(), _Float32(), drawing_from(SeededGenerators(seed)), redirect_draws():
        yield


class _Float32(TorchFunctionMode):
    """Makes float32 the default dtype of one thread."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _FACTORIES and kwargs.get("dtype") is None:
            kwargs = {**kwargs, "dtype": torch.float32}
        return func(*args, **kwargs)


# -- batches on the device -------------------------------------------------------------------------------------------
#
# Batches on the device: gathered from tensors that are there, or, if these do not fit, copied over the bus as needed.
#
# In the second case the tensors stay in page-locked memory of the host. Each batch is put together there, and copied
# on a stream of its own while the device works on the one before.

ROWS_TO_ENCODE_ON_DEVICE = 2**13  # at least; fewer are not worth its calls. By choice
SETS_SHARE_OF_MEMORY = 0.5  # of the device's free memory that choice sets may take


def encode_on(device: torch.device, encoder: Encoder, data: ChoiceData, *, warn: bool = True) -> EncodedSets:
    """Encode choice sets on the device if they fit beside what else it needs, and else in page-locked memory."""
    if device.type != "cuda":
        return encoder.encode(data, warn=warn).to(device)
    room = SETS_SHARE_OF_MEMORY * torch.cuda.mem_get_info(device)[0]
    if len(data.rows) >= ROWS_TO_ENCODE_ON_DEVICE and not data.schema.contents and encoder.nbytes(data) <= room:
        return encoder.encode(data, warn=warn, device=device)
    encoded = encoder.encode(data, warn=warn)
    return encoded.to(device) if encoded.nbytes <= room else encoded.pinned()


def batches_on(device: torch.device, data: EncodedSets, plan: Iterable[Ints]) -> Iterator[Batch]:
    """Yield the batches of a plan on the device."""
    # 1. Sets that are on the device are gathered there. Positions are sent once, so that no batch waits for its own.
    if data.starts.device.type == device.type:
        plan = list(plan)
        order = copy_positions(np.concatenate([np.zeros(0, np.int64), *plan]), data.device)
        for index, sets in zip(torch.split(order, [len(sets) for sets in plan]), plan, strict=True):
            yield gather_batch(data, index, int(data.sizes[sets].max()))
        return
    # 2. Others are copied: the next batch on a stream of its own, while the caller works on the one before.
    stream, here = torch.cuda.Stream(device), torch.cuda.current_stream(device)  # type: ignore[no-untyped-call]
    previous: Batch | None = None
    for batch in map(data.batch, plan):
        with torch.cuda.stream(stream):
            following = _copied(batch, device, here)
        if previous is not None:
            yield previous
        here.wait_stream(stream)
        previous = following
    if previous is not None:
        yield previous


def gather_batch(data: EncodedSets, index: Tensor, places: int) -> Batch:
    """Gather sets by positions (B,) on the device, padded to so many places: in one kernel, where there is one."""
    other_columns = bool(data.contents or data.individual_contents) or data.person is not None
    if other_columns or index.device.type != "cuda" or not has_triton() or not data.is_contiguous:
        return data.gather(index, places)
    from pcmcnet.training import batches_triton

    return batches_triton.gather(data, index, places)


def copy_positions(positions: Ints, device: torch.device) -> Tensor:
    """Copy positions to a device; neither it nor the host waits."""
    on_gpu = device.type == "cuda"
    tensor = torch.from_numpy(positions)
    return (tensor.pin_memory() if on_gpu else tensor).to(device, non_blocking=on_gpu)


def predict_on_two_streams(
    module: nn.Module, batches: Iterable[Batch], compute: Callable[[Batch], Tensor]
) -> Iterator[tuple[Batch, Tensor]]:
    """Yield batches and a module's answers on two streams in turn: one batch begins while the one before ends."""
    device = device_of(module)
    here, streams = torch.cuda.current_stream(device), _streams(device)
    previous: tuple[Batch, Tensor, torch.cuda.Stream] | None = None
    try:
        for k, batch in enumerate(batches):
            # 1. Launch this batch on the stream that the one before does not use.
            stream = streams[k % 2]
            stream.wait_stream(here)
            with default_torch_settings(), torch.cuda.stream(stream):
                result = compute(batch)
            result.record_stream(here)
            # 2. Yield the one before; the caller's stream waits for it.
            if previous is not None:
                here.wait_stream(previous[2])
                yield previous[:2]
            previous = batch, result, stream
        if previous is not None:
            here.wait_stream(previous[2])
            yield previous[:2]
    finally:  # batches that still run read memory that is free from now on
        for stream in streams:
            here.wait_stream(stream)


@cache
def _streams(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    return torch.cuda.Stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def to_host(results: Iterable[tuple[T, Tensor]]) -> Iterator[tuple[T, Tensor]]:
    """Yield results on the host: each is copied while the device works on the next."""
    previous: tuple[T, Tensor, torch.cuda.Event] | None = None
    for sets, result in results:
        # 1. Begin to copy this result; an event marks the end of the copy.
        if result.device.type != "cuda":
            yield sets, result
            continue
        copy, done = result.to("cpu", non_blocking=True), torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record(torch.cuda.current_stream(result.device))
        # 2. Yield the one before, whose copy is done by now or soon.
        if previous is not None:
            previous[2].synchronize()
            yield previous[:2]
        previous = sets, copy, done
    if previous is not None:
        previous[2].synchronize()
        yield previous[:2]


def _copied(batch: Batch, device: torch.device, reader: torch.cuda.Stream) -> Batch:
    """Copy a batch without waiting for it; its memory is kept until the reader's stream is done with it."""

    def copied(tensor: Tensor) -> Tensor:
        copy = tensor.pin_memory().to(device, non_blocking=True)
        copy.record_stream(reader)
        return copy

    values = {f.name: getattr(batch, f.name) for f in fields(batch)}
    moved: dict[str, Any] = {k: copied(v) for k, v in values.items() if isinstance(v, Tensor)}
    for side in ("contents", "individual_contents"):
        moved[side] = tuple(DistinctContents(*map(copied, column)) for column in values[side])
    return replace(batch, **moved)
