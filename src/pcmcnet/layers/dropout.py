"""Dropout whose masks are cheap to draw on a CPU: four or eight entries from each 64-bit random number.

Drawing one random number per entry takes longer there than the matrix products of a wide hidden layer. With 8 bits
per entry where the probability is a multiple of 1/256, as 1/2 is, and 16 bits elsewhere, it is met to 2^-17.
On other devices this is PyTorch's own dropout, or, with a generator of its own (see ``draws``), the same by hand.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcmcnet.layers.generators import generator_on
from pcmcnet.layers.transforms import is_transformed


class Dropout(nn.Module):
    """Set a share ``p`` of the entries to 0 and scale the others by 1 / (1 - p), in training only."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.p = p

    @property
    def active(self) -> float:
        """The probability of dropping an entry now: 0 outside training."""
        return self.p if self.training else 0.0

    def forward(self, x: Tensor) -> Tensor:
        """(...) -> (...)."""
        return dropped(x, self.active)


def dropped(x: Tensor, p: float) -> Tensor:
    """Set a share ``p`` of the entries to 0 and scale the others by 1 / (1 - p)."""
    if p == 0:
        return x
    if torch.compiler.is_compiling():
        return F.dropout(x, p)
    generator = generator_on(x.device)
    if generator is None and (x.device.type != "cpu" or is_transformed(x)):
        return F.dropout(x, p)
    if x.device.type == "cpu":
        return x * random_mask(x.shape, p, generator).to(x.dtype).div_(1 - p)
    return x * torch.empty_like(x).bernoulli_(1 - p, generator=generator).div_(1 - p)


def random_mask(shape: tuple[int, ...], p: float, generator: torch.Generator | None = None) -> Tensor:
    """Draw which entries stay, on the CPU: 1 with probability 1 - ``p``, else 0.

    The numbers come from the generator given, or from the global one of torch. They are int8, which takes a fraction of
    the time of bool to compare and to multiply by.
    """
    bits, kind = (8, torch.int8) if (p * 256).is_integer() else (16, torch.int16)
    count = torch.Size(shape).numel()
    numbers = torch.empty(-(-count * bits // 64), dtype=torch.int64, device="cpu")
    numbers.random_(-(2**63), None, generator=generator)
    entries = numbers.view(kind)[:count].view(shape)
    return entries.ge_(round(p * 2**bits) - 2 ** (bits - 1)).to(torch.int8)
