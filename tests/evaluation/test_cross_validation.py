from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError, TrainingError
from pcmcnet.evaluation.cross_validation import Failure, fresh, measure, model_identity, plan_folds
from pcmcnet.evaluation.report import evaluate

PLAIN: dict[str, Any] = {"folds": None, "split": None, "valid": 0.0, "seed": 3}


def ids(part: ChoiceData | None) -> list[int]:
    assert part is not None
    return [int(i) for i in part.set_ids]


@pytest.mark.parametrize("by", [None, "person"])
def test_folds_are_those_of_the_data(by: str | None, trips: ChoiceData) -> None:
    plan = plan_folds(trips.groups(by), **{**PLAIN, "folds": 4})
    expected = trips.folds(4, seed=3, by=by)
    assert [[ids(f.cut(trips).train), ids(f.cut(trips).test)] for f in plan] == [[ids(a), ids(b)] for a, b in expected]
    assert sorted(np.concatenate([f.test for f in plan]).tolist()) == list(range(len(trips)))
    assert all(f.valid is None for f in plan)


def test_five_folds_are_the_rule(trips: ChoiceData) -> None:
    assert len(plan_folds(trips.groups(None), **PLAIN)) == 5


def test_a_split_is_that_of_the_data(trips: ChoiceData) -> None:
    (fold,) = plan_folds(trips.groups("person"), **{**PLAIN, "split": (0.7, 0.3)})
    train, test = trips.split((0.7, 0.3), seed=3, by="person")
    assert (ids(fold.cut(trips).train), ids(fold.cut(trips).test)) == (ids(train), ids(test))


def test_what_is_held_out_comes_from_the_training_part_in_whole_groups(trips: ChoiceData) -> None:
    people = trips.groups("person")
    for fold in plan_folds(people, **{**PLAIN, "folds": 2, "valid": 0.4}):
        assert fold.valid is not None
        parts = [fold.train, fold.valid, fold.test]
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(trips)))
        for k in (0, 1):
            assert not set(people[parts[k]]) & set(people[np.concatenate(parts[k + 1 :])])
        assert len(fold.valid) == pytest.approx(0.4 * 20, abs=4)  # up to one person


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": 3, "split": (0.8, 0.2)}, "folds and split exclude each other"),
        ({"folds": 1}, "the number of folds must lie between 2 and 40"),
        ({"split": (0.8, 0.1, 0.1)}, r"split must be two shares, .*got \(0.8, 0.1, 0.1\)"),
        ({"split": 0.2}, "split must be two shares, .*got 0.2"),
        ({"split": (0.8, 0.8)}, "positive shares that add up to 1"),
        ({"valid": 1.0}, "valid must be a number of at least 0 and below 1"),
        ({"folds": 2, "valid": 0.5, "seed": -1}, "seed must be a whole number"),
    ],
)
def test_impossible_plans_are_refused(change: dict[str, Any], message: str, trips: ChoiceData) -> None:
    with pytest.raises(InputError, match=message):
        plan_folds(trips.groups(None), **{**PLAIN, **change})


def test_a_failure_is_one_line_and_names_classes_of_others() -> None:
    assert Failure.of(ConfigError("no\n such  thing.")) == Failure("ConfigError", "no such thing.")
    assert Failure.of(KeyError("x")) == Failure("KeyError", "KeyError: 'x'")
    assert Failure.of(MemoryError()) == Failure("MemoryError", "MemoryError")
    assert Failure.of(TrainingError()).message == "TrainingError"


def test_a_fresh_model_has_the_options_and_nothing_else(kinds: dict[str, Any], trips: ChoiceData) -> None:
    fitted = kinds["TiltScores"](scale=3.0, sizes=(4, 5)).fit(trips)
    copy = fresh(fitted)
    assert (type(copy), copy.config) == (type(fitted), fitted.config)
    assert copy.fitted_ is None


def test_the_identity_tells_options_and_classes_apart(kinds: dict[str, Any]) -> None:
    found = [kinds["Tilt"](), kinds["Tilt"](scale=2.0), kinds["TiltScores"]()]
    assert len({str(model_identity(model)) for model in found}) == 3
    assert model_identity(kinds["Tilt"]()) == model_identity(kinds["Tilt"]())


def test_a_cell_is_what_evaluating_the_fitted_model_says(kinds: dict[str, Any], trips: ChoiceData) -> None:
    (fold,) = plan_folds(trips.groups(None), **{**PLAIN, "split": (0.7, 0.3), "valid": 0.2})
    parts, model = fold.cut(trips), kinds["Tilt"](scale=2.0)
    cell = measure(model, parts, top=(1, 2), seed=5, device="cpu")
    (fitted,) = kinds["Tilt"].fits
    assert fitted is not model
    assert fitted.parts == (parts.train, parts.valid)
    assert (fitted.seed, fitted.device) == (5, "cpu")
    report = evaluate(fitted, parts.test, top=(1, 2))
    assert {name: values.mean() for name, values in cell.metrics.items()} == pytest.approx(report.values, rel=1e-12)
    assert cell.parameters == 1
    assert min(cell.fit_seconds, cell.predict_seconds) > 0


def test_a_model_is_asked_without_the_answers(kinds: dict[str, Any], trips: ChoiceData) -> None:
    (fold,) = plan_folds(trips.groups(None), **{**PLAIN, "split": (0.5, 0.5)})
    measure(kinds["Tilt"](), fold.cut(trips), top=(1,), seed=0, device="cpu")
    (question,) = kinds["Tilt"].asked
    assert question.chosen is None
    assert ids(question) == ids(fold.cut(trips).test)


def test_nothing_is_held_back_from_a_model_that_does_not_stop_early(
    trips: ChoiceData, kinds: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds["Tilt"], "stops_early", False)
    (fold,) = plan_folds(trips.groups(None), **{**PLAIN, "split": (0.7, 0.3), "valid": 0.2})
    parts = fold.cut(trips)
    assert parts.valid is not None
    measure(kinds["Tilt"](), parts, top=(1,), seed=0, device="cpu")
    train, valid = kinds["Tilt"].fits[-1].parts
    assert valid is None
    assert len(train) == len(parts.train) + len(parts.valid)
