"""The trials of a search on disk: one SQLite file, in which every trial that ended stays.

    study.db    Optuna's study: trials with their draws, losses by epoch and states; what the search depends on

A trial is kept in one transaction when it ends, with a hash of what came of it: SQLite notices a page that is damaged,
not a number. One that was under way when the process died is marked as interrupted and takes no further part: the
search draws the same configuration again, since what is drawn depends on the trials that ended alone. The first trial
is that of the defaults: it draws nothing and is never pruned. A file that belongs to another search is refused, with
what differs.
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
from pcmcnet.evaluation.compare import Failure
from pcmcnet.progress import EpochCallback
from pcmcnet.storage import differences, explain_write_errors
from pcmcnet.tuning.result import FIRST_FOLD_STEP, Measurement, State, TrialRecord
from pcmcnet.tuning.space import Dimension, Range, Space

log = logging.getLogger("pcmcnet")

# -- Proposals ---------------------------------------------------------------------------------------------------------
# Past trials -> the next one to try: a Gaussian process and expected improvement, after a few random draws.
#
# What is proposed depends on the seed, the trials that ended before, those under way beside it and nothing else, so a
# search that was interrupted goes on as if it had not been: what was under way then is proposed first. The process
# learns from every trial: from a pruned one by the least loss that it had reached, but as no better than the median,
# since it was measured on the first fold alone; from a failed one as from the worst. The defaults teach where they have
# a place in the space, with the weight decay that their fits learnt. Values far above the bulk, as of networks that
# diverged, are lowered to a fence, or they would hide all differences that matter. A configuration that was tried
# before is not proposed again while random draws find another.


RANDOM_TRIALS = 5  # random trials before the first model of the objective
MAX_REDRAWS = 1000  # random draws, at most, in place of a configuration that was tried before
INTERRUPTED = "interrupted"  # attribute of trials that never ended
NOTES = "notes"  # attribute with all that we keep of a trial
DEFAULTS, DECAY = "defaults", "decay"  # notes: whether it is that of the defaults, and the weight decay it learnt


class ProposalSampler(optuna.samplers.BaseSampler):
    """Optuna's GP sampler, made afresh for each trial."""

    def __init__(self, space: Space, seed: int) -> None:
        self.space, self.distributions = space, distributions(space)
        self.seed = seed

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All dimensions are drawn together."""
        return dict(self.distributions)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draw a value for every dimension."""
        # 1. What was under way when a process died comes first.
        past, beside = finished_trials(study), self._beside(study, trial)
        places = [self._place(other) for other in past]
        tried = [*places, *(other.params for other in beside)]
        for left in self._left(study):
            if left not in tried:
                return left
        # 2. The process learns from the trials that ended, and supposes that those under way end as it predicts.
        seeds = np.random.SeedSequence([self.seed, len(past) + len(beside)]).generate_state(2)
        model = optuna.samplers.GPSampler(seed=int(seeds[0]), n_startup_trials=RANDOM_TRIALS)
        known = optuna.create_study(sampler=model)  # in memory, and minimising
        for place, value in zip(places, surrogate_losses(past), strict=True):
            if place is not None and np.isfinite(value):
                known.add_trial(create_trial(params=place, distributions=self.distributions, value=float(value)))
        for other in beside:
            if not is_defaults(other):
                place = {"params": other.params, "distributions": self.distributions}
                known.add_trial(create_trial(state=TrialState.RUNNING, **place))
        # 3. Its draw, or a random one in place of what was tried before.
        drawn = known.ask(self.distributions).params
        known.sampler = optuna.samplers.RandomSampler(seed=int(seeds[1]))
        for _ in range(MAX_REDRAWS):
            if drawn not in tried:
                break
            drawn = known.ask(self.distributions).params
        return drawn

    def _beside(self, study: optuna.Study, trial: FrozenTrial) -> list[FrozenTrial]:
        """Return the other trials that are under way."""
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        known = self.distributions.keys()
        return [t for t in running if t.number != trial.number and (t.params.keys() == known or is_defaults(t))]

    def _place(self, trial: FrozenTrial) -> dict[str, Any] | None:
        """Return where in the space a trial was; None for defaults that lie outside."""
        if not is_defaults(trial):
            return dict(trial.params)
        decay = trial.user_attrs[NOTES].get(DECAY)
        return self.space.place({**self.space.defaults, **({} if decay is None else {"weight_decay": decay})})

    def _left(self, study: optuna.Study) -> list[dict[str, Any]]:
        """Return the configurations that were under way when a process died."""
        failed = study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
        lost = [dict(t.params) for t in failed if INTERRUPTED in t.user_attrs]
        return [params for params in lost if params.keys() == self.distributions.keys()]

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw at random what is no dimension of the space; there is no such thing."""
        raise KeyError(param_name)


def finished_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that came to an end of their own, the defaults first and then in their order."""
    found = [t for t in study.get_trials(deepcopy=False) if t.state.is_finished() and INTERRUPTED not in t.user_attrs]
    return sorted(found, key=lambda trial: not is_defaults(trial))


def is_defaults(trial: FrozenTrial) -> bool:
    """Tell the trial of the defaults, which has no draws."""
    return bool(trial.user_attrs.get(NOTES, {}).get(DEFAULTS))


def trial_loss(trial: FrozenTrial) -> float | None:
    """Return the loss of a trial: the final one, or the least before it was pruned; none of one that failed."""
    if trial.state == TrialState.PRUNED:
        return min(trial.intermediate_values.values(), default=None)
    return trial.value if trial.state == TrialState.COMPLETE else None


def surrogate_losses(trials: list[FrozenTrial]) -> NDArray[np.float64]:
    """(trials,) what the process learns from each; nan where nothing is known yet, since all failed."""
    # 1. A pruned trial is no better than the median of the complete ones: it was measured on the first fold alone.
    found = np.array([np.nan if (value := trial_loss(t)) is None else value for t in trials])
    complete = np.array([t.state == TrialState.COMPLETE for t in trials], bool)
    if complete.any():
        found = np.where(complete, found, np.maximum(found, np.median(found[complete])))
    known = found[~np.isnan(found)]
    if not known.size:
        return found
    # 2. A failed trial counts as the worst, and values far above the bulk are lowered to a fence.
    bulk = float(np.quantile(known, 0.75) - known.min())
    fence = known.min() + 2.5 * bulk if bulk > 0 else known.max()
    lowered: NDArray[np.float64] = np.minimum(np.where(np.isnan(found), known.max(), found), fence)
    return lowered


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Say to Optuna what each dimension is."""
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
MIN_EPOCHS_BEFORE_PRUNING = 2  # epochs before a trial may be pruned: the first ones tell little
_NAME, _IDENTITY, _BLOCKS, _DIGEST = "pcmcnet", "identity", "blocks", "sha256"
_TROUBLE = (SQLAlchemyError, optuna.exceptions.StorageInternalError)
_STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"
}  # fmt: skip

Objective = Callable[[dict[str, Any], EpochCallback], Measurement]


@contextmanager
def open_study(folder: Path | None, identity: Mapping[str, Any], space: Space, seed: int) -> Iterator[optuna.Study]:
    """Yield the study of a folder, new or to go on with; without a folder, one in memory.

    Raises
    ------
    ArtifactError
        When the folder holds something else, another search, or a damaged file.
    """
    with _quiet(), _storage(folder) as storage, _trouble(folder):
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
            _go_on(study, identity, folder)
        except (LookupError, TypeError, ValueError, AttributeError) as error:  # of Optuna, at altered entries
            if isinstance(error, ArtifactError):
                raise
            raise _unusable(folder, error) from error
        yield study


def _go_on(study: optuna.Study, identity: Mapping[str, Any], folder: Path | None) -> None:
    """See that a study is the one that is meant, and unaltered; end the trials that died with their process."""
    ours = json.loads(json.dumps(identity))
    theirs = study.user_attrs.get(_IDENTITY)
    if theirs is None:
        study.set_user_attr(_IDENTITY, ours)
    elif theirs != ours:
        what = f"{folder} holds another search; what differs: {', '.join(differences(theirs, ours))}."
        raise ArtifactError(f"{what} Repeat it with the same table and options, or choose another folder.")
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study._storage.set_trial_user_attr(trial._trial_id, INTERRUPTED, True)
        study.tell(trial.number, state=TrialState.FAIL)
    for trial in finished_trials(study):
        _require_unaltered(trial, folder)


class RunningTrial:
    """A trial from the draw of its configuration to what came of it."""

    def __init__(self, study: optuna.Study, space: Space) -> None:
        self.study, self.space = study, space
        trials = study.get_trials(deepcopy=False)
        known = any(is_defaults(t) and INTERRUPTED not in t.user_attrs for t in trials)
        self.defaults = bool(space.defaults) and not known
        self.trial = study.ask({} if self.defaults else distributions(space))
        if self.defaults:
            self.trial.set_user_attr(NOTES, {DEFAULTS: True})
        self.options = dict(space.defaults) if self.defaults else space.options(self.trial.params)
        self.began = time.perf_counter()

    def on_epoch(self, entry: dict[str, Any]) -> None:
        """Take an epoch's entry of the history; raises TrialPruned where the trial is not worth another one."""
        if entry["valid_loss"] is None:
            return
        self.trial.report(entry["valid_loss"], entry["epoch"])
        if not self.defaults and self.trial.should_prune():
            after = "the first fold" if entry["epoch"] == FIRST_FOLD_STEP else f"epoch {entry['epoch']}"
            raise optuna.TrialPruned(f"after {after}: worse than the median of the trials before.")

    def end(self, result: Measurement | Exception) -> TrialRecord:
        """Keep what was measured, or why there is nothing to keep; raises what is no fault of the configuration."""
        loss, found, message, state = None, {}, None, TrialState.FAIL
        if isinstance(result, Measurement):
            loss, state = result.loss, TrialState.COMPLETE
            found = {"epochs": result.epochs, DECAY: result.decay, _BLOCKS: list(result.blocks)}
        elif isinstance(result, optuna.TrialPruned):
            state, message = TrialState.PRUNED, str(result)
        elif isinstance(result, _TROUBLE):
            raise result
        else:  # a configuration's trouble is a failed trial, not the end of the search
            log.debug("trial failed", exc_info=result)
            message = Failure.of(result).message
        seconds = time.perf_counter() - self.began
        notes = {DEFAULTS: self.defaults, **found, "message": message, "seconds": seconds}
        known = self.study._storage.get_trial(self.trial._trial_id)
        digest = _digest(state, loss, known.params, known.intermediate_values, notes)
        self.trial.set_user_attr(NOTES, {**notes, _DIGEST: digest})
        self.study.tell(self.trial, loss, state=state)
        numbers = [trial.number for trial in finished_trials(self.study)]
        return trial_records(self.study, self.space)[numbers.index(self.trial.number)]


def run_trial(study: optuna.Study, space: Space, objective: Objective) -> TrialRecord:
    """Draw a configuration, measure it and keep what came of it."""
    trial = RunningTrial(study, space)
    result: Measurement | Exception
    try:
        result = objective(trial.options, trial.on_epoch)
    except Exception as error:  # noqa: BLE001 - told apart by the trial
        result = error
    return trial.end(result)


def _digest(state: TrialState, loss: float | None, params: Any, values: Any, notes: Mapping[str, Any]) -> str:
    text = json.dumps([state.name, loss, params, values, notes], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _require_unaltered(trial: FrozenTrial, folder: Path | None) -> None:
    """Refuse a trial that is not as it was kept."""
    notes = dict(trial.user_attrs.get(NOTES, {}))
    digest = notes.pop(_DIGEST, None)
    loss = trial.value if trial.state == TrialState.COMPLETE else None
    if digest != _digest(trial.state, loss, trial.params, trial.intermediate_values, notes):
        what = f"{folder}: trial {trial.number + 1} in {STUDY_FILE} is altered since it was kept."
        raise ArtifactError(f"{what} Remove the folder and search again, or restore the file from a copy.")


def trial_records(study: optuna.Study, space: Space) -> list[TrialRecord]:
    """Return the trials that ended, numbered in their order."""
    trials = finished_trials(study)
    return [_record(k + 1, trial, space, _harder(trials)) for k, trial in enumerate(trials)]


def _harder(trials: list[FrozenTrial]) -> float:
    """By how much all folds were harder than the first one, for the first trial that went through them."""
    for trial in trials:
        if trial.state == TrialState.COMPLETE and FIRST_FOLD_STEP in trial.intermediate_values:
            return float(trial.value or 0.0) - trial.intermediate_values[FIRST_FOLD_STEP]
    return 0.0


def block_losses(study: optuna.Study) -> list[Floats]:
    """Return the losses by blocks of the trials that ended; empty where one was not complete."""
    return [np.array(trial.user_attrs[NOTES].get(_BLOCKS, []), np.float64) for trial in finished_trials(study)]


def _record(number: int, trial: FrozenTrial, space: Space, harder: float) -> TrialRecord:
    notes = trial.user_attrs.get(NOTES, {})
    epochs, value = notes.get("epochs"), trial_loss(trial)
    if trial.state == TrialState.PRUNED:
        value = None if value is None else value + harder
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
    """Share of each dimension in the variance of the loss over the complete draws, the largest first.

    By functional analysis of variance over a forest; nothing where fewer than two losses or dimensions differ.
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
        raise ArtifactError(f"{folder} exists and holds no search: choose another folder, or empty it.")
    try:
        with explain_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        # The address escapes what a folder's name may hold.
        storage = optuna.storages.RDBStorage(URL.create("sqlite", database=str(path)).render_as_string())
        _require_whole(storage)
    except (SQLAlchemyError, RuntimeError) as error:  # also what Optuna raises for a file of another version
        raise _unusable(folder, error) from error
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _require_whole(storage: optuna.storages.RDBStorage) -> None:
    """Ask SQLite to look at all pages of its file: a damaged one may come up late, or never."""
    with storage.engine.connect() as connection:
        found = connection.exec_driver_sql("PRAGMA integrity_check").scalar()
    if found != "ok":
        raise RuntimeError(str(found))


@contextmanager
def _trouble(folder: Path | None) -> Iterator[None]:
    """Say in one sentence what is wrong with the file while it is in use."""
    try:
        yield
    except _TROUBLE as error:
        raise _unusable(folder, error) from error


def _unusable(folder: Path | None, error: Exception) -> ArtifactError:
    reason = str(error.__cause__ or error).splitlines()[0].rstrip(".")
    path = "the study" if folder is None else str(folder / STUDY_FILE)
    if any(word in reason for word in ("disk is full", "disk I/O", "readonly", "unable to open")):
        remedy = "The trials that ended are kept: see to space and rights, and give the same command again."
        return ArtifactError(f"{path} cannot be written ({reason}). {remedy}")
    return ArtifactError(f"{path} cannot be used ({reason}): choose another folder, or remove this one.")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna's own messages from people, who get ours, and leave its settings as they were."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
