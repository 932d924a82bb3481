"""Coefficients that are constrained to be equal: options, estimates by hand, standard errors and tests."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choice_tables import read
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.evaluation.hypothesis_tests.hausman_mcfadden import hausman_mcfadden
from pcmcnet.evaluation.hypothesis_tests.lagrange_multiplier import score_test
from pcmcnet.evaluation.hypothesis_tests.likelihood_ratio import likelihood_ratio
from pcmcnet.evaluation.hypothesis_tests.wald import wald
from pcmcnet.models import MNL, MixedMNL, NestedMNL, load
from pcmcnet.models.logit.parameter_bounds import Parameters, checked_equalities

NAMES = ("price", "time", "wait", "walk")


def parameters(**options: Any) -> Parameters:
    return Parameters.of(NAMES, **{"fixed": {}, "bounds": {}, "start": {}, **options})


def table(sets: int = 300, seed: int = 0) -> dict[str, Any]:
    """Choices between three labels whose utility has the same coefficient for walking and for waiting."""
    rng = np.random.default_rng(seed)
    x = np.round(64 * rng.normal(size=(sets, 3, 3))) / 64  # exact in float32, like the sum of two columns
    took = (x @ [-1.0, -0.5, -0.5] + rng.gumbel(size=(sets, 3))).argmax(1)
    columns = {name: x[..., k].ravel() for k, name in enumerate(("price", "wait", "walk"))}
    return {
        "trip": np.repeat(np.arange(sets), 3),
        "took": (took[:, None] == np.arange(3)).ravel(),
        "mode": np.tile(["car", "bus", "train"], sets),
        "person": np.repeat(np.arange(sets) // 3, 3),
        "weight": np.repeat(1.0 + (np.arange(sets) // 3) % 3, 3),
        "both": columns["wait"] + columns["walk"],
        **columns,
    }


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    features = ["price", "wait", "walk", "both"]
    return read(table(), alternative="mode", features=features, person="person", weight="weight")


# -- options -------------------------------------------------------------------------------------------------------


def test_equalities_are_equations_or_tuples() -> None:
    assert checked_equalities(["a = b = c", ["a", "d"]]) == (("a", "b", "c"), ("a", "d"))
    assert MNL(equal=["a = b"]).config.equal == (("a", "b"),)


@pytest.mark.parametrize("equal", ["a = b", ["a"], [["a"]], [("a", "a")], ["a = "], [1], [("a", 2)]])
def test_malformed_equalities_are_refused(equal: Any) -> None:
    with pytest.raises(ConfigError, match="equal"):
        MNL(equal=equal)


def test_groups_with_a_common_parameter_are_one_group() -> None:
    same = parameters(equal=[("price", "time"), ("walk", "time")])
    np.testing.assert_array_equal(same.group, [0, 0, 1, 0])
    np.testing.assert_array_equal(same.expansion, [[1, 0], [1, 0], [0, 1], [1, 0]])
    assert same.reduced.names == ("price", "wait")
    assert same.n_free == 2
    assert parameters(equal=[("price", "time")], fixed={"time": 1.0}).n_free == 2


def test_options_of_one_parameter_apply_to_all_equal_ones() -> None:
    same = parameters(equal=[("price", "time")], bounds={"price": (None, 0), "time": (-2, 1)}, start={"time": -0.5})
    np.testing.assert_array_equal(same.low, [-2, -2, -np.inf, -np.inf])
    np.testing.assert_array_equal(same.high, [0, 0, np.inf, np.inf])
    np.testing.assert_array_equal(same.start, [-0.5, -0.5, 0, 0])
    np.testing.assert_array_equal(same.clip(np.array([-9.0, 5, 5, 5])), [-2, -2, 5, 5])
    fixed = parameters(equal=[("price", "time")], fixed={"time": 3.0})
    np.testing.assert_array_equal(fixed.fixed, [True, True, False, False])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"equal": [("price", "tme")]}, r"equal: 'tme' is not a coefficient of this model. Did you mean 'time'"),
        ({"equal": [("price", "time")], "fixed": {"price": 1, "time": 2}}, "fixed has the values 1 and 2"),
        ({"equal": [("price", "time")], "start": {"price": 1, "time": 2}}, "start has the values 1 and 2"),
        ({"equal": [("price", "time")], "bounds": {"price": (None, 0), "time": (1, 2)}}, "no interval satisfies"),
        ({"equal": [("price", "time")], "bounds": {"price": (None, 0)}, "fixed": {"time": 1}}, "outside their bounds"),
    ],
)
def test_contradictory_constraints_are_refused(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parameters(**options)


# -- estimates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classical", "robust", "clustered"])
def test_equal_coefficients_are_those_of_the_sum_of_their_columns(data: ChoiceData, kind: Any) -> None:
    """b wait + b walk = b (wait + walk), with weights and persons."""
    equal = MNL(formula="price + wait + walk", equal=["wait = walk"]).fit(data)
    summed = MNL(formula="price + both").fit(data)
    assert equal.estimates_.log_likelihood == pytest.approx(summed.estimates_.log_likelihood, rel=1e-12)
    assert equal.coefficients["wait"] == equal.coefficients["walk"]
    rows = [0, 1, 3, 4]  # price, wait, and the constants after walk
    np.testing.assert_allclose(equal.estimates_.values[rows], summed.estimates_.values, rtol=1e-6)  # float32 columns
    np.testing.assert_allclose(equal.covariance(kind)[np.ix_(rows, rows)], summed.covariance(kind), rtol=1e-5)
    assert equal.standard_errors(kind)["walk"] == equal.standard_errors(kind)["wait"]
    assert equal.num_parameters == summed.num_parameters
    assert equal.estimates_.bic == pytest.approx(summed.estimates_.bic, rel=1e-12)
    np.testing.assert_allclose(equal.predict_proba(data), summed.predict_proba(data), rtol=1e-5)


def test_two_steps_give_the_bounded_estimate(data: ChoiceData) -> None:
    bounded = MNL(formula="price + wait + walk", equal=["wait = walk"], bounds={"walk": (-0.1, 0.1)}).fit(data)
    assert bounded.coefficients["wait"] == bounded.coefficients["walk"] == -0.1
    assert set(bounded.estimates_.at_bound) == {"wait", "walk"}
    fixed = MNL(formula="price + wait + walk", equal=["wait = walk"], fixed={"walk": -0.1}).fit(data)
    assert fixed.coefficients["price"] == pytest.approx(bounded.coefficients["price"], rel=1e-6)
    assert set(fixed.estimates_.fixed) == {"wait", "walk"}
    assert not fixed.estimates_.equal


def test_equal_coefficients_of_a_nested_logit(data: ChoiceData) -> None:
    nests = {"car": "road", "bus": "road", "train": "rail"}
    options = {"nests": nests, "bounds": None}
    equal = NestedMNL(formula="price + wait + walk", equal=["wait = walk"], **options).fit(data)
    summed = NestedMNL(formula="price + both", **options).fit(data)
    assert equal.estimates_.log_likelihood == pytest.approx(summed.estimates_.log_likelihood, rel=1e-9)
    assert equal.coefficients["logsum[road]"] == pytest.approx(summed.coefficients["logsum[road]"], rel=1e-4)
    assert equal.standard_errors()["walk"] == pytest.approx(summed.standard_errors()["both"], rel=1e-4)  # differences


def test_equal_coefficients_of_a_mixed_logit(data: ChoiceData) -> None:
    options = {"random": {"price": "normal"}, "draws": 50, "starts": 1}
    equal = MixedMNL(formula="price + wait + walk", equal=["wait = walk"], **options).fit(data)
    summed = MixedMNL(formula="price + both", **options).fit(data)
    # The prior is on each coefficient, so the maxima differ a little.
    assert equal.estimates_.log_likelihood == pytest.approx(summed.estimates_.log_likelihood, rel=1e-5)
    assert equal.standard_errors()["walk"] == pytest.approx(summed.standard_errors()["both"], rel=1e-3)
    assert equal.estimates_.equal == {"walk": "wait"}


def test_equal_exponents_of_box_cox_terms() -> None:
    """Two columns with one exponent. The gradient at the maximum is 0 along the common exponent."""
    columns = table()
    columns |= {name: np.exp(columns[name]) for name in ("wait", "walk")}
    data = read(columns, alternative="mode", features=["wait", "walk"])
    formula = "boxcox(wait) + boxcox(walk) | 0"
    model = MNL(formula=formula, equal=["lambda[wait] = lambda[walk]"]).fit(data)
    assert model.coefficients["lambda[wait]"] == model.coefficients["lambda[walk]"]
    assert model.estimates_.convergence.gradient < 1e-4
    free = MNL(formula=formula).fit(data)
    assert likelihood_ratio(model, free).degrees_of_freedom == 1


def test_equalities_that_leave_a_coefficient_unidentified_are_refused(data: ChoiceData) -> None:
    with pytest.raises(InputError, match="singular design"):
        MNL(formula="price + wait + walk + both", equal=["wait = walk"]).fit(data)
    MNL(formula="price + wait + walk + both", equal=["walk = both"]).fit(data)  # identified by the equality


def test_cholesky_entries_cannot_be_equal(data: ChoiceData) -> None:
    model = MixedMNL(
        random={"price": "normal", "wait": "normal"}, correlated=True, equal=["cholesky[price, price] = price"]
    )
    with pytest.raises(ConfigError, match=re.escape("'cholesky[price, price]' is not supported")):
        model.fit(data)


def test_an_offset_cannot_be_equal_to_a_coefficient() -> None:
    with pytest.raises(ConfigError, match="has a coefficient of 1"):
        MNL(offset="price", equal=["price = wait"])


def test_a_saved_model_keeps_its_equalities(data: ChoiceData, tmp_path: Path) -> None:
    model = MNL(formula="price + wait + walk", equal=["wait = walk"]).fit(data)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.config.equal == (("wait", "walk"),)
    assert loaded.estimates_.equal == {"walk": "wait"}
    assert str(loaded.summary()) == str(model.summary())
    assert "'wait' = 'walk'" in str(model.summary())


# -- tests of equalities --------------------------------------------------------------------------------------------


def test_likelihood_ratio_and_score_tests_of_an_equality(data: ChoiceData) -> None:
    """The score test of wait = walk is that of the column walk in the utility with their sum."""
    small = MNL(formula="price + wait + walk", equal=["wait = walk"]).fit(data)
    large = MNL(formula="price + wait + walk").fit(data)
    ratio = likelihood_ratio(small, large)
    assert ratio.degrees_of_freedom == 1
    assert ratio.details["restricted"] == ["walk"]
    score = score_test(small, data)
    by_hand = score_test(MNL(formula="price + both").fit(data), data, "price + both + walk")
    assert score.degrees_of_freedom == 1
    assert score.statistic == pytest.approx(by_hand.statistic, rel=1e-4)  # float32 columns
    assert wald(large, "wait = walk").statistic == pytest.approx(score.statistic, rel=0.2)  # equal in large samples
    with pytest.raises(InputError, match="constrained to be equal"):
        wald(small, "wait = walk")
    with pytest.raises(InputError, match="equal to others: 'walk'"):
        hausman_mcfadden(small, data, without="bus")


def test_a_model_with_an_equality_does_not_contain_one_without(data: ChoiceData) -> None:
    small = MNL(formula="wait + walk | 0").fit(data)
    large = MNL(formula="price + wait + walk", equal=["wait = walk"]).fit(data)
    with pytest.raises(InputError, match="not nested"):
        likelihood_ratio(small, large)
    assert likelihood_ratio(MNL(formula="both").fit(data), large).degrees_of_freedom == 1
