"""Activations, dropout, fully connected layers, and multilayer perceptrons.

Each activation comes with its derivative. The derivatives of relu, leaky_relu, sigmoid and tanh follow from the result
y, so the result overwrites the input and is all that the backward pass needs. For example, the derivative of sigmoid is
y (1 - y), and that of tanh is 1 - y^2. For silu and gelu, the backward pass needs the input.

On a CPU, dropout draws four or eight mask entries from each 64-bit random number: one random number per entry would
take longer than the matrix products of a wide hidden layer. An entry uses 8 bits if the probability is a multiple of
1/256, such as 1/2, and 16 bits otherwise, so the probability is exact to 2^-17. Other devices use PyTorch's dropout or,
with a seeded generator (``generators``), an explicit implementation of the same formula.

A perceptron maps (..., D) -> (..., widths[-1]), with an activation after each layer except the last. The last layer
starts at 0, so that the perceptron initially adds nothing to a utility. With ``start="spread"``, the last layer starts
like the other layers: normal weights with variance 2 / fan-in and biases of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcmcnet.layers.generators import generator_on
from pcmcnet.layers.tensor_ops import is_transformed

Activation = Literal["relu", "leaky_relu", "sigmoid", "tanh", "silu", "gelu"]
LastLayerStart = Literal["zero", "spread"]
NEGATIVE_SLOPES = {"relu": 0.0, "leaky_relu": 0.01}  # slopes below 0 of the piecewise-linear activations
_aten = torch.ops.aten


@dataclass(frozen=True)
class ActivationRule:
    """An activation function, which may overwrite its input, and its derivative.

    ``pull_back_(g, y)`` replaces the gradient g w.r.t. the result with the gradient w.r.t. the input, in place. y is
    the result, or the input if ``needs_input``.
    """

    apply: Callable[[Tensor], Tensor]
    pull_back_: Callable[[Tensor, Tensor], Tensor]
    needs_input: bool = False


ACTIVATIONS: dict[str, ActivationRule] = {
    "relu": ActivationRule(torch.relu_, lambda g, y: _aten.threshold_backward(g, y, 0, grad_input=g)),
    "leaky_relu": ActivationRule(
        lambda x: F.leaky_relu_(x, NEGATIVE_SLOPES["leaky_relu"]),
        lambda g, y: _aten.leaky_relu_backward(g, y, NEGATIVE_SLOPES["leaky_relu"], True, grad_input=g),
    ),
    "sigmoid": ActivationRule(torch.sigmoid_, lambda g, y: _aten.sigmoid_backward(g, y, grad_input=g)),
    "tanh": ActivationRule(torch.tanh_, lambda g, y: _aten.tanh_backward(g, y, grad_input=g)),
    "silu": ActivationRule(F.silu, lambda g, x: _aten.silu_backward(g, x, grad_input=g), needs_input=True),
    "gelu": ActivationRule(F.gelu, lambda g, x: _aten.gelu_backward(g, x, grad_input=g), needs_input=True),
}


class Dropout(nn.Module):
    """Set a share ``p`` of the entries to 0 and scale the rest by 1 / (1 - p), in training only."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.p = p

    @property
    def active(self) -> float:
        """Current dropout probability, which is 0 outside training."""
        return self.p if self.training else 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout: (...) -> (...)."""
        return apply_dropout(x, self.active)


def apply_dropout(x: Tensor, p: float) -> Tensor:
    """Set a share ``p`` of the entries to 0 and scale the rest by 1 / (1 - p)."""
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
    """Draw a dropout mask on the CPU: 1 with probability 1 - ``p``, else 0.

    The random numbers are drawn from ``generator``, or from torch's global generator if it is None. The mask is int8,
    because int8 comparisons and products take a fraction of the time of bool operations.
    """
    bits, kind = (8, torch.int8) if (p * 256).is_integer() else (16, torch.int16)
    count = torch.Size(shape).numel()
    numbers = torch.empty(-(-count * bits // 64), dtype=torch.int64, device="cpu")
    numbers.random_(-(2**63), None, generator=generator)
    entries = numbers.view(kind)[:count].view(shape)
    return entries.ge_(round(p * 2**bits) - 2 ** (bits - 1)).to(torch.int8)


class Perceptron(nn.Module):
    """A network of fully connected layers.

    Parameters
    ----------
    width
        Number of inputs.
    widths
        Number of units of each layer. The last entry is the number of outputs.
    activation, dropout
        Activation and dropout probability after each layer except the last. Defaults: "leaky_relu" and 0.
    start
        Initial weights of the last layer: "zero" (default) or "spread", as in the other layers.
    last_bias
        Whether the last layer has a bias. Default True. Utilities need no bias, because shifting all utilities of a set
        changes nothing: the gradient of the bias is 0, and Adam would follow its rounding errors.
    """

    def __init__(
        self,
        width: int,
        widths: Sequence[int],
        *,
        activation: Activation = "leaky_relu",
        dropout: float = 0.0,
        start: LastLayerStart = "zero",
        last_bias: bool = True,
    ) -> None:
        super().__init__()
        *hidden, last = pairwise((width, *widths))
        self.layers = nn.ModuleList([*(nn.Linear(*each) for each in hidden), nn.Linear(*last, bias=last_bias)])
        self.dropout = Dropout(dropout)
        self.activation = activation  # the name, because a function could not be pickled
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            nn.init.kaiming_normal_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        if start == "zero":
            nn.init.zeros_(self.layers[-1].weight)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers: (..., D) -> (..., widths[-1])."""
        activate = ACTIVATIONS[self.activation].apply
        for layer in self.layers[:-1]:
            x = self.dropout(activate(layer(x)))
        out: Tensor = self.layers[-1](x)
        return out
