"""The device that a network is on, and the settings of torch under which it computes.

A process may set autocast, inference mode, a default device and a default dtype for all of torch. These are for the
caller's own code. A model has its own dtypes and devices: under another setting it would learn other weights, or fail
half-way. :func:`undisturbed` ignores such settings within a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import Thread
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from pcmcnet.errors import ConfigError
from pcmcnet.layers.generators import Draws, drawing_from, redirected
from pcmcnet.layers.tensor_ops import load_kernels

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


def get_ready(name: str) -> None:
    """Load in a thread what the first kernel on a device of this name waits for."""
    if name in ("auto", "cuda", "cuda:0"):
        thread = Thread(target=_load_quietly)
        thread.start()
        _loading.append(thread)


def wait_until_ready() -> None:
    """Wait for the threads of :func:`get_ready`: loading would disturb the recording of a CUDA graph."""
    for thread in _loading:
        thread.join()


def _load_quietly() -> None:
    with suppress(Exception):  # the next caller meets the same error, and reports it
        load_kernels()


# -- settings of torch --------------------------------------------------------------------------------------------


@contextmanager
def undisturbed() -> Iterator[None]:
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
def building(seed: int) -> Iterator[None]:
    """Build modules within the block in float32, with initial weights from a seed; other threads notice nothing."""
    with undisturbed(), _Float32(), drawing_from(Draws(seed)), redirected():
        yield


class _Float32(TorchFunctionMode):
    """Makes float32 the default dtype of one thread."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _FACTORIES and kwargs.get("dtype") is None:
            kwargs = {**kwargs, "dtype": torch.float32}
        return func(*args, **kwargs)
