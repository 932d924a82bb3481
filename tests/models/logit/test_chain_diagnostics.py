"""Split R-hat and effective sample sizes."""

import numpy as np
import pytest

from pcmcnet.models.logit.chain_diagnostics import bulk_effective_size, split_rhat


def test_independent_draws_count_fully() -> None:
    """4,000 independent draws: an effective size of about 4,000, and an R-hat of about 1."""
    draws = np.random.default_rng(0).standard_normal((4, 1000))
    assert split_rhat(draws) == pytest.approx(1, abs=0.01)
    assert bulk_effective_size(draws) == pytest.approx(4000, rel=0.15)


def test_an_autoregressive_chain_has_its_known_size() -> None:
    """With correlation r between neighbours, R draws are worth R (1 - r) / (1 + r): 20,000 / 3 for r = 0.5."""
    rng = np.random.default_rng(1)
    draws = np.zeros((4, 5000))
    for t in range(1, 5000):
        draws[:, t] = 0.5 * draws[:, t - 1] + rng.standard_normal(4)
    assert bulk_effective_size(draws) == pytest.approx(20_000 / 3, rel=0.15)


def test_chains_in_different_places_or_of_different_spread_are_detected() -> None:
    draws = np.random.default_rng(2).standard_normal((4, 500))
    shifted, wider = draws.copy(), draws.copy()
    shifted[0] += 2
    wider[0] *= 5
    trend = draws + np.linspace(0, 3, 500)
    for bad in (shifted, wider, trend):
        assert split_rhat(bad) > 1.1
    assert bulk_effective_size(shifted) < 50


def test_a_constant_agrees_and_few_draws_give_nan() -> None:
    assert split_rhat(np.ones((2, 100))) == 1.0
    assert np.isnan(split_rhat(np.zeros((2, 6))))
    assert np.isnan(bulk_effective_size(np.zeros((2, 6))))


def test_a_monotone_transformation_changes_nothing() -> None:
    """Effective sizes are computed from ranks."""
    draws = np.random.default_rng(3).standard_normal((2, 200))
    assert bulk_effective_size(np.exp(draws)) == bulk_effective_size(draws)
