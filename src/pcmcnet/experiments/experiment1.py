"""Experiment 1 of the paper: context effects of the MLBA. Table 1 and figure 2."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.arrays import Categorical, stored_values
from pcmcnet.datasets import mlba
from pcmcnet.errors import SchemaError, TrainingError
from pcmcnet.evaluation import Report, evaluate
from pcmcnet.experiments import report
from pcmcnet.experiments.report import ExperimentResult, facts
from pcmcnet.insight.preference_map import Point
from pcmcnet.models import MNL, PCMC, ChoiceModel, PCMCNet
from pcmcnet.plots import PreferenceMap, draw_preference_maps, preference_error, preference_map
from pcmcnet.plots.context import PAPER_CONTEXTS
from pcmcnet.reports.sections import PictureFile, Section, Table, note
from pcmcnet.reports.tables import Cells
from pcmcnet.storage import require_folder

log = logging.getLogger("pcmcnet")

# -- Context effects ---------------------------------------------------------------------------------------------------
# Experiment 1 of the paper, what table 1 and figure 2 share: choice sets with context effects, and models of them.
#
# Two alternatives a and b are joined by a third, c, uniform on [1, 9]^2; the choice is drawn by the MLBA model, whose
# probabilities are known (`pcmcnet.datasets.mlba`).


ROLES: Mapping[str, Any] = {
    "choice_set": "choice_set",
    "chosen": "chosen",
    "alternative": "alternative",
    "features": ["attr1", "attr2"],
}
TRAIN_SETS, TEST_SETS = report.published_sizes("table1")
AS_PUBLISHED = ", the paper's settings"


@dataclass(frozen=True)
class Contestant:
    """A row of the table to be: how to make its model, and the row of the paper that it stands beside."""

    label: str
    row: report.Divergence
    make: Callable[[], ChoiceModel]
    drawn: bool = True  # whether the seed makes a difference


@dataclass(frozen=True)
class FreshSets:
    """Choice sets to test on, with the probabilities they were drawn from, one per row."""

    data: ChoiceData
    truth: Floats

    @classmethod
    def of(cls, table: pa.Table) -> FreshSets:
        """Read a simulated table."""
        return cls(ChoiceData.from_long(table, **ROLES), table["true_prob"].to_numpy())

    def floor(self) -> tuple[float, float]:
        """NLL and TOP 1 of the true model itself, which no model can expect to beat."""
        best = evaluate(_Truth(self.truth), self.data, top=[1], resamples=0)
        assert best.nll is not None
        return best.nll, best.top[1]


@dataclass(frozen=True)
class _Truth:
    """The known probabilities as a model."""

    p: Floats

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        with np.errstate(divide="ignore"):  # probability 0 is -inf
            log_p: Floats = np.log(self.p)
        return log_p


def simple_models() -> list[Contestant]:
    """Return the logit with two coefficients, and the chain over 8 x 8 bins and the two fixed alternatives."""
    rows = report.published_table1()
    bins = {"attr1": 8, "attr2": 8}
    chain: dict[str, Any] = {"bins": bins, "identified": ("a", "b"), "restarts": 1, "ridge": 0.1, "speeds": 1.0}
    return [  # one start of the chain: others end at the same objective
        Contestant("MNL", rows["MNL"], lambda: MNL(formula="attr1 + attr2 | 0"), drawn=False),
        Contestant("PCMC", rows["PCMC"], lambda: PCMC(**chain), drawn=False),
    ]


def networks(epochs: int | None = None, *, depths: Sequence[int] = (1, 2, 3)) -> list[Contestant]:
    """Return PCMC-Net with this library's training but for learning rate and decay, 16 nodes a layer.

    It has the paper's inputs and weights: features alone, without labels and without a logit inside. One layer of 16
    learns too slowly at the default of 0.005; two and three layers do not mind the higher rate. A few hundred weights
    for 20,000 choice sets need next to no decay, which need not be searched for anew in each of the fits.
    """
    options: dict[str, Any] = {"lr": 0.02, "labels": False, "utility": "none", "weight_decay": 0.01}
    options |= {} if epochs is None else {"epochs": epochs}
    return [_network(depth, lambda hidden: PCMCNet(hidden=hidden, **options), "") for depth in depths]


def paper_networks(epochs: int | None = None) -> list[Contestant]:
    """Return PCMC-Net with the paper's settings: 100 epochs of one choice set per step."""
    options: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    return [_network(depth, lambda hidden: PCMCNet.paper(hidden, **options), AS_PUBLISHED) for depth in (1, 2, 3)]


def _network(depth: int, make: Callable[[tuple[int, ...]], ChoiceModel], suffix: str) -> Contestant:
    name = f"PCMC-Net {depth}x16"
    return Contestant(f"{name}{suffix}", report.published_table1()[name], lambda: make((16,) * depth))


def training_part(data: str | Path | None, sets: int, seed: int) -> ChoiceData:
    """Read the choice sets to learn from, or simulate them."""
    return _named(ChoiceData.from_long(mlba.simulate(sets, seed=seed + 1) if data is None else data, **ROLES))


def _named(data: ChoiceData) -> ChoiceData:
    """Call the alternatives a, b and c, whatever the table calls them: a and b are known by their attributes."""
    assert data.labels is not None
    attributes = np.column_stack([stored_values(data.features[name]) for name in ROLES["features"]])
    names = []
    for k in range(len(data.labels.categories)):
        rows = attributes[data.labels.codes == k]
        names.append(next((name for name, at in (("a", mlba.A), ("b", mlba.B)) if (rows == at).all()), "c"))
    if sorted(names) != ["a", "b", "c"]:
        raise SchemaError(
            f"expected three alternatives, of which one always has the attributes {mlba.A} and another {mlba.B}; found "
            f"{list(data.labels.categories)}. Use a table of the form that `pcmcnet simulate mlba` writes."
        )
    return replace(data, labels=Categorical(data.labels.codes, tuple(names)))


def describe_source(data: str | Path | None, train: ChoiceData, seed: int) -> str:
    """Say where the choice sets to learn from came from."""
    where = f"simulated, seed {seed + 1}" if data is None else f"{Path(data).name}, SHA-256 {train.fingerprint()}"
    return f"{len(train):,} ({where})"


# -- Table1 ------------------------------------------------------------------------------------------------------------
# Table 1 of the paper: how far each model of experiment 1 stays from the truth.
#
# Models learn from 20,000 choice sets with context effects; what is measured on 10,000 fresh ones is
#
#     E_c [ sum_i P(i) log(P(i) / p(i)) ]        with P the true probabilities and p the model's
#
# The numbers of parameters are the paper's, and it is an error if they are not.


TITLE = "Table 1 of the paper beside this run: KL divergence from the true model, on fresh choice sets"


@dataclass(frozen=True)
class Table1Row:
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


def measure_models(
    contestants: Sequence[Contestant],
    train: ChoiceData,
    fresh: FreshSets,
    *,
    seeds: int = 3,
    seed: int = 0,
    device: str = "auto",
) -> list[Table1Row]:
    """Fit every model from ``seeds`` seeds, the first of them ``seed``, and ask it about fresh choice sets.

    Models that draw nothing are fitted once. A model with another number of parameters than the paper's is an error.
    """
    return [_measure(who, train, fresh, range(seed, seed + (seeds if who.drawn else 1)), device) for who in contestants]


def _measure(who: Contestant, train: ChoiceData, fresh: FreshSets, seeds: range, device: str) -> Table1Row:
    """Fit a model from each seed, and measure it on fresh choice sets."""
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
    return Table1Row(who, tuple(models), tuple(reports), tuple(losses), tuple(seconds))


def table(rows: Sequence[Table1Row], floor: tuple[float, float]) -> Cells:
    """Return the paper's table beside what was measured; ``floor`` is NLL and TOP 1 of the true model."""
    head = ["model", "parameters", "KL, paper", "KL, here", "spread", "best fit", "difference", "NLL", "TOP 1", "fit s"]
    cells = [head]
    for row in rows:
        kl, paper = float(np.mean(row.kl)), row.contestant.row
        line = [row.contestant.label, f"{paper.parameters:,}", f"{paper.kl:.3f}", f"{kl:.4f}"]
        spread = [f"{min(row.kl):.4f} to {max(row.kl):.4f}", f"{row.kl[row.best_fit]:.4f}"]
        line += spread if len(row.kl) > 1 else ["-", "-"]
        line += [f"{kl - paper.kl:+.4f}", f"{row.mean('nll'):.4f}", f"{row.mean('top_1'):.4f}"]
        cells.append([*line, f"{np.mean(row.seconds):.1f}"])
    return [*cells, ["true model", "-", "-", f"{0:.4f}", "-", "-", "-", *(f"{value:.4f}" for value in floor), "-"]]


def table1_values(rows: Sequence[Table1Row], floor: tuple[float, float]) -> dict[str, Any]:
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


def table1_section(rows: Sequence[Table1Row], fresh: FreshSets) -> Section:
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


def run_table1(
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
) -> ExperimentResult:
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
    test = FreshSets.of(mlba.simulate(fresh, seed=seed + 2))
    contestants = [*simple_models(), *networks(epochs), *(paper_networks(epochs) if paper_settings else [])]
    rows = measure_models(contestants, train, test, seeds=seeds, seed=seed, device=device)
    learnt = {"training sets": describe_source(data, train, seed)}
    tested = {"test sets": f"{fresh:,} (simulated, seed {seed + 2})"}
    result = ExperimentResult(
        title=TITLE,
        command=command,
        sections=(table1_section(rows, test),),
        values=table1_values(rows, test.floor()),
        facts=facts(**learnt, **tested, device=device, seed=seed, seconds=time.perf_counter() - began),
    )
    result.write(place)
    return result


# -- Figure2 -----------------------------------------------------------------------------------------------------------
# Figure 2 of the paper: how each model of experiment 1 represents the preference for a over b as c moves.
#
#     P(a) / (P(a) + P(b))   in the set {a, b, c}, for c in every cell of [1, 9]^2
#
# The truth shows attraction (around c_A, a is preferred more), similarity (around c_S, less) and compromise (around
# c_C, more). A logit has one shade everywhere; the chain over bins has one shade for each bin; PCMC-Net is smooth.


TRUTH, NET = "Ground truth", "PCMC-Net 3x16"
CAPTION = (
    "Preference for a over b for different attributes of the third alternative c; lighter is a higher preference "
    "for a. The last panel is the absolute error of PCMC-Net, darker where it is larger."
)


def preference_maps(
    train: ChoiceData, *, epochs: int | None = None, cells: int = 128, seed: int = 0, device: str = "auto"
) -> dict[str, PreferenceMap]:
    """Fit the models and compute the panels of the figure, the truth first."""
    found = {TRUTH: preference_map(mlba.probabilities, cells=cells)}
    for who in [*simple_models(), *networks(epochs, depths=[3])]:
        log.info("fitting %s", who.label)
        model = who.make().fit(train, seed=seed, device=device, progress=False)
        found[who.label] = preference_map(model, cells=cells)
    return found


def preference_at(drawn: PreferenceMap, place: Point) -> float:
    """Return the preference with c in the cell that holds a place."""
    column, row = (int(np.abs(centres - value).argmin()) for centres, value in zip(drawn[:2], place, strict=True))
    return float(drawn.preference[row, column])


def figure2_section(found: Mapping[str, PreferenceMap], pictures: tuple[PictureFile, ...] = ()) -> Section:
    """Return what the figure shows in numbers: the preference at the marked places, and the error of each model."""
    places = [f"c at {x:g}, {y:g} ({name})" for name, (x, y) in PAPER_CONTEXTS.items()]
    cells = [["model", *places, "lowest", "highest", "mean error"]]
    for title, drawn in found.items():
        error = preference_error(drawn, found[TRUTH]).preference.mean()
        at = [f"{preference_at(drawn, place):.3f}" for place in PAPER_CONTEXTS.values()]
        span = [f"{end:.3f}" for end in (drawn.preference.min(), drawn.preference.max())]
        cells.append([title, *at, *span, "-" if title == TRUTH else f"{error:.4f}"])
    notes = (
        "Attraction and compromise raise the preference for a above .5; similarity lowers it, in the truth below .5.",
        "Mean error: of the preference, over all cells.",
    )
    return Section(title="Preference for a over b", blocks=(Table(cells=cells), *map(note, notes), *pictures))


def figure2_values(found: Mapping[str, PreferenceMap]) -> dict[str, Any]:
    """Return the numbers of the figure's table."""
    return {
        title: {
            **{name: preference_at(drawn, place) for name, place in PAPER_CONTEXTS.items()},
            "lowest": float(drawn.preference.min()),
            "highest": float(drawn.preference.max()),
            "mean_error": float(preference_error(drawn, found[TRUTH]).preference.mean()),
        }
        for title, drawn in found.items()
    }


def run_figure2(
    folder: str | Path,
    *,
    seed: int = 0,
    sets: int = TRAIN_SETS,
    data: str | Path | None = None,
    cells: int = 128,
    epochs: int | None = None,
    device: str = "auto",
    command: str = "",
) -> ExperimentResult:
    """Reproduce figure 2, with a panel for the error, and write it as figure2.png, .pdf and .svg with a report.

    Parameters
    ----------
    folder
        Where the files go.
    seed, sets, data, epochs, device, command
        As for :func:`pcmcnet.experiments.experiment1.run_table1`.
    cells
        Places of c along each attribute.
    """
    require_number("sets", sets, whole=True, low=1)
    require_number("cells", cells, whole=True, low=2)
    began = time.perf_counter()
    place = require_folder(folder)
    train = training_part(data, sets, seed)
    found = preference_maps(train, epochs=epochs, cells=cells, seed=seed, device=device)
    error = ("Error of PCMC-Net", preference_error(found[NET], found[TRUTH]))
    names = [f"figure2{ending}" for ending in (".png", ".pdf", ".svg")]
    for name in names:
        draw_preference_maps(found, place / name, error=error)
    made_of = {"training sets": describe_source(data, train, seed), "places of c": f"{cells} x {cells}"}
    picture = PictureFile(file=place / names[0], caption=CAPTION, others=tuple(names[1:]))
    result = ExperimentResult(
        title="Figure 2 of the paper: the preference for a over b",
        command=command,
        sections=(figure2_section(found, (picture,)),),
        values=figure2_values(found),
        facts=facts(**made_of, device=device, seed=seed, seconds=time.perf_counter() - began),
    )
    result.write(place)
    return result
