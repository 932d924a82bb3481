"""Options of PCMC-Net."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pcmcnet.checks import require_number, require_word
from pcmcnet.errors import ConfigError
from pcmcnet.layers.activations import Activation
from pcmcnet.layers.pairwise import Initialisation, Precision, RateForm, require_rate
from pcmcnet.models.interface.persons import By
from pcmcnet.models.networks.monotone_features import Direction, require_directions
from pcmcnet.models.networks.network_config import NetworkConfig, Utility, as_widths

MOST_MEMBERS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class PCMCNetConfig(NetworkConfig):
    """Options of PCMC-Net: the network's, then those of the training loop.

    Parameters
    ----------
    hidden
        Widths of the hidden layers of the transition rate network.
    activation
        Of the hidden layers: relu, leaky_relu, sigmoid, tanh, silu or gelu.
    dropout
        Of the hidden layers and of the embeddings.
    rate, epsilon
        Form of the rates (exp, softplus or relu) and their additive constant.
    utility
        "linear" adds a linear utility of the alternative entered to the log-rates, so that the network deviates from a
        multinomial logit and not from the uniform distribution (:mod:`pcmcnet.layers.inner_logit`); "none" does not.
    initialisation
        "safe", which cannot start dead, or "paper".
    precision
        Number type of the products over pairs: "float32", or "bfloat16", which is faster on processors made for it and
        rounds what is between the layers to about three digits; "auto" is bfloat16 on a GPU for hidden layers of at
        least 128 units, and float32 elsewhere.
    monotone
        Features that are numbers, each with "decreasing" or "increasing": how the probability of an alternative moves
        with its own value, whatever the other inputs are (:mod:`pcmcnet.models.networks.monotone_features`).
    classes
        Number of classes of people, each with a chain of its own (:mod:`pcmcnet.models.networks.chain_mixture`);
        "auto" takes more than one where held-out sets are then predicted better, beyond noise.
    by
        Who is of a class: the "person", where the table declares persons, or the choice "set".
    members
        Networks trained from different starts, whose probabilities are averaged: together they predict better than
        one of them alone. "auto" is 6 for small networks (those that compiled steps can train) and up to 12,000 sets in
        memory, where the weight decay is learnt too, and 1 elsewhere. Some of them see numbers by curves, too, if
        held-out sets tell that this helps (:mod:`pcmcnet.models.networks.curve_members`); none with ``monotone``.
    """

    hidden: tuple[int, ...] = (64, 64)
    activation: Activation = "leaky_relu"
    dropout: float = 0.0
    rate: RateForm = "exp"
    epsilon: float = 0.0
    utility: Utility = "linear"
    initialisation: Initialisation = "safe"
    precision: Precision = "auto"
    monotone: Mapping[str, Direction] = field(default_factory=dict)
    classes: int | Literal["auto"] = 1
    by: By = "person"
    members: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        super(PCMCNetConfig, self).__post_init__()  # slots make a new class, which super() misses
        object.__setattr__(self, "hidden", as_widths(self.hidden))
        require_number("dropout", self.dropout, low=0, high=1, open_high=True)
        require_number("epsilon", self.epsilon, low=0)
        require_word("activation", self.activation, get_args(Activation))
        require_word("utility", self.utility, get_args(Utility))
        require_word("initialisation", self.initialisation, get_args(Initialisation))
        require_word("precision", self.precision, get_args(Precision))
        require_word("by", self.by, get_args(By))
        if self.classes != "auto":
            require_number("classes", self.classes, whole=True, low=1)
        if self.members != "auto":
            require_number("members", self.members, whole=True, low=1, high=MOST_MEMBERS)
        if self.members not in ("auto", 1) and self.classes != 1:
            raise ConfigError(f"members={self.members} needs classes=1: the classes of several networks do not match.")
        require_rate(self.rate, self.epsilon)
        require_directions(self.monotone, activation=self.activation, rate=self.rate, utility=self.utility)
        object.__setattr__(self, "monotone", dict(self.monotone))


def one_network(config: Any) -> dict[str, int]:
    """Return the option for one network, where their number is left to a rule: for who averages or compares."""
    return {"members": 1} if getattr(config, "members", None) == "auto" else {}
