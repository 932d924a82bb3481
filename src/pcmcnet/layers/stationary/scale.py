"""What every solver begins and ends with: rates of padding out, one scale a set, working and result types."""

from __future__ import annotations

import torch
from torch import Tensor

from pcmcnet.layers.pair_mask import real_pairs


def scaled(rates: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:  # (B, n, n), (B, n) -> (B, n, n), (B,)
    """Return the rates between real states over their largest, 0 elsewhere, in working precision, and that largest."""
    q = torch.where(real_pairs(mask), rates, 0).to(working_type(rates.device)).contiguous()
    scale = q.amax((1, 2)).clamp_min_(torch.finfo(q.dtype).tiny)  # a set without rates: anything positive will do
    q /= scale[:, None, None]
    return q, scale


def copied(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a contiguous copy in the result type; an operator's results may not share memory."""
    return value.to(result_type(dtype), copy=True, memory_format=torch.contiguous_format)


def working_type(device: torch.device) -> torch.dtype:
    """Return the type in which chains are solved: the widest of the device."""
    return torch.float32 if device.type == "mps" else torch.float64


def result_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type of the probabilities for rates of a type."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
