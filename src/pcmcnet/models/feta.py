"""FETA: first evaluate, then aggregate (Pfannschmidt, Gupta, Haddenhorst & Hüllermeier, 2022).

    u_i = linear utility of i + U0([S_i, I]) + mean over j != i of U1([I, S_j, S_i])
    p   = softmax(u)

U0 and U1 are perceptrons. Each alternative has a separate effect on each of the others, and these effects are averaged.
Hence the log-odds contain only pairwise interactions, apart from the division by the size of the set. U1 has the same
architecture as the network that scores ordered pairs in PCMC-Net (:mod:`pcmcnet.layers.pairwise.pairwise_rates`).
Shapes: I (B, D0), S (B, J, D) -> pairs (B, J, J) -> u (B, J).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pcmcnet.data import Encoder
from pcmcnet.layers import PairwiseRates
from pcmcnet.layers.tensor_ops import real_pairs
from pcmcnet.models.interface.encoders import Encoders
from pcmcnet.models.interface.options import takes
from pcmcnet.models.networks.network_config import EncoderArguments
from pcmcnet.models.networks.set_network import SetModel, SetNetwork, SetNetworkConfig, perceptron_of, with_individual


@dataclass(frozen=True, kw_only=True)
class FETAConfig(SetNetworkConfig):
    """Options of FETA: the network, then the training loop.

    Parameters
    ----------
    hidden
        Widths of the hidden layers in each of the perceptrons U0 and U1.
    """


@dataclass(frozen=True, kw_only=True)
class FETAArguments(FETAConfig, EncoderArguments):
    """Constructor arguments of FETA: the options and ``encoders``."""


class FETANetwork(SetNetwork):
    """Network that maps a batch to log-probabilities (B, J)."""

    def __init__(self, encoder: Encoder, config: FETAConfig, encoders: Encoders | None = None) -> None:
        super().__init__(encoder, config, encoders)
        widths = (self.individual.width, self.alternative.width)
        self.own = perceptron_of(config, sum(widths))
        self.pairs = PairwiseRates(*widths, config.hidden, activation=config.activation, dropout=config.dropout)
        self.pairs.output.bias.requires_grad_(False)  # a shift of all utilities has no effect

    @property
    def computes_in_chunks(self) -> bool:
        """Whether the scores of pairs are computed in chunks."""
        return self.pairs.computes_in_chunks

    def scores(self, individual: Tensor, alternatives: Tensor, mask: Tensor) -> Tensor:
        """Return scores (B, J), given individuals (B, D0), alternatives (B, J, D) and a mask (B, J)."""
        pairs = self.pairs.scores(individual, alternatives, mask)  # (B, J, J): effect of the row on the column
        effects = pairs.where(real_pairs(mask), pairs.new_zeros(())).sum(1)
        n_others = (mask.sum(1, keepdim=True) - 1).clamp(min=1)
        out: Tensor = self.own(with_individual(alternatives, individual)).squeeze(-1) + effects / n_others
        return out


class FETA(SetModel):
    """FETA (first evaluate, then aggregate): each utility includes the mean effect of the other alternatives.

    Examples
    --------
    >>> FETA(hidden=(16,), epochs=10).config.hidden
    (16,)
    """

    name = "feta"
    config_class = FETAConfig
    config: FETAConfig
    network_class = FETANetwork

    @takes(FETAArguments)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
