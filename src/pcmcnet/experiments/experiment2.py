"""Experiment 2 of the paper: eight models of airline itinerary choice. Table 3."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from pcmcnet.data import ChoiceData
from pcmcnet.data.subsets import generator, split_parts
from pcmcnet.datasets import packaged
from pcmcnet.errors import ConfigError, InputError, SchemaError, did_you_mean
from pcmcnet.evaluation import compare, evaluate
from pcmcnet.evaluation.compare import Failure, FoldData, model_identity
from pcmcnet.experiments import report
from pcmcnet.experiments.report import ExperimentResult, facts, fit_all
from pcmcnet.models import MNL, ChoiceModel, LatentClassMNL, PCMCNet, PointerNetwork, RandomForest, RankBy, Uniform
from pcmcnet.reports.sections import Section, Table, Text, note
from pcmcnet.reports.tables import Cells
from pcmcnet.storage import require_folder

# -- Itineraries -------------------------------------------------------------------------------------------------------
# Where the airline experiment gets its choice sets: the paper's files, the table of larch, or a simulation.
#
# All three have the columns of the paper's table 4. The airline is that of the first flight: the first of `airlines`,
# whatever follows it. A source that comes in parts says which sets to fit on, to stop early on and to test on.


FILES = {part: f"data_{part}_50alternatives-EUR-TopOD_filter.csv" for part in ("train", "dev", "test")}
ROLES: Mapping[str, Any] = {
    "choice_set": "individual",
    "chosen": "choice",
    "individual": ["OD", "officeID", "depWeekDay", "staySaturday", "isContinental", "isDomestic", "dtd"],
    "features": [
        *("airline", "totalPrice", "stayDurationMinutes", "totalTripDurationMinutes"),
        *("nFlights", "nAirlines", "outDepTime", "outArrTime"),
    ],
    "categorical": ["OD", "officeID", "airline"],
    "conflict": "first",  # days to departure may differ within a search: the first row, the cheapest, counts
}
SHARES = (0.8, 0.1, 0.1)  # of a simulated table: to fit on, to stop early on, to test on


@dataclass(frozen=True)
class SimulatedParts:
    """Parts of a simulated table, and the least NLL that a model can expect on its test part."""

    parts: FoldData
    best_nll: float


def with_airline(table: pa.Table) -> pa.Table:
    """Add the airline of the first flight, the first word of ``airlines``.

    Examples
    --------
    >>> with_airline(pa.table({"airlines": ["AF/KL", "BA"]}))["airline"].to_pylist()
    ['AF', 'BA']
    """
    if "airlines" not in table.column_names:
        raise SchemaError(f"expected a column 'airlines', got {table.column_names}.")
    words = pc.cast(table["airlines"], pa.string())
    first = pc.struct_field(pc.extract_regex(words, r"(?P<first>[^\W_]+)"), "first")
    if first.null_count:
        row = pc.index(pc.is_null(first), True).as_py()
        raise SchemaError(
            f"column 'airlines', row {row}: expected airlines such as 'AF/KL', got {words[row].as_py()!r}; "
            f"{first.null_count} such rows."
        )
    return table.append_column("airline", first)


def read_folder(folder: str | Path) -> FoldData:
    """Read the paper's three files: one to fit on, one to stop early on, one to test on."""
    place = Path(folder)
    if not place.is_dir():
        raise InputError(f"{place} is no folder: expected one with {', '.join(FILES.values())}.")
    missing = [name for name in FILES.values() if not (place / name).is_file()]
    if missing:
        there = [path.name for path in place.iterdir()]
        raise InputError(f"{place}: {missing[0]} is missing." + did_you_mean(missing[0], there))
    train, dev, test = (_read(place / name) for name in FILES.values())
    return FoldData(train, dev, test)


def _read(path: Path) -> ChoiceData:
    try:
        table = pyarrow.csv.read_csv(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: expected a CSV file, could not read it ({error}).") from error
    return ChoiceData.from_long(with_airline(table), **ROLES)


def larch_table() -> ChoiceData:
    """Read the 615 bookings that ship with the package larch.

    Origin and destination stay the two columns that they are there: so few bookings tell little of 91 pairs of them.
    """
    table = with_airline(packaged.load("itinerary"))
    roles = packaged.TABLES["itinerary"].roles
    features = ["airline" if name == "airlines" else name for name in roles["features"]]
    return ChoiceData.from_long(table, **{**roles, "features": features})


def simulate(sets: int, seed: int) -> SimulatedParts:
    """Simulate choice sets and cut them into three parts."""
    from pcmcnet.datasets import airline

    table = with_airline(airline.simulate(sets, seed=seed))
    data = ChoiceData.from_long(table, **ROLES)
    cut = split_parts(data.groups(None), SHARES, generator(seed))
    train, dev, test = (data.subset(part) for part in cut)
    here = pc.is_in(table["individual"], pa.array(test.set_ids, table["individual"].type))
    return SimulatedParts(FoldData(train, dev, test), airline.best_possible_nll(table.filter(here)).realised)


# -- Table3 ------------------------------------------------------------------------------------------------------------
# The airline experiment of the paper: eight models of itinerary choice (table 3).
#
#     training part  ->  fit          development part  ->  stop early          test part  ->  asked once, at the end
#
# Encoders, the numbers of classes and of epochs, and all weights come from the first two parts. The asterisk of the
# paper stands for feature engineering: here, logarithms of price and trip duration for the logits, and features
# relative to the least of the set for the forest. Larch's table is too small for one split and is cross-validated.


UTILITY = (
    "airline + log(totalPrice) + log(totalTripDurationMinutes) + stayDurationMinutes"
    " + nFlights + nAirlines + outDepTime + outArrTime"
)
TOP = (1, 5)
PAPER_FILES = "the paper's files"
FOLDS = 5
HELD_OUT = 0.1  # of the training part, for early stopping: the paper's share
ENGINEERED = (
    "* feature engineering: MNL and LC-MNL take the logarithms of price and trip duration; RF also takes features "
    "relative to the least of the set. RF gives scores, not probabilities, and so has no NLL."
)


@dataclass(frozen=True)
class Table3Row:
    """What a model did on test sets; ``error`` says why it did nothing."""

    label: str
    model: ChoiceModel
    values: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    fit_seconds: float | None = None
    parameters: int | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers beside those of the paper."""
        return {
            "model": self.label,
            "values": dict(self.values),
            "intervals": dict(self.intervals),
            "published": dict(report.published_table3()[self.label]._asdict()),
            "gives": self.model.gives,
            "options": model_identity(self.model)["options"],
            "fit_seconds": self.fit_seconds,
            "parameters": self.parameters,
            "error": self.error,
        }


def table3_models(*, paper_settings: bool = False, epochs: int | None = None) -> dict[str, ChoiceModel]:
    """Return the eight models of the table by the paper's names, in its order.

    Parameters
    ----------
    paper_settings
        PCMC-Net as published: 2 x 512 nodes, dropout .5, batches of 16, a constant learning rate of .001; stopped
        early, then trained again on both parts for as many epochs. Otherwise its defaults.
    epochs
        Epochs of PCMC-Net, at most.
    """
    options: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    as_published = {**report.published_table2(), "epochs": 100, "refit": True, **options}  # 66 is where theirs stopped
    network = PCMCNet.paper(**as_published) if paper_settings else PCMCNet(**options)
    found: list[ChoiceModel] = [
        Uniform(),
        RankBy(column="totalPrice"),
        RankBy(column="totalTripDurationMinutes"),
        MNL(formula=UTILITY),
        LatentClassMNL(formula=UTILITY),
        RandomForest(),
        PointerNetwork(),
        network,
    ]
    return dict(zip(report.published_table3(), found, strict=True))


def evaluate_on_test_part(
    contestants: Mapping[str, ChoiceModel], parts: FoldData, folder: Path, *, seed: int, device: str
) -> list[Table3Row]:
    """Fit on the training and development parts, then ask all models once about the test part."""
    assert parts.valid is not None
    fitted = fit_all(contestants, parts.train, parts.valid, folder, seed=seed, device=device)
    rows = []
    for label, model in fitted.items():
        if isinstance(model, Failure):
            rows.append(Table3Row(label, contestants[label], {}, {}, error=model.message))
            continue
        report = evaluate(model, parts.test, top=TOP, seed=seed)
        values = {name: value for name, value in report.values.items() if value is not None}
        rows.append(Table3Row(label, model, values, report.intervals, model.table_.seconds, model.num_parameters))
    return rows


def cross_validate(
    contestants: Mapping[str, ChoiceModel], data: ChoiceData, folder: Path, *, folds: int, seed: int, **options: Any
) -> list[Table3Row]:
    """Cross-validate with options of ``compare``: every choice set is tested once, by models that did not see it."""
    rows = []
    for row in compare(contestants, data, folds, seed, top=TOP, folder=folder, **options).rows:
        intervals = {name: ends for name, ends in row.intervals.items() if name in row.values}
        cost = (row.fit_seconds, row.parameters)
        rows.append(Table3Row(row.label, contestants[row.label], row.values, intervals, *cost, row.error))
    return rows


def table(rows: list[Table3Row]) -> Cells:
    """Return the paper's table beside what was measured, with 95 % intervals."""
    heads = [f"{name}, {who}" for name in ("TOP 1", "TOP 5", "NLL") for who in ("paper", "here")]
    cells = [["method", *heads, "parameters", "fit s"]]
    for row in rows:
        if row.error is not None:
            cells.append([row.label, f"failed: {row.error}"])
            continue
        paper, line = report.published_table3()[row.label], [row.label]
        for name, theirs in (("top_1", paper.top_1), ("top_5", paper.top_5), ("nll", paper.nll)):
            digits = 2 if name == "nll" else 3
            line += ["-" if theirs is None else f"{theirs:.{digits}f}", _spanned(row, name)]
        seconds = "-" if row.fit_seconds is None else f"{row.fit_seconds:.1f}"
        cells.append([*line, f"{row.parameters or 0:,}", seconds])
    return cells


def _spanned(row: Table3Row, name: str) -> str:
    """A value with its interval behind it; scores and rankings have no likelihood."""
    if name not in row.values or (name == "nll" and row.model.gives != "probabilities"):
        return "-"
    low, high = row.intervals[name]
    return f"{row.values[name]:.3f} [{low:.3f}, {high:.3f}]"


def run_table3(
    folder: str | Path,
    *,
    data: str | Path | None = None,
    simulated: bool = False,
    sets: int | None = None,
    folds: int | None = None,
    seed: int = 0,
    paper_settings: bool = False,
    epochs: int | None = None,
    device: str = "auto",
    command: str = "",
) -> ExperimentResult:
    """Reproduce table 3 and write the report.

    Parameters
    ----------
    folder
        Where report.md, report.html and result.json go, and what has been fitted.
    data
        Folder with the paper's three files; see ``itineraries.FILES``.
    simulated, sets
        Instead: simulate so many choice sets, by default as many as the paper had.
    folds
        With neither: folds of the cross-validation over larch's table.
    seed
        Where simulation, splits, fits and resamples come from.
    paper_settings, epochs
        See :func:`table3_models`.
    device
        Where networks are trained.
    command
        What the report names as the command that gives it again.
    """
    if data is not None and simulated:
        raise ConfigError("data and simulated exclude each other: give one of them.")
    if sets is not None and not simulated:
        raise ConfigError("sets is the size of a simulated table: give simulated (--simulated) as well.")
    if folds is not None and (simulated or data is not None):
        raise ConfigError("folds are for larch's table: the other sources come with a test part.")
    began = time.perf_counter()
    place = require_folder(folder)
    contestants = table3_models(paper_settings=paper_settings, epochs=epochs)
    where: dict[str, Any] = {"seed": seed, "device": device}
    floor: dict[str, float] = {}
    if data is None and not simulated:
        count, choices = FOLDS if folds is None else folds, larch_table()
        valid = HELD_OUT if paper_settings else 0.0  # the published settings stop early
        rows = cross_validate(contestants, choices, place / "comparison", folds=count, valid=valid, **where)
        what = f"{len(choices):,} bookings of larch's itinerary table, {count}-fold cross-validation"
    elif data is not None:
        parts = read_folder(data)
        rows, what = (
            evaluate_on_test_part(contestants, parts, place / "models", **where),
            f"{PAPER_FILES}: {_sizes(parts)}",
        )
    else:
        made = simulate(sum(report.published_sizes("table3")) if sets is None else sets, seed)
        rows, what = (
            evaluate_on_test_part(contestants, made.parts, place / "models", **where),
            f"simulated: {_sizes(made.parts)}",
        )
        floor = {"best_possible_nll": made.best_nll}
    settings = "the paper's settings" if paper_settings else "this library's defaults"
    result = ExperimentResult(
        title="Table 3 of the paper beside this run: airline itinerary choice",
        command=command,
        sections=(_section(rows, what, floor),),
        values={"rows": [row.to_dict() for row in rows], **floor},
        facts=facts(data=what, **{"PCMC-Net": settings}, device=device, seed=seed, seconds=time.perf_counter() - began),
    )
    result.write(place)
    return result


def _sizes(parts: FoldData) -> str:
    """Say how many choice sets each part has."""
    return f"{len(parts.train):,} sets to fit, {len(parts.valid or ()):,} to stop, {len(parts.test):,} to test"


def _section(rows: list[Table3Row], what: str, floor: Mapping[str, float]) -> Section:
    best = [f"The best possible NLL on these test sets is {nll:.3f}: that of the true model." for nll in floor.values()]
    another = (
        "The paper's figures are of 27,160 bookings to fit and 6,791 to test, which are other choices than these."
        if not what.startswith(PAPER_FILES)
        else "No test set takes part in fitting, early stopping or encoding."
    )
    last = frozenset([len(rows) - 1])
    notes = (ENGINEERED, *best, another, "In brackets: 95 % bootstrap intervals over test sets.")
    found = Table(cells=table(rows), strong=last)
    return Section(title="TOP 1, TOP 5 and NLL", blocks=(Text(f"Data: {what}."), found, *map(note, notes)))
