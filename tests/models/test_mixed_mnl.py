"""The mixed logit: recovery, special cases, options, and invalid input."""

import itertools
import logging
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

import pcmcnet as pn
from choice_tables import PANEL, ROLES, logit_choices, normal_tastes, panel, read, trips
from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError, TrainingError
from pcmcnet.insight.elasticity import slopes
from pcmcnet.models import MNL, MixedMNL
from pcmcnet.models.logit import mixed_likelihood
from pcmcnet.models.mixed_mnl import Tastes


def in_errors(model: MixedMNL, truth: dict[str, float]) -> Floats:
    """Return the distances of estimates from the truth, in standard errors."""
    errors = model.standard_errors()
    return np.array([(model.coefficients[name] - value) / errors[name] for name, value in truth.items()])


def test_a_panel_of_normal_coefficients_is_recovered() -> None:
    model = MixedMNL(draws=200).fit(read(panel(300, normal_tastes), **PANEL), progress=False)
    assert list(model.coefficients) == ["x", "y", "sd[x]", "sd[y]"]
    truth = {"x": 1.0, "y": -0.5, "sd[x]": 0.8, "sd[y]": 0.5}
    assert np.abs(in_errors(model, truth)).max() < 3
    assert model.num_parameters == 4
    assert "estimates change by up to" in str(model.summary())


def test_a_large_simulation_error_is_a_caveat() -> None:
    """With 10 draws, estimates depend on the draws; with 1,000, they hardly do."""
    data = read(panel(60, normal_tastes), **PANEL)
    rough, fine = (MixedMNL(draws=draws, starts=1).fit(data, progress=False) for draws in (10, 1000))
    assert rough.record_.simulation.largest_shift > 0.5 > fine.record_.simulation.largest_shift
    (caveat,) = rough.fit_caveats
    shift = f"{rough.record_.simulation.largest_shift:.2f}"
    assert caveat.startswith(f"with other draws, estimates would change by up to {shift} standard errors")
    assert caveat.endswith("use more than 10 draws")
    assert f"Caveat: {caveat}." in str(rough.summary())
    assert fine.fit_caveats == ()


def test_deviations_fixed_at_0_give_the_multinomial_logit() -> None:
    data = read(logit_choices(200, {"x": 1.0, "y": -0.5}), features=["x", "y"], person="person")
    mixed = MixedMNL(fixed={"sd[x]": 0.0, "sd[y]": 0.0}, draws=10, prior=0.0).fit(data, progress=False)
    plain = MNL().fit(data)
    assert mixed.estimates_.log_likelihood == pytest.approx(plain.estimates_.log_likelihood, abs=1e-8)
    np.testing.assert_allclose(mixed.estimates_.values[:2], plain.estimates_.values, atol=1e-6)
    for errors in ("classical", "clustered"):
        np.testing.assert_allclose(
            [mixed.standard_errors(errors)[name] for name in ("x", "y")],
            [plain.standard_errors(errors)[name] for name in ("x", "y")],
            rtol=1e-5,
        )
    np.testing.assert_allclose(mixed.predict_proba(data), plain.predict_proba(data), atol=1e-6)
    assert mixed.num_parameters == 2


def test_equal_tastes_give_deviations_near_0() -> None:
    """Data of a multinomial logit give its likelihood, and deviations that do not exceed their errors."""
    data = read(logit_choices(1200, {"x": 1.0, "y": -0.5}, seed=2), features=["x", "y"], person="person")
    mixed, plain = MixedMNL(draws=200).fit(data, progress=False), MNL().fit(data)
    gain = mixed.estimates_.log_likelihood - plain.estimates_.log_likelihood
    assert -0.01 < gain < 2  # up to the prior, the multinomial logit is a special case
    for name in ("sd[x]", "sd[y]"):
        assert 0 <= mixed.coefficients[name] < 2 * mixed.standard_errors("classical")[name]
    np.testing.assert_allclose(mixed.predict_proba(data), plain.predict_proba(data), atol=0.02)


def test_the_order_of_rows_and_persons_has_no_effect() -> None:
    table = panel(40, normal_tastes)
    order = np.random.default_rng(0).permutation(len(table["trip"]))
    shuffled = {name: column[order] for name, column in table.items()}
    one, other = (MixedMNL(draws=50).fit(read(t, **PANEL), progress=False) for t in (table, shuffled))
    np.testing.assert_allclose(other.estimates_.values, one.estimates_.values, rtol=1e-6)
    assert other.estimates_.log_likelihood == pytest.approx(one.estimates_.log_likelihood, abs=1e-8)


def test_choices_of_a_person_are_joint_unless_by_is_set() -> None:
    data = read(panel(60, normal_tastes), **PANEL)
    together, alone = (MixedMNL(draws=50, by=by).fit(data, progress=False) for by in ("auto", "set"))
    assert together.record_.persons == 60
    assert alone.record_.persons == 480
    assert together.estimates_.log_likelihood > alone.estimates_.log_likelihood
    assert together.estimates_.n_sets == 480


def test_a_weight_of_2_counts_a_person_twice() -> None:
    table = panel(30, normal_tastes)
    heavy = {**table, "weight": np.where(table["person"] < 10, 2.0, 1.0)}
    more = {name: np.concatenate([v, v[table["person"] < 10]]) for name, v in table.items()}
    again = np.arange(len(more["trip"])) >= len(table["trip"])
    more = {**more, "trip": more["trip"] + 1000 * again, "twin": np.where(again, more["person"] + 100, more["person"])}
    weighted = MixedMNL(draws=50).fit(read(heavy, **PANEL, weight="weight"), progress=False)
    twice = MixedMNL(draws=50).fit(read(more, **{**PANEL, "person": "twin"}), progress=False)
    assert weighted.estimates_.null_log_likelihood == pytest.approx(twice.estimates_.null_log_likelihood)
    # The copies have other draws, so estimates agree up to simulation error.
    np.testing.assert_allclose(weighted.estimates_.values, twice.estimates_.values, atol=0.35)


def test_the_sign_of_a_lognormal_is_learnt() -> None:
    def tastes(rng: np.random.Generator, persons: int) -> Floats:
        return np.column_stack([np.full(persons, 0.7), -np.exp(0.5 * rng.standard_normal(persons))])

    data = read(panel(150, tastes), **PANEL)
    model = MixedMNL(random={"y": "lognormal"}, draws=100).fit(data, progress=False)
    assert str(model.mixing_.random[0].distribution) == "-lognormal"
    assert "y: -lognormal" in str(model.summary())
    assert np.abs(in_errors(model, {"x": 0.7, "y": 0.0, "sd[y]": 0.5})).max() < 3


def test_error_components_and_individual_means_are_estimated() -> None:
    data = ChoiceData.from_long(trips(sets=150, seed=3, slope=-0.2), **ROLES)
    model = MixedMNL(
        formula="price + minutes",
        random={"price": "normal"},
        components={"car": "road", "bus": "road"},
        means={"price": "income"},
        draws=50,
    ).fit(data, progress=False)
    assert {"component[road]", "mean[price]:income", "sd[price]"} < set(model.coefficients)
    income = data.individual["income"].values  # type: ignore[attr-defined]
    assert model._covariates(data).shape == (150, 1)
    np.testing.assert_allclose(model._covariates(data)[:, 0], income)
    assert model.predict_proba(data).shape == (data.n_rows,)


@pytest.mark.parametrize("seed", [0, 2])
def test_several_starts_are_no_worse_than_one(seed: int) -> None:
    """The best of five starts with the first 100 draws is worse than the first start with all 200."""
    data = read(panel(30, correlated_tastes, seed), **PANEL)
    options: dict[str, Any] = {"random": {"x": "normal", "y": "normal"}, "correlated": True, "draws": 200}
    one, five, usual = (
        MixedMNL(**options, starts=starts).fit(data, seed=seed, progress=False) for starts in (1, 5, "auto")
    )
    assert five.estimates_.log_likelihood >= one.estimates_.log_likelihood
    assert usual.coefficients == five.coefficients
    starts = five.record_.starts
    assert starts.starts == 5
    assert five.summary().facts["starts"] == str(starts)
    assert one.summary().facts["starts"] == "1 of 1 starts ended at this maximum"


def test_more_starts_are_no_worse_than_fewer() -> None:
    """Two maxima, of -232.330 and -232.104: the sixth start is the first that ends at the second one."""
    data = read(panel(30, correlated_tastes, 5), **PANEL)
    options: dict[str, Any] = {"random": {"x": "normal", "y": "normal"}, "correlated": True, "draws": 200}
    fits = [MixedMNL(**options, starts=starts).fit(data, progress=False) for starts in (1, 3, 6, 9)]
    values = [fit.estimates_.log_likelihood for fit in fits]
    assert values == sorted(values)
    assert values[-1] > values[0]


@given(st.lists(st.integers(-8, 0), min_size=1, max_size=12), st.data())
def test_starts_that_continue_do_so_if_there_are_more_starts(values: list[int], data: st.DataObject) -> None:
    fewer = data.draw(st.integers(1, len(values)))
    points = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=len(values), max_size=len(values))))
    finished = mixed_likelihood.starts_to_finish(values, 0.5, points[:, None])
    part = mixed_likelihood.starts_to_finish(values[:fewer], 0.5, points[:fewer, None])
    assert finished[: len(part)] == part
    best = sorted({*zip(values, points.tolist(), strict=True)})[-3:]  # maxima differ in value or in the parameter
    assert {values[k] for k in finished} >= {value for value, _ in best}


def test_failed_starts_are_skipped_if_another_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    maximise, calls, failing = mixed_likelihood.maximise, itertools.count(), {0, 2}

    def fail_at_times(*arguments: Any, **options: Any) -> Any:
        if next(calls) in failing:
            raise TrainingError("it has not converged.")
        return maximise(*arguments, **options)

    monkeypatch.setattr(mixed_likelihood, "maximise", fail_at_times)
    data = read(panel(40, normal_tastes), **PANEL)
    model = MixedMNL(draws=40, starts=4).fit(data, progress=False)
    assert (model.record_.starts.starts, model.record_.starts.failed) == (4, 2)
    failing |= set(range(100))
    with pytest.raises(TrainingError, match="it has not converged"):
        MixedMNL(draws=40, starts=4).fit(data, progress=False)


def test_a_complete_start_is_the_only_one() -> None:
    data = read(panel(40, normal_tastes), **PANEL)
    model = MixedMNL(draws=40).fit(data, progress=False)
    again = MixedMNL(draws=40, start=model.coefficients).fit(data, progress=False)
    assert again.record_.starts.starts == 1


@pytest.mark.parametrize("sequence", ["halton", "mlhs", "random"])
def test_all_sequences_of_draws_give_similar_likelihoods(sequence: Any) -> None:
    data = read(panel(60, normal_tastes), **PANEL)
    result = MixedMNL(draws=200, sequence=sequence, antithetic=True).fit(data, progress=False)
    usual = MixedMNL(draws=200).fit(data, progress=False)
    assert result.estimates_.log_likelihood == pytest.approx(usual.estimates_.log_likelihood, abs=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": 9}, r"draws must be a whole number of at least 10 and at most 10,000,000, got 9"),
        ({"draws": 101, "antithetic": True}, "antithetic draws need an even number of draws, got 101"),
        ({"sequence": "sobel"}, r"unknown sequence 'sobel'. Did you mean 'sobol'\?"),
        ({"random": "price"}, "random must map names to strings, as in .*, got 'price'"),
        ({"random": {"x": "gamma"}}, r"random\['x'\]: unknown distribution 'gamma'"),
        ({"correlated": "x"}, "correlated must be True, False or names of coefficients, got 'x'"),
        ({"antithetic": 1}, "antithetic must be True or False, got 1"),
        ({"means": {"x": "a | b"}}, "must be a formula such as"),
        ({"memory": -1}, "memory must be a number of at least 0"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MixedMNL(**options)


def test_random_offsets_and_costs_fixed_at_0_are_refused() -> None:
    data = read(panel(10, normal_tastes), **PANEL)
    with pytest.raises(ConfigError, match="random includes 'x', but it is the offset"):
        MixedMNL(offset="x", random={"x": "normal"}, draws=10).fit(data, progress=False)
    with pytest.raises(ConfigError, match="wtp_space='y': this coefficient is fixed at 0"):
        MixedMNL(wtp_space="y", fixed={"y": 0}, random={"x": "normal"}, draws=10).fit(data, progress=False)


def test_options_that_the_table_does_not_support_are_refused() -> None:
    table = panel(10, normal_tastes)
    with pytest.raises(ConfigError, match=r"by='person' needs persons: read the table with person=<column>"):
        MixedMNL(by="person").fit(read(table, features=["x", "y"]), progress=False)
    still = {**table, "z": np.repeat(1.0, len(table["x"]))}
    with pytest.raises(InputError, match="'z' does not vary within any choice set"):
        MixedMNL(random={"z": "normal"}).fit(read(still, features=["x", "z"]), progress=False)
    with pytest.raises(InputError, match="components need labels"):
        MixedMNL(components={"car": "road"}).fit(read(table, features=["x"]), progress=False)
    weight = {**table, "weight": 1.0 + (table["trip"] % 2)}
    with pytest.raises(InputError, match=r"the weight in column 'weight' differs from the same person's earlier sets"):
        MixedMNL(draws=10).fit(read(weight, **PANEL, weight="weight"), progress=False)
    triples = panel(10, normal_tastes, sizes=(3, 3))
    labelled = read({**triples, "mode": list("abc") * 80}, **PANEL, alternative="mode")
    weighted = pn.wesml(labelled, {"a": 0.8, "b": 0.1, "c": 0.1})
    with pytest.raises(InputError, match=r"have different weights, .*or of pn\.wesml: this model needs equal weights"):
        MixedMNL(draws=10).fit(weighted, progress=False)


def test_a_mean_must_not_depend_on_columns_that_vary_by_set() -> None:
    table = panel(10, normal_tastes)
    varying = {**table, "day": (table["trip"] % 8).astype(float)}
    with pytest.raises(
        InputError, match=r"means\['x'\]: column 'day' varies within a person.*add x:day to the formula"
    ):
        MixedMNL(means={"x": "day"}).fit(read(varying, **PANEL, individual=["day"]), progress=False)


def test_an_unknown_label_of_a_component_is_refused() -> None:
    data = ChoiceData.from_long(trips(), **ROLES)
    with pytest.raises(
        ConfigError, match=r"components includes 'cart', which is not an alternative.*Did you mean 'car'\?"
    ):
        MixedMNL(components={"cart": "road"}).fit(data, progress=False)


def lognormal_tastes(rng: np.random.Generator, persons: int) -> Floats:
    return np.column_stack(
        [0.7 + 0.5 * rng.standard_normal(persons), -np.exp(-0.3 + 0.6 * rng.standard_normal(persons))]
    )


def correlated_tastes(rng: np.random.Generator, persons: int) -> Floats:
    """L is ((0.8, 0), (0.5, 0.6)): a correlation of 0.64."""
    return np.array([1.0, -0.5]) + rng.standard_normal((persons, 2)) @ np.array([[0.8, 0.5], [0.0, 0.6]])


RECOVERED: dict[str, tuple[Any, dict[str, Any], dict[str, float]]] = {
    "normal": (normal_tastes, {}, {"x": 1.0, "y": -0.5, "sd[x]": 0.8, "sd[y]": 0.5}),
    "lognormal": (
        lognormal_tastes,
        {"random": {"x": "normal", "y": "lognormal"}},
        {"x": 0.7, "y": -0.3, "sd[x]": 0.5, "sd[y]": 0.6},
    ),
    "correlated": (
        correlated_tastes,
        {"correlated": True},
        {"x": 1.0, "y": -0.5, "cholesky[x, x]": 0.8, "cholesky[y, x]": 0.5, "cholesky[y, y]": 0.6},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RECOVERED)
def test_confidence_intervals_cover_the_true_parameters(name: str) -> None:
    """In 20 tables of 300 persons with 8 choices, nine of ten estimates are within two standard errors."""
    tastes, options, truth = RECOVERED[name]
    near = []
    for seed in range(20):
        data = read(panel(300, tastes, seed), **PANEL)
        model = MixedMNL(draws=500, **options).fit(data, seed=seed, progress=False)
        near.append(np.abs(in_errors(model, truth)) < 2)
    assert np.mean(near) >= 0.9


@pytest.mark.slow
def test_the_electricity_panel_has_the_published_likelihood() -> None:
    """-3888.4 with 600 Halton draws (xlogit's documentation), -3886.9 with 1,000, from one start; our draws differ."""
    data = ChoiceData.from_schema(*pn.datasets.packaged.long_form("electricity"))
    model = MixedMNL(draws=1000, starts=1).fit(data, progress=False)
    assert model.estimates_.log_likelihood == pytest.approx(-3886.9, abs=3)


@pytest.mark.gpu
def test_a_gpu_finds_the_same_maximum() -> None:
    data = read(panel(60, normal_tastes), **PANEL)
    cpu, gpu = (MixedMNL(draws=100).fit(data, device=device, progress=False) for device in ("cpu", "cuda"))
    assert torch.cuda.is_available()
    np.testing.assert_allclose(gpu.estimates_.values, cpu.estimates_.values, rtol=1e-3)


# -- Tastes ------------------------------------------------------------------------------------------------------------
# Distributions of tastes in the population and of each person.


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(panel(120, normal_tastes), **PANEL)


@pytest.fixture(scope="module")
def model(data: ChoiceData) -> MixedMNL:
    return MixedMNL(random={"x": "normal", "y": "-lognormal"}, correlated=True, draws=100).fit(data, progress=False)


def test_taste_statistics_are_those_found_by_hand() -> None:
    """One of four people dislikes it: mean 1, standard deviation sqrt(3.5), a quarter below 0."""
    result = Tastes.of(["x", "y"], ["normal", "uniform"], np.array([[-2.0, 1.0, 2.0, 3.0], [4.0, 1.0, 0.0, -1.0]]))
    assert result["x"].mean == 1
    assert result["x"].deviation == pytest.approx(math.sqrt(3.5))
    assert (result["x"].below_0, result["x"].median) == (0.25, 1.5)
    np.testing.assert_allclose(result.correlations, [[1, -1], [-1, 1]], atol=1e-12)
    assert "25.0%" in str(result)
    assert result.to_arrow().column_names[:2] == ["name", "distribution"]
    with pytest.raises(InputError, match="has no random coefficient 'z'"):
        result["z"]


def test_tastes_follow_the_estimates(model: MixedMNL) -> None:
    tastes, b = model.tastes(), model.coefficients
    assert tastes["x"].mean == pytest.approx(b["x"], abs=0.01)
    assert tastes["x"].deviation == pytest.approx(b["cholesky[x, x]"], rel=0.02)
    assert tastes["y"].below_0 == 1
    assert tastes["y"].median == pytest.approx(-math.exp(b["y"]), rel=0.02)
    logs = np.corrcoef(tastes.draws[0], np.log(-tastes.draws[1]))[0, 1]
    size = math.hypot(b["cholesky[y, x]"], b["cholesky[y, y]"])
    assert logs == pytest.approx(b["cholesky[y, x]"] / size, abs=0.02)


def test_conditional_coefficients_average_to_the_population_mean(data: ChoiceData, model: MixedMNL) -> None:
    """At the maximum, the mean of conditional means is the population mean up to simulation error."""
    result = model.conditional(data)
    assert result.names == ("x", "y")
    assert result.means.shape == (120, 2)
    assert result.means[:, 0].mean() == pytest.approx(model.tastes()["x"].mean, abs=0.05)
    assert (result.means[:, 1] < 0).all()
    truth = normal_tastes(np.random.default_rng(0), 120)[:, 0]
    assert np.corrcoef(truth, result.means[:, 0])[0, 1] > 0.6
    assert (result.deviations > 0).all()
    assert result.to_arrow().num_rows == 120
    assert result.to_arrow().column_names == ["person", "x", "sd[x]", "y", "sd[y]"]
    backwards = model.conditional(data.subset(np.arange(len(data))[::-1]))
    order = [backwards.persons.tolist().index(person) for person in result.persons]
    np.testing.assert_allclose(backwards.means[order], result.means, rtol=1e-8)


def test_ratios_to_a_cost_are_computed_by_draw(data: ChoiceData, model: MixedMNL) -> None:
    result = model.conditional(data, cost="y")
    assert result.names == ("wtp[x]",)
    assert (result.means[:, 0] > 0).mean() > 0.7  # x is attractive, y is not
    with pytest.raises(InputError, match=r"has no coefficient 'why'"):
        model.conditional(data, cost="why")


def test_a_ratio_to_a_lognormal_parameter_is_refused(data: ChoiceData, model: MixedMNL) -> None:
    with pytest.raises(InputError, match=r"the coefficient of 'y' is lognormal.*fit with wtp_space='y'"):
        model.willingness_to_pay("x", "y")
    plain = MixedMNL(random={"x": "normal"}, draws=20).fit(data, progress=False)
    b = plain.coefficients
    assert plain.willingness_to_pay("x", "y").value == pytest.approx(-b["x"] / b["y"])


def test_a_ratio_to_a_normal_cost_is_refused(data: ChoiceData, caplog: pytest.LogCaptureFixture) -> None:
    """With mean -b and standard deviation b / 1.2816, 10% of a normal distribution is above 0."""
    model = MixedMNL(random={"x": "normal", "y": "normal"}, draws=20).fit(data, progress=False)
    b = model.coefficients["y"]
    model = model.with_values(np.array([1.0, b, 0.5, -b / 1.2815515655446004]))
    with pytest.raises(InputError, match=r"'y' is normal, so the ratio has no mean: 10.0% .* above 0.*wtp_space='y'"):
        model.willingness_to_pay("x", "y")
    with caplog.at_level(logging.WARNING, logger="pcmcnet"):
        model.conditional(data, cost="y")
    assert "10.0% of its distribution is above 0: ratios to it have no mean" in caplog.text
    fixed = MixedMNL(random={"x": "normal", "y": "normal"}, fixed={"sd[y]": 0.0}, draws=20).fit(data, progress=False)
    assert fixed.willingness_to_pay("x", "y").value == pytest.approx(-fixed.coefficients["x"] / fixed.coefficients["y"])


def test_a_ratio_whose_mean_depends_on_the_person_is_refused() -> None:
    data = ChoiceData.from_long(trips(sets=60, seed=3, slope=-0.2), **ROLES)
    options: dict[str, Any] = {"random": {"minutes": "normal"}, "means": {"minutes": "income"}, "draws": 20}
    model = MixedMNL(formula="minutes + price | 0", **options).fit(data, progress=False)
    message = r"the mean of 'minutes' depends on income, .*delta\(model, .*mean\[minutes\]:income"
    with pytest.raises(InputError, match=message):
        model.willingness_to_pay("minutes", "price")


def test_all_ratios_to_a_random_cost_are_returned(data: ChoiceData) -> None:
    """Only the cost is random; the ratio of a fixed coefficient varies with it, and has its sign."""
    model = MixedMNL(random={"y": "-lognormal"}, draws=60).fit(data, progress=False)
    result = model.conditional(data, cost="y")
    assert result.names == ("wtp[x]",)
    assert result.means.shape == (120, 1)
    assert (result.means > 0).all()
    assert (result.deviations > 0).all()


def test_a_person_without_choices_has_the_population_tastes(model: MixedMNL) -> None:
    single = {"trip": [1], "took": [1], "x": [0.3], "y": [0.1], "person": ["new"]}
    result = model.conditional(read(single, **PANEL))
    assert result.means[0, 0] == pytest.approx(model.tastes()["x"].mean, abs=0.1)
    assert result.deviations[0, 0] == pytest.approx(model.tastes()["x"].deviation, rel=0.1)


def test_wtp_space_estimates_willingness_to_pay_directly() -> None:
    """The cost coefficient is lognormal. Willingness to pay for x has mean 1 and standard deviation 0.5."""

    def tastes(rng: np.random.Generator, persons: int) -> Floats:
        cost = -np.exp(0.3 * rng.standard_normal(persons))
        return np.column_stack([-cost * (1 + 0.5 * rng.standard_normal(persons)), cost])

    data = read(panel(250, tastes), **PANEL)
    model = MixedMNL(random={"x": "normal", "y": "lognormal"}, wtp_space="y", draws=150).fit(data, progress=False)
    errors = model.standard_errors()
    for name, truth in {"wtp[x]": 1.0, "y": 0.0, "sd[wtp[x]]": 0.5, "sd[y]": 0.3}.items():
        assert abs(model.coefficients[name] - truth) < 3 * errors[name]
    assert model.tastes()["wtp[x]"].mean == pytest.approx(model.coefficients["wtp[x]"], abs=0.01)
    assert "wtp in units of" in str(model.summary())
    with pytest.raises(InputError, match="already willingness to pay in units of 'y'"):
        model.conditional(data, cost="y")
    np.testing.assert_allclose(np.bincount(data.set_of_alternative, data.from_rows(model.predict_proba(data))), 1)


def test_tastes_that_depend_on_individuals_need_data() -> None:
    data = ChoiceData.from_long(trips(sets=60, seed=3, slope=-0.2), **ROLES)
    model = MixedMNL(formula="price | 0", random={"price": "normal"}, means={"price": "income"}, draws=20)
    model.fit(data, progress=False)
    with pytest.raises(InputError, match="depend on income: pass data"):
        model.tastes()
    income = data.individual["income"].values  # type: ignore[attr-defined]
    expected = model.coefficients["price"] + model.coefficients["mean[price]:income"] * float(income.mean())
    assert model.tastes(data)["price"].mean == pytest.approx(expected, abs=0.05 * abs(expected) + 0.02)


@pytest.mark.parametrize("column", ["price", "minutes", "income"])
def test_derivatives_agree_with_differences(column: str) -> None:
    """Means depend on the individual or not. The step of the differences is limited by float32."""
    data = ChoiceData.from_long(trips(sets=40, seed=3, slope=-0.2), **ROLES)
    for options in ({}, {"means": {"price": "income"}}):
        model = MixedMNL(formula="price + log(minutes) + price:income", random={"price": "normal"}, draws=20, **options)
        model.fit(data, progress=False)
        own, numeric = slopes(model, data, column), slopes(model, data, column, method="differences")
        np.testing.assert_allclose(own, numeric, rtol=2e-3, atol=2e-4 * np.abs(numeric).max())
        assert (model._slopes(data, column) is None) == (bool(options) and column == "income")


# -- messages about the specification ------------------------------------------------------------------------------


def test_a_sign_that_contradicts_the_multinomial_logit_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """x has a mean of 1 and y of -0.5. A positive coefficient of y is estimated close to 0."""
    data = read(panel(60, normal_tastes), **PANEL)
    wrong = MixedMNL(random={"x": "lognormal", "y": "+lognormal"}, draws=20).fit(data, progress=False)
    (message,) = [record.getMessage() for record in caplog.records if "sign" in record.getMessage()]
    assert message.startswith(
        "random['y']: the sign of '+lognormal' is opposite to that of the multinomial logit (z = -"
    )
    assert math.exp(wrong.coefficients["y"]) < 0.1  # the median coefficient of y
    caplog.clear()
    wrong.refit(data, wrong.design_, 0)  # as in a bootstrap
    MixedMNL(random={"x": "+truncated-normal", "y": "-lognormal"}, draws=20).fit(data, progress=False)
    assert not any("sign" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("distribution", ["normal", "triangular", "+lognormal", "johnson-sb(-1, 2)"])
def test_a_coefficient_of_the_wrong_sign_is_referred_to_a_distribution_of_one_sign(distribution: str) -> None:
    """The mean of x is 1, and its sign is declared to be -. A bound of the mean would not bound the coefficient."""
    data = read(panel(60, normal_tastes), **PANEL, signs={"x": "-"})
    model = MixedMNL(random={"x": distribution}, draws=20).fit(data, progress=False)
    assert model.sign_caveats["x"].endswith(
        "give its coefficient a distribution of one sign, as in random={'x': '-lognormal'}"
    )


@pytest.mark.parametrize("distribution", ["-lognormal", "-truncated-normal", "johnson-sb(-2, 0)"])
def test_a_coefficient_with_a_distribution_of_the_expected_sign_is_right(distribution: str) -> None:
    data = read(panel(60, normal_tastes), **PANEL, signs={"y": "-"})  # the mean of y is -0.5
    assert MixedMNL(random={"y": distribution}, draws=20).fit(data, progress=False).sign_caveats == {}


def test_a_fixed_coefficient_of_the_wrong_sign_is_referred_to_a_bound() -> None:
    data = read(panel(60, normal_tastes), **PANEL, signs={"x": "-"})
    model = MixedMNL(random={"y": "normal"}, draws=20).fit(data, progress=False)
    assert model.sign_caveats["x"].endswith("bound its coefficients, as in bounds={'x': (None, 0)}")


def test_coefficients_that_cannot_be_correlated_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    table = panel(30, normal_tastes)
    table["z"] = np.sin(np.arange(len(table["x"])))
    data = read(table, features=["x", "y", "z"], person="person")
    distributions = {"x": "normal", "y": "normal", "z": "zbu"}
    MixedMNL(random=distributions, correlated=True, draws=20).fit(data, progress=False)
    assert "correlated=True: 'z' (zbu) is independent, because only these distributions can be" in caplog.text
    caplog.clear()
    MixedMNL(random=distributions, correlated=["x", "y"], draws=20).fit(data, progress=False)
    assert "independent" not in caplog.text


def test_uniform_and_normal_coefficients_are_correlated_by_a_copula() -> None:
    """Persons with a high coefficient of x have a high one of y: normal indices with correlation 0.8."""

    def tastes(rng: np.random.Generator, persons: int) -> Floats:
        z = rng.standard_normal((2, persons))
        return np.column_stack([1 + z[0], 2 * ndtr(0.8 * z[0] + 0.6 * z[1]) - 1])  # y: uniform on (-1, 1)

    data = read(panel(250, tastes, sets=10), **PANEL)
    model = MixedMNL(random={"x": "normal", "y": "uniform"}, correlated=True, draws=200, starts=1).fit(data)
    b, errors = model.coefficients, model.standard_errors()
    half = math.hypot(b["cholesky[y, x]"], b["cholesky[y, y]"])
    assert abs(b["y"]) < 3 * errors["y"]
    assert half == pytest.approx(1, abs=0.2)  # two of its standard errors
    result = model.taste_covariance()
    expected = math.sqrt(3 / math.pi) * 0.8
    assert abs(result.correlations[0, 1] - expected) < 3 * result.std_errors[1, 0, 1]
    apart = MixedMNL(random={"x": "normal", "y": "uniform"}, draws=200, starts=1).fit(data)
    assert pn.likelihood_ratio(apart, model).rejected
