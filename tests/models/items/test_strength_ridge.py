"""The ridge on strengths: closed forms, what it replaces, and when it is learnt."""

from itertools import combinations

import numpy as np
import pytest

from choice_tables import item_choices
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.models import CDM, PCMC, BradleyTerry, Thurstone
from pcmcnet.models.items.strength_ridge import RIDGES, learn_ridge
from pcmcnet.models.items.universe import Universe

ITEMS = "abcdefghijklmnopqrstuvwxyz"
DUEL = {("ab", "a"): 30.0, ("ab", "b"): 10.0}


def choices(strengths: np.ndarray, sets: int, seed: int) -> ChoiceData:
    """Choices from random sets of four items, which follow a logit; every item is on offer."""
    rng = np.random.default_rng(seed)
    offers = [np.arange(len(strengths))] + [rng.permutation(len(strengths))[:4] for _ in range(sets)]
    best = [items[np.argmax(strengths[items] + rng.gumbel(size=len(items)))] for items in offers]
    return item_choices([("".join(ITEMS[i] for i in items), ITEMS[b]) for items, b in zip(offers, best, strict=True)])


def test_two_items_meet_where_choices_and_ridge_balance() -> None:
    """With d the difference, 30 - 40 p = ridge d / 2; the curvature along d is 40 p (1 - p) + ridge / 2."""
    model = BradleyTerry(ridge=4.0).fit(item_choices(DUEL))
    d = -model.strengths_[1]
    p = 1 / (1 + np.exp(-d))
    assert 30 - 40 * p == pytest.approx(2 * d, abs=1e-9)
    assert model.errors_[1] == pytest.approx(1 / np.sqrt(40 * p * (1 - p) + 2), rel=1e-9)


@pytest.mark.parametrize("kind", [BradleyTerry, Thurstone])
def test_the_ridge_pulls_to_the_mean_whatever_the_reference(kind: type[BradleyTerry] | type[Thurstone]) -> None:
    """At the maximum the slope of the likelihood, by differences, is the ridge times the distance from the mean."""
    data = item_choices({**DUEL, ("bc", "b"): 9.0, ("bc", "c"): 4.0, ("abc", "c"): 3.0})
    model, h = kind(ridge=2.0).fit(data), 1e-5

    def likelihood(strengths: np.ndarray) -> float:
        model.strengths_ = strengths
        return model.score(data) * float(data.weights.sum())

    s = model.strengths_.copy()
    slopes = [(likelihood(s + h * e) - likelihood(s - h * e)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(slopes, 2 * (s - s.mean()), rtol=0, atol=1e-4)


def test_a_ridge_takes_the_place_of_smoothing() -> None:
    data = item_choices({("ab", "a"): 3, ("ab", "b"): 1, ("bc", "b"): 2})  # c is never chosen
    strengths = [BradleyTerry(ridge=1.0, smoothing=smoothing).fit(data).strengths_ for smoothing in (0, 5)]
    np.testing.assert_array_equal(*strengths)
    assert strengths[0][2] < strengths[0][1]
    with pytest.raises(InputError, match="no finite estimate"):
        BradleyTerry(ridge=0, smoothing=0).fit(data)
    with pytest.raises(InputError, match="no chain of choice sets"):
        BradleyTerry(ridge=1.0).fit(item_choices({("ab", "a"): 3, ("cd", "c"): 2}))


def test_many_items_and_few_choices_are_shrunk_and_predicted_better() -> None:
    truth = 2 * np.random.default_rng(0).normal(size=26)
    train, fresh = choices(truth, 200, seed=1), choices(truth, 2000, seed=2)
    model = BradleyTerry().fit(train)
    assert float(model.training_["penalty"]["penalty"]) > 0
    assert model.score(fresh) > BradleyTerry(ridge=0).fit(train).score(fresh) + 0.01


@pytest.mark.parametrize("model", [CDM(), PCMC(restarts=1)])
def test_models_with_context_depart_from_the_logit_that_was_learnt(model: CDM | PCMC) -> None:
    """Choices of a logit: no context is found, and the law is Bradley-Terry's, ridge and all."""
    train = choices(2 * np.random.default_rng(0).normal(size=26), 200, seed=1)
    logit = BradleyTerry().fit(train)
    np.testing.assert_allclose(model.fit(train).predict_proba(train), logit.predict_proba(train), rtol=0, atol=1e-6)
    facts = model.summary().facts
    assert facts["penalty"].startswith("infinite")
    assert facts["strengths"] == f"a ridge of {logit.training_['penalty']['penalty']} in place of smoothing"


def test_few_items_and_many_choices_keep_the_plain_model() -> None:
    pairs = [(a + b, side) for a, b in combinations("abcd", 2) for side in (a, b)]
    rng = np.random.default_rng(0)
    data = item_choices([pairs[k] for k in rng.integers(len(pairs), size=1000)] + [("ab", "a")] * 300)
    model = BradleyTerry().fit(data)
    np.testing.assert_array_equal(model.strengths_, BradleyTerry(ridge=0).fit(data).strengths_)
    assert "none: smoothing alone, learnt from 1,300 held-out sets" in str(model.summary())


def test_too_few_sets_keep_the_plain_model() -> None:
    model = BradleyTerry().fit(item_choices([("ab", "a"), ("ab", "b"), ("ab", "a")]))
    assert "none: smoothing alone: choice sets are too few" in str(model.summary())


def test_thurstones_ridge_has_the_units_of_its_utilities() -> None:
    data = choices(np.zeros(8), 60, seed=0)
    logit, normal = (
        learn_ridge(data, Universe.learn(data), smoothing=0.1, precision=precision, seed=0).trials
        for precision in (1.0, Thurstone.precision)
    )
    assert [t.loss for t in logit] == [t.loss for t in normal]
    np.testing.assert_allclose([t.penalty for t in normal], [t.penalty * np.pi**2 / 6 for t in logit])


def test_the_walk_goes_on_where_the_plain_model_is_better_than_strong_ridges() -> None:
    """Strong differences: 1000 and 316 lose to smoothing, and weaker ridges are tried all the same."""
    data = choices(np.linspace(0, 6, 8), 150, seed=0)
    trials = learn_ridge(data, Universe.learn(data), smoothing=0.1, seed=0).trials
    assert trials[0].penalty == RIDGES[0] == 0
    assert trials[1].loss > trials[0].loss
    assert trials[2].loss > trials[0].loss
    assert len(trials) > 6
