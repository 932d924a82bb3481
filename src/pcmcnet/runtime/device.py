"""The device that a network is on: found by its name, or from the weights; and made ready beforehand."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

import torch
from torch import nn

from pcmcnet.errors import ConfigError
from pcmcnet.layers.gpu import load_kernels

_loading: list[Thread] = []


def resolve_device(name: str) -> torch.device:
    """Turn a device's name into a device that is there and can compute."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise ConfigError(f"device {name!r} is not to be had here: {str(error).splitlines()[0]}") from error
    return device


def get_ready(name: str) -> None:
    """Load in a thread what the first kernel on a device of this name waits for."""
    if name in ("auto", "cuda", "cuda:0"):
        thread = Thread(target=_get_ready)
        thread.start()
        _loading.append(thread)


def wait_until_ready() -> None:
    """Wait for such threads: what they do would disturb a recording of kernels."""
    for thread in _loading:
        thread.join()


def _get_ready() -> None:
    with suppress(Exception):  # whoever needs it next meets the same, and can tell
        load_kernels()


def device_of(module: nn.Module) -> torch.device:
    """Where a module's weights are."""
    return next(module.parameters()).device
