"""DeepHalo (Zhang, Wang, Gao & Li, 2025): context effects up to an order that is an option.

    z_i    = f([S_i, I])                                            features of i alone
    h^l    = W^l (sum over k in S of z_k^(l-1)) / n                 a summary of the set, H numbers
    z_i^l  = z_i^(l-1) + mean over heads of h^l_m g^l_m(z_i)        l = 1, ..., order - 1
    u_i    = linear utility of i + b . z_i^(order - 1)
    p      = softmax(u)

f and g are perceptrons of one alternative. Only the sum knows the others, and a layer multiplies it by features of i
alone, so each layer adds exactly one order: u_i is a polynomial of degree order - 1 in which others are there. Order 1
is a logit of own features; order 2 adds what each other member does by itself, as a context-dependent model (CDM) does;
at order k no group of more than k alternatives, i among them, has an effect of its own (Möbius terms above k are 0).

The paper counts the others alone: its first order is order 2 here. It divides sums by the size of the set, which mixes
the orders where sizes differ. Here n is one number, the mean size of the training sets, so that the order is exact.
Shapes: I (B, D0), S (B, J, D), z (B, J, W), h (B, H) -> u (B, J).
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
from pcmcnet.models.networks.set_network import SetModel, SetNetwork, SetNetworkConfig, perceptron_of, with_individual

IN_WORDS = {1: "1: a logit of own features", 2: "2: what each other alternative does by itself"}


@dataclass(frozen=True, kw_only=True)
class DeepHaloConfig(SetNetworkConfig):
    """Options of DeepHalo: the network's, then those of the training loop.

    Parameters
    ----------
    order
        Of the largest groups of alternatives that have an effect of their own: 1 is a logit, 2 has effects of pairs.
    hidden
        Widths of the hidden layers of f, and of those of g.
    width
        Of the features of an alternative.
    heads
        Numbers that sum up a set in each layer.
    """

    order: int = 3
    hidden: tuple[int, ...] = (32,)
    width: int = 16
    heads: int = 4
    activation: Activation = "tanh"  # products of features without bounds are soon too large
    dropout: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("order", self.order, whole=True, low=1, high=20)
        for name in ("width", "heads"):
            require_number(name, getattr(self, name), whole=True, low=1)


@dataclass(frozen=True, kw_only=True)
class DeepHaloArguments(DeepHaloConfig):
    """What the constructor takes: the options, and what no option can hold."""

    encoders: Encoders | None = None


class HaloLayer(nn.Module):
    """Add one order: a summary of the set times features of each alternative alone."""

    def __init__(self, config: DeepHaloConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.summary = nn.Linear(config.width, config.heads, bias=False)
        self.features = perceptron_of(config, config.width, out=config.heads * config.width, start="spread")

    def forward(self, state: Tensor, alone: Tensor, total: Tensor) -> Tensor:
        """(B, J, W), (B, J, W), (B, W) -> (B, J, W)."""
        features = self.features(alone).view(*alone.shape[:2], self.heads, -1)  # (B, J, H, W)
        out: Tensor = state + (self.summary(total)[:, None, :, None] * features).mean(2)
        return out


class DeepHaloNetwork(SetNetwork):
    """Batch -> log-probabilities (B, J)."""

    size: Tensor

    def __init__(self, encoder: Encoder, config: DeepHaloConfig, own: Encoders | None = None) -> None:
        super().__init__(encoder, config, own)
        self.alone = perceptron_of(
            config, self.individual.width + self.alternative.width, out=config.width, start="spread"
        )
        self.layers = nn.ModuleList(HaloLayer(config) for _ in range(config.order - 1))
        self.worth = nn.Linear(config.width, 1, bias=False)
        nn.init.zeros_(self.worth.weight)
        self.register_buffer("size", self.worth.weight.new_ones(()))  # mean size of the training sets, once it is known

    def prepare(self, sets: EncodedSets, pair_budget: int) -> None:
        """Check that alternatives differ, and take the mean size of the sets, unless a fitted network has given it."""
        super().prepare(sets, pair_budget)
        if self.size == 1:
            self.size.fill_(float(sets.sizes.mean()))

    def scores(self, who: Tensor, what: Tensor, mask: Tensor) -> Tensor:
        """(B, D0), (B, J, D), (B, J) -> (B, J)."""
        state = alone = self.alone(with_individual(what, who))  # (B, J, W)
        real = mask.unsqueeze(-1)
        for layer in self.layers:
            state = layer(state, alone, state.where(real, state.new_zeros(())).sum(1) / self.size)
        out: Tensor = self.worth(state).squeeze(-1)
        return out


class DeepHalo(SetModel):
    """Context effects of groups of at most ``order`` alternatives: 1 is a logit, 2 has effects of pairs.

    Options are those of :class:`DeepHaloConfig`; an unknown one is refused. What groups of each order do to a fitted
    model's log-odds is what ``pcmcnet.order_effects`` tells.

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
        return {"order": IN_WORDS.get(order, f"{order}: what groups of up to {order - 1} others do together")}
