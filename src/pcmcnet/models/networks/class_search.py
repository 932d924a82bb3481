"""Number of classes of a mixture of chains, learnt from the table by what held-out sets gain from one more.

The same parts of the table that teach the weight decay (:mod:`pcmcnet.models.networks.decay_search`) are fitted with
1, 2, ... classes and the same decay, as long as the held-out sets gain (:mod:`pcmcnet.models.items.class_trials`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.errors import TrainingError
from pcmcnet.models.items.class_trials import MOST, ClassTrial, try_numbers
from pcmcnet.models.networks.decay_search import DIVERGED, Pair, SearchLog

log = logging.getLogger("pcmcnet")


def search_classes(
    pairs: Sequence[Pair], run: Callable[[Pair, int], Sequence[float]], kept: SearchLog, most: int = MOST
) -> list[ClassTrial]:
    """Try 1, 2, ... classes; ``run`` fits sets with so many and returns the NLL of each held-out set.

    The last trial that is better, or the first one of all, has the number to take: see
    :func:`~pcmcnet.models.items.class_trials.best_number`.
    """
    held_out = [data for _, parts in pairs for data in parts]
    weights = np.concatenate([data.weights for data in held_out])

    def losses(classes: int) -> Floats:
        curves = [kept.curve(f"classes {classes}/{k}", partial(_tried, run, p, classes)) for k, p in enumerate(pairs)]
        return np.concatenate([np.asarray(curve) for curve in curves])

    return try_numbers(losses, weights, _groups(held_out), most)


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
