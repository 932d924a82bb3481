"""Which pairs of a padded batch count."""

from __future__ import annotations

import torch
from torch import Tensor


def real_pairs(mask: Tensor) -> Tensor:  # (B, J) -> (B, J, J)
    """Mark the ordered pairs of two different real alternatives."""
    pairs = mask.unsqueeze(2) & mask.unsqueeze(1)
    if torch.compiler.is_exporting():  # an exported graph writes to no part of a tensor
        return pairs & ~torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)
    pairs.diagonal(dim1=1, dim2=2).fill_(False)
    return pairs
