"""DeepHalo (Zhang, Wang, Gao & Li, 2025): context effects up to a given order.

    z_i    = f([S_i, I])                                            features of i
    h^l    = W^l (sum over k in S of z_k^(l-1)) / n                 a summary of the set (H values)
    z_i^l  = z_i^(l-1) + mean over heads of h^l_m g^l_m(z_i)        l = 1, ..., order - 1
    u_i    = linear utility of i + b . z_i^(order - 1)
    p      = softmax(u)

f and g are perceptrons whose input is a single alternative. Only the sum depends on the other alternatives, and each
layer multiplies this sum by features of i, so each layer raises the order by one. Hence u_i is a polynomial of degree
order - 1 in the 0/1 indicators of the presence of the other alternatives. Order 1 is a logit, in which only the
features of i matter. Order 2 adds the effect of each other alternative, as in the context-dependent model (CDM). At
order k, groups of more than k alternatives (including i) have no joint effect: the Möbius terms of orders above k are
0.

The paper does not count i itself, so the paper's first order is order 2 here. The paper divides the sums by the size of
the set, which mixes the orders if set sizes differ. Here n is the mean size of the training sets, so the order is
exact. Shapes: I (B, D0), S (B, J, D), z (B, J, W), h (B, H) -> u (B, J).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from pcmcnet.checks import require_number
from pcmcnet.data import EncodedSets, Encoder
from pcmcnet.layers.perceptron import Activation
from pcmcnet.models.interface.encoders import Encoders
from pcmcnet.models.interface.options import takes
from pcmcnet.models.networks.network_config import EncoderArguments
from pcmcnet.models.networks.set_network import SetModel, SetNetwork, SetNetworkConfig, perceptron_of, with_individual

ORDER_MEANINGS = {1: "1: a logit, no context effects", 2: "2: effects of one other alternative at a time"}


@dataclass(frozen=True, kw_only=True)
class DeepHaloConfig(SetNetworkConfig):
    """Options of DeepHalo: the network, then the training loop.

    Parameters
    ----------
    order
        Size of the largest groups of alternatives with a joint effect: 1 gives a logit, and 2 adds the effects of
        pairs.
    hidden
        Widths of the hidden layers in each of the perceptrons f and g.
    width
        Length of the feature vector z of an alternative.
    heads
        Number of values that summarise a set in each layer.
    """

    order: int = 3
    hidden: tuple[int, ...] = (32,)
    width: int = 16
    heads: int = 4
    activation: Activation = "tanh"  # bounded, since products of unbounded features overflow
    dropout: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("order", self.order, whole=True, low=1, high=20)
        for name in ("width", "heads"):
            require_number(name, getattr(self, name), whole=True, low=1)


@dataclass(frozen=True, kw_only=True)
class DeepHaloArguments(DeepHaloConfig, EncoderArguments):
    """Constructor arguments of DeepHalo: the options and ``encoders``."""


class HaloLayer(nn.Module):
    """Layer that raises the order of interactions by one.

    The layer adds a summary of the set, multiplied by features of each alternative.
    """

    def __init__(self, config: DeepHaloConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.summary = nn.Linear(config.width, config.heads, bias=False)
        self.features = perceptron_of(config, config.width, out=config.heads * config.width, start="spread")

    def forward(self, state: Tensor, alone: Tensor, total: Tensor) -> Tensor:
        """Return the next state (B, J, W), given state (B, J, W), features (B, J, W) and sum over the set (B, W)."""
        features = self.features(alone).view(*alone.shape[:2], self.heads, -1)  # (B, J, H, W)
        out: Tensor = state + (self.summary(total)[:, None, :, None] * features).mean(2)
        return out


class DeepHaloNetwork(SetNetwork):
    """Network that maps a batch to log-probabilities (B, J)."""

    size: Tensor

    def __init__(self, encoder: Encoder, config: DeepHaloConfig, encoders: Encoders | None = None) -> None:
        super().__init__(encoder, config, encoders)
        self.alone = perceptron_of(
            config, self.individual.width + self.alternative.width, out=config.width, start="spread"
        )
        self.layers = nn.ModuleList(HaloLayer(config) for _ in range(config.order - 1))
        self.worth = nn.Linear(config.width, 1, bias=False)
        nn.init.zeros_(self.worth.weight)
        self.register_buffer("size", self.worth.weight.new_ones(()))  # mean size of the training sets

    def prepare(self, sets: EncodedSets, pair_budget: int) -> None:
        """Check that the alternatives differ, and store the mean set size unless it is already stored."""
        super().prepare(sets, pair_budget)
        if self.size == 1:
            self.size.fill_(float(sets.sizes.mean()))

    def scores(self, individual: Tensor, alternatives: Tensor, mask: Tensor) -> Tensor:
        """Return scores (B, J), given individuals (B, D0), alternatives (B, J, D) and a mask (B, J)."""
        state = alone = self.alone(with_individual(alternatives, individual))  # (B, J, W)
        real = mask.unsqueeze(-1)
        for layer in self.layers:
            state = layer(state, alone, state.where(real, state.new_zeros(())).sum(1) / self.size)
        out: Tensor = self.worth(state).squeeze(-1)
        return out


class DeepHalo(SetModel):
    """DeepHalo: a model with context effects of groups of at most ``order`` alternatives.

    Order 1 is a logit, and order 2 adds the effects of pairs. ``pcmcnet.order_effects`` returns the effects of each
    order on the log-odds of a fitted model.

    Examples
    --------
    >>> DeepHalo(order=2, epochs=10).config.order
    2
    """

    name = "deephalo"
    config_class = DeepHaloConfig
    config: DeepHaloConfig
    network_class = DeepHaloNetwork

    @takes(DeepHaloArguments)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def _more_facts(self) -> dict[str, str]:
        order = self.config.order
        return {"order": ORDER_MEANINGS.get(order, f"{order}: joint effects of up to {order - 1} other alternatives")}
