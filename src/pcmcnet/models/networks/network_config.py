"""Options that all networks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from pcmcnet.checks import require_number, require_word
from pcmcnet.data import Encoder
from pcmcnet.errors import ConfigError, did_you_mean
from pcmcnet.layers.inner_logit import RISING_ACTIVATIONS
from pcmcnet.training import TrainConfig

Tails = Literal["bend", "keep"]
Utility = Literal["linear", "none"]

MAX_LAYERS = 100  # of a network, at most


@dataclass(frozen=True, kw_only=True)
class NetworkConfig(TrainConfig):
    """Options of every network: what comes in and how, then those of the training loop.

    Parameters
    ----------
    labels
        Whether the network sees the label of an alternative as one of its categories, where labels are declared.
    tails
        What becomes of features with a long right tail, such as prices: "bend" takes their inverse hyperbolic sine,
        which is a line near 0 and a logarithm further out, before standardising; "keep" standardises alone.
    """

    labels: bool = True
    tails: Tails = "bend"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.labels, bool):
            raise ConfigError(f"labels must be true or false, got {self.labels!r}.")
        require_word("tails", self.tails, get_args(Tails))


def as_widths(given: Any, *, name: str = "hidden", fewest: int = 0) -> tuple[int, ...]:
    """Return the widths of layers, or say what is wrong with them."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(f"{name} must be a list of widths such as (64, 64), got {given!r}.")
    require_number(f"the number of {name} layers", len(given), low=fewest, high=MAX_LAYERS)
    for width in given:
        require_number(name, width, whole=True, low=1)
    return tuple(given)


# -- Monotone features -------------------------------------------------------------------------------------------------
# Features with which the probability of an alternative may only rise, or only fall, whatever the other inputs are.
#
# Raising the rates into a state of a chain and lowering those out of it raises its stationary probability (proven in
# docs/mathematics.md). So a network whose rates into an alternative fall, and out of it rise, with its price gives it a
# probability that falls with its price. Signs of weights guarantee that (`pcmcnet.layers.inner_logit`), and signs of
# coefficients in the utility (`pcmcnet.layers.inner_logit`). What comes before, standardising and bending, rises with
# the number. Nothing is said of a missing number beside a known one.

Direction = Literal["decreasing", "increasing"]


def as_directions(monotone: object) -> dict[str, Direction]:
    """Return columns with their directions; refuse anything else."""
    if not isinstance(monotone, Mapping) or not all(isinstance(name, str) for name in monotone):
        raise ConfigError(f"monotone must name columns, as in {{'price': 'decreasing'}}, got {monotone!r}.")
    for name, direction in monotone.items():
        require_word(f"direction of the monotone column {name!r}:", direction, get_args(Direction))
    return dict(monotone)


def require_monotone_form(activation: str, rate: str, utility: str) -> None:
    """Refuse forms of a network that cannot keep to a direction."""
    if activation not in RISING_ACTIVATIONS:
        raise ConfigError(
            f"monotone needs an activation that never falls: {', '.join(RISING_ACTIVATIONS)}; got {activation!r}."
        )
    if rate != "exp" and utility != "none":
        raise ConfigError(f"monotone with rate={rate!r} needs utility='none'; with rate='exp' it goes with both.")


def signs_of_numbers(monotone: Mapping[str, Direction], encoder: Encoder) -> Tensor | None:
    """Return 1, -1 or 0 for each numeric input of an alternative (F,); None without a monotone column."""
    if not monotone:
        return None
    codes = {code.name: (k, code) for k, code in enumerate(encoder.features.numeric)}
    signs = torch.zeros(encoder.features.n_numeric)
    for name, direction in monotone.items():
        if name not in codes:
            raise ConfigError(_told(name, encoder))
        k, code = codes[name]
        if code.curve is not None:
            raise ConfigError(
                f"monotone names {name!r}, which is of kind {code.curve}: a curve may turn. Leave it out of kinds, or "
                f"out of monotone."
            )
        signs[k] = 1.0 if direction == "increasing" else -1.0
    return signs


def _told(name: str, encoder: Encoder) -> str:
    """Say why a column cannot be monotone."""
    schema, numbers = encoder.schema, [code.name for code in encoder.features.numeric]
    if name in schema.individual:
        return f"monotone names {name!r}, which is of the individual: it is the same for all alternatives of a set."
    if name in schema.features or name == schema.alternative:
        return f"monotone names {name!r}, which is no column of numbers."
    return f"monotone names {name!r}, which is none of the features that are numbers." + did_you_mean(name, numbers)
