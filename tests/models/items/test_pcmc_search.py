"""The search for rates: its objective, and what it leaves alone."""

import numpy as np
import pytest
import torch

from pcmcnet.layers import stationary_distribution
from pcmcnet.models.items.pcmc import PCMCConfig
from pcmcnet.models.items.pcmc_search import chain_log_p, search
from pcmcnet.models.items.universe import DistinctSets


def three_sets() -> DistinctSets:
    """{0, 1}, {1, 2} and {0, 1, 2} of a universe of 4 items, with counts."""
    items = np.array([0, 1, 1, 2, 0, 1, 2])
    counts = np.array([3.0, 5.0, 2.0, 6.0, 4.0, 1.0, 2.0])
    return DistinctSets(items, np.array([0, 2, 4, 7]), counts, np.arange(7), np.ones(7, int))


def test_log_rates_give_the_law_of_their_rates_and_padding_none() -> None:
    scores = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 3, 3)))
    found = chain_log_p(scores, torch.tensor([[True, True, False]]))[0]
    expected = stationary_distribution(scores[0, :2, :2].exp()).log()
    torch.testing.assert_close(found[:2], expected, rtol=0, atol=1e-12)
    assert found[2] == -torch.inf


def test_a_pair_alone_takes_its_frequencies() -> None:
    """One set with 30 and 10 choices: q_01 / q_10 = p_1 / p_0 = 1 / 3."""
    sets = DistinctSets(np.array([0, 1]), np.array([0, 2]), np.array([30.0, 10.0]), np.arange(2), np.ones(2, int))
    settings = PCMCConfig(ridge=0.0, restarts=1, tolerance=1e-15)
    found = search(sets, np.zeros((2, 2)), settings, np.random.default_rng(0))
    assert found.log_rates[0, 1] - found.log_rates[1, 0] == pytest.approx(-np.log(3), abs=1e-6)


@pytest.mark.parametrize("method", ["lbfgs", "slsqp"])
def test_rates_of_pairs_in_no_set_keep_their_start(method: str) -> None:
    start = np.log(np.random.default_rng(1).uniform(0.5, 1.0, (4, 4)))
    settings = PCMCConfig(method=method, restarts=2)  # type: ignore[arg-type]
    found = search(three_sets(), start, settings, np.random.default_rng(2))
    assert found.informed == 6
    np.testing.assert_array_equal(found.log_rates[3], start[3])
    np.testing.assert_array_equal(found.log_rates[:, 3], start[:, 3])
    assert (found.log_rates[:3, :3] != start[:3, :3])[~np.eye(3, dtype=bool)].all()
    assert found.best.value == min(found.objectives)


def test_a_strong_ridge_keeps_the_start() -> None:
    start = np.zeros((4, 4))
    found = search(three_sets(), start, PCMCConfig(ridge=1e9, restarts=1), np.random.default_rng(0))
    np.testing.assert_allclose(found.log_rates, start, rtol=0, atol=1e-6)
