"""Columns -> tensors of a GPU, where they are standardised and laid row by row.

The host only copies the K columns of n rows one beneath the other, into page-locked memory: raw numbers and codes of 32
bits go over the bus. The device computes in float64 what
:meth:`~pcmcnet.data.kinds.number.NumericCode.standardise` says, and turns (K, n) to (n, K), in a fraction of the time
that a core takes for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pcmcnet.data.kinds.number import NumericCode

_ROWS = 2**17  # of a block: nothing that is made in passing is as large as the result


def indices(columns: Sequence[NDArray[np.int32]], length: int, device: torch.device) -> Tensor:
    """(n, K) int64 codes of categories."""
    return sent([[column] for column in columns], length, torch.int32, device).t().long().contiguous()


def standardised(
    codes: Sequence[NumericCode], columns: Sequence[NDArray[np.float32]], length: int, device: torch.device
) -> Tensor:
    """(n, K + indicators) standardised numbers, with 0 for gaps, then a column for each that may have gaps."""
    out = torch.empty((length, len(codes) + sum(code.indicator for code in codes)), device=device)
    for begin in range(0, length, _ROWS):
        some = [[column[begin : begin + _ROWS]] for column in columns]
        rows = min(_ROWS, length - begin)
        out[begin : begin + rows] = standardise(codes, sent(some, rows, torch.float32, device))
    return out


def standardise(codes: Sequence[NumericCode], raw: Tensor) -> Tensor:
    """(K, n) float32 -> (n, K + indicators), as :func:`standardised`."""
    x = raw.double()
    facts = (("mean", 0.0), ("scale", 0.0), ("low", -math.inf), ("high", math.inf))  # limits of pieces
    table = [[getattr(code, name, free) for code in codes] for name, free in facts]
    mean, scale, low, high = x.new_tensor(table).unsqueeze(-1)  # (K, 1) each
    holes = [k for k, code in enumerate(codes) if code.indicator]
    gaps = x[holes].isnan()
    for k, code in enumerate(codes):
        if code.bend > 0:
            x[k] = (x[k] / code.bend).asinh()
    x = ((x - mean) / scale).clamp(low, high).masked_fill(scale == 0, 0.0)
    if holes:
        x[holes] = x[holes].masked_fill(gaps, 0.0)
    return torch.cat([x, gaps.double()]).t().float().contiguous()


def sent(columns: Sequence[Sequence[NDArray[Any]]], length: int, kind: torch.dtype, device: torch.device) -> Tensor:
    """(K, n) columns, each in chunks, on a device; the copy may still be under way."""
    there = device.type == "cuda"
    host = torch.empty((len(columns), length), dtype=kind, pin_memory=there)
    for row, chunks in zip(host.numpy(), columns, strict=True):
        at = 0
        for chunk in chunks:
            row[at : at + len(chunk)] = chunk
            at += len(chunk)
    return host.to(device, non_blocking=there)
