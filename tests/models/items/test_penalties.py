"""Penalties learnt from held-out sets: search, margin, folds by person, tables of counts; the strength ridge."""

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from choice_tables import item_choices
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.models import CDM, PCMC, BradleyTerry, Thurstone
from pcmcnet.models.items.strengths import (
    INFINITE_PENALTY,
    MAX_COPIES,
    PENALTY_LADDER,
    STRENGTH_RIDGES,
    PenaltyRecord,
    SearchRecord,
    choice_folds,
    item_folds,
    learn_strength_ridge,
    require_penalty,
    search_penalty,
)
from pcmcnet.models.items.universe import Universe
from pcmcnet.selection import MIN_GROUPS, Fold, Trial, held_out_weights

PATIENCE = 2  # rungs tried after the best one


def duels(sets: int = 100, seed: int = 0) -> ChoiceData:
    rng = np.random.default_rng(seed)
    return item_choices([("ab", "ab"[k]) for k in rng.integers(2, size=sets)])


def folds_of_items(data: ChoiceData) -> list[Fold]:
    return item_folds(data, Universe.learn(data), seed=0)


def learnt(losses: Any) -> PenaltyRecord:
    """Search with held-out losses that depend on penalty and choice only."""
    folds = choice_folds(duels(), seed=0)
    paths = [lambda penalty, fold=fold: losses(penalty, len(fold.groups)) for fold in folds]
    return PenaltyRecord.of(search_penalty(folds, paths))


def test_the_ladder_descends_from_the_plain_model() -> None:
    assert PENALTY_LADDER[0] == INFINITE_PENALTY == math.inf
    assert PENALTY_LADDER[1] == 1000
    assert PENALTY_LADDER[-1] == 0.01
    np.testing.assert_allclose(np.diff(np.log10(PENALTY_LADDER[1:])), -0.5, atol=2e-3)  # rungs have three digits


def test_the_search_stops_after_the_best_rung_and_returns_it() -> None:
    record = learnt(
        lambda penalty, n: np.full(n, 2.0 if penalty == INFINITE_PENALTY else 1 + abs(np.log10(penalty) - 1) / 10)
    )
    assert record.penalty == 10
    assert [trial.value for trial in record.trials] == list(PENALTY_LADDER[: PENALTY_LADDER.index(10) + 1 + PATIENCE])
    assert record.stronger == list(PENALTY_LADDER[: PENALTY_LADDER.index(10)])
    assert record.held_out_sets == 100
    assert record.trials[0].gain == 0


@pytest.mark.parametrize(("gain", "expected"), [(0.05, INFINITE_PENALTY), (0.19, INFINITE_PENALTY), (0.21, 1000.0)])
def test_a_gain_within_two_standard_errors_is_ignored(gain: float, expected: float) -> None:
    """100 gains of +-1 around their mean have a standard error of .1."""
    noise = np.resize([1.0, -1.0], 20)
    record = learnt(
        lambda penalty, n: (
            np.ones(n) - (0 if penalty == INFINITE_PENALTY else (gain + noise) if penalty == 1000 else -9)
        )
    )
    assert record.trials[1].standard_error == pytest.approx(0.1, rel=1e-12)
    assert record.penalty == expected


def test_choices_of_a_person_count_as_one_observation() -> None:
    """25 persons with four equal gains each are 25 observations, not 100."""
    table = {"trip": np.repeat(np.arange(100), 2), "item": ["a", "b"] * 100, "took": [1, 0] * 100}
    persons = np.repeat(np.arange(100) // 4, 2)
    data = ChoiceData.from_long(
        {**table, "who": persons}, choice_set="trip", chosen="took", alternative="item", person="who"
    )
    folds = choice_folds(data, seed=0)
    assert len(folds) == 5
    for fold in folds:
        assert not set(fold.train.keep["who"].plain()) & set(fold.held_out[0].keep["who"].plain())
    gains = [np.where(fold.groups % 2, 1.0, -1.0) for fold in folds]
    paths = [lambda penalty, g=g: np.zeros(len(g)) if penalty == INFINITE_PENALTY else -g for g in gains]
    search = search_penalty(folds, paths)
    mean = 1 - 2 * 13 / 25
    expected = np.sqrt((12 * (1 - mean) ** 2 + 13 * (1 + mean) ** 2) * 16) / 100
    assert search.trials[1].standard_error == pytest.approx(expected, rel=1e-9)


def test_few_sets_keep_the_plain_model() -> None:
    for folds in (folds_of_items, lambda data: choice_folds(data, seed=0)):
        assert folds(duels(MIN_GROUPS - 1)) == []
        assert len(folds(duels(MIN_GROUPS))) == 5


def test_sets_of_one_are_left_out() -> None:
    data = item_choices([("ab", "a"), ("a", "a")] * MIN_GROUPS)
    assert len(held_out_weights(choice_folds(data, seed=0))) == MIN_GROUPS
    assert len(held_out_weights(folds_of_items(data))) == MIN_GROUPS


def test_single_choices_of_a_table_of_counts_are_held_out() -> None:
    """Every fold fits and predicts both of two cases with 30 and 10 choices."""
    data = item_choices({("ab", "a"): 30, ("ab", "b"): 10})
    folds = folds_of_items(data)
    assert len(held_out_weights(folds)) == 40
    assert held_out_weights(folds).sum() == pytest.approx(40)
    assert all(len(set(fold.train.require_chosen("test").tolist())) == 2 for fold in folds)
    heavy = folds_of_items(replace(data, weights=data.weights * 1e9))
    assert len(held_out_weights(heavy)) == MAX_COPIES
    assert held_out_weights(heavy).sum() == pytest.approx(4e10)


def test_survey_weights_are_not_counts() -> None:
    """A case that occurs in several sets has choices, whatever the weights."""
    folds = folds_of_items(replace(duels(), weights=np.full(100, 350.0)))
    assert len(held_out_weights(folds)) == 100
    search = search_penalty(folds, [lambda penalty, fold=fold: np.ones(len(fold.groups)) for fold in folds])
    assert search.trials[1].value == 350 * PENALTY_LADDER[1]


@pytest.mark.parametrize("value", [-1, "never", None, True, math.nan])
def test_an_invalid_penalty_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="ridge must be"):
        require_penalty("ridge", value)
    require_penalty("ridge", 0)
    require_penalty("ridge", "auto")


def test_the_summary_lists_the_trials() -> None:
    trials = (
        Trial(value=INFINITE_PENALTY, held_out_nll=0.7),
        Trial(value=1000.0, held_out_nll=0.6, gain=0.1, standard_error=0.01),
    )
    record = PenaltyRecord(penalty=1000.0, trials=trials, held_out_sets=50)
    assert record.facts == {"penalty": "1000, learnt from 50 held-out sets (NLL inf: 0.7000, 1000: 0.6000)"}
    assert replace(record, strength_ridge=0.5).facts["strengths"] == "a ridge of 0.5 instead of smoothing"
    assert "infinite: the plain logit" in replace(record, penalty=INFINITE_PENALTY).facts["penalty"]
    assert "too few" in PenaltyRecord(penalty=1.0).facts["penalty"]
    assert SearchRecord(iterations=1, nll=0.5).penalty_facts == {}


# -- The ridge on strengths: closed forms, what it replaces, and when it is learnt ---------------------------------

ITEMS = "abcdefghijklmnopqrstuvwxyz"
DUEL = {("ab", "a"): 30.0, ("ab", "b"): 10.0}


def choices(strengths: np.ndarray, sets: int, seed: int) -> ChoiceData:
    """Return choices of a logit from random sets of four items. Every item is available in some set."""
    rng = np.random.default_rng(seed)
    offers = [np.arange(len(strengths))] + [rng.permutation(len(strengths))[:4] for _ in range(sets)]
    best = [items[np.argmax(strengths[items] + rng.gumbel(size=len(items)))] for items in offers]
    return item_choices([("".join(ITEMS[i] for i in items), ITEMS[b]) for items, b in zip(offers, best, strict=True)])


def test_the_estimate_of_two_items_balances_choices_and_ridge() -> None:
    """The difference d solves 30 - 40 p = ridge d / 2. The second derivative in d is 40 p (1 - p) + ridge / 2."""
    model = BradleyTerry(ridge=4.0).fit(item_choices(DUEL))
    d = -model.strengths_[1]
    p = 1 / (1 + np.exp(-d))
    assert 30 - 40 * p == pytest.approx(2 * d, abs=1e-9)
    assert model.errors_[1] == pytest.approx(1 / np.sqrt(40 * p * (1 - p) + 2), rel=1e-9)


@pytest.mark.parametrize("kind", [BradleyTerry, Thurstone])
def test_the_ridge_shrinks_to_the_mean_for_any_reference(kind: type[BradleyTerry] | type[Thurstone]) -> None:
    """At the maximum, the slope of the likelihood (by differences) is the ridge times the distance from the mean."""
    data = item_choices({**DUEL, ("bc", "b"): 9.0, ("bc", "c"): 4.0, ("abc", "c"): 3.0})
    model, h = kind(ridge=2.0).fit(data), 1e-5

    def likelihood(strengths: np.ndarray) -> float:
        moved, fitted = kind(ridge=2.0), model.require_fitted()
        moved.fitted_ = replace(fitted, state=replace(model._state, strengths=strengths))
        return moved.score(data) * float(data.weights.sum())

    s = model.strengths_.copy()
    slopes = [(likelihood(s + h * e) - likelihood(s - h * e)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(slopes, 2 * (s - s.mean()), rtol=0, atol=1e-4)


def test_a_ridge_replaces_smoothing() -> None:
    data = item_choices({("ab", "a"): 3, ("ab", "b"): 1, ("bc", "b"): 2})  # c is never chosen
    strengths = [BradleyTerry(ridge=1.0, smoothing=smoothing).fit(data).strengths_ for smoothing in (0, 5)]
    np.testing.assert_array_equal(*strengths)
    assert strengths[0][2] < strengths[0][1]
    with pytest.raises(InputError, match="no finite estimate"):
        BradleyTerry(ridge=0, smoothing=0).fit(data)


def test_a_ridge_gives_unconnected_groups_the_same_mean() -> None:
    """The strengths of each group are +x and -x, and 2 / (1 + e^(2x)) = ridge x at the maximum."""
    model = BradleyTerry(ridge=2.0).fit(item_choices({("ab", "a"): 2, ("cd", "c"): 2}))
    a, b, c, d = model.strengths_
    assert a + b == pytest.approx(c + d, abs=1e-9)
    x = (a - b) / 2
    assert 1 / (1 + np.exp(2 * x)) == pytest.approx(x, abs=1e-9)
    assert c - d == pytest.approx(a - b, abs=1e-9)
    assert model.num_parameters == 2


def test_shrinkage_improves_many_items_with_few_choices() -> None:
    truth = 2 * np.random.default_rng(0).normal(size=26)
    train, fresh = choices(truth, 200, seed=1), choices(truth, 2000, seed=2)
    model = BradleyTerry().fit(train)
    assert model.record_.penalty.penalty > 0
    assert model.score(fresh) > BradleyTerry(ridge=0).fit(train).score(fresh) + 0.01


@pytest.mark.parametrize("model", [CDM(), PCMC(restarts=1)])
def test_context_models_start_from_the_learnt_logit(model: CDM | PCMC) -> None:
    """For choices of a logit no context is found, and probabilities are those of Bradley-Terry with its ridge."""
    train = choices(2 * np.random.default_rng(0).normal(size=26), 200, seed=1)
    logit = BradleyTerry().fit(train)
    np.testing.assert_allclose(model.fit(train).predict_proba(train), logit.predict_proba(train), rtol=0, atol=1e-6)
    facts = model.summary().facts
    assert facts["penalty"].startswith("infinite")
    assert facts["strengths"] == f"a ridge of {logit.record_.penalty.penalty:g} instead of smoothing"


def test_many_choices_of_few_items_keep_the_plain_model() -> None:
    pairs = [(a + b, side) for a, b in combinations("abcd", 2) for side in (a, b)]
    rng = np.random.default_rng(0)
    data = item_choices([pairs[k] for k in rng.integers(len(pairs), size=1000)] + [("ab", "a")] * 300)
    model = BradleyTerry().fit(data)
    np.testing.assert_array_equal(model.strengths_, BradleyTerry(ridge=0).fit(data).strengths_)
    assert "none: smoothing alone, learnt from 1,300 held-out sets" in str(model.summary())


def test_too_few_sets_keep_the_plain_model() -> None:
    model = BradleyTerry().fit(item_choices([("ab", "a"), ("ab", "b"), ("ab", "a")]))
    assert "none: smoothing alone: too few choice sets" in str(model.summary())


def test_the_ridge_of_thurstone_has_the_units_of_its_utilities() -> None:
    data = choices(np.zeros(8), 60, seed=0)
    logit, normal = (
        learn_strength_ridge(data, Universe.learn(data), smoothing=0.1, precision=precision, seed=0).trials
        for precision in (1.0, Thurstone.precision)
    )
    assert [t.held_out_nll for t in logit] == [t.held_out_nll for t in normal]
    np.testing.assert_allclose([t.value for t in normal], [t.value * np.pi**2 / 6 for t in logit])


def test_the_search_continues_past_strong_ridges_that_lose() -> None:
    """With strong differences, ridges of 1000 and 316 lose to smoothing, but weaker ridges are still tried."""
    data = choices(np.linspace(0, 6, 8), 150, seed=0)
    trials = learn_strength_ridge(data, Universe.learn(data), smoothing=0.1, seed=0).trials
    assert trials[0].value == STRENGTH_RIDGES[0] == 0
    assert trials[1].held_out_nll > trials[0].held_out_nll
    assert trials[2].held_out_nll > trials[0].held_out_nll
    assert len(trials) > 6
