"""Chains of known rates: values by hand, agreement with the stationary layer, and properties."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pcmcnet as pn
from pcmcnet.datasets import markov
from pcmcnet.errors import ChainError, ConfigError, InputError


def test_probabilities_match_a_chain_in_detailed_balance() -> None:
    """Every pair is in balance under p = (2, 1, 3) / 6: flows are 2 * 1 = 1 * 2, 2 * 3 = 3 * 2 and 1 * 3 = 3 * 1."""
    p = markov.probabilities([[0, 1, 3], [2, 0, 3], [2, 1, 0]])
    np.testing.assert_allclose(p, np.array([2, 1, 3]) / 6, rtol=1e-15)


@pytest.mark.parametrize("alpha", [0.51, 0.75, 1.0])
def test_winners_have_probability_alpha_and_three_items_are_equal(alpha: float) -> None:
    rates = markov.rock_paper_scissors(alpha)
    for winner, loser in ((0, 1), (1, 2), (2, 0)):  # rock beats scissors, scissors paper, paper rock
        np.testing.assert_allclose(markov.probabilities(rates, [winner, loser]), [alpha, 1 - alpha], rtol=1e-15)
    np.testing.assert_allclose(markov.probabilities(rates), 1 / 3, rtol=1e-15)


def test_rates_match_the_matrix_of_the_paper() -> None:
    expected = [[0, 0.2, 0.8], [0.8, 0, 0.2], [0.2, 0.8, 0]]
    np.testing.assert_allclose(markov.rock_paper_scissors(0.8), expected, rtol=0, atol=1e-15)


@given(n=st.integers(2, 5), seed=st.integers(0, 2**16), zeros=st.sampled_from([0.0, 0.5, 1.0]))
def test_every_subset_agrees_with_the_stationary_layer(n: int, seed: int, zeros: float) -> None:
    rates = markov.random_pcmc(n, seed=seed, zeros=zeros)
    distributions = markov.every_subset(rates)
    assert len(distributions) == 2**n - 1
    for members, p in distributions.items():
        part = rates[np.ix_(members, members)]
        expected = pn.stationary_distribution(torch.from_numpy(part)).numpy()
        np.testing.assert_allclose(p, expected, rtol=1e-12)
        np.testing.assert_allclose(p @ part, p * part.sum(axis=1), rtol=0, atol=1e-12 * part.max())  # balance


def test_a_transient_item_has_probability_zero() -> None:
    """0 -> 1 -> 2 and 0 -> 2, for any order of elimination."""
    rates = np.array([[0, 1, 2], [0, 0, 3], [0, 0, 0.0]])
    assert markov.probabilities(rates).tolist() == [0, 0, 1]
    assert markov.probabilities(rates, [2, 1, 0]).tolist() == [1, 0, 0]
    assert markov.probabilities(rates, [1, 2, 0]).tolist() == [0, 1, 0]


def test_tiny_probabilities_are_accurate() -> None:
    """A pair with rates 1 and 1e-200: P(0) = 1e-200."""
    np.testing.assert_allclose(markov.probabilities([[0, 1], [1e-200, 0]])[0], 1e-200, rtol=1e-15)


@pytest.mark.parametrize("zeros", [0.0, 0.3, 1.0])
def test_random_rates_have_the_requested_share_of_zeros(zeros: float) -> None:
    rates = markov.random_pcmc(60, seed=3, zeros=zeros)
    pairs = 60 * 59 / 2
    absent = ((rates == 0).sum() - 60) / pairs
    assert abs(absent - zeros) <= 4 * math.sqrt(zeros * (1 - zeros) / pairs)
    assert (rates + rates.T)[np.triu_indices(60, 1)].all()
    np.testing.assert_array_equal(rates, markov.random_pcmc(60, seed=3, zeros=zeros))
    assert not np.array_equal(rates, markov.random_pcmc(60, seed=4, zeros=zeros))


def test_choices_follow_the_true_probabilities_in_every_set() -> None:
    rates = markov.random_pcmc(4, seed=1, zeros=0.3)
    table = markov.simulate(rates, 20_000, seed=2)
    item = np.array([int(name.removeprefix("item")) for name in table["alternative"].to_pylist()])
    sets, chosen, p = (table[name].to_numpy() for name in ("choice_set", "chosen", "true_prob"))
    code = np.bincount(sets, weights=2.0**item).astype(int)[sets]  # bit mask of the items in the set
    for members, distribution in markov.every_subset(rates).items():
        rows = code == sum(2**i for i in members)
        assert rows.any() == (len(members) > 1)
        for i, probability in zip(members, distribution, strict=True):
            mine = rows & (item == i)
            np.testing.assert_allclose(p[mine], probability, rtol=1e-14)
            assert abs(chosen[mine].sum() - p[mine].sum()) <= 4 * np.sqrt((p[mine] * (1 - p[mine])).sum())


def test_the_table_has_labels_features_and_requested_sizes() -> None:
    table = markov.simulate(markov.random_pcmc(5, seed=0), 300, seed=1, sizes=(1, 3), labels=list("abcde"))
    assert table.column_names == ["choice_set", "alternative", *(f"is_{x}" for x in "abcde"), "chosen", "true_prob"]
    sizes = np.bincount(table["choice_set"].to_numpy())
    assert set(sizes) == {1, 3}
    for x in "abcde":
        assert table[f"is_{x}"].to_pylist() == [int(name == x) for name in table["alternative"].to_pylist()]
    bare = markov.simulate(
        markov.random_pcmc(5, seed=0), 300, seed=1, sizes=(1, 3), labels=list("abcde"), one_hot=False
    )
    assert bare.equals(table.select(bare.column_names))
    assert bare.column_names == ["choice_set", "alternative", "chosen", "true_prob"]


def test_the_same_seed_gives_the_same_table() -> None:
    table = markov.simulate_rock_paper_scissors(50, seed=4)
    assert table.equals(markov.simulate_rock_paper_scissors(50, seed=4))
    assert not table.equals(markov.simulate_rock_paper_scissors(50, seed=5))


def test_an_item_indexed_model_recovers_the_game() -> None:
    table = markov.simulate_rock_paper_scissors(20_000, seed=0)
    data = pn.ChoiceData.from_long(table, choice_set="choice_set", chosen="chosen", alternative="alternative")
    p = pn.PCMC().fit(data, seed=0).predict_proba(data)
    # The standard error of a pair's share among its 3,300 sets is 0.0075.
    np.testing.assert_allclose(p, table["true_prob"].to_numpy(), rtol=0, atol=0.03)


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ([[0, 1]], r"expected shape \(n, n\) with n at least 1, got \(1, 2\)"),
        (np.zeros((0, 0)), r"got \(0, 0\)"),
        ([[0, 1], [1]], "expected numbers of shape"),
        ([[0, -1], [1, 0]], r"rates\[0, 1\]: expected a finite number, 0 or above, got -1.0; 1 such"),
        ([[0, np.nan], [1, 0]], r"rates\[0, 1\]: .* got nan"),
        ([[0, 1, 0], [1, 0, 1], [0, 1, 0]], r"rates\[0, 2\] and rates\[2, 0\]: expected a positive rate"),
    ],
)
def test_rates_without_a_unique_distribution_are_refused(rates: Any, message: str) -> None:
    for use in (markov.probabilities, markov.every_subset, lambda q: markov.simulate(q, 1, seed=0)):
        with pytest.raises(ChainError, match=message):
            use(rates)


@pytest.mark.parametrize("members", [[], [0, 0], [0, 3], [-1, 0], [0.5], [True]])
def test_unknown_items_are_refused(members: list[Any]) -> None:
    with pytest.raises(InputError, match="members: expected distinct items from 0 to 2, got"):
        markov.probabilities(markov.rock_paper_scissors(), members)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": (0,)}, r"sizes: expected whole numbers from 1 to 3, got \(0,\)"),
        ({"sizes": (4,)}, "sizes: expected whole numbers from 1 to 3"),
        ({"sizes": ()}, "sizes: expected"),
        ({"sizes": (2.5,)}, "sizes: expected"),
        ({"labels": ["a", "b"]}, "labels: expected 3 distinct strings"),
        ({"labels": ["a", "b", "a"]}, "labels: expected 3 distinct strings"),
        ({"labels": [1, 2, 3]}, "labels: expected 3 distinct strings"),
        ({"sets": 0}, "sets: expected"),
        ({"seed": -1}, "seed: expected"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        markov.simulate(markov.rock_paper_scissors(), **{"sets": 3, "seed": 0, **options})


def test_invalid_parameters_of_chains_are_refused() -> None:
    for alpha in (0.5, 1.01, math.nan, "high"):
        with pytest.raises(ConfigError, match=r"alpha: expected a number above 0\.5 and at most 1"):
            markov.rock_paper_scissors(alpha)  # type: ignore[arg-type]
    for n in (1, 2.0, "two"):
        with pytest.raises(ConfigError, match="n: expected a whole number, 2 or above"):
            markov.random_pcmc(n, seed=0)  # type: ignore[arg-type]
    for zeros in (-0.1, 1.1, math.nan):
        with pytest.raises(ConfigError, match="zeros: expected a number from 0 to 1"):
            markov.random_pcmc(3, seed=0, zeros=zeros)
    with pytest.raises(InputError, match=r"at most 20 items, got 21, which have 2\^21 subsets"):
        markov.every_subset(np.ones((21, 21)))
