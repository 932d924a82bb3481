"""Decomposed linear context logit (Tomlinson & Benson, 2021): a mixture of one context effect per feature.

    u_ki = (c + V I + b_k + a_k m_k) . x_i      m_k = mean over j in S of the feature x_jk
    p_i  = sum over k of w_k softmax(u_k)_i      w = softmax(d + W I)

Each of the D components belongs to one feature k of the alternatives, whose mean over the set moves the coefficients by
a_k. b_k and a_k are the paper's intercepts B_k and slopes A_k; what components have in common, c, and the tastes V and
shares W of individuals are added. Held firmly, the mixture is a multinomial logit. Features are those of the linear
context logit (:mod:`pcmcnet.models.context_logits.lcl`). A mixture's log-likelihood is not concave. Shapes: I (B, D0),
x (B, J, D), m (B, D), a, b (D, D) -> u (B, D, J) -> log p (B, J).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pcmcnet.data import Batch, Encoder
from pcmcnet.models.context_logits.lcl import ContextLogit
from pcmcnet.models.context_logits.plain_columns import entry_names
from pcmcnet.models.interface.options import takes
from pcmcnet.models.interface.own_encoders import Encoders
from pcmcnet.models.networks.network_config import NetworkConfig
from pcmcnet.models.set_networks.set_network import SetModel, log_softmax_of_sets, mean_of_sets
from pcmcnet.reports.formats import Summary


@dataclass(frozen=True, kw_only=True, slots=True)
class DLCLConfig(NetworkConfig):
    """Options of the decomposed linear context logit: those of all networks, and of the training loop."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DLCLArguments(DLCLConfig):
    """What the constructor takes: the options, and what no option can hold."""

    encoders: Encoders | None = None


class DLCLNetwork(ContextLogit):
    """Batch -> log-probabilities (B, J)."""

    def __init__(self, encoder: Encoder, config: DLCLConfig, own: Encoders | None = None) -> None:
        super().__init__(encoder, own)
        width, who = self.alternative.width, self.individual.width
        self.intercepts = nn.Parameter(torch.randn(width, width) / math.sqrt(10 * width))  # b_k, which have to differ
        self.slopes = nn.Parameter(torch.zeros(width, width))  # a_k
        self.shares = nn.Parameter(torch.zeros(width))  # d
        self.shares_of = nn.Parameter(torch.zeros(width, who)) if who else None  # W

    def scores(self, who: Tensor, what: Tensor, mask: Tensor) -> Tensor:
        """(B, D0), (B, J, D), (B, J) -> (B, D, J): what each component adds."""
        means = mean_of_sets(what, mask).unsqueeze(-1)  # (B, D, 1)
        return (self.intercepts + means * self.slopes) @ what.mT

    def log_shares(self, who: Tensor) -> Tensor:
        """(B, D0) -> (B, D)."""
        shares = self.shares.expand(len(who), -1) if self.shares_of is None else self.shares + who @ self.shares_of.mT
        return shares.nan_to_num().log_softmax(-1)

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities; padding gets -inf."""
        who, what = self.represent(batch)
        assert self.utility is not None
        utilities = self.scores(who, what, batch.mask) + self.utility(batch, who, what).unsqueeze(1)  # (B, D, J)
        each = log_softmax_of_sets(utilities, batch.mask.unsqueeze(1))
        each = each.masked_fill(~batch.mask.unsqueeze(1), 0.0)  # sums of -inf have no gradient
        mixed = (self.log_shares(who).unsqueeze(-1) + each).logsumexp(1)
        return log_softmax_of_sets(mixed, batch.mask, exact=not self.training)  # sums that are 1 but for rounding


class DLCL(SetModel):
    """Decomposed linear context logit: a mixture of logits, each moved by the mean of one feature in the set.

    Options are those of :class:`DLCLConfig`; an unknown one is refused.

    Examples
    --------
    >>> DLCL(epochs=10).config.epochs
    10
    """

    name = "dlcl"
    config_class = DLCLConfig
    config: DLCLConfig
    network_class = DLCLNetwork

    @takes(DLCLArguments)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def summary(self) -> Summary:
        """Show the share of each component with its largest context effect, and how training went."""
        plain = super().summary()
        assert isinstance(self.network_, DLCLNetwork)
        names = entry_names(self.encoder_.features, self.network_.alternative)
        shares = self.network_.shares.detach().cpu().softmax(0)
        slopes = self.network_.slopes.detach().cpu()
        largest = slopes.abs().argmax(1)
        rows = tuple(
            (names[k], f"{shares[k]:.3f}", names[largest[k]], f"{slopes[k, largest[k]]:+.4f}")
            for k in shares.argsort(descending=True, stable=True).tolist()
        )
        facts = {**plain.facts, "effects": "the largest of each component; numbers in standard deviations"}
        return Summary(plain.title, facts, ("mean of", "share", "moves the coefficient of", "by"), rows)
