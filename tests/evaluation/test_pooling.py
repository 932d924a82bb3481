"""Values that can be worked out by hand: four sets of two alternatives, two folds."""

from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.evaluation.bootstrap_intervals import by_group, interval, p_values, resampled_means
from pcmcnet.evaluation.comparison import Comparison
from pcmcnet.evaluation.cross_validation import Cell, Failure, Fold
from pcmcnet.evaluation.pooling import tally

PLAN = [Fold(np.array([0, 2]), None, np.array([1, 3])), Fold(np.array([1, 3]), None, np.array([0, 2]))]
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
    options: dict[str, Any] = {"groups": None, "top": (1,), "seed": 0, "resamples": 200, "design": {}}
    return tally(models, outcomes, table or data(), PLAN, **{**options, **change})


def test_values_are_means_over_all_sets_and_folds_are_kept(kinds: dict[str, Any]) -> None:
    """a: (1 + 2 + 3 + 4) / 4 = 2.5; its folds have (2 + 4) / 2 and (1 + 3) / 2."""
    found = compared(kinds, {label: cells(nll) for label, nll in NLL.items()})
    assert found.best == "a"
    assert dict(found["a"].values) == {"nll": 2.5, "top_1": 0.5}
    assert found["b"].values["nll"] == 3.25
    assert [fold.values["nll"] for fold in found["a"].folds] == [3.0, 2.0]
    assert found["a"].spread("nll") == pytest.approx(np.sqrt(0.5), rel=1e-15)
    assert (found["a"].fit_seconds, found["a"].predict_seconds, found["a"].parameters) == (2.0, 0.2, 4)
    assert found.uniform["nll"] == pytest.approx(np.log(2), rel=1e-15)


def test_weights_weigh_and_sets_without_take_no_part(kinds: dict[str, Any]) -> None:
    """Weights 1, 2, 0, 1: a (1 + 2 2 + 4) / 4, though b holds set 2 impossible; b (2 + 4 + 4) / 4."""
    nll = {**NLL, "b": np.array([2.0, 2.0, np.inf, 4.0])}
    found = compared(kinds, {label: cells(values) for label, values in nll.items()}, data([1, 2, 0, 1]))
    assert found["a"].values["nll"] == 9 / 4
    assert (found["b"].values["nll"], found["b"].n_impossible) == (10 / 4, 0)
    assert found["b"].difference == pytest.approx(1 / 4, rel=1e-15)
    assert found.n_sets == 4


def test_differences_are_paired_set_by_set(kinds: dict[str, Any]) -> None:
    """b - a is (1, 0, 2, 0): mean 0.75, and its interval and p-value are those of these four numbers."""
    found = compared(kinds, {label: cells(nll) for label, nll in NLL.items()})
    gap = (NLL["b"] - NLL["a"])[TESTED]
    assert found["b"].difference == 0.75
    rng = np.random.default_rng
    assert found["b"].intervals["difference"] == pytest.approx(interval(gap, rng=rng(0), resamples=200), rel=1e-12)
    means = resampled_means(gap, rng=rng(0), resamples=200)
    assert found["b"].p_value == p_values(means[:, None])[0]
    expected = interval(NLL["a"][TESTED], rng=rng(0), resamples=200)
    assert found["a"].intervals["nll"] == pytest.approx(expected, rel=1e-12)
    assert (found["a"].difference, found["a"].p_value, "difference" in found["a"].intervals) == (0.0, None, False)


def test_a_constant_advantage_is_certain_though_the_values_vary(kinds: dict[str, Any]) -> None:
    """Alone, the intervals overlap; paired, the difference is 0.1 in every set."""
    found = compared(kinds, {"a": cells(NLL["a"]), "b": cells(NLL["a"] + 0.1)})
    assert found["b"].intervals["nll"][0] < found["a"].intervals["nll"][1]
    assert found["b"].intervals["difference"] == pytest.approx((0.1, 0.1), rel=1e-12)
    assert found["b"].p_value == pytest.approx(2 / 201, rel=1e-12)


def test_groups_are_resampled_whole(kinds: dict[str, Any]) -> None:
    groups = np.array([0, 0, 1, 1])
    found = compared(kinds, {label: cells(nll) for label, nll in NLL.items()}, groups=groups)
    means, total = by_group(NLL["a"][TESTED][:, None], np.ones(4), groups[TESTED])
    expected = interval(means, total, rng=np.random.default_rng(0), resamples=200)[0]
    assert found["a"].intervals["nll"] == pytest.approx(expected, rel=1e-12)
    assert found["a"].intervals["nll"] == pytest.approx((1.5, 3.5), rel=1e-12)  # two people: their range
    assert found["a"].values["nll"] == 2.5


def test_one_group_says_nothing_about_the_spread(kinds: dict[str, Any]) -> None:
    found = compared(kinds, {label: cells(nll) for label, nll in NLL.items()}, groups=np.zeros(4, np.int64))
    assert found["b"].intervals["difference"] == (-np.inf, np.inf)
    assert found["b"].p_value is None


def test_without_resamples_there_is_neither_interval_nor_p_value(kinds: dict[str, Any]) -> None:
    found = compared(kinds, {label: cells(nll) for label, nll in NLL.items()}, resamples=0)
    assert (found["b"].intervals, found["b"].p_value, found["b"].difference) == ({}, None, 0.75)


def test_the_best_gives_probabilities_that_hold_no_choice_impossible(kinds: dict[str, Any]) -> None:
    outcomes = {
        "scores": cells(NLL["a"] - 1),
        "infinite": cells(np.array([0.0, 0.0, 0.0, np.inf])),
        "a": cells(NLL["a"]),
        "b": cells(NLL["b"]),
    }
    found = compared(kinds, outcomes, gives={"scores": "TiltScores"})
    assert found.best == "a"
    assert found["scores"].difference == -1.0
    assert (found["infinite"].values["nll"], found["infinite"].difference) == (np.inf, np.inf)
    assert found["infinite"].n_impossible == 1
    assert found["infinite"].intervals["difference"][1] == np.inf


def test_without_probabilities_there_is_no_best(kinds: dict[str, Any]) -> None:
    found = compared(kinds, {"s": cells(NLL["a"])}, gives={"s": "TiltScores"})
    assert (found.best, found["s"].difference) == (None, None)


def test_a_ranking_has_only_what_it_was_measured_by(kinds: dict[str, Any]) -> None:
    hits: list[Cell | Failure] = [Cell({"top_1": np.array([1.0, 0.0])}, 1.0, 1.0, 0)] * 2
    found = compared(kinds, {"a": cells(NLL["a"]), "r": hits}, gives={"r": "TiltRanking"})
    assert dict(found["r"].values) == {"top_1": 0.5}
    assert set(found["r"].intervals) == {"top_1"}
    assert (found["r"].difference, found["r"].p_value, found["r"].gives) == (None, None, "ranking")


def test_a_failed_model_keeps_its_place_and_the_folds_before(kinds: dict[str, Any]) -> None:
    outcomes = {
        "a": cells(NLL["a"]),
        "x": [cells(NLL["b"])[0], Failure("KeyError", "KeyError: 3")],
        "b": cells(NLL["b"]),
    }
    found = compared(kinds, outcomes)
    assert [row.label for row in found.rows] == ["a", "x", "b"]
    row = found["x"]
    assert (row.error, dict(row.values), row.fit_seconds) == ("KeyError: 3", {}, None)
    assert [fold.error for fold in row.folds] == [None, "KeyError: 3"]
    assert found["b"].difference == 0.75


def test_a_fold_without_weight_has_no_mean(kinds: dict[str, Any]) -> None:
    found = compared(kinds, {"a": cells(NLL["a"])}, data([1, 0, 1, 0]))
    assert [dict(fold.values) for fold in found["a"].folds] == [{}, {"nll": 2.0, "top_1": 0.5}]
    assert found["a"].values["nll"] == 2.0
    assert found["a"].spread("nll") is None
