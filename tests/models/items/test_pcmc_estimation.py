"""The search for rates: its objective, and rates that do not change."""

import numpy as np
import pytest
import torch

from pcmcnet.layers import stationary_distribution
from pcmcnet.models.items.pcmc_estimation import ChainOptions, Method, chain_log_p, fit_chain
from pcmcnet.models.items.universe import DistinctSets


def three_sets() -> DistinctSets:
    """{0, 1}, {1, 2} and {0, 1, 2} of a universe of 4 items, with counts."""
    items = np.array([0, 1, 1, 2, 0, 1, 2])
    counts = np.array([3.0, 5.0, 2.0, 6.0, 4.0, 1.0, 2.0])
    return DistinctSets(items, np.array([0, 2, 4, 7]), counts, np.arange(7), np.ones(7, int))


def test_log_rates_give_their_stationary_distribution() -> None:
    scores = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 3, 3)))
    result = chain_log_p(scores, torch.tensor([[True, True, False]]))[0]
    expected = stationary_distribution(scores[0, :2, :2].exp()).log()
    torch.testing.assert_close(result[:2], expected, rtol=0, atol=1e-12)
    assert result[2] == -torch.inf


def test_a_single_pair_reproduces_its_frequencies() -> None:
    """One set with 30 and 10 choices: q_01 / q_10 = p_1 / p_0 = 1 / 3."""
    sets = DistinctSets(np.array([0, 1]), np.array([0, 2]), np.array([30.0, 10.0]), np.arange(2), np.ones(2, int))
    settings = ChainOptions(restarts=1, tolerance=1e-15)
    result = fit_chain(sets, np.zeros((2, 2)), 0.0, settings, np.random.default_rng(0))
    assert result.log_rates[0, 1] - result.log_rates[1, 0] == pytest.approx(-np.log(3), abs=1e-6)


@pytest.mark.parametrize("method", ["lbfgs", "slsqp"])
def test_rates_of_pairs_in_no_set_keep_their_start(method: Method) -> None:
    start = np.log(np.random.default_rng(1).uniform(0.5, 1.0, (4, 4)))
    settings = ChainOptions(method=method, restarts=2)
    result = fit_chain(three_sets(), start, 0.1, settings, np.random.default_rng(2))
    assert result.informed_rates == 6
    np.testing.assert_array_equal(result.log_rates[3], start[3])
    np.testing.assert_array_equal(result.log_rates[:, 3], start[:, 3])
    assert (result.log_rates[:3, :3] != start[:3, :3])[~np.eye(3, dtype=bool)].all()
    assert result.minimum.value == min(result.objectives)


def test_a_strong_ridge_keeps_the_start() -> None:
    start = np.zeros((4, 4))
    result = fit_chain(three_sets(), start, 1e9, ChainOptions(restarts=1), np.random.default_rng(0))
    np.testing.assert_allclose(result.log_rates, start, rtol=0, atol=1e-6)
    limit = fit_chain(three_sets(), start, np.inf, ChainOptions(restarts=3), np.random.default_rng(0))
    np.testing.assert_array_equal(limit.log_rates, start)
    assert limit.minimum.value == pytest.approx(result.minimum.value, rel=1e-6)


def test_the_penalty_separates_odds_and_speeds() -> None:
    """A single pair whose counts have odds of 1 / 3. With speeds = 1 both log-rates change equally, and the speed
    q_01 q_10 is constant. It is constant for other values too, because the likelihood does not depend on it."""
    sets = DistinctSets(np.array([0, 1]), np.array([0, 2]), np.array([30.0, 10.0]), np.arange(2), np.ones(2, int))
    for speeds in (1.0, 0.1):
        result = fit_chain(
            sets, np.zeros((2, 2)), 1.0, ChainOptions(restarts=1, speeds=speeds), np.random.default_rng(0)
        )
        assert result.log_rates[0, 1] + result.log_rates[1, 0] == pytest.approx(0, abs=1e-6)
        odds = result.log_rates[0, 1] - result.log_rates[1, 0]
        slope = (
            10 - 40 / (1 + np.exp(-odds)) - odds / 2
        )  # derivative of 10 o - 40 log(1 + e^o) - o^2 / 4, which is 0 at the maximum
        assert slope == pytest.approx(0, abs=1e-2)


def test_a_path_of_ridges_reaches_the_direct_solution() -> None:
    """The penalised likelihood of three sets has one maximum near the start."""
    start, options = np.zeros((4, 4)), ChainOptions(restarts=1, tolerance=1e-13)
    direct, along = (
        fit_chain(three_sets(), start, 1.0, options, np.random.default_rng(0), path) for path in ((), (100.0, 10.0))
    )
    np.testing.assert_allclose(along.log_rates, direct.log_rates, rtol=0, atol=1e-4)
