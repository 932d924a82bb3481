"""Options that all networks share, and checks of monotone features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from pcmcnet.checks import require_number, require_word
from pcmcnet.data import Encoder
from pcmcnet.errors import ConfigError
from pcmcnet.layers.inner_logit import RISING_ACTIVATIONS
from pcmcnet.models.interface.directions import Direction, directions_of, positions_of
from pcmcnet.models.interface.encoders import Encoders
from pcmcnet.training import TrainConfig

Tails = Literal["bend", "keep"]
Utility = Literal["linear", "none"]

MAX_LAYERS = 100  # of one kind in a network: hidden layers, recurrent layers, residual layers, blocks


@dataclass(frozen=True, kw_only=True)
class NetworkConfig(TrainConfig):
    """Options that all networks share: options of the inputs and of the training loop.

    Parameters
    ----------
    labels
        Whether the labels of alternatives are an input of the network, if the table has labels.
    tails
        Treatment of numeric columns with a long right tail, such as prices. "bend" applies the inverse hyperbolic sine,
        which is linear near 0 and logarithmic further out, before standardising. "keep" only standardises the columns.
    """

    labels: bool = True
    tails: Tails = "bend"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.labels, bool):
            raise ConfigError(f"labels must be true or false, got {self.labels!r}.")
        require_word("tails", self.tails, get_args(Tails))


@dataclass(frozen=True, kw_only=True)
class EncoderArguments:
    """Argument of network models that is not an option, because modules cannot be saved as JSON.

    Parameters
    ----------
    encoders
        Custom encoders by column, instead of the default encoders of the columns' kinds. A torch module maps the
        distinct values (u, ...) of a content column in a batch, such as texts or images, to vectors (u, width). A fit
        trains a copy of the module, starting from the module's weights, and leaves weights with ``requires_grad=False``
        unchanged. A :class:`Frozen` encoder runs once for each distinct value and is not trained.
    """

    encoders: Encoders | None = None


def as_widths(widths: Any, *, name: str = "hidden", min_layers: int = 0) -> tuple[int, ...]:
    """Return layer widths as a tuple, or raise ConfigError if they are not a list of positive whole numbers."""
    if isinstance(widths, str) or not isinstance(widths, Sequence):
        raise ConfigError(f"{name} must be a list of widths such as (64, 64), got {widths!r}.")
    require_number(f"the number of {name} layers", len(widths), low=min_layers, high=MAX_LAYERS)
    for width in widths:
        require_number(name, width, whole=True, low=1)
    return tuple(widths)


# -- Monotone features -------------------------------------------------------------------------------------------------
# The probability of an alternative rises (or falls) with its value of a monotone feature, whatever the other inputs.
#
# A higher rate into a state of a chain, or a lower rate out of it, raises its stationary probability (proven in
# docs/mathematics.md). So the probability falls with the price if the rates into an alternative fall with its price and
# the rates out of it rise. Sign constraints on the weights of the rate network and on the coefficients of the utility
# guarantee that (`pcmcnet.layers.inner_logit`). Standardising and bending of a number are increasing, and so is the
# share of each of its bins that lies below it, so bins have the sign of their number. A missing value is not ordered:
# its probability may be higher or lower than that of any number.


def require_monotone_form(activation: str, rate: str, utility: str) -> None:
    """Raise ConfigError if a network with these options cannot be monotone."""
    if activation not in RISING_ACTIVATIONS:
        raise ConfigError(
            f"monotone features, or signs of the table, need a non-decreasing activation "
            f"({', '.join(RISING_ACTIVATIONS)}), got {activation!r}."
        )
    if rate != "exp" and utility != "none":
        raise ConfigError(
            f"monotone features, or signs of the table, are not supported with rate={rate!r} and a utility: use "
            f"utility='none' or rate='exp'."
        )


def signs_of_numbers(monotone: Mapping[str, Direction], encoder: Encoder) -> Tensor | None:
    """Return the sign 1, -1 or 0 (none) of each numeric feature (F,), or None if no column is monotone."""
    directions = directions_of(monotone, encoder.schema)
    if not directions:
        return None
    codes = encoder.features.numeric
    signs = torch.zeros(encoder.features.n_numeric)
    for name, direction in directions.items():
        positions = positions_of(name, encoder)
        if (curve := codes[positions[0]].curve) is not None:
            raise ConfigError(
                f"monotone includes {name!r}, but a column of kind {curve} can have a non-monotone effect: "
                f"remove {name!r} from kinds or from monotone."
            )
        signs[positions] = 1.0 if direction == "increasing" else -1.0
    return signs
