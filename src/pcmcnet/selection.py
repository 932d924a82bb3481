"""Everything that is learnt from held-out choice sets: one module for networks, items, trees, classes and searches.

    folds             which choice sets are fitted and which are predicted; whole persons stay together
    ladders           a value on a grid of orders of magnitude: weight decay, penalty
    growing numbers   a number that grows while held-out choices gain beyond noise: classes, trees
    out of fold       predictions of every choice set by a model that was not fitted to it
    trial log         losses of trials on disk, so that a resumed run does not repeat them

A trial fits the training part of every fold and returns losses of the held-out part. Functions here decide which trials
to make and what follows from them; they know nothing of models. Losses are negative log-likelihoods. Shapes: H held-out
choices of all folds, in the order of the folds.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData, ScannedData, Sets
from pcmcnet.data.columns.ragged import consecutive_indices
from pcmcnet.data.subsets import fold_parts, generator
from pcmcnet.errors import ArtifactError, InputError, TrainingError
from pcmcnet.storage import json_bytes, parse_json, write_bytes
from pcmcnet.training.checkpoint import require_same_run
from pcmcnet.training.data_parallel import current_group

log = logging.getLogger("pcmcnet")

MIN_GROUPS = 20  # choice sets, or persons, below which held-out ones decide nothing
SMALL_TABLE_SETS = 5_000  # choice sets below which two quarters are held out in turn; above, one fifth is held out
MAX_SEARCHED_SETS = 12_000  # choice sets that slow trials look at
DIVERGED_LOSS = 1e9  # loss of a trial whose training diverged
MIN_GAIN_STANDARD_ERRORS = (
    2.0  # standard errors that a gain must exceed; with 1, CDM gave context to 2 of 24 simulated logits
)


# -- Folds --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Fold:
    """Choice sets to fit and choice sets to predict.

    Parameters
    ----------
    train
        Choice sets that a trial is fitted to.
    held_out
        Choice sets that it predicts: those held out of the table, and perhaps a validation part.
    groups
        (H,) number of the person, or of the choice set itself, of every held-out set: losses of a group err together.
        Numbers differ between folds.
    """

    train: ChoiceData
    held_out: tuple[ChoiceData, ...]
    groups: Ints

    @property
    def weights(self) -> Floats:
        """(H,) weights of the held-out sets."""
        return np.concatenate([sets.weights for sets in self.held_out])


def held_out_folds(train: Sets, valid: Sets | None, seed: int) -> list[Fold]:
    """Return one or two folds, for trials that take long; none if there are too few choice sets.

    Parameters
    ----------
    train
        The training part. Of a large one a sample serves: see :func:`searched_share`.
    valid
        A validation part, which joins the held-out sets of every fold: alone it would often be smaller than those, and
        a choice based on fewer sets is a worse one.
    seed
        Decides which sets are held out.
    """
    sample = sample_sets(train, MAX_SEARCHED_SETS, seed)
    extra = () if valid is None else (sample_sets(valid, MAX_SEARCHED_SETS // 5, seed),)
    if len(sample) < MIN_GROUPS:
        return _numbered([(sample, extra)]) if extra else []
    n_folds, n_used = (4, 2) if len(sample) < SMALL_TABLE_SETS else (5, 1)
    parts = sample.folds(n_folds, seed=seed, by=_person_groups(sample))[:n_used]
    return _numbered([(part, (held_out, *extra)) for part, held_out in parts])


def cross_folds(sets: ChoiceData, seed: int, n_folds: int = 5, groups: Ints | None = None) -> list[Fold]:
    """Return folds that hold out every choice set once, for quick trials; none if there are too few choice sets.

    ``groups`` (S,) are kept together; by default persons, or choice sets if persons are too few.
    """
    if len(sets) < MIN_GROUPS:
        return []
    if groups is None:
        persons = sets.groups()
        groups = persons if len(np.unique(persons)) >= MIN_GROUPS else np.arange(len(sets))
    return folds_from_parts(sets, fold_parts(groups, n_folds, generator(seed)), groups)


def folds_from_parts(sets: ChoiceData, parts: Iterable[Ints], groups: Ints) -> list[Fold]:
    """Return a fold for each part of the choice sets: the part is held out, and the rest is fitted."""
    everything = np.arange(len(sets))
    return [Fold(sets.subset(np.setdiff1d(everything, part)), (sets.subset(part),), groups[part]) for part in parts]


def sample_sets(data: Sets, n_sets: int, seed: int) -> ChoiceData:
    """Draw at most ``n_sets`` choice sets, whole persons if there are enough of them."""
    if isinstance(data, ScannedData):
        return data.sample(n_sets, seed)
    if len(data) <= n_sets:
        return data
    share = n_sets / len(data)
    return data.split((share, 1 - share), seed=seed, by=_person_groups(data))[0]


def searched_share(train: Sets) -> float:
    """Return the share of the training sets that :func:`held_out_folds` looks at."""
    return min(MAX_SEARCHED_SETS / len(train), 1.0)


def held_out_weights(folds: Sequence[Fold]) -> Floats:
    """Return the weights (H,) of the held-out choices of all folds."""
    return np.concatenate([fold.weights for fold in folds])


def held_out_groups(folds: Sequence[Fold]) -> Ints:
    """Return the groups (H,) of the held-out choices of all folds."""
    return np.concatenate([fold.groups for fold in folds])


def _person_groups(data: ChoiceData) -> Any:
    """Return None to keep persons together, or set ids to cut by choice set if persons are too few to hold some out."""
    return None if len(np.unique(data.groups(None))) >= MIN_GROUPS else data.set_ids


def _numbered(parts: Sequence[tuple[ChoiceData, tuple[ChoiceData, ...]]]) -> list[Fold]:
    """Return folds whose groups are numbered from one fold to the next."""
    folds, first = [], 0
    for train, held_out in parts:
        groups = []
        for sets in held_out:
            groups.append(sets.groups(None) + first)
            first += int(groups[-1].max()) + 1 - first if len(sets) else 0
        folds.append(Fold(train, held_out, np.concatenate(groups)))
    return folds


# -- Trials -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A value that was tried, and how well held-out choices were predicted with it.

    Parameters
    ----------
    value
        The value: a weight decay, a penalty, a number of classes.
    held_out_nll
        Weighted mean loss of the held-out choices.
    gain, standard_error
        Mean gain over the value that it is compared with, and its error; 0 if it is compared with none.
    """

    value: float
    held_out_nll: float
    gain: float = 0.0
    standard_error: float = 0.0

    @property
    def is_better(self) -> bool:
        """Whether the gain exceeds noise."""
        return self.gain > MIN_GAIN_STANDARD_ERRORS * self.standard_error


def mean_gain(gains: Floats, weights: Floats, groups: Ints) -> tuple[float, float]:  # (H,), (H,), (H,)
    """Return the weighted mean of gains and its standard error, clustered by group."""
    mean = float(np.average(gains, weights=weights))
    sums = np.bincount(groups, weights=weights * (gains - mean))
    return mean, math.sqrt(float(sums @ sums)) / float(weights.sum())


# -- Ladders ------------------------------------------------------------------------------------------------------


def walk_ladder(loss: Callable[[int], float], start: tuple[int, int], n_rungs: int) -> dict[int, float]:
    """Return the losses of the rungs tried: two neighbours first, then onwards in the better direction.

    The walk ends at the first rung that is not better than the one before, or at the end of the ladder.
    """
    losses = {rung: loss(rung) for rung in start}
    place, step = (start[0], -1) if losses[start[0]] <= losses[start[1]] else (start[1], 1)
    while 0 <= place + step < n_rungs:
        losses[place + step] = loss(place + step)
        if losses[place + step] >= losses[place]:
            break
        place += step
    return dict(sorted(losses.items()))


def parabola_minimum(losses: Mapping[int, float], max_shift: float) -> float:
    """Return where the loss is least, in rungs: the bottom of a parabola through the best rung and its neighbours.

    It is at most ``max_shift`` from the best rung, and that rung itself if a neighbour was not tried.
    """
    best = min(losses, key=losses.__getitem__)
    above, below = (losses[rung] - losses[best] if rung in losses else None for rung in (best - 1, best + 1))
    if above is None or below is None or above + below <= 0:
        return float(best)
    shift = 0.5 * (above - below) / (above + below)
    return best + min(max(shift, -max_shift), max_shift)


@dataclass(frozen=True, eq=False)
class Descent:
    """The result of :func:`descend_ladder`: trials, and the losses (H,) of the held-out choices in each."""

    trials: tuple[Trial, ...]
    losses: tuple[Floats, ...]

    @property
    def best(self) -> int:
        """Position of the trial to take: the least loss if it beats the first rung beyond noise, else the first."""
        k = int(np.argmin([trial.held_out_nll for trial in self.trials]))
        return k if self.trials[k].is_better else 0


def descend_ladder(
    ladder: Sequence[float],
    losses: Callable[[float], Floats],
    weights: Floats,
    groups: Ints,
    *,
    patience: int = 2,
    first_is_baseline: bool = False,
) -> Descent:
    """Try the rungs from the first on, and stop ``patience`` rungs after the best.

    Parameters
    ----------
    ladder
        Values to try. The first one is the plain model, which is kept unless another is better beyond noise.
    losses
        Returns the losses (H,) of the held-out choices under a value.
    weights, groups
        (H,) of the held-out choices.
    patience
        Rungs to try after the best one.
    first_is_apart
        Whether the other rungs do not lead away from the first: then they alone decide when to stop.
    """
    trials: list[Trial] = []
    tried: list[Floats] = []
    for value in ladder:
        # 1. Fit every fold with this value and compare it with the plain model, choice by choice.
        tried.append(losses(value))
        nll = float(np.average(tried[-1], weights=weights))
        gain, error = mean_gain(tried[0] - tried[-1], weights, groups)
        trials.append(Trial(value=value, held_out_nll=nll, gain=gain, standard_error=error))
        log.info("penalty %g: held-out NLL %.4f", value, nll)
        # 2. Stop once the loss has risen for a while: further down it rises on.
        walked = [trial.held_out_nll for trial in trials[first_is_baseline:]]
        if walked and len(walked) - 1 - int(np.argmin(walked)) >= patience:
            break
    return Descent(tuple(trials), tuple(tried))


# -- Growing numbers ----------------------------------------------------------------------------------------------


def grow_while_better(
    losses: Callable[[int], Floats], weights: Floats, groups: Ints, *, largest: int, what: str
) -> tuple[Trial, ...]:
    """Try 1, 2, ... until one more does not gain beyond noise over the number before; see :func:`best_number`.

    Losses of one person are summed up before the error is computed: what a person likes is in all of them.

    Parameters
    ----------
    losses
        Returns the losses (H,) of the held-out choices under a number.
    weights, groups
        (H,) of the held-out choices.
    largest
        Largest number to try.
    what
        What is counted, for the log.
    """
    best = losses(1)
    trials = [Trial(value=1, held_out_nll=float(np.average(best, weights=weights)))]
    for number in range(2, largest + 1):
        tried = losses(number)
        nll, (gain, error) = float(np.average(tried, weights=weights)), mean_gain(best - tried, weights, groups)
        trials.append(Trial(value=number, held_out_nll=nll, gain=gain, standard_error=error))
        log.info("%d %s: held-out NLL %.4f, gain %.4f ± %.4f", number, what, nll, gain, error)
        if not trials[-1].is_better:
            break
        best = tried
    return tuple(trials)


def best_number(trials: Sequence[Trial]) -> int:
    """Return the last number that was better than the one before, or 1."""
    return max((int(trial.value) for trial in trials if trial.is_better), default=1)


def best_number_of_steps(losses: Iterable[float], *, largest: int, patience: int) -> tuple[int, float]:
    """Return the number of steps with the least held-out loss, and that loss.

    ``losses`` yields the loss after each step; it is read until ``patience`` steps have not been better.
    """
    read: list[float] = []
    for loss in islice(losses, largest):
        read.append(loss)
        if len(read) - int(np.argmin(read)) > patience:
            break
    best = int(np.argmin(read))
    return best + 1, read[best]


# -- Out-of-fold predictions --------------------------------------------------------------------------------------


def out_of_fold(
    data: ChoiceData, fit: Callable[[ChoiceData], Callable[[ChoiceData], Floats]], *, n_folds: int = 5, seed: int = 0
) -> Floats:
    """Return log-probabilities (N,) of all alternatives, each choice set predicted by a fit that did not see it.

    Parameters
    ----------
    data
        Choice sets; whole persons are held out together.
    fit
        Fits choice sets and returns a function from choice sets to their log-probabilities.
    n_folds, seed
        Number of folds, and what decides on them.

    Raises
    ------
    InputError
        If there are too few choice sets, or persons, for the folds.
    """
    parts, everything = fold_parts(data.groups(), n_folds, generator(seed)), np.arange(len(data))
    log_p = np.full(len(data.rows), np.nan)
    for part in parts:
        predict = fit(data.subset(np.setdiff1d(everything, part)))
        log_p[consecutive_indices(data.offsets[part], data.sizes[part])] = predict(data.subset(part))
    if np.isnan(log_p).any():
        raise InputError("some choice sets were predicted by no fold, or got no probability.")
    return log_p


# -- Trial log ----------------------------------------------------------------------------------------------------


@dataclass
class TrialLog:
    """Losses of trials by name, kept in the folder of an unfinished run so that a resumed one does not repeat them."""

    path: Path | None
    identity: Mapping[str, Any]
    losses: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path | None, identity: Mapping[str, Any], *, resume: bool) -> TrialLog:
        """Return a log with the trials that a run with the same identity has left, if ``resume``; else an empty one.

        Raises
        ------
        ArtifactError
            If the file is damaged, or belongs to another run.
        """
        trials = cls(path, json.loads(json.dumps(identity)))
        if path is None or not resume or not path.exists():
            return trials
        try:
            entries = parse_json(path.read_bytes())
            identity_of_file = entries["identity"]
            trials.losses = {name: [float(x) for x in values] for name, values in entries["losses"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArtifactError(f"{path} is damaged ({error!r}): delete it, and the trials are made again.") from error
        require_same_run(path, identity_of_file, trials.identity)
        return trials

    def run_once(self, name: str, trial: Callable[[], Iterable[float]], if_diverged: int = 1) -> list[float]:
        """Return the losses of a trial, made now unless the log has them.

        A trial whose training diverges has ``if_diverged`` losses that are worse than any other.
        """
        if name not in self.losses:
            try:
                self.losses[name] = [float(x) for x in trial()]
            except TrainingError as error:
                log.info("trial %s: %s", name, error)
                self.losses[name] = [DIVERGED_LOSS] * if_diverged
            if self.path is not None and current_group().is_first:
                write_bytes(self.path, json_bytes({"identity": self.identity, "losses": self.losses}))
                current_group().on_checkpoint()
        return self.losses[name]
