"""The ridge of a model with one strength per item, learnt from held-out choice sets.

    ladder of ridges   0 with smoothing   |   1000 -- 316 -- 100 -- ... -- 0.1 -- 0.03 without it

Smoothing adds choices to every distinct set, so it is the stronger the more sets differ, whatever the choices say. A
ridge shrinks the strengths themselves, as if they came from a normal law, and the table says of which variance. The
plain model, smoothing alone, is kept unless a ridge predicts held-out choices better, beyond noise
(:mod:`pcmcnet.models.items.penalty_search`).

The logit learns it for Thurstone's model too: a fit takes Newton's method a few steps. Its errors have the variance
pi^2 / 6 and a normal utility's 1, so strengths of equal meaning have variances in that proportion.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.ragged import log_softmax_by_set
from pcmcnet.models.items.binning import Grid
from pcmcnet.models.items.newton import centring_ridge, newton
from pcmcnet.models.items.penalty_search import (
    LADDER,
    TRIAL_TOLERANCE,
    CountedFold,
    Losses,
    PenaltySearch,
    counted,
    cut_items,
    search_penalty,
)
from pcmcnet.models.items.universe import Universe

RIDGES = (0.0, *LADDER[1:-1])


def learn_ridge(
    data: ChoiceData, universe: Universe | Grid, *, smoothing: float, precision: float = 1.0, seed: int
) -> PenaltySearch:
    """Learn the ridge on strengths; 0 for smoothing alone, also where sets are too few to tell.

    ``precision`` is that of a utility's error, as a multiple of the logit's.
    """
    folds = cut_items(data, universe, seed)
    if not folds:
        return PenaltySearch((), 0, otherwise=0.0)
    path = partial(_path, universe.size, smoothing)
    paths = [path(counted(fold, universe, 0.0)) for fold in folds]
    search = search_penalty(folds, paths, RIDGES, plain_is_apart=True)
    return replace(search, trials=tuple(t._replace(penalty=t.penalty * precision) for t in search.trials))


class Base(NamedTuple):
    """How the logit is held that a model with context departs from: by smoothing of counts, or a ridge on strengths."""

    smoothing: float
    ridge: float = 0.0

    @classmethod
    def learn(cls, data: ChoiceData, universe: Universe | Grid, *, smoothing: float, seed: int) -> Base:
        """Learn which, as the logit itself does."""
        ridge = learn_ridge(data, universe, smoothing=smoothing, seed=seed).penalty
        return cls(0.0, ridge) if ridge else cls(smoothing)

    def told(self, search: PenaltySearch) -> dict[str, Any]:
        """Return what was learnt of the context's penalty and of the strengths, for the record of a fit."""
        return {"penalty": {**search.to_dict(), **({"strength_ridge": self.ridge} if self.ridge else {})}}


def _path(n: int, smoothing: float, fold: CountedFold) -> Losses:
    """Begin a path of fits down the ladder of ridges, each from where the one before ended."""
    smoothed, at = fold.known.smoothed(smoothing), None

    def losses(ridge: float) -> Floats:
        nonlocal at
        if ridge:
            s = at = newton(fold.known, n, ridge=ridge, start=at, tolerance=TRIAL_TOLERANCE).strengths
        else:
            s = newton(smoothed, n, ridge=centring_ridge(smoothed)).strengths
        return -log_softmax_by_set(s[fold.held_out.items], fold.held_out.offsets)[fold.chosen]

    return losses
