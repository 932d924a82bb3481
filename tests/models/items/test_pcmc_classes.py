"""Latent classes of chains: values by hand, nesting, recovery, persons, and properties of mixtures."""

from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

import pcmcnet as pn
from choice_tables import item_choices
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, ConfigError
from pcmcnet.models import PCMC
from pcmcnet.models.items.pcmc_estimation import Choosers, ClassChains
from pcmcnet.models.items.universe import DistinctSets, Universe

TWO: dict[str, Any] = {"classes": 2, "restarts": 3, "ridge": 1.0}


def cycle(strength: float) -> np.ndarray:
    """Return log-rates of rock, paper, scissors and a fourth item that loses to all."""
    t = np.zeros((4, 4))
    t[[0, 1, 2], [1, 2, 0]] = strength
    t[3, :3] = 1.0
    return t


TRUTH = ClassChains(np.stack([cycle(2.0), cycle(-2.0)]), np.array([0.6, 0.4]))


def mixture_probabilities(chains: ClassChains, items: tuple[int, ...]) -> np.ndarray:
    """Return the probabilities of a set, averaged over classes."""
    probabilities = [
        pn.stationary_distribution(torch.from_numpy(np.exp(t[np.ix_(items, items)]))).numpy() for t in chains[0]
    ]
    return np.asarray(chains.shares @ np.stack(probabilities))


@cache
def simulate(persons: int, each: int = 10, seed: int = 0) -> ChoiceData:
    rng, rows, s = np.random.default_rng(seed), [], 0
    for person in range(persons):
        c = rng.choice(2, p=TRUTH.shares)
        own = ClassChains(TRUTH.log_rates[[c]], np.ones(1))
        for _ in range(each):
            items = tuple(np.sort(rng.permutation(4)[: rng.integers(2, 5)]))
            chosen = rng.choice(len(items), p=mixture_probabilities(own, items))
            rows += [(s, person, "abcd"[i], int(k == chosen)) for k, i in enumerate(items)]
            s += 1
    table = dict(zip(("set", "who", "item", "took"), map(np.array, zip(*rows, strict=True)), strict=True))
    return ChoiceData.from_long(table, choice_set="set", chosen="took", alternative="item", person="who")


@cache
def opposed(persons: int, seed: int = 0, *, of_one_mind: bool = False) -> ChoiceData:
    """Return four choices per person. Every other person likes a best and d least, the others the reverse."""
    rng, rows, s = np.random.default_rng(seed), [], 0
    for person in range(persons):
        tastes = np.array([4.0, 2.0, 0.0, -2.0]) * (1 if of_one_mind or person % 2 else -1)
        for _ in range(4):
            items = np.sort(rng.permutation(4)[: rng.integers(2, 5)])
            chosen = np.argmax(tastes[items] + rng.gumbel(size=len(items)))
            rows += [(s, person, "abcd"[i], int(k == chosen)) for k, i in enumerate(items)]
            s += 1
    table = dict(zip(("set", "who", "item", "took"), map(np.array, zip(*rows, strict=True)), strict=True))
    return ChoiceData.from_long(table, choice_set="set", chosen="took", alternative="item", person="who")


def divergence(model: PCMC) -> float:
    sets = [items for size in range(2, 5) for items in combinations(range(4), size)]
    probabilities = [
        (mixture_probabilities(TRUTH, items), mixture_probabilities(model._state.chains, items)) for items in sets
    ]
    return float(np.mean([(p * np.log(p / q)).sum() for p, q in probabilities]))


@pytest.fixture(scope="module")
def model() -> PCMC:
    return PCMC(**TWO).fit(simulate(100))


def test_a_mixture_averages_the_probabilities_of_its_classes() -> None:
    """A pair has odds of 1 to 3 in one class and 3 to 1 in the other, of share 1/4: .75 x .25 + .25 x .75 = .375."""
    log_rates = np.log(np.array([[[1.0, 3.0], [1.0, 1.0]], [[1.0, 1.0], [3.0, 1.0]]]))
    data = item_choices([("ab", "a")])
    sets = DistinctSets.of(data, Universe.learn(data).index(data))
    p = np.exp(ClassChains(log_rates, np.array([0.75, 0.25])).log_p(sets))
    np.testing.assert_allclose(p, [0.375, 0.625], rtol=1e-12)


def test_persons_with_equal_choices_are_one_case() -> None:
    result = Choosers.of_persons(np.array([0, 0, 0, 1]), np.array([5, 5, 2, 5]), np.array([1.0, 2.0]))
    assert list(zip(result.person, result.entry, result.times, strict=True)) == [(0, 2, 1), (0, 5, 2), (1, 5, 1)]
    alone = Choosers.of_sets(np.array([5, 2, 5]), np.array([1.0, 2.0, 4.0]))
    np.testing.assert_array_equal(alone.entry, [2, 5])
    np.testing.assert_array_equal(alone.weights, [2.0, 5.0])


def test_two_opposite_cycles_are_recovered(model: PCMC) -> None:
    """A single chain would see one weaker cycle. The posterior identifies the class of most persons."""
    assert model.n_classes_ == model.n_chains == 2
    assert model.shares_.sum() == pytest.approx(1, rel=1e-12)
    assert model.shares_[0] == pytest.approx(0.6, abs=0.15)
    assert divergence(model) < 0.02
    assert model.posterior(simulate(100)).max(1).mean() > 0.9
    assert model.num_parameters == 2 * 12 + 1


def test_a_mixture_fits_persons_better_than_one_chain(model: PCMC) -> None:
    """The likelihood of a person is a sum over classes of products over sets."""
    data, one = simulate(100), PCMC(restarts=3, ridge=1.0).fit(simulate(100))
    picked = data.offsets[:-1] + data.require_chosen("test")
    joint = np.log(model.shares_) + np.stack(
        [np.bincount(data.groups(), weights=log_p[picked]) for log_p in model._class_log_p(data).T], axis=1
    )
    assert np.logaddexp.reduce(joint, axis=1).sum() > one._log_proba(data)[picked].sum() + 50


def test_rates_can_be_selected_by_class(model: PCMC) -> None:
    data = simulate(100).subset([0, 1])
    for c in (1, 2):
        for s, rates in enumerate(model.rates(data, of_class=c)):
            inside = slice(data.offsets[s], data.offsets[s + 1])
            expected = np.exp(model._class_log_p(data)[inside, c - 1])
            result = pn.stationary_distribution(torch.from_numpy(rates)).numpy()
            np.testing.assert_allclose(result, expected, rtol=0, atol=1e-10)


AUTO: dict[str, Any] = {"classes": "auto", "restarts": 2, "ridge": 100.0}


def test_opposite_preferences_give_two_classes() -> None:
    """Those who like a prefer b to c, those who like d prefer c to b. If a and d are available, both are rare."""
    model = PCMC(**AUTO).fit(opposed(60))
    first, second, *_ = model.record_.class_trials
    assert second.gain > 2 * second.standard_error
    assert first.held_out_nll - second.held_out_nll == pytest.approx(second.gain, rel=1e-9)
    assert model.n_classes_ == 2
    assert "classes tried" in model.summary().facts


def test_equal_preferences_give_one_class() -> None:
    model = PCMC(**AUTO).fit(opposed(60, of_one_mind=True))
    assert [trial.value for trial in model.record_.class_trials] == [1, 2]
    assert model.n_classes_ == 1


@pytest.mark.parametrize("data", [opposed, pytest.param(simulate, marks=pytest.mark.slow)])
def test_a_mixture_is_at_least_as_good_as_each_class(data: Any) -> None:
    """Compared on new persons with each class alone and with a single chain."""
    mixed, one = (PCMC(classes=k, restarts=3, ridge=10.0).fit(data(100)) for k in (2, 1))
    fresh = data(300, seed=1)
    picked = fresh.offsets[:-1] + fresh.require_chosen("test")
    members = mixed._class_log_p(fresh)[picked].mean(0)
    noise = 0.005  # nats: two estimates differ although one chain predicts single choices as well
    assert mixed.score(fresh) > max(*members, one.score(fresh)) - noise


def test_copies_share_their_probability_in_a_mixture() -> None:
    """Uniform expansion holds for mixtures: cells of a grid with two alternatives."""
    x = [[0.0, 0.1, 1.0], [0.0, 1.0, 2.0]] * 10
    rows = [(s, v, int(k == s % 3)) for s, values in enumerate(x) for k, v in enumerate(values)]
    table = dict(zip(("set", "x", "took"), map(list, zip(*rows, strict=True)), strict=True))
    data = ChoiceData.from_long(table, choice_set="set", chosen="took", features=["x"])
    mixed = PCMC(bins={"x": 3}, classes=2, restarts=1, ridge=1.0).fit(data)
    asked = {"set": [0, 0, 0, 1, 1], "x": [0.0, 0.1, 1.0, 0.0, 1.0]}
    p = mixed.predict_proba(ChoiceData.from_long(asked, choice_set="set", features=["x"]))
    assert p[0] == pytest.approx(p[1], rel=1e-12)
    assert p[0] + p[1] == pytest.approx(p[3], rel=1e-9)


def test_mixtures_are_not_contractible() -> None:
    """b and c are equivalent to a in the first class only, so the probability of a group depends on its members."""
    alike, apart = np.zeros((3, 3)), np.zeros((3, 3))
    apart[0, 1] = 2.0
    one, mixed = ClassChains(alike[None], np.ones(1)), ClassChains(np.stack([alike, apart]), np.array([0.5, 0.5]))
    assert mixture_probabilities(one, (0, 1))[1] == pytest.approx(mixture_probabilities(one, (0, 2))[1], rel=1e-12)
    assert abs(mixture_probabilities(mixed, (0, 1))[1] - mixture_probabilities(mixed, (0, 2))[1]) > 0.1


def test_one_class_is_the_chain_itself() -> None:
    data = simulate(100)
    np.testing.assert_array_equal(
        PCMC(classes=1, restarts=1, ridge=1.0).fit(data).log_rates_, PCMC(restarts=1, ridge=1.0).fit(data).log_rates_
    )


def test_every_set_has_its_own_class_without_persons() -> None:
    by_set = PCMC(**TWO, by="set").fit(simulate(100))
    assert by_set.n_classes_ == 2
    assert np.isfinite(by_set.score(simulate(100)))


def test_saved_classes_are_loaded(model: PCMC) -> None:
    files, about, data = model._files(), (model.record_, model.table_), simulate(100)
    back = PCMC(**TWO)
    back.fitted_ = replace(model.require_fitted(), state=back._restore(files, *about))
    np.testing.assert_array_equal(back._log_proba(data), model._log_proba(data))
    from safetensors.numpy import load, save

    arrays = load(files["weights.safetensors"])
    with pytest.raises(ArtifactError, match="class shares do not add up to 1"):
        PCMC(**TWO)._restore({**files, "weights.safetensors": save({**arrays, "shares": np.array([0.5, 0.4])})}, *about)
    with pytest.raises(ArtifactError, match="saved array log_rates does not match"):
        PCMC(**TWO)._restore({**files, "weights.safetensors": save({**arrays, "shares": np.full(4, 0.25)})}, *about)
    assert "class shares" in str(model.summary())


@pytest.mark.parametrize("options", [{"classes": 0}, {"classes": "many"}, {"classes": 2, "method": "slsqp"}])
def test_invalid_classes_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="classes"):
        PCMC(**options)


@pytest.mark.slow
def test_a_mixture_is_recovered_from_many_sets() -> None:
    data = simulate(2000)
    assert divergence(PCMC(classes=2, restarts=4).fit(data)) < 0.003
