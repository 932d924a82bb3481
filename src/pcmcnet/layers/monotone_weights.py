"""Linear layers whose weights keep to signs, so that a network rises or falls with some of its inputs, for every input.

Every unit, and every input, has a sign: +1 where it may only rise with what moves the output up, -1 where it may only
fall, 0 where it does not depend on that at all. The weight from l to k is then

    of any sign                     where l has sign 0
    0                               where l has a sign and k has none
    of sign(k) sign(l), or 0        where both have one.

By induction over layers with activations that never fall, a unit of sign +1 never falls, and one of sign -1 never
rises, when an input of sign +1 rises or one of sign -1 falls. The output has sign +1. Inputs of sign 0 act freely, on
units of any sign, and so does whatever they interact with.

The weights themselves are feasible, at the start and, by :meth:`SignedLinear.project_`, after each step of the
optimiser. So whatever reads weights needs to know nothing of signs.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

RISING_ACTIVATIONS = ("relu", "leaky_relu", "sigmoid", "tanh")  # silu and gelu fall somewhere below 0


def unit_signs(width: int) -> Tensor:
    """Return signs of hidden units (width,): a quarter +1, a quarter -1, the others 0."""
    return torch.tensor([1.0, -1.0, 0.0, 0.0]).repeat(-(-width // 4))[:width]


def bounds_of_signs(signs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least and the largest value of weights with these signs; 0 is a free one."""
    return (
        torch.where(signs > 0, 0.0, -math.inf),
        torch.where(signs < 0, 0.0, math.inf),
    )


class SignedLinear(nn.Linear):
    """A linear layer from inputs of some signs (in,) to units of some signs (out,): see the module."""

    low: Tensor
    high: Tensor

    def __init__(self, inputs: Tensor, units: Tensor, **options: Any) -> None:
        super().__init__(len(inputs), len(units), **options)
        low, high = bounds_of_signs(units.unsqueeze(1) * inputs)
        closed = (units == 0).unsqueeze(1) & (inputs != 0)
        self.register_buffer("low", low.masked_fill(closed, 0.0), persistent=False)
        self.register_buffer("high", high.masked_fill(closed, 0.0), persistent=False)

    @torch.no_grad()
    def reflect_(self) -> None:
        """Turn weights of the wrong sign round: those drawn at random keep their sizes."""
        wrong = (self.weight < self.low) | (self.weight > self.high)
        self.weight.copy_(torch.where(wrong, -self.weight, self.weight))
        self.project_()

    @torch.no_grad()
    def project_(self) -> None:
        """Set weights of the wrong sign to 0."""
        self.weight.clamp_(self.low, self.high)
