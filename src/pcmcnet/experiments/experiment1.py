"""Experiment 1 of the paper: context effects of the MLBA model. This module reproduces table 1 and figure 2."""

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
from pcmcnet.experiments.report import ExperimentResult, run_facts
from pcmcnet.insight.preference_map import Point
from pcmcnet.models import MNL, PCMC, ChoiceModel, PCMCNet
from pcmcnet.plots import PreferenceMap, draw_preference_maps, preference_error, preference_map
from pcmcnet.plots.context import PAPER_CONTEXTS
from pcmcnet.reports.sections import PictureFile, Section, Table, note
from pcmcnet.reports.tables import Cells
from pcmcnet.storage import require_folder

log = logging.getLogger("pcmcnet")

# -- Data and models ---------------------------------------------------------------------------------------------------
# A choice set has two fixed alternatives a and b, and a third one, c, uniform on [1, 9]^2. The choice is drawn from the
# MLBA model, whose probabilities are known (`pcmcnet.datasets.mlba`).


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
    """A model of table 1, with its published row in the paper."""

    label: str
    row: report.Divergence
    make: Callable[[], ChoiceModel]
    drawn: bool = True  # whether the fit depends on the seed


@dataclass(frozen=True)
class FreshSets:
    """Test sets, with the true probability of each row."""

    data: ChoiceData
    truth: Floats

    @classmethod
    def of(cls, table: pa.Table) -> FreshSets:
        """Read test sets and their true probabilities from a simulated table."""
        return cls(ChoiceData.from_long(table, **ROLES), table["true_prob"].to_numpy())

    def floor(self) -> tuple[float, float]:
        """Return the NLL and TOP 1 of the true model, which no model can beat in expectation."""
        best = evaluate(_Truth(self.truth), self.data, top=[1], resamples=0)
        assert best.nll is not None
        return best.nll, best.top[1]


@dataclass(frozen=True)
class _Truth:
    """Model that predicts the true probabilities."""

    p: Floats

    def predict_log_proba(self, data: ChoiceData) -> Floats:
        with np.errstate(divide="ignore"):  # log 0 = -inf
            log_p: Floats = np.log(self.p)
        return log_p


def simple_models() -> list[Contestant]:
    """Return the MNL with two coefficients, and the PCMC whose items are 8 x 8 bins and the two fixed alternatives."""
    rows = report.published_table1()
    bins = {"attr1": 8, "attr2": 8}
    chain: dict[str, Any] = {"bins": bins, "identified": ("a", "b"), "restarts": 1, "ridge": 0.1, "speeds": 1.0}
    return [  # one start for PCMC, because other starts reach the same objective
        Contestant("MNL", rows["MNL"], lambda: MNL(formula="attr1 + attr2 | 0"), drawn=False),
        Contestant("PCMC", rows["PCMC"], lambda: PCMC(**chain), drawn=False),
    ]


def networks(epochs: int | None = None, *, depths: Sequence[int] = (1, 2, 3)) -> list[Contestant]:
    """Return PCMC-Nets with 16 units per layer and this library's defaults, except for learning rate and weight decay.

    As in the paper, the inputs are only the features, without labels, and there is no inner logit. A network with one
    layer of 16 units learns too slowly at the default learning rate of 0.005. A higher rate also works for networks
    with two and three layers. With a few hundred weights and 20,000 choice sets, almost no weight decay is needed, so
    the fits do not search for the best value.
    """
    options: dict[str, Any] = {"lr": 0.02, "labels": False, "utility": "none", "weight_decay": 0.01}
    options |= {} if epochs is None else {"epochs": epochs}
    return [_network(depth, lambda hidden: PCMCNet(hidden=hidden, **options), "") for depth in depths]


def paper_networks(epochs: int | None = None) -> list[Contestant]:
    """Return PCMC-Nets with the paper's settings: 100 epochs with batches of one choice set."""
    options: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    return [_network(depth, lambda hidden: PCMCNet.paper(hidden, **options), AS_PUBLISHED) for depth in (1, 2, 3)]


def _network(depth: int, make: Callable[[tuple[int, ...]], ChoiceModel], suffix: str) -> Contestant:
    name = f"PCMC-Net {depth}x16"
    return Contestant(f"{name}{suffix}", report.published_table1()[name], lambda: make((16,) * depth))


def training_part(data: str | Path | None, sets: int, seed: int) -> ChoiceData:
    """Read the training sets from a table, or simulate them."""
    return _with_names_abc(ChoiceData.from_long(mlba.simulate(sets, seed=seed + 1) if data is None else data, **ROLES))


def _with_names_abc(data: ChoiceData) -> ChoiceData:
    """Rename the alternatives to a, b and c, recognising a and b by their attributes."""
    assert data.labels is not None
    attributes = np.column_stack([stored_values(data.features[name]) for name in ROLES["features"]])
    names = []
    for k in range(len(data.labels.categories)):
        rows = attributes[data.labels.codes == k]
        names.append(next((name for name, at in (("a", mlba.A), ("b", mlba.B)) if (rows == at).all()), "c"))
    if sorted(names) != ["a", "b", "c"]:
        raise SchemaError(
            f"expected three alternatives, one with the attributes {mlba.A} and one with {mlba.B} in every set, got "
            f"{list(data.labels.categories)}. Use a table with the format of `pcmcnet simulate mlba`."
        )
    return replace(data, labels=Categorical(data.labels.codes, tuple(names)))


def describe_source(data: str | Path | None, train: ChoiceData, seed: int) -> str:
    """Describe the training sets: their number, and the source file or seed."""
    where = f"simulated, seed {seed + 1}" if data is None else f"{Path(data).name}, SHA-256 {train.fingerprint()}"
    return f"{len(train):,} ({where})"


# -- Table 1 -----------------------------------------------------------------------------------------------------------
# The Kullback-Leibler divergence of each model from the true model.
#
# Models are fitted to 20,000 choice sets with context effects. On 10,000 new choice sets, the divergence is
#
#     E_c [ sum_i P(i) log(P(i) / p(i)) ]        with P the true probabilities and p the model's
#
# Models must have the same numbers of parameters as in the paper.


TITLE = "Table 1 of the paper and this run: KL divergence from the true model, on new choice sets"


@dataclass(frozen=True)
class Table1Row:
    """Fits of a model with several seeds, and the evaluation of each fit on the test sets."""

    contestant: Contestant
    models: tuple[ChoiceModel, ...]
    reports: tuple[Report, ...]
    train_nll: tuple[float, ...]
    seconds: tuple[float, ...]  # duration of each fit

    @property
    def kl(self) -> list[float]:
        """KL divergence of each fit from the true model."""
        return [float(np.nan if report.kl is None else report.kl) for report in self.reports]

    @property
    def best_fit(self) -> int:
        """Index of the fit with the smallest training NLL, which is chosen without using test sets."""
        return int(np.argmin(self.train_nll))

    def mean(self, name: str) -> float:
        """Return the mean of a metric over the fits."""
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
    """Fit every model with each seed, and evaluate the fits on test sets.

    Parameters
    ----------
    contestants
        Models to fit. Models that do not depend on the seed are fitted once.
    train, fresh
        Training sets and test sets.
    seeds, seed
        Number of seeds (default 3), and the first seed (default 0).
    device
        Device of the fits (default "auto").

    Raises
    ------
    TrainingError
        If the number of parameters of a model differs from the number in the paper.
    """
    return [_measure(c, train, fresh, range(seed, seed + (seeds if c.drawn else 1)), device) for c in contestants]


def _measure(contestant: Contestant, train: ChoiceData, fresh: FreshSets, seeds: range, device: str) -> Table1Row:
    models, reports, losses, seconds = [], [], [], []
    name, expected = contestant.label, contestant.row.parameters
    for k, seed in enumerate(seeds):
        began = time.perf_counter()
        model = contestant.make().fit(train, seed=seed, device=device, progress=False)
        seconds.append(time.perf_counter() - began)
        if model.num_parameters != expected:
            raise TrainingError(
                f"{name}: expected {expected:,} parameters, as in the paper, got {model.num_parameters:,}. The table "
                f"must have two numeric features, attr1 and attr2, and the alternatives a, b and c."
            )
        reports.append(evaluate(model, fresh.data, top=[1], truth=fresh.truth, resamples=0))
        losses.append(-model.score(train))
        models.append(model)
        log.info("%s, fit %d of %d: KL %.4f, %.0f s", name, k + 1, len(seeds), reports[-1].kl, seconds[-1])
    return Table1Row(contestant, tuple(models), tuple(reports), tuple(losses), tuple(seconds))


def table1_cells(rows: Sequence[Table1Row], floor: tuple[float, float]) -> Cells:
    """Return the published and measured values as rows of text; ``floor`` is the NLL and TOP 1 of the true model."""
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
    """Return the values of table 1 and the results of every fit as JSON values."""
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
    """Return the report section with table 1 and its notes."""
    floor = fresh.floor()
    seeds = max(len(row.models) for row in rows)
    several = (
        f"KL is the mean over {seeds} fits with different seeds; spread is the range; best fit is the KL of the fit "
        "with the smallest training NLL. MNL and PCMC do not depend on the seed and are fitted once."
    )
    floor_note = "The true model has the smallest expected NLL: another model can have a smaller NLL only by chance."
    notes = (several if seeds > 1 else "Each model was fitted once.", floor_note)
    table = Table(cells=table1_cells(rows, floor))
    return Section(title="Divergence from the true model", blocks=(table, *map(note, notes)))


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
        Folder for report.md, report.html and result.json.
    seeds, seed
        Number of fits of each network (default 3), and the first seed (default 0).
    sets, fresh
        Numbers of simulated training sets and test sets (default: as in the paper).
    data
        Table of training sets with the columns choice_set, alternative, attr1, attr2 and chosen. If None (default),
        training sets are simulated.
    paper_settings
        Whether to also fit PCMC-Net with the paper's settings, which takes more than an hour per fit (default False).
    epochs
        Number of training epochs of the networks. If None (default), each network uses its default number.
    device
        Device of the fits (default "auto").
    command
        Command line to show in the report (default "").

    Returns
    -------
    ExperimentResult
        The result, which is also written to the folder.
    """
    for name, value in (("seeds", seeds), ("sets", sets), ("fresh", fresh)):
        require_number(name, value, whole=True, low=1)
    began = time.perf_counter()
    output = require_folder(folder)
    train = training_part(data, sets, seed)
    test = FreshSets.of(mlba.simulate(fresh, seed=seed + 2))
    contestants = [*simple_models(), *networks(epochs), *(paper_networks(epochs) if paper_settings else [])]
    rows = measure_models(contestants, train, test, seeds=seeds, seed=seed, device=device)
    sources = {
        "training sets": describe_source(data, train, seed),
        "test sets": f"{fresh:,} (simulated, seed {seed + 2})",
    }
    result = ExperimentResult(
        title=TITLE,
        command=command,
        sections=(table1_section(rows, test),),
        values=table1_values(rows, test.floor()),
        facts=run_facts(**sources, device=device, seed=seed, seconds=time.perf_counter() - began),
    )
    result.write(output)
    return result


# -- Figure 2 ----------------------------------------------------------------------------------------------------------
# The preference for a over b of each model, as a function of the attributes of c.
#
#     P(a) / (P(a) + P(b))   in the set {a, b, c}, for c in every cell of [1, 9]^2
#
# The true model has an attraction effect (a is preferred more around c_A), a similarity effect (less around c_S) and a
# compromise effect (more around c_C). The preference is constant for a logit, constant within bins for PCMC, and smooth
# for PCMC-Net.


TRUTH, NET = "Ground truth", "PCMC-Net 3x16"
CAPTION = (
    "Preference for a over b by the attributes of the third alternative c; lighter means a higher preference for a. "
    "The last panel is the absolute error of PCMC-Net; darker means a larger error."
)


def preference_maps(
    train: ChoiceData, *, epochs: int | None = None, cells: int = 128, seed: int = 0, device: str = "auto"
) -> dict[str, PreferenceMap]:
    """Fit the models, and return the panels of figure 2, with the true model first."""
    maps = {TRUTH: preference_map(mlba.probabilities, cells=cells)}
    for contestant in [*simple_models(), *networks(epochs, depths=[3])]:
        log.info("fitting %s", contestant.label)
        model = contestant.make().fit(train, seed=seed, device=device, progress=False)
        maps[contestant.label] = preference_map(model, cells=cells)
    return maps


def preference_at(panel: PreferenceMap, c: Point) -> float:
    """Return the preference for a over b in the cell that contains the attributes of c."""
    column, row = (int(np.abs(centres - value).argmin()) for centres, value in zip(panel[:2], c, strict=True))
    return float(panel.preference[row, column])


def figure2_section(maps: Mapping[str, PreferenceMap], pictures: tuple[PictureFile, ...] = ()) -> Section:
    """Return the report section with figure 2, the preferences at the marked points and the error of each model."""
    points = [f"c at {x:g}, {y:g} ({name})" for name, (x, y) in PAPER_CONTEXTS.items()]
    cells = [["model", *points, "lowest", "highest", "mean error"]]
    for title, panel in maps.items():
        error = preference_error(panel, maps[TRUTH]).preference.mean()
        at = [f"{preference_at(panel, point):.3f}" for point in PAPER_CONTEXTS.values()]
        span = [f"{end:.3f}" for end in (panel.preference.min(), panel.preference.max())]
        cells.append([title, *at, *span, "-" if title == TRUTH else f"{error:.4f}"])
    notes = (
        (
            "Attraction and compromise raise the preference for a above 0.5. "
            "Similarity lowers this preference, to below 0.5 in the true model."
        ),
        "Mean error: mean absolute error of the preference over all cells.",
    )
    return Section(title="Preference for a over b", blocks=(Table(cells=cells), *map(note, notes), *pictures))


def figure2_values(maps: Mapping[str, PreferenceMap]) -> dict[str, Any]:
    """Return the values in the table below figure 2 as JSON values."""
    return {
        title: {
            **{name: preference_at(panel, point) for name, point in PAPER_CONTEXTS.items()},
            "lowest": float(panel.preference.min()),
            "highest": float(panel.preference.max()),
            "mean_error": float(preference_error(panel, maps[TRUTH]).preference.mean()),
        }
        for title, panel in maps.items()
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
    """Reproduce figure 2, with an additional panel for the error, and write the figure and a report.

    Parameters
    ----------
    folder
        Folder for figure2.png, .pdf and .svg, and for the report.
    seed, sets, data, epochs, device, command
        See :func:`pcmcnet.experiments.experiment1.run_table1`.
    cells
        Number of grid values for each attribute of c (default 128).

    Returns
    -------
    ExperimentResult
        The result, which is also written to the folder.
    """
    require_number("sets", sets, whole=True, low=1)
    require_number("cells", cells, whole=True, low=2)
    began = time.perf_counter()
    output = require_folder(folder)
    train = training_part(data, sets, seed)
    maps = preference_maps(train, epochs=epochs, cells=cells, seed=seed, device=device)
    error = ("Error of PCMC-Net", preference_error(maps[NET], maps[TRUTH]))
    names = [f"figure2{extension}" for extension in (".png", ".pdf", ".svg")]
    for name in names:
        draw_preference_maps(maps, output / name, error=error)
    sources = {"training sets": describe_source(data, train, seed), "attributes of c": f"{cells} x {cells}"}
    picture = PictureFile(file=output / names[0], caption=CAPTION, others=tuple(names[1:]))
    result = ExperimentResult(
        title="Figure 2 of the paper: the preference for a over b",
        command=command,
        sections=(figure2_section(maps, (picture,)),),
        values=figure2_values(maps),
        facts=run_facts(**sources, device=device, seed=seed, seconds=time.perf_counter() - began),
    )
    result.write(output)
    return result
