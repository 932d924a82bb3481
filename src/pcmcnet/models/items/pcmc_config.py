"""Options of PCMC."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pcmcnet.checks import require_number, require_word
from pcmcnet.errors import ConfigError
from pcmcnet.models.interface.persons import By
from pcmcnet.models.items.penalty_search import Penalty, require_penalty

Method = Literal["lbfgs", "slsqp"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PCMCConfig:
    """Options of PCMC.

    Parameters
    ----------
    smoothing
        Choices added for every item of every distinct choice set of the training part.
    method
        "lbfgs", on log-rates; or "slsqp", the original's, on rates with q_ij + q_ji of at least 1, without ridge,
        for up to 12 items.
    ridge
        Pull of the log-rates towards the chain of Bradley-Terry's law, as if by a normal law of variance 1 / ridge;
        0 for maximum likelihood alone. "auto" learns it from held-out choice sets, an infinite one, which is
        Bradley-Terry's law itself, included. Of no use to "slsqp".
    speeds
        Part of the ridge that pulls how fast two items are compared, q_ij q_ji; the odds q_ij / q_ji have all of it.
    restarts
        Starts of the search: Bradley-Terry's chain, then random ones around it. The best objective is kept.
    max_iter, tolerance
        Iterations of a start at most, and the gain in the mean objective below which it ends.
    bins
        Features to cut into bins, with the number of bins: the cells of the grid are the items. Empty for labels.
    identified
        With ``bins``: labels of alternatives that keep an item of their own.
    classes
        Number of classes of people, each with a chain of its own (:mod:`pcmcnet.models.items.pcmc_classes`); "auto"
        takes more than one where held-out sets are then predicted better, beyond noise.
    by
        Who is of a class: the "person", where the table declares persons, or the choice "set".
    """

    smoothing: float = 0.1
    method: Method = "lbfgs"
    ridge: Penalty = "auto"
    speeds: float = 0.1
    restarts: int = 8
    max_iter: int = 500
    tolerance: float = 1e-9
    bins: Mapping[str, int] = field(default_factory=dict)
    identified: tuple[str, ...] = ()
    classes: int | Literal["auto"] = 1
    by: By = "person"

    def __post_init__(self) -> None:
        require_word("method", self.method, get_args(Method))
        require_word("by", self.by, get_args(By))
        if self.classes != "auto":
            require_number("classes", self.classes, whole=True, low=1)
        if self.classes != 1 and self.method == "slsqp":
            raise ConfigError("method='slsqp' is for one chain: leave classes at 1, or use 'lbfgs'.")
        require_penalty("ridge", self.ridge)
        for name in ("smoothing", "speeds"):
            require_number(name, getattr(self, name), low=0)
        for name in ("restarts", "max_iter"):
            require_number(name, getattr(self, name), whole=True, low=1)
        require_number("tolerance", self.tolerance, low=0, open_low=True)
        if not isinstance(self.bins, Mapping):
            raise ConfigError(f"bins must map features to numbers of bins, such as {{'price': 8}}, got {self.bins!r}.")
        for name, number in self.bins.items():
            require_number(f"bins of {name!r}", number, whole=True, low=1)
        object.__setattr__(self, "bins", dict(self.bins))
        object.__setattr__(self, "identified", _labels(self.identified))
        if self.identified and not self.bins:
            raise ConfigError("identified says which labels are not binned, and there are no bins: leave it out.")


def _labels(value: Any) -> tuple[str, ...]:
    """Take a list of distinct labels."""
    labels = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (None,)
    if not all(isinstance(label, str) for label in labels) or len(set(labels)) != len(labels):
        raise ConfigError(f"identified must be a list of distinct labels such as ('a', 'b'), got {value!r}.")
    return labels
