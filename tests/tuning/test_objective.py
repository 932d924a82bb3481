import math
from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from pcmcnet.data import ChoiceData
from pcmcnet.models import ChoiceModel
from pcmcnet.models.networks.fitting import AUTO_MEMBERS
from pcmcnet.tuning.held_out import HeldOut
from pcmcnet.tuning.objective import Objective
from pcmcnet.tuning.result import FOLD, TrialRecord


def objective(base: ChoiceModel, data: ChoiceData, valid: Any = 0.2) -> Objective:
    return Objective(base, HeldOut.cut(data, valid, None, 0), 0, "cpu")


def kept(epochs: int | None, **options: Any) -> TrialRecord:
    return TrialRecord(1, "complete", 1.0, options, epochs, 1.0)


def shown(base: ChoiceModel, data: ChoiceData, valid: Any, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each fit of a trial was given held-out sets."""
    seen: list[bool] = []
    fit = type(base).fit

    def watched(self: Any, train: Any, valid: Any = None, *given: Any, **named: Any) -> Any:
        seen.append(valid is not None)
        return fit(self, train, valid, *given, **named)

    monkeypatch.setattr(type(base), "fit", watched)
    objective(base, data, valid)({}, lambda entry: None)
    return seen


SMALL: dict[str, Any] = {"hidden": (2,), "batch_size": 60, "epochs": 2}


@pytest.mark.parametrize(
    ("options", "folds", "one_part"),
    [
        ({"weight_decay": 1.0}, False, True),  # one part is for pruning
        ({"weight_decay": "auto"}, False, False),
        ({"weight_decay": 1.0, "min_delta": 0.0}, True, True),
        ({"weight_decay": "auto", "min_delta": 0.0}, True, True),
    ],
)
def test_held_out_sets_are_shown_to_networks_that_stop_by_a_number_and_never_to_learn_a_decay(
    options: dict[str, Any],
    folds: bool,
    one_part: bool,
    trips: ChoiceData,
    more_trips: ChoiceData,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = pn.PCMCNet(**SMALL, **options)
    assert shown(base, trips, 0.2, monkeypatch) == [folds] * 4
    monkeypatch.undo()
    assert shown(base, trips, more_trips, monkeypatch) == [one_part]


def test_the_loss_is_the_mean_over_all_held_out_sets_and_the_decay_that_was_learnt_is_told(trips: ChoiceData) -> None:
    base = pn.PCMCNet(**SMALL)
    measured = objective(base, trips)({}, lambda entry: None)
    single = {**SMALL, "members": 1}
    fits = [(pn.PCMCNet(**single).fit(rest, device="cpu", progress=False), fold) for rest, fold in trips.folds(4)]
    assert measured.loss == pytest.approx(-sum(m.score(fold) * len(fold) for m, fold in fits) / 60, abs=1e-12)
    assert sum(measured.blocks) / 60 == pytest.approx(measured.loss, abs=1e-12)
    decays = [m.record_.weight_decay for m, _ in fits]
    assert measured.decay == pytest.approx(math.prod(decays) ** 0.25, rel=1e-9)
    assert objective(pn.PCMCNet(**SMALL, weight_decay=2.0), trips)({}, lambda entry: None).decay is None


def test_the_loss_of_the_first_fold_is_told_and_of_later_ones_only_that_they_live(
    slope: Any, trips: ChoiceData
) -> None:
    told: list[dict[str, Any]] = []
    objective(slope(slope=1.0), trips)({}, told.append)
    first = -slope(slope=1.0).fit(trips).score(trips.folds(4)[0][1])
    assert [entry["epoch"] for entry in told] == [FOLD] * 4
    assert told[0]["valid_loss"] == pytest.approx(first, abs=1e-12)
    assert [entry["valid_loss"] for entry in told[1:]] == [None] * 3


def test_trials_have_one_network_and_the_last_fit_as_many_as_the_rule_says(
    trips: ChoiceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers, real = [], ChoiceModel.fit

    def noted(self: Any, *given: Any, **named: Any) -> Any:
        fitted = real(self, *given, **named)
        numbers.append(fitted.spec_.members)
        return fitted

    monkeypatch.setattr(ChoiceModel, "fit", noted)
    search = objective(pn.PCMCNet(hidden=(4,), epochs=1), trips)
    search({}, lambda _: None)
    assert set(numbers) == {1}
    search.refit(kept(1), None)
    assert numbers[-1] == AUTO_MEMBERS


def test_sets_of_weight_0_take_no_part(slope: Any) -> None:
    """The third choice has probability 0 with an infinite slope, and weight 0."""
    table = {"trip": [0, 0, 1, 1, 2, 2], "took": [1, 0, 1, 0, 0, 1], "x": [1.0] * 6, "w": [1, 1, 1, 1, 0, 0]}
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["x"], weight="w")
    measured = Objective(slope(slope=math.inf, fails_above=math.inf), HeldOut.cut(data, data, None, 0), 0, "cpu")(
        {}, lambda entry: None
    )
    assert measured.loss == 0


@pytest.mark.parametrize(
    ("options", "epochs", "expected"),
    [
        ({"min_delta": 0.0, "patience": 3, "epochs": 9}, 5, 5),
        ({"min_delta": 0.0, "patience": 3, "epochs": 9}, 1, 3),  # by accident: not judged before its patience
        ({"min_delta": 0.0, "patience": 3, "epochs": 2}, 1, 2),
        ({"min_delta": 0.0, "patience": 3, "epochs": 9}, 9, 9),
        ({"min_delta": 0.0, "patience": 3}, 20, "auto"),  # all of them
        ({}, 20, "auto"),
        ({}, 4, "auto"),  # learnt from a fold, and now again from all data
        ({"weight_decay": "auto", "epochs": 7}, 7, 7),
    ],
)
def test_the_last_fit_is_never_shorter_than_it_should_be(
    options: dict[str, Any], epochs: int, expected: Any, trips: ChoiceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pn.PCMCNet, "fit", lambda self, *given, **named: self)
    model = objective(pn.PCMCNet(hidden=(2,), **options), trips).refit(kept(epochs), None)
    assert model.config.epochs == expected
    assert model.config.weight_decay == "auto"


def test_models_without_epochs_are_fitted_as_they_are(slope: Any, trips: ChoiceData) -> None:
    model = objective(slope(), trips).refit(kept(None, slope=0.5), None)
    assert model.config.slope == 0.5
    assert np.isfinite(model.score(trips))
