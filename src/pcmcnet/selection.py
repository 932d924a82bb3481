"""Selection of options (weight decay, penalties, numbers of classes and trees) by the loss on held-out choice sets.

    folds             training sets and held-out sets; the sets of a person stay together
    ladders           values on a logarithmic grid: weight decay, penalty
    growing numbers   a number that increases while the held-out loss falls by more than noise: classes, trees
    out of fold       predictions for every choice set, from a model that was not fitted to it
    trial log         losses of trials on disk, so that a resumed run does not repeat them

A trial fits a model to the training part of every fold and returns the losses on the held-out part. The functions in
this module decide which trials to run and which value to choose, and do not depend on any model. Losses are negative
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

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.data import ChoiceData, ScannedData, Sets
from pcmcnet.data.columns.arrays import Numeric, stored_values
from pcmcnet.data.columns.ragged import consecutive_indices
from pcmcnet.data.subsets import fold_parts, generator
from pcmcnet.errors import ArtifactError, InputError, TrainingError
from pcmcnet.storage import json_bytes, parse_json, write_bytes
from pcmcnet.training.data_parallel import current_group
from pcmcnet.training.run_folder import require_same_run

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
    """The training sets and held-out sets of one fold.

    Parameters
    ----------
    train
        Choice sets to fit.
    held_out
        Choice sets to predict: the sets held out of the table, and the validation part if there is one.
    groups
        Group numbers (H,) of the held-out sets. A group is a person or a single set. Losses within a group are
        correlated. No group number occurs in two folds.
    """

    train: ChoiceData
    held_out: tuple[ChoiceData, ...]
    groups: Ints

    @property
    def weights(self) -> Floats:
        """Weights (H,) of the held-out sets."""
        return np.concatenate([sets.weights for sets in self.held_out])


def held_out_folds(
    train: Sets, valid: Sets | None, seed: int, *, max_sets: int | None = None, quarters: int = 2
) -> list[Fold]:
    """Return folds for slow trials, or an empty list if there are too few choice sets.

    A small table is divided into four quarters, and ``quarters`` of them are held out in turn. In a larger table, a
    fifth is held out.

    Parameters
    ----------
    train
        The training part. If the training part is large, only a sample is used (:func:`searched_share`).
    valid
        A validation part, which is added to the held-out sets of every fold. The validation part does not replace the
        held-out sets, because it is often smaller, and more held-out sets give a better choice.
    seed
        Seed of the folds.
    max_sets
        Maximum size of the sample, in choice sets (default 12,000).
    quarters
        Number of folds of a small table, at most 4.
    """
    max_sets = MAX_SEARCHED_SETS if max_sets is None else max_sets
    sample = sample_sets(train, max_sets, seed)
    extra = () if valid is None else (sample_sets(valid, max_sets // 5, seed),)
    if len(sample) < MIN_GROUPS:
        return _with_distinct_groups([(sample, extra)]) if extra else []
    n_folds, n_used = (4, quarters) if len(sample) < SMALL_TABLE_SETS else (5, 1)
    parts = sample.folds(n_folds, seed=seed, by=_person_groups(sample))[:n_used]
    return _with_distinct_groups([(part, (held_out, *extra)) for part, held_out in parts])


def cross_folds(sets: ChoiceData, seed: int, n_folds: int = 5, groups: Ints | None = None) -> list[Fold]:
    """Return folds for quick trials that hold out every choice set once, or no folds if there are too few choice sets.

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
    """Return one fold per part of the choice sets, in which this part is held out and the rest is for training."""
    all_sets = np.arange(len(sets))
    return [Fold(sets.subset(np.setdiff1d(all_sets, part)), (sets.subset(part),), groups[part]) for part in parts]


def without_new_values(fold: Fold) -> Fold:
    """Return the fold without held-out sets that have a label or a missing value which its training part lacks.

    A model of the fold may not be able to predict these sets. Labels are ignored if most held-out sets have new labels:
    then labels are specific to a set, and models that depend on them cannot be fitted anyway.
    """
    several = fold.train.sizes > 1  # models learn nothing from sets of a single alternative
    train = fold.train.subset(several) if several.any() else fold.train
    known = [~_has_new_values(train, sets) for sets in fold.held_out]
    if all(mask.all() for mask in known):
        return fold
    held_out = tuple(sets.subset(mask) for sets, mask in zip(fold.held_out, known, strict=True))
    return Fold(fold.train, held_out, fold.groups[np.concatenate(known)])


def _has_new_values(train: ChoiceData, sets: ChoiceData) -> Bools:  # (S,)
    """Return whether each set has a label, or a missing value in a column, that the training sets do not have."""
    # 1. Missing values of numeric columns that are complete in the training sets.
    is_new = np.zeros(len(sets), bool)
    for columns, train_columns, of_row in (
        (sets.features, train.features, sets.set_of_alternative),
        (sets.individual, train.individual, np.arange(len(sets))),
    ):
        for name, column in columns.items():
            if isinstance(column, Numeric) and not np.isnan(stored_values(train_columns[name])).any():
                is_new[of_row[np.isnan(column.values)]] = True
    # 2. New labels, unless most sets have one.
    if sets.labels is None or train.labels is None:
        return is_new
    has_new_label = np.zeros(len(sets), bool)
    has_new_label[sets.set_of_alternative[~np.isin(sets.labels.codes, train.labels.codes)]] = True
    return is_new | has_new_label if 2 * has_new_label.sum() < len(sets) else is_new


def sample_sets(data: Sets, n_sets: int, seed: int) -> ChoiceData:
    """Draw at most ``n_sets`` choice sets, keeping the sets of a person together if there are enough persons."""
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
    """Return None if the sets of a person should stay together, or the set ids if there are too few persons."""
    return None if len(np.unique(data.groups(None))) >= MIN_GROUPS else data.set_ids


def _with_distinct_groups(parts: Sequence[tuple[ChoiceData, tuple[ChoiceData, ...]]]) -> list[Fold]:
    """Return folds with the given training and held-out sets, such that no group number occurs in two folds."""
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
        The value of the option: a weight decay, a penalty or a number of classes.
    held_out_nll
        Weighted mean loss of the held-out choices.
    gain, standard_error
        Mean gain over the value that this value is compared with, and the standard error of the gain. If there is no
        comparison, gain and standard error are 0.
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
    """Try two adjacent values of a ladder, then further values in the better direction, and return losses by index.

    ``start`` contains the indices of the first two values. The search ends at the first value that is no better than
    the previous one, or at the end of the ladder.
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
    """Return the fractional index of the minimum of a parabola through the best value and its neighbours.

    The result is at most ``max_shift`` from the index of the best value. If a neighbour was not tried, return the index
    of the best value.
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
        """Index of the chosen trial: the best trial if it is significantly better than the first, else the first."""
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
    """Try the values of a ladder in order, and stop ``patience`` values after the best one.

    Parameters
    ----------
    ladder
        Values to try. The first value gives the plain model, and is chosen unless another value is significantly
        better.
    losses
        Function from a value to the losses (H,) of the held-out choices.
    weights, groups
        Weights and group numbers (H,) of the held-out choices.
    patience
        Number of values to try after the best one.
    first_is_baseline
        Whether the first value is a baseline that is not in order with the others. If True, the stopping rule ignores
        the first value.
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
    """Try the numbers 1, 2, ... until ``patience`` numbers in a row are not significantly better than the best one.

    Standard errors are clustered by group, since the losses of the same person are correlated. :func:`best_number`
    returns the number to choose.

    Parameters
    ----------
    losses
        Function from a number to the losses (H,) of the held-out choices.
    weights, groups
        Weights and group numbers (H,) of the held-out choices.
    largest
        Largest number to try.
    what
        Name, in log messages, of what is counted, such as "classes".
    patience
        Number of trials in a row without a gain after which the search ends (default 1).
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
    """Return the largest number that was significantly better than the best smaller number, or 1 if there is none."""
    return max((int(trial.value) for trial in trials if trial.is_better), default=1)


def best_number_of_steps(losses: Iterable[float], *, largest: int, patience: int) -> tuple[int, float]:
    """Return the number of steps with the smallest held-out loss, and the smallest loss.

    ``losses`` yields the loss after each step. Iteration stops after ``patience`` steps in a row without a new minimum.
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
    """Return log-probabilities (N,) of all alternatives, in which each set is predicted by a model not fitted to it.

    Parameters
    ----------
    data
        Choice sets to predict. All sets of a person are held out together.
    fit
        Function that fits a model and returns a function from choice sets to log-probabilities.
    n_folds, seed
        Number of folds, and seed of the folds.

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
        raise InputError(
            "some choice sets have no out-of-fold probability: they are in no fold, or the prediction is NaN."
        )
    return log_p


# -- Trial log ----------------------------------------------------------------------------------------------------


@dataclass
class TrialLog:
    """Losses of trials by name, stored in the folder of an unfinished run, so that a resumed run can reuse them."""

    path: Path | None
    identity: Mapping[str, Any]
    losses: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path | None, identity: Mapping[str, Any], *, resume: bool) -> TrialLog:
        """Return the log of a run, with the trials of an earlier run with the same identity if ``resume`` is True.

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
        """Return the losses of a trial from the log, or run the trial if the log does not contain it.

        If training diverges, the trial gets ``if_diverged`` losses, all equal to ``DIVERGED_LOSS``.
        """
        if name not in self.losses:
            try:
                losses = [float(x) for x in trial()]
            except TrainingError as error:
                log.info("trial %s: %s", name, error)
                losses = [DIVERGED_LOSS] * if_diverged
            self.record(name, losses)
        return self.losses[name]

    def record(self, name: str, losses: list[float]) -> None:
        """Add the losses of a trial to the log, and write the log."""
        self.losses[name] = losses
        if self.path is not None and current_group().is_first:
            write_bytes(self.path, json_bytes({"identity": self.identity, "losses": self.losses}))
            current_group().on_checkpoint()
