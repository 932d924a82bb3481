"""The number type of the n^2 products, as one decision.

bfloat16 has the range of float32 and 8 bits of precision: its products are several times faster on processors made for
them. Sums within a product are in float32, and so are the scores and all that follows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from pcmcnet.layers import settings

Precision = Literal["auto", "float32", "bfloat16"]


def compute_dtype(precision: Precision, device: torch.device, widths: Sequence[int]) -> torch.dtype:
    """Choose the type of the products of a network with hidden layers of these widths on a device."""
    if precision == "auto":
        wide = len(widths) > 0 and all(width >= settings.BFLOAT16_FROM_UNITS for width in widths)
        precision = "bfloat16" if device.type == "cuda" and wide else "float32"
    return torch.bfloat16 if precision == "bfloat16" else torch.float32
