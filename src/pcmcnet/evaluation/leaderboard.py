"""Tables x models -> a leaderboard: every model with its defaults on many tables, by one protocol.

    table -> at most so many choice sets -> identical folds, by person where known -> compare -> ranks over tables

Nothing is tuned. Each table is a comparison of its own (``compare.py``) with its cells in a folder of its own, so that
a second call goes on with what is missing, and a model or a table that is added is all that is measured.
"""

from __future__ import annotations

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
# A fit that takes too long ends with an error, so that one slow model does not hold up the others.
#
# The system's alarm clock interrupts the fit between two steps of Python. It rings in the main thread alone: elsewhere,
# and on systems without one, there is no limit.


class TooSlowError(PcmcNetError):
    """A fit took longer than it may."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``TooSlowError`` in the block once so many seconds have passed."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: Any) -> None:
        raise TooSlowError(f"not fitted within {seconds:g} s: allow more seconds, or fewer choice sets.")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def with_time_limit(model: ChoiceModel, seconds: float) -> ChoiceModel:
    """Return an unfitted model with the same class name, options and identity whose fits are limited in time."""
    kind = type(model)

    def fit(self: Any, *args: Any, **options: Any) -> Any:
        with time_limit(seconds):
            return kind.fit(self, *args, **options)

    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "fit": fit}
    timed: type[ChoiceModel] = type(kind.__name__, (kind,), names)
    return timed(**asdict(model.config), **model.extras)


# -- Leaderboard -------------------------------------------------------------------------------------------------------

SECONDS_PER_FIT = 600.0  # for one fit: several times what the slowest takes on a table of SETS choice sets


def leaderboard(
    tables: Sequence[str] | Mapping[str, ChoiceData] | None = None,
    models: Sequence[str] | Mapping[str, Contestant] | None = None,
    folds: int = 5,
    seed: int = 0,
    *,
    use: Use | None = None,
    sets: int = MAX_SETS,
    seconds: float = SECONDS_PER_FIT,
    resamples: int = 1000,
    device: str = "auto",
    folder: str | Path | None = None,
    progress: bool = True,
) -> Leaderboard:
    """Measure models on many tables by one protocol.

    Parameters
    ----------
    tables
        Names of public or simulated tables; or names with choice data; None for all public and simulated ones. One
        whose package is not installed is skipped, and the result says so.
    models
        Names of the registry, "mnl+individual" or "lc-mnl+individual"; or labels with models, or with functions that
        build a model for a table; None for all that need no choice of a user.
    folds, seed
        Of the cross-validation of each table.
    use
        Keep the tables of one use: "development", "judged" or "simulated".
    sets
        Larger tables are cut to about so many choice sets, and to eight times as many alternatives.
    seconds
        What a fit may take; a model that takes longer is reported as too slow.
    resamples
        Resamples for intervals and p-values.
    device
        Where networks are trained: "auto", "cpu", "cuda", ...
    folder
        Where to keep each cell once it is measured, and the result as leaderboard.json, .md and .png. A second call
        with the same options goes on with what is missing; tables and models may be added or removed.
    progress
        Show a bar for each table on a terminal, or log a line per model and fold elsewhere.

    Raises
    ------
    InputError
        When there is no such table or model, or an option has an impossible value (a ``ConfigError``). A model that
        fails on a table is reported there.
    ArtifactError
        When the folder holds something else, or another leaderboard.

    Examples
    --------
    >>> table = {"trip": [k // 2 for k in range(80)], "took": [1, 0, 0, 1] * 20, "cost": [1.0, 2.0, 3.0, 1.0] * 20}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    >>> board = leaderboard({"trips": data}, ["uniform", "bradley-terry"], folds=2, progress=False)
    >>> board["trips"].verdict("uniform"), board["trips"].verdict("bradley-terry")
    ('best', 'missing')
    """
    chosen, contestants = require_tables(tables, use), require_contestants(models)
    require_evaluation_options((1,), resamples, seed)
    require_number("folds", folds, whole=True, low=2)
    require_number("sets", sets, whole=True, low=1)
    require_number("seconds", seconds, low=0, open_low=True)
    how = {"folds": folds, "seed": seed, "resamples": resamples, "device": device, "progress": progress}
    measured, skipped = [], {}
    place = None if folder is None else as_path(folder)
    with nullcontext() if place is None else sole_writer(place):
        for k, table in enumerate(chosen, start=1):
            if progress:
                log.info("table %d of %d: %s", k, len(chosen), table.name)
            found = _measure(table, contestants, place, sets=sets, seconds=seconds, how=how)
            if isinstance(found, str):
                log.warning("%s is skipped: %s", table.name, found)
                skipped[table.name] = found
            else:
                measured.append(found)
        board = Leaderboard(
            models=tuple(contestants),
            tables=tuple(measured),
            skipped=skipped,
            design={"folds": folds, "seed": seed, "sets": sets, "seconds": seconds, "resamples": resamples}
            | {"use": use, "device": device, **describe_environment()},
        )
        if place is not None:
            board.save(place)
    return board


def _measure(
    table: LeaderboardTable,
    contestants: Mapping[str, Contestant],
    place: Path | None,
    *,
    sets: int,
    seconds: float,
    how: Mapping[str, Any],
) -> TableResult | str:
    """Compare the models on one table, or say why that cannot be."""
    try:
        data, whole, floor = table.read(sets)
        models, absent = build_contestants(contestants, data)
        if not models:
            return f"no model takes part. {'; '.join(f'{label}: {why}' for label, why in absent.items())}"
        with log_once():
            comparison: Comparison = compare(
                {label: with_time_limit(model, seconds) for label, model in models.items()},
                data,
                **how,
                by=data.schema.choice_set if table.by_set else None,
                folder=None if place is None else place / "tables" / table.name,
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
