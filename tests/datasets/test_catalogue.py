"""The simulated catalogue: exact chains, a logit at rank 1, and assortments."""

from dataclasses import replace

import numpy as np
import pytest

from pcmcnet.datasets import catalogue, markov
from pcmcnet.errors import ConfigError


def test_probabilities_are_those_of_a_markov_chain() -> None:
    """The chain with r states has the same distribution as the chain of all items with rates q_ij = sum_k u_ik v_jk."""
    truth = catalogue.random_catalogue(items=7, rank=3, seed=1)
    choosers = truth.simulate(4, seed=2)
    log_u, log_v = truth.log_factors(choosers)
    for p, u, v in zip(truth.probabilities(choosers), np.exp(log_u), np.exp(log_v), strict=True):
        rates = u @ v.T
        np.fill_diagonal(rates, 0)
        np.testing.assert_allclose(p, markov.probabilities(rates), rtol=1e-10)


def test_rank_1_is_a_multinomial_logit() -> None:
    """With one factor, pi_i is proportional to v_i / u_i."""
    truth = catalogue.random_catalogue(items=7, rank=1, seed=1)
    choosers = truth.simulate(4, seed=2)
    log_u, log_v = (factor[:, :, 0] for factor in truth.log_factors(choosers))
    expected = np.exp(log_v - log_u)
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(truth.probabilities(choosers), expected, rtol=1e-12)


def test_items_that_are_not_on_offer_have_probability_0_and_leave_the_chain() -> None:
    """The probabilities of an assortment are those of a catalogue with only its items."""
    truth = catalogue.random_catalogue(items=30, rank=3, seed=1)
    choosers = truth.simulate(20, seed=2, assortments=4)
    lists = choosers["offered"].to_pylist()
    assert len({tuple(items) for items in lists}) == 4
    whole, items = truth.probabilities(choosers), choosers["item"].to_pylist()
    for row, offered in enumerate(lists):
        assert items[row] in offered
        smaller = replace(truth, catalogue=truth.catalogue.take(offered))
        chooser = choosers.slice(row, 1).drop_columns(["offered"])
        np.testing.assert_allclose(whole[row, offered], smaller.probabilities(chooser)[0], rtol=1e-12)
        assert whole[row].sum() == pytest.approx(1, abs=1e-12)


def test_choices_follow_the_probabilities() -> None:
    """The chi-squared statistic of 3,000 choices has mean 9 and standard deviation 4.2 for ten items."""
    truth = catalogue.random_catalogue(items=10, rank=3, seed=1)
    choosers = truth.simulate(3_000, seed=2)
    expected = truth.probabilities(choosers).sum(0)
    counts = np.bincount(choosers["item"].to_numpy(), minlength=10)
    assert ((counts - expected) ** 2 / expected).sum() < 30


def test_blocks_of_choosers_give_the_same_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = catalogue.random_catalogue(items=10, rank=3, seed=1)
    whole = truth.simulate(50, seed=2, assortments=3)
    p = truth.probabilities(whole)
    monkeypatch.setattr("pcmcnet.datasets.catalogue.PAIRS_PER_BLOCK", 70)
    assert truth.simulate(50, seed=2, assortments=3).equals(whole)
    np.testing.assert_allclose(truth.probabilities(whole), p, rtol=1e-12)


def test_the_strength_of_context_effects_sets_the_distance_from_a_logit() -> None:
    """Without weights of the factors, all factors are equal, so the ratio of two shares is the same in every set."""
    truth = catalogue.random_catalogue(items=6, rank=3, context=0.0, seed=1)
    choosers = truth.simulate(3, seed=2)
    smaller = replace(truth, catalogue=truth.catalogue.slice(0, 4))
    whole, part = truth.probabilities(choosers)[:, :4], smaller.probabilities(choosers)
    np.testing.assert_allclose(part, whole / whole.sum(1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("options", [{"items": 1}, {"rank": 0}, {"context": -1.0}, {"seed": -1}])
def test_a_bad_catalogue_raises(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        catalogue.random_catalogue(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"choosers": 0}, {"seed": -1}, {"assortments": -1}])
def test_bad_choosers_raise(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        catalogue.random_catalogue(items=5).simulate(**({"choosers": 3, "seed": 0} | options))
