"""Prepared contents -> vectors: one small network for each column of contents.

A content encoder is any module that maps (u, ...), the distinct contents of a batch, to (u, width). What it gets for
one content is for its kind's code to say: standardised numbers for a vector; sines, cosines and a trend for an instant;
indices of categories for a list; hashes and values of words for a text; (C, H, W) numbers from 0 to 1 for a picture.
The module of each kind is in :mod:`pcmcnet.data.kinds.networks`, or is the user's own. It must treat contents
one by one, so that a vector depends on its content alone: no batch normalisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pcmcnet.data.contents import modules_of
from pcmcnet.data.contents.frozen import Frozen
from pcmcnet.data.kinds import ContentCode
from pcmcnet.errors import ConfigError
from pcmcnet.layers.dropout import Dropout


def encoder_of(code: ContentCode, own: Mapping[str, nn.Module | Frozen]) -> nn.Module:
    """Return a copy of the user's module, or a fresh one of the kind; what is frozen gives vectors beforehand."""
    given = own.get(code.name)
    if isinstance(given, nn.Module):
        return deepcopy(given)
    return _with_own_dropout(modules_of(code).encoder(code))


def _with_own_dropout(encoder: nn.Module) -> nn.Module:
    """Let PyTorch's dropout draw its masks as a network does elsewhere, from the same generator."""
    for module in list(encoder.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, Dropout(child.p))
    return encoder


@torch.no_grad()
def width_of(encoder: nn.Module, code: ContentCode) -> int:
    """Return the width of the vectors that an encoder gives, by asking it for those of two blank contents."""
    device = next((p.device for p in encoder.parameters()), None)
    dtype = np.float32 if code.dtype == np.uint8 else code.dtype  # pictures come as numbers from 0 to 1
    blank = torch.from_numpy(np.zeros((2, *code.shape), dtype)).to(device)
    training = encoder.training
    try:
        found: Any = encoder.eval()(blank)
    except Exception as error:  # a user's module may raise anything
        raise ConfigError(f"{_told(encoder, code, blank)}, and it failed: {error}") from error
    finally:
        encoder.train(training)
    if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != 2 or not found.is_floating_point():
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ConfigError(f"{_told(encoder, code, blank)}, got {shape}.")
    return found.shape[1]


def _told(encoder: nn.Module, code: ContentCode, blank: Tensor) -> str:
    return (
        f"column {code.name!r}: {type(encoder).__name__} was given two contents of kind {code.kind}, "
        f"{blank.dtype} of shape {tuple(blank.shape)}, and should give vectors, shape (2, width)"
    )
