"""Which pairs of a padded batch count."""

from __future__ import annotations

from torch import Tensor


def real_pairs(mask: Tensor) -> Tensor:  # (B, J) -> (B, J, J)
    """Mark the ordered pairs of two different real alternatives."""
    pairs = mask.unsqueeze(2) & mask.unsqueeze(1)
    pairs.diagonal(dim1=1, dim2=2).fill_(False)
    return pairs
