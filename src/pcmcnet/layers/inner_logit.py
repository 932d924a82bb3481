"""The logit inside a chain: a utility of the alternative entered, linear in what is known of it.

    u_j = plain_j + (v + V I) . S_j
    plain_j = c(categories of j) + b . numbers of j + worth of its words, lists and vectors

Added to the log-rates, it makes the rate of entering j proportional to exp(u_j), wherever one comes from. A chain whose
rates are nothing else has the stationary distribution exp(u_j) / sum_k exp(u_k): the multinomial logit. So a network
that is held back shrinks to a logit and not to the uniform distribution. u_j depends on j and on the individual alone,
so relabelling, uniform expansion and contractibility hold as they do without it.

The plain part is that of an ordinary logit, and soon learnt: its weights have a standard normal prior (numbers are
standardised) in the place of decay. V is the individual's taste, and v what the representation adds. Shapes:
numeric (..., F), categorical (..., C), contents of each column (u, ...) and (...), I (B, D0), S (B, J, D) -> u (B, J).

The coefficient of the k-th number is b_k + v_k + V_k I. Where it is to have a sign, b_k and v_k have it, and the sum is
cut off at 0 for individuals whose taste would turn it round.
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
# Linear layers whose weights keep to signs, so that a network rises or falls with some of its inputs, for every input.
#
# Every unit, and every input, has a sign: +1 where it may only rise with what moves the output up, -1 where it may only
# fall, 0 where it does not depend on that at all. The weight from l to k is then
#
#     of any sign                     where l has sign 0
#     0                               where l has a sign and k has none
#     of sign(k) sign(l), or 0        where both have one.
#
# By induction over layers with activations that never fall, a unit of sign +1 never falls, and one of sign -1 never
# rises, when an input of sign +1 rises or one of sign -1 falls. The output has sign +1. Inputs of sign 0 act freely, on
# units of any sign, and so does whatever they interact with.
#
# The weights themselves are feasible, at the start and, by `SignedLinear.project_`, after each step of the optimiser.
# So whatever reads weights needs to know nothing of signs.

RISING_ACTIVATIONS = ("relu", "leaky_relu", "sigmoid", "tanh")  # silu and gelu fall somewhere below 0
MAX_UTILITY = 1e30  # to which utilities that overflow are cut


def unit_signs(width: int) -> Tensor:
    """Return signs of hidden units (width,): a quarter +1, a quarter -1, the others 0."""
    return torch.tensor([1.0, -1.0, 0.0, 0.0]).repeat(-(-width // 4))[:width]


def sign_bounds(signs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least and the largest value of weights with these signs; 0 is a free one."""
    return torch.where(signs > 0, 0.0, -math.inf), torch.where(signs < 0, 0.0, math.inf)


class SignedLinear(nn.Linear):
    """A linear layer from inputs of some signs (in,) to units of some signs (out,): see the module."""

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
        """Turn weights of the wrong sign round: those drawn at random keep their sizes."""
        wrong = (self.weight < self.low) | (self.weight > self.high)
        self.weight.copy_(torch.where(wrong, -self.weight, self.weight))
        self.project_()

    @torch.no_grad()
    def project_(self) -> None:
        """Set weights of the wrong sign to 0."""
        self.weight.clamp_(self.low, self.high)


# -- the utility -------------------------------------------------------------------------------------------------------
class LinearUtility(nn.Module):
    """Utility of each alternative for the individual; 0 at the start.

    Parameters
    ----------
    side
        The codes of the alternatives' columns. Contents without a linear worth, such as pictures, have none.
    d_individual, d_alternative
        Widths of the representations; ``d_individual`` may be 0.
    own
        Columns of contents that modules of the user's read, of which nothing else is known.
    signs
        Of the coefficients of the numbers (F,), where some are to have one: 1, -1, or 0 for any.
    """

    low: Tensor | None
    high: Tensor | None

    def __init__(
        self,
        side: SideEncoder,
        d_individual: int,
        d_alternative: int,
        own: Sequence[str] = (),
        signs: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.constants = nn.ParameterList(torch.zeros(c + 1, 1) for c in side.cardinalities)  # the first: never seen
        self.slopes = nn.Parameter(torch.zeros(side.n_numeric))
        worths = {
            str(k): network_kind(code).worth(code) for k, code in enumerate(side.contents) if code.name not in own
        }
        self.worths = nn.ModuleDict({k: worth for k, worth in worths.items() if worth is not None})
        self.worth = nn.Parameter(torch.zeros(d_alternative))
        self.taste = nn.Parameter(torch.zeros(d_alternative, d_individual)) if d_individual else None
        low, high = (None, None) if signs is None else sign_bounds(signs)
        self.register_buffer("low", low, persistent=False)
        self.register_buffer("high", high, persistent=False)

    @property
    def plain_weights(self) -> list[nn.Parameter]:
        """The weights of the plain part."""
        return [*self.constants, self.slopes, *self.worths.parameters()]

    @property
    def plain_bounds(self) -> tuple[list[Tensor], list[Tensor]] | None:
        """The least and the largest value of each of them, where any is bounded."""
        if self.low is None or self.high is None:
            return None
        least = [self.low if w is self.slopes else torch.full_like(w, -math.inf) for w in self.plain_weights]
        most = [self.high if w is self.slopes else torch.full_like(w, math.inf) for w in self.plain_weights]
        return least, most

    def forward(self, batch: Batch, individual: Tensor, alternatives: Tensor) -> Tensor:
        """Batch, (B, D0), (B, J, D) -> (B, J)."""
        added = (alternatives @ self.weights(individual).unsqueeze(-1)).squeeze(-1)
        utility = self.plain(batch.numeric, batch.categorical, batch.contents) + added
        return utility.nan_to_num(
            0.0, MAX_UTILITY, -MAX_UTILITY
        )  # where inputs near the largest number were multiplied

    def plain(self, numeric: Tensor, categorical: Tensor, contents: Sequence[DistinctContents]) -> Tensor:
        """(..., F), (..., C), of each column of contents (u, ...) and (...) -> (...)."""
        # A product over no numbers is 0, but runtimes of exported graphs may leave memory as they found it.
        nothing = torch.compiler.is_exporting() and not len(self.slopes)
        utility = numeric.new_zeros(numeric.shape[:-1]) if nothing else numeric @ self.slopes
        for k, constant in enumerate(self.constants):
            utility = utility + F.embedding(categorical[..., k], constant, padding_idx=0).squeeze(-1)
        for column, worth in self.worths.items():
            values, place = contents[int(column)]
            utility = utility + worth(values.to(numeric.dtype))[place]
        return utility

    def tastes(self, individual: Tensor) -> Tensor:
        """Return what each entry of a representation adds for the individual, before signs: (B, D0) -> (B, D)."""
        if self.taste is None:
            return self.worth.expand(individual.shape[0], -1)  # len would be a constant of an exported graph
        return self.worth + individual @ self.taste.mT

    def weights(self, individual: Tensor) -> Tensor:
        """Return what each entry of a representation adds for the individual: (B, D0) -> (B, D)."""
        weights = self.tastes(individual)
        if self.low is None or self.high is None:
            return weights
        others = weights.shape[1] - len(self.slopes)  # numbers come last
        kept = weights[:, others:].clamp(self.low - self.slopes, self.high - self.slopes)
        return torch.cat([weights[:, :others], kept], 1)

    @torch.no_grad()
    def project_(self) -> None:
        """Set coefficients of the wrong sign to 0."""
        if self.low is not None and self.high is not None:
            self.slopes.clamp_(self.low, self.high)
            numbers = self.worth[len(self.worth) - len(self.slopes) :]
            numbers.clamp_(self.low, self.high)
