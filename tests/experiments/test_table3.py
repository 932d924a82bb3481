import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, TrainingError
from pcmcnet.experiments import experiment2, report
from pcmcnet.models import (
    MNL,
    ChoiceModel,
    LatentClassMNL,
    PCMCNet,
    PointerNetwork,
    RandomForest,
    RankBy,
    Uniform,
    load,
)

Bookings = Callable[..., pa.Table]
SIZES = {"train": 60, "dev": 20, "test": 30}


def write(folder: Path, bookings: Bookings, test_seed: int = 2, **change: Any) -> Path:
    folder.mkdir()
    for k, (part, name) in enumerate(experiment2.FILES.items()):
        table = bookings(SIZES[part], seed=test_seed if part == "test" else k, first=1000 * k)
        for column, values in change.items() if part == "test" else ():
            table = table.set_column(table.column_names.index(column), column, pa.array(values))
        pyarrow.csv.write_csv(table, folder / name)
    return folder


def choices(table: pa.Table) -> ChoiceData:
    return ChoiceData.from_long(experiment2.with_airline(table), **experiment2.ROLES)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The eight models, small enough for a test."""
    full = experiment2.table3_models

    def models(**options: Any) -> dict[str, ChoiceModel]:
        if options.get("paper_settings"):
            return full(**options)
        quick: list[ChoiceModel] = [
            Uniform(),
            RankBy(column="totalPrice"),
            RankBy(column="totalTripDurationMinutes"),
            MNL(formula=experiment2.UTILITY),
            LatentClassMNL(formula=experiment2.UTILITY, classes=2, starts=1),
            RandomForest(trees=5),
            PointerNetwork(hidden=8, epochs=2, weight_decay=0.0),
            PCMCNet(hidden=(8,), epochs=options["epochs"] or 2, weight_decay=0.0),
        ]
        return dict(zip(report.published_table3(), quick, strict=True))

    monkeypatch.setattr(experiment2, "table3_models", models)


DATED = {"model.json", "README.md", "history.json", "forest.skops"}  # contain dates or durations


def artefacts(out: Path, probe: ChoiceData) -> dict[str, bytes]:
    """Return encoders, designs, options and weights of all models, and the forest's scores on simulated searches."""
    files = [file for file in (out / "models").glob("*/*") if file.name not in DATED]
    forest = load(next((out / "models").glob("rf-*")))
    scores = {"forest": forest.predict_scores(probe).tobytes()}
    return {**{str(file.relative_to(out)): file.read_bytes() for file in files}, **scores}


def test_the_papers_files_give_eight_rows_with_the_published_figures(tmp_path: Path, bookings: Bookings) -> None:
    result = experiment2.run_table3(tmp_path / "out", data=write(tmp_path / "data", bookings), seed=1)
    head, *rows = result.sections[0].tables[0]
    assert [row[0] for row in rows] == list(report.published_table3())
    assert rows[-1][head.index("NLL, paper")] == "2.03"
    by_label = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    for label in ("Cheapest", "Shortest", "RF*"):
        assert by_label[label]["NLL, here"] == by_label[label]["NLL, paper"] == "-"
    values = {row["model"]: row["values"] for row in result.values["rows"]}
    assert values["Uniform"]["nll"] == pytest.approx(np.log(4))
    assert values["Uniform"]["top_1"] == pytest.approx(1 / 4)
    assert values["MNL*"]["nll"] < values["Uniform"]["nll"]
    assert values["Cheapest"]["top_1"] > 0.4  # the cheapest of four is booked most often
    assert "60 training sets, 20 development sets, 30 test sets" in str(result)
    written = json.loads((tmp_path / "out" / "result.json").read_text("utf-8"))
    assert [row["model"] for row in written["values"]["rows"]] == list(report.published_table3())
    assert written["values"]["rows"][-1]["published"]["nll"] == 2.03


def test_test_sets_do_not_influence_the_fits(tmp_path: Path, bookings: Bookings) -> None:
    """Other searches, prices a thousand times as high and an unseen airline change no byte of any model."""
    probe = choices(bookings(25, seed=5))
    strange = {"totalPrice": np.full(120, 1e6), "airlines": ["ZZ"] * 120, "OD": ["X-Y"] * 120}
    clean = experiment2.run_table3(tmp_path / "a", data=write(tmp_path / "clean", bookings))
    corrupt = experiment2.run_table3(tmp_path / "b", data=write(tmp_path / "corrupt", bookings, test_seed=9, **strange))
    ours, theirs = artefacts(tmp_path / "a", probe), artefacts(tmp_path / "b", probe)
    assert ours == theirs
    networks = [name for name in ours if name.endswith("weights.safetensors")]
    assert len(networks) == 2
    assert sum(name.endswith("encoder.json") for name in ours) >= 2
    assert clean.values["rows"][-1]["values"] != corrupt.values["rows"][-1]["values"]  # the test sets do differ


def test_the_development_part_influences_the_fits(tmp_path: Path, bookings: Bookings) -> None:
    """The comparison of files can detect a difference."""
    probe = choices(bookings(25, seed=5))
    data = write(tmp_path / "data", bookings)
    experiment2.run_table3(tmp_path / "a", data=data)
    pyarrow.csv.write_csv(bookings(20, seed=7, first=1000), data / experiment2.FILES["dev"])
    experiment2.run_table3(tmp_path / "b", data=data)
    assert artefacts(tmp_path / "a", probe) != artefacts(tmp_path / "b", probe)


def test_fitted_models_are_reused(tmp_path: Path, bookings: Bookings, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write(tmp_path / "data", bookings)
    first = experiment2.run_table3(tmp_path / "out", data=data)
    monkeypatch.setattr(ChoiceModel, "fit", None)
    second = experiment2.run_table3(tmp_path / "out", data=data)
    assert [r["values"] for r in second.values["rows"]] == [r["values"] for r in first.values["rows"]]


def test_a_failed_model_is_a_row(tmp_path: Path, bookings: Bookings, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise TrainingError("no luck today.")

    monkeypatch.setattr(LatentClassMNL, "fit", fail)
    result = experiment2.run_table3(tmp_path / "out", data=write(tmp_path / "data", bookings))
    rows = result.sections[0].tables[0]
    assert rows[5] == ["LC-MNL*", "failed: no luck today."]
    assert len(rows[6]) == len(rows[0])


def test_a_simulated_table_has_a_best_possible_nll(tmp_path: Path) -> None:
    result = experiment2.run_table3(tmp_path / "out", simulated=True, sets=80, seed=3)
    best = result.values["best_possible_nll"]
    assert 0 < best < result.values["rows"][0]["values"]["nll"]
    assert f"best possible NLL on these test sets (the true model): {best:.3f}" in str(result)


def test_larchs_table_is_cross_validated(tmp_path: Path, bookings: Bookings, monkeypatch: pytest.MonkeyPatch) -> None:
    data = choices(bookings(40, seed=1))
    monkeypatch.setattr(experiment2, "larch_table", lambda: data)
    result = experiment2.run_table3(tmp_path / "out", folds=2)
    assert result.values["rows"][0]["values"]["nll"] == pytest.approx(np.log(4))
    assert all(row["error"] is None for row in result.values["rows"])
    assert "2-fold cross-validation" in str(result)
    assert (tmp_path / "out" / "comparison" / "comparison.json").exists()


def test_the_papers_settings_are_those_of_table_2() -> None:
    network = experiment2.table3_models(paper_settings=True)["PCMC-Net"]
    config = network.config
    assert (config.hidden, config.batch_size, config.lr, config.dropout) == ((512, 512), 16, 0.001, 0.5)
    assert (config.rate, config.epsilon, config.schedule, config.refit) == ("relu", 0.5, "constant", True)
    assert (config.patience, config.min_delta, config.epochs) == (5, 0.01, 100)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": "x", "simulated": True}, "data and simulated are mutually exclusive"),
        ({"sets": 100}, "sets is the size of a simulated table"),
        ({"folds": 3, "simulated": True}, "folds are only supported for larch's table"),
    ],
)
def test_conflicting_options_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        experiment2.run_table3(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
