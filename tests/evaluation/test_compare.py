import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, ConfigError, InputError, SchemaError, TrainingError
from pcmcnet.evaluation import compare
from pcmcnet.evaluation.bootstrap import aggregate_by_group, bootstrap_interval, p_values, resampled_means
from pcmcnet.evaluation.compare import (
    FoldIndices,
    fit_and_test,
    model_identity,
    plan_folds,
    unfitted_copy,
)
from pcmcnet.evaluation.comparison import Comparison
from pcmcnet.evaluation.paired_differences import Cell, Failure, build_comparison
from pcmcnet.evaluation.report import evaluate
from pcmcnet.models import MNL, PCMCNet, PointerNetwork, RandomForest, Uniform
from pcmcnet.models.interface.choice_model import ChoiceModel

NET: dict[str, Any] = {"hidden": (4,), "epochs": 2, "weight_decay": 0.0, "batch_size": 8, "dropout": 0.1}
Kinds = dict[str, Any]


def quietly(models: Any, data: ChoiceData, *args: Any, **options: Any) -> Comparison:
    return compare(models, data, *args, progress=False, **options)


def without_times(comparison: Comparison) -> dict[str, Any]:
    """Return the result without its times."""
    result = comparison.to_dict()
    for row in result["rows"]:
        for part in (row, *row["folds"]):
            part["fit_seconds"] = part["predict_seconds"] = None
    return result


# -- measures ------------------------------------------------------------------------------------------------------


def test_models_share_folds_and_every_set_is_tested_once(kinds: Kinds, trips: ChoiceData) -> None:
    models = {"one": kinds["Tilt"](), "two": kinds["TiltScores"](scale=2.0)}
    result = quietly(models, trips, folds=3, seed=4, valid=0.2, device="cpu")
    fits = kinds["Tilt"].fits
    assert len(fits) == 6
    for k, (rest, test) in enumerate(trips.folds(3, seed=4)):
        first, second = fits[2 * k : 2 * k + 2]
        assert first.table_ == second.table_
        assert [part.fingerprint() for part in first.parts] == [part.fingerprint() for part in second.parts]
        assert (first.seed, first.device) == (4, "cpu")
        assert sorted([*first.parts[0].set_ids, *first.parts[1].set_ids]) == sorted(rest.set_ids)
        for tested in kinds["Tilt"].predicted[2 * k : 2 * k + 2]:
            assert tested.set_ids.tolist() == test.set_ids.tolist()
    assert result.n_sets == len(trips)
    assert [fold.n_sets for fold in result["one"].folds] == [len(test) for _, test in trips.folds(3, seed=4)]


def test_compare_does_not_change_its_models(kinds: Kinds, trips: ChoiceData) -> None:
    fitted = kinds["Tilt"](scale=3.0).fit(trips)
    theta, new = fitted.theta, kinds["Tilt"]()
    quietly({"fitted": fitted, "new": new}, trips, folds=2)
    assert fitted.theta == theta
    assert new.fitted_ is None


def test_values_agree_with_an_evaluation_of_each_fold(
    kinds: Kinds, read_trips: Callable[..., ChoiceData], trips_table: Callable[[], dict[str, Any]]
) -> None:
    data = read_trips(trips_table(), weight="weight")
    result = quietly({"t": kinds["Tilt"](scale=2.0)}, data, folds=4, seed=1)
    total, weight = 0.0, 0.0
    for k, (rest, test) in enumerate(data.folds(4, seed=1)):
        report = evaluate(kinds["Tilt"](scale=2.0).fit(rest, seed=1), test)
        assert dict(result["t"].folds[k].values) == pytest.approx(report.values, rel=1e-12)
        assert report.nll is not None
        total, weight = total + report.nll * test.weights.sum(), weight + test.weights.sum()
    assert result["t"].values["nll"] == pytest.approx(total / weight, rel=1e-12)


def test_the_paired_difference_is_the_one_computed_by_hand(kinds: Kinds, trips: ChoiceData) -> None:
    """The difference is the mean over sets of the two models' NLLs, computed by hand in each fold."""
    scales, gaps = {"mild": 0.5, "firm": 3.0}, []
    result = quietly({label: kinds["Tilt"](scale=s) for label, s in scales.items()}, trips, folds=3)
    for rest, test in trips.folds(3, seed=0):
        chosen = test.offsets[:-1] + test.require_chosen("a test")
        nll = [
            -test.from_rows(kinds["Tilt"](scale=s).fit(rest).predict_log_proba(test))[chosen] for s in scales.values()
        ]
        gaps.append(nll[0] - nll[1])
    mean = float(np.concatenate(gaps).mean())
    best, other = ("firm", "mild") if mean > 0 else ("mild", "firm")
    assert result.best == best
    assert result[other].difference == pytest.approx(abs(mean), rel=1e-12)
    low, high = result[other].intervals["difference"]
    assert low < abs(mean) < high


def test_a_split_tests_one_part(kinds: Kinds, trips: ChoiceData) -> None:
    result = quietly({"t": kinds["Tilt"]()}, trips, split=(0.75, 0.25), seed=2)
    (fit,) = kinds["Tilt"].fits
    train, test = trips.split((0.75, 0.25), seed=2)
    assert fit.table_.fingerprint == train.fingerprint()
    assert result.n_sets == len(test) == 10
    assert "one split, 75% for training and 25% for testing: 10 choice sets tested" in str(result)


def test_a_given_test_part_is_predicted_by_fits_to_the_other_choice_sets(
    kinds: Kinds, trips: ChoiceData, tmp_path: Path
) -> None:
    train, test = trips[:25], trips[25:]
    result = quietly({"t": kinds["Tilt"]()}, train, test=test, seed=2, folder=tmp_path)
    report = evaluate(kinds["Tilt"]().fit(train, seed=2), test)
    assert dict(result["t"].values) == pytest.approx(report.values, rel=1e-12)
    assert [fold.n_sets for fold in result["t"].folds] == [len(test)]
    assert kinds["Tilt"].fits[0].table_.fingerprint == train.fingerprint()
    assert result.how.startswith(f"one fit, tested on the {len(test)} choice sets of the given test part;")
    # Another test part of the same table is another comparison.
    with pytest.raises(ArtifactError, match="different settings: test"):
        quietly({"t": kinds["Tilt"]()}, trips[:20], test=trips[20:], seed=2, folder=tmp_path)


def test_groups_of_a_given_test_part_are_resampled_whole(kinds: Kinds, trips: ChoiceData) -> None:
    train, test, sets = trips[:25], trips[25:], np.arange(len(trips))
    ungrouped, single, fives = (
        quietly({"t": kinds["Tilt"]()}, train, test=test, by=by)["t"] for by in (None, sets, sets // 5)
    )
    assert single.intervals == ungrouped.intervals
    assert fives.intervals != ungrouped.intervals
    assert fives.values == ungrouped.values


def test_groups_stay_whole_and_widen_intervals(kinds: Kinds, trips: ChoiceData) -> None:
    result = quietly({"t": kinds["Tilt"]()}, trips, folds=2, by="person")
    for fit, tested in zip(kinds["Tilt"].fits, kinds["Tilt"].predicted, strict=True):
        people = [{*part.keep["person"].plain().tolist()} for part in (fit.parts[0], tested)]
        assert not people[0] & people[1]
    by_groups = quietly({"t": kinds["Tilt"]()}, trips, folds=2, by=trips.groups("person"))
    assert by_groups["t"].intervals == result["t"].intervals
    assert quietly({"t": kinds["Tilt"]()}, trips, folds=2)["t"].intervals != result["t"].intervals


def test_declared_persons_are_the_groups(
    kinds: Kinds, trips: ChoiceData, read_trips: Callable[..., ChoiceData], trips_table: Callable[..., dict[str, Any]]
) -> None:
    panel, models = read_trips(trips_table(), person="person"), {"t": kinds["Tilt"]()}
    result = quietly(models, panel, folds=2)
    assert "sets are grouped by person for splitting and resampling" in str(result)
    assert result["t"].intervals == quietly(models, trips, folds=2, by="person")["t"].intervals
    at_random = quietly(models, panel, folds=2, by="trip")
    assert "stay whole" not in str(at_random)
    assert at_random["t"].intervals == quietly(models, trips, folds=2)["t"].intervals != result["t"].intervals


def test_scores_are_marked_and_rankings_have_no_nll(kinds: Kinds, trips: ChoiceData) -> None:
    models = {
        "p": kinds["Tilt"](scale=0.1),
        "s": kinds["TiltScores"](),
        "r": kinds["TiltRanking"](),
        "z": kinds["Sure"](),
    }
    result = quietly(models, trips, folds=2, top=(1, 3))
    assert result.best == "p"  # though the scores have the lower NLL
    assert result["s"].values["nll"] < result["p"].values["nll"]
    assert set(result["r"].values) == {"top_1", "top_3"}
    assert result["r"].values == {n: result["s"].values[n] for n in ("top_1", "top_3")}  # the same order
    assert result["z"].values["nll"] == np.inf
    assert result["z"].n_impossible > 0
    json.dumps(result.to_dict(), allow_nan=False)


def test_the_same_seed_gives_the_same_result(kinds: Kinds, trips: ChoiceData) -> None:
    models = {"t": kinds["Tilt"](), "net": PCMCNet(**NET)}
    first = without_times(quietly(models, trips, folds=2, seed=1))
    assert without_times(quietly(models, trips, folds=2, seed=1)) == first
    assert without_times(quietly(models, trips, folds=2, seed=2)) != first


# -- no leakage from test rows ---------------------------------------------------------------------------------------


def corrupt(table: dict[str, Any], sets: list[int]) -> dict[str, Any]:
    """Corrupt some sets with other choices, extreme numbers and categories of no other set."""
    rows = np.isin(table["trip"], sets)
    first = np.unique(table["trip"], return_index=True)[1]
    last = np.append(first[1:], len(rows)) - 1
    took = np.where(rows, 0, table["took"])
    for k in sets:
        took[last[k] if table["took"][first[k]] else first[k]] = 1
    colour = np.where(rows, "blue", table["colour"])
    return {**table, "took": took, "x": np.where(rows, 1e6 * table["x"] + 7, table["x"]), "colour": colour}


def fitted_states(
    models: dict[str, ChoiceModel], data: ChoiceData, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> list[dict[str, bytes]]:
    """Run a comparison and return the saved form of every fitted model, with its description of the training part."""
    states: list[dict[str, bytes]] = []
    fit = ChoiceModel.fit

    def record(model: ChoiceModel, *args: Any, **more: Any) -> Any:
        fit(model, *args, **more)
        files = {name: file for name, file in model._files().items() if not name.endswith(".skops")}  # contains a date
        states.append({**files, "predictions": model.predict_log_proba(args[0]).tobytes()})
        return model

    with monkeypatch.context() as patch:
        patch.setattr(ChoiceModel, "fit", record)
        result = quietly(models, data, **options)
    assert [row.error for row in result.rows] == [None] * len(models)
    return states


@pytest.mark.parametrize("valid", [0.0, 0.25])
def test_test_rows_do_not_influence_the_fit(
    valid: float,
    kinds: Kinds,
    trips_table: Callable[[], dict[str, Any]],
    read_trips: Callable[..., ChoiceData],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Weights, scales and categories are the same bytes, whatever the test sets contain."""
    table = trips_table()
    forest, pointer = RandomForest(trees=3), PointerNetwork(epochs=1, weight_decay=0.0)
    models = {"net": PCMCNet(**NET), "tilt": kinds["Tilt"](), "mnl": MNL(), "rf": forest, "dpn": pointer}
    options: dict[str, Any] = {"split": (0.7, 0.3), "valid": valid}
    tested = [int(i) for i in read_trips(table).split((0.7, 0.3), seed=0)[1].set_ids]
    clean = fitted_states(models, read_trips(table), monkeypatch, **options)
    spoilt = read_trips(corrupt(table, tested))
    assert fitted_states(models, spoilt, monkeypatch, **options) == clean
    trained = next(k for k in range(len(spoilt)) if k not in tested)  # the training part does influence them
    assert fitted_states(models, read_trips(corrupt(table, [trained])), monkeypatch, **options) != clean


# -- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "message"),
    [(SchemaError("no column 'x'."), "no column 'x'."), (ZeroDivisionError("by 0"), "ZeroDivisionError: by 0")],
)
def test_a_failed_model_is_reported_and_the_others_continue(
    error: Exception, message: str, kinds: Kinds, trips: ChoiceData
) -> None:
    kinds["Brittle"].error = error
    result = quietly({"a": kinds["Tilt"](), "bad": kinds["Brittle"](), "b": kinds["Tilt"](scale=2.0)}, trips, folds=3)
    assert [row.error for row in result.rows] == [None, message, None]
    assert kinds["Brittle"].tried == 1  # not fitted on the other folds
    assert f"bad    failed: {message}" in str(result)
    alone = quietly({"a": kinds["Tilt"](), "b": kinds["Tilt"](scale=2.0)}, trips, folds=3)
    assert [row["values"] for row in without_times(alone)["rows"]] == [
        row["values"] for row in without_times(result)["rows"] if not row["error"]
    ]


def test_a_model_with_invalid_predictions_fails(
    kinds: Kinds, trips: ChoiceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds["Sure"], "_log_proba", lambda self, data: np.zeros(len(data.rows)))
    result = quietly({"bad": kinds["Sure"](), "good": kinds["Tilt"]()}, trips, folds=2)
    assert "choice sets have probabilities that do not sum to 1" in str(result["bad"].error)
    assert result.best == "good"


def test_all_models_may_fail(kinds: Kinds, trips: ChoiceData) -> None:
    result = quietly({"bad": kinds["Brittle"]()}, trips, folds=2)
    assert (result.best, result["bad"].error) == (None, "RuntimeError: out of luck")
    assert "failed: RuntimeError: out of luck" in result.to_markdown()
    assert result.to_arrow().num_rows == 1


def test_an_interrupt_is_not_caught(kinds: Kinds, trips: ChoiceData) -> None:
    kinds["Brittle"].error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        quietly({"bad": kinds["Brittle"]()}, trips, folds=2)


# -- folders -------------------------------------------------------------------------------------------------------


def test_an_interrupted_comparison_resumes_without_refitting(
    kinds: Kinds, trips: ChoiceData, tmp_path: Path, files_in: Callable[[Path], list[str]]
) -> None:
    def models() -> dict[str, ChoiceModel]:
        return {"a": kinds["Tilt"](), "b": kinds["Brittle"](), "net": PCMCNet(**NET)}

    kinds["Brittle"].at = set()
    whole = quietly(models(), trips, folds=3)
    kinds["Tilt"].fits.clear()
    kinds["Brittle"].tried, kinds["Brittle"].at, kinds["Brittle"].error = 0, {1}, KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        quietly(models(), trips, folds=3, folder=tmp_path / "out")
    assert len(kinds["Tilt"].fits) == 3  # fits of a, b and a; the second fit of b was interrupted
    done = files_in(tmp_path / "out")
    assert len(done) == 1 + 4  # with the network of the first fold
    result = quietly(models(), trips, folds=3, folder=tmp_path / "out")
    assert len(kinds["Tilt"].fits) == 6
    assert without_times(result) == without_times(whole)
    assert json.loads((tmp_path / "out" / "comparison.json").read_text()) == result.to_dict()
    assert result.to_markdown() in (tmp_path / "out" / "comparison.md").read_text()

    again = quietly(models(), trips, folds=3, folder=tmp_path / "out")
    assert len(kinds["Tilt"].fits) == 6
    assert again.to_dict() == result.to_dict()  # times included


def test_failed_cells_are_retried(kinds: Kinds, trips: ChoiceData, tmp_path: Path) -> None:
    models = {"a": kinds["Tilt"](), "b": kinds["Brittle"]()}
    assert quietly(models, trips, folds=2, folder=tmp_path)["b"].error is not None
    assert quietly(models, trips, folds=2, folder=tmp_path)["b"].error is None
    assert len(kinds["Tilt"].fits) == 4


def test_models_may_be_added_removed_and_renamed(kinds: Kinds, trips: ChoiceData, tmp_path: Path) -> None:
    first = quietly({"a": kinds["Tilt"](), "b": kinds["Tilt"](scale=2.0)}, trips, folds=2, folder=tmp_path)
    second = quietly({"B": kinds["Tilt"](scale=2.0), "c": kinds["Tilt"](scale=3.0)}, trips, folds=2, folder=tmp_path)
    assert len(kinds["Tilt"].fits) == 6
    assert second["B"].values == first["b"].values
    assert [row.label for row in second.rows] == ["B", "c"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, r"different settings: seed \(0 there, 1 here\)\."),
        ({"folds": 3}, r"different settings: folds \(2 there, 3 here\)\."),
        ({"folds": None, "split": (0.5, 0.5)}, r"different settings: folds \(2 there, 1 here\), split \(null there"),
        ({"by": "person"}, r"different settings: by \(null there, \"person\" here\), groups\."),
        ({"valid": 0.2}, r"different settings: valid \(0.0 there, 0.2 here\)\."),
        ({"top": (1,)}, r"different settings: top \(\[1, 5\] there, \[1\] here\)\."),
    ],
)
def test_the_folder_of_another_comparison_is_refused(
    change: dict[str, Any], message: str, kinds: Kinds, trips: ChoiceData, tmp_path: Path
) -> None:
    models = {"a": kinds["Tilt"]()}
    quietly(models, trips, folds=2, folder=tmp_path)
    with pytest.raises(ArtifactError, match=message):
        quietly(models, trips, **{"folds": 2, **change}, folder=tmp_path)
    assert len(kinds["Tilt"].fits) == 2


def test_the_folder_of_another_table_is_refused(kinds: Kinds, trips: ChoiceData, tmp_path: Path) -> None:
    quietly({"a": kinds["Tilt"]()}, trips, folds=2, folder=tmp_path)
    with pytest.raises(ArtifactError, match=r"different settings: table\. Use the same table"):
        quietly({"a": kinds["Tilt"]()}, trips.subset(np.arange(39)), folds=2, folder=tmp_path)


def test_invalid_input_writes_nothing(kinds: Kinds, trips: ChoiceData, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        quietly({"a": kinds["Tilt"]()}, trips, valid=2, folder=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


# -- progress and bad input ------------------------------------------------------------------------------------------


def test_progress_is_a_line_per_model_and_fold(
    kinds: Kinds, trips: ChoiceData, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "pcmcnet"):
        compare({"a": kinds["TiltRanking"](), "bad": kinds["Brittle"]()}, trips, folds=2)
    lines = [line.partition(": ")[::2] for line in caplog.messages]
    assert [name for name, _ in lines] == ["fold 1/2, a", "fold 1/2, bad", "fold 2/2, a"]
    assert lines[0][1].startswith("TOP 1 0.")
    assert lines[1][1] == "failed: RuntimeError: out of luck"


class NotAModel:
    pass


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ({}, r"expected a list of models, such as .* or a mapping from labels to models, got {}"),
        ([], "expected a list of models"),
        ("mnl", "expected a list of models"),
        ([PCMCNet], r"expected a model such as PCMCNet\(\), got the class PCMCNet"),
        ({"": PCMCNet()}, "expected a printable label for each model, got ''"),
        ({3: PCMCNet()}, "expected a printable label for each model, got 3"),
        ({"a\nb": PCMCNet()}, "expected a printable label for each model"),
        ({"net": PCMCNet}, r"models, 'net': expected a model such as PCMCNet\(\), got the class PCMCNet"),
        ({"net": NotAModel()}, r"models, 'net': expected a model such as PCMCNet\(\), got NotAModel"),
    ],
)
def test_objects_that_are_not_models_are_refused(models: Any, message: str, trips: ChoiceData) -> None:
    with pytest.raises(InputError, match=message):
        compare(models, trips)


def test_invalid_tables_are_refused(kinds: Kinds, trips: ChoiceData, trips_table: Callable[[], dict[str, Any]]) -> None:
    models, table = {"a": kinds["Tilt"]()}, trips_table()
    with pytest.raises(InputError, match="data: expected ChoiceData, got dict"):
        compare(models, table)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a comparison needs the choices"):
        compare(models, ChoiceData.from_long(table, choice_set="trip", features=["x"]))
    with pytest.raises(InputError, match="weight above 0, got none in 0"):
        compare(models, trips.subset([]))
    with pytest.raises(SchemaError, match="column 'persn' is neither"):
        compare(models, trips, by="persn")
    with pytest.raises(ConfigError, match="resamples must be a whole number"):
        compare(models, trips, resamples=-1)


def test_a_logit_without_a_finite_estimate_is_noted(tmp_path: Path) -> None:
    """The cheaper alternative is always chosen, so the likelihood has no maximum."""
    table = {"trip": np.repeat(np.arange(20), 2), "took": [1, 0] * 20, "cost": np.tile([1.0, 2.0], 20)}
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    for _ in range(2):  # fitted, then read from the folder
        result = quietly({"logit": MNL()}, data, folds=2, folder=tmp_path / "out")
        assert any("logit: no finite estimate for 'cost'" in note and "2 of 2 fits" in note for note in result.notes)


# -- Cross validation --------------------------------------------------------------------------------------------------


PLAIN: dict[str, Any] = {"folds": None, "split": None, "valid": 0.0, "seed": 3}


def ids(part: ChoiceData | None) -> list[int]:
    assert part is not None
    return [int(i) for i in part.set_ids]


@pytest.mark.parametrize("by", [None, "person"])
def test_folds_equal_those_of_the_data(by: str | None, trips: ChoiceData) -> None:
    plan = plan_folds(trips.groups(by), **{**PLAIN, "folds": 4})
    expected = trips.folds(4, seed=3, by=by)
    assert [[ids(f.select(trips).train), ids(f.select(trips).test)] for f in plan] == [
        [ids(a), ids(b)] for a, b in expected
    ]
    assert sorted(np.concatenate([f.test for f in plan]).tolist()) == list(range(len(trips)))
    assert all(f.valid is None for f in plan)


def test_the_default_is_five_folds(trips: ChoiceData) -> None:
    assert len(plan_folds(trips.groups(None), **PLAIN)) == 5


def test_a_split_equals_that_of_the_data(trips: ChoiceData) -> None:
    (fold,) = plan_folds(trips.groups("person"), **{**PLAIN, "split": (0.7, 0.3)})
    train, test = trips.split((0.7, 0.3), seed=3, by="person")
    assert (ids(fold.select(trips).train), ids(fold.select(trips).test)) == (ids(train), ids(test))


def test_validation_parts_are_whole_groups_of_the_training_part(trips: ChoiceData) -> None:
    people = trips.groups("person")
    for fold in plan_folds(people, **{**PLAIN, "folds": 2, "valid": 0.4}):
        assert fold.valid is not None
        parts = [fold.train, fold.valid, fold.test]
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(trips)))
        for k in (0, 1):
            assert not set(people[parts[k]]) & set(people[np.concatenate(parts[k + 1 :])])
        assert len(fold.valid) == pytest.approx(0.4 * 20, abs=4)  # plus or minus one person


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": 3, "split": (0.8, 0.2)}, "expected one of folds, split and test, got several"),
        ({"folds": 1}, "the number of folds must be between 2 and 40"),
        ({"split": (0.8, 0.1, 0.1)}, r"split must be the shares .*got \(0.8, 0.1, 0.1\)"),
        ({"split": 0.2}, "split must be the shares .*got 0.2"),
        ({"split": (0.8, 0.8)}, "positive shares that add up to 1"),
        ({"valid": 1.0}, "valid must be a number of at least 0 and below 1"),
        ({"folds": 2, "valid": 0.5, "seed": -1}, "seed must be a whole number"),
    ],
)
def test_invalid_plans_are_refused(change: dict[str, Any], message: str, trips: ChoiceData) -> None:
    with pytest.raises(InputError, match=message):
        plan_folds(trips.groups(None), **{**PLAIN, **change})


def test_a_failure_is_one_line_and_names_foreign_exceptions() -> None:
    assert Failure.of(ConfigError("no\n such  thing.")) == Failure("ConfigError", "no such thing.")
    assert Failure.of(KeyError("x")) == Failure("KeyError", "KeyError: 'x'")
    assert Failure.of(MemoryError()) == Failure("MemoryError", "MemoryError")
    assert Failure.of(TrainingError()).message == "TrainingError"


def test_an_unfitted_copy_has_only_the_options(kinds: dict[str, Any], trips: ChoiceData) -> None:
    fitted = kinds["TiltScores"](scale=3.0, sizes=(4, 5)).fit(trips)
    copy = unfitted_copy(fitted)
    assert (type(copy), copy.config) == (type(fitted), fitted.config)
    assert copy.fitted_ is None


def test_identities_differ_by_options_and_classes(kinds: dict[str, Any]) -> None:
    result = [kinds["Tilt"](), kinds["Tilt"](scale=2.0), kinds["TiltScores"]()]
    assert len({str(model_identity(model)) for model in result}) == 3
    assert model_identity(kinds["Tilt"]()) == model_identity(kinds["Tilt"]())


def test_a_cell_holds_the_evaluation_of_the_fitted_model(kinds: dict[str, Any], trips: ChoiceData) -> None:
    (fold,) = plan_folds(trips.groups(None), **{**PLAIN, "split": (0.7, 0.3), "valid": 0.2})
    parts, model = fold.select(trips), kinds["Tilt"](scale=2.0)
    cell = fit_and_test(model, parts, top=(1, 2), seed=5, device="cpu")
    (fitted,) = kinds["Tilt"].fits
    assert fitted is not model
    assert fitted.parts == (parts.train, parts.valid)
    assert (fitted.seed, fitted.device) == (5, "cpu")
    report = evaluate(fitted, parts.test, top=(1, 2))
    assert {name: values.mean() for name, values in cell.metrics.items()} == pytest.approx(report.values, rel=1e-12)
    assert cell.parameters == 1
    assert min(cell.fit_seconds, cell.predict_seconds) > 0


def test_models_predict_without_seeing_the_choices(kinds: dict[str, Any], trips: ChoiceData) -> None:
    (fold,) = plan_folds(trips.groups(None), **{**PLAIN, "split": (0.5, 0.5)})
    fit_and_test(kinds["Tilt"](), fold.select(trips), top=(1,), seed=0, device="cpu")
    (table,) = kinds["Tilt"].predicted
    assert table.chosen is None
    assert ids(table) == ids(fold.select(trips).test)


def test_models_without_early_stopping_get_the_validation_part(
    trips: ChoiceData, kinds: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds["Tilt"], "stops_early", False)
    (fold,) = plan_folds(trips.groups(None), **{**PLAIN, "split": (0.7, 0.3), "valid": 0.2})
    parts = fold.select(trips)
    assert parts.valid is not None
    fit_and_test(kinds["Tilt"](), parts, top=(1,), seed=0, device="cpu")
    train, valid = kinds["Tilt"].fits[-1].parts
    assert valid is None
    assert len(train) == len(parts.train) + len(parts.valid)


# -- Pooling -----------------------------------------------------------------------------------------------------------
# Four sets of two alternatives in two folds: all values can be computed by hand.


PLAN = [FoldIndices(np.array([0, 2]), None, np.array([1, 3])), FoldIndices(np.array([1, 3]), None, np.array([0, 2]))]
TESTED = np.array([1, 3, 0, 2])
NLL = {"a": np.array([1.0, 2.0, 3.0, 4.0]), "b": np.array([2.0, 2.0, 5.0, 4.0])}  # of sets 0, 1, 2, 3


def data(weights: list[float] | None = None) -> ChoiceData:
    table = {"trip": np.repeat(np.arange(4), 2), "took": [1, 0] * 4, "w": np.repeat(weights or [1, 1, 1, 1], 2)}
    return ChoiceData.from_long(table, choice_set="trip", chosen="took", weight="w")


def cells(nll: np.ndarray[Any, Any], seconds: tuple[float, float] = (1.0, 3.0)) -> list[Cell | Failure]:
    return [
        Cell({"nll": nll[fold.test], "top_1": (nll[fold.test] < 2.5).astype(float)}, s, s / 10, 4 + k)
        for k, (fold, s) in enumerate(zip(PLAN, seconds, strict=True))
    ]


def compared(
    kinds: dict[str, Any], outcomes: dict[str, Any], table: ChoiceData | None = None, **change: Any
) -> Comparison:
    gives = change.pop("gives", {})
    models = {label: kinds[gives.get(label, "Tilt")]() for label in outcomes}
    groups, design = change.pop("groups", None), {"top": (1,), "seed": 0, "resamples": 200, **change}
    return build_comparison(models, outcomes, table or data(), [fold.test for fold in PLAN], groups, design)


def test_values_are_means_over_all_sets(kinds: dict[str, Any]) -> None:
    """a: (1 + 2 + 3 + 4) / 4 = 2.5; its folds have (2 + 4) / 2 and (1 + 3) / 2."""
    result = compared(kinds, {label: cells(nll) for label, nll in NLL.items()})
    assert result.best == "a"
    assert dict(result["a"].values) == {"nll": 2.5, "top_1": 0.5}
    assert result["b"].values["nll"] == 3.25
    assert [fold.values["nll"] for fold in result["a"].folds] == [3.0, 2.0]
    assert result["a"].spread("nll") == pytest.approx(np.sqrt(0.5), rel=1e-15)
    assert (result["a"].fit_seconds, result["a"].predict_seconds, result["a"].parameters) == (2.0, 0.2, 4)
    assert result.uniform["nll"] == pytest.approx(np.log(2), rel=1e-15)


def test_means_are_weighted_and_sets_of_weight_0_do_not_count(kinds: dict[str, Any]) -> None:
    """Weights 1, 2, 0, 1: a (1 + 2 2 + 4) / 4, although set 2 is impossible under b; b (2 + 4 + 4) / 4."""
    nll = {**NLL, "b": np.array([2.0, 2.0, np.inf, 4.0])}
    result = compared(kinds, {label: cells(values) for label, values in nll.items()}, data([1, 2, 0, 1]))
    assert result["a"].values["nll"] == 9 / 4
    assert (result["b"].values["nll"], result["b"].n_impossible) == (10 / 4, 0)
    assert result["b"].difference == pytest.approx(1 / 4, rel=1e-15)
    assert result.n_sets == 4


def test_differences_are_paired_by_set(kinds: dict[str, Any]) -> None:
    """b - a is (1, 0, 2, 0): mean 0.75, and its interval and p-value are those of these four numbers."""
    result = compared(kinds, {label: cells(nll) for label, nll in NLL.items()})
    differences = (NLL["b"] - NLL["a"])[TESTED]
    assert result["b"].difference == 0.75
    rng = np.random.default_rng
    assert result["b"].intervals["difference"] == pytest.approx(
        bootstrap_interval(differences, rng=rng(0), resamples=200), rel=1e-12
    )
    means = resampled_means(differences, rng=rng(0), resamples=200)
    assert result["b"].p_value == p_values(means[:, None])[0]
    expected = bootstrap_interval(NLL["a"][TESTED], rng=rng(0), resamples=200)
    assert result["a"].intervals["nll"] == pytest.approx(expected, rel=1e-12)
    assert (result["a"].difference, result["a"].p_value, "difference" in result["a"].intervals) == (0.0, None, False)


def test_a_constant_advantage_is_significant(kinds: dict[str, Any]) -> None:
    """The intervals overlap, but the paired difference is 0.1 in every set."""
    result = compared(kinds, {"a": cells(NLL["a"]), "b": cells(NLL["a"] + 0.1)})
    assert result["b"].intervals["nll"][0] < result["a"].intervals["nll"][1]
    assert result["b"].intervals["difference"] == pytest.approx((0.1, 0.1), rel=1e-12)
    assert result["b"].p_value == pytest.approx(2 / 201, rel=1e-12)


def test_groups_are_resampled_whole(kinds: dict[str, Any]) -> None:
    groups = np.array([0, 0, 1, 1])
    result = compared(kinds, {label: cells(nll) for label, nll in NLL.items()}, groups=groups)
    means, total = aggregate_by_group(NLL["a"][TESTED][:, None], np.ones(4), groups[TESTED])
    expected = bootstrap_interval(means, total, rng=np.random.default_rng(0), resamples=200)[0]
    assert result["a"].intervals["nll"] == pytest.approx(expected, rel=1e-12)
    assert result["a"].intervals["nll"] == pytest.approx(
        (1.5, 3.5), rel=1e-12
    )  # two persons: the range of their values
    assert result["a"].values["nll"] == 2.5


def test_one_group_has_no_interval(kinds: dict[str, Any]) -> None:
    result = compared(kinds, {label: cells(nll) for label, nll in NLL.items()}, groups=np.zeros(4, np.int64))
    assert result["b"].intervals["difference"] == (-np.inf, np.inf)
    assert result["b"].p_value is None


def test_zero_resamples_give_no_intervals_and_no_p_value(kinds: dict[str, Any]) -> None:
    result = compared(kinds, {label: cells(nll) for label, nll in NLL.items()}, resamples=0)
    assert (result["b"].intervals, result["b"].p_value, result["b"].difference) == ({}, None, 0.75)


def test_the_best_model_gives_finite_log_probabilities(kinds: dict[str, Any]) -> None:
    outcomes = {
        "scores": cells(NLL["a"] - 1),
        "infinite": cells(np.array([0.0, 0.0, 0.0, np.inf])),
        "a": cells(NLL["a"]),
        "b": cells(NLL["b"]),
    }
    result = compared(kinds, outcomes, gives={"scores": "TiltScores"})
    assert result.best == "a"
    assert result["scores"].difference == -1.0
    assert (result["infinite"].values["nll"], result["infinite"].difference) == (np.inf, np.inf)
    assert result["infinite"].n_impossible == 1
    assert result["infinite"].intervals["difference"][1] == np.inf


def test_scores_alone_have_no_best_model(kinds: dict[str, Any]) -> None:
    result = compared(kinds, {"s": cells(NLL["a"])}, gives={"s": "TiltScores"})
    assert (result.best, result["s"].difference) == (None, None)


def test_a_ranking_has_only_its_own_metrics(kinds: dict[str, Any]) -> None:
    hits: list[Cell | Failure] = [Cell({"top_1": np.array([1.0, 0.0])}, 1.0, 1.0, 0)] * 2
    result = compared(kinds, {"a": cells(NLL["a"]), "r": hits}, gives={"r": "TiltRanking"})
    assert dict(result["r"].values) == {"top_1": 0.5}
    assert set(result["r"].intervals) == {"top_1"}
    assert (result["r"].difference, result["r"].p_value, result["r"].gives) == (None, None, "ranking")


def test_a_failed_model_keeps_its_row_and_its_earlier_folds(kinds: dict[str, Any]) -> None:
    outcomes = {
        "a": cells(NLL["a"]),
        "x": [cells(NLL["b"])[0], Failure("KeyError", "KeyError: 3")],
        "b": cells(NLL["b"]),
    }
    result = compared(kinds, outcomes)
    assert [row.label for row in result.rows] == ["a", "x", "b"]
    row = result["x"]
    assert (row.error, dict(row.values), row.fit_seconds) == ("KeyError: 3", {}, None)
    assert [fold.error for fold in row.folds] == [None, "KeyError: 3"]
    assert result["b"].difference == 0.75


def test_a_fold_without_weight_has_no_mean(kinds: dict[str, Any]) -> None:
    result = compared(kinds, {"a": cells(NLL["a"])}, data([1, 0, 1, 0]))
    assert [dict(fold.values) for fold in result["a"].folds] == [{}, {"nll": 2.0, "top_1": 0.5}]
    assert result["a"].values["nll"] == 2.0
    assert result["a"].spread("nll") is None


# -- Lists of models ---------------------------------------------------------------------------------------------------


def test_models_may_be_a_list(trips: ChoiceData) -> None:
    """Models are labelled by their registry names and, if these are the same, by their options."""
    listed = compare([MNL(), "uniform"], trips, 2, progress=False)
    named = compare({"mnl": MNL(), "uniform": Uniform()}, trips, 2, progress=False)
    assert [row.label for row in listed.rows] == ["mnl", "uniform"]
    assert [row.values for row in listed.rows] == [row.values for row in named.rows]
    several = compare([MNL(), MNL(max_iter=50)], trips, 2, progress=False)
    assert [row.label for row in several.rows] == ["mnl", "mnl max_iter=50"]


def test_a_list_with_the_same_model_twice_is_rejected(trips: ChoiceData) -> None:
    with pytest.raises(InputError, match=r"'mnl' occurs twice in the list. Label the models, as in \{'a': MNL"):
        compare([MNL(), "mnl"], trips)
    with pytest.raises(InputError, match="unknown model 'mln'"):
        compare(["mln"], trips)


def test_fitted_models_are_tested_on_the_same_sets(trips: ChoiceData) -> None:
    """A fitted model is not fitted again, and its differences are paired with those of the other models."""
    model = MNL().fit(trips, seed=0, progress=False)
    result = compare({"uniform": Uniform()}, trips, 3, fitted={"fitted": model}, progress=False)
    assert result["fitted"].values["nll"] == pytest.approx(evaluate(model, trips, resamples=0).nll, abs=1e-12)
    assert result["fitted"].fit_seconds == 0
    assert result["uniform"].difference == pytest.approx(
        result["uniform"].values["nll"] - result["fitted"].values["nll"], abs=1e-12
    )
    assert result["uniform"].p_value is not None


def test_labels_of_fitted_models_are_new(trips: ChoiceData) -> None:
    model = MNL().fit(trips, seed=0, progress=False)
    with pytest.raises(InputError, match="the label 'mnl' is also in models"):
        compare({"mnl": MNL()}, trips, 3, fitted={"mnl": model}, progress=False)
    with pytest.raises(InputError, match="predict_log_proba"):
        compare({"mnl": MNL()}, trips, 3, fitted={"other": 3}, progress=False)  # type: ignore[dict-item]
