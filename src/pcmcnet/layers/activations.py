"""Activations of the hidden layers, each with its derivative.

Where the derivative can be told from the result (relu 1 where y > 0, leaky_relu also 0.01 elsewhere, sigmoid y (1 - y),
tanh 1 - y^2), the result overwrites the input and is all that a backward pass needs; silu and gelu need the input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Activation = Literal["relu", "leaky_relu", "sigmoid", "tanh", "silu", "gelu"]

SLOPES = {"relu": 0.0, "leaky_relu": 0.01}  # below 0, of activations that are linear on either side
_aten = torch.ops.aten


@dataclass(frozen=True)
class ActivationRule:
    """An activation that may overwrite its input, and its derivative.

    ``pull_back_(g, y)`` turns, in place, the gradient g by the result into that by the input. y is the result, or the
    input where ``of_input``.
    """

    apply: Callable[[Tensor], Tensor]
    pull_back_: Callable[[Tensor, Tensor], Tensor]
    of_input: bool = False


ACTIVATIONS: dict[str, ActivationRule] = {
    "relu": ActivationRule(torch.relu_, lambda g, y: _aten.threshold_backward(g, y, 0, grad_input=g)),
    "leaky_relu": ActivationRule(
        lambda x: F.leaky_relu_(x, SLOPES["leaky_relu"]),
        lambda g, y: _aten.leaky_relu_backward(g, y, SLOPES["leaky_relu"], True, grad_input=g),
    ),
    "sigmoid": ActivationRule(torch.sigmoid_, lambda g, y: _aten.sigmoid_backward(g, y, grad_input=g)),
    "tanh": ActivationRule(torch.tanh_, lambda g, y: _aten.tanh_backward(g, y, grad_input=g)),
    "silu": ActivationRule(F.silu, lambda g, x: _aten.silu_backward(g, x, grad_input=g), of_input=True),
    "gelu": ActivationRule(F.gelu, lambda g, x: _aten.gelu_backward(g, x, grad_input=g), of_input=True),
}
