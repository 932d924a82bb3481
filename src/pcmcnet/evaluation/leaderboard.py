"""Leaderboard: compare all models, each with its default options, on many tables by the same protocol.

    table -> a sample of its choice sets -> identical folds, by person if known -> compare -> ranks over tables

No option is tuned. The comparison on each table (``compare.py``) has its own folder, so that a second call computes
only the missing results, such as those of a new model or table.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pcmcnet.checks import require_number
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.errors import ArtifactError, InputError, PcmcNetError
from pcmcnet.evaluation.compare import compare, describe_environment
from pcmcnet.evaluation.comparison import Comparison
from pcmcnet.evaluation.leaderboard_entries import (
    MAX_SETS,
    Contestant,
    LeaderboardTable,
    Use,
    build_contestants,
    require_contestants,
    require_tables,
)
from pcmcnet.evaluation.report import require_evaluation_options
from pcmcnet.evaluation.standings import Leaderboard, TableResult
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.progress import log, log_once
from pcmcnet.storage import as_path, sole_writer

# -- Time limit --------------------------------------------------------------------------------------------------------
# A fit that exceeds the time limit raises an error, so that one slow model does not delay the others.
#
# SIGALRM interrupts the fit between two Python bytecodes. Python handles signals in the main thread only, so in other
# threads, and on systems without SIGALRM, there is no limit.


class TooSlowError(PcmcNetError):
    """Error for a fit that exceeded its time limit."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``TooSlowError`` inside the ``with`` block after the given number of seconds."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def on_alarm(*_: Any) -> None:
        raise TooSlowError(f"the fit took longer than {seconds:g} s: increase seconds, or use fewer choice sets.")

    previous = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def with_time_limit(model: ChoiceModel, seconds: float) -> ChoiceModel:
    """Return an unfitted copy of a model, with the same class name and identity, whose fits have a time limit."""
    kind = type(model)

    def fit(self: Any, *args: Any, **options: Any) -> Any:
        with time_limit(seconds):
            return kind.fit(self, *args, **options)

    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "fit": fit}
    timed: type[ChoiceModel] = type(kind.__name__, (kind,), names)
    return timed(**asdict(model.config), **model.extras)


# -- Leaderboard -------------------------------------------------------------------------------------------------------

SECONDS_PER_FIT = 600.0  # several times the slowest fit to a table of MAX_SETS choice sets


def leaderboard(
    tables: Sequence[str] | Mapping[str, ChoiceData] | None = None,
    models: Sequence[str] | Mapping[str, Contestant] | None = None,
    folds: int = 5,
    seed: int = 0,
    *,
    use: Use | None = None,
    lpmc: str | os.PathLike[str] | None = None,
    sets: int = MAX_SETS,
    seconds: float = SECONDS_PER_FIT,
    resamples: int = 1000,
    device: str = "auto",
    folder: str | Path | None = None,
    progress: bool = True,
) -> Leaderboard:
    """Compare models on many tables by cross-validation, and rank them.

    Parameters
    ----------
    tables
        Names of public or simulated tables, or a mapping from names to choice data. Default None: all public and
        simulated tables. A table whose package is not installed is skipped and listed in ``skipped``.
    models
        A list of names (of registered models, "mnl+individual" or "lc-mnl+individual"), or a mapping from labels to
        models or to functions that build a model for a table. Default None: all models whose options all have defaults.
    folds
        Number of cross-validation folds per table, at least 2. Default 5.
    seed
        Seed of the folds, the fits and the resamples. Default 0.
    use
        Restrict the leaderboard to tables with this use: "development", "judged" or "simulated". Default None: all
        tables.
    lpmc
        File of London Passenger Mode Choice, such as "ltds.csv.gz", which is not part of a package. It adds the table
        "lpmc" with its published split: models are fitted to survey years 1 and 2 and tested on year 3. Default None.
    sets
        Approximate maximum number of choice sets per table, except "lpmc". Tables with more choice sets, or with more
        than eight times as many alternatives, are sampled. Default 5,000.
    seconds
        Time limit per fit, in seconds. A model that exceeds the limit is reported as too slow. Default 600.
    resamples
        Number of bootstrap resamples for intervals and p-values. Default 1,000.
    device
        Device on which networks are trained: "auto" (default), "cpu", "cuda", ...
    folder
        Folder for the results of each table, model and fold, and for leaderboard.json, .md and .png. A second call with
        the same options computes only the missing results, so tables and models may be added or removed. Default None:
        nothing is written.
    progress
        Whether to report progress: a progress bar per table on a terminal, otherwise one log line per model and fold.
        Default True.

    Returns
    -------
    Leaderboard
        Mean ranks of the models, and the comparison on each table.

    Raises
    ------
    InputError
        If a table or a model does not exist, or an option is not valid (a ``ConfigError``). A model that fails on a
        table raises no error: the failure is reported in the results for that table.
    ArtifactError
        If the folder contains unrelated files or a different leaderboard.

    Examples
    --------
    >>> table = {"trip": [k // 2 for k in range(80)], "took": [1, 0, 0, 1] * 20, "cost": [1.0, 2.0, 3.0, 1.0] * 20}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    >>> board = leaderboard({"trips": data}, ["uniform", "bradley-terry"], folds=2, progress=False)
    >>> board["trips"].verdict("uniform"), board["trips"].verdict("bradley-terry")
    ('best', 'missing')
    """
    chosen, contestants = require_tables(tables, use, lpmc), require_contestants(models)
    require_evaluation_options((1,), resamples, seed)
    require_number("folds", folds, whole=True, low=2)
    require_number("sets", sets, whole=True, low=1)
    require_number("seconds", seconds, low=0, open_low=True)
    options = {"folds": folds, "seed": seed, "resamples": resamples, "device": device, "progress": progress}
    results, skipped = [], {}
    path = None if folder is None else as_path(folder)
    with nullcontext() if path is None else sole_writer(path):
        for k, table in enumerate(chosen, start=1):
            if progress:
                log.info("table %d of %d: %s", k, len(chosen), table.name)
            result = _compare_on(table, contestants, path, sets=sets, seconds=seconds, options=options)
            if isinstance(result, str):
                log.warning("table %s is skipped: %s", table.name, result)
                skipped[table.name] = result
            else:
                results.append(result)
        board = Leaderboard(
            models=tuple(contestants),
            tables=tuple(results),
            skipped=skipped,
            design={"folds": folds, "seed": seed, "sets": sets, "seconds": seconds, "resamples": resamples}
            | {"use": use, "device": device, **describe_environment()},
        )
        if path is not None:
            board.save(path)
    return board


def _compare_on(
    table: LeaderboardTable,
    contestants: Mapping[str, Contestant],
    folder: Path | None,
    *,
    sets: int,
    seconds: float,
    options: Mapping[str, Any],
) -> TableResult | str:
    """Compare the models on one table. If the table cannot be used, return the reason as text."""
    try:
        data, whole, floor, test = table.read(sets)
        models, absent = build_contestants(contestants, data)
        if not models:
            return f"no model is applicable. {'; '.join(f'{label}: {reason}' for label, reason in absent.items())}"
        with log_once():
            comparison: Comparison = compare(
                {label: with_time_limit(model, seconds) for label, model in models.items()},
                data,
                **({**options, "folds": None} if test is not None else options),
                test=test,
                by=data.schema.choice_set if table.by_set else None,
                folder=None if folder is None else folder / "tables" / table.name,
            )
    except ArtifactError:
        raise
    except InputError as error:
        return str(error)
    return TableResult(
        name=table.name,
        use=table.use,
        comparison=comparison,
        absent=absent,
        whole=whole,
        floor=floor,
        ranked=table.ranked,
    )
