"""FATE: first aggregate, then evaluate (Pfannschmidt, Gupta, Haddenhorst & Hüllermeier, 2022).

    m   = mean over j of f([S_j, I])          one vector for the whole set
    u_i = linear utility of i + U([S_i, I, m])
    p   = softmax(u)

f and U are perceptrons. The mean does not depend on the order of the alternatives. A set of n alternatives requires n
evaluations of f. Shapes: I (B, D0), S (B, J, D) -> m (B, M) -> u (B, J).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pcmcnet.data import Encoder
from pcmcnet.layers.perceptron import Perceptron
from pcmcnet.models.interface.encoders import Encoders
from pcmcnet.models.interface.options import takes
from pcmcnet.models.networks.network_config import EncoderArguments, as_widths
from pcmcnet.models.networks.set_network import (
    SetModel,
    SetNetwork,
    SetNetworkConfig,
    perceptron_of,
    set_means,
    with_individual,
)


@dataclass(frozen=True, kw_only=True)
class FATEConfig(SetNetworkConfig):
    """Options of FATE: the network, then the training loop.

    Parameters
    ----------
    hidden
        Widths of the hidden layers of U.
    set_hidden
        Widths of the layers of f. The last width is the length of the vector m, which summarises the set.
    """

    set_hidden: tuple[int, ...] = (64, 32)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "set_hidden", as_widths(self.set_hidden, name="set_hidden", min_layers=1))


@dataclass(frozen=True, kw_only=True)
class FATEArguments(FATEConfig, EncoderArguments):
    """Constructor arguments of FATE: the options and ``encoders``."""


class FATENetwork(SetNetwork):
    """Network that maps a batch to log-probabilities (B, J)."""

    def __init__(self, encoder: Encoder, config: FATEConfig, encoders: Encoders | None = None) -> None:
        super().__init__(encoder, config, encoders)
        width = self.individual.width + self.alternative.width
        style: dict[str, Any] = {"activation": config.activation, "dropout": config.dropout}
        self.member = Perceptron(width, config.set_hidden, **style, start="spread")
        self.joint = perceptron_of(config, width + config.set_hidden[-1])

    def scores(self, individual: Tensor, alternatives: Tensor, mask: Tensor) -> Tensor:
        """Return scores (B, J), given individuals (B, D0), alternatives (B, J, D) and a mask (B, J)."""
        inputs = with_individual(alternatives, individual)
        means = set_means(self.member(inputs), mask)  # (B, M)
        out: Tensor = self.joint(with_individual(inputs, means)).squeeze(-1)
        return out


class FATE(SetModel):
    """FATE (first aggregate, then evaluate): utilities depend on a vector averaged over the alternatives of the set.

    Examples
    --------
    >>> FATE(set_hidden=(16,), epochs=10).config.set_hidden
    (16,)
    """

    name = "fate"
    config_class = FATEConfig
    config: FATEConfig
    network_class = FATENetwork

    @takes(FATEArguments)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
