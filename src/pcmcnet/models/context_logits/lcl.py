"""Linear context logit (Tomlinson & Benson, 2021): coefficients that move with the mean features of the set.

    u_i = (c + V I + A m) . x_i        m = mean over j in S of x_j
    p   = softmax(u)

x_i are the features of i: numbers, standardised, and a 0 or 1 for each category. A_pq says by how much the coefficient
of feature p rises where the mean of feature q in the set is higher by 1. With A = 0 it is a multinomial logit. u is
linear in the weights (c, V, A), so that the log-likelihood is concave, unless a column is embedded or encoded
(:mod:`pcmcnet.models.context_logits.plain_columns`). Shapes: I (B, D0), x (B, J, D), m (B, D), A (D, D) -> u (B, J).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pcmcnet.data import Encoder
from pcmcnet.data.encoding import SideEncoder
from pcmcnet.layers.representation import Representation
from pcmcnet.models.context_logits.plain_columns import entry_names, plain_columns
from pcmcnet.models.interface.options import takes
from pcmcnet.models.interface.own_encoders import Encoders
from pcmcnet.models.networks.network_config import NetworkConfig
from pcmcnet.models.set_networks.set_network import SetModel, SetNetwork, SetNetworkConfig, mean_of_sets
from pcmcnet.reports.formats import Summary

SHOWN = 20  # effects in a summary


class ContextEffect(NamedTuple):
    """By how much a coefficient moves with the mean of a feature in the set."""

    coefficient: str
    mean_of: str
    effect: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LCLConfig(NetworkConfig):
    """Options of the linear context logit: those of all networks, and of the training loop."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LCLArguments(LCLConfig):
    """What the constructor takes: the options, and what no option can hold."""

    encoders: Encoders | None = None


class ContextLogit(SetNetwork):
    """Networks of plain columns around a linear utility: c and V of the formula."""

    def __init__(self, encoder: Encoder, own: Encoders | None = None) -> None:
        super().__init__(encoder, SetNetworkConfig(), own)

    def represent_side(self, side: SideEncoder, config: Any, own: Encoders | None) -> Representation:
        """Return plain columns."""
        return plain_columns(side, own)


class LCLNetwork(ContextLogit):
    """Batch -> log-probabilities (B, J)."""

    def __init__(self, encoder: Encoder, config: LCLConfig, own: Encoders | None = None) -> None:
        super().__init__(encoder, own)
        self.context = nn.Parameter(torch.zeros(self.alternative.width, self.alternative.width))  # A

    def scores(self, who: Tensor, what: Tensor, mask: Tensor) -> Tensor:
        """(B, D0), (B, J, D), (B, J) -> (B, J)."""
        moved = mean_of_sets(what, mask) @ self.context.mT  # (B, D)
        return (what @ moved.unsqueeze(-1)).squeeze(-1)


class LCL(SetModel):
    """Linear context logit: the mean features of a set move the coefficients of a logit.

    Options are those of :class:`LCLConfig`; an unknown one is refused.

    Examples
    --------
    >>> LCL(epochs=10).config.epochs
    10
    """

    name = "lcl"
    config_class = LCLConfig
    config: LCLConfig
    network_class = LCLNetwork

    @takes(LCLArguments)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def context_effects(self) -> list[ContextEffect]:
        """Return the entries of A with their names, the largest first: features in units of the network's inputs.

        Numbers are in standard deviations, and categories 0 or 1.
        """
        assert isinstance(self.network_, LCLNetwork)
        names = entry_names(self.encoder_.features, self.network_.alternative)
        found = self.network_.context.detach().cpu().tolist()
        effects = [
            ContextEffect(of, by, value)
            for of, row in zip(names, found, strict=True)
            for by, value in zip(names, row, strict=True)
        ]
        return sorted(effects, key=lambda effect: -abs(effect.effect))

    def summary(self) -> Summary:
        """Show the largest context effects, and how training went."""
        plain, effects = super().summary(), self.context_effects()
        told = f"the {SHOWN} largest of {len(effects):,}" if len(effects) > SHOWN else f"all {len(effects)}"
        facts = {**plain.facts, "effects": f"{told}; numbers in standard deviations, categories 0 or 1"}
        rows = tuple((e.coefficient, e.mean_of, f"{e.effect:+.4f}") for e in effects[:SHOWN])
        return Summary(plain.title, facts, ("coefficient of", "moves with the set's mean of", "by"), rows)
