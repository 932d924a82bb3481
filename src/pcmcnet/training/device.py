"""The device of a network, its initial weights, and batches on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from functools import cache
from threading import Thread
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pcmcnet.arrays import Ints
from pcmcnet.checks import require_device_name
from pcmcnet.data.batches import Batch, DistinctContents, EncodedSets
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.encoder import Encoder
from pcmcnet.errors import ConfigError
from pcmcnet.layers.generators import SeededGenerators, drawing_from, redirect_draws
from pcmcnet.layers.tensor_ops import has_triton, preload_kernels
from pcmcnet.training.torch_settings import default_torch_settings

T = TypeVar("T")

_FACTORIES = {torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn}  # functions that use the default dtype

_loading: list[Thread] = []


# -- devices ------------------------------------------------------------------------------------------------------


def resolve_device(name: str) -> torch.device:
    """Return the device with this name, or raise ConfigError if the device is not available."""
    require_device_name(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise _unavailable_device(name, error) from error
    return device


def _unavailable_device(name: str, error: Exception) -> ConfigError:
    """Return the error for a device that does not exist or is not available."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    kind = str(name).partition(":")[0].lower()
    here = "no NVIDIA GPU was found, or torch was installed without CUDA" if not gpus else f"{gpus} GPUs were found"
    if kind == "cuda":
        return ConfigError(f"device {name!r} is not available: {here}. Use 'cpu', or 'auto' for the best device.")
    reason = str(error).splitlines()[0].partition(". ")[0]  # the rest of PyTorch's message lists twenty back ends
    reason = "" if "device type" in reason else f" ({reason})"
    return ConfigError(f"device {name!r} is not available{reason}: use 'auto', 'cpu' or 'cuda'.")


def device_of(module: nn.Module) -> torch.device:
    """Return the device of a module's weights."""
    return next(module.parameters()).device


def start_preloading(name: str) -> None:
    """Start a thread that loads drivers and kernels, so that the first computation on a GPU does not wait for them."""
    if name in ("auto", "cuda", "cuda:0"):
        thread = Thread(target=_preload)
        with suppress(RuntimeError):  # no thread can be started: the first computation loads them instead
            thread.start()
            _loading.append(thread)


def wait_for_preloading() -> None:
    """Wait for the threads of :func:`start_preloading`, because loading would interfere with capturing a CUDA graph."""
    for thread in _loading:
        thread.join()


def _preload() -> None:
    """Preload the kernels. Errors are ignored, because the first computation will raise them again."""
    with suppress(Exception):
        preload_kernels()


# -- initial weights --------------------------------------------------------------------------------------------


@contextmanager
def seeded_initialisation(seed: int) -> Iterator[None]:
    """Build modules inside the block in float32, with initial weights from a seed, without affecting other threads."""
    with default_torch_settings(), _Float32(), drawing_from(SeededGenerators(seed)), redirect_draws():
        yield


class _Float32(TorchFunctionMode):
    """Torch function mode that makes float32 the default dtype of one thread."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _FACTORIES and kwargs.get("dtype") is None:
            kwargs = {**kwargs, "dtype": torch.float32}
        return func(*args, **kwargs)


# -- batches on the device -------------------------------------------------------------------------------------------
#
# Batches are gathered from tensors on the device. If these do not fit, they stay in page-locked memory of the host:
# each batch is gathered there, and copied on a separate stream while the device computes the previous one.

ROWS_TO_ENCODE_ON_DEVICE = 2**13  # below this, encoding on the host is fast enough. Not tuned
SETS_SHARE_OF_MEMORY = 0.5  # maximum share of the device's free memory for choice sets


def encode_on(device: torch.device, encoder: Encoder, data: ChoiceData, *, warn: bool = True) -> EncodedSets:
    """Encode choice sets on the device if they fit, otherwise in page-locked memory of the host."""
    if device.type != "cuda":
        return encoder.encode(data, warn=warn).to(device)
    room = SETS_SHARE_OF_MEMORY * torch.cuda.mem_get_info(device)[0]
    if len(data.rows) >= ROWS_TO_ENCODE_ON_DEVICE and not data.schema.contents and encoder.nbytes(data) <= room:
        return encoder.encode(data, warn=warn, device=device)
    encoded = encoder.encode(data, warn=warn)
    return encoded.to(device) if encoded.nbytes <= room else encoded.pinned()


def batches_on(device: torch.device, data: EncodedSets, plan: Iterable[Ints]) -> Iterator[Batch]:
    """Yield the batches of a plan on the device."""
    # 1. Sets on the device are gathered there. All positions are sent in one copy, so that no batch waits for its own.
    if data.starts.device.type == device.type:
        plan = list(plan)
        order = copy_positions(np.concatenate([np.zeros(0, np.int64), *plan]), data.device)
        for index, sets in zip(torch.split(order, [len(sets) for sets in plan]), plan, strict=True):
            yield gather_batch(data, index, int(data.sizes[sets].max()))
        return
    # 2. Sets on the host are copied: each batch on a separate stream, while the caller uses the previous one.
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
    """Gather sets by positions (B,), padded to ``places`` alternatives, with a single kernel if supported."""
    has_other_columns = bool(data.contents or data.individual_contents) or data.person is not None
    has_other_columns |= data.log_expansion is not None
    if has_other_columns or index.device.type != "cuda" or not has_triton() or not data.is_contiguous:
        return data.gather(index, places)
    from pcmcnet.training import batches_triton

    return batches_triton.gather(data, index, places)


def copy_positions(positions: Ints, device: torch.device) -> Tensor:
    """Copy positions to a device without synchronising with it."""
    on_gpu = device.type == "cuda"
    tensor = torch.from_numpy(positions)
    return (tensor.pin_memory() if on_gpu else tensor).to(device, non_blocking=on_gpu)


def predict_on_two_streams(
    module: nn.Module, batches: Iterable[Batch], compute: Callable[[Batch], Tensor]
) -> Iterator[tuple[Batch, Tensor]]:
    """Yield batches and their results, computed on two alternating streams so that consecutive batches overlap."""
    device = device_of(module)
    here, streams = torch.cuda.current_stream(device), _streams(device)
    previous: tuple[Batch, Tensor, torch.cuda.Stream] | None = None
    try:
        for k, batch in enumerate(batches):
            # 1. Launch this batch on the stream that the previous batch does not use.
            stream = streams[k % 2]
            stream.wait_stream(here)
            with default_torch_settings(), torch.cuda.stream(stream):
                result = compute(batch)
            result.record_stream(here)
            # 2. Yield the previous batch; the caller's stream waits for it.
            if previous is not None:
                here.wait_stream(previous[2])
                yield previous[:2]
            previous = batch, result, stream
        if previous is not None:
            here.wait_stream(previous[2])
            yield previous[:2]
    finally:  # batches that still run use memory that may be freed from now on
        for stream in streams:
            here.wait_stream(stream)


@cache
def _streams(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """Return the two streams for predictions on a device."""
    return torch.cuda.Stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def to_host(results: Iterable[tuple[T, Tensor]]) -> Iterator[tuple[T, Tensor]]:
    """Yield results on the host. Each result is copied while the device computes the next one."""
    previous: tuple[T, Tensor, torch.cuda.Event] | None = None
    for sets, result in results:
        # 1. Start copying this result; an event marks the end of the copy.
        if result.device.type != "cuda":
            yield sets, result
            continue
        copy, done = result.to("cpu", non_blocking=True), torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record(torch.cuda.current_stream(result.device))
        # 2. Yield the previous result, whose copy is done or nearly done.
        if previous is not None:
            previous[2].synchronize()
            yield previous[:2]
        previous = sets, copy, done
    if previous is not None:
        previous[2].synchronize()
        yield previous[:2]


def _copied(batch: Batch, device: torch.device, reader: torch.cuda.Stream) -> Batch:
    """Start copying a batch, and keep its memory until the reader's stream has finished with the batch."""

    def copied(tensor: Tensor) -> Tensor:
        copy = tensor.pin_memory().to(device, non_blocking=True)
        copy.record_stream(reader)
        return copy

    values = {f.name: getattr(batch, f.name) for f in fields(batch)}
    moved: dict[str, Any] = {k: copied(v) for k, v in values.items() if isinstance(v, Tensor)}
    for side in ("contents", "individual_contents"):
        moved[side] = tuple(DistinctContents(*map(copied, column)) for column in values[side])
    return replace(batch, **moved)
