"""The parts of a network of layers, and a perceptron made of them: activations, dropout, fully connected layers.

Activations come with their derivatives. Where the derivative can be told from the result (relu 1 where y > 0,
leaky_relu also 0.01 elsewhere, sigmoid y (1 - y), tanh 1 - y^2), the result overwrites the input and is all that a
backward pass needs; silu and gelu need the input.

Dropout draws its masks cheaply on a CPU: four or eight entries from each 64-bit random number. One random number per
entry takes longer there than the matrix products of a wide hidden layer. With 8 bits per entry where the probability is
a multiple of 1/256, as 1/2 is, and 16 bits elsewhere, it is met to 2^-17. On other devices this is PyTorch's own
dropout, or, with a generator of one's own (``generators``), the same by hand.

A perceptron maps (..., D) -> (..., widths[-1]), with an activation after each layer but the last. The last layer starts
at 0, so that the perceptron adds nothing to a utility at the start, or, with ``start="spread"``, as the others do:
normal weights with variance 2 / fan-in and biases of 0.
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
NEGATIVE_SLOPES = {"relu": 0.0, "leaky_relu": 0.01}  # below 0, of activations that are linear on either side
_aten = torch.ops.aten


@dataclass(frozen=True)
class ActivationRule:
    """An activation that may overwrite its input, and its derivative.

    ``pull_back_(g, y)`` turns, in place, the gradient g by the result into that by the input. y is the result, or the
    input where ``of_input``.
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
        return apply_dropout(x, self.active)


def apply_dropout(x: Tensor, p: float) -> Tensor:
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
        start: LastLayerStart = "zero",
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
