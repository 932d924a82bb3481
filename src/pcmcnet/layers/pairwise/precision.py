"""The number type of the n^2 products, as one decision.

bfloat16 has the range of float32 and 8 bits of precision: its products are several times faster on processors made for
them. Sums within a product are in float32, and so are the scores and all that follows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

Precision = Literal["auto", "float32", "bfloat16"]


WIDE = 128  # units from which products of bfloat16 pay on a GPU


def compute_dtype(precision: Precision, device: torch.device, widths: Sequence[int]) -> torch.dtype:
    """Choose the type of the products of a network with hidden layers of these widths on a device."""
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" and min(widths, default=0) >= WIDE else torch.float32
    return torch.bfloat16 if precision == "bfloat16" else torch.float32
