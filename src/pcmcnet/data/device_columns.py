"""Columns -> tensors of a GPU, where they are standardised and laid row by row.

The host only copies the K columns of n rows one beneath the other, into page-locked memory. Float32 numbers and
32-bit codes go over the bus. The device computes in float64 what
:meth:`~pcmcnet.data.kinds.number.NumericCode.standardise` says, and turns (K, n) to (n, K): a fraction of the time that
a core takes for it. It does so some rows at a time: nothing that is made in passing is as large as the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pcmcnet.data.kinds.number import NumericCode

_ROWS = 2**17  # of a block


def indices(columns: Sequence[NDArray[np.int32]], length: int, device: torch.device) -> Tensor:
    """(n, K) int64 codes of categories."""
    if not columns:
        return torch.empty((length, 0), dtype=torch.int64, device=device)
    return _sent(columns, torch.int32, device).t().long().contiguous()


def standardised(
    codes: Sequence[NumericCode], columns: Sequence[NDArray[np.float32]], length: int, device: torch.device
) -> Tensor:
    """(n, K + indicators) standardised numbers, with 0 for gaps, then a column for each that may have gaps."""
    holes = [k for k, code in enumerate(codes) if code.indicator]
    out = torch.empty((length, len(codes) + len(holes)), device=device)
    if not codes:
        return out
    mean, scale = (
        torch.tensor([getattr(code, name) for code in codes], dtype=torch.float64, device=device).unsqueeze(1)
        for name in ("mean", "scale")
    )
    for begin in range(0, length, _ROWS):
        rows = slice(begin, begin + _ROWS)
        x = _sent([column[rows] for column in columns], torch.float32, device).double()  # (K, n)
        gaps = x[holes].isnan()
        for k, code in enumerate(codes):
            if code.bend > 0:
                x[k] = (x[k] / code.bend).asinh()
        x = ((x - mean) / scale).masked_fill(scale == 0, 0.0)
        if holes:
            x[holes] = x[holes].masked_fill(gaps, 0.0)
            out[rows, len(codes) :] = gaps.t()
        out[rows, : len(codes)] = x.t()
    return out


def _sent(columns: Sequence[NDArray[Any]], kind: torch.dtype, device: torch.device) -> Tensor:
    """(K, n) columns on a device; the copy may still be under way."""
    there = device.type == "cuda"
    host = torch.empty((len(columns), len(columns[0])), dtype=kind, pin_memory=there)
    np.stack(columns, out=host.numpy())
    return host.to(device, non_blocking=there)
