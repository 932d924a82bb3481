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
from pcmcnet.errors import ConfigError, InputError, SchemaError, did_you_mean, such_rows
from pcmcnet.evaluation import compare, evaluate
from pcmcnet.evaluation.compare import FoldData, model_identity
from pcmcnet.evaluation.paired_differences import Failure
from pcmcnet.experiments import report
from pcmcnet.experiments.report import ExperimentResult, fit_all, run_facts
from pcmcnet.models import MNL, ChoiceModel, LatentClassMNL, PCMCNet, PointerNetwork, RandomForest, RankBy, Uniform
from pcmcnet.reports.sections import Section, Table, Text, note
from pcmcnet.reports.tables import Cells
from pcmcnet.storage import require_folder

# -- Itineraries -------------------------------------------------------------------------------------------------------
# Choice sets are read from the paper's files or from the table in the package larch, or are simulated.
#
# All three sources have the columns of the paper's table 4. The airline is the one of the first flight, which is the
# first word in `airlines`. The paper's files and the simulation have a training, a development and a test part.


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
    "conflict": "first",  # days to departure may vary within a search; the first row is the cheapest itinerary
}
SHARES = (0.8, 0.1, 0.1)  # training, development and test part of a simulated table


@dataclass(frozen=True)
class SimulatedParts:
    """Parts of a simulated table, and the NLL of the true model on the test part."""

    parts: FoldData
    best_nll: float


def with_airline(table: pa.Table) -> pa.Table:
    """Return the table with an added column for the airline of the first flight, the first word of ``airlines``.

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
            f"{such_rows(first.null_count)}."
        )
    return table.append_column("airline", first)


def read_folder(folder: str | Path) -> FoldData:
    """Read the training, development and test parts from the paper's three files."""
    path = Path(folder)
    if not path.is_dir():
        raise InputError(f"expected a folder with {', '.join(FILES.values())}, got {path}.")
    missing = [name for name in FILES.values() if not (path / name).is_file()]
    if missing:
        files = [file.name for file in path.iterdir()]
        raise InputError(f"{path}: {missing[0]} is missing." + did_you_mean(missing[0], files))
    train, dev, test = (_read(path / name) for name in FILES.values())
    return FoldData(train, dev, test)


def _read(path: Path) -> ChoiceData:
    try:
        table = pyarrow.csv.read_csv(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: expected a CSV file, but it could not be read ({error}).") from error
    return ChoiceData.from_long(with_airline(table), **ROLES)


def larch_table() -> ChoiceData:
    """Return the 615 bookings included in the package larch.

    Origin and destination stay separate columns, because 615 bookings are too few for 91 origin-destination pairs.
    """
    table = with_airline(packaged.load("itinerary"))
    roles = packaged.TABLES["itinerary"].roles
    features = ["airline" if name == "airlines" else name for name in roles["features"]]
    return ChoiceData.from_long(table, **{**roles, "features": features})


def simulate(sets: int, seed: int) -> SimulatedParts:
    """Simulate choice sets, and split them into training, development and test parts."""
    from pcmcnet.datasets import airline

    table = with_airline(airline.simulate(sets, seed=seed))
    data = ChoiceData.from_long(table, **ROLES)
    parts = split_parts(data.groups(None), SHARES, generator(seed))
    train, dev, test = (data.subset(part) for part in parts)
    in_test = pc.is_in(table["individual"], pa.array(test.set_ids, table["individual"].type))
    return SimulatedParts(FoldData(train, dev, test), airline.best_possible_nll(table.filter(in_test)).realised)


# -- Table 3 -----------------------------------------------------------------------------------------------------------
# Eight models of airline itinerary choice.
#
#     training part  ->  fit          development part  ->  early stopping          test part  ->  one evaluation
#
# Encoders, numbers of classes and epochs, and all weights are learnt from the first two parts. An asterisk marks
# feature engineering, as in the paper: logarithms of price and trip duration for the logits, and features relative to
# the minimum of the set for the forest. Larch's table is too small for one split and is cross-validated.


UTILITY = (
    "airline + log(totalPrice) + log(totalTripDurationMinutes) + stayDurationMinutes"
    " + nFlights + nAirlines + outDepTime + outArrTime"
)
TOP = (1, 5)
PAPER_FILES = "the paper's files"
FOLDS = 5
HELD_OUT = 0.1  # share of the training part for early stopping, as in the paper
ENGINEERED = (
    "* feature engineering: MNL and LC-MNL use the logarithms of price and trip duration; RF also uses features "
    "relative to the minimum of the set. RF gives scores, not probabilities, so it has no NLL."
)


@dataclass(frozen=True)
class Table3Row:
    """Evaluation of a model on the test sets, or the ``error`` if the model failed."""

    label: str
    model: ChoiceModel
    values: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    fit_seconds: float | None = None
    parameters: int | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the measured and published values as JSON values."""
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
    """Return the eight models of table 3 by their names in the paper, in the paper's order.

    Parameters
    ----------
    paper_settings
        Whether PCMC-Net uses the published settings: 2 x 512 units, dropout 0.5, batches of 16, a constant learning
        rate of 0.001, early stopping, and a refit to the training and development parts together for the same number of
        epochs. The default is False.
    epochs
        Maximum number of epochs of PCMC-Net. If None (default), PCMC-Net uses its default maximum.
    """
    options: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    # The published number of 66 epochs is the result of early stopping in the paper.
    as_published = {**report.published_table2(), "epochs": 100, "refit": True, **options}
    network = PCMCNet.paper(**as_published) if paper_settings else PCMCNet(**options)
    models: list[ChoiceModel] = [
        Uniform(),
        RankBy(column="totalPrice"),
        RankBy(column="totalTripDurationMinutes"),
        MNL(formula=UTILITY),
        LatentClassMNL(formula=UTILITY),
        RandomForest(),
        PointerNetwork(),
        network,
    ]
    return dict(zip(report.published_table3(), models, strict=True))


def evaluate_on_test_part(
    contestants: Mapping[str, ChoiceModel], parts: FoldData, folder: Path, *, seed: int, device: str
) -> list[Table3Row]:
    """Fit all models to the training and development parts, then evaluate them on the test part."""
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
    """Cross-validate all models, passing the options to ``compare``, so that every choice set is held out once."""
    rows = []
    for row in compare(contestants, data, folds, seed, top=TOP, folder=folder, **options).rows:
        intervals = {name: ends for name, ends in row.intervals.items() if name in row.values}
        cost = (row.fit_seconds, row.parameters)
        rows.append(Table3Row(row.label, contestants[row.label], row.values, intervals, *cost, row.error))
    return rows


def table3_cells(rows: list[Table3Row]) -> Cells:
    """Return the published values, and the measured values with 95 % intervals, as rows of text."""
    heads = [f"{name}, {source}" for name in ("TOP 1", "TOP 5", "NLL") for source in ("paper", "here")]
    cells = [["method", *heads, "parameters", "fit s"]]
    for row in rows:
        if row.error is not None:
            cells.append([row.label, f"failed: {row.error}"])
            continue
        paper, line = report.published_table3()[row.label], [row.label]
        for name, published in (("top_1", paper.top_1), ("top_5", paper.top_5), ("nll", paper.nll)):
            digits = 2 if name == "nll" else 3
            line += ["-" if published is None else f"{published:.{digits}f}", _with_interval(row, name)]
        seconds = "-" if row.fit_seconds is None else f"{row.fit_seconds:.1f}"
        cells.append([*line, f"{row.parameters or 0:,}", seconds])
    return cells


def _with_interval(row: Table3Row, name: str) -> str:
    """Format a metric with its interval; models that give scores or rankings have no NLL."""
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
        Folder for report.md, report.html, result.json and the fitted models.
    data
        Folder with the paper's three files, which are named in ``FILES`` (default None).
    simulated
        Whether to use simulated choice sets (default False).
    sets
        Number of simulated choice sets. If None (default), the number in the paper is used.
    folds
        Number of cross-validation folds for larch's table, which is used if neither ``data`` nor ``simulated`` is
        given. If None (default), 5 folds are used.
    seed
        Seed for simulation, splits, fits and resampling (default 0).
    paper_settings, epochs
        See :func:`table3_models`.
    device
        Device of the fits (default "auto").
    command
        Command line to show in the report (default "").

    Returns
    -------
    ExperimentResult
        The result, which is also written to the folder.

    Raises
    ------
    ConfigError
        If ``data``, ``simulated``, ``sets`` and ``folds`` are incompatible.
    """
    if data is not None and simulated:
        raise ConfigError("data and simulated are mutually exclusive: use only one of them.")
    if sets is not None and not simulated:
        raise ConfigError("sets is the size of a simulated table: use it with simulated (--simulated).")
    if folds is not None and (simulated or data is not None):
        raise ConfigError("folds are only supported for larch's table: the other sources have their own test sets.")
    began = time.perf_counter()
    output = require_folder(folder)
    contestants = table3_models(paper_settings=paper_settings, epochs=epochs)
    settings: dict[str, Any] = {"seed": seed, "device": device}
    floor: dict[str, float] = {}
    if data is None and not simulated:
        n_folds, bookings = FOLDS if folds is None else folds, larch_table()
        valid = HELD_OUT if paper_settings else 0.0  # only the published settings use early stopping
        rows = cross_validate(contestants, bookings, output / "comparison", folds=n_folds, valid=valid, **settings)
        source = f"{len(bookings):,} bookings of larch's itinerary table, {n_folds}-fold cross-validation"
    else:
        if data is not None:
            parts, name = read_folder(data), PAPER_FILES
        else:
            simulation = simulate(sum(report.published_sizes("table3")) if sets is None else sets, seed)
            parts, name = simulation.parts, "simulated"
            floor = {"best_possible_nll": simulation.best_nll}
        rows = evaluate_on_test_part(contestants, parts, output / "models", **settings)
        source = f"{name}: {_sizes(parts)}"
    network = "the paper's settings" if paper_settings else "this library's defaults"
    seconds = time.perf_counter() - began
    result = ExperimentResult(
        title="Table 3 of the paper and this run: airline itinerary choice",
        command=command,
        sections=(_section(rows, source, floor),),
        values={"rows": [row.to_dict() for row in rows], **floor},
        facts=run_facts(data=source, **{"PCMC-Net": network}, device=device, seed=seed, seconds=seconds),
    )
    result.write(output)
    return result


def _sizes(parts: FoldData) -> str:
    """Describe the number of choice sets in each part as text."""
    train, valid, test = len(parts.train), len(parts.valid or ()), len(parts.test)
    return f"{train:,} training sets, {valid:,} development sets, {test:,} test sets"


def _section(rows: list[Table3Row], source: str, floor: Mapping[str, float]) -> Section:
    best = [f"The best possible NLL on these test sets (the true model): {nll:.3f}." for nll in floor.values()]
    data_note = (
        "The paper's results are based on different data: 27,160 training bookings and 6,791 test bookings."
        if not source.startswith(PAPER_FILES)
        else "No test set is used for fitting, early stopping or encoding."
    )
    notes = (ENGINEERED, *best, data_note, "In brackets: 95 % bootstrap intervals over test sets.")
    table = Table(cells=table3_cells(rows), strong=frozenset([len(rows) - 1]))
    return Section(title="TOP 1, TOP 5 and NLL", blocks=(Text(f"Data: {source}."), table, *map(note, notes)))
