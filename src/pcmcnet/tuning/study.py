"""Storage of a search: an SQLite file that contains every finished trial.

    study.db    Optuna's study: trials with their draws, losses by epoch and states; inputs of the search

A finished trial is written in one transaction, with a hash of the result, because SQLite detects damaged pages but not
altered numbers. A trial that was running when its process died is marked as interrupted and ignored. The search then
draws the same configuration again, because draws depend only on finished trials. The first trial uses the defaults:
nothing is drawn, and the trial is never pruned. If the file belongs to another search, an error lists the differences.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from pcmcnet.arrays import Floats
from pcmcnet.errors import ArtifactError
from pcmcnet.evaluation.paired_differences import Failure
from pcmcnet.progress import EpochCallback
from pcmcnet.storage import differences, explain_write_errors
from pcmcnet.tuning.result import FIRST_FOLD_STEP, Measurement, State, TrialRecord
from pcmcnet.tuning.space import Dimension, Range, Space

log = logging.getLogger("pcmcnet")

# -- Proposals ---------------------------------------------------------------------------------------------------------
# Finished trials -> next configuration: a Gaussian process and expected improvement, after a few random draws.
#
# A proposal depends only on the seed, the finished trials and the trials that are running, so an interrupted search
# continues as if it had not been interrupted. Configurations that were running then are proposed first.
#
# The process learns from every trial. A pruned trial was measured on the first fold only: its loss is the least it had
# reached, but at least the median. A failed trial counts as the worst. The defaults count if the space contains them,
# with the weight decay that their fits learnt. Losses far above the others, for example of diverged networks, are
# lowered to a limit; otherwise they would hide the differences among good configurations. A configuration is not
# proposed twice unless random draws find no other one.


RANDOM_TRIALS = 5  # before the first Gaussian process
MAX_REDRAWS = 1000  # random draws in place of a configuration that was already tried
INTERRUPTED = "interrupted"  # Optuna attribute of trials that did not finish
NOTES = "notes"  # Optuna attribute with our results of a trial
DEFAULTS, DECAY = (
    "defaults",
    "decay",
)  # notes: whether the trial has the defaults; the weight decay that its fits learnt


class ProposalSampler(optuna.samplers.BaseSampler):
    """Wrapper of Optuna's Gaussian-process sampler that creates a new sampler for each trial."""

    def __init__(self, space: Space, seed: int) -> None:
        self.space, self.distributions = space, distributions(space)
        self.seed = seed

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return all dimensions of the search space, because they are drawn jointly."""
        return dict(self.distributions)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draw a value for every dimension."""
        # 1. Configurations that were running when a process died come first.
        finished, running = finished_trials(study), self._running_trials(study, trial)
        places = [self._place(other) for other in finished]
        earlier = [*places, *(other.params for other in running)]
        for params in self._interrupted_params(study):
            if params not in earlier:
                return params
        # 2. Fit the process to the finished trials; it assumes that running trials will end as it predicts.
        seeds = np.random.SeedSequence([self.seed, len(finished) + len(running)]).generate_state(2)
        model = optuna.samplers.GPSampler(seed=int(seeds[0]), n_startup_trials=RANDOM_TRIALS)
        memory = optuna.create_study(sampler=model)  # in memory; it minimises
        for place, value in zip(places, surrogate_losses(finished), strict=True):
            if place is not None and np.isfinite(value):
                memory.add_trial(create_trial(params=place, distributions=self.distributions, value=float(value)))
        for other in running:
            if not is_defaults(other):
                place = {"params": other.params, "distributions": self.distributions}
                memory.add_trial(create_trial(state=TrialState.RUNNING, **place))
        # 3. Ask it for a configuration; replace one that was already tried by random draws.
        drawn = memory.ask(self.distributions).params
        memory.sampler = optuna.samplers.RandomSampler(seed=int(seeds[1]))
        for _ in range(MAX_REDRAWS):
            if drawn not in earlier:
                break
            drawn = memory.ask(self.distributions).params
        return drawn

    def _running_trials(self, study: optuna.Study, trial: FrozenTrial) -> list[FrozenTrial]:
        """Return all running trials except the given trial."""
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        names = self.distributions.keys()
        return [t for t in running if t.number != trial.number and (t.params.keys() == names or is_defaults(t))]

    def _place(self, trial: FrozenTrial) -> dict[str, Any] | None:
        """Return the draws of a trial, or None for defaults outside the search space."""
        if not is_defaults(trial):
            return dict(trial.params)
        decay = trial.user_attrs[NOTES].get(DECAY)
        return self.space.place({**self.space.defaults, **({} if decay is None else {"weight_decay": decay})})

    def _interrupted_params(self, study: optuna.Study) -> list[dict[str, Any]]:
        """Return the configurations that were running when a process died."""
        failed = study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
        interrupted = [dict(t.params) for t in failed if INTERRUPTED in t.user_attrs]
        return [params for params in interrupted if params.keys() == self.distributions.keys()]

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Raise KeyError, because the search draws only dimensions of the space."""
        raise KeyError(param_name)


def finished_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that finished without interruption: the trial with the defaults, then the others in order."""
    trials = [t for t in study.get_trials(deepcopy=False) if t.state.is_finished() and INTERRUPTED not in t.user_attrs]
    return sorted(trials, key=lambda trial: not is_defaults(trial))


def is_defaults(trial: FrozenTrial) -> bool:
    """Return True if this is the trial with the defaults, for which nothing is drawn."""
    return bool(trial.user_attrs.get(NOTES, {}).get(DEFAULTS))


def trial_loss(trial: FrozenTrial) -> float | None:
    """Return the final loss of a trial, the lowest loss of a pruned trial, or None if the trial failed."""
    if trial.state == TrialState.PRUNED:
        return min(trial.intermediate_values.values(), default=None)
    return trial.value if trial.state == TrialState.COMPLETE else None


def surrogate_losses(trials: list[FrozenTrial]) -> NDArray[np.float64]:
    """Return the losses (trials,) to which the Gaussian process is fitted, all NaN if every trial failed."""
    # 1. A pruned trial is no better than the median of the complete ones: it was measured on the first fold only.
    losses = np.array([np.nan if (value := trial_loss(t)) is None else value for t in trials])
    complete = np.array([t.state == TrialState.COMPLETE for t in trials], bool)
    if complete.any():
        losses = np.where(complete, losses, np.maximum(losses, np.median(losses[complete])))
    finite = losses[~np.isnan(losses)]
    if not finite.size:
        return losses
    # 2. A failed trial counts as the worst; losses far above the others are lowered to a limit.
    spread = float(np.quantile(finite, 0.75) - finite.min())
    limit = finite.min() + 2.5 * spread if spread > 0 else finite.max()
    lowered: NDArray[np.float64] = np.minimum(np.where(np.isnan(losses), finite.max(), losses), limit)
    return lowered


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return the dimensions of a space as Optuna distributions."""
    return {name: _distribution(dimension) for name, dimension in space.dimensions.items()}


def _distribution(dimension: Dimension) -> BaseDistribution:
    if isinstance(dimension, Range):
        if dimension.whole:
            return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
        return FloatDistribution(dimension.low, dimension.high, log=dimension.log)
    if dimension.ordered:
        return IntDistribution(0, len(dimension.values) - 1)
    return CategoricalDistribution(dimension.labels)


# -- Study -------------------------------------------------------------------------------------------------------------


STUDY_FILE = "study.db"
MIN_EPOCHS_BEFORE_PRUNING = 2  # losses of the first epochs say little about the final loss
_NAME, _IDENTITY, _BLOCKS, _DIGEST = "pcmcnet", "identity", "blocks", "sha256"
_STORAGE_ERRORS = (SQLAlchemyError, optuna.exceptions.StorageInternalError)
_STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"
}  # fmt: skip

Measure = Callable[[dict[str, Any], EpochCallback], Measurement]  # options, epoch callback -> held-out loss


@contextmanager
def open_study(folder: Path | None, identity: Mapping[str, Any], space: Space, seed: int) -> Iterator[optuna.Study]:
    """Yield the study stored in a folder, or a new study, which is in memory if there is no folder.

    Raises
    ------
    ArtifactError
        If the folder contains unrelated files, a different search or a damaged file.
    """
    with _without_optuna_messages(), _storage(folder) as storage, _explain_storage_errors(folder):
        study = optuna.create_study(
            storage=storage,
            study_name=_NAME,
            load_if_exists=True,
            sampler=ProposalSampler(space, seed),
            pruner=optuna.pruners.MedianPruner(
                n_startup_trials=RANDOM_TRIALS, n_warmup_steps=MIN_EPOCHS_BEFORE_PRUNING
            ),
        )
        try:
            _continue(study, identity, folder)
        except (LookupError, TypeError, ValueError, AttributeError) as error:  # Optuna raises these for altered entries
            if isinstance(error, ArtifactError):
                raise
            raise _storage_error(folder, error) from error
        yield study


def _continue(study: optuna.Study, identity: Mapping[str, Any], folder: Path | None) -> None:
    """Check that a study belongs to this search and is unaltered, and mark unfinished trials as interrupted."""
    ours = json.loads(json.dumps(identity))
    theirs = study.user_attrs.get(_IDENTITY)
    if theirs is None:
        study.set_user_attr(_IDENTITY, ours)
    elif theirs != ours:
        problem = f"{folder} contains a search with different settings: {', '.join(differences(theirs, ours))}."
        raise ArtifactError(f"{problem} Use the same table and options to continue, or choose another folder.")
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study._storage.set_trial_user_attr(trial._trial_id, INTERRUPTED, True)
        study.tell(trial.number, state=TrialState.FAIL)
    for trial in finished_trials(study):
        _require_unaltered(trial, folder)


class RunningTrial:
    """A running trial, from drawing its configuration to storing its result."""

    def __init__(self, study: optuna.Study, space: Space) -> None:
        self.study, self.space = study, space
        trials = study.get_trials(deepcopy=False)
        has_defaults = any(is_defaults(t) and INTERRUPTED not in t.user_attrs for t in trials)
        self.defaults = bool(space.defaults) and not has_defaults
        self.trial = study.ask({} if self.defaults else distributions(space))
        if self.defaults:
            self.trial.set_user_attr(NOTES, {DEFAULTS: True})
        self.options = dict(space.defaults) if self.defaults else space.options(self.trial.params)
        self.began = time.perf_counter()

    def on_epoch(self, entry: dict[str, Any]) -> None:
        """Report the validation loss of an epoch to Optuna, and raise TrialPruned if the trial should stop."""
        if entry["valid_loss"] is None:
            return
        self.trial.report(entry["valid_loss"], entry["epoch"])
        if not self.defaults and self.trial.should_prune():
            step = "the first fold" if entry["epoch"] == FIRST_FOLD_STEP else f"epoch {entry['epoch']}"
            raise optuna.TrialPruned(f"after {step}: the loss is above the median of the earlier trials.")

    def end(self, result: Measurement | Exception) -> TrialRecord:
        """Store the measurement, or the reason for its absence. Re-raise storage errors."""
        # 1. State and results of the trial. An error in a fit is a failed trial; the search continues.
        loss, results, message, state = None, {}, None, TrialState.FAIL
        if isinstance(result, Measurement):
            loss, state = result.loss, TrialState.COMPLETE
            results = {"epochs": result.epochs, DECAY: result.decay, _BLOCKS: list(result.blocks)}
        elif isinstance(result, optuna.TrialPruned):
            state, message = TrialState.PRUNED, str(result)
        elif isinstance(result, _STORAGE_ERRORS):
            raise result
        else:
            log.debug("trial failed", exc_info=result)
            message = Failure.of(result).message
        # 2. Store them with their hash.
        seconds = time.perf_counter() - self.began
        notes = {DEFAULTS: self.defaults, **results, "message": message, "seconds": seconds}
        stored = self.study._storage.get_trial(self.trial._trial_id)
        digest = _digest(state, loss, stored.params, stored.intermediate_values, notes)
        self.trial.set_user_attr(NOTES, {**notes, _DIGEST: digest})
        self.study.tell(self.trial, loss, state=state)
        numbers = [trial.number for trial in finished_trials(self.study)]
        return trial_records(self.study, self.space)[numbers.index(self.trial.number)]


def run_trial(study: optuna.Study, space: Space, objective: Measure) -> TrialRecord:
    """Draw a configuration, measure its held-out loss and store the result."""
    trial = RunningTrial(study, space)
    result: Measurement | Exception
    try:
        result = objective(trial.options, trial.on_epoch)
    except Exception as error:  # noqa: BLE001 - RunningTrial.end distinguishes the errors
        result = error
    return trial.end(result)


def _digest(state: TrialState, loss: float | None, params: Any, values: Any, notes: Mapping[str, Any]) -> str:
    text = json.dumps([state.name, loss, params, values, notes], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _require_unaltered(trial: FrozenTrial, folder: Path | None) -> None:
    """Raise ArtifactError if a trial does not match its stored hash."""
    notes = dict(trial.user_attrs.get(NOTES, {}))
    digest = notes.pop(_DIGEST, None)
    loss = trial.value if trial.state == TrialState.COMPLETE else None
    if digest != _digest(trial.state, loss, trial.params, trial.intermediate_values, notes):
        problem = f"{folder}: trial {trial.number + 1} in {STUDY_FILE} was altered after it was stored."
        raise ArtifactError(f"{problem} Remove the folder and search again, or restore the file from a backup.")


def trial_records(study: optuna.Study, space: Space) -> list[TrialRecord]:
    """Return the finished trials in order, numbered from 1."""
    trials = finished_trials(study)
    return [_record(k + 1, trial, space, _first_fold_offset(trials)) for k, trial in enumerate(trials)]


def _first_fold_offset(trials: list[FrozenTrial]) -> float:
    """Return the mean loss over all folds minus the loss of the first fold, for the first complete trial."""
    for trial in trials:
        if trial.state == TrialState.COMPLETE and FIRST_FOLD_STEP in trial.intermediate_values:
            return float(trial.value or 0.0) - trial.intermediate_values[FIRST_FOLD_STEP]
    return 0.0


def block_losses(study: optuna.Study) -> list[Floats]:
    """Return the block losses of each finished trial, which are empty if the trial failed or was pruned."""
    return [np.array(trial.user_attrs[NOTES].get(_BLOCKS, []), np.float64) for trial in finished_trials(study)]


def _record(number: int, trial: FrozenTrial, space: Space, first_fold_offset: float) -> TrialRecord:
    notes = trial.user_attrs.get(NOTES, {})
    epochs, value = notes.get("epochs"), trial_loss(trial)
    if trial.state == TrialState.PRUNED:
        value = None if value is None else value + first_fold_offset
        epochs = max((step for step in trial.intermediate_values if step < FIRST_FOLD_STEP), default=None)
    return TrialRecord(
        number=number,
        state=_STATES[trial.state],
        value=value,
        options=dict(space.defaults) if is_defaults(trial) else space.options(trial.params),
        epochs=epochs,
        seconds=notes.get("seconds", 0.0),
        message=notes.get("message"),
        defaults=is_defaults(trial),
    )


def importance(study: optuna.Study, seed: int) -> dict[str, float]:
    """Return each dimension's share of the variance of the loss over the complete trials, largest first.

    The shares are computed by functional analysis of variance (fANOVA) with a random forest. The result is empty if the
    losses or the draws do not vary.
    """
    complete = [t for t in finished_trials(study) if t.state == TrialState.COMPLETE and t.params]
    varied = [name for name in (complete[0].params if complete else {}) if len({t.params[name] for t in complete}) > 1]
    if len({t.value for t in complete}) < 2 or not varied:
        return {}
    if len(varied) == 1:
        return {varied[0]: 1.0}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=seed % 2**32)
    shares = optuna.importance.get_param_importances(study, evaluator=evaluator, params=varied)
    return {name: float(share) for name, share in shares.items()}


@contextmanager
def _storage(folder: Path | None) -> Iterator[optuna.storages.BaseStorage]:
    if folder is None:
        yield optuna.storages.InMemoryStorage()
        return
    path = folder / STUDY_FILE
    if not path.exists() and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArtifactError(f"{folder} exists but contains no search: choose another folder, or empty this one.")
    try:
        with explain_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        # URL.create escapes special characters of the path.
        storage = optuna.storages.RDBStorage(URL.create("sqlite", database=str(path)).render_as_string())
        _require_intact(storage)
    except (SQLAlchemyError, RuntimeError) as error:  # Optuna raises RuntimeError for a file of another version
        raise _storage_error(folder, error) from error
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _require_intact(storage: optuna.storages.RDBStorage) -> None:
    """Raise RuntimeError if SQLite finds a damaged page, because damage might otherwise be found late or never."""
    with storage.engine.connect() as connection:
        status = connection.exec_driver_sql("PRAGMA integrity_check").scalar()
    if status != "ok":
        raise RuntimeError(str(status))


@contextmanager
def _explain_storage_errors(folder: Path | None) -> Iterator[None]:
    """Convert storage errors in the ``with`` block to an ArtifactError that states the remedy."""
    try:
        yield
    except _STORAGE_ERRORS as error:
        raise _storage_error(folder, error) from error


def _storage_error(folder: Path | None, error: Exception) -> ArtifactError:
    reason = str(error.__cause__ or error).splitlines()[0].rstrip(".")
    path = "the study" if folder is None else str(folder / STUDY_FILE)
    if any(word in reason for word in ("disk is full", "disk I/O", "readonly", "unable to open")):
        remedy = "Finished trials are stored: check disk space and permissions, then run the same command again."
        return ArtifactError(f"{path} cannot be written ({reason}). {remedy}")
    return ArtifactError(f"{path} cannot be used ({reason}): choose another folder, or remove this one.")


@contextmanager
def _without_optuna_messages() -> Iterator[None]:
    """Suppress Optuna's messages in the ``with`` block, and restore its verbosity afterwards."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
