"""The interface of all models, tested on a model with P(i) = x_i^power / sum of x^power."""

import inspect
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from numpy.typing import NDArray

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError, NotFittedError, SchemaError
from pcmcnet.models import PCMCNet, load
from pcmcnet.models.interface.choice_model import ChoiceModel, FitRun
from pcmcnet.models.interface.fitted import FittedState, TrainingTable
from pcmcnet.reports.formats import Summary


@dataclass(frozen=True, kw_only=True, slots=True)
class ProportionalConfig:
    power: float = 1.0


class Proportional(ChoiceModel):
    name = "proportional"
    config_class = ProportionalConfig

    @property
    def num_parameters(self) -> int:
        return 0

    def _fit(self, train: ChoiceData, valid: ChoiceData | None, run: FitRun) -> FittedState:
        return FittedState()

    def _log_proba(self, data: ChoiceData) -> NDArray[np.float64]:
        x = data.features["x"].values.astype(np.float64) ** self.config.power  # type: ignore[union-attr]
        log_p: NDArray[np.float64] = np.log(x / np.add.reduceat(x, data.offsets[:-1])[data.set_of_alternative])
        return log_p

    def _files(self) -> dict[str, bytes]:
        return {}

    def _restore(self, files: Mapping[str, bytes], record: Any, table: TrainingTable) -> FittedState:
        return FittedState(record=record)

    def summary(self) -> Summary:
        return Summary("Proportional", {}, ("nothing",), ())


ROLES: dict[str, Any] = {"choice_set": "set", "chosen": "took", "features": ["x"], "available": "open"}
# Rows of two sets alternate: A has x = 1, 2, 5 and an unavailable row, B has x = 1, 3.
TABLE = {
    "set": ["A", "B", "A", "A", "B", "A"],
    "label": ["p", "q", "r", "s", "t", "u"],
    "x": [1.0, 1.0, 2.0, 9.0, 3.0, 5.0],
    "open": [1, 1, 1, 0, 1, 1],
    "took": [0, 1, 1, 0, 0, 0],
    "weight": [1.0, 3.0, 1.0, 1.0, 3.0, 1.0],
}
EXPECTED = [1 / 8, 1 / 4, 2 / 8, 0.0, 3 / 4, 5 / 8]


def read(table: Any = TABLE, **more: Any) -> ChoiceData:
    return ChoiceData.from_long(table, **{**ROLES, **more})


@pytest.fixture
def model() -> Proportional:
    fitted: Proportional = Proportional().fit(read(), progress=False)
    return fitted


# -- probabilities -------------------------------------------------------------------------------------------------


def test_probabilities_are_in_table_order_and_0_if_unavailable(model: Proportional) -> None:
    np.testing.assert_allclose(model.predict_proba(read()), EXPECTED, rtol=1e-15)
    assert model.predict_proba(read())[3] == 0
    assert model.predict_log_proba(read())[3] == -np.inf


def test_probabilities_follow_shuffled_rows(model: Proportional) -> None:
    for order in np.random.default_rng(0).permuted(np.tile(np.arange(6), (20, 1)), axis=1):
        shuffled = {name: np.array(values)[order] for name, values in TABLE.items()}
        np.testing.assert_allclose(model.predict_proba(read(shuffled)), np.array(EXPECTED)[order], rtol=1e-15)


@pytest.mark.parametrize("kind", ["mapping", "arrow", "pandas", "polars", "csv", "parquet", "text"])
def test_a_raw_table_is_read_with_the_schema_of_the_model(kind: str, model: Proportional, tmp_path: Path) -> None:
    arrow = pa.table(TABLE).drop_columns(["took", "weight"])  # not needed for a prediction
    pyarrow.csv.write_csv(arrow, tmp_path / "t.csv")
    pyarrow.parquet.write_table(arrow, tmp_path / "t.parquet")
    tables = {
        "mapping": arrow.to_pydict(),
        "arrow": arrow,
        "pandas": pd.DataFrame(arrow.to_pydict()),
        "polars": pl.DataFrame(arrow.to_pydict()),
        "csv": tmp_path / "t.csv",
        "parquet": tmp_path / "t.parquet",
        "text": str(tmp_path / "t.csv"),
    }
    np.testing.assert_allclose(model.predict_proba(tables[kind]), EXPECTED, rtol=1e-15)


def test_a_raw_table_that_lacks_a_column_is_refused(model: Proportional) -> None:
    table = {("xx" if name == "x" else name): values for name, values in TABLE.items()}
    with pytest.raises(SchemaError, match=r"has no column 'x'"):
        model.predict_proba(table)


# -- predicted alternatives ----------------------------------------------------------------------------------------


def test_the_prediction_is_a_row_number_without_labels(model: Proportional) -> None:
    assert model.predict(read()).tolist() == [5, 4]


def test_the_prediction_is_a_label_if_there_are_labels() -> None:
    data = read(alternative="label")
    assert Proportional().fit(data).predict(data).tolist() == ["u", "t"]


def test_the_first_of_equally_probable_rows_is_predicted() -> None:
    table = {**TABLE, "x": [2.0] * 6}
    assert Proportional().fit(read(table)).predict(table).tolist() == [0, 1]


# -- score ---------------------------------------------------------------------------------------------------------


def test_the_score_is_the_mean_log_probability_of_the_chosen(model: Proportional) -> None:
    """Rows 1 and 2 are chosen and have probability 1/4 each."""
    assert model.score(read()) == pytest.approx(np.log(1 / 4), rel=1e-15)
    assert model.score(TABLE) == pytest.approx(np.log(1 / 4), rel=1e-15)


def test_the_score_uses_weights() -> None:
    """Row 0 of A (probability 1/8) has weight 1, row 1 of B (1/4) has weight 3."""
    table = {**TABLE, "took": [1, 1, 0, 0, 0, 0]}
    data = read(table, weight="weight")
    expected = (np.log(1 / 8) + 3 * np.log(1 / 4)) / 4
    assert Proportional().fit(data).score(data) == pytest.approx(expected, rel=1e-15)


def test_the_score_ignores_impossible_choices_of_weight_0() -> None:
    table = {**TABLE, "x": [0.0, 1.0, 2.0, 9.0, 3.0, 5.0], "took": [1, 1, 0, 0, 0, 0]}
    weighted = read({**table, "weight": [0.0, 3.0, 0.0, 0.0, 3.0, 0.0]}, weight="weight")
    model = Proportional().fit(weighted)
    with np.errstate(divide="ignore"):
        assert model.score(read(table)) == -np.inf
        assert model.score(weighted) == pytest.approx(np.log(1 / 4), rel=1e-15)


def test_a_score_needs_choices_and_positive_weight(model: Proportional) -> None:
    with pytest.raises(InputError, match="score needs the choices: read the table with chosen=<column>"):
        model.score(read(chosen=None))
    with pytest.raises(InputError, match="score: expected a choice set with a weight above 0, but none of the 0"):
        model.score(read().subset([]))


def test_chosen_probabilities_are_in_the_order_of_the_sets(model: Proportional) -> None:
    """In set A, x = 5 of 8 is chosen; in set B, x = 1 of 4."""
    table = {**TABLE, "took": [0, 1, 0, 0, 0, 1]}
    assert model.chosen_probabilities(table) == pytest.approx([5 / 8, 1 / 4], rel=1e-15)
    assert model.chosen_probabilities(read().subset([])).tolist() == []
    with pytest.raises(InputError, match="chosen_probabilities needs the choices"):
        model.chosen_probabilities(read(chosen=None))


# -- fit -----------------------------------------------------------------------------------------------------------


def test_fit_returns_the_model_and_does_not_change_the_data() -> None:
    model, data = Proportional(), read()
    before = data.fingerprint()
    assert model.fit(data) is model
    assert data.fingerprint() == before


def test_a_failed_fit_does_not_wait_for_the_table_description(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, described = threading.Event(), threading.Event()

    def describe(data: ChoiceData) -> dict[str, Any]:
        ended.wait(60)
        described.set()
        return {}

    def fail(*arguments: object) -> None:
        raise InputError("there is nothing to learn.")

    monkeypatch.setattr(ChoiceData, "describe", describe)
    monkeypatch.setattr(Proportional, "_fit", fail)
    with pytest.raises(InputError, match="nothing to learn"):
        Proportional().fit(read())
    assert not described.is_set()
    ended.set()


def test_fit_accepts_only_choice_data() -> None:
    with pytest.raises(InputError, match=r"train: expected choice sets .* got dict. .* pn.ChoiceData.from_long\(table"):
        Proportional().fit(TABLE)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"valid: expected choice sets .* got dict. .* fit needs no y"):
        Proportional().fit(read(), TABLE)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["train", "valid"])
def test_fit_needs_choices_and_positive_weight(part: str) -> None:
    weighted = read(weight="weight")
    idle = read({**TABLE, "weight": [0.0, 3.0, 0.0, 0.0, 3.0, 0.0]}, weight="weight").subset([0])
    for bad, message in (
        (read(chosen=None), "fitting needs the choices: read the table with chosen=<column>"),
        (weighted.subset([]), f"{part}: expected a choice set with a weight above 0, but none of the 0"),
        (idle, f"{part}: expected a choice set with a weight above 0, but none of the 1"),
    ):
        parts = {"train": weighted, "valid": weighted, part: bad}
        with pytest.raises(InputError, match=message):
            Proportional().fit(parts["train"], parts["valid"])


@pytest.mark.parametrize("seed", [-1, 1.5, "0", True, 2**63])
def test_a_seed_must_be_a_whole_number_of_at_least_0(seed: Any) -> None:
    with pytest.raises(ConfigError, match=r"seed must be a whole number of at least 0 and at most .*, got"):
        Proportional().fit(read(), seed=seed)


def test_a_seed_may_be_a_numpy_integer() -> None:
    model = Proportional().fit(read(), seed=np.int64(3))  # type: ignore[arg-type]
    assert type(model.table_.seed) is int
    assert model.table_.seed == 3


def test_resuming_needs_a_folder() -> None:
    with pytest.raises(InputError, match="resume=True needs the run_folder"):
        Proportional().fit(read(), resume=True)


# -- before fit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", ["predict_proba", "predict_log_proba", "predict", "score", "save"])
def test_an_unfitted_model_raises_not_fitted_error(ask: str, tmp_path: Path) -> None:
    argument: Any = tmp_path / "model" if ask == "save" else read()
    with pytest.raises(NotFittedError, match="this Proportional is not fitted: call fit, or load a saved model"):
        getattr(Proportional(), ask)(argument)
    assert list(tmp_path.iterdir()) == []


def test_the_repr_shows_the_options_that_differ_from_the_defaults(model: Proportional) -> None:
    assert repr(Proportional(power=2.0)) == "Proportional(power=2.0)"
    assert repr(Proportional(power=1.0)) == "Proportional()"


def test_a_notebook_shows_state_and_changed_options_first(model: Proportional) -> None:
    html = Proportional(power=2.0)._repr_html_()
    assert '<th scope="row">power</th><td>2.0</td>' in html
    assert "Options with their defaults" not in html  # the only option is changed
    assert '<th scope="row">power</th><td>1.0</td>' in model._repr_html_()  # folded
    assert "fitted to" in model._repr_html_()


def test_the_signature_lists_options_and_unknown_ones_are_refused() -> None:
    assert str(inspect.signature(Proportional)) == str(inspect.signature(ProportionalConfig))
    with pytest.raises(ConfigError, match=r"unknown option 'pover'. Did you mean 'power'\?"):
        Proportional(pover=2.0)


@pytest.mark.parametrize("place", [5, None, ["folder"]])
def test_a_folder_must_be_a_path(place: Any, fitted: PCMCNet) -> None:
    for use in (fitted.save, load):
        with pytest.raises(InputError, match="expected the path of a folder, got"):
            use(place)
