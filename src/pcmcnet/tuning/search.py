"""A model and a table -> its best options: Bayesian optimisation of the loss of held-out choice sets.

    data -> a validation part, or folds held out in turn where sets are few
    trial 1:  the model as given, the defaults
    trial:    draw options -> fit on the other sets -> NLL of the held-out ones
    best options, or the defaults where these are as good up to chance -> fit on all data

Whatever is to judge the result must be kept out of ``data``: the search has seen all of it.
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

from pcmcnet.checks import require_number
from pcmcnet.data.choice_data import ChoiceData
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

MODEL_FOLDER = "model"  # the folder of the fitted model within that of the search

StartAnother = Callable[[int], bool]  # whether another trial is to begin, beside so many that are under way
Measure = Callable[[dict[str, Any], EpochCallback], Measurement]  # a configuration, and who is told of its epochs
Runner = Callable[[Any, Space, Any, StartAnother], Iterator[TrialRecord]]  # of a study; yields trials as they end


class SearchSettings(NamedTuple):
    """How far a search is to go, and how."""

    trials: int
    progress: bool
    timeout: float | None
    runner: Runner


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
    """Search for the options with which a model predicts best, and fit it with them.

    The first trial is the model as given. Its options are kept unless the best trial is better by more than chance
    explains.

    Parameters
    ----------
    model
        A model, whose options hold where they are not searched; or a class or the name of one.
    data
        Choice sets with choices, none of which may be used to judge the result.
    space
        "default", "paper" (of the paper's search), "wide", or a mapping from options to ranges (low, high),
        (low, high, "log") or lists of values.
    trials
        Number of configurations to try, the defaults, failed and pruned ones included. A second call with the same
        folder and a larger number goes on.
    valid
        Share of the choice sets that is held out to measure each trial, or a validation part of your own. Of fewer
        than 2,000 sets, every part of about that share is held out in turn, in 2 to 4 folds.
    by
        Name of an individual or kept column, or one value per set: sets with equal values stay in one part.
    seed
        Where the parts, the draws and the fits come from.
    device
        Where networks are trained: "auto", "cpu", "cuda", ...
    folder
        Where to keep the trials (study.db), the result (tuning.json, tuning.md) and the fitted model (model). An
        interrupted search goes on when called again.
    progress
        Show a bar on a terminal, or log a line per trial elsewhere.
    timeout
        Seconds after which no further trial begins, once one is complete.
    runner
        How trials are run, one after another by default; :func:`pcmcnet.cluster.tune` runs several at once.

    Raises
    ------
    ConfigError
        When an option, the space or a number cannot be.
    InputError
        When the data cannot be used, or Optuna is not installed.
    ArtifactError
        When the folder holds something else, or another search.
    TrainingError
        When every trial failed.

    Examples
    --------
    >>> cost = [1.0, 2.0] * 40
    >>> table = {"trip": [k // 2 for k in range(80)], "took": [1, 0] * 40, "mode": ["bus", "car"] * 40, "cost": cost}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode", features=["cost"])
    >>> found = tune("pcmc-linear", data, space={"l2": [0.01, 100.0]}, trials=3, progress=False)
    >>> found.best, found.kept, len(found.trials)
    ({'l2': 0.01}, {'l2': 0.01}, 3)
    """
    # 1. A model, a space and settings that can be.
    if find_spec("optuna") is None:
        raise InputError("the search needs Optuna, which is not installed: pip install 'pcmcnet[tune]'.")
    base = _require_model(model)
    space = Space.of(type(base), space)
    if not space.dimensions:
        raise ConfigError("space: nothing is left to search, since every option in it is fixed.")
    space = space.with_defaults(asdict(base.config))
    trials = _require_settings(trials, seed, device, timeout, space)
    # 2. What trials are fitted to and measured on.
    held_out = HeldOut.cut(data, valid, by, int(seed))
    identity = {**_identity(base, space, data, valid, by, int(seed)), "folds": held_out.n_folds}
    home = None if folder is None else as_path(folder)
    objective = Objective(base, held_out, int(seed), device)
    run = SearchSettings(trials, progress, timeout, runner or run_sequentially)
    with nullcontext() if home is None else sole_writer(home):
        # 3. Search, fit what is kept and write both down.
        found, shares, verdict = _search(objective, space, identity, home, run)
        best = best_complete_trial(found)
        fitted = objective.refit(found[verdict.kept - 1], None if home is None else home / MODEL_FOLDER)
        tuning = Tuning(fitted, best.options, float(best.value or 0.0), found, shares, identity, verdict)
        if home is not None:
            write_bytes(home / "tuning.json", json_bytes(tuning.to_dict()))
            write_bytes(home / "tuning.md", f"# Search\n\n{tuning.to_markdown()}\n".encode())
        return tuning


def _search(
    objective: Objective, space: Space, identity: Mapping[str, Any], folder: Path | None, run: SearchSettings
) -> tuple[list[TrialRecord], dict[str, float], Verdict]:
    """Try configurations until there are enough; also how much each dimension mattered, and which trial is kept."""
    from pcmcnet.tuning.study import block_losses, importance, open_study, trial_records

    began = time.monotonic()
    with (
        open_study(folder, identity, space, objective.seed) as study,
        show_steps(run.trials, show=run.progress) as report,
    ):
        found = trial_records(study, space)
        for trial in found:
            report.end(f"trial {trial.number}/{run.trials}", "already tried")

        def more(under_way: int) -> bool:
            enough = len(found) + under_way >= run.trials
            late = run.timeout is not None and time.monotonic() - began >= run.timeout
            if late and not enough and any(trial.state == "complete" for trial in found):
                log.info("the time is up after %d of %d trials", len(found), run.trials)
                return False
            if not enough:
                report.begin(f"trial {len(found) + under_way + 1}/{run.trials}")
            return not enough

        watched = _watched(objective, report, found) if run.runner is run_sequentially else objective
        for trial in run.runner(study, space, watched, more):
            found.append(trial)
            report.end(f"trial {len(found)}/{run.trials}", _in_words(found))
        found = trial_records(study, space)
        if not any(trial.state == "complete" for trial in found):
            raise TrainingError(f"all {len(found)} trials failed. The first: {found[0].message}")
        verdict = decide(found, block_losses(study), objective.data.weights)
        return found, importance(study, objective.seed), verdict


def _watched(objective: Objective, report: StepReporter, found: list[TrialRecord]) -> Measure:
    """Let a person see the options of the trial under way, its epochs, and the best NLL so far."""

    def measure(options: dict[str, Any], on_epoch: EpochCallback) -> Measurement:
        what = " ".join(f"{name}={in_words(value)}" for name, value in options.items())
        values = [trial.value for trial in found if trial.state == "complete" and trial.value is not None]
        best = f"best so far {min(values):.4f}; " if values else ""
        report.note(f"{best}{what}")

        def tell(entry: dict[str, Any]) -> None:
            if entry["epoch"] < FIRST_FOLD_STEP:
                report.note(f"epoch {entry['epoch']}; {best}{what}")
            on_epoch(entry)

        return objective(options, tell)

    return measure


def run_sequentially(study: Any, space: Space, objective: Measure, more: StartAnother) -> Iterator[TrialRecord]:
    """Run one trial after another, in this process."""
    from pcmcnet.tuning.study import run_trial

    while more(0):
        yield run_trial(study, space, objective)


def _in_words(trials: list[TrialRecord]) -> str:
    last = trials[-1]
    if last.state == "failed":
        return f"failed: {last.message}"
    complete = [trial for trial in trials if trial.state == "complete"]
    best = f", best {best_complete_trial(trials).value:.4f}" if complete else ""
    what = "pruned at " if last.state == "pruned" else "the defaults, " if last.defaults else ""
    return f"{what}NLL {last.value:.4f}{best}, {last.seconds:.1f} s"


def _require_model(model: Any) -> ChoiceModel:
    if isinstance(model, str):
        model = model_class(model)
    if isinstance(model, type) and issubclass(model, ChoiceModel):
        model = model()
    if not isinstance(model, ChoiceModel):
        raise InputError(f"model: expected a model such as PCMCNet(), or its name, got {model!r}.")
    if model.gives == "ranking":
        raise ConfigError(f"{model.name} gives a ranking alone, without a likelihood that a search could raise.")
    return unfitted_copy(model)


def _require_settings(trials: Any, seed: Any, device: str, timeout: Any, space: Space) -> int:
    """Check what is left; returns the number of trials, of which a small space has no use for many."""
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
    """What every trial depends on."""
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
