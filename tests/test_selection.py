"""Selection on held-out sets: folds, ladders, growing numbers, out-of-fold predictions and the trial log."""

import math
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from choice_tables import read
from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, InputError, TrainingError
from pcmcnet.models import BradleyTerry, Uniform
from pcmcnet.selection import (
    DIVERGED_LOSS,
    MAX_SEARCHED_SETS,
    MIN_GROUPS,
    SMALL_TABLE_SETS,
    Fold,
    Trial,
    TrialLog,
    best_number,
    best_number_of_steps,
    cross_folds,
    descend_ladder,
    grow_while_better,
    held_out_folds,
    held_out_groups,
    held_out_weights,
    mean_gain,
    out_of_fold,
    parabola_minimum,
    sample_sets,
    searched_share,
    walk_ladder,
    without_new_values,
)


def duels(sets: int, *, persons: int | None = None, first: int = 0) -> ChoiceData:
    """Sets {a, b}, {a, b, c}, {a, b}, ...; set s belongs to person s mod ``persons`` and has weight 1 or 2."""
    sizes = np.where(np.arange(sets) % 2, 3, 2)
    trip = np.repeat(np.arange(sets), sizes)
    place = np.arange(len(trip)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    table = {
        "trip": trip + first,
        "took": place == trip % 2,
        "item": np.array(list("abc"))[place],
        "weight": 1 + trip % 2,
        "who": trip % (persons or sets),
    }
    roles = {} if persons is None else {"person": "who"}
    return read(table, alternative="item", weight="weight", **roles)


# -- Folds --------------------------------------------------------------------------------------------------------


def test_folds_hold_out_every_set_once_and_keep_persons() -> None:
    data = duels(100, persons=25)
    folds = cross_folds(data, seed=3)
    assert len(folds) == 5
    assert sorted(np.concatenate([fold.held_out[0].set_ids for fold in folds])) == list(range(100))
    for fold in folds:
        (held_out,) = fold.held_out
        assert len(fold.train) + len(held_out) == 100
        assert not set(np.asarray(fold.train.set_ids) % 25) & set(np.asarray(held_out.set_ids) % 25)
        assert np.array_equal(fold.groups, np.asarray(held_out.set_ids) % 25)
    assert held_out_weights(folds).sum() == data.weights.sum()
    assert len(held_out_groups(folds)) == 100


def test_few_persons_are_split_by_set_and_few_sets_not_at_all() -> None:
    folds = cross_folds(duels(40, persons=MIN_GROUPS - 1), seed=0)
    assert len(np.unique(held_out_groups(folds))) == 40
    assert cross_folds(duels(MIN_GROUPS - 1), seed=0) == []


def test_given_groups_stay_together() -> None:
    pairs = np.arange(40) // 2
    for fold in cross_folds(duels(40), seed=0, groups=pairs):
        assert (np.bincount(fold.groups)[fold.groups] == 2).all()


def test_small_tables_have_two_folds_and_large_ones_one() -> None:
    small, large = held_out_folds(duels(100), None, 0), held_out_folds(duels(SMALL_TABLE_SETS), None, 0)
    assert [len(fold.groups) for fold in small] == [25, 25]
    assert not set(small[0].held_out[0].set_ids) & set(small[1].held_out[0].set_ids)
    assert [len(fold.groups) for fold in large] == [SMALL_TABLE_SETS // 5]


def test_a_validation_part_joins_every_fold_with_its_own_groups() -> None:
    valid = duels(10, first=1000)
    folds = held_out_folds(duels(100), valid, 0)
    for fold in folds:
        assert [len(sets) for sets in fold.held_out] == [25, 10]
        assert len(np.unique(fold.groups)) == len(fold.weights) == 35
    assert not set(folds[0].groups) & set(folds[1].groups)
    (alone,) = held_out_folds(duels(MIN_GROUPS - 1), valid, 0)
    assert alone.held_out == (valid,)
    assert held_out_folds(duels(MIN_GROUPS - 1), None, 0) == []


def test_a_sample_has_all_sets_of_a_person() -> None:
    data = duels(200, persons=50)
    part = sample_sets(data, 100, seed=0)
    assert set(np.bincount(np.asarray(part.set_ids) % 50)) <= {0, 4}
    assert len(part) == 100
    assert sample_sets(data, 200, seed=0) is data
    assert searched_share(data) == 1
    assert searched_share(range(4 * MAX_SEARCHED_SETS)) == 0.25  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("column", "value", "first_held_out"),
    [
        ("x", np.nan, 1),  # a missing feature
        ("age", np.nan, 1),  # a missing value of the individual
        ("item", "z", 1),  # a new label
        ("x", 9.0, 0),  # a number larger than all others is not a new value
    ],
)
def test_sets_with_values_that_the_training_part_lacks_are_not_held_out(
    column: str, value: object, first_held_out: int
) -> None:
    """Five sets of two alternatives; sets 0 to 2 are held out, and set 0 has the unusual value."""
    table = {
        "trip": np.repeat(np.arange(5), 2),
        "took": [1, 0] * 5,
        "item": np.array(["a", "b"] * 5),
        "x": np.arange(10.0) / 2,
        "age": np.repeat([20.0, 30.0, 40.0, 50.0, 60.0], 2),
    }
    table[column][0] = value
    if column == "age":
        table["age"][1] = value
    roles = {"alternative": "item", "features": ["x"], "individual": ["age"], "missing": "indicator"}
    data = read(table, **roles)
    known = without_new_values(Fold(data[3:], (data[:3],), np.array([5, 7, 9])))
    assert list(known.held_out[0].set_ids) == [0, 1, 2][first_held_out:]
    assert list(known.groups) == [5, 7, 9][first_held_out:]
    # No set is left out if the training part has the value.
    swapped = Fold(data[:3], (data[3:],), np.array([5, 7]))
    assert without_new_values(swapped) is swapped


def test_labels_that_are_specific_to_a_set_are_no_reason_to_leave_it_out() -> None:
    labels = [f"offer {row}" for row in range(8)]
    data = read({"trip": np.repeat(np.arange(4), 2), "took": [1, 0] * 4, "item": labels}, alternative="item")
    fold = Fold(data[2:], (data[:2],), np.arange(2))
    assert without_new_values(fold) is fold


# -- Gains --------------------------------------------------------------------------------------------------------


def test_the_error_of_a_mean_gain_is_clustered_by_group() -> None:
    """Gains 1 and 3 deviate by -1 and 1 from their mean 2: error sqrt(2) / 2 for two groups, 0 for one group."""
    gains, ones = np.array([1.0, 3.0]), np.ones(2)
    assert mean_gain(gains, ones, np.array([0, 1])) == (2.0, pytest.approx(math.sqrt(2) / 2))
    assert mean_gain(gains, ones, np.array([0, 0])) == (2.0, 0.0)
    mean, error = mean_gain(gains, np.array([3.0, 1.0]), np.array([0, 1]))  # 1.5; sums 3 x -.5 and 1.5, over 4
    assert (mean, error) == (1.5, pytest.approx(1.5 * math.sqrt(2) / 4))


def test_a_gain_must_exceed_two_standard_errors() -> None:
    assert Trial(value=1, held_out_nll=0, gain=0.21, standard_error=0.1).is_better
    assert not Trial(value=1, held_out_nll=0, gain=0.2, standard_error=0.1).is_better
    assert not Trial(value=1, held_out_nll=0).is_better


# -- Ladders ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "tried"),
    [
        ([5, 4, 3, 2, 3, 4], [1, 2, 3, 4]),  # down, and one value past the best
        ([1, 2, 3, 4, 5, 6], [0, 1, 2]),  # up to the end of the ladder
        ([9, 2, 3, 4, 5, 6], [0, 1, 2]),  # up, then one value past the best
        ([6, 5, 4, 3, 2, 1], [1, 2, 3, 4, 5]),
        ([3, 2, 2, 9, 9, 9], [0, 1, 2]),  # equal neighbours: up
    ],
)
def test_a_search_moves_until_the_loss_rises(losses: list[float], tried: list[int]) -> None:
    walked = walk_ladder(losses.__getitem__, (1, 2), 6)
    assert list(walked) == tried
    assert walked == {rung: losses[rung] for rung in tried}


def test_the_bottom_of_a_parabola_is_found_exactly() -> None:
    """(x - 2.2)^2 at 1, 2 and 3; at most ``max_shift`` from the best value; an end stays as it is."""
    losses = {x: (x - 2.2) ** 2 for x in (1, 2, 3)}
    assert parabola_minimum(losses, 0.5) == pytest.approx(2.2, rel=1e-12)
    assert parabola_minimum(losses, 0.1) == pytest.approx(2.1, rel=1e-12)
    assert parabola_minimum({2: 1.0, 3: 2.0}, 0.5) == 2
    assert parabola_minimum({1: 1.0, 2: 1.0, 3: 1.0}, 0.5) == 1


def by_value(nll: dict[float, float], noise: float = 0.0) -> Callable[[float], Floats]:
    """Return losses of four choices whose gains over the value 0 or 1 differ by ``noise``."""
    return lambda value: nll[value] + noise * np.array([1.0, -1.0, 1.0, -1.0]) * (value > min(nll))


def test_a_descent_stops_two_values_after_the_best() -> None:
    nll = {0.0: 3.0, 1.0: 2.0, 2.0: 1.0, 3.0: 1.5, 4.0: 1.6, 5.0: 0.1}
    descent = descend_ladder(list(nll), by_value(nll), np.ones(4), np.arange(4))
    assert [trial.value for trial in descent.trials] == [0, 1, 2, 3, 4]
    assert [trial.gain for trial in descent.trials] == [0, 1, 2, 1.5, 1.4]
    assert descent.best == 2
    np.testing.assert_array_equal(descent.losses[2], np.ones(4))


def test_a_descent_keeps_the_plain_model_within_noise() -> None:
    """Gains of .9 +- 1 in four choices: an error of .5."""
    nll = {0.0: 1.0, 1.0: 0.1, 2.0: 0.2, 3.0: 0.3}
    for noise, best in ((1.0, 0), (0.8, 1)):
        descent = descend_ladder(list(nll), by_value(nll, noise), np.ones(4), np.arange(4))
        assert descent.trials[1].standard_error == pytest.approx(noise / 2)
        assert descent.best == best


def test_a_separate_plain_model_does_not_end_a_descent() -> None:
    nll = {0.0: 1.0, 1.0: 9.0, 2.0: 8.0, 3.0: 7.0, 4.0: 0.5}
    for apart, tried in ((False, 3), (True, 5)):
        descent = descend_ladder(list(nll), by_value(nll), np.ones(4), np.arange(4), first_is_baseline=apart)
        assert len(descent.trials) == tried
    assert descent.best == 4


# -- Growing numbers ----------------------------------------------------------------------------------------------


def test_a_number_grows_while_the_gain_exceeds_noise() -> None:
    nll = {1: 3.0, 2: 2.0, 3: 1.9, 4: 0.0}
    for noise, tried, best in ((0.0, 4, 4), (0.3, 3, 2)):

        def losses(number: int, noise: float = noise) -> Floats:
            return nll[number] + noise * (number == 3) * np.array([1.0, -1.0, 1.0, -1.0])

        trials = grow_while_better(losses, np.ones(4), np.arange(4), largest=4, what="classes")
        assert [trial.value for trial in trials] == list(range(1, tried + 1))
        assert best_number(trials) == best
    assert trials[2].gain == pytest.approx(0.1)  # relative to the number before
    assert best_number(trials[:1]) == best_number(()) == 1


def test_the_best_number_of_steps_has_the_least_loss() -> None:
    def losses(values: Iterable[float]) -> Iterable[float]:
        yield from values
        raise AssertionError("read too far")

    assert best_number_of_steps(losses([3, 2, 1, 2, 2, 2]), largest=99, patience=2) == (3, 1)
    assert best_number_of_steps(iter([3, 2, 1]), largest=2, patience=9) == (2, 2)
    assert best_number_of_steps(iter([1, 1, 1, 1, 1]), largest=9, patience=1) == (1, 1)  # the first of equal losses


# -- Out-of-fold predictions --------------------------------------------------------------------------------------


def test_every_set_is_predicted_by_a_fit_without_it() -> None:
    data, fits = duels(60, persons=20), []

    def fit(train: ChoiceData) -> Callable[[ChoiceData], Floats]:
        model = Uniform().fit(train)

        def predict(held_out: ChoiceData) -> Floats:
            fits.append((set(np.asarray(train.set_ids) % 20), set(np.asarray(held_out.set_ids) % 20), held_out.set_ids))
            return model._log_proba(held_out)

        return predict

    log_p = out_of_fold(data, fit, n_folds=4, seed=1)
    assert len(fits) == 4
    assert all(not fitted & predicted for fitted, predicted, _ in fits)  # no person is in both parts
    assert sorted(np.concatenate([ids for *_, ids in fits])) == list(range(60))
    np.testing.assert_allclose(np.exp(log_p), 1 / np.repeat(data.sizes, data.sizes), rtol=1e-15)


def test_out_of_fold_predictions_match_fits_to_the_other_folds() -> None:
    data = duels(60)
    log_p = out_of_fold(data, lambda train: BradleyTerry(ridge=1.0).fit(train)._log_proba, n_folds=3, seed=2)
    for train, held_out in data.folds(3, seed=2):
        expected = BradleyTerry(ridge=1.0).fit(train).predict_log_proba(held_out)
        rows = np.isin(np.repeat(data.set_ids, data.sizes), held_out.set_ids)
        np.testing.assert_array_equal(log_p[rows], expected)
    predictions = out_of_fold(data, lambda train: BradleyTerry(ridge=1.0).fit(train)._log_proba, n_folds=3, seed=2)
    np.testing.assert_array_equal(predictions, log_p)


def test_invalid_out_of_fold_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="between 2 and 3"):
        out_of_fold(duels(30, persons=3), lambda train: Uniform().fit(train)._log_proba, n_folds=4)
    with pytest.raises(InputError, match="no out-of-fold probability"):
        out_of_fold(duels(30), lambda train: lambda held_out: np.full(len(held_out.rows), np.nan))


# -- Trial log ----------------------------------------------------------------------------------------------------


def fail_if_called() -> list[float]:
    raise AssertionError("the log has this trial")


def test_a_resumed_log_does_not_repeat_a_trial(tmp_path: Path) -> None:
    path, identity = tmp_path / "search.json", {"options": {"hidden": (4, 4)}, "seed": 1}
    trials = TrialLog.open(path, identity, resume=False)
    assert trials.run_once("decay 1", lambda: [0.5, 0.1 + 0.2]) == [0.5, 0.1 + 0.2]
    assert trials.run_once("decay 1", fail_if_called) == [0.5, 0.1 + 0.2]
    resumed = TrialLog.open(path, identity, resume=True)
    assert resumed.run_once("decay 1", fail_if_called) == [0.5, 0.1 + 0.2]  # equal bit for bit
    assert resumed.run_once("decay 2", lambda: [1.0]) == [1.0]
    assert TrialLog.open(path, identity, resume=False).losses == {}
    assert TrialLog.open(tmp_path / "none.json", identity, resume=True).losses == {}


def test_a_log_that_is_damaged_or_of_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "search.json"
    TrialLog.open(path, {"seed": 1}, resume=False).run_once("one", lambda: [1.0])
    with pytest.raises(ArtifactError, match="belongs to another run; differences: seed"):
        TrialLog.open(path, {"seed": 2}, resume=True)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ArtifactError, match="is damaged"):
        TrialLog.open(path, {"seed": 1}, resume=True)


def test_a_diverged_trial_is_the_worst_and_not_repeated(tmp_path: Path) -> None:
    def diverge() -> list[float]:
        raise TrainingError("training diverged")

    trials = TrialLog.open(tmp_path / "search.json", {}, resume=False)
    assert trials.run_once("steep", diverge, if_diverged=2) == [DIVERGED_LOSS, DIVERGED_LOSS]
    assert TrialLog.open(tmp_path / "search.json", {}, resume=True).run_once("steep", fail_if_called) == [
        DIVERGED_LOSS,
        DIVERGED_LOSS,
    ]


def test_a_log_without_a_folder_is_kept_in_memory() -> None:
    trials = TrialLog.open(None, {}, resume=False)
    assert trials.run_once("one", lambda: [1.0]) == trials.run_once("one", fail_if_called) == [1.0]
