import math
import tracemalloc
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.errors import ConfigError, InputError
from pcmcnet.evaluation import bootstrap_intervals
from pcmcnet.evaluation.bootstrap_intervals import by_group, interval, p_values, percentiles, resampled_means


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(sets=st.integers(1, 30), seed=st.integers(0, 2**16))
def test_resampled_means_are_weighted_means_of_drawn_sets(sets: int, seed: int) -> None:
    values, weights = rng(seed).normal(size=(sets, 2)), rng(seed + 1).uniform(0.5, 2, sets)
    drawn = rng(seed).integers(0, sets, (7, sets))
    expected = [np.average(values[i], axis=0, weights=weights[i]) for i in drawn]
    found = resampled_means(values, weights, rng=rng(seed), resamples=7)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_the_interval_of_a_proportion_is_the_binomial_one() -> None:
    """0.7 -+ 1.96 sqrt(0.7 0.3 / 1000) = 0.6716, 0.7284."""
    found = interval(np.repeat([0.0, 1.0], [300, 700]), rng=rng(), resamples=20_000)
    # The percentiles of 20,000 resamples have an error of 0.0003, and means come in steps of 0.001.
    np.testing.assert_allclose(found, [0.6716, 0.7284], rtol=0, atol=0.0015)


def test_few_sets_are_covered_as_often_as_promised() -> None:
    """Eight normal values: the expanded percentiles hold the mean in 0.95 of samples, the plain ones do not."""
    samples = rng().normal(size=(8, 1000))  # 1,000 samples side by side
    ends = interval(samples, rng=rng(1), resamples=4000)
    covered = ((ends[:, 0] < 0) & (ends[:, 1] > 0)).mean()
    assert abs(covered - 0.95) < 0.03  # four standard errors of a share of 1,000
    plain = np.quantile(resampled_means(samples, rng=rng(1)), [0.025, 0.975], axis=0)
    assert ((plain[0] < 0) & (plain[1] > 0)).mean() < 0.92


@pytest.mark.parametrize(("n", "t"), [(2, 12.706204736), (10, 2.262157163), (30, 2.045229642), (1e9, 1.959963985)])
def test_few_sets_move_the_percentiles_outwards(n: float, t: float) -> None:
    """Phi(-t sqrt(n / (n - 1))), with t the 97.5 % quantile of Student's law as tables give it."""
    expected = NormalDist().cdf(-t * math.sqrt(n / (n - 1)))
    assert bootstrap_intervals._tail(0.95, n) == pytest.approx(expected, rel=1e-6, abs=1e-18)
    assert bootstrap_intervals._tail(0.95, 1.0) == bootstrap_intervals._tail(0.95, 2.0)  # one set outweighs all others


def test_many_sets_are_covered_as_often_as_promised() -> None:
    samples = rng(2).exponential(size=(300, 1000))
    ends = interval(samples, rng=rng(3), resamples=1000)
    covered = ((ends[:, 0] < 1) & (ends[:, 1] > 1)).mean()
    assert abs(covered - 0.95) < 0.03  # four standard errors of a share of 1,000


def test_a_lower_level_gives_an_interval_inside() -> None:
    values = rng().normal(size=50)
    (low, high), (lower, higher) = (interval(values, rng=rng(), level=level) for level in (0.5, 0.95))
    assert lower < low < values.mean() < high < higher


def test_one_set_says_nothing_about_the_spread() -> None:
    assert interval([3.0], rng=rng()).tolist() == [-np.inf, np.inf]
    assert interval([[3.0, 4.0]], rng=rng()).tolist() == [[-np.inf, np.inf]] * 2
    assert interval([3.0, 4.0], [0.0, 1.0], rng=rng()).tolist() == [-np.inf, np.inf]


def test_two_sets_give_their_range() -> None:
    assert interval([1.0, 3.0], rng=rng()).tolist() == [1.0, 3.0]


def test_a_set_that_outweighs_all_others_widens_the_interval() -> None:
    """Effectively one set: the interval spans all resamples, the percentiles of equal weights would not."""
    values = np.arange(40.0)
    ends = interval(values, [1e9, *[1.0] * 39], rng=rng())
    means = resampled_means(values, [1e9, *[1.0] * 39], rng=rng())
    assert ends.tolist() == [means.min(), means.max()]


def test_only_the_ratio_of_weights_counts_and_weight_zero_is_absence() -> None:
    values, weights = rng().normal(size=20), rng().uniform(1, 2, 20)
    expected = interval(values, weights, rng=rng())
    np.testing.assert_allclose(interval(values, 8 * weights, rng=rng()), expected, rtol=1e-12)
    padded = interval([*values, np.inf], [*weights, 0.0], rng=rng())
    np.testing.assert_array_equal(padded, expected)


def test_columns_share_their_resamples() -> None:
    a, b = rng().normal(size=(2, 30))
    means = resampled_means(np.column_stack([a, b, a - b]), rng=rng())
    np.testing.assert_allclose(means[:, 0] - means[:, 1], means[:, 2], rtol=0, atol=1e-14)


@pytest.mark.parametrize("sign", [1, -1])
def test_infinite_values_make_infinite_ends_and_no_nan(sign: int) -> None:
    """One of 100 sets is infinite: a resample lacks it with probability 0.99^100 = 0.37."""
    values = np.arange(100.0)
    values[0] = sign * np.inf
    means = resampled_means(values, rng=rng())
    assert 0.3 < np.isfinite(means).mean() < 0.44  # 0.37 -+ 4 standard errors
    assert (means[np.isinf(means)] * sign > 0).all()
    low, high = interval(values, rng=rng())
    assert (high == np.inf) if sign > 0 else (low == -np.inf)
    assert np.isfinite(low if sign > 0 else high)


def test_the_size_of_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    values = rng().normal(size=(50, 3))
    whole = resampled_means(values, rng=rng(), resamples=100)
    monkeypatch.setattr(bootstrap_intervals, "_DRAWS_AT_ONCE", 7 * 50)
    np.testing.assert_allclose(resampled_means(values, rng=rng(), resamples=100), whole, rtol=0, atol=1e-14)


def test_memory_is_bounded() -> None:
    """All 12 million draws at once would take 96 MiB as positions, and as much twice again as counts."""
    values = np.zeros(2**18)
    tracemalloc.start()
    resampled_means(values, rng=rng(), resamples=48)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 90 * 2**20


def test_the_seed_decides() -> None:
    values = rng().normal(size=30)
    assert interval(values, rng=rng(5)).tolist() == interval(values, rng=rng(5)).tolist()
    assert interval(values, rng=rng(5)).tolist() != interval(values, rng=rng(6)).tolist()


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, np.nan])
def test_a_level_outside_0_to_1_is_refused(level: float) -> None:
    with pytest.raises(ConfigError, match="level must lie between 0 and 1, got"):
        interval([1.0, 2.0], rng=rng(), level=level)


def test_no_resamples_are_refused() -> None:
    with pytest.raises(ConfigError, match="resamples must be at least 1, got 0"):
        interval([1.0, 2.0], rng=rng(), resamples=0)


@pytest.mark.parametrize(("values", "weights"), [(np.ones((2, 2, 2)), None), ([1.0, 2.0], [1.0])])
def test_shapes_that_do_not_fit_are_refused(values: object, weights: object) -> None:
    with pytest.raises(InputError, match=r"expected values \(S,\) or \(S, M\) and weights \(S,\), got shapes"):
        interval(values, weights, rng=rng())  # type: ignore[arg-type]


def test_nan_is_refused_and_counted() -> None:
    with pytest.raises(InputError, match="got NaN for 2 of 3"):
        interval([1.0, np.nan, np.nan], rng=rng())


def test_inf_and_minus_inf_in_one_mean_are_refused() -> None:
    with pytest.raises(InputError, match="both inf and -inf"):
        interval([np.inf, -np.inf], rng=rng())


@pytest.mark.parametrize("weights", [[0.0, 0.0], [1.0, -1.0], [1.0, np.nan], [1.0, np.inf]])
def test_weights_that_weigh_nothing_are_refused(weights: list[float]) -> None:
    with pytest.raises(InputError, match="weights must be finite, at least 0, and above 0 for at least one"):
        interval([1.0, 2.0], weights, rng=rng())


def test_no_sets_are_refused() -> None:
    with pytest.raises(InputError, match="above 0 for at least one choice set"):
        interval([], rng=rng())


# -- p-values and groups -----------------------------------------------------------------------------------------


def test_p_values_count_the_resamples_on_the_rarer_side() -> None:
    """Of 9 resamples 1, 0 and 5 are at most 0: 2 (1 + 1) / 10, 2 (1 + 0) / 10, 2 (1 + 4) / 10; of zeros, 1."""
    columns = [[-1.0] * k + [1.0] * (9 - k) for k in (1, 0, 5)]
    found = p_values(np.column_stack([*columns, np.zeros(9)]))
    np.testing.assert_allclose(found, [0.4, 0.2, 1.0, 1.0], rtol=1e-15)


def test_p_values_do_not_depend_on_the_sign() -> None:
    means = rng().normal(0.5, 1, (99, 4))
    np.testing.assert_array_equal(p_values(means), p_values(-means))


def test_p_values_are_uniform_where_there_is_no_difference() -> None:
    """1,000 samples of 200 sets whose mean is 0: a share of 0.05 has p below 0.05."""
    means = resampled_means(rng().normal(size=(200, 1000)), rng=rng(1), resamples=999)
    share = (p_values(means) < 0.05).mean()
    assert abs(share - 0.05) < 0.03  # four standard errors of a share of 1,000


def test_percentiles_of_resamples_are_the_interval() -> None:
    values, weights = rng().normal(size=(30, 2)), rng().uniform(1, 2, 30)
    means = resampled_means(values, weights, rng=rng(7))
    np.testing.assert_array_equal(percentiles(means, weights), interval(values, weights, rng=rng(7)))


def test_groups_have_the_mean_of_their_sets() -> None:
    """Group 4: (1 1 + 3 3) / 4 = 2.5 of weight 4; group 7: 5 of weight 2; group 9 weighs nothing."""
    values, weights = np.array([[1.0], [5.0], [3.0], [np.inf]]), np.array([1.0, 2.0, 3.0, 0.0])
    means, total = by_group(values, weights, [4, 7, 4, 9])
    assert (means.tolist(), total.tolist()) == ([[2.5], [5.0]], [4.0, 2.0])
    assert np.average(means[:, 0], weights=total) == np.average([1, 5, 3], weights=[1, 2, 3])


def test_sets_that_are_copies_of_each_other_say_no_more_than_one() -> None:
    """Twenty people with ten equal trips each: resampling people gives the interval of twenty values."""
    values = rng().normal(size=(20, 2))
    people = np.repeat(np.arange(20), 10)
    means, total = by_group(values[people], np.ones(200), people)
    np.testing.assert_allclose(interval(means, total, rng=rng()), interval(values, rng=rng()), rtol=1e-12)
    naive = interval(values[people], rng=rng())
    assert (np.diff(interval(means, total, rng=rng())) > 2 * np.diff(naive)).all()


def test_an_infinite_set_makes_its_group_infinite() -> None:
    means, _ = by_group(np.array([[np.inf, 1.0], [1.0, 2.0], [3.0, 4.0]]), np.ones(3), [0, 0, 1])
    assert means.tolist() == [[np.inf, 1.5], [3.0, 4.0]]
