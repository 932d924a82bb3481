"""Representations -> factors of the rates: two networks f and g that share their hidden layers.

    q_ij = sum_k exp(f_k(I, S_i)) exp(g_k(I, S_j))        k = 1, ..., r

The hidden layers read the individual and one alternative, so n alternatives take n evaluations instead of n^2.
Shapes: individual (B, D0), alternatives (B, J, D) -> log_u, log_v (B, J, r).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcmcnet.checks import require_number, require_word
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.layers.inner_logit import RISING_ACTIVATIONS, SignedLinear, unit_signs
from pcmcnet.layers.pairwise import Precision, compute_dtype
from pcmcnet.layers.perceptron import ACTIVATIONS, Activation, Dropout
from pcmcnet.layers.tensor_ops import has_triton, needs_plain_operators

# On a CPU, the hidden layers of more alternatives are computed in blocks. Memory of larger tensors is returned to the
# system and cleared again, page by page (measured for 300,000 alternatives: 565 ms a step instead of 1,030).
BLOCK_ALTERNATIVES = 50_000
MAX_RANK = 128  # states of the chain of factors that the elimination on a GPU supports


class FactoredRates(nn.Module):
    """Layer that computes the factors of the rates of each alternative, for each individual.

    Context effects are products of deviations between the factors: of f for the alternative that is left, and of g for
    the one that is entered. At equal factors, these products and their gradients are 0, and training would never leave
    the logit. Therefore the output layer starts with a spread of about 1.

    Parameters
    ----------
    d_individual
        Width D0 of the individual's representation; may be 0.
    d_alternative
        Width D of an alternative's representation.
    rank
        Number r of factors, at most 128.
    hidden
        Number of units in each hidden layer. If empty, f and g are linear. Default: (64, 64).
    activation
        Activation of the hidden layers: "relu", "leaky_relu" (default), "sigmoid", "tanh", "silu" or "gelu".
    dropout
        Dropout probability of the hidden layers. Default: 0.
    precision
        Dtype of the matrix products of the hidden layers: "float32", "bfloat16", or "auto" (default), which selects
        bfloat16 for wide hidden layers on a GPU and float32 otherwise. The output layer computes in float32.
    signs
        Signs (D,) of the entries of an alternative's representation: 1, -1 or 0. If an entry of sign 1 rises, no factor
        leads to the alternative less often, and none is used more often to leave it. For sign -1, the reverse holds.
        Default None: no constraint. See :mod:`pcmcnet.layers.inner_logit`.

    Raises
    ------
    ConfigError
        If an option is unknown, or ``signs`` are combined with a non-monotone activation.
    """

    def __init__(
        self,
        d_individual: int,
        d_alternative: int,
        rank: int,
        hidden: Sequence[int] = (64, 64),
        *,
        activation: Activation = "leaky_relu",
        dropout: float = 0.0,
        precision: Precision = "auto",
        signs: Tensor | None = None,
    ) -> None:
        super().__init__()
        # 1. Check the options.
        require_number("rank", rank, whole=True, low=1, high=MAX_RANK)
        require_word("activation", activation, get_args(Activation))
        require_word("precision", precision, get_args(Precision))
        if signs is not None and activation not in RISING_ACTIVATIONS:
            raise ConfigError(f"signs need a monotone activation, one of {RISING_ACTIVATIONS}, got {activation!r}.")
        # 2. Build the first layer in two parts (individual, alternative), then the others. The last has 2 r outputs.
        widths = (*hidden, 2 * rank)
        self.rank, self.hidden, self.activation, self.precision = rank, tuple(hidden), activation, precision
        self.who = nn.Linear(d_individual, widths[0], bias=False) if d_individual else None
        self.layers: nn.ModuleList
        if signs is None:
            self.what = nn.Linear(d_alternative, widths[0])
            self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        else:
            outputs = torch.tensor([-1.0, 1.0]).repeat_interleave(rank)  # leave less, enter more
            units = [*map(unit_signs, hidden), outputs]
            self.what = SignedLinear(signs, units[0])
            self.layers = nn.ModuleList(SignedLinear(a, b) for a, b in pairwise(units))
        self.dropout = Dropout(dropout)
        self._initialise(fan_in=d_individual + d_alternative)

    def _initialise(self, *, fan_in: int) -> None:
        """Draw the initial weights, where ``fan_in`` is the number of inputs of the whole first layer."""
        for layer in (self.who, self.what):
            if layer is not None:
                nn.init.normal_(layer.weight, std=math.sqrt(2 / max(fan_in, 1)))
        nn.init.uniform_(self.what.bias, -1 / math.sqrt(max(fan_in, 1)), 1 / math.sqrt(max(fan_in, 1)))
        for module in self.layers:
            assert isinstance(module, nn.Linear)
            nn.init.kaiming_normal_(module.weight)
            nn.init.zeros_(module.bias)
        for module in self.modules():
            if isinstance(module, SignedLinear):
                module.reflect_()

    def forward(self, individual: Tensor, alternatives: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logarithms of the factors.

        Parameters
        ----------
        individual
            Representations of the individuals, (B, D0).
        alternatives
            Representations of the alternatives, (B, J, D).

        Returns
        -------
        tuple
            log u and log v, (B, J, r) each.

        Raises
        ------
        InputError
            If a tensor has the wrong shape.
        """
        self._require_shapes(individual, alternatives)
        dtype = self._hidden_dtype(alternatives)
        if dtype == torch.bfloat16 and self._has_kernels(alternatives):
            return self._log_factors_by_kernels(individual, alternatives)
        is_plain = alternatives.device.type != "cpu" or needs_plain_operators(alternatives, *self.parameters())
        if is_plain or alternatives.shape[:2].numel() <= BLOCK_ALTERNATIVES:
            return self._log_factors(individual, alternatives)
        sets, size = alternatives.shape[:2]
        step = max(BLOCK_ALTERNATIVES // sets, 1)
        blocks = [alternatives[:, begin : begin + step] for begin in range(0, size, step)]
        log_u, log_v = zip(*(self._log_factors(individual, block) for block in blocks), strict=True)
        return torch.cat(log_u, 1), torch.cat(log_v, 1)

    def _log_factors(self, individual: Tensor, alternatives: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the layers with differentiable operators."""
        dtype, activate = self._hidden_dtype(alternatives), ACTIVATIONS[self.activation].apply
        # 1. The first layer, in two parts.
        out = _product(self.what, alternatives.to(dtype))
        if self.who is not None:
            out = out + _product(self.who, individual.to(dtype)).unsqueeze(1)
        # 2. The later layers. The last one has the dtype of the inputs.
        for k, layer in enumerate(self.layers, start=1):
            assert isinstance(layer, nn.Linear)
            hidden = self.dropout(activate(out))
            out = _product(layer, hidden if k < len(self.layers) else hidden.to(alternatives.dtype))
        log_u, log_v = out.chunk(2, -1)
        return log_u, log_v

    def _hidden_dtype(self, inputs: Tensor) -> torch.dtype:
        """Return the dtype of the hidden layers. Without hidden layers, it is that of the inputs."""
        is_half = compute_dtype(self.precision, inputs.device, self.hidden) == torch.bfloat16
        return torch.bfloat16 if is_half and self.hidden else inputs.dtype

    def _has_kernels(self, inputs: Tensor) -> bool:
        """Return True if Triton kernels can compute the hidden layers in bfloat16."""
        supported = inputs.device.type == "cuda" and inputs.dtype == self.what.weight.dtype == torch.float32
        return (
            supported and inputs.numel() > 0 and has_triton() and not needs_plain_operators(inputs, *self.parameters())
        )

    def _log_factors_by_kernels(self, individual: Tensor, alternatives: Tensor) -> tuple[Tensor, Tensor]:
        from pcmcnet.layers.factored.network_triton import Options, log_factors

        first = (self.what.weight[:, :0] if self.who is None else self.who.weight, self.what.weight, self.what.bias)
        layers = [(layer.weight, layer.bias) for layer in self.layers if isinstance(layer, nn.Linear)]
        inputs = individual[:, :0] if self.who is None else individual
        return log_factors(inputs, alternatives, first, layers, Options(self.activation, self.dropout.active))

    def _require_shapes(self, individual: Tensor, alternatives: Tensor) -> None:
        """Raise InputError if the inputs do not have the shapes (B, D0) and (B, J, D)."""
        d0, d = self.who.in_features if self.who else individual.shape[-1], self.what.in_features
        if alternatives.ndim != 3 or alternatives.shape[-1] != d:
            raise InputError(f"alternatives: expected shape (B, J, {d}), got {(*alternatives.shape,)}.")
        sets = alternatives.shape[0]  # len() would make it a constant of exported graphs
        if individual.shape != (sets, d0):
            raise InputError(f"individual: expected shape {(sets, d0)}, got {(*individual.shape,)}.")


def _product(layer: nn.Linear, x: Tensor) -> Tensor:  # (..., D) -> (..., H)
    """Apply a linear layer in the dtype of its inputs."""
    return F.linear(x, layer.weight.to(x.dtype), None if layer.bias is None else layer.bias.to(x.dtype))
