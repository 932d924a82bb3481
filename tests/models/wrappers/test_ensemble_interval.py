import numpy as np
import pytest

from pcmcnet.errors import ConfigError, InputError
from pcmcnet.models.wrappers.ensemble_interval import interval, log_mean, log_odds


def test_the_interval_of_three_values_is_the_textbooks() -> None:
    """1, 2, 3: mean 2, sd 1, t at 2 degrees of freedom and 95 % is 4.302653, sqrt(4/3) = 1.154701."""
    low, high = interval(np.array([1.0, 2.0, 3.0]), 0.95)
    np.testing.assert_allclose([low, high], [2 - 4.968275, 2 + 4.968275], atol=1e-6)


@pytest.mark.parametrize("n", [2, 5, 20])
def test_one_more_value_lies_inside_as_often_as_the_level_says(n: int) -> None:
    rng = np.random.default_rng(n)
    values, another = rng.normal(3.0, 2.0, (n, 40_000)), rng.normal(3.0, 2.0, 40_000)
    low, high = interval(values, 0.9)
    # The share of 40,000 draws has a standard deviation of 0.0015.
    assert np.mean((low <= another) & (another <= high)) == pytest.approx(0.9, abs=0.006)


def test_values_that_agree_have_an_interval_without_width() -> None:
    low, high = interval(np.array([[0.1, -np.inf, 1.0]] * 7), 0.9)
    assert low.tolist() == high.tolist() == [0.1, -np.inf, 1.0]


def test_values_that_are_no_numbers_and_impossible_levels_are_refused() -> None:
    with pytest.raises(InputError, match="finite numbers from every member, got nan"):
        interval(np.array([1.0, np.nan]), 0.9)
    with pytest.raises(InputError, match="got inf"):
        interval(np.array([1.0, np.inf]), 0.9)
    for level in (0.0, 1.0, 90):
        with pytest.raises(ConfigError, match="level must be a number above 0 and below 1"):
            interval(np.array([1.0, 2.0]), level)


def test_the_mean_of_probabilities_is_taken_without_leaving_logs() -> None:
    """(1/4 + 3/4) / 2 = 1/2; e^-1000 and 3 e^-1000 have the mean 2 e^-1000, though both are 0 in float64."""
    logs = np.array([[np.log(0.25), -1000.0, -np.inf, 0.0], [np.log(0.75), np.log(3.0) - 1000.0, -np.inf, 0.0]])
    found = log_mean(logs)
    np.testing.assert_allclose(found[:2], [np.log(0.5), np.log(2.0) - 1000.0], rtol=1e-15)
    assert found[2:].tolist() == [-np.inf, 0.0]
    same = np.full((5, 3), -np.pi)
    assert (log_mean(same) == -np.pi).all()


def test_log_odds_are_finite_at_both_ends() -> None:
    found = log_odds(np.array([-np.inf, np.log(0.2), -1e-20, 0.0]))
    np.testing.assert_allclose(found, [-745.0, np.log(0.25), 37.0, 37.0])
