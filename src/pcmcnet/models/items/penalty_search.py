"""The penalty of a model of items, learnt from the table: held-out choice sets say how far to leave its logit.

    ladder of penalties   inf -- 1000 -- 316 -- 100 -- ... -- 0.03 -- 0.01      from the logit to maximum likelihood

Five parts of the choice sets are held out in turn, whole persons where persons are known. In each part a path of fits
goes down the ladder, every fit from where the one before ended, and predicts what is held out; the walk ends two rungs
after the best. The first rung is the plain model itself: a logit, for all that is penalised here. With d the loss of
each held-out choice under a penalty less its loss under the plain model, the penalty with the least loss is taken where

    - mean(d)  >  margin x standard error of mean(d),

and the plain model otherwise, so that context has to show before it is believed. The error is that of sums by person.
A penalty is a precision, as of a normal prior, against choices of weight 1: the ladder goes with the mean weight.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.data.parts import take_sets
from pcmcnet.data.splits import fold_parts, generator
from pcmcnet.errors import ConfigError
from pcmcnet.models.items.binning import Grid
from pcmcnet.models.items.universe import DistinctSets, Universe

log = logging.getLogger("pcmcnet")

Penalty = float | Literal["auto"]
Losses = Callable[[float], Floats]  # penalty -> (H,) minus the log-probabilities of held-out choices

PLAIN = math.inf
LADDER = (PLAIN, *(float(f"{10 ** (k / 2):.3g}") for k in range(6, -5, -1)))
COARSE = (PLAIN, *LADDER[1::2])  # for fits that take long
FOLDS = 5
FEWEST = 20  # sets, or persons, below which held-out ones tell nothing
PATIENCE = 2  # rungs after the best
MARGIN = 2.0  # standard errors; with 1, CDM gave context to 2 of 24 simulated logits, and lost up to .0017 nats
COPIES = 20_000  # choices that a table of counts is written as, at most
OTHERWISE = 1.0  # the penalty where sets are too few to tell
TRIAL_TOLERANCE = 1e-7  # gain in the mean objective below which a fit of the search ends


def require_penalty(name: str, value: object) -> None:
    """Refuse anything but "auto" or a number of at least 0."""
    if isinstance(value, str) and value != "auto":
        raise ConfigError(f"{name} must be 'auto' or a number of at least 0, got {value!r}.")
    if value != "auto":
        require_number(name, value, low=0)


class Trial(NamedTuple):
    """A penalty that was tried: mean loss of held-out choices, its gain on the plain model and the gain's error."""

    penalty: float
    loss: float
    gain: float
    error: float


@dataclass(frozen=True, slots=True)
class PenaltySearch:
    """What a search has found."""

    trials: tuple[Trial, ...]  # none where sets were too few
    held_out: int  # choice sets that were predicted
    otherwise: float = OTHERWISE
    losses: tuple[Floats, ...] = ()  # (H,) of the held-out choices, under each penalty

    @property
    def penalty(self) -> float:
        """The penalty to fit all sets with; infinite for the plain model."""
        if not self.trials:
            return self.otherwise
        return self.trials[self._place].penalty

    @property
    def best_losses(self) -> Floats:
        """(H,) losses of the held-out choices under the penalty."""
        return self.losses[self._place]

    @property
    def _place(self) -> int:
        k = int(np.argmin([trial.loss for trial in self.trials]))
        return k if self.trials[k].gain > MARGIN * self.trials[k].error else 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON, which has no infinity."""
        trials = [{"penalty": f"{t.penalty:g}", "held_out_nll": t.loss} for t in self.trials]
        return {"penalty": f"{self.penalty:g}", "trials": trials, "held_out_sets": self.held_out}


class Fold(NamedTuple):
    """Sets to fit, sets held out, and the person who chooses from each of these, or its own number."""

    known: ChoiceData
    held_out: ChoiceData
    groups: Ints  # (H,)


class CountedFold(NamedTuple):
    """The same as counts of distinct sets, and where each held-out choice is among the entries of these."""

    known: DistinctSets
    held_out: DistinctSets
    chosen: Ints  # (H,)


def cut(data: ChoiceData, seed: int, cells: Ints | None = None) -> list[Fold]:
    """Hold out parts of the sets that offer a choice, whole persons if these are enough; none where sets are few.

    ``cells`` (S,) numbers what was chosen from what. A table in which each cell has one set, with a weight, is one of
    counts: its choices are held out one by one, as no part of a cell can be foretold without the rest of it.
    """
    sets = data.subset(data.sizes > 1)
    persons = sets.groups()
    if cells is not None and _are_counts(sets, cells[data.sizes > 1], persons):
        sets = _repeated(sets)
        persons = np.arange(len(sets))
    groups = persons if len(np.unique(persons)) >= FEWEST else np.arange(len(sets))
    if len(sets) < FEWEST:
        return []
    parts, everything = fold_parts(groups, FOLDS, generator(seed)), np.arange(len(sets))
    return [Fold(sets.subset(np.setdiff1d(everything, part)), sets.subset(part), groups[part]) for part in parts]


def _are_counts(sets: ChoiceData, cells: Ints, persons: Ints) -> bool:
    alone = len(np.unique(persons)) == len(np.unique(cells)) == len(sets)
    return alone and float(sets.weights.sum()) > len(sets)


def _repeated(sets: ChoiceData) -> ChoiceData:
    """Write every set as often as its weight says, or in proportion where that would be very often."""
    share = min(1.0, COPIES / float(sets.weights.sum()))
    copies = np.maximum(np.round(sets.weights * share), 1).astype(np.int64)
    each = replace(sets, weights=sets.weights / copies)
    return replace(each, **take_sets(each, np.repeat(np.arange(len(sets)), copies)))


def cut_items(data: ChoiceData, universe: Universe | Grid, seed: int) -> list[Fold]:
    """Hold out parts of the sets for a model of items, which may be written as counts."""
    cells = DistinctSets.of(data, universe.index(data)).place[data.offsets[:-1] + data.require_chosen("fitting")]
    return cut(data, seed, cells)


def otherwise(data: ChoiceData) -> float:
    """Return the penalty where sets are too few to tell."""
    return OTHERWISE * float(data.weights.mean())


def counted(fold: Fold, universe: Universe | Grid, smoothing: float) -> CountedFold:
    """Count the choices of a fold by distinct set, with the smoothing of a fit in what is fitted."""
    known = DistinctSets.of(fold.known, universe.index(fold.known)).smoothed(smoothing)
    held_out = DistinctSets.of(fold.held_out, universe.index(fold.held_out))
    chosen = held_out.place[fold.held_out.offsets[:-1] + fold.held_out.require_chosen("fitting")]
    return CountedFold(known, held_out, chosen)


def learn_of_items(
    data: ChoiceData, universe: Universe | Grid, path: Callable[[CountedFold], Losses], *, smoothing: float, seed: int
) -> PenaltySearch:
    """Learn the penalty of a model of items; ``path`` begins one in a fold."""
    folds = cut_items(data, universe, seed)
    if not folds:
        return PenaltySearch((), 0, otherwise(data))
    return search_penalty(folds, [path(counted(fold, universe, smoothing)) for fold in folds])


def search_penalty(
    folds: Sequence[Fold],
    paths: Sequence[Losses],
    ladder: Sequence[float] = LADDER,
    *,
    plain_is_apart: bool = False,
) -> PenaltySearch:
    """Go down the ladder; the path of a fold fits with one penalty after the other and returns held-out losses.

    Where the plain model is apart, the other rungs do not lead away from it: the walk goes by them alone.
    """
    weights, groups = held_out_choices(folds)
    trials: list[Trial] = []
    tried: list[Floats] = []
    for rung in ladder:
        penalty = rung * float(weights.mean())
        tried.append(np.concatenate([path(penalty) for path in paths]))
        loss = float(np.average(tried[-1], weights=weights))
        trials.append(Trial(penalty, loss, *mean_gain(tried[0] - tried[-1], weights, groups)))
        log.info("penalty %g: held-out NLL %.4f", penalty, trials[-1].loss)
        walked = [trial.loss for trial in trials[plain_is_apart:]]
        if walked and len(walked) - 1 - int(np.argmin(walked)) >= PATIENCE:
            break
    return PenaltySearch(tuple(trials), len(weights), losses=tuple(tried))


def held_out_choices(folds: Sequence[Fold]) -> tuple[Floats, Ints]:
    """(H,) weights and persons of all held-out choices."""
    return np.concatenate([fold.held_out.weights for fold in folds]), np.concatenate([fold.groups for fold in folds])


def mean_gain(gains: Floats, weights: Floats, groups: Ints) -> tuple[float, float]:  # (H,), (H,), (H,)
    """Return the weighted mean of gains, and its standard error where choices of a group err together."""
    mean = float(np.average(gains, weights=weights))
    sums = np.bincount(groups, weights=weights * (gains - mean))
    return mean, math.sqrt(float(sums @ sums)) / float(weights.sum())


def penalty_facts(training: Mapping[str, Any]) -> dict[str, str]:
    """Say what penalty was learnt, and from what."""
    search = training.get("penalty")
    if search is None:
        return {}
    plain = {"inf": "infinite: the plain logit", "0": "none: smoothing alone"}
    found = plain.get(search["penalty"], search["penalty"])
    if not search["trials"]:
        return {"penalty": f"{found}: choice sets are too few to learn it"}
    tried = ", ".join(f"{t['penalty']}: {t['held_out_nll']:.4f}" for t in search["trials"])
    held = search.get("strength_ridge")
    beside = {"strengths": f"a ridge of {held:g} in place of smoothing"} if held else {}
    return {"penalty": f"{found}, learnt from {search['held_out_sets']:,} held-out sets (NLL {tried})", **beside}
