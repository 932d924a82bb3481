"""Number of classes of people, learnt from what held-out choice sets gain by one more.

Numbers 1, 2, ... are tried one after the other. A class more is better where held-out choices gain by it, over the
number before, more than NOISE standard errors of the gain; sets of one person are summed up first, since what a person
likes is in all of them. The search ends with the first number that is not better.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.models.items.penalty_search import mean_gain

log = logging.getLogger("pcmcnet")

MOST = 4  # classes
NOISE = 2.0  # standard errors by which a class more has to gain


class ClassTrial(NamedTuple):
    """A number of classes that was tried, and what held-out sets gain by it over one less."""

    classes: int
    loss: float  # mean NLL of the held-out sets
    gain: float
    error: float  # standard error of the gain

    @property
    def better(self) -> bool:
        """Whether the gain is beyond noise."""
        return self.gain > NOISE * self.error

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"classes": self.classes, "held_out_nll": self.loss, "gain": self.gain, "standard_error": self.error}


def try_numbers(losses: Callable[[int], Floats], weights: Floats, groups: Ints, most: int = MOST) -> list[ClassTrial]:
    """Try 1, 2, ... classes; ``losses`` fits so many and returns the NLL (H,) of each held-out choice."""
    best = losses(1)
    trials = [ClassTrial(1, float(np.average(best, weights=weights)), 0.0, 0.0)]
    for classes in range(2, most + 1):
        found = losses(classes)
        trials.append(
            ClassTrial(classes, float(np.average(found, weights=weights)), *mean_gain(best - found, weights, groups))
        )
        log.info("%d classes: held-out NLL %.4f, gain %.4f ± %.4f", *trials[-1])
        if not trials[-1].better:
            break
        best = found
    return trials


def best_number(trials: Sequence[ClassTrial]) -> int:
    """Return the number of classes to take: the last that is better, or one."""
    return max((trial.classes for trial in trials if trial.better), default=1)
