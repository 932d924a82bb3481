"""What networks share that give each alternative of a set a utility.

    u_i = linear utility of i for the individual I  +  what the network adds, given I and the whole set S
    p   = softmax(u) over the alternatives of the set

A model is a subclass of :class:`SetNetwork` with the one method ``scores``, and a subclass of :class:`SetModel` that
names it. The linear utility is that of PCMC-Net (:mod:`pcmcnet.layers.inner_logit`): a network that is held firmly
shrinks to a multinomial logit and not to the uniform distribution. Shapes: B sets of up to J alternatives, I (B, D0),
S (B, J, D), mask (B, J) -> u (B, J) -> log p (B, J); padding gets -inf.
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
from pcmcnet.models.networks.network_config import NetworkConfig, Utility, as_widths
from pcmcnet.models.networks.neural_model import NeuralModel
from pcmcnet.training.network import ChoiceNetwork


@dataclass(frozen=True, kw_only=True)
class SetNetworkConfig(NetworkConfig):
    """Options of networks that give alternatives a utility, then those of the training loop.

    Parameters
    ----------
    hidden
        Widths of the hidden layers.
    activation
        Of the hidden layers: relu, leaky_relu, sigmoid, tanh, silu or gelu.
    dropout
        Of the hidden layers and of the embeddings.
    utility
        "linear" adds a linear utility of each alternative, so that the network deviates from a multinomial logit and
        not from the uniform distribution (:mod:`pcmcnet.layers.inner_logit`); "none" does not.
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
    """Batch -> log-probabilities (B, J).

    ``encoder`` holds the codes of the columns, ``own`` the modules of one's own for columns of contents.
    """

    takes_generators = True

    def __init__(self, encoder: Encoder, config: Any, own: Encoders | None = None) -> None:
        super().__init__()
        who, what = encoder.individual, encoder.features
        self.individual = self.represent_side(who, config, own)
        self.alternative = self.represent_side(what, config, own)
        widths = (self.individual.width, self.alternative.width)
        theirs = [name for name, _ in self.alternative.own.values()]
        self.utility = LinearUtility(what, *widths, theirs) if config.utility == "linear" else None

    @property
    def prior_weights(self) -> list[nn.Parameter]:
        """Weights of the linear utility."""
        return [] if self.utility is None else self.utility.plain_weights

    def represent_side(self, side: SideEncoder, config: Any, own: Encoders | None) -> Representation:
        """Return how the columns of one side become vectors."""
        return build_representation(side, dropout=config.dropout, own=own)

    @abstractmethod
    def scores(self, who: Tensor, what: Tensor, mask: Tensor) -> Tensor:
        """Return what the network adds to utilities: (B, D0), (B, J, D), (B, J) -> (B, J); padding gets anything."""

    def prepare(self, sets: EncodedSets, pair_budget: int) -> None:
        """Check that alternatives of a choice set differ."""
        sets.require_variation_within_sets()

    def set_starting_values(self, sample: Callable[[int], EncodedSets], decay: float) -> None:
        """Start as the logit inside if the decay is strong."""
        if self.utility is not None and decay >= starting_values.LOGIT_START_DECAY:
            starting_values.start_as_logit(self.utility, sample(starting_values.MAX_LOGIT_SETS))

    def represent(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Represent individuals (B, D0) and alternatives (B, J, D)."""
        who = self.individual(batch.individual_numeric, batch.individual_categorical, batch.individual_contents)
        return who, self.alternative(batch.numeric, batch.categorical, batch.contents)

    def utilities(self, batch: Batch) -> Tensor:
        """Return the utilities (B, J); padding gets anything."""
        who, what = self.represent(batch)
        added = self.scores(who, what, batch.mask)
        return added if self.utility is None else added + self.utility(batch, who, what)

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities; padding gets -inf."""
        return log_softmax_of_sets(self.utilities(batch), batch.mask, exact=not self.training)


class SetModel(NeuralModel):
    """A model whose network is a :class:`SetNetwork`: ``network_class`` says which."""

    network_class: ClassVar[type[SetNetwork]]

    def _build(self, encoder: Encoder, classes: int) -> SetNetwork:
        assert classes == 1, "a model with latent classes builds its own networks"
        if not encoder.features:
            raise InputError(
                f"{type(self).__name__} tells alternatives apart by their features and labels: declare a feature, or "
                "alternative, with labels that return in several sets, and leave labels=True."
            )
        return type(self).network_class(encoder, self.config, self.encoders)


def log_softmax_of_sets(utilities: Tensor, mask: Tensor, *, exact: bool = False) -> Tensor:  # 2 x (B, J) -> (B, J)
    """Take logarithms of the logit's probabilities; padding gets -inf, and no gradient.

    ``exact`` makes them sum to 1 as float64 does, whatever the type of the utilities.
    """
    known = utilities.nan_to_num(0.0, MAX_UTILITY, -MAX_UTILITY)  # where inputs near the largest number were multiplied
    known = known.double() if exact else known
    return known.masked_fill(~mask, -math.inf).log_softmax(-1)


def set_means(values: Tensor, mask: Tensor) -> Tensor:  # (B, J, D), (B, J) -> (B, D)
    """Take the mean over the alternatives of each set."""
    real = mask.unsqueeze(-1)
    return values.where(real, values.new_zeros(())).sum(1) / mask.sum(1, keepdim=True)


def with_individual(what: Tensor, who: Tensor) -> Tensor:  # (B, J, D), (B, D0) -> (B, J, D + D0)
    """Put the individual's representation beside that of each alternative."""
    return torch.cat([what, who.unsqueeze(1).expand(-1, what.shape[1], -1)], -1)


def perceptron_of(config: SetNetworkConfig, width: int, *, out: int = 1, start: LastLayerStart = "zero") -> Perceptron:
    """Return a perceptron with the hidden layers of the options; where it gives one number, that is a utility."""
    widths = (*config.hidden, out)
    style: dict[str, Any] = {"activation": config.activation, "dropout": config.dropout}
    return Perceptron(width, widths, **style, start=start, last_bias=out > 1)
