"""TasteNet (Han, Pereira, Ben-Akiva & Zegras, 2022): a neural network computes the coefficients of a logit.

    u_i = constants of the categories of i  +  sum over numbers k of  b_k(I) x_ik  +  contents and categories, weighted
    b(I) = b + f(I),    f a network of the individual's columns;    p = softmax(u) over the set

The network f also computes the coefficients of categorical and content columns, so the alternative-specific constants
also differ between individuals. The utility is linear in the numeric columns, so each individual has their own
coefficients, and ratios of these coefficients give values of time. If f is constant, the model is a multinomial logit.
A sign constraint on a coefficient holds for every individual: values with the opposite sign are set to 0. Shapes: I (B,
D0) -> weights (B, D) of S (B, J, D).
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
from pcmcnet.models.interface.directions import Direction, as_directions
from pcmcnet.models.interface.encoders import Encoders
from pcmcnet.models.interface.options import takes
from pcmcnet.models.networks.network_config import EncoderArguments, Tails, signs_of_numbers
from pcmcnet.models.networks.set_network import (
    SetModel,
    SetNetwork,
    SetNetworkConfig,
    log_softmax_of_sets,
    perceptron_of,
)


@dataclass(frozen=True, kw_only=True)
class TasteNetConfig(SetNetworkConfig):
    """Options of TasteNet: the network, then the training loop.

    Parameters
    ----------
    monotone
        Mapping from numeric features to "decreasing" or "increasing", as in {"price": "decreasing"}. The coefficient of
        the feature then has the same sign for every individual. The signs that the table declares are obeyed by
        default; "free" ignores the sign of a feature.
    """

    hidden: tuple[int, ...] = (32,)
    tails: Tails = "keep"  # so that coefficients are per unit of the column
    monotone: Mapping[str, Direction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "monotone", as_directions(self.monotone))
        if self.utility != "linear":
            raise ConfigError("TasteNet needs utility='linear'.")


@dataclass(frozen=True, kw_only=True)
class TasteNetArguments(TasteNetConfig, EncoderArguments):
    """Constructor arguments of TasteNet: the options and ``encoders``."""


class TasteUtility(LinearUtility):
    """A linear utility whose coefficients a network computes from the individual's columns."""

    def __init__(self, *arguments: Any, net: Perceptron | None) -> None:
        super().__init__(*arguments)
        self.net = net

    def tastes(self, individual: Tensor) -> Tensor:
        """Return the weights (B, D) of a representation's entries before sign constraints, given inputs (B, D0)."""
        common = super().tastes(individual)
        return common if self.net is None else common + self.net(individual)


class TasteNetwork(SetNetwork):
    """Network that maps a batch to log-probabilities (B, J)."""

    utility: TasteUtility

    def __init__(self, encoder: Encoder, config: TasteNetConfig, encoders: Encoders | None = None) -> None:
        super().__init__(encoder, config, encoders)
        d0, d = self.individual.width, self.alternative.width
        custom = [name for name, _ in self.alternative.custom.values()]  # columns with custom encoders
        net = perceptron_of(config, d0, out=d) if d0 else None
        signs = signs_of_numbers(config.monotone, encoder)
        self.utility = TasteUtility(encoder.features, 0, d, custom, signs, net=net)

    @property
    def sign_constrained(self) -> list[LinearUtility]:
        """The utilities whose coefficients may have sign constraints."""
        return [self.utility]

    def coefficients(self, batch: Batch) -> Tensor:
        """Return the coefficients (B, F) of the standardised numeric inputs."""
        weights = self.utility.weights(self.represent(batch)[0])
        return self.utility.slopes + weights[:, weights.shape[1] - len(self.utility.slopes) :]

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities, with -inf for padding."""
        return log_softmax_of_sets(self.utility(batch, *self.represent(batch)), batch.mask)


class TasteNet(SetModel):
    """TasteNet: a logit whose coefficients are computed for each individual by a network.

    Without individual-level columns, the model is a multinomial logit.

    Examples
    --------
    >>> TasteNet(monotone={"price": "decreasing"}).config.monotone
    {'price': 'decreasing'}
    """

    name = "tastenet"
    is_logit = True
    config_class = TasteNetConfig
    obeys_signs = True
    config: TasteNetConfig
    network_class = TasteNetwork

    @takes(TasteNetArguments)
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def coefficients(self, data: ChoiceData) -> dict[str, Floats]:
        """Return the coefficients of the numeric features for the individual of each choice set.

        Parameters
        ----------
        data
            Choice sets.

        Returns
        -------
        Coefficients (S,) by column, per unit of the column. Piecewise and spline columns are left out, as are
        long-tailed columns if tails="bend".
        """
        assert isinstance(self.network_, TasteNetwork)
        codes = self.encoder_.features.numeric
        out: Floats = np.empty((len(data), len(codes)))
        for sets, weights in self._predict_batches(data, self.network_.coefficients):
            out[sets] = weights[:, : len(codes)].double().cpu().numpy()
        plain = {k: code for k, code in enumerate(codes) if code.curve is None and code.bend == 0 and code.scale > 0}
        return {code.name: out[:, k] / code.scale for k, code in plain.items()}
