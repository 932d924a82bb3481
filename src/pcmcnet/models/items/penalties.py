"""Penalties of models of items, learnt from the table: held-out choice sets decide how far to leave the plain model.

    context penalty   inf -- 1000 -- 316 -- 100 -- ... -- 0.03 -- 0.01      from the logit to maximum likelihood
    strength ridge    0 with smoothing   |   1000 -- 316 -- ... -- 0.03     without it

Five folds of the choice sets are held out in turn, whole persons if persons are known. In each fold a path of fits goes
down the ladder, every fit from where the one before ended, and predicts the held-out sets. The first rung is the plain
model, which is kept unless another rung predicts better beyond noise (:func:`pcmcnet.selection.descend_ladder`), so
that context has to show before it is believed. A penalty is a precision, as of a normal prior, against choices of
weight 1: the ladder is multiplied by the mean weight.

The strength ridge is that of a model with one strength per item. Smoothing adds choices to every distinct set, so it is
the stronger the more sets differ, whatever the choices say. A ridge shrinks the strengths themselves, as if they came
from a normal distribution, and the table tells its variance. The logit learns it for Thurstone's model too: a fit takes
Newton's method a few steps. Its errors have the variance pi^2 / 6 and a normal utility's 1, so strengths of equal
meaning have variances in that proportion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.data.parts import take_sets
from pcmcnet.data.ragged import log_softmax_by_set
from pcmcnet.errors import ConfigError
from pcmcnet.models.interface.fitted import FitRecord
from pcmcnet.models.items.binning import Grid
from pcmcnet.models.items.newton import centring_ridge, newton
from pcmcnet.models.items.universe import DistinctSets, Universe
from pcmcnet.selection import Descent, Fold, Trial, cross_folds, descend_ladder, held_out_groups, held_out_weights

Penalty = float | Literal["auto"]
Losses = Callable[[float], Floats]  # penalty -> (H,) minus the log-probabilities of held-out choices

PLAIN = math.inf  # the penalty of the plain logit
LADDER = (PLAIN, *(float(f"{10 ** (k / 2):.3g}") for k in range(6, -5, -1)))
COARSE_LADDER = (PLAIN, *LADDER[1::2])  # for fits that take long
STRENGTH_RIDGES = (0.0, *LADDER[1:-1])
MAX_COPIES = 20_000  # choice sets that a table of counts is written as
FALLBACK_PENALTY = 1.0  # if there are too few choice sets to learn one
TRIAL_TOLERANCE = 1e-7  # gain in the mean objective below which a fit of the search ends


def require_penalty(name: str, value: object) -> None:
    """Refuse anything but "auto" or a number of at least 0."""
    if isinstance(value, str) and value != "auto":
        raise ConfigError(f"{name} must be 'auto' or a number of at least 0, got {value!r}.")
    if value != "auto":
        require_number(name, value, low=0)


# -- Records ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PenaltyRecord:
    """A penalty that was learnt.

    Parameters
    ----------
    penalty
        The penalty to fit all choice sets with; infinite for the plain logit.
    trials
        The penalties that were tried, from the first rung on; none if there are too few choice sets.
    held_out_sets
        Number of choice sets that trials predicted.
    strength_ridge
        Ridge on the strengths that a model with context departs from; 0 for smoothing.
    """

    penalty: float
    trials: tuple[Trial, ...] = ()
    held_out_sets: int = 0
    strength_ridge: float = 0.0

    @classmethod
    def of(cls, descent: Descent) -> PenaltyRecord:
        """Return the best penalty of a search."""
        return cls(
            penalty=descent.trials[descent.best].value,
            trials=descent.trials,
            held_out_sets=len(descent.losses[0]),
        )

    @property
    def stronger(self) -> list[float]:
        """The larger penalties on the way to this one; the last fit goes the same way."""
        return [trial.value for trial in self.trials if trial.value > self.penalty]

    @property
    def facts(self) -> dict[str, str]:
        """The penalty and the trials in words."""
        words = {PLAIN: "infinite: the plain logit", 0.0: "none: smoothing alone"}
        penalty = words.get(self.penalty, f"{self.penalty:g}")
        if not self.trials:
            return {"penalty": f"{penalty}: choice sets are too few to learn it"}
        losses = ", ".join(f"{trial.value:g}: {trial.held_out_nll:.4f}" for trial in self.trials)
        strengths = {"strengths": f"a ridge of {self.strength_ridge:g} in place of smoothing"}
        return {
            "penalty": f"{penalty}, learnt from {self.held_out_sets:,} held-out sets (NLL {losses})",
            **(strengths if self.strength_ridge else {}),
        }


@dataclass(frozen=True, kw_only=True)
class SearchRecord(FitRecord):
    """How the fit of a model of items went.

    Parameters
    ----------
    iterations
        Iterations of the search that ended at the estimates.
    nll
        Mean negative log-likelihood of the training choices.
    penalty
        How the penalty was learnt; None if it is an option.
    """

    iterations: int
    nll: float
    penalty: PenaltyRecord | None = None

    @property
    def facts(self) -> dict[str, str]:
        """The loss and the search in words."""
        end = "converged" if self.converged else "stopped by max_iter"
        return {"training NLL": f"{self.nll:.4f}", "search": f"{self.iterations} iterations, {end}"}

    @property
    def penalty_facts(self) -> dict[str, str]:
        """The penalty in words, if it was learnt."""
        return {} if self.penalty is None else self.penalty.facts


@dataclass(frozen=True, kw_only=True)
class ItemRecord(SearchRecord):
    """How the fit of a model of items alone went: choice sets with equal items are one case with counts."""

    distinct_sets: int

    def item_facts(self, choice_sets: int) -> dict[str, str]:
        """Say what the model was fitted to, and how well."""
        return {
            "trained on": f"{choice_sets:,} choice sets, {self.distinct_sets:,} of them distinct",
            **self.facts,
            "features": "not used: an alternative is known by its item",
        }


# -- Folds of items -----------------------------------------------------------------------------------------------


class CountedFold(NamedTuple):
    """A fold as counts of distinct sets, and where each held-out choice is among the entries of these."""

    train: DistinctSets
    held_out: DistinctSets
    chosen: Ints  # (H,)

    @classmethod
    def of(cls, fold: Fold, universe: Universe | Grid, smoothing: float) -> CountedFold:
        """Count the choices of a fold by distinct set, with smoothing of those that are fitted."""
        train = DistinctSets.of(fold.train, universe.index(fold.train)).smoothed(smoothing)
        return cls(train, *held_out_entries(fold, universe))


def held_out_entries(fold: Fold, universe: Universe | Grid) -> tuple[DistinctSets, Ints]:
    """Return the distinct sets of the held-out part and the entry (H,) that was chosen from each choice set."""
    (sets,) = fold.held_out
    distinct = DistinctSets.of(sets, universe.index(sets))
    return distinct, distinct.place[sets.offsets[:-1] + sets.require_chosen("fitting")]


def choice_folds(data: ChoiceData, seed: int) -> list[Fold]:
    """Return folds of the sets that offer a choice; none if there are too few."""
    return cross_folds(data.subset(data.sizes > 1), seed)


def item_folds(data: ChoiceData, universe: Universe | Grid, seed: int) -> list[Fold]:
    """Return folds of the sets that offer a choice, for a model of items; none if there are too few.

    A table in which each case, a distinct set and the item chosen, has one row with a weight is one of counts. Its
    choices are held out one by one, as no part of a case can be predicted without the rest of it.
    """
    # 1. Number the cases.
    cases = DistinctSets.of(data, universe.index(data)).place[data.offsets[:-1] + data.require_chosen("fitting")]
    several = data.sizes > 1
    sets = data.subset(several)
    # 2. A table of counts is written out, and each copy is a choice set of its own.
    if _are_counts(sets, cases[several]):
        sets = _written_out(sets)
        return cross_folds(sets, seed, groups=np.arange(len(sets)))
    return cross_folds(sets, seed)


def _are_counts(sets: ChoiceData, cases: Ints) -> bool:
    """Return True if no two choice sets are of one person or of one case, and weights say how often each occurred."""
    alone = len(np.unique(sets.groups())) == len(np.unique(cases)) == len(sets)
    return alone and float(sets.weights.sum()) > len(sets)


def _written_out(sets: ChoiceData) -> ChoiceData:
    """Return every set as often as its weight says, or in proportion if that would be very often."""
    share = min(1.0, MAX_COPIES / float(sets.weights.sum()))
    copies = np.maximum(np.round(sets.weights * share), 1).astype(np.int64)
    each = replace(sets, weights=sets.weights / copies)
    return replace(each, **take_sets(each, np.repeat(np.arange(len(sets)), copies)))


# -- Penalty on context -------------------------------------------------------------------------------------------


def learn_penalty(
    data: ChoiceData, universe: Universe | Grid, path: Callable[[CountedFold], Losses], *, smoothing: float, seed: int
) -> PenaltyRecord:
    """Learn the penalty of a model of items; ``path`` begins the fits to one fold."""
    folds = item_folds(data, universe, seed)
    if not folds:
        return fallback_penalty(data)
    paths = [path(CountedFold.of(fold, universe, smoothing)) for fold in folds]
    return PenaltyRecord.of(search_penalty(folds, paths))


def fallback_penalty(data: ChoiceData) -> PenaltyRecord:
    """Return the penalty if there are too few choice sets to learn one."""
    return PenaltyRecord(penalty=FALLBACK_PENALTY * float(data.weights.mean()))


def search_penalty(
    folds: Sequence[Fold], paths: Sequence[Losses], ladder: Sequence[float] = LADDER, *, plain_is_apart: bool = False
) -> Descent:
    """Go down the ladder; the path of a fold fits with one penalty after the other and returns held-out losses.

    If the plain model is apart, the other rungs do not lead away from it: they alone decide when to stop.
    """
    weights = held_out_weights(folds)
    mean_weight = float(weights.mean())
    return descend_ladder(
        [rung * mean_weight for rung in ladder],
        lambda penalty: np.concatenate([path(penalty) for path in paths]),
        weights,
        held_out_groups(folds),
        first_is_apart=plain_is_apart,
    )


# -- Ridge on strengths -------------------------------------------------------------------------------------------


class StrengthPrior(NamedTuple):
    """How the strengths of the logit are held: by smoothing of counts, or by a ridge in place of it."""

    smoothing: float
    ridge: float = 0.0

    @classmethod
    def learn(cls, data: ChoiceData, universe: Universe | Grid, *, smoothing: float, seed: int) -> StrengthPrior:
        """Learn which, as the logit itself does."""
        ridge = learn_strength_ridge(data, universe, smoothing=smoothing, seed=seed).penalty
        return cls(0.0, ridge) if ridge else cls(smoothing)


def learn_strength_ridge(
    data: ChoiceData, universe: Universe | Grid, *, smoothing: float, precision: float = 1.0, seed: int
) -> PenaltyRecord:
    """Learn the ridge on strengths; 0 for smoothing alone, also if there are too few choice sets.

    ``precision`` is that of a utility's error, as a multiple of the logit's.
    """
    folds = item_folds(data, universe, seed)
    if not folds:
        return PenaltyRecord(penalty=0.0)
    paths = [_ridge_path(CountedFold.of(fold, universe, 0.0), universe.size, smoothing) for fold in folds]
    descent = search_penalty(folds, paths, STRENGTH_RIDGES, plain_is_apart=True)
    trials = tuple(replace(trial, value=trial.value * precision) for trial in descent.trials)
    return PenaltyRecord.of(replace(descent, trials=trials))


def _ridge_path(fold: CountedFold, n: int, smoothing: float) -> Losses:
    """Return a path of logits down the ladder of ridges, each from where the one before ended."""
    smoothed, last = fold.train.smoothed(smoothing), None

    def losses(ridge: float) -> Floats:
        nonlocal last
        if ridge:
            s = last = newton(fold.train, n, ridge=ridge, start=last, tolerance=TRIAL_TOLERANCE).strengths
        else:
            s = newton(smoothed, n, ridge=centring_ridge(smoothed)).strengths
        return -log_softmax_by_set(s[fold.held_out.items], fold.held_out.offsets)[fold.chosen]

    return losses
