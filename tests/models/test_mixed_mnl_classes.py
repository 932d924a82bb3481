"""Mixed logits with latent classes, and with coefficients that are 0 for a share of the people."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcmcnet as pn
from choice_tables import PANEL, ROLES, normal_tastes, panel, read, trips
from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.evaluation.hypothesis_tests.likelihood_ratio import likelihood_ratio
from pcmcnet.insight.elasticity import slopes
from pcmcnet.models import LatentClassMNL, MixedMNL, load
from pcmcnet.models.interface.latent_classes import Persons

ZERO = {"random": {"x": "zero-inflated-normal", "y": "normal"}}


def two_classes(rng: np.random.Generator, persons: int) -> Floats:
    """Two thirds have coefficients near (1.5, -1), the others near (-1, 0.5)."""
    is_second = rng.random(persons) < 1 / 3
    means = np.where(is_second[:, None], [-1.0, 0.5], [1.5, -1.0])
    return np.asarray(means + np.array([0.5, 0.4]) * rng.standard_normal((persons, 2)))


def some_zeros(rng: np.random.Generator, persons: int) -> Floats:
    """Three tenths ignore x; the others have coefficients near 1.5."""
    x = np.where(rng.random(persons) < 0.3, 0.0, 1.5 + 0.5 * rng.standard_normal(persons))
    return np.column_stack([x, -1 + 0.4 * rng.standard_normal(persons)])


def in_errors(model: MixedMNL, truth: dict[str, float]) -> Floats:
    errors = model.standard_errors()
    return np.array([(model.coefficients[name] - value) / errors[name] for name, value in truth.items()])


def with_income(table: dict[str, Any], seed: int = 3) -> dict[str, Any]:
    income = np.random.default_rng(seed).normal(size=1 + table["person"].max())
    return {**table, "income": income[table["person"]]}


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(with_income(panel(200, two_classes)), **PANEL, individual=["income"])


@pytest.fixture(scope="module")
def model(data: ChoiceData) -> MixedMNL:
    return MixedMNL(classes=2, draws=50, starts=2).fit(data, progress=False)


@pytest.fixture(scope="module")
def zero_model() -> MixedMNL:
    return MixedMNL(**ZERO, draws=100, starts=1).fit(read(panel(400, some_zeros), **PANEL), progress=False)


# -- recovery and special cases ------------------------------------------------------------------------------------


def test_two_classes_of_normal_coefficients_are_recovered(model: MixedMNL) -> None:
    truth = {"x": 1.5, "y": -1.0, "sd[x]": 0.5, "sd[y]": 0.4}
    second = {"x": -1.0, "y": 0.5, "sd[x]": 0.5, "sd[y]": 0.4}
    truth = {f"class 1: {k}": v for k, v in truth.items()} | {f"class 2: {k}": v for k, v in second.items()}
    truth |= {"membership 2: constant": np.log(0.5), "membership 2: standardise(income)": 0.0}
    assert [*model.coefficients] == [*truth]
    distances = in_errors(model, truth)
    assert np.abs(distances).max() < 3
    assert model.num_parameters == 10


def test_a_share_of_zeros_is_recovered(zero_model: MixedMNL) -> None:
    truth = {"x": 1.5, "y": -1.0, "sd[x]": 0.5, "sd[y]": 0.4, "zero[x]": 0.3}
    assert [*zero_model.coefficients] == [*truth]
    assert np.abs(in_errors(zero_model, truth)).max() < 3
    taste = zero_model.tastes()["x"]
    assert taste.distribution == "zero-inflated-normal"
    assert taste.mean == pytest.approx(
        (1 - zero_model.coefficients["zero[x]"]) * zero_model.coefficients["x"], abs=0.01
    )  # 4,096 quasi-random draws
    covariance = zero_model.taste_covariance()
    assert covariance.covariances[0, 0] == pytest.approx(taste.deviation**2, rel=0.01)  # as above
    assert np.isfinite(covariance.std_errors[0]).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classes", "zeros"])
def test_confidence_intervals_cover_the_true_parameters(name: str) -> None:
    """In 20 tables of 400 persons with 8 choices, nine of ten estimates are within two standard errors."""
    of_first = {"x": 1.5, "y": -1.0, "sd[x]": 0.5, "sd[y]": 0.4}
    of_second = {"x": -1.0, "y": 0.5, "sd[x]": 0.5, "sd[y]": 0.4}
    truth = {f"class 1: {k}": v for k, v in of_first.items()} | {f"class 2: {k}": v for k, v in of_second.items()}
    truth["membership 2: constant"] = np.log(0.5)
    tastes, options = two_classes, {"classes": 2, "membership": "1"}
    if name == "zeros":
        tastes, options, truth = some_zeros, ZERO, {**of_first, "zero[x]": 0.3}
    near = []
    for seed in range(20):
        data = read(panel(400, tastes, seed), **PANEL)
        model = MixedMNL(draws=300, starts=2, **options).fit(data, seed=seed, progress=False)
        near.append(np.abs(in_errors(model, truth)) < 2)
    assert np.mean(near) >= 0.9


def test_a_share_fixed_at_0_gives_the_mixed_logit_without_it() -> None:
    data = read(panel(60, normal_tastes), **PANEL)
    options: dict[str, Any] = {"draws": 50, "starts": 1, "prior": 0.0}
    plain = MixedMNL(**options).fit(data, progress=False)
    fixed = MixedMNL(**ZERO, fixed={"zero[x]": 0.0}, **options).fit(data, progress=False)
    assert fixed.estimates_.log_likelihood == pytest.approx(plain.estimates_.log_likelihood, abs=1e-5)
    # A share of 0 counts as 1e-8, which changes the estimates in the sixth digit.
    np.testing.assert_allclose(fixed.estimates_.values[:4], plain.estimates_.values, atol=1e-5)
    np.testing.assert_allclose(
        [*fixed.standard_errors().values()][:4], [*plain.standard_errors().values()], rtol=1e-4
    )  # as above
    np.testing.assert_allclose(fixed.predict_proba(data), plain.predict_proba(data), atol=1e-6)


def test_spreads_fixed_at_0_give_the_latent_class_logit(data: ChoiceData) -> None:
    plain = LatentClassMNL(classes=2, prior=1e-9, starts=3).fit(data)
    mixed = MixedMNL(classes=2, fixed={"sd[x]": 0, "sd[y]": 0}, draws=10, prior=1e-9, starts=1)
    mixed.fit(data, progress=False)
    assert mixed.estimates_.log_likelihood == pytest.approx(plain.estimates_.log_likelihood, abs=1e-6)
    standardised = plain.membership_design_.codes["income"]
    assert standardised is not None
    np.testing.assert_allclose(mixed.membership(data), plain.membership(data), atol=1e-5)  # two maximisations
    np.testing.assert_allclose(mixed.posterior(data), plain.posterior(data), atol=1e-5)
    np.testing.assert_allclose(mixed.predict_proba(data), plain.predict_proba(data), atol=1e-5)
    for errors in ("classical", "clustered"):
        of_mixed, of_plain = (model.standard_errors(errors) for model in (mixed, plain))
        assert of_mixed["class 2: x"] == pytest.approx(of_plain["class 2: x"], rel=1e-4)  # as above


def test_classes_gain_over_one_class_and_over_fixed_coefficients(data: ChoiceData, model: MixedMNL) -> None:
    one = MixedMNL(draws=50, starts=1).fit(data, progress=False)
    fixed = LatentClassMNL(classes=2, starts=3).fit(data)
    assert model.estimates_.log_likelihood > max(one.estimates_.log_likelihood, fixed.estimates_.log_likelihood) + 10


# -- predictions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["classes", "zeros"])
def test_predictions_given_earlier_choices_are_ratios_of_likelihoods(
    name: str, model: MixedMNL, zero_model: MixedMNL, data: ChoiceData
) -> None:
    """P(next choice | earlier choices) = L(earlier choices and next choice) / L(earlier choices)."""
    fitted = model if name == "classes" else zero_model
    persons = data.keep["person"].plain()
    mine = np.flatnonzero(persons == persons[0])
    earlier, both = data.subset(mine[:-1]), data.subset(mine)
    x = fitted.estimates_.values
    joint, before = (
        fitted.simulated_likelihood(part, Persons.of(part, "person")).evaluate(x, "float64", scores=False)[0][0]
        for part in (both, earlier)
    )
    later = data.subset(mine[-1:])
    p = fitted.predict_proba_given(later, earlier)[later.require_chosen("the test")[0]]
    assert p == pytest.approx(np.exp(joint - before), rel=1e-6)  # the draws are float32


def test_probabilities_are_weighted_means_over_draws(model: MixedMNL, data: ChoiceData) -> None:
    part = data.subset(np.arange(20))
    weights, log_p = model.as_logits(part)
    np.testing.assert_allclose(weights.sum(1), 1)
    mean = (np.exp(log_p) * weights[part.set_of_alternative]).sum(1)
    np.testing.assert_allclose(model.predict_proba(part), mean, rtol=1e-10)
    sums, shares = model._log_sums(part)
    np.testing.assert_allclose(shares, weights)
    assert sums.shape == weights.shape


@pytest.mark.parametrize("column", ["price", "income"])
def test_derivatives_agree_with_differences(column: str) -> None:
    """The step of the differences is limited by float32."""
    data = ChoiceData.from_long(trips(sets=60, seed=3, slope=-0.2), **ROLES)
    model = MixedMNL(
        formula="price + minutes + price:income",
        random={"price": "zero-inflated-normal"},
        classes=2,
        membership="1",
        shared=["minutes", "price:income", "1"],
        draws=20,
        starts=1,
    ).fit(data, progress=False)
    own, numeric = slopes(model, data, column), slopes(model, data, column, method="differences")
    np.testing.assert_allclose(own, numeric, rtol=2e-3, atol=2e-4 * np.abs(numeric).max())
    assert model._slopes(data, column) is not None
    assert model.coefficients["class 1: minutes"] == model.coefficients["class 2: minutes"]


def test_class_shares_that_depend_on_the_column_have_no_exact_derivative(model: MixedMNL, data: ChoiceData) -> None:
    assert model._slopes(data, "income") is None


def test_conditional_coefficients_average_to_the_population_mean(model: MixedMNL, data: ChoiceData) -> None:
    conditional = model.conditional(data)
    np.testing.assert_allclose(
        conditional.means.mean(0), [model.tastes(data)[name].mean for name in ("x", "y")], atol=0.1
    )  # exact only for the true parameters and many persons
    # Most of the variance is between people, so the variance within persons is the smaller part.
    assert (conditional.deviations.mean(0) < [model.tastes(data)[name].deviation for name in ("x", "y")]).all()


# -- the contract of logits ----------------------------------------------------------------------------------------


def test_a_saved_model_predicts_the_same(model: MixedMNL, data: ChoiceData, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, MixedMNL)
    np.testing.assert_array_equal(again.predict_proba(data), model.predict_proba(data))
    np.testing.assert_array_equal(again.membership(data), model.membership(data))
    assert again.profiles_ == model.profiles_
    assert str(again.summary()) == str(model.summary())


def test_a_saved_model_with_zeros_predicts_the_same(zero_model: MixedMNL, data: ChoiceData, tmp_path: Path) -> None:
    zero_model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(data), zero_model.predict_proba(data))


def test_the_summary_shows_classes_draws_and_starts(model: MixedMNL) -> None:
    text = str(model.summary())
    shares = [profile.share for profile in model.profiles_]
    assert shares[0] > shares[1]
    assert sum(shares) == pytest.approx(1)
    for part in (f"{shares[0]:.1%} of the persons, income", "50 (sobol)", "of 2 starts ended", "with other draws"):
        assert part in text
    table = str(pn.table([model]))
    assert "class 2" in table
    assert "membership: standardise(income)" in table


def test_weights_count_persons_and_unavailable_rows_do_not_matter() -> None:
    """Twice the weight is twice the likelihood, and a row that is not available changes nothing."""
    table = panel(60, two_classes)
    rng = np.random.default_rng(0)
    # 1. An unavailable row in every set, with columns that would be chosen.
    sets = np.unique(table["trip"], return_index=True)[1]
    extra = {name: values[sets] for name, values in table.items()}
    extra = {**extra, "took": np.zeros(len(sets), np.int8), "x": rng.normal(size=len(sets)) * 5}
    wide = {name: np.concatenate([table[name], extra[name]]) for name in table}
    wide["open"] = np.concatenate([np.ones(len(table["trip"]), int), np.zeros(len(sets), int)])
    wide["weight"] = np.full(len(wide["trip"]), 2.0)
    options: dict[str, Any] = {"classes": 2, "draws": 20, "starts": 1, "prior": 0.0}
    plain = MixedMNL(**options).fit(read(table, **PANEL), progress=False)
    again = read(wide, **PANEL, available="open", weight="weight")
    other = MixedMNL(**options).fit(again, progress=False)
    assert other.estimates_.log_likelihood == pytest.approx(2 * plain.estimates_.log_likelihood, rel=1e-8)
    np.testing.assert_allclose(other.estimates_.values, plain.estimates_.values, rtol=1e-4)  # two maximisations
    # 2. Robust and clustered errors do not depend on the scale of the weights, classical errors do.
    for errors, factor in (("clustered", 1), ("robust", 1), ("classical", 2**0.5)):
        a, b = (m.standard_errors(errors)["class 1: x"] for m in (plain, other))
        assert a == pytest.approx(b * factor, rel=1e-3)  # as above
    assert (other.predict_proba(again)[~np.asarray(wide["open"], bool)] == 0).all()


def test_a_weight_that_varies_within_a_person_is_refused(data: ChoiceData) -> None:
    table = panel(30, two_classes)
    table["weight"] = 1.0 + table["trip"] % 2
    with pytest.raises(InputError, match="differs from the same person's earlier sets"):
        MixedMNL(classes=2, draws=10).fit(read(table, **PANEL, weight="weight"), progress=False)


def test_each_set_may_have_its_own_class(data: ChoiceData) -> None:
    model = MixedMNL(classes=2, by="set", draws=10, starts=1).fit(data.subset(np.arange(200)), progress=False)
    assert model.record_.persons == 200
    assert "% of the choices" in str(model.summary())
    assert model.posterior(data).shape == (len(data), 2)
    with pytest.raises(InputError, match="only if each person has one set of coefficients"):
        model.predict_proba_given(data, data)


def test_the_bootstrap_keeps_the_numbers_of_the_classes(model: MixedMNL, data: ChoiceData) -> None:
    replicate = model._replicate(data, 1)
    np.testing.assert_allclose(replicate.estimates_.values, model.estimates_.values, atol=1e-3)  # the same maximum


# -- options -------------------------------------------------------------------------------------------------------


def test_shared_coefficients_and_zeros_of_one_class(data: ChoiceData) -> None:
    """Class 2 ignores x; y is shared with its spread, so the model has x, sd[x], y, sd[y] and one share."""
    model = MixedMNL(
        classes=2,
        shared=["y"],
        fixed={"class 2: x": 0, "class 2: sd[x]": 0},
        membership="1",
        draws=20,
        starts=1,
    ).fit(data, progress=False)
    assert model.num_parameters == 5
    assert model.coefficients["class 1: sd[y]"] == model.coefficients["class 2: sd[y]"]
    assert model.coefficients["class 2: x"] == 0
    assert "shared by classes" in str(model.summary())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 0}, "classes must be a whole number"),
        ({"shared": ["x"]}, "shared needs several classes"),
        ({"membership": "1"}, "membership needs several classes"),
        ({"classes": 2, "shared": "x"}, "shared must be a list"),
        ({"classes": 2, "shared": ["x", "y"]}, "the classes do not differ"),
        ({"random": {"x": "zero-inflated-nromal"}}, "Did you mean 'zero-inflated-normal'"),
        ({**ZERO, "fixed": {"zero[x]": 1.5}}, r"'zero\[x\]' is a share of the people"),
        ({**ZERO, "classes": 2, "bounds": {"class 2: zero[x]": (-1, 1)}}, "is a share of the people"),
        ({**ZERO, "fixed": {"zero[y]": 0.5}}, r"'zero\[y\]' is not a coefficient"),
        ({**ZERO, "wtp_space": "x"}, "willingness to pay is not defined"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str, data: ChoiceData) -> None:
    with pytest.raises(ConfigError, match=message):
        MixedMNL(**{"draws": 10, **options}).fit(data, progress=False)


def test_scales_and_exponents_are_not_supported_with_classes() -> None:
    table = {**panel(40, two_classes)}
    table |= {"survey": np.where(table["person"] % 2, "a", "b"), "w": np.exp(table["x"])}
    data = read(table, **{**PANEL, "features": ["x", "y", "w"]}, individual=["survey"])
    options: dict[str, Any] = {"classes": 2, "membership": "1", "draws": 10}
    with pytest.raises(ConfigError, match="scale is not supported with several classes: leave scale out"):
        MixedMNL(scale="survey", **options).fit(data, progress=False)
    with pytest.raises(ConfigError, match=r"estimating 'lambda\[w\]' is not supported with several classes: fix it"):
        MixedMNL(formula="boxcox(w) + y", random={"y": "normal"}, **options).fit(data, progress=False)


def test_ratios_to_a_coefficient_with_zeros_are_refused(zero_model: MixedMNL, data: ChoiceData) -> None:
    with pytest.raises(InputError, match="is 0 for some people, so ratios to it have no mean"):
        zero_model.conditional(data, cost="x")
    with pytest.raises(InputError, match="is zero-inflated-normal, so its parameter is not its mean"):
        zero_model.willingness_to_pay("x", "y")


def test_willingness_to_pay_is_a_ratio_within_a_class(data: ChoiceData) -> None:
    options: dict[str, Any] = {"random": {"x": "normal"}, "classes": 2, "membership": "1", "draws": 20, "starts": 1}
    model = MixedMNL(**options).fit(data, progress=False)
    ratio = model.willingness_to_pay("class 2: x", "class 2: y")
    b = model.coefficients
    assert ratio.value == pytest.approx(-b["class 2: x"] / b["class 2: y"])
    assert 0 < ratio.error < 10
    with pytest.raises(InputError, match="belong to different classes"):
        model.willingness_to_pay("class 1: x", "class 2: y")
    with pytest.raises(InputError, match=r"the coefficient of 'x' is normal, .*with wtp_space='x'"):
        model.willingness_to_pay("class 1: y", "class 1: x")
    # In WTP space, the willingness to pay of a class is a parameter.
    random = {"x": "normal", "y": "-lognormal"}
    space = MixedMNL(**{**options, "random": random, "wtp_space": "y"}).fit(data, progress=False)
    assert {"class 1: wtp[x]", "class 2: sd[wtp[x]]", "class 2: y"} < {*space.coefficients}
    assert np.isfinite(space.predict_proba(data)).all()


def test_simulated_shares_are_those_of_the_probabilities(zero_model: MixedMNL) -> None:
    """A market of three products: the shares of people with equal weights, up to one of 100 draws."""
    products = {"x": [1.0, -1.0, 0.5], "y": [0.5, 0.0, 1.0]}
    shares = pn.market_shares(zero_model, products, people="new")
    table = {**products, "trip": [1, 1, 1], "person": [1, 1, 1]}
    expected = zero_model.predict_proba(table)
    np.testing.assert_allclose([row.share for row in shares.rows], expected, atol=0.02)  # equal weights by rounding


def test_a_model_with_damaged_classes_is_refused(model: MixedMNL) -> None:
    record, table = model.record_, model.table_
    files = {**model._files(), "schema.json": json.dumps(model.schema.to_dict()).encode()}
    entries = json.loads(files["mixing.json"])
    for mirrors in ([], [[1, 1]], [[1], [1]], [[1, 2], [1, 1]]):
        damaged = {**entries, "classes": {**entries["classes"], "mirrors": mirrors}}
        with pytest.raises(ValueError, match=r"the saved (classes|random coefficients)"):
            model._restore({**files, "mixing.json": json.dumps(damaged).encode()}, record, table)


# -- tests of restrictions -----------------------------------------------------------------------------------------


def test_spreads_of_all_classes_are_on_the_boundary(model: MixedMNL, data: ChoiceData) -> None:
    fixed = LatentClassMNL(classes=2, starts=3).fit(data)
    outcome = likelihood_ratio(fixed, model)
    assert outcome.rejected
    assert any("'class 1: sd[x]', 'class 1: sd[y]', 'class 2: sd[x]'" in note for note in outcome.notes)
    one = MixedMNL(draws=50, starts=1).fit(data, progress=False)
    assert any("with fewer classes, the parameters" in note for note in likelihood_ratio(one, model).notes)


def test_a_share_of_zeros_is_on_the_boundary(zero_model: MixedMNL) -> None:
    data = read(panel(400, some_zeros), **PANEL)
    plain = MixedMNL(draws=100, starts=1).fit(data, progress=False)
    outcome = likelihood_ratio(plain, zero_model)
    (note,) = [note for note in outcome.notes if "boundary" in note]
    assert "'zero[x]'" in note
    assert "the correct p-value is half of this one" in note


def test_a_random_box_cox_coefficient_contains_that_of_the_column() -> None:
    """Both models have a random coefficient of w; only the exponent is restricted, and 1 is not on a boundary."""
    table = panel(80, some_zeros)
    table["w"] = np.exp(table["x"])
    data = read(table, **{**PANEL, "features": ["w"]})
    small = MixedMNL(formula="w", draws=20, starts=1).fit(data, progress=False)
    large = MixedMNL(formula="boxcox(w)", random={"boxcox(w)": "normal"}, draws=20, starts=1)
    outcome = likelihood_ratio(small, large.fit(data, progress=False))
    assert not any("boundary" in note for note in outcome.notes)
    # Without a random coefficient in the smaller model, its spread is on the boundary.
    fixed = pn.MNL(formula="w").fit(data)
    assert any("boundary" in note for note in likelihood_ratio(fixed, large).notes)
