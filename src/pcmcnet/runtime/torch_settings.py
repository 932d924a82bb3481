"""What a process has set for all of torch, and what of it a fit or a prediction takes no notice of.

Autocast, the mode of inference, and the default device and type are for the caller's own code. A model has types and
devices of its own: under a foreign setting it would learn other weights, or fail half-way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from pcmcnet.layers.generators import Draws, drawing_from, redirected

_KINDS = ("cpu", "cuda", "mps", "xpu")  # of devices, that autocast is switched on for one by one
_MADE = {torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn}  # in the default type, unless one is given


@contextmanager
def undisturbed() -> Iterator[None]:
    """Compute within the block as if nothing had been set for this thread."""
    cast = [kind for kind in _KINDS if torch.is_autocast_enabled(kind)]
    elsewhere, inference = torch.empty(0).device.type != "cpu", torch.is_inference_mode_enabled()
    if not (cast or elsewhere or inference):
        yield
        return
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
    """Make modules within the block in float32 and with first weights of a seed; for other threads nothing changes."""
    with undisturbed(), _Float32(), drawing_from(Draws(seed)), redirected():
        yield


class _Float32(TorchFunctionMode):
    """Makes float32 the default type of a thread."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _MADE and kwargs.get("dtype") is None:
            kwargs = {**kwargs, "dtype": torch.float32}
        return func(*args, **kwargs)
