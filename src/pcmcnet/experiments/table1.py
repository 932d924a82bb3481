"""Table 1 of the paper: how far each model of experiment 1 stays from the truth.

Models learn from 20,000 choice sets with context effects; what is measured on 10,000 fresh ones is

    E_c [ sum_i P(i) log(P(i) / p(i)) ]        with P the true probabilities and p the model's

The numbers of parameters are the paper's, and it is an error if they are not.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.datasets import mlba
from pcmcnet.errors import TrainingError
from pcmcnet.evaluation import Report, evaluate
from pcmcnet.experiments.context_effects import (
    TEST_SETS,
    TRAIN_SETS,
    Contestant,
    Fresh,
    networks,
    paper_networks,
    simple_models,
    source,
    training_part,
)
from pcmcnet.experiments.report import Result, facts
from pcmcnet.models import ChoiceModel
from pcmcnet.reports.sections import Section, Table, note
from pcmcnet.reports.tables import Cells
from pcmcnet.storage.files import require_folder

log = logging.getLogger("pcmcnet")

TITLE = "Table 1 of the paper beside this run: KL divergence from the true model, on fresh choice sets"


@dataclass(frozen=True)
class Row:
    """What a model did, over its seeds."""

    contestant: Contestant
    models: tuple[ChoiceModel, ...]
    reports: tuple[Report, ...]
    train_nll: tuple[float, ...]  # of the choice sets it learnt from
    seconds: tuple[float, ...]  # to fit

    @property
    def kl(self) -> list[float]:
        """The divergence of each seed's model."""
        return [float(np.nan if report.kl is None else report.kl) for report in self.reports]

    @property
    def best_fit(self) -> int:
        """Which seed's model fits its own training sets best: a choice among starts that no test set takes part in."""
        return int(np.argmin(self.train_nll))

    def mean(self, name: str) -> float:
        """Mean over seeds of a metric."""
        return float(np.mean([report.values[name] for report in self.reports]))


def measure(
    contestants: Sequence[Contestant],
    train: ChoiceData,
    fresh: Fresh,
    *,
    seeds: int = 3,
    seed: int = 0,
    device: str = "auto",
) -> list[Row]:
    """Fit every model from several seeds and ask it about fresh choice sets.

    Parameters
    ----------
    contestants
        Who takes part.
    train, fresh
        What to learn from and what to be tested on.
    seeds, seed
        Number of fits of each network, from seeds ``seed``, ``seed + 1``, ...; models that draw nothing fit once.
    device
        Where networks are trained.

    Raises
    ------
    TrainingError
        When a model has another number of parameters than the paper's.
    """
    return [_measure(who, train, fresh, range(seed, seed + (seeds if who.drawn else 1)), device) for who in contestants]


def _measure(who: Contestant, train: ChoiceData, fresh: Fresh, seeds: range, device: str) -> Row:
    models, reports, losses, seconds = [], [], [], []
    for k, seed in enumerate(seeds):
        began = time.perf_counter()
        model = who.make().fit(train, seed=seed, device=device, progress=False)
        seconds.append(time.perf_counter() - began)
        if model.num_parameters != who.row.parameters:
            raise TrainingError(
                f"{who.label} has {model.num_parameters:,} parameters where the paper has {who.row.parameters:,}: "
                f"expected two numeric features, attr1 and attr2, and the alternatives a, b and c in the table."
            )
        reports.append(evaluate(model, fresh.data, top=[1], truth=fresh.truth, resamples=0))
        losses.append(-model.score(train))
        models.append(model)
        log.info("%s, fit %d of %d: KL %.4f, %.0f s", who.label, k + 1, len(seeds), reports[-1].kl, seconds[-1])
    return Row(who, tuple(models), tuple(reports), tuple(losses), tuple(seconds))


def table(rows: Sequence[Row], floor: tuple[float, float]) -> Cells:
    """Return the paper's table beside what was measured; ``floor`` is NLL and TOP 1 of the true model."""
    head = ["model", "parameters", "KL, paper", "KL, here", "spread", "best fit", "difference", "NLL", "TOP 1", "fit s"]
    cells = [head]
    for row in rows:
        kl, paper = float(np.mean(row.kl)), row.contestant.row
        cells.append(
            [
                row.contestant.label,
                f"{paper.parameters:,}",
                f"{paper.kl:.3f}",
                f"{kl:.4f}",
                f"{min(row.kl):.4f} to {max(row.kl):.4f}" if len(row.kl) > 1 else "-",
                f"{row.kl[row.best_fit]:.4f}" if len(row.kl) > 1 else "-",
                f"{kl - paper.kl:+.4f}",
                f"{row.mean('nll'):.4f}",
                f"{row.mean('top_1'):.4f}",
                f"{np.mean(row.seconds):.1f}",
            ]
        )
    nll, top = floor
    return [*cells, ["true model", "-", "-", f"{0:.4f}", "-", "-", "-", f"{nll:.4f}", f"{top:.4f}", "-"]]


def values(rows: Sequence[Row], floor: tuple[float, float]) -> dict[str, Any]:
    """Return the numbers of the table, and those of every single fit."""
    return {
        "rows": [
            {
                "model": row.contestant.label,
                "parameters": row.contestant.row.parameters,
                "kl_paper": row.contestant.row.kl,
                "kl": float(np.mean(row.kl)),
                "kl_by_seed": row.kl,
                "kl_best_fit": row.kl[row.best_fit],
                "train_nll_by_seed": list(row.train_nll),
                "kl_deviation": float(np.std(row.kl, ddof=1)) if len(row.kl) > 1 else None,
                "nll": row.mean("nll"),
                "top_1": row.mean("top_1"),
                "fit_seconds": list(row.seconds),
            }
            for row in rows
        ],
        "floor": {"nll": floor[0], "top_1": floor[1]},
    }


def section(rows: Sequence[Row], fresh: Fresh) -> Section:
    """Return the table with its notes."""
    floor = fresh.floor()
    seeds = max(len(row.models) for row in rows)
    several = (
        f"Means over {seeds} fits from different seeds; spread: the smallest and the largest; best fit: that of "
        "the seed with the least NLL on its training sets. MNL and PCMC draw nothing at random: they fit once."
    )
    floor_note = "The NLL of the true model is the floor: what no model can expect to beat."
    notes = (several if seeds > 1 else "One fit each.", floor_note)
    return Section(title="Divergence from the true model", blocks=(Table(cells=table(rows, floor)), *map(note, notes)))


def run(
    folder: str | Path,
    *,
    seeds: int = 3,
    seed: int = 0,
    sets: int = TRAIN_SETS,
    fresh: int = TEST_SETS,
    data: str | Path | None = None,
    paper_settings: bool = False,
    epochs: int | None = None,
    device: str = "auto",
    command: str = "",
) -> Result:
    """Reproduce table 1 and write the report.

    Parameters
    ----------
    folder
        Where report.md, report.html and result.json go.
    seeds, seed
        Number of fits of each network, and the first seed.
    sets, fresh
        Choice sets to learn from and to test on; both are simulated.
    data
        A table of choice sets to learn from instead, with the columns choice_set, alternative, attr1, attr2 and
        chosen.
    paper_settings
        Also fit PCMC-Net with the paper's own settings, which takes more than an hour for each fit.
    epochs
        Epochs of the networks, other than their defaults.
    device
        Where networks are trained.
    command
        What the report names as the command that gives it again.
    """
    for name, value in (("seeds", seeds), ("sets", sets), ("fresh", fresh)):
        require_number(name, value, whole=True, low=1)
    began = time.perf_counter()
    place = require_folder(folder)
    train = training_part(data, sets, seed)
    test = Fresh.of(mlba.simulate(fresh, seed=seed + 2))
    contestants = [*simple_models(), *networks(epochs), *(paper_networks(epochs) if paper_settings else [])]
    rows = measure(contestants, train, test, seeds=seeds, seed=seed, device=device)
    result = Result(
        title=TITLE,
        command=command,
        sections=(section(rows, test),),
        values=values(rows, test.floor()),
        facts=facts(
            **{"training sets": source(data, train, seed), "test sets": f"{fresh:,} (simulated, seed {seed + 2})"},
            device=device,
            seed=seed,
            seconds=time.perf_counter() - began,
        ),
    )
    result.write(place)
    return result
