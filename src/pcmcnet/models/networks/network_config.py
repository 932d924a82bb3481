"""Options that all networks share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from pcmcnet.checks import require_word
from pcmcnet.errors import ConfigError
from pcmcnet.training import TrainConfig

Tails = Literal["bend", "keep"]


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
