"""Hyperparameter search by Bayesian optimisation of the loss on held-out choice sets.

    data          -> one validation part, or folds held out in turn for small tables
    trial 1       the given model, with unchanged options (the defaults)
    other trials  draw options -> fit the training sets -> NLL of the held-out sets
    final fit     the best options, or the defaults if no trial is significantly better -> fit all data

Evaluate the tuned model on other data, because the search uses all of ``data``.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pcmcnet.checks import require_number, suggests_arguments
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.chunked_data import read_chunked
from pcmcnet.errors import ConfigError, InputError, TrainingError
from pcmcnet.evaluation.compare import model_identity, unfitted_copy
from pcmcnet.models import model_class
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.progress import EpochCallback, StepReporter, log, show_steps
from pcmcnet.storage import as_path, json_bytes, package_version, sole_writer, write_bytes
from pcmcnet.training.device import resolve_device
from pcmcnet.tuning.objective import HeldOut, Objective
from pcmcnet.tuning.result import (
    FIRST_FOLD_STEP,
    Measurement,
    TrialRecord,
    Tuning,
    Verdict,
    best_complete_trial,
    decide,
)
from pcmcnet.tuning.space import Space, in_words

MODEL_FOLDER = "model"  # folder of the fitted model within the folder of the search

StartAnother = Callable[[int], bool]  # number of running trials -> whether to start another one
Measure = Callable[[dict[str, Any], EpochCallback], Measurement]  # options, epoch callback -> held-out loss
Runner = Callable[[Any, Space, Any, StartAnother], Iterator[TrialRecord]]  # runs a study; yields trials as they end


class SearchSettings(NamedTuple):
    """Settings of a search: number of trials, progress, timeout and runner."""

    trials: int
    progress: bool
    timeout: float | None
    runner: Runner


@suggests_arguments()
def tune(
    model: ChoiceModel | type[ChoiceModel] | str,
    data: ChoiceData,
    *,
    space: str | Mapping[str, Any] | Space = "default",
    trials: int = 25,
    valid: float | ChoiceData = 0.2,
    by: str | ArrayLike | None = None,
    seed: int = 0,
    device: str = "auto",
    folder: str | Path | None = None,
    progress: bool = True,
    timeout: float | None = None,
    runner: Runner | None = None,
) -> Tuning:
    """Search for the options with which a model predicts best, and fit the model with these options.

    The first trial uses the options of the given model (the defaults). These options are kept unless the best trial is
    significantly better on held-out choice sets.

    Parameters
    ----------
    model
        A model, a model class, or the name of a model. Options that are not searched keep the model's values.
    data
        Choice sets with observed choices. The search uses all of these sets, so evaluate the result on other data.
    space
        Search space: "default" (the options that matter most), "paper" (the options searched in the paper), "wide"
        (more options than the other two spaces), or a mapping from options to ranges (low, high), ranges on a
        logarithmic scale (low, high, "log") or lists of values. Default "default".
    trials
        Number of trials, including the defaults and any failed or pruned trials. A second call with the same folder and
        a larger number continues the search. Default 25.
    valid
        Share of the choice sets to hold out for measuring each trial, or a validation part as ChoiceData. A table of
        fewer than 2,000 sets is split into 2 to 4 folds of about this share, and each fold is held out in turn. Default
        0.2.
    by
        Name of an individual-level or kept column, or one value per choice set. Sets with equal values are held out
        together. By default, the sets of a person stay together if persons are declared.
    seed
        Seed for the folds, the proposed options and the fits. Default 0.
    device
        Device on which networks are trained: "auto" (default), "cpu", "cuda", ...
    folder
        Folder for the trials (study.db), the result (tuning.json, tuning.md) and the fitted model (model). A second
        call with the same arguments continues an interrupted search. By default, nothing is written.
    progress
        Whether to report progress: a progress bar on a terminal, otherwise one log line per trial. Default True.
    timeout
        Time limit in seconds. After the time limit, no new trial starts if at least one trial is complete. If None
        (default), there is no limit.
    runner
        Function that runs the trials. By default, the trials run one after another in this process;
        :func:`pcmcnet.cluster.tune` runs several trials in parallel.

    Returns
    -------
    A :class:`Tuning` with the fitted model, the best options and all trials.

    Raises
    ------
    ConfigError
        If an option, the space or a number is not valid.
    InputError
        If the data cannot be used, or Optuna is not installed.
    ArtifactError
        If the folder contains unrelated files or a different search.
    TrainingError
        If every trial failed.

    Examples
    --------
    >>> cost = [1.0, 2.0] * 40
    >>> table = {"trip": [k // 2 for k in range(80)], "took": [1, 0] * 40, "mode": ["bus", "car"] * 40, "cost": cost}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode", features=["cost"])
    >>> tuning = tune("pcmc-linear", data, space={"l2": [0.01, 100.0]}, trials=3, progress=False)
    >>> tuning.best, tuning.kept_options, len(tuning.trials)
    ({'l2': 0.01}, {'l2': 0.01}, 3)
    """
    # 1. Check the model, the space and the settings.
    if find_spec("optuna") is None:
        raise InputError("tune needs Optuna, which is not installed: pip install 'pcmcnet[tune]'.")
    base = _require_model(model)
    space = Space.of(type(base), space)
    if not space.dimensions:
        raise ConfigError("space: expected at least one option to search, but all options have fixed values.")
    space = space.with_defaults(asdict(base.config))
    trials = _require_settings(trials, seed, device, timeout, space)
    # 2. Cut the data into training sets and held-out sets.
    data, valid = read_chunked(data), read_chunked(valid)
    held_out = HeldOut.cut(data, valid, by, int(seed))
    identity = {**_identity(base, space, data, valid, by, int(seed)), "folds": held_out.n_folds}
    home = None if folder is None else as_path(folder)
    objective = Objective(base, held_out, int(seed), device)
    run = SearchSettings(trials, progress, timeout, runner or run_sequentially)
    with nullcontext() if home is None else sole_writer(home):
        # 3. Run the trials, fit the chosen options to all data, and write the result.
        records, shares, verdict = _search(objective, space, identity, home, run)
        best = best_complete_trial(records)
        fitted = objective.refit(records[verdict.kept - 1], None if home is None else home / MODEL_FOLDER)
        tuning = Tuning(fitted, best.options, float(best.value or 0.0), records, shares, identity, verdict)
        if home is not None:
            write_bytes(home / "tuning.json", json_bytes(tuning.to_dict()))
            write_bytes(home / "tuning.md", f"# Search\n\n{tuning.to_markdown()}\n".encode())
        return tuning


def _search(
    objective: Objective, space: Space, identity: Mapping[str, Any], folder: Path | None, run: SearchSettings
) -> tuple[list[TrialRecord], dict[str, float], Verdict]:
    """Run the search, and return the trials, the importance of each dimension and the decision."""
    from pcmcnet.tuning.study import block_losses, importance, open_study, trial_records

    began = time.monotonic()
    with (
        open_study(folder, identity, space, objective.seed) as study,
        show_steps(run.trials, show=run.progress) as report,
    ):
        done = trial_records(study, space)
        for trial in done:
            report.end(f"trial {trial.number}/{run.trials}", "from an earlier run")

        def start_another(n_running: int) -> bool:
            is_last = len(done) + n_running >= run.trials
            is_late = run.timeout is not None and time.monotonic() - began >= run.timeout
            if is_late and not is_last and any(trial.state == "complete" for trial in done):
                log.info("timeout after %d of %d trials", len(done), run.trials)
                return False
            if not is_last:
                report.begin(f"trial {len(done) + n_running + 1}/{run.trials}")
            return not is_last

        # Trials in this process show their epochs; other runners report finished trials only.
        measure = _with_progress(objective, report, done) if run.runner is run_sequentially else objective
        for trial in run.runner(study, space, measure, start_another):
            done.append(trial)
            report.end(f"trial {len(done)}/{run.trials}", _summary_of_last(done))
        done = trial_records(study, space)
        if not any(trial.state == "complete" for trial in done):
            raise TrainingError(f"all {len(done)} trials failed. Error of the first trial: {done[0].message}")
        verdict = decide(done, block_losses(study), objective.data.weights)
        return done, importance(study, objective.seed), verdict


def _with_progress(objective: Objective, report: StepReporter, done: list[TrialRecord]) -> Measure:
    """Return an objective that also reports the options and epoch of the running trial, and the best NLL so far."""

    def measure(options: dict[str, Any], on_epoch: EpochCallback) -> Measurement:
        trial_options = " ".join(f"{name}={in_words(value)}" for name, value in options.items())
        values = [trial.value for trial in done if trial.state == "complete" and trial.value is not None]
        best = f"best so far {min(values):.4f}; " if values else ""
        report.note(f"{best}{trial_options}")

        def report_epoch(entry: dict[str, Any]) -> None:
            if entry["epoch"] < FIRST_FOLD_STEP:
                report.note(f"epoch {entry['epoch']}; {best}{trial_options}")
            on_epoch(entry)

        return objective(options, report_epoch)

    return measure


def run_sequentially(
    study: Any, space: Space, objective: Measure, start_another: StartAnother
) -> Iterator[TrialRecord]:
    """Run one trial after another in this process."""
    from pcmcnet.tuning.study import run_trial

    while start_another(0):
        yield run_trial(study, space, objective)


def _summary_of_last(trials: list[TrialRecord]) -> str:
    last = trials[-1]
    if last.state == "failed":
        return f"failed: {last.message}"
    complete = [trial for trial in trials if trial.state == "complete"]
    best = f", best {best_complete_trial(trials).value:.4f}" if complete else ""
    kind = "pruned at " if last.state == "pruned" else "the defaults, " if last.defaults else ""
    return f"{kind}NLL {last.value:.4f}{best}, {last.seconds:.1f} s"


def _require_model(model: Any) -> ChoiceModel:
    if isinstance(model, str):
        model = model_class(model)
    if isinstance(model, type) and issubclass(model, ChoiceModel):
        model = model()
    if not isinstance(model, ChoiceModel):
        raise InputError(f"model: expected a model such as PCMCNet(), or the name of a model, got {model!r}.")
    if model.gives == "ranking":
        raise ConfigError(f"{model.name} is not supported by tune: it returns rankings, not probabilities.")
    return unfitted_copy(model)


def _require_settings(trials: Any, seed: Any, device: str, timeout: Any, space: Space) -> int:
    """Check the settings, and return the number of trials, limited to the number of configurations in the space."""
    require_number("trials", trials, whole=True, low=1)
    require_number("seed", int(seed) if isinstance(seed, np.integer) else seed, whole=True, low=0, high=2**63 - 1)
    if timeout is not None:
        require_number("timeout", timeout, low=0)
    resolve_device(device)
    if space.size is not None and space.size < trials:
        log.info("the space has %d configurations: each is tried once", space.size)
        return space.size
    return int(trials)


def _identity(base: ChoiceModel, space: Space, data: ChoiceData, valid: Any, by: Any, seed: int) -> dict[str, Any]:
    """Return the inputs of the search on which every trial depends."""
    return {
        **model_identity(base),
        "space": space.to_dict(),
        "table": data.fingerprint(),
        "valid": valid.fingerprint() if isinstance(valid, ChoiceData) else float(valid),
        "by": by if isinstance(by, str) or by is None else "given values",
        "groups": None if by is None else hashlib.sha256(data.groups(by).tobytes()).hexdigest(),
        "seed": seed,
        "version": package_version("pcmcnet"),
    }
