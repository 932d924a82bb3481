import json
import logging
import math
import tracemalloc
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, stdtrit

from choice_tables import logit_choices, read
from pcmcnet import MNL, BootstrapErrors, ChoiceData, LatentClassMNL, Uniform, bootstrap_errors, calibrate_constants
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.evaluation import bootstrap
from pcmcnet.evaluation.bootstrap import (
    aggregate_by_group,
    bootstrap_interval,
    p_values,
    percentile_interval,
    relabel_classes,
    resampled_means,
    resampled_units,
)

TABLE = logit_choices(400, {"x": 1.0, "y": 0.5})


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(TABLE, features=["x", "y"], keep=["person"])


def test_a_draw_has_exponential_weights(data: ChoiceData) -> None:
    """The second draw of seed 7 by hand: exponential weights of the 400 sets, divided by their mean."""
    errors = bootstrap_errors(MNL().fit(data), data, draws=2, seed=7, progress=False)
    draws = np.random.default_rng(np.random.SeedSequence(7).spawn(2)[1].spawn(1)[0]).exponential(size=400)
    weighted = TABLE | {"w": (draws / draws.mean())[TABLE["trip"]]}
    refit = MNL().fit(read(weighted, features=["x", "y"], weight="w"))
    assert errors.samples[1] == pytest.approx(refit.estimates_.values, rel=1e-6)  # weights in a table are float32


def test_errors_of_a_correct_model_are_near_the_classical_ones(data: ChoiceData) -> None:
    """A standard deviation of 200 draws is known to 1 / sqrt(400) = 5%, so 20% is four times that."""
    model = MNL().fit(data)
    boot = bootstrap_errors(model, data, progress=False)
    for name, error in model.standard_errors("classical").items():
        assert boot.standard_errors[name] == pytest.approx(error, rel=0.2)
        low, high = boot.intervals[name]
        assert low < model.coefficients[name] < high
    assert np.sqrt(np.diag(boot.covariance)) == pytest.approx(list(boot.standard_errors.values()), rel=1e-12)
    assert boot.failed == 0


def test_declared_persons_are_drawn_whole() -> None:
    """Each choice is repeated four times as one person's: errors by person are twice those by set."""
    table = logit_choices(150, {"x": 1.0}, 1)
    times = {name: np.concatenate([column] * 4) for name, column in table.items()}
    times["who"] = times["trip"]
    times["trip"] = np.concatenate([table["trip"] + 1000 * k for k in range(4)])
    data = read(times, features=["x"], person="who")
    model = MNL().fit(data)
    by_person = bootstrap_errors(model, data, draws=200, progress=False)
    by_set = bootstrap_errors(model, data, draws=200, by="trip", progress=False)
    assert (by_person.unit, by_person.n_units) == ("persons", 150)
    assert (by_set.unit, by_set.n_units) == ("choice sets", 600)
    ratio = by_person.standard_errors["x"] / by_set.standard_errors["x"]
    assert ratio == pytest.approx(2.0, rel=0.25)  # a ratio of two standard deviations, each known to 5%
    assert by_person.standard_errors["x"] == pytest.approx(model.standard_errors("clustered")["x"], rel=0.2)


def test_more_draws_of_the_same_seed_begin_with_the_same_draws(data: ChoiceData) -> None:
    model = MNL(formula="x").fit(data)
    few, more = (bootstrap_errors(model, data, draws=n, seed=3, progress=False) for n in (2, 4))
    assert (few.samples == more.samples[:2]).all()


def test_results_are_printed_and_exported(data: ChoiceData, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("pandas")
    model = MNL(formula="x").fit(data)
    with caplog.at_level(logging.INFO, logger="pcmcnet"):
        errors = bootstrap_errors(model, data, draws=3, by="person")
    assert "draw 3: done" in caplog.text
    assert str(errors).splitlines()[:3] == ["Bootstrap errors", "=" * 16, "draws  3 of 100 groups of column 'person'"]
    assert errors.to_frame().loc["x", "std_error"] == errors.standard_errors["x"]
    assert json.loads(json.dumps(errors.to_dict()))["intervals"]["x"] == list(errors.intervals["x"])
    assert "std err" in errors.to_latex()


def test_draws_without_estimates_are_counted() -> None:
    """The search of a resample starts at the estimates, and takes four to six steps on this small table."""
    data = read(logit_choices(30, {"x": 1.0, "y": 0.5}, 3), features=["x", "y"])
    model = MNL(start=MNL().fit(data).coefficients, max_iter=5).fit(data)
    errors = bootstrap_errors(model, data, draws=40, progress=False)
    assert 0 < errors.failed < 20
    assert len(errors.samples) == 40 - errors.failed
    assert f"{errors.failed}, left out" in str(errors)


def test_a_latent_class_logit_keeps_its_number_of_classes(data: ChoiceData) -> None:
    model = LatentClassMNL(formula="x", classes="auto", max_classes=1).fit(data)
    errors = bootstrap_errors(model, data, draws=2, progress=False)
    assert isinstance(errors, BootstrapErrors)
    assert errors.names == model.estimates_.names


def test_unsupported_models_tables_and_draws_are_refused(data: ChoiceData) -> None:
    model = MNL().fit(data)
    with pytest.raises(InputError, match="supports logits only, got Uniform"):
        bootstrap_errors(Uniform().fit(data), data)
    with pytest.raises(InputError, match="expected the choice sets that the model was fitted to"):
        bootstrap_errors(model, data.subset(np.arange(50)))
    with pytest.raises(ConfigError, match="draws must be a whole number of at least 2"):
        bootstrap_errors(model, data, draws=1)
    tiny = read(logit_choices(3, {"x": 5.0}, 5), features=["x"])
    with pytest.raises(InputError, match="resamples lack a finite estimate of some coefficient"):
        bootstrap_errors(MNL().fit(tiny), tiny, draws=10, progress=False)


def test_units_have_their_names_and_are_counted_if_they_have_a_weight() -> None:
    """Each trip is a ranking with two choices. The weights of four of ten persons, with two trips each, are 0."""
    table = logit_choices(20, {"x": 1.0}, sizes=(3, 3))
    n = len(table["trip"])
    table |= {"rank": np.tile([1, 2, 3], n // 3), "person": table["trip"] // 2, "town": table["trip"] % 4}
    table["w"] = np.where(table["person"] < 4, 0.0, 1.0)
    roles: dict[str, Any] = {"choice_set": "trip", "rank": "rank", "features": ["x"], "keep": ["town"]}
    rankings = ChoiceData.from_long(table, **roles)
    assert resampled_units(rankings, None)[1:] == resampled_units(rankings, "person")[1:] == ("rankings", 20)
    people = ChoiceData.from_long(table, **roles, person="person", weight="w")
    assert resampled_units(people, None)[1:] == ("persons", 6)
    assert resampled_units(people, "town")[1:] == ("groups of column 'town'", 4)
    with pytest.raises(InputError, match="at least two groups"):
        resampled_units(people, (people.weights > 0).astype(int))


def test_permuted_classes_are_numbered_as_in_the_model(data: ChoiceData) -> None:
    """Classes 1, 2, 3 become 3, 1, 2. Their shares are then relative to the class with the coefficients of class 1."""
    model = LatentClassMNL(formula="x + y", classes=3, membership="1", starts=2, prior=0.1).fit(data)
    b, g = model.estimates_.values[:6].reshape(3, 2), np.array([0.0, *model.estimates_.values[6:]])
    permuted = np.concatenate([b[[2, 0, 1]].ravel(), g[[0, 1]] - g[2]])
    assert relabel_classes(model, permuted) == pytest.approx(model.estimates_.values, rel=1e-10)
    assert relabel_classes(model, model.estimates_.values) == pytest.approx(model.estimates_.values, rel=1e-12)


def test_constants_calibrated_to_known_shares_are_refused() -> None:
    labelled = read(TABLE, alternative="mode", features=["x"])
    shares = {label: 1 / len(set(TABLE["mode"])) for label in sorted(set(TABLE["mode"]))}
    calibrated = calibrate_constants(MNL(formula="x").fit(labelled), labelled, shares)
    with pytest.raises(
        InputError, match="the bootstrap needs estimates, but the constants of this MNL were calibrated"
    ):
        bootstrap_errors(calibrated, labelled, draws=2, progress=False)


def test_a_summary_refers_bootstrap_errors_to_the_table_of_models(data: ChoiceData) -> None:
    model = MNL().fit(data)
    boot = bootstrap_errors(model, data, draws=2, progress=False)
    for method in (model.summary, model.estimates, model.standard_errors):
        with pytest.raises(InputError, match=r"got an object of type BootstrapErrors\. .* use pcmcnet\.table\(model"):
            method(boot)  # type: ignore[operator]


# -- Bootstrap intervals -----------------------------------------------------------------------------------------------


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(sets=st.integers(1, 30), seed=st.integers(0, 2**16))
def test_resampled_means_are_weighted_means_of_drawn_sets(sets: int, seed: int) -> None:
    values, weights = rng(seed).normal(size=(sets, 2)), rng(seed + 1).uniform(0.5, 2, sets)
    drawn = rng(seed).integers(0, sets, (7, sets))
    expected = [np.average(values[i], axis=0, weights=weights[i]) for i in drawn]
    means = resampled_means(values, weights, rng=rng(seed), resamples=7)
    np.testing.assert_allclose(means, expected, rtol=1e-12, atol=1e-14)


def test_the_interval_of_a_proportion_is_binomial() -> None:
    """0.7 -+ 1.96 sqrt(0.7 0.3 / 1000) = 0.6716, 0.7284."""
    interval = bootstrap_interval(np.repeat([0.0, 1.0], [300, 700]), rng=rng(), resamples=20_000)
    # The percentiles of 20,000 resamples have an error of 0.0003, and means come in steps of 0.001.
    np.testing.assert_allclose(interval, [0.6716, 0.7284], rtol=0, atol=0.0015)


def test_intervals_of_few_sets_have_their_nominal_coverage() -> None:
    """Eight normal values: expanded percentiles cover the mean in 0.95 of samples, plain percentiles in fewer."""
    samples = rng().normal(size=(8, 1000))  # 1,000 samples as columns
    ends = bootstrap_interval(samples, rng=rng(1), resamples=4000)
    covered = ((ends[:, 0] < 0) & (ends[:, 1] > 0)).mean()
    assert abs(covered - 0.95) < 0.03  # four standard errors of a share of 1,000
    plain = np.quantile(resampled_means(samples, rng=rng(1)), [0.025, 0.975], axis=0)
    assert ((plain[0] < 0) & (plain[1] > 0)).mean() < 0.92


@pytest.mark.parametrize(("n", "t"), [(2, 12.706204736), (10, 2.262157163), (30, 2.045229642), (1e9, 1.959963985)])
def test_few_sets_expand_the_percentiles(n: float, t: float) -> None:
    """Phi(-t sqrt(n / (n - 1))), where t is the 97.5 % quantile of Student's t distribution from tables."""
    expected = NormalDist().cdf(-t * math.sqrt(n / (n - 1)))
    assert bootstrap.expanded_tail(0.95, n) == pytest.approx(expected, rel=1e-6, abs=1e-18)
    assert bootstrap.expanded_tail(0.95, 1.0) == bootstrap.expanded_tail(0.95, 2.0)  # one set has almost all weight


@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
def test_the_series_of_a_t_quantile_agrees_with_scipy_where_it_begins(level: float) -> None:
    n = bootstrap.MANY_DEGREES + 1
    t = stdtrit(n - 1, (1 - level) / 2)
    assert bootstrap.expanded_tail(level, n) == pytest.approx(ndtr(t * math.sqrt(n / (n - 1))), rel=1e-8)


def test_intervals_of_many_sets_have_their_nominal_coverage() -> None:
    samples = rng(2).exponential(size=(300, 1000))
    ends = bootstrap_interval(samples, rng=rng(3), resamples=1000)
    covered = ((ends[:, 0] < 1) & (ends[:, 1] > 1)).mean()
    assert abs(covered - 0.95) < 0.03  # four standard errors of a share of 1,000


def test_a_lower_level_gives_a_narrower_interval() -> None:
    values = rng().normal(size=50)
    (low, high), (lower, higher) = (bootstrap_interval(values, rng=rng(), level=level) for level in (0.5, 0.95))
    assert lower < low < values.mean() < high < higher


def test_one_set_has_no_interval() -> None:
    assert bootstrap_interval([3.0], rng=rng()).tolist() == [-np.inf, np.inf]
    assert bootstrap_interval([[3.0, 4.0]], rng=rng()).tolist() == [[-np.inf, np.inf]] * 2
    assert bootstrap_interval([3.0, 4.0], [0.0, 1.0], rng=rng()).tolist() == [-np.inf, np.inf]


def test_the_interval_of_two_sets_is_their_range() -> None:
    assert bootstrap_interval([1.0, 3.0], rng=rng()).tolist() == [1.0, 3.0]


def test_a_set_with_almost_all_weight_widens_the_interval() -> None:
    """With effectively one set, the interval spans all resamples. Percentiles of equal weights would be narrower."""
    values = np.arange(40.0)
    ends = bootstrap_interval(values, [1e9, *[1.0] * 39], rng=rng())
    means = resampled_means(values, [1e9, *[1.0] * 39], rng=rng())
    assert ends.tolist() == [means.min(), means.max()]


def test_weights_are_relative_and_weight_0_removes_a_set() -> None:
    values, weights = rng().normal(size=20), rng().uniform(1, 2, 20)
    expected = bootstrap_interval(values, weights, rng=rng())
    np.testing.assert_allclose(bootstrap_interval(values, 8 * weights, rng=rng()), expected, rtol=1e-12)
    padded = bootstrap_interval([*values, np.inf], [*weights, 0.0], rng=rng())
    np.testing.assert_array_equal(padded, expected)


def test_columns_share_their_resamples() -> None:
    a, b = rng().normal(size=(2, 30))
    means = resampled_means(np.column_stack([a, b, a - b]), rng=rng())
    np.testing.assert_allclose(means[:, 0] - means[:, 1], means[:, 2], rtol=0, atol=1e-14)


@pytest.mark.parametrize("sign", [1, -1])
def test_infinite_values_give_infinite_bounds_without_nan(sign: int) -> None:
    """One of 100 sets is infinite. A resample omits it with probability 0.99^100 = 0.37."""
    values = np.arange(100.0)
    values[0] = sign * np.inf
    means = resampled_means(values, rng=rng())
    assert 0.3 < np.isfinite(means).mean() < 0.44  # 0.37 -+ 4 standard errors
    assert (means[np.isinf(means)] * sign > 0).all()
    low, high = bootstrap_interval(values, rng=rng())
    assert (high == np.inf) if sign > 0 else (low == -np.inf)
    assert np.isfinite(low if sign > 0 else high)


def test_results_do_not_depend_on_the_size_of_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = rng().normal(size=(50, 3))
    whole = resampled_means(values, rng=rng(), resamples=100)
    monkeypatch.setattr(bootstrap, "_SETS_PER_BATCH", 7 * 50)
    np.testing.assert_allclose(resampled_means(values, rng=rng(), resamples=100), whole, rtol=0, atol=1e-14)


def test_memory_is_bounded() -> None:
    """All 12 million draws together would take 96 MiB as positions and 192 MiB as counts."""
    values = np.zeros(2**18)
    tracemalloc.start()
    resampled_means(values, rng=rng(), resamples=48)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 90 * 2**20


def test_the_seed_determines_the_interval() -> None:
    values = rng().normal(size=30)
    assert bootstrap_interval(values, rng=rng(5)).tolist() == bootstrap_interval(values, rng=rng(5)).tolist()
    assert bootstrap_interval(values, rng=rng(5)).tolist() != bootstrap_interval(values, rng=rng(6)).tolist()


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, np.nan])
def test_a_level_outside_0_to_1_is_refused(level: float) -> None:
    with pytest.raises(ConfigError, match="level must be between 0 and 1, got"):
        bootstrap_interval([1.0, 2.0], rng=rng(), level=level)


def test_zero_resamples_are_refused() -> None:
    with pytest.raises(ConfigError, match="resamples must be at least 1, got 0"):
        bootstrap_interval([1.0, 2.0], rng=rng(), resamples=0)


@pytest.mark.parametrize(("values", "weights"), [(np.ones((2, 2, 2)), None), ([1.0, 2.0], [1.0])])
def test_inconsistent_shapes_are_refused(values: object, weights: object) -> None:
    with pytest.raises(InputError, match=r"expected shape \(S,\) or \(S, M\) for values and \(S,\) for weights, got"):
        bootstrap_interval(values, weights, rng=rng())  # type: ignore[arg-type]


def test_nan_is_refused_and_counted() -> None:
    with pytest.raises(InputError, match="got NaN for 2 of 3"):
        bootstrap_interval([1.0, np.nan, np.nan], rng=rng())


def test_inf_and_minus_inf_in_one_mean_are_refused() -> None:
    with pytest.raises(InputError, match="both inf and -inf"):
        bootstrap_interval([np.inf, -np.inf], rng=rng())


@pytest.mark.parametrize("weights", [[0.0, 0.0], [1.0, -1.0], [1.0, np.nan], [1.0, np.inf]])
def test_weights_that_sum_to_0_are_refused(weights: list[float]) -> None:
    with pytest.raises(InputError, match="at least one must be above 0"):
        bootstrap_interval([1.0, 2.0], weights, rng=rng())


def test_an_empty_sample_is_refused() -> None:
    with pytest.raises(InputError, match="at least one must be above 0"):
        bootstrap_interval([], rng=rng())


# -- p-values and groups -----------------------------------------------------------------------------------------


def test_p_values_count_resamples_on_the_smaller_side() -> None:
    """Of 9 resamples, 1, 0 and 5 are at most 0: 2 (1 + 1) / 10, 2 (1 + 0) / 10, 2 (1 + 4) / 10. Zeros have p = 1."""
    columns = [[-1.0] * k + [1.0] * (9 - k) for k in (1, 0, 5)]
    p = p_values(np.column_stack([*columns, np.zeros(9)]))
    np.testing.assert_allclose(p, [0.4, 0.2, 1.0, 1.0], rtol=1e-15)


def test_p_values_do_not_depend_on_the_sign() -> None:
    means = rng().normal(0.5, 1, (99, 4))
    np.testing.assert_array_equal(p_values(means), p_values(-means))


def test_p_values_are_uniform_if_there_is_no_difference() -> None:
    """In 1,000 samples of 200 sets with mean 0, a share of 0.05 has p below 0.05."""
    means = resampled_means(rng().normal(size=(200, 1000)), rng=rng(1), resamples=999)
    share = (p_values(means) < 0.05).mean()
    assert abs(share - 0.05) < 0.03  # four standard errors of a share of 1,000


def test_the_interval_holds_percentiles_of_the_resamples() -> None:
    values, weights = rng().normal(size=(30, 2)), rng().uniform(1, 2, 30)
    means = resampled_means(values, weights, rng=rng(7))
    np.testing.assert_array_equal(percentile_interval(means, weights), bootstrap_interval(values, weights, rng=rng(7)))


def test_groups_have_the_mean_of_their_sets() -> None:
    """Group 4: (1 1 + 3 3) / 4 = 2.5 of weight 4; group 7: 5 of weight 2; group 9 has weight 0."""
    values, weights = np.array([[1.0], [5.0], [3.0], [np.inf]]), np.array([1.0, 2.0, 3.0, 0.0])
    means, total = aggregate_by_group(values, weights, [4, 7, 4, 9])
    assert (means.tolist(), total.tolist()) == ([[2.5], [5.0]], [4.0, 2.0])
    assert np.average(means[:, 0], weights=total) == np.average([1, 5, 3], weights=[1, 2, 3])


def test_copies_of_a_set_do_not_narrow_the_interval() -> None:
    """Twenty people make ten equal trips each. Resampling people gives the interval of twenty values."""
    values = rng().normal(size=(20, 2))
    people = np.repeat(np.arange(20), 10)
    means, total = aggregate_by_group(values[people], np.ones(200), people)
    np.testing.assert_allclose(
        bootstrap_interval(means, total, rng=rng()), bootstrap_interval(values, rng=rng()), rtol=1e-12
    )
    naive = bootstrap_interval(values[people], rng=rng())
    assert (np.diff(bootstrap_interval(means, total, rng=rng())) > 2 * np.diff(naive)).all()


def test_an_infinite_set_makes_its_group_infinite() -> None:
    means, _ = aggregate_by_group(np.array([[np.inf, 1.0], [1.0, 2.0], [3.0, 4.0]]), np.ones(3), [0, 0, 1])
    assert means.tolist() == [[np.inf, 1.5], [3.0, 4.0]]
