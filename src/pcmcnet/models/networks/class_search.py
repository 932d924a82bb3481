"""Number of classes of a mixture of chains, learnt from the table by what held-out sets gain from one more.

The same parts of the table that teach the weight decay (:mod:`pcmcnet.models.networks.decay_search`) are fitted with
1, 2, ... classes and the same decay. A class more has to predict the held-out sets better by two standard errors of the
difference. That is taken set by set, and sets of one person are summed up first, since what a person likes is in all of
them. The search ends with the first number that gains less.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.errors import TrainingError
from pcmcnet.models.items.penalty_search import mean_gain
from pcmcnet.models.networks.decay_search import DIVERGED, Pair, SearchLog

MOST = 4  # classes
NOISE = 2.0  # standard errors by which a class more has to gain

log = logging.getLogger("pcmcnet")


class ClassTrial(NamedTuple):
    """A number of classes that was tried, and what held-out sets gain by it over the best number below."""

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


def search_classes(
    pairs: Sequence[Pair], run: Callable[[Pair, int], Sequence[float]], kept: SearchLog, most: int = MOST
) -> list[ClassTrial]:
    """Try 1, 2, ... classes; ``run`` fits sets with so many and returns the NLL of each held-out set.

    The last trial that is better, or the first one of all, has the number to take: see :func:`best_number`.
    """
    held_out = [data for _, parts in pairs for data in parts]
    weights = np.concatenate([data.weights for data in held_out])
    groups = _groups(held_out)

    def losses(classes: int) -> Floats:
        curves = [kept.curve(f"classes {classes}/{k}", partial(_tried, run, p, classes)) for k, p in enumerate(pairs)]
        return np.concatenate([np.asarray(curve) for curve in curves])

    best = losses(1)
    trials = [ClassTrial(1, float(np.average(best, weights=weights)), 0.0, 0.0)]
    for classes in range(2, most + 1):
        found = losses(classes)
        gain, error = mean_gain(best - found, weights, groups)
        trials.append(ClassTrial(classes, float(np.average(found, weights=weights)), gain, error))
        log.info("%d classes: held-out NLL %.4f, gain %.4f ± %.4f", classes, trials[-1].loss, gain, error)
        if not trials[-1].better:
            break
        best = found
    return trials


def best_number(trials: Sequence[ClassTrial]) -> int:
    """Return the number of classes to take."""
    return max((trial.classes for trial in trials if trial.better), default=1)


def _groups(tables: Sequence[ChoiceData]) -> Any:
    """(S,) numbers of what goes together, different in different tables."""
    found, first = [], 0
    for data in tables:
        own = data.groups(None)
        found.append(own + first)
        first += int(own.max()) + 1 if len(own) else 0
    return np.concatenate(found)


def _tried(run: Callable[[Pair, int], Sequence[float]], pair: Pair, classes: int) -> Sequence[float]:
    """Make a trial; one that diverges is worse than any other."""
    try:
        return run(pair, classes)
    except TrainingError as error:
        log.info("%d classes: %s", classes, error)
        return [DIVERGED] * sum(len(data) for data in pair[1])
