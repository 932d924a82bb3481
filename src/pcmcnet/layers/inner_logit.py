"""The inner logit of a chain: a linear utility of each alternative, which scales the rates of entering the alternative.

    u_j = plain_j + (v + V I) . S_j
    plain_j = c(categories of j) + b . numeric features of j + linear terms of its texts, lists and vectors

The utility u_j is added to the log-rates, so the rate of entering j from any other alternative is proportional to
exp(u_j). If the rates have no other factors, the stationary distribution is the multinomial logit, exp(u_j) / sum_k
exp(u_k). A strongly regularised network therefore shrinks towards a logit and not towards the uniform distribution.
Because u_j depends only on j and on the individual, the chain keeps its properties: invariance to relabelling, uniform
expansion and contractibility.

The first part of the utility, plain_j, is an ordinary logit and is learnt quickly: its weights have a standard normal
prior instead of weight decay. Numeric columns are standardised. V contains the tastes of the individual, and v the
coefficients of the representation. Shapes: numeric (..., F), categorical (..., C), distinct contents of a column (u,
...), their positions (...), I (B, D0), S (B, J, D) -> u (B, J).

The coefficient of the k-th numeric column is b_k + v_k + V_k I. If this coefficient must have a given sign, b_k and v_k
are constrained to that sign, and the sum is set to 0 for individuals whose taste would reverse the sign.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcmcnet.data.batches import Batch, DistinctContents
from pcmcnet.data.encoder import SideEncoder
from pcmcnet.data.kinds.contents import network_kind

# -- monotone weights --------------------------------------------------------------------------------------------------
# Linear layers with sign constraints on their weights: the network is monotone everywhere with respect to some of its
# inputs.
#
# Every input and every unit has a sign. The output has sign +1. The weight from l to k is
#
#     unconstrained                   if l has sign 0
#     0                               if l has a sign and k has sign 0
#     of sign(k) sign(l), or 0        if both have a sign.
#
# By induction over layers with non-decreasing activations: when an input of sign +1 rises or one of sign -1 falls, a
# unit of sign +1 never falls, a unit of sign -1 never rises, and a unit of sign 0 does not change. Inputs of sign 0
# may enter every unit, so they interact freely with all others.
#
# The weights themselves satisfy the constraints, at the start and, by `SignedLinear.project_`, after each step of the
# optimiser. Code that reads weights therefore needs no knowledge of signs.

RISING_ACTIVATIONS = ("relu", "leaky_relu", "sigmoid", "tanh")  # silu and gelu decrease somewhere below 0
MAX_UTILITY = 1e30  # utilities that overflow are clipped to this


def unit_signs(width: int) -> Tensor:
    """Return the signs of hidden units (width,): a quarter are +1, a quarter -1, and the rest 0."""
    return torch.tensor([1.0, -1.0, 0.0, 0.0]).repeat(-(-width // 4))[:width]


def sign_bounds(signs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lower and upper bounds of weights with the given signs; weights of sign 0 are unbounded."""
    return torch.where(signs > 0, 0.0, -math.inf), torch.where(signs < 0, 0.0, math.inf)


class SignedLinear(nn.Linear):
    """A linear layer with sign constraints on its weights, given the signs of inputs (in,) and units (out,)."""

    low: Tensor
    high: Tensor

    def __init__(self, inputs: Tensor, units: Tensor, **options: Any) -> None:
        super().__init__(len(inputs), len(units), **options)
        low, high = sign_bounds(units.unsqueeze(1) * inputs)
        closed = (units == 0).unsqueeze(1) & (inputs != 0)
        self.register_buffer("low", low.masked_fill(closed, 0.0), persistent=False)
        self.register_buffer("high", high.masked_fill(closed, 0.0), persistent=False)

    @torch.no_grad()
    def reflect_(self) -> None:
        """Flip weights of the wrong sign, so that randomly drawn weights keep their magnitude."""
        wrong = (self.weight < self.low) | (self.weight > self.high)
        self.weight.copy_(torch.where(wrong, -self.weight, self.weight))
        self.project_()

    @property
    def bounded_weights(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """The weights with their lower and upper bounds."""
        return [(self.weight, self.low, self.high)]

    @torch.no_grad()
    def project_(self) -> None:
        """Set weights of the wrong sign to 0."""
        self.weight.clamp_(self.low, self.high)


# -- the utility -------------------------------------------------------------------------------------------------------
class LinearUtility(nn.Module):
    """Module that computes the utility of each alternative for the individual, initially 0 for all alternatives.

    Parameters
    ----------
    side
        Encoder of the columns of the alternatives. Content columns without a linear term, such as pictures, add nothing
        to the utility.
    d_individual, d_alternative
        Widths of the representations. The width ``d_individual`` may be 0.
    custom
        Names of the content columns that a user's module encodes, which have no linear term. Default: none.
    signs
        Required signs of the coefficients of the numeric columns (F,): 1, -1, or 0 for either sign. Default: no
        constraint.
    """

    low: Tensor | None
    high: Tensor | None

    def __init__(
        self,
        side: SideEncoder,
        d_individual: int,
        d_alternative: int,
        custom: Sequence[str] = (),
        signs: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.constants = nn.ParameterList(torch.zeros(c + 1, 1) for c in side.cardinalities)  # row 0: unseen
        self.slopes = nn.Parameter(torch.zeros(side.n_numeric))
        worths = {
            str(k): network_kind(code).worth(code) for k, code in enumerate(side.contents) if code.name not in custom
        }
        self.worths = nn.ModuleDict({k: worth for k, worth in worths.items() if worth is not None})
        self.worth = nn.Parameter(torch.zeros(d_alternative))
        self.taste = nn.Parameter(torch.zeros(d_alternative, d_individual)) if d_individual else None
        low, high = (None, None) if signs is None else sign_bounds(signs)
        self.register_buffer("low", low, persistent=False)
        self.register_buffer("high", high, persistent=False)

    @property
    def plain_weights(self) -> list[nn.Parameter]:
        """Weights of the plain part of the utility, plain_j."""
        return [*self.constants, self.slopes, *self.worths.parameters()]

    @property
    def plain_bounds(self) -> tuple[list[Tensor], list[Tensor]] | None:
        """Lower and upper bounds of the weights of plain_j, or None if there are no sign constraints."""
        if self.low is None or self.high is None:
            return None
        lower = [self.low if w is self.slopes else torch.full_like(w, -math.inf) for w in self.plain_weights]
        upper = [self.high if w is self.slopes else torch.full_like(w, math.inf) for w in self.plain_weights]
        return lower, upper

    def forward(self, batch: Batch, individual: Tensor, alternatives: Tensor) -> Tensor:
        """Return the utilities: batch, individual (B, D0), alternatives (B, J, D) -> (B, J)."""
        added = (alternatives @ self.weights(individual).unsqueeze(-1)).squeeze(-1)
        utility = self.plain(batch.numeric, batch.categorical, batch.contents) + added
        return utility.nan_to_num(0.0, MAX_UTILITY, -MAX_UTILITY)  # products of very large inputs overflow

    def plain(self, numeric: Tensor, categorical: Tensor, contents: Sequence[DistinctContents]) -> Tensor:
        """Return the plain part of u (...), from numeric (..., F), categorical (..., C) and content columns."""
        # A product over no columns is 0, but runtimes of exported graphs may return uninitialised memory.
        exported_without_numbers = torch.compiler.is_exporting() and not len(self.slopes)
        utility = numeric.new_zeros(numeric.shape[:-1]) if exported_without_numbers else numeric @ self.slopes
        for k, constant in enumerate(self.constants):
            utility = utility + F.embedding(categorical[..., k], constant, padding_idx=0).squeeze(-1)
        for column, worth in self.worths.items():
            values, place = contents[int(column)]
            utility = utility + worth(values.to(numeric.dtype))[place]
        return utility

    def tastes(self, individual: Tensor) -> Tensor:
        """Return the coefficients of the representation before the sign constraints: (B, D0) -> (B, D)."""
        if self.taste is None:
            return self.worth.expand(individual.shape[0], -1)  # len() would be a constant in an exported graph
        return self.worth + individual @ self.taste.mT

    def weights(self, individual: Tensor) -> Tensor:
        """Return the coefficients of the representation for each individual: (B, D0) -> (B, D)."""
        weights = self.tastes(individual)
        if self.low is None or self.high is None:
            return weights
        first = weights.shape[1] - len(self.slopes)  # numeric columns come last
        clipped = weights[:, first:].clamp(self.low - self.slopes, self.high - self.slopes)
        return torch.cat([weights[:, :first], clipped], 1)

    @property
    def bounded_weights(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """The coefficients that have required signs, and their lower and upper bounds; empty if there are none."""
        if self.low is None or self.high is None:
            return []
        n_other = len(self.worth) - len(self.slopes)  # numeric columns come last
        low, high = F.pad(self.low, (n_other, 0), value=-math.inf), F.pad(self.high, (n_other, 0), value=math.inf)
        return [(self.slopes, self.low, self.high), (self.worth, low, high)]

    @torch.no_grad()
    def project_(self) -> None:
        """Set coefficients of the wrong sign to 0."""
        for weights, low, high in self.bounded_weights:
            weights.clamp_(low, high)
