"""TasteNet (Han, Pereira, Ben-Akiva & Zegras, 2022): a network of the individual gives the coefficients of a logit.

    u_i = constants of the categories of i  +  sum over numbers k of  b_k(I) x_ik  +  contents and categories, weighted
    b(I) = b + f(I),    f a network of the individual's columns;    p = softmax(u) over the set

f also weighs what represents the categories and contents of an alternative, so constants of labels differ between
individuals, too. The utility stays linear in the numbers, so each individual has coefficients, and ratios of them are
values of time. A network that gives the same for all is a multinomial logit. A coefficient that is to have a sign keeps
it for every individual: what would turn it round is cut off at 0. Shapes: I (B, D0) -> weights (B, D) of S (B, J, D).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from pcmcnet.arrays import Floats
from pcmcnet.data import Batch, ChoiceData, Encoder
from pcmcnet.errors import ConfigError
from pcmcnet.layers.inner_logit import LinearUtility
from pcmcnet.layers.perceptron import Perceptron
from pcmcnet.models.interface.encoders import Encoders
from pcmcnet.models.interface.options import takes
from pcmcnet.models.networks.network_config import Direction, Tails, as_directions, signs_of_numbers
from pcmcnet.models.networks.set_network import (
    SetModel,
    SetNetwork,
    SetNetworkConfig,
    log_softmax_of_sets,
    perceptron_of,
)


@dataclass(frozen=True, kw_only=True)
class TasteNetConfig(SetNetworkConfig):
    """Options of TasteNet: the network's, then those of the training loop.

    Parameters
    ----------
    monotone
        Numbers whose coefficient has a sign for every individual: {"price": "decreasing"}.
    """

    hidden: tuple[int, ...] = (32,)
    tails: Tails = "keep"  # a coefficient is then one of the number itself
    monotone: Mapping[str, Direction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "monotone", as_directions(self.monotone))
        if self.utility != "linear":
            raise ConfigError("the utility of TasteNet is linear: leave utility='linear'.")


@dataclass(frozen=True, kw_only=True)
class TasteNetArguments(TasteNetConfig):
    """What the constructor takes: the options, and what no option can hold."""

    encoders: Encoders | None = None


class TasteUtility(LinearUtility):
    """A linear utility whose coefficients a network of the individual gives."""

    def __init__(self, *given: Any, net: Perceptron | None) -> None:
        super().__init__(*given)
        self.net = net

    def tastes(self, individual: Tensor) -> Tensor:
        """Return what a representation's entries are worth to individuals, before signs: (B, D0) -> (B, D)."""
        same = super().tastes(individual)
        return same if self.net is None else same + self.net(individual)


class TasteNetwork(SetNetwork):
    """Batch -> log-probabilities (B, J)."""

    utility: TasteUtility

    def __init__(self, encoder: Encoder, config: TasteNetConfig, own: Encoders | None = None) -> None:
        super().__init__(encoder, config, own)
        who, what = self.individual.width, self.alternative.width
        theirs = [name for name, _ in self.alternative.own.values()]
        net = perceptron_of(config, who, out=what) if who else None
        signs = signs_of_numbers(config.monotone, encoder)
        self.utility = TasteUtility(encoder.features, 0, what, theirs, signs, net=net)

    @property
    def sign_constrained(self) -> list[LinearUtility]:
        """The utility, whose coefficients may have signs."""
        return [self.utility]

    def coefficients(self, batch: Batch) -> Tensor:
        """Return the coefficients of the standardised numbers (B, F)."""
        weights = self.utility.weights(self.represent(batch)[0])
        return self.utility.slopes + weights[:, weights.shape[1] - len(self.utility.slopes) :]

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities; padding gets -inf."""
        return log_softmax_of_sets(self.utility(batch, *self.represent(batch)), batch.mask)


class TasteNet(SetModel):
    """A logit whose coefficients are those of each individual, given by a network.

    Options are those of :class:`TasteNetConfig`; an unknown one is refused. Without columns of the individual it is a
    multinomial logit.

    Examples
    --------
    >>> TasteNet(monotone={"price": "decreasing"}).config.monotone
    {'price': 'decreasing'}
    """

    name = "tastenet"
    is_logit = True
    config_class = TasteNetConfig
    config: TasteNetConfig
    network_class = TasteNetwork

    @takes(TasteNetArguments)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def coefficients(self, data: ChoiceData) -> dict[str, Floats]:
        """Return the coefficient of each number for the individual of each choice set, per unit of the column (S,).

        Columns that are seen by a curve have none, and with tails="bend" those with a long tail have none.
        """
        assert isinstance(self.network_, TasteNetwork)
        codes = self.encoder_.features.numeric
        out: Floats = np.empty((len(data), len(codes)))
        for sets, weights in self._predict_batches(data, self.network_.coefficients):
            out[sets] = weights[:, : len(codes)].double().cpu().numpy()
        plain = {k: code for k, code in enumerate(codes) if code.curve is None and code.bend == 0 and code.scale > 0}
        return {code.name: out[:, k] / code.scale for k, code in plain.items()}
