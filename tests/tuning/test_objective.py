import math
from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from pcmcnet.data import ChoiceData
from pcmcnet.models import ChoiceModel
from pcmcnet.models.networks.averaged_members import AUTO_MEMBERS
from pcmcnet.tuning.objective import MAX_BLOCKS, MAX_FOLDS, SMALL_TABLE_SETS, HeldOut, Objective, number_of_folds
from pcmcnet.tuning.result import FIRST_FOLD_STEP, TrialRecord


def objective(base: ChoiceModel, data: ChoiceData, valid: Any = 0.2) -> Objective:
    return Objective(base, HeldOut.cut(data, valid, None, 0), 0, "cpu")


def trial_record(epochs: int | None, **options: Any) -> TrialRecord:
    return TrialRecord(1, "complete", 1.0, options, epochs, 1.0)


def shown(base: ChoiceModel, data: ChoiceData, valid: Any, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether each fit of a trial received held-out sets."""
    received: list[bool] = []
    fit = type(base).fit

    def watched(self: Any, train: Any, valid: Any = None, *arguments: Any, **named: Any) -> Any:
        received.append(valid is not None)
        return fit(self, train, valid, *arguments, **named)

    monkeypatch.setattr(type(base), "fit", watched)
    objective(base, data, valid)({}, lambda entry: None)
    return received


SMALL: dict[str, Any] = {"hidden": (2,), "batch_size": 60, "epochs": 2}


@pytest.mark.parametrize(
    ("options", "folds", "one_part"),
    [
        ({"weight_decay": 1.0}, False, True),  # a single validation part is used for pruning
        ({"weight_decay": "auto"}, False, False),
        ({"weight_decay": 1.0, "min_delta": 0.0}, True, True),
        ({"weight_decay": "auto", "min_delta": 0.0}, True, True),
    ],
)
def test_only_networks_that_stop_early_receive_held_out_sets(
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


def test_the_loss_is_the_mean_over_all_held_out_sets(trips: ChoiceData) -> None:
    base = pn.PCMCNet(**SMALL)
    measured = objective(base, trips)({}, lambda entry: None)
    single = {**SMALL, "members": 1}
    fits = [(pn.PCMCNet(**single).fit(rest, device="cpu", progress=False), fold) for rest, fold in trips.folds(4)]
    assert measured.loss == pytest.approx(-sum(m.score(fold) * len(fold) for m, fold in fits) / 60, abs=1e-12)
    assert sum(measured.blocks) / 60 == pytest.approx(measured.loss, abs=1e-12)
    decays = [m.record_.weight_decay for m, _ in fits]
    assert measured.decay == pytest.approx(math.prod(decays) ** 0.25, rel=1e-9)
    assert objective(pn.PCMCNet(**SMALL, weight_decay=2.0), trips)({}, lambda entry: None).decay is None


def test_only_the_first_fold_reports_its_losses(slope: Any, trips: ChoiceData) -> None:
    entries: list[dict[str, Any]] = []
    objective(slope(slope=1.0), trips)({}, entries.append)
    first = -slope(slope=1.0).fit(trips).score(trips.folds(4)[0][1])
    assert [entry["epoch"] for entry in entries] == [FIRST_FOLD_STEP] * 4
    assert entries[0]["valid_loss"] == pytest.approx(first, abs=1e-12)
    assert [entry["valid_loss"] for entry in entries[1:]] == [None] * 3


def test_only_the_final_fit_averages_several_networks(trips: ChoiceData, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, real = [], ChoiceModel.fit

    def noted(self: Any, *arguments: Any, **named: Any) -> Any:
        fitted = real(self, *arguments, **named)
        numbers.append(fitted.spec_.members)
        return fitted

    monkeypatch.setattr(ChoiceModel, "fit", noted)
    search = objective(pn.PCMCNet(hidden=(4,), epochs=1), trips)
    search({}, lambda _: None)
    assert set(numbers) == {1}
    search.refit(trial_record(1), None)
    assert numbers[-1] == AUTO_MEMBERS


def test_sets_of_weight_0_are_ignored(slope: Any) -> None:
    """With an infinite slope, the third choice has probability 0; its weight is 0."""
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
        ({"min_delta": 0.0, "patience": 3, "epochs": 9}, 1, 3),  # an early minimum: at least the patience is fitted
        ({"min_delta": 0.0, "patience": 3, "epochs": 2}, 1, 2),
        ({"min_delta": 0.0, "patience": 3, "epochs": 9}, 9, 9),
        ({"min_delta": 0.0, "patience": 3}, 20, "auto"),  # all epochs
        ({}, 20, "auto"),
        ({}, 4, "auto"),  # learnt from a fold; learnt again from all data
        ({"weight_decay": "auto", "epochs": 7}, 7, 7),
    ],
)
def test_the_final_fit_has_enough_epochs(
    options: dict[str, Any], epochs: int, expected: Any, trips: ChoiceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pn.PCMCNet, "fit", lambda self, *given, **named: self)
    model = objective(pn.PCMCNet(hidden=(2,), **options), trips).refit(trial_record(epochs), None)
    assert model.config.epochs == expected
    assert model.config.weight_decay == "auto"


def test_models_without_epochs_are_fitted_unchanged(slope: Any, trips: ChoiceData) -> None:
    model = objective(slope(), trips).refit(trial_record(None, slope=0.5), None)
    assert model.config.slope == 0.5
    assert np.isfinite(model.score(trips))


# -- Held out ----------------------------------------------------------------------------------------------------------


def pairs(sets: int, **roles: Any) -> ChoiceData:
    """Make sets of two; each person has four sets."""
    trip = np.repeat(np.arange(sets), 2)
    table = {"trip": trip, "took": [1, 0] * sets, "x": np.arange(2.0 * sets), "who": trip // 4, "w": trip % 3}
    return ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["x"], **roles)


def test_few_sets_are_cross_validated() -> None:
    data = pairs(40)
    held_out = HeldOut.cut(data, 0.2, None, 5)
    assert held_out.n_folds == len(held_out.folds) == MAX_FOLDS == 4
    assert sorted(np.concatenate([fold.held_out[0].set_ids for fold in held_out.folds])) == list(range(40))
    for fold in held_out.folds:
        assert set(fold.train.set_ids) | set(fold.held_out[0].set_ids) == set(range(40))
        assert len(fold.train) + len(fold.held_out[0]) == 40
    assert held_out.whole is data
    expected = [set(valid.set_ids) for _, valid in data.folds(4, seed=5)]
    assert [set(fold.held_out[0].set_ids) for fold in held_out.folds] == expected


def test_many_sets_have_one_validation_part() -> None:
    data = pairs(SMALL_TABLE_SETS)
    held_out = HeldOut.cut(data, 0.2, None, 5)
    assert held_out.n_folds is None
    (fold,) = held_out.folds
    train, valid = data.split((0.8, 0.2), seed=5)
    assert np.array_equal(fold.train.set_ids, train.set_ids)
    assert np.array_equal(fold.held_out[0].set_ids, valid.set_ids)


def test_the_sets_of_a_person_share_fold_and_block() -> None:
    for data, by in ((pairs(40, person="who"), None), (pairs(40, keep=["who"]), "who")):
        for fold in HeldOut.cut(data, 0.2, by, 0).folds:
            held_out = np.asarray(fold.held_out[0].set_ids) // 4
            assert not set(held_out) & set(np.asarray(fold.train.set_ids) // 4)
            assert np.array_equal(fold.groups, held_out)


def test_block_losses_add_up_to_the_total() -> None:
    """Weights 0, 1, 2, 0, 1, ... of set 0, 1, 2, ...; block b has the sets b, b + 500, b + 1000, ..."""
    data = pairs(3 * MAX_BLOCKS, weight="w")
    held_out = HeldOut.cut(data, 0.25, None, 0)
    assert len(held_out.weights) == MAX_BLOCKS
    assert held_out.weights.sum() == data.weights.sum()
    assert held_out.weights[:3].tolist() == [3.0, 3.0, 3.0]
    ones = held_out.sum_by_block([np.ones(len(fold.groups)) for fold in held_out.folds])
    assert ones.tolist() == [3.0] * MAX_BLOCKS


@pytest.mark.parametrize(
    ("sets", "groups", "valid", "folds"),
    [
        (100, 100, 0.2, 4),
        (100, 100, 0.34, 3),
        (100, 100, 0.9, 2),
        (100, 3, 0.2, 3),
        (100, 1, 0.2, None),  # a single group cannot be split
        (SMALL_TABLE_SETS - 1, 500, 0.2, 4),
        (SMALL_TABLE_SETS, 500, 0.2, None),
    ],
)
def test_the_share_determines_the_number_of_folds(sets: int, groups: int, valid: float, folds: int | None) -> None:
    assert number_of_folds(sets, groups, valid) == folds
