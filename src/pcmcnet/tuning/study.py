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
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from pcmcnet.arrays import Floats
from pcmcnet.errors import ArtifactError
from pcmcnet.evaluation.cross_validation import Failure
from pcmcnet.progress import Report
from pcmcnet.storage.diff import differences
from pcmcnet.storage.files import writing
from pcmcnet.tuning.proposals import (
    DECAY,
    DEFAULTS,
    INTERRUPTED,
    NOTES,
    START,
    Proposals,
    distributions,
    ended,
    is_defaults,
    reached,
)
from pcmcnet.tuning.result import FOLD, Measured, State, TrialRecord
from pcmcnet.tuning.space import Space

log = logging.getLogger("pcmcnet")

FILE = "study.db"
GRACE = 2  # epochs before a trial may be pruned: the first ones tell little
_NAME, _IDENTITY, _BLOCKS, _DIGEST = "pcmcnet", "identity", "blocks", "sha256"
_TROUBLE = (SQLAlchemyError, optuna.exceptions.StorageInternalError)
_STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}


Objective = Callable[[dict[str, Any], Report], Measured]


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
            sampler=Proposals(space, seed),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=START, n_warmup_steps=GRACE),
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
        raise ArtifactError(
            f"{folder} holds another search; what differs: {', '.join(differences(theirs, ours))}. "
            f"Repeat it with the same table and options, or choose another folder."
        )
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study._storage.set_trial_user_attr(trial._trial_id, INTERRUPTED, True)
        study.tell(trial.number, state=TrialState.FAIL)
    for trial in ended(study):
        _require_unaltered(trial, folder)


class UnderWay:
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
            after = "the first fold" if entry["epoch"] == FOLD else f"epoch {entry['epoch']}"
            raise optuna.TrialPruned(f"after {after}: worse than the median of the trials before.")

    def end(self, result: Measured | Exception) -> TrialRecord:
        """Keep what was measured, or why there is nothing to keep; raises what is no fault of the configuration."""
        loss, found, message, state = None, {}, None, TrialState.FAIL
        if isinstance(result, Measured):
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
        numbers = [trial.number for trial in ended(self.study)]
        return records(self.study, self.space)[numbers.index(self.trial.number)]


def run_trial(study: optuna.Study, space: Space, objective: Objective) -> TrialRecord:
    """Draw a configuration, measure it and keep what came of it."""
    trial = UnderWay(study, space)
    result: Measured | Exception
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
        raise ArtifactError(
            f"{folder}: trial {trial.number + 1} in {FILE} is altered since it was kept. "
            f"Remove the folder and search again, or restore the file from a copy."
        )


def records(study: optuna.Study, space: Space) -> list[TrialRecord]:
    """Return the trials that ended, numbered in their order."""
    trials = ended(study)
    return [_record(k + 1, trial, space, _harder(trials)) for k, trial in enumerate(trials)]


def _harder(trials: list[FrozenTrial]) -> float:
    """By how much all folds were harder than the first one, for the first trial that went through them."""
    for trial in trials:
        if trial.state == TrialState.COMPLETE and FOLD in trial.intermediate_values:
            return float(trial.value or 0.0) - trial.intermediate_values[FOLD]
    return 0.0


def block_losses(study: optuna.Study) -> list[Floats]:
    """Return the losses by blocks of the trials that ended; empty where one was not complete."""
    return [np.array(trial.user_attrs[NOTES].get(_BLOCKS, []), np.float64) for trial in ended(study)]


def _record(number: int, trial: FrozenTrial, space: Space, harder: float) -> TrialRecord:
    notes = trial.user_attrs.get(NOTES, {})
    epochs, value = notes.get("epochs"), reached(trial)
    if trial.state == TrialState.PRUNED:
        value = None if value is None else value + harder
        epochs = max((step for step in trial.intermediate_values if step < FOLD), default=None)
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
    complete = [t for t in ended(study) if t.state == TrialState.COMPLETE and t.params]
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
    path = folder / FILE
    if not path.exists() and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArtifactError(f"{folder} exists and holds no search: choose another folder, or empty it.")
    try:
        with writing(folder):
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
    path = "the study" if folder is None else str(folder / FILE)
    if any(word in reason for word in ("disk is full", "disk I/O", "readonly", "unable to open")):
        return ArtifactError(
            f"{path} cannot be written ({reason}). The trials that ended are kept: see to space and rights, and give "
            f"the same command again."
        )
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
