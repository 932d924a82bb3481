"""Options that all networks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pcmcnet.checks import require_number, require_word
from pcmcnet.errors import ConfigError
from pcmcnet.training import TrainConfig

Tails = Literal["bend", "keep"]
Utility = Literal["linear", "none"]

LAYERS = 100  # of a network, at most


@dataclass(frozen=True, kw_only=True, slots=True)
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
        super(NetworkConfig, self).__post_init__()  # slots make a new class, which super() misses
        if not isinstance(self.labels, bool):
            raise ConfigError(f"labels must be true or false, got {self.labels!r}.")
        require_word("tails", self.tails, get_args(Tails))


def as_widths(given: Any, *, name: str = "hidden", fewest: int = 0) -> tuple[int, ...]:
    """Return the widths of layers, or say what is wrong with them."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(f"{name} must be a list of widths such as (64, 64), got {given!r}.")
    require_number(f"the number of {name} layers", len(given), low=fewest, high=LAYERS)
    for width in given:
        require_number(name, width, whole=True, low=1)
    return tuple(given)
