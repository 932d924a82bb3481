"""Base classes of networks that compute a utility for each alternative of a choice set.

    u_i = linear utility of i for the individual I  +  score of the network, given I and the whole set S
    p   = softmax(u) over the alternatives of the set

A model consists of a subclass of :class:`SetNetwork` that defines ``scores``, and a subclass of :class:`SetModel` that
names this network in ``network_class``. The linear utility is the same as in PCMC-Net
(:mod:`pcmcnet.layers.inner_logit`), so strong weight decay shrinks the network to a multinomial logit and not to the
uniform distribution. Shapes: B sets of up to J alternatives, I (B, D0), S (B, J, D), mask (B, J) -> u (B, J) -> log p
(B, J), which is -inf for padding.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor, nn

from pcmcnet.checks import require_number, require_word
from pcmcnet.data import Batch, EncodedSets, Encoder
from pcmcnet.data.encoder import SideEncoder
from pcmcnet.errors import InputError
from pcmcnet.layers.inner_logit import MAX_UTILITY, LinearUtility
from pcmcnet.layers.perceptron import Activation, LastLayerStart, Perceptron
from pcmcnet.layers.representation import Representation, build_representation
from pcmcnet.models.interface.encoders import Encoders
from pcmcnet.models.networks import starting_values
from pcmcnet.models.networks.averaged_members import NetworkSpec
from pcmcnet.models.networks.network_config import NetworkConfig, Utility, as_widths
from pcmcnet.models.networks.neural_model import NeuralModel
from pcmcnet.training.network import ChoiceNetwork


@dataclass(frozen=True, kw_only=True)
class SetNetworkConfig(NetworkConfig):
    """Options of networks that compute a utility for each alternative: architecture, inputs and training loop.

    Parameters
    ----------
    hidden
        Widths of the hidden layers.
    activation
        Activation of the hidden layers: "relu", "leaky_relu", "sigmoid", "tanh", "silu" or "gelu".
    dropout
        Dropout probability in the hidden layers and embeddings.
    utility
        "linear" adds a linear utility of each alternative, so that the network deviates from a multinomial logit and
        not from the uniform distribution (:mod:`pcmcnet.layers.inner_logit`). "none" adds no linear utility.
    """

    hidden: tuple[int, ...] = (64, 64)
    activation: Activation = "leaky_relu"
    dropout: float = 0.0
    utility: Utility = "linear"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "hidden", as_widths(self.hidden))
        require_word("activation", self.activation, get_args(Activation))
        require_number("dropout", self.dropout, low=0, high=1, open_high=True)
        require_word("utility", self.utility, get_args(Utility))


class SetNetwork(ChoiceNetwork):
    """Network that maps a batch to log-probabilities (B, J), computed from a utility for each alternative.

    Parameters
    ----------
    encoder
        The encoder of the columns.
    config
        Options of the model. This base class uses only ``dropout`` and ``utility``.
    encoders
        Custom encoders by column.
    """

    takes_generators = True

    def __init__(self, encoder: Encoder, config: Any, encoders: Encoders | None = None) -> None:
        super().__init__()
        self.individual = self.represent_side(encoder.individual, config, encoders)
        self.alternative = self.represent_side(encoder.features, config, encoders)
        widths = (self.individual.width, self.alternative.width)
        custom = [name for name, _ in self.alternative.custom.values()]  # columns with custom encoders
        self.utility = LinearUtility(encoder.features, *widths, custom) if config.utility == "linear" else None

    @property
    def prior_weights(self) -> list[nn.Parameter]:
        """Weights of the linear utility."""
        return [] if self.utility is None else self.utility.plain_weights

    def represent_side(self, side: SideEncoder, config: Any, encoders: Encoders | None) -> Representation:
        """Return the module that represents the columns of the individual, or of an alternative, as a vector."""
        return build_representation(side, dropout=config.dropout, custom=encoders)

    @abstractmethod
    def scores(self, individual: Tensor, alternatives: Tensor, mask: Tensor) -> Tensor:
        """Return the scores that are added to the linear utilities: (B, D0), (B, J, D), (B, J) -> (B, J).

        The scores of padding may have any value.
        """

    def prepare(self, sets: EncodedSets, pair_budget: int) -> None:
        """Raise InputError if no feature varies within any choice set."""
        sets.require_variation_within_sets()

    def set_starting_values(self, sample: Callable[[int], EncodedSets], decay: float) -> None:
        """Start from the maximum likelihood estimate of the inner logit if the weight decay is strong."""
        if self.utility is not None and decay >= starting_values.LOGIT_START_DECAY:
            starting_values.start_as_logit(self.utility, sample(starting_values.MAX_LOGIT_SETS))

    def represent(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the representations of individuals (B, D0) and of alternatives (B, J, D)."""
        individual = self.individual(batch.individual_numeric, batch.individual_categorical, batch.individual_contents)
        return individual, self.alternative(batch.numeric, batch.categorical, batch.contents)

    def utilities(self, batch: Batch) -> Tensor:
        """Return the utilities (B, J), with arbitrary values for padding."""
        individual, alternatives = self.represent(batch)
        added = self.scores(individual, alternatives, batch.mask)
        return added if self.utility is None else added + self.utility(batch, individual, alternatives)

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities, with -inf for padding."""
        return log_softmax_of_sets(self.utilities(batch), batch.mask, exact=not self.training)


class SetModel(NeuralModel):
    """A model whose network is a :class:`SetNetwork` of the class ``network_class``."""

    network_class: ClassVar[type[SetNetwork]]

    def _build(self, encoder: Encoder, spec: NetworkSpec) -> SetNetwork:
        assert spec.classes == 1, "a model with latent classes builds its own networks"
        if not encoder.features:
            raise InputError(
                f"{type(self).__name__} needs features or labels of alternatives: declare features, or declare an "
                "alternative column with labels that occur in several sets and keep labels=True."
            )
        return type(self).network_class(encoder, self.config, self.encoders)


def log_softmax_of_sets(utilities: Tensor, mask: Tensor, *, exact: bool = False) -> Tensor:  # 2 x (B, J) -> (B, J)
    """Return the log-softmax of the utilities of each set, with -inf and no gradient for padding.

    If ``exact`` is True, compute in float64, so that probabilities sum to 1 up to float64 rounding errors.
    """
    finite = utilities.nan_to_num(0.0, MAX_UTILITY, -MAX_UTILITY)  # products of inputs near the largest float overflow
    finite = finite.double() if exact else finite
    return finite.masked_fill(~mask, -math.inf).log_softmax(-1)


def set_means(values: Tensor, mask: Tensor) -> Tensor:  # (B, J, D), (B, J) -> (B, D)
    """Return the mean of ``values`` over the alternatives of each set."""
    real = mask.unsqueeze(-1)
    return values.where(real, values.new_zeros(())).sum(1) / mask.sum(1, keepdim=True)


def with_individual(alternatives: Tensor, individual: Tensor) -> Tensor:  # (B, J, D), (B, D0) -> (B, J, D + D0)
    """Return the representation of each alternative, followed by the individual's representation."""
    return torch.cat([alternatives, individual.unsqueeze(1).expand(-1, alternatives.shape[1], -1)], -1)


def perceptron_of(config: SetNetworkConfig, width: int, *, out: int = 1, start: LastLayerStart = "zero") -> Perceptron:
    """Return a perceptron with the hidden layers of ``config``. A perceptron with one output has no last bias."""
    widths = (*config.hidden, out)
    style: dict[str, Any] = {"activation": config.activation, "dropout": config.dropout}
    return Perceptron(width, widths, **style, start=start, last_bias=out > 1)
