"""Layers one above the other: (..., D) -> (..., widths[-1]), an activation after each but the last.

The last layer starts at 0, so that what the perceptron adds to a utility is nothing at the start, or, with
``start="spread"``, as the others do: normal weights with variance 2 / fan-in and biases of 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn

from pcmcnet.layers.activations import ACTIVATIONS, Activation
from pcmcnet.layers.dropout import Dropout

Start = Literal["zero", "spread"]


class Perceptron(nn.Module):
    """A network of fully connected layers.

    Parameters
    ----------
    width
        Of the inputs.
    widths
        Of the layers, the last being the output.
    activation, dropout
        After each layer but the last.
    start
        Of the last layer.
    last_bias
        Whether the last layer has one. A shift of all utilities of a set changes nothing: its gradient is 0, and Adam
        would follow its rounding errors.
    """

    def __init__(
        self,
        width: int,
        widths: Sequence[int],
        *,
        activation: Activation = "leaky_relu",
        dropout: float = 0.0,
        start: Start = "zero",
        last_bias: bool = True,
    ) -> None:
        super().__init__()
        *hidden, last = pairwise((width, *widths))
        self.layers = nn.ModuleList([*(nn.Linear(*each) for each in hidden), nn.Linear(*last, bias=last_bias)])
        self.dropout = Dropout(dropout)
        self.activate = ACTIVATIONS[activation].apply
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            nn.init.kaiming_normal_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        if start == "zero":
            nn.init.zeros_(self.layers[-1].weight)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., widths[-1])."""
        for layer in self.layers[:-1]:
            x = self.dropout(self.activate(layer(x)))
        out: Tensor = self.layers[-1](x)
        return out
