"""Selection of options by the loss on held-out choice sets: weight decay, penalties, numbers of classes and trees.

    folds             training sets and held-out sets; the sets of a person stay together
    ladders           values on a logarithmic grid: weight decay, penalty
    growing numbers   a number that increases while the held-out loss falls by more than noise: classes, trees
    out of fold       predictions for every choice set, from a model that was not fitted to it
    trial log         losses of trials on disk, so that a resumed run does not repeat them

A trial fits a model to the training part of every fold and returns the losses on the held-out part. The functions in
this module decide which trials to run and which value to choose; they do not depend on any model. Losses are negative
log-likelihoods. Shapes: H held-out choices of all folds, in the order of the folds.
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

MIN_GROUPS = 20  # choice sets or persons; with fewer, no set is held out
SMALL_TABLE_SETS = 5_000  # choice sets; below, two quarters are held out in turn, above, one fifth is held out
MAX_SEARCHED_SETS = 12_000  # choice sets that slow trials use
DIVERGED_LOSS = 1e9  # loss of a trial whose training diverged
MIN_GAIN_STANDARD_ERRORS = (
    2.0  # standard errors that a gain must exceed; with 1, CDM gave context to 2 of 24 simulated logits
)


# -- Folds --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Fold:
    """Training sets and held-out sets.

    Parameters
    ----------
    train
        Choice sets to fit.
    held_out
        Choice sets to predict: the sets held out of the table, and the validation part if there is one.
    groups
        (H,) group number of every held-out set. A group is a person or a single set; losses within a group are
        correlated. No group number occurs in two folds.
    """

    train: ChoiceData
    held_out: tuple[ChoiceData, ...]
    groups: Ints

    @property
    def weights(self) -> Floats:
        """(H,) weights of the held-out sets."""
        return np.concatenate([sets.weights for sets in self.held_out])


def held_out_folds(train: Sets, valid: Sets | None, seed: int) -> list[Fold]:
    """Return one or two folds, for slow trials; an empty list if there are too few choice sets.

    Parameters
    ----------
    train
        The training part. A large training part is sampled; see :func:`searched_share`.
    valid
        A validation part, which is added to the held-out sets of every fold. It does not replace them, because it is
        often smaller than the held-out sets, and more held-out sets give a better choice.
    seed
        Seed of the folds.
    """
    sample = sample_sets(train, MAX_SEARCHED_SETS, seed)
    extra = () if valid is None else (sample_sets(valid, MAX_SEARCHED_SETS // 5, seed),)
    if len(sample) < MIN_GROUPS:
        return _with_distinct_groups([(sample, extra)]) if extra else []
    n_folds, n_used = (4, 2) if len(sample) < SMALL_TABLE_SETS else (5, 1)
    parts = sample.folds(n_folds, seed=seed, by=_person_groups(sample))[:n_used]
    return _with_distinct_groups([(part, (held_out, *extra)) for part, held_out in parts])


def cross_folds(sets: ChoiceData, seed: int, n_folds: int = 5, groups: Ints | None = None) -> list[Fold]:
    """Return folds that hold out every choice set once, for quick trials; no folds if there are too few choice sets.

    Sets with the same group number in ``groups`` (S,) stay together. By default the groups are persons, or single
    choice sets if there are too few persons.
    """
    if len(sets) < MIN_GROUPS:
        return []
    if groups is None:
        persons = sets.groups()
        groups = persons if len(np.unique(persons)) >= MIN_GROUPS else np.arange(len(sets))
    return folds_from_parts(sets, fold_parts(groups, n_folds, generator(seed)), groups)


def folds_from_parts(sets: ChoiceData, parts: Iterable[Ints], groups: Ints) -> list[Fold]:
    """Return one fold per part of the choice sets: the part is held out, the rest is the training part."""
    all_sets = np.arange(len(sets))
    return [Fold(sets.subset(np.setdiff1d(all_sets, part)), (sets.subset(part),), groups[part]) for part in parts]


def sample_sets(data: Sets, n_sets: int, seed: int) -> ChoiceData:
    """Draw at most ``n_sets`` choice sets; if there are enough persons, the sets of a person stay together."""
    if isinstance(data, ScannedData):
        return data.sample(n_sets, seed)
    if len(data) <= n_sets:
        return data
    share = n_sets / len(data)
    return data.split((share, 1 - share), seed=seed, by=_person_groups(data))[0]


def searched_share(train: Sets) -> float:
    """Return the share of the training sets that :func:`held_out_folds` uses."""
    return min(MAX_SEARCHED_SETS / len(train), 1.0)


def held_out_weights(folds: Sequence[Fold]) -> Floats:
    """Return the weights (H,) of the held-out choices of all folds."""
    return np.concatenate([fold.weights for fold in folds])


def held_out_groups(folds: Sequence[Fold]) -> Ints:
    """Return the groups (H,) of the held-out choices of all folds."""
    return np.concatenate([fold.groups for fold in folds])


def _person_groups(data: ChoiceData) -> Any:
    """Return None to keep the sets of a person together; if there are too few persons, return the set ids."""
    return None if len(np.unique(data.groups(None))) >= MIN_GROUPS else data.set_ids


def _with_distinct_groups(parts: Sequence[tuple[ChoiceData, tuple[ChoiceData, ...]]]) -> list[Fold]:
    """Return folds from training sets and held-out sets; no group number occurs in two of them."""
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
    """One value of an option and its held-out loss.

    Parameters
    ----------
    value
        The value: a weight decay, a penalty, a number of classes.
    held_out_nll
        Weighted mean loss of the held-out choices.
    gain, standard_error
        Mean gain over the value to which this value is compared, and its standard error; 0 if there is no comparison.
    """

    value: float
    held_out_nll: float
    gain: float = 0.0
    standard_error: float = 0.0

    @property
    def is_better(self) -> bool:
        """Whether the gain exceeds ``MIN_GAIN_STANDARD_ERRORS`` standard errors."""
        return self.gain > MIN_GAIN_STANDARD_ERRORS * self.standard_error


def mean_gain(gains: Floats, weights: Floats, groups: Ints) -> tuple[float, float]:  # (H,), (H,), (H,)
    """Return the weighted mean of gains and its standard error, clustered by group."""
    mean = float(np.average(gains, weights=weights))
    sums = np.bincount(groups, weights=weights * (gains - mean))
    return mean, math.sqrt(float(sums @ sums)) / float(weights.sum())


# -- Ladders ------------------------------------------------------------------------------------------------------


def walk_ladder(loss: Callable[[int], float], start: tuple[int, int], n_rungs: int) -> dict[int, float]:
    """Return the losses of the rungs tried: first the two in ``start``, then further rungs in the better direction.

    The walk ends at the first rung that is no better than the previous one, or at the end of the ladder.
    """
    losses = {rung: loss(rung) for rung in start}
    rung, step = (start[0], -1) if losses[start[0]] <= losses[start[1]] else (start[1], 1)
    while 0 <= rung + step < n_rungs:
        losses[rung + step] = loss(rung + step)
        if losses[rung + step] >= losses[rung]:
            break
        rung += step
    return dict(sorted(losses.items()))


def parabola_minimum(losses: Mapping[int, float], max_shift: float) -> float:
    """Return the position, in rungs, of the minimum of a parabola through the best rung and its neighbours.

    The minimum is at most ``max_shift`` from the best rung. If a neighbour was not tried, return the best rung.
    """
    best = min(losses, key=losses.__getitem__)
    above, below = (losses[rung] - losses[best] if rung in losses else None for rung in (best - 1, best + 1))
    if above is None or below is None or above + below <= 0:
        return float(best)
    shift = 0.5 * (above - below) / (above + below)
    return best + min(max(shift, -max_shift), max_shift)


@dataclass(frozen=True, eq=False)
class Descent:
    """Result of :func:`descend_ladder`: the trials, and the losses (H,) of the held-out choices in each trial."""

    trials: tuple[Trial, ...]
    losses: tuple[Floats, ...]

    @property
    def best(self) -> int:
        """Index of the chosen trial: the best if it beats the first rung by more than noise, otherwise the first."""
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
    """Try the rungs in order, starting with the first, and stop ``patience`` rungs after the best one.

    Parameters
    ----------
    ladder
        Values to try. The first value is the plain model, which is chosen unless another value is better by more than
        noise.
    losses
        Function from a value to the losses (H,) of the held-out choices.
    weights, groups
        Weights and group numbers (H,) of the held-out choices.
    patience
        Number of rungs to try after the best one.
    first_is_baseline
        Whether the first rung is a baseline outside the order of the other rungs. If so, only the other rungs decide
        when to stop.
    """
    trials: list[Trial] = []
    trial_losses: list[Floats] = []
    for value in ladder:
        # 1. Fit every fold with this value and compare it with the plain model, choice by choice.
        trial_losses.append(losses(value))
        nll = float(np.average(trial_losses[-1], weights=weights))
        gain, error = mean_gain(trial_losses[0] - trial_losses[-1], weights, groups)
        trials.append(Trial(value=value, held_out_nll=nll, gain=gain, standard_error=error))
        log.info("penalty %g: held-out NLL %.4f", value, nll)
        # 2. Stop if the last rungs were not better: the loss has passed its minimum.
        nlls = [trial.held_out_nll for trial in trials[first_is_baseline:]]
        if nlls and len(nlls) - 1 - int(np.argmin(nlls)) >= patience:
            break
    return Descent(tuple(trials), tuple(trial_losses))


# -- Growing numbers ----------------------------------------------------------------------------------------------


def grow_while_better(
    losses: Callable[[int], Floats], weights: Floats, groups: Ints, *, largest: int, what: str, patience: int = 1
) -> tuple[Trial, ...]:
    """Try 1, 2, ... until ``patience`` numbers in a row are not better than the best one; see :func:`best_number`.

    Standard errors are clustered by group, since the losses of the same person are correlated.

    Parameters
    ----------
    losses
        Function from a number to the losses (H,) of the held-out choices.
    weights, groups
        Weights and group numbers (H,) of the held-out choices.
    largest
        Largest number to try.
    what
        Name of what is counted, such as classes, for the log.
    patience
        Number of trials in a row that may gain no more than noise.
    """
    best, waited = losses(1), 0
    trials = [Trial(value=1, held_out_nll=float(np.average(best, weights=weights)))]
    for number in range(2, largest + 1):
        current = losses(number)
        nll, (gain, error) = float(np.average(current, weights=weights)), mean_gain(best - current, weights, groups)
        trials.append(Trial(value=number, held_out_nll=nll, gain=gain, standard_error=error))
        log.info("%d %s: held-out NLL %.4f, gain %.4f ± %.4f", number, what, nll, gain, error)
        best, waited = (current, 0) if trials[-1].is_better else (best, waited + 1)
        if waited == patience:
            break
    return tuple(trials)


def best_number(trials: Sequence[Trial]) -> int:
    """Return the last number that was better than all smaller ones, or 1 if there is none."""
    return max((int(trial.value) for trial in trials if trial.is_better), default=1)


def best_number_of_steps(losses: Iterable[float], *, largest: int, patience: int) -> tuple[int, float]:
    """Return the number of steps with the smallest held-out loss, and this loss.

    ``losses`` yields the loss after each step; it is read until ``patience`` steps in a row were not better.
    """
    step_losses: list[float] = []
    for loss in islice(losses, largest):
        step_losses.append(loss)
        if len(step_losses) - int(np.argmin(step_losses)) > patience:
            break
    best = int(np.argmin(step_losses))
    return best + 1, step_losses[best]


# -- Out-of-fold predictions --------------------------------------------------------------------------------------


def out_of_fold(
    data: ChoiceData, fit: Callable[[ChoiceData], Callable[[ChoiceData], Floats]], *, n_folds: int = 5, seed: int = 0
) -> Floats:
    """Return log-probabilities (N,) of all alternatives; each set is predicted by a model that was not fitted to it.

    Parameters
    ----------
    data
        Choice sets; all sets of a person are held out together.
    fit
        Function that fits a model and returns a function from choice sets to log-probabilities.
    n_folds, seed
        Number of folds and their seed.

    Raises
    ------
    InputError
        If there are too few choice sets, or persons, for the folds.
    """
    parts, all_sets = fold_parts(data.groups(), n_folds, generator(seed)), np.arange(len(data))
    log_p = np.full(len(data.rows), np.nan)
    for part in parts:
        predict = fit(data.subset(np.setdiff1d(all_sets, part)))
        log_p[consecutive_indices(data.offsets[part], data.sizes[part])] = predict(data.subset(part))
    if np.isnan(log_p).any():
        raise InputError("some choice sets are in no fold or have no probability.")
    return log_p


# -- Trial log ----------------------------------------------------------------------------------------------------


@dataclass
class TrialLog:
    """Losses of trials by name, stored in the folder of an unfinished run; a resumed run does not repeat them."""

    path: Path | None
    identity: Mapping[str, Any]
    losses: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path | None, identity: Mapping[str, Any], *, resume: bool) -> TrialLog:
        """Return the log of a run; if ``resume`` is True, it has the trials of an earlier run with the same identity.

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
            raise ArtifactError(f"{path} is damaged ({error!r}): delete it to repeat the trials.") from error
        require_same_run(path, identity_of_file, trials.identity)
        return trials

    def run_once(self, name: str, trial: Callable[[], Iterable[float]], if_diverged: int = 1) -> list[float]:
        """Return the losses of a trial; run the trial if its losses are not in the log.

        If training diverges, the trial gets ``if_diverged`` losses, all equal to ``DIVERGED_LOSS``.
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
