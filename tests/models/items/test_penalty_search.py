"""The penalty learnt from held-out sets: the walk, the margin, folds by person, and tables of counts."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from choice_tables import item_choices
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError
from pcmcnet.models.items.penalty_search import (
    FEWEST,
    FOLDS,
    LADDER,
    PATIENCE,
    PLAIN,
    PenaltySearch,
    Trial,
    cut,
    penalty_facts,
    require_penalty,
    search_penalty,
)


def duels(sets: int = 100, seed: int = 0) -> ChoiceData:
    rng = np.random.default_rng(seed)
    return item_choices([("ab", "ab"[k]) for k in rng.integers(2, size=sets)])


def found(losses: Any, data: ChoiceData | None = None) -> PenaltySearch:
    """Search with held-out losses that are a function of penalty and choice alone."""
    folds = cut(duels() if data is None else data, seed=0)
    return search_penalty(folds, [lambda penalty, fold=fold: losses(penalty, len(fold.held_out)) for fold in folds])


def test_the_ladder_comes_down_from_the_plain_model() -> None:
    assert LADDER[0] == PLAIN == math.inf
    assert LADDER[1] == 1000
    assert LADDER[-1] == 0.01
    np.testing.assert_allclose(np.diff(np.log10(LADDER[1:])), -0.5, atol=2e-3)  # rungs have three digits


def test_the_walk_ends_after_the_best_rung_and_takes_it() -> None:
    search = found(lambda penalty, n: np.full(n, 2.0 if penalty == PLAIN else 1 + abs(np.log10(penalty) - 1) / 10))
    assert search.penalty == 10
    assert [trial.penalty for trial in search.trials] == list(LADDER[: LADDER.index(10) + 1 + PATIENCE])
    assert search.held_out == 100
    assert search.trials[0].gain == 0


@pytest.mark.parametrize(("gain", "expected"), [(0.05, PLAIN), (0.19, PLAIN), (0.21, 1000.0)])
def test_a_gain_within_two_errors_is_not_believed(gain: float, expected: float) -> None:
    """Gains of +-1 around their mean in 100 choices: an error of .1."""
    noise = np.resize([1.0, -1.0], 20)
    search = found(
        lambda penalty, n: np.ones(n) - (0 if penalty == PLAIN else (gain + noise) if penalty == 1000 else -9)
    )
    assert search.trials[1].error == pytest.approx(0.1, rel=1e-12)
    assert search.penalty == expected


def test_choices_of_a_person_err_together() -> None:
    """25 persons with four equal gains each: 25 observations, not 100."""
    table = {"trip": np.repeat(np.arange(100), 2), "item": ["a", "b"] * 100, "took": [1, 0] * 100}
    persons = np.repeat(np.arange(100) // 4, 2)
    data = ChoiceData.from_long(
        {**table, "who": persons}, choice_set="trip", chosen="took", alternative="item", person="who"
    )
    folds = cut(data, seed=0)
    assert len(folds) == FOLDS
    for fold in folds:
        assert not set(fold.known.keep["who"].plain()) & set(fold.held_out.keep["who"].plain())
    gains = [np.where(fold.groups % 2, 1.0, -1.0) for fold in folds]
    paths = [lambda penalty, g=g: np.zeros(len(g)) if penalty == PLAIN else -g for g in gains]
    search = search_penalty(folds, paths)
    mean = 1 - 2 * 13 / 25
    expected = np.sqrt((12 * (1 - mean) ** 2 + 13 * (1 + mean) ** 2) * 16) / 100
    assert search.trials[1].error == pytest.approx(expected, rel=1e-9)


def test_few_sets_tell_nothing() -> None:
    assert cut(duels(FEWEST - 1), seed=0) == []
    assert len(cut(duels(FEWEST), seed=0)) == FOLDS


def test_sets_of_one_are_left_out() -> None:
    data = item_choices([("ab", "a"), ("a", "a")] * FEWEST)
    assert sum(len(fold.held_out) for fold in cut(data, seed=0)) == FEWEST


def test_a_table_of_counts_is_held_out_choice_by_choice() -> None:
    """Two cells of 30 and 10 choices: every fold fits and predicts both."""
    data = item_choices({("ab", "a"): 30, ("ab", "b"): 10})
    folds = cut(data, 0, cells=np.array([0, 1]))
    assert sum(len(fold.held_out) for fold in folds) == 40
    assert sum(fold.held_out.weights.sum() for fold in folds) == pytest.approx(40)
    assert all(len(set(fold.known.require_chosen("test").tolist())) == 2 for fold in folds)
    heavy = cut(replace(data, weights=data.weights * 1e9), 0, cells=np.array([0, 1]))
    assert sum(len(fold.held_out) for fold in heavy) == 20_000
    assert sum(fold.held_out.weights.sum() for fold in heavy) == pytest.approx(4e10)


def test_weights_of_a_survey_are_no_counts() -> None:
    """A cell that several sets have is one of choices, whatever their weights."""
    data = duels()
    folds = cut(replace(data, weights=np.full(100, 350.0)), 0, cells=data.require_chosen("test"))
    assert sum(len(fold.held_out) for fold in folds) == 100
    search = search_penalty(folds, [lambda penalty, fold=fold: np.ones(len(fold.held_out)) for fold in folds])
    assert search.trials[1].penalty == 350 * LADDER[1]


@pytest.mark.parametrize("value", [-1, "never", None, True, math.nan])
def test_what_is_no_penalty_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="ridge must be"):
        require_penalty("ridge", value)
    require_penalty("ridge", 0)
    require_penalty("ridge", "auto")


def test_the_summary_tells_what_was_tried() -> None:
    trials = (Trial(PLAIN, 0.7, 0.0, 0.0), Trial(1000.0, 0.6, 0.1, 0.01))
    text = penalty_facts({"penalty": PenaltySearch(trials, 50).to_dict()})["penalty"]
    assert text == "1000, learnt from 50 held-out sets (NLL inf: 0.7000, 1000: 0.6000)"
    assert "infinite: the plain logit" in penalty_facts({"penalty": PenaltySearch(trials[:1], 50).to_dict()})["penalty"]
    assert "too few" in penalty_facts({"penalty": PenaltySearch((), 0).to_dict()})["penalty"]
    assert penalty_facts({}) == {}
