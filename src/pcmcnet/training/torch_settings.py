"""The torch settings under which models compute.

A caller may set autocast, inference mode, a default device and a default dtype for all of torch. These global settings
are meant for the caller's own code. A model chooses its own dtypes and devices: under other settings, a fit would learn
different weights or fail. Inside a block of :func:`default_torch_settings`, the caller's settings are ignored.

This module does not import torch, which takes longer than many fits of a logit. A program that has not imported torch
has not changed its settings.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_AUTOCAST_DEVICES = ("cpu", "cuda", "mps", "xpu")  # autocast is set separately for each device type


@contextmanager
def default_torch_settings(*, gradients: bool = False) -> Iterator[None]:
    """Ignore the torch settings of the calling thread inside the block, and with ``gradients`` enable gradients."""
    if "torch" not in sys.modules:
        yield
        return
    import torch

    # 1. Find the settings. Usually there are none, and nothing has to be undone.
    cast = [kind for kind in _AUTOCAST_DEVICES if torch.is_autocast_enabled(kind)]
    elsewhere, inference = torch.empty(0).device.type != "cpu", torch.is_inference_mode_enabled()
    disabled = gradients and not torch.is_grad_enabled()
    if not (cast or elsewhere or inference or disabled):
        yield
        return
    # 2. Undo each setting inside the block.
    with ExitStack() as stack:
        for kind in cast:
            stack.enter_context(torch.autocast(kind, enabled=False))
        if inference:
            stack.enter_context(torch.inference_mode(False))
        if elsewhere:
            stack.enter_context(torch.device("cpu"))
        if gradients:
            stack.enter_context(torch.enable_grad())
        yield
