"""Tastes of a mixed logit: covariances with errors, predictions given earlier choices, and latent classes in a plot."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choice_tables import PANEL, normal_tastes, panel, read
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.models import LatentClassMNL, MixedMNL, load
from pcmcnet.models.interface.latent_classes import Persons
from pcmcnet.models.logit import user_terms
from pcmcnet.models.logit.tastes import covariance_and_correlation
from pcmcnet.plots.effects import taste_chart


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(panel(100, normal_tastes), **PANEL)


@pytest.fixture(scope="module")
def history(data: ChoiceData) -> ChoiceData:
    return data.subset(np.arange(len(data)) % 8 < 6)


@pytest.fixture(scope="module")
def future(data: ChoiceData) -> ChoiceData:
    return data.subset(np.arange(len(data)) % 8 >= 6)


@pytest.fixture(scope="module")
def model(history: ChoiceData) -> MixedMNL:
    return MixedMNL(random={"x": "normal", "y": "normal"}, correlated=True, draws=100, starts=1).fit(history)


# -- covariances ---------------------------------------------------------------------------------------------------


def test_correlations_are_those_by_hand() -> None:
    """Deviations 2 and 3: the covariance 3 is a correlation of 1/2. A coefficient that does not vary has none."""
    covariance, correlation = covariance_and_correlation(np.array([[4.0, 3.0], [3.0, 9.0]]))
    np.testing.assert_array_equal(covariance, [[4, 3], [3, 9]])
    np.testing.assert_allclose(correlation, [[1, 0.5], [0.5, 1]])
    assert np.isnan(covariance_and_correlation(np.array([[4.0, 0.0], [0.0, 0.0]]))[1][1]).all()


@pytest.mark.parametrize("kind", ["classical", "clustered"])
def test_covariances_have_the_errors_of_the_delta_method(model: MixedMNL, kind: Any) -> None:
    """With L = [[a, 0], [b, c]]: var x = a^2, cov = a b, var y = b^2 + c^2, so d cov = (b, a, 0)."""
    result = model.taste_covariance(errors=kind)
    names = list(model.coefficients)
    at = [names.index(f"cholesky[{pair}]") for pair in ("x, x", "y, x", "y, y")]
    a, b, c = model.estimates_.values[at]
    v = model.covariance(kind)[np.ix_(at, at)]
    assert result.names == ("x", "y")
    np.testing.assert_allclose(result.covariances, [[a**2, a * b], [a * b, b**2 + c**2]], rtol=1e-12)
    np.testing.assert_allclose(result.correlations[0, 1], b / np.hypot(b, c), rtol=1e-12)
    gradients = np.array([[2 * a, 0, 0], [b, a, 0], [0, 2 * b, 2 * c]])
    expected = np.sqrt(np.einsum("ik,kl,il->i", gradients, v, gradients))
    np.testing.assert_allclose(result.std_errors[0][[0, 0, 1], [0, 1, 1]], expected, rtol=1e-6)
    size = np.hypot(b, c) ** 3
    of_correlation = np.array([0, c**2 / size, -b * c / size])
    assert result.std_errors[1][0, 1] == pytest.approx(np.sqrt(of_correlation @ v @ of_correlation), rel=1e-6)
    assert "correlation" in str(result)
    table = result.to_arrow()
    assert table.num_rows == 3
    assert table["coefficient"].to_pylist() == ["x", "y", "y"]


def test_variances_of_other_distributions_are_those_of_formulas(history: ChoiceData) -> None:
    """var of log-normal y: exp(2 a + s^2) (exp(s^2) - 1); of a triangular x: spread^2 / 6. They are independent."""
    random = {"x": "triangular", "y": "-lognormal"}
    model = MixedMNL(random=random, draws=50, starts=1).fit(history)
    result, b = model.taste_covariance(), model.coefficients
    s = b["sd[y]"]
    assert result.covariances[0, 0] == pytest.approx(b["spread[x]"] ** 2 / 6, rel=0.01)  # 4,096 draws
    assert result.covariances[1, 1] == pytest.approx(np.exp(2 * b["y"] + s**2) * np.expm1(s**2), rel=0.05)
    assert result.covariances[0, 1] == result.correlations[0, 1] == 0


def test_tastes_that_depend_on_individuals_need_data() -> None:
    columns = panel(40, normal_tastes)
    columns["income"] = np.asarray(columns[PANEL["person"]]) % 5
    data = read(columns, **{**PANEL, "individual": ["income"]})
    model = MixedMNL(random={"x": "normal"}, means={"x": "income"}, draws=20, starts=1).fit(data)
    with pytest.raises(InputError, match="pass data on the individuals"):
        model.taste_covariance()
    within = model.coefficients["sd[x]"] ** 2
    assert model.taste_covariance(data).covariances[0, 0] > within  # means differ between individuals


# -- predictions given earlier choices -------------------------------------------------------------------------------


def test_predictions_given_choices_are_ratios_of_simulated_likelihoods(
    model: MixedMNL, history: ChoiceData, future: ChoiceData
) -> None:
    """P(i | history) = L(history, i) / L(history), with the draws of the person, for the chosen alternatives."""
    one = future.subset(np.arange(0, len(future), 2))
    p = one.from_rows(model.predict_proba_given(one, history))[one.offsets[:-1] + one.chosen]
    # The joint likelihood of six earlier choices and one more choice.
    whole = read(panel(100, normal_tastes), **PANEL)
    joint = whole.subset(np.arange(len(whole)) % 8 < 7)
    at = model.estimates_.values
    values = [
        model.simulated_likelihood(sets, Persons.of(sets, "person")).evaluate(at, "float64", scores=False)[0]
        for sets in (joint, history)
    ]
    np.testing.assert_allclose(p, np.exp(values[0] - values[1]), rtol=1e-9)


def test_probabilities_given_choices_sum_to_1_and_improve(
    model: MixedMNL, history: ChoiceData, future: ChoiceData
) -> None:
    given, plain = (
        future.from_rows(p) for p in (model.predict_proba_given(future, history), model.predict_proba(future))
    )
    np.testing.assert_allclose(np.add.reduceat(given, future.offsets[:-1]), 1, rtol=1e-12)
    picked = future.offsets[:-1] + future.chosen
    assert np.log(given[picked]).mean() > np.log(plain[picked]).mean() + 0.02


def test_persons_without_history_have_the_probabilities_of_the_population(
    model: MixedMNL, history: ChoiceData, future: ChoiceData
) -> None:
    some = history.subset(np.flatnonzero(history.groups() < 30))
    given = future.from_rows(model.predict_proba_given(future, some))
    plain = future.from_rows(model.predict_proba(future))
    known = np.repeat(np.isin(future.keep["person"].plain(), some.keep["person"].plain()), future.sizes)
    np.testing.assert_array_equal(given[~known], plain[~known])
    assert np.abs(given[known] - plain[known]).max() > 0.05


def test_the_order_of_rows_and_saving_have_no_effect(
    model: MixedMNL, history: ChoiceData, future: ChoiceData, tmp_path: Path
) -> None:
    given = model.predict_proba_given(future, history)
    backwards = history.subset(np.arange(len(history))[::-1])
    np.testing.assert_allclose(model.predict_proba_given(future, backwards), given, rtol=1e-10)
    loaded = load(model.save(tmp_path / "model"))
    assert isinstance(loaded, MixedMNL)
    np.testing.assert_allclose(loaded.predict_proba_given(future, history), given, rtol=1e-10)


def test_earlier_choices_need_persons(history: ChoiceData, future: ChoiceData) -> None:
    by_set = MixedMNL(random={"x": "normal"}, draws=20, starts=1, by="set").fit(history)
    with pytest.raises(InputError, match="earlier choices can be used only if"):
        by_set.predict_proba_given(future, history)


# -- transformations with parameters -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def positive() -> ChoiceData:
    """Panel whose utility is the root of x, with a positive column x."""
    columns = panel(120, normal_tastes)
    columns["x"] = np.exp(np.asarray(columns["x"]) / 2)
    return read(columns, **PANEL)


OPTIONS: dict[str, Any] = {"random": {"boxcox(x)": "normal"}, "draws": 50, "starts": 1}


def test_a_fixed_exponent_is_that_of_a_fixed_transformation(positive: ChoiceData) -> None:
    one = MixedMNL(formula="boxcox(x) + y", fixed={"lambda[x]": 0.5}, **OPTIONS).fit(positive)
    other = MixedMNL(formula="boxcox(x, 0.5) + y", **{**OPTIONS, "random": {"boxcox(x, 0.5)": "normal"}}).fit(positive)
    assert one.estimates_.log_likelihood == pytest.approx(other.estimates_.log_likelihood, rel=1e-9)
    # The prior is on coefficients in units of the columns at the start, where the exponent of the first model is 1.
    np.testing.assert_allclose(one.estimates_.values[:-1], other.estimates_.values, rtol=1e-4)
    np.testing.assert_allclose(one.predict_proba(positive), other.predict_proba(positive), rtol=1e-4)
    np.testing.assert_allclose(one.conditional(positive).means, other.conditional(positive).means, rtol=1e-3)


def test_an_estimated_exponent_maximises_the_likelihood(positive: ChoiceData, tmp_path: Path) -> None:
    """The log-likelihood is lower on both sides, and a tenth of an error away it is lower by 1/200."""
    model = MixedMNL(formula="boxcox(x) + y", prior=0, **OPTIONS).fit(positive)
    b, error = model.coefficients["lambda[x]"], model.standard_errors("classical")["lambda[x]"]
    assert model.estimates_.null[-1] == 1
    for side in (-1, 1):
        fixed = MixedMNL(formula="boxcox(x) + y", prior=0, fixed={"lambda[x]": b + side * 0.1 * error}, **OPTIONS)
        lower = model.estimates_.log_likelihood - fixed.fit(positive).estimates_.log_likelihood
        assert lower == pytest.approx(0.005, rel=0.1)  # third derivatives
    loaded = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(positive), model.predict_proba(positive))
    few = positive.subset(np.arange(20))
    scaled = model.elasticities(few, "x")["own", "own"]
    assert np.isfinite([scaled.value, scaled.error]).all()


def test_user_terms_in_mixed_logits_have_the_estimates_of_box_cox(
    positive: ChoiceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_terms, "_USER_TERMS", {})
    user_terms.term("power", lambda x, e: (x**e - 1) / e, {"e": 1.0})
    own = MixedMNL(formula="power(x) + y", **{**OPTIONS, "random": {"power(x)": "normal"}}).fit(positive)
    built_in = MixedMNL(formula="boxcox(x) + y", **OPTIONS).fit(positive)
    np.testing.assert_allclose(own.estimates_.values, built_in.estimates_.values, rtol=1e-4)  # two searches
    np.testing.assert_allclose(own.covariance("classical"), built_in.covariance("classical"), rtol=1e-3)


def test_error_components_do_not_depend_on_exponents() -> None:
    columns = panel(40, normal_tastes, sizes=(3, 3))
    columns["x"] = np.exp(np.asarray(columns["x"]) / 2)
    columns["mode"] = np.tile(["car", "bus", "train"], len(columns["x"]) // 3)
    data = read(columns, **PANEL, alternative="mode")
    options = {"components": {"car": "road", "bus": "road"}, "random": {}, "draws": 30, "starts": 1}
    curved = MixedMNL(formula="boxcox(x) + y", fixed={"lambda[x]": 1}, **options).fit(data)
    linear = MixedMNL(formula="x + y", **options).fit(data)
    # boxcox(x) is x - 1, and the constant cancels.
    assert curved.estimates_.log_likelihood == pytest.approx(linear.estimates_.log_likelihood, rel=1e-8)


def test_scales_with_exponents_are_refused() -> None:
    columns = panel(40, normal_tastes)
    columns["x"] = np.exp(np.asarray(columns["x"]) / 2)
    columns["wave"] = np.asarray(columns[PANEL["person"]]) % 2
    data = read(columns, **{**PANEL, "individual": ["wave"]})
    with pytest.raises(ConfigError, match=r"scale with 'lambda\[x\]' is not supported by MixedMNL"):
        MixedMNL(formula="boxcox(x) + y", scale="wave", **OPTIONS).fit(data)


# -- latent classes beside the distributions ---------------------------------------------------------------------------


def test_classes_are_marked_with_their_shares(model: MixedMNL, history: ChoiceData) -> None:
    classes = LatentClassMNL(classes=2, membership="1").fit(history)
    marks = classes.coefficient_shares()["x"]
    assert [value for value, _ in marks] == [classes.coefficients[f"class {c}: x"] for c in (1, 2)]
    assert sum(share for _, share in marks) == pytest.approx(1)
    tastes = model.tastes()
    chart = taste_chart(tastes["x"], tastes.draws[0], marks)
    assert chart.classes == tuple(marks)
    assert all(chart.edges[0] <= value <= chart.edges[-1] for value, _ in marks)
    axes = model.plot_distributions("x", classes=classes)
    assert {text.get_text() for text in axes.texts} >= {f"{share:.0%}" for _, share in marks}
    assert not model.plot_distributions("x").collections


@pytest.mark.parametrize("law", ["zbt", "zbu", "-log-uniform"])
def test_bounded_distributions_keep_one_sign(history: ChoiceData, law: str) -> None:
    model = MixedMNL(random={"y": law}, draws=50, starts=1).fit(history)
    tastes = model.tastes()["y"]
    assert tastes.below_0 == 1
    assert ("spread[y]" in model.coefficients) == (law == "-log-uniform")
    if law != "-log-uniform":
        assert tastes.mean == pytest.approx(model.coefficients["y"], rel=0.01)  # 4,096 draws
        assert model.num_parameters == 2
