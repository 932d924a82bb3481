import math
from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from pcmcnet.data import ChoiceData
from pcmcnet.models import ChoiceModel
from pcmcnet.models.networks.averaging import AUTO_MEMBERS
from pcmcnet.tuning.objective import MAX_BLOCKS, MAX_FOLDS, SMALL_TABLE_SETS, HeldOut, Objective, number_of_folds
from pcmcnet.tuning.result import FIRST_FOLD_STEP, TrialRecord


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
    assert [entry["epoch"] for entry in told] == [FIRST_FOLD_STEP] * 4
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


# -- Held out ----------------------------------------------------------------------------------------------------------


def pairs(sets: int, **roles: Any) -> ChoiceData:
    """Sets of two; persons have four sets each."""
    trip = np.repeat(np.arange(sets), 2)
    table = {"trip": trip, "took": [1, 0] * sets, "x": np.arange(2.0 * sets), "who": trip // 4, "w": trip % 3}
    return ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["x"], **roles)


def test_few_sets_are_held_out_in_turn_each_once() -> None:
    data = pairs(40)
    found = HeldOut.cut(data, 0.2, None, 5)
    assert found.n_folds == len(found.folds) == MAX_FOLDS == 4
    assert sorted(np.concatenate([fold.held_out[0].set_ids for fold in found.folds])) == list(range(40))
    for fold in found.folds:
        assert set(fold.train.set_ids) | set(fold.held_out[0].set_ids) == set(range(40))
        assert len(fold.train) + len(fold.held_out[0]) == 40
    assert found.whole is data
    expected = [set(valid.set_ids) for _, valid in data.folds(4, seed=5)]
    assert [set(fold.held_out[0].set_ids) for fold in found.folds] == expected


def test_many_sets_have_one_validation_part() -> None:
    data = pairs(SMALL_TABLE_SETS)
    found = HeldOut.cut(data, 0.2, None, 5)
    assert found.n_folds is None
    (fold,) = found.folds
    train, valid = data.split((0.8, 0.2), seed=5)
    assert np.array_equal(fold.train.set_ids, train.set_ids)
    assert np.array_equal(fold.held_out[0].set_ids, valid.set_ids)


def test_a_person_is_never_cut_and_has_one_block() -> None:
    for data, by in ((pairs(40, person="who"), None), (pairs(40, keep=["who"]), "who")):
        for fold in HeldOut.cut(data, 0.2, by, 0).folds:
            held_out = np.asarray(fold.held_out[0].set_ids) // 4
            assert not set(held_out) & set(np.asarray(fold.train.set_ids) // 4)
            assert np.array_equal(fold.groups, held_out)


def test_blocks_add_up_to_the_whole_however_many_sets_there_are() -> None:
    """Weights 0, 1, 2, 0, 1, ... of set 0, 1, 2, ...; block b has the sets b, b + 500, b + 1000, ..."""
    data = pairs(3 * MAX_BLOCKS, weight="w")
    found = HeldOut.cut(data, 0.25, None, 0)
    assert len(found.weights) == MAX_BLOCKS
    assert found.weights.sum() == data.weights.sum()
    assert found.weights[:3].tolist() == [3.0, 3.0, 3.0]
    ones = found.sum_by_block([np.ones(len(fold.groups)) for fold in found.folds])
    assert ones.tolist() == [3.0] * MAX_BLOCKS


@pytest.mark.parametrize(
    ("sets", "groups", "valid", "folds"),
    [
        (100, 100, 0.2, 4),
        (100, 100, 0.34, 3),
        (100, 100, 0.9, 2),
        (100, 3, 0.2, 3),
        (100, 1, 0.2, None),  # which cannot be cut at all
        (SMALL_TABLE_SETS - 1, 500, 0.2, 4),
        (SMALL_TABLE_SETS, 500, 0.2, None),
    ],
)
def test_the_share_says_how_many_folds(sets: int, groups: int, valid: float, folds: int | None) -> None:
    assert number_of_folds(sets, groups, valid) == folds
