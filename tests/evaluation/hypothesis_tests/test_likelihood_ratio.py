import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from choice_tables import logit_choices, read
from pcmcnet import (
    MNL,
    ChoiceData,
    CrossNestedMNL,
    LatentClassMNL,
    MixedMNL,
    NestedMNL,
    Uniform,
    calibrate_constants,
    load,
)
from pcmcnet.errors import InputError
from pcmcnet.evaluation.hypothesis_tests import likelihood_ratio
from pcmcnet.evaluation.hypothesis_tests.likelihood_ratio import (
    has_coefficients_of,
    is_panel_model,
    person_log_likelihoods,
)
from pcmcnet.models.logit.logit_model import FittedLogit


def two_towns(first: int = 30, second: int = 10) -> ChoiceData:
    """In one town 30 of 40 take the car rather than the bus, in the other 10 of 40."""
    n = 80
    by_car = np.concatenate([np.arange(40) < first, np.arange(40) < second])
    table = {
        "trip": np.repeat(np.arange(n), 2),
        "took": np.column_stack([by_car, ~by_car]).ravel().astype(int),
        "mode": ["car", "bus"] * n,
        "town": np.repeat(np.repeat(["A", "B"], 40), 2),
        "cost": np.random.default_rng(0).normal(size=2 * n),
    }
    return read(table, alternative="mode", individual=["town"], features=["cost"])


@pytest.fixture(scope="module")
def modes() -> ChoiceData:
    table = logit_choices(200, {"x": 1.0, "y": 0.5}, sizes=(3, 4), constants=[0.0, 0.5, -0.5, 0.2])
    return read(table, alternative="mode", features=["x", "y"], person="person")


def test_the_statistic_is_the_one_computed_by_hand() -> None:
    """One share for both towns: 80 log(1/2). One for each: 2 (30 log(3/4) + 10 log(1/4)). One restriction."""
    data = two_towns()
    small, large = MNL(formula="| 1").fit(data), MNL(formula="| town").fit(data)
    low, high = 80 * math.log(0.5), 2 * (30 * math.log(0.75) + 10 * math.log(0.25))
    test = likelihood_ratio(small, large)
    assert test.statistic == pytest.approx(2 * (high - low), rel=1e-10)  # 20.9301
    assert test.degrees_of_freedom == 1
    assert test.p_value == pytest.approx(
        math.erfc(math.sqrt(high - low)), rel=1e-8
    )  # chi-squared with 1 degree of freedom
    assert test.rejected
    assert test.notes == ()
    assert len(test.details["restricted"]) == 1
    assert "the MNL with 2 parameters fits significantly better than the MNL with 1 parameter." in str(test)


def test_equal_likelihoods_are_not_rejected() -> None:
    """Both towns have the same share, so both maxima are 80 log(1/2). Rounding may even reverse their order."""
    data = two_towns(20, 20)
    test = likelihood_ratio(MNL(formula="| 1").fit(data), MNL(formula="| town").fit(data))
    assert test.statistic == pytest.approx(0, abs=1e-9)
    assert test.p_value == pytest.approx(1, abs=1e-4)  # the p-value depends on the square root of the statistic
    assert not test.rejected


def test_a_fixed_coefficient_is_a_restriction() -> None:
    data = two_towns()
    free = MNL(formula="cost").fit(data)
    restricted = MNL(formula="cost", fixed={"cost": 0.3}).fit(data)
    expected = 2 * (free.estimates_.log_likelihood - restricted.estimates_.log_likelihood)
    test = likelihood_ratio(restricted, free)
    assert (test.statistic, test.degrees_of_freedom) == (pytest.approx(expected), 1)
    assert test.details["restricted"] == ["cost"]


def test_true_restrictions_are_rejected_at_the_significance_level() -> None:
    """z has no effect in 40 tables. At a level of 20%, 2 to 16 are rejected with probability 0.998."""
    rejected = 0
    for seed in range(40):
        data = read(logit_choices(60, {"x": 1.0, "z": 0.0}, seed), features=["x", "z"])
        small, large = MNL(formula="x").fit(data), MNL(formula="x + z").fit(data)
        rejected += likelihood_ratio(small, large, significance=0.2).rejected
    assert 2 <= rejected <= 16


def test_a_weighted_likelihood_is_noted() -> None:
    table = logit_choices(60, {"x": 1.0, "z": 0.0})
    for weight, noted in ((1.0, False), (100.0, True)):
        data = read({**table, "w": np.full(len(table["x"]), weight)}, features=["x", "z"], weight="w")
        notes = likelihood_ratio(MNL(formula="x").fit(data), MNL(formula="x + z").fit(data)).notes
        assert any("this is a pseudo-likelihood ratio: its p-value is not valid" in note for note in notes) == noted


def test_models_that_are_not_nested_are_refused(modes: ChoiceData) -> None:
    small, large = MNL(formula="x").fit(modes), MNL(formula="x + y").fit(modes)
    with pytest.raises(InputError, match=r"Uniform is not a logit: use pcmcnet.vuong"):
        likelihood_ratio(Uniform().fit(modes), large)
    with pytest.raises(InputError, match="got 4 and 5: swap the two models"):
        likelihood_ratio(large, small)
    with pytest.raises(InputError, match="got 5 and 5: there is no restriction to test"):
        likelihood_ratio(large, large)
    other = MNL(formula="x").fit(modes.subset(np.arange(100)))
    with pytest.raises(InputError, match="fitted to different tables, with 100 and 200 choice sets: fit both to"):
        likelihood_ratio(other, large)
    held = MNL(formula="x + y", fixed={"x": 1.0}).fit(modes)
    with pytest.raises(InputError, match="'x' is fixed in the larger model but estimated in the smaller"):
        likelihood_ratio(MNL(formula="x | 0").fit(modes), held)
    with pytest.raises(InputError, match="'x' is 1 in the larger model and 0 in the smaller"):
        likelihood_ratio(MNL(formula="y | 0").fit(modes), held)


def test_a_larger_model_with_a_lower_likelihood_is_refused(modes: ChoiceData) -> None:
    small, large = MNL(formula="x").fit(modes), MNL(formula="x + y").fit(modes)
    state = large.require_fitted().state
    assert isinstance(state, FittedLogit)
    state = replace(state, estimates=replace(state.estimates, log_likelihood=-500.0))
    large.fitted_ = replace(large.require_fitted(), state=state)
    with pytest.raises(InputError, match="the larger model has the lower log-likelihood"):
        likelihood_ratio(small, large)


def test_models_whose_columns_are_not_contained_are_refused(modes: ChoiceData, tmp_path: Path) -> None:
    """Neither x nor y is a combination of the other and of constants."""
    y = MNL(formula="y | 0").fit(modes)
    saved = load(y.save(tmp_path / "y"))
    for large in (
        MNL(formula="x").fit(modes),
        NestedMNL(formula="x", nests={"A": "one", "B": "one", "C": "two", "D": "two"}).fit(modes),
        MixedMNL(formula="x", random={"x": "normal"}, draws=20).fit(modes),
        LatentClassMNL(formula="x | 0", classes=2, starts=2).fit(modes),
    ):
        with pytest.raises(InputError, match=r"'y' is not a linear combination of the columns .* Use pcmcnet.vuong"):
            likelihood_ratio(y, large)
        with pytest.raises(InputError, match="not a linear combination"):
            likelihood_ratio(saved, large)
    fixed = MNL(formula="x + y", fixed={"y": 1.0}).fit(modes)
    with pytest.raises(InputError, match="'sum of the fixed terms' is not a linear combination"):
        likelihood_ratio(fixed, MNL(formula="x + square(x)").fit(modes))


def test_columns_are_compared_up_to_constants_and_rounding() -> None:
    """x + y, and x plus a number of each set, are combinations of x and y; labels determine the class."""
    table = logit_choices(80, {"x": 1.0, "y": 0.5}, sizes=(3, 4), constants=[0.0, 0.5, -0.5, 0.2])
    other = np.random.default_rng(0).normal(size=len(table["x"]))
    is_out = np.arange(len(other)) % 7 == 0
    table |= {
        "total": np.float32(table["x"] + table["y"]),
        "moved": table["x"] + 100.0 * table["trip"],  # 24 bits: values are rounded to 0.0005
        "elsewhere": np.where((table["trip"] < 9) | is_out & (table["took"] == 0), other, table["x"]),
        "class": np.where(np.isin(table["mode"], ["A", "B"]), "first", "second"),
        "w": np.where(table["trip"] < 9, 0.0, 1.0),
        "open": 1 - (is_out & (table["took"] == 0)),
    }
    features = ["x", "y", "total", "moved", "elsewhere", "class"]
    data = read(table, alternative="mode", features=features, weight="w", available="open")
    large = MNL(formula="x + y").fit(data)
    for formula in ("total | 0", "moved | 0", "elsewhere | 0", "x + class | 0", "y"):
        assert likelihood_ratio(MNL(formula=formula).fit(data), large).notes == ()
    whole = read(table, alternative="mode", features=features)
    with pytest.raises(InputError, match="'elsewhere' is not a linear combination"):
        likelihood_ratio(MNL(formula="elsewhere | 0").fit(whole), MNL(formula="x + y").fit(whole))


def test_classes_of_models_that_are_not_nested_are_refused(modes: ChoiceData) -> None:
    nests = {"A": "one", "B": "one", "C": "two", "D": "two"}
    nested = NestedMNL(formula="x | 0", nests=nests).fit(modes)
    mixed = MixedMNL(formula="x + y", random={"x": "normal"}, draws=20).fit(modes)
    with pytest.raises(InputError, match=r"MixedMNL has no special case with the parameters 'logsum\[one\]', 'logsum"):
        likelihood_ratio(nested, mixed)
    crossed = CrossNestedMNL(formula="x", nests={"one": ["A", "B"], "two": ["B", "C", "D"]}).fit(modes)
    assert likelihood_ratio(nested, crossed).degrees_of_freedom > 0


def test_a_random_coefficient_that_is_fixed_in_the_larger_model_is_refused(modes: ChoiceData) -> None:
    small = MixedMNL(formula="x + y | 0", random={"x": "normal"}, draws=20).fit(modes)
    large = MixedMNL(formula="x + y", random={"y": "normal"}, draws=20).fit(modes)
    with pytest.raises(InputError, match="the coefficient of 'x' varies between persons in the smaller model, but not"):
        likelihood_ratio(small, large)
    both = MixedMNL(formula="x + y", random={"x": "normal", "y": "normal"}, draws=20).fit(modes)
    assert likelihood_ratio(small, both).degrees_of_freedom == 4  # sd[y] and three constants


def test_an_estimated_exponent_is_refused_if_the_larger_utility_is_linear() -> None:
    table = logit_choices(60, {"x": 1.0, "y": 0.5, "z": 0.0})
    table["x"] = np.exp(table["x"])
    data = read(table, features=["x", "y", "z"])
    with pytest.raises(InputError, match=r"the smaller model estimates 'lambda\[x\]', and the larger model has no"):
        likelihood_ratio(MNL(formula="boxcox(x)").fit(data), MNL(formula="x + y + z").fit(data))


def test_log_sums_and_exponents_that_are_fixed_at_1_are_no_restriction(modes: ChoiceData) -> None:
    """A nest with the log-sum 1 has no effect, and the exponent 1 gives the column itself up to a constant."""
    nests = {"A": "one", "B": "one", "C": "two", "D": "two"}
    small = MNL(formula="x").fit(modes)
    one_nest = NestedMNL(formula="x + y", nests=nests, bounds=None, fixed={"logsum[two]": 1.0}).fit(modes)
    test = likelihood_ratio(small, one_nest)
    assert (test.degrees_of_freedom, test.details["restricted"]) == (2, ["y", "logsum[one]"])
    assert has_coefficients_of(one_nest, small)
    half = NestedMNL(formula="x + y", nests=nests, fixed={"logsum[two]": 0.5}).fit(modes)
    with pytest.raises(InputError, match=r"'logsum\[two\]' is 0.5 in the larger model and 1 in the smaller"):
        likelihood_ratio(small, half)
    assert not has_coefficients_of(half, small)


def test_nesting_is_assumed_with_a_note_if_columns_cannot_decide(modes: ChoiceData) -> None:
    """x = log(w) is boxcox(w) with the exponent 0; the columns show only the exponent 1."""
    table = logit_choices(60, {"x": 1.0, "y": 0.0})
    table["w"], table["income"] = np.exp(table["x"]), table["trip"] % 3
    data = read(table, features=["x", "y", "w"], individual=["income"])
    small, large = MNL(formula="x").fit(data), MNL(formula="boxcox(w) + y").fit(data)
    assert likelihood_ratio(small, large).notes == (
        "nesting is assumed, although the larger model has no coefficient 'x'",
    )
    interaction = MNL(formula="x + x:income").fit(data)
    means = MixedMNL(formula="x", random={"x": "normal"}, means={"x": "income"}, draws=40).fit(data)
    assert "nesting is assumed" in likelihood_ratio(interaction, means).notes[0]


def test_boundary_restrictions_and_dependent_choices_are_noted(modes: ChoiceData) -> None:
    small = MNL(formula="x + y").fit(modes)
    nested = NestedMNL(formula="x + y", nests={"A": "one", "B": "one", "C": "two", "D": "two"}).fit(modes)
    notes = " ".join(likelihood_ratio(small, nested).notes)
    assert "is on the boundary of the parameter space: this p-value is an upper bound" in notes
    assert "choices of a person are independent" in notes
    free = NestedMNL(formula="x + y", bounds=None, nests={"A": "one", "B": "one", "C": "two", "D": "two"}).fit(modes)
    assert not any("boundary" in note for note in likelihood_ratio(small, free).notes)


def test_a_standard_deviation_of_0_is_on_the_boundary(modes: ChoiceData) -> None:
    large = MixedMNL(formula="x", random={"x": "normal"}, draws=40).fit(modes)
    (note,) = likelihood_ratio(MNL(formula="x").fit(modes), large).notes
    assert note.startswith("the restriction on 'sd[x]' is on the boundary")
    assert note.endswith("the correct p-value is half of this one")


def test_correlated_coefficients_are_on_the_boundary_if_they_are_fixed_in_the_smaller_model(modes: ChoiceData) -> None:
    """Independent coefficients have covariances of 0, which is inside the parameter space."""
    normal = {"x": "normal", "y": "normal"}
    large = MixedMNL(formula="x + y | 0", random=normal, correlated=True, draws=40).fit(modes)
    (note,) = likelihood_ratio(MNL(formula="x + y | 0").fit(modes), large).notes
    assert note.startswith("the restriction on 'cholesky[x, x]', 'cholesky[y, x]', 'cholesky[y, y]' is on the boundary")
    assert note.endswith("this p-value is an upper bound")
    independent = MixedMNL(formula="x + y | 0", random=normal, draws=40).fit(modes)
    assert not any("boundary" in note for note in likelihood_ratio(independent, large).notes)


def test_allocations_are_not_identified_without_nests(modes: ChoiceData) -> None:
    nests = {"one": ["A", "B"], "two": ["B", "C", "D"]}
    large = CrossNestedMNL(formula="x + y", nests=nests).fit(modes)
    notes = likelihood_ratio(MNL(formula="x + y").fit(modes), large).notes
    assert any("allocations of alternatives to nests are not identified" in note for note in notes)


def test_one_more_class_is_not_chi_squared(modes: ChoiceData) -> None:
    small = MNL(formula="x").fit(modes)
    large = LatentClassMNL(formula="x", classes=2, starts=2).fit(modes)
    notes = likelihood_ratio(small, large).notes
    assert any("the statistic is not chi-squared" in note for note in notes)
    assert not any("is assumed" in note for note in notes)


def test_constants_calibrated_to_known_shares_are_refused(modes: ChoiceData) -> None:
    small, large = MNL(formula="x").fit(modes), MNL(formula="x + y").fit(modes)
    calibrated = calibrate_constants(large, modes, {"A": 0.4, "B": 0.3, "C": 0.2, "D": 0.1})
    with pytest.raises(InputError, match="a likelihood-ratio test needs estimates, but the constants of this MNL were"):
        likelihood_ratio(small, calibrated)
    assert has_coefficients_of(large, small)
    assert not has_coefficients_of(calibrated, small)


def test_names_show_which_logit_contains_another(modes: ChoiceData) -> None:
    x, y, both = (MNL(formula=formula).fit(modes) for formula in ("x", "y", "x + y"))
    classes = LatentClassMNL(formula="x", classes=2, starts=1).fit(modes)
    nested = NestedMNL(formula="x", nests={"A": "one", "B": "one", "C": "two", "D": "two"}).fit(modes)
    assert has_coefficients_of(both, x)
    assert has_coefficients_of(classes, x)
    assert has_coefficients_of(nested, x)
    assert not any(has_coefficients_of(*pair) for pair in ((x, both), (x, y), (classes, y), (classes, nested), (x, x)))
    held = MNL(formula="x + y", fixed={"y": 0.5}).fit(modes)
    assert not has_coefficients_of(held, MNL(formula="x | 0").fit(modes))  # there, y is 0
    assert not has_coefficients_of(both, Uniform().fit(modes))


# -- Person likelihoods ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    return read(logit_choices(120, {"x": 1.0, "y": 0.5}), features=["x", "y"], person="person")


def test_likelihoods_of_persons_add_up_to_the_maximised_one(data: ChoiceData) -> None:
    for model in (
        LatentClassMNL(formula="x", classes=2, starts=2, prior=0.1).fit(data),
        MixedMNL(formula="x + y", random={"x": "normal"}, draws=40).fit(data),
    ):
        log_likelihoods = person_log_likelihoods(model, data)
        assert log_likelihoods is not None
        assert log_likelihoods.shape == (30,)
        assert log_likelihoods.sum() == pytest.approx(model.estimates_.log_likelihood, rel=1e-9)


def test_a_person_has_one_class_in_all_sets(data: ChoiceData) -> None:
    """By hand: shares of classes times the products over four trips."""
    model = LatentClassMNL(formula="x", classes=2, starts=2, prior=0.1).fit(data)
    assert data.chosen is not None
    shares, log_p = model.as_logits(data)
    of_choices = log_p[data.offsets[:-1] + data.chosen].reshape(30, 4, 2).sum(axis=1)
    log_likelihoods = person_log_likelihoods(model, data)
    assert log_likelihoods == pytest.approx(np.log((shares[::4] * np.exp(of_choices)).sum(axis=1)), rel=1e-10)


def test_models_of_independent_sets_have_no_person_likelihoods(data: ChoiceData) -> None:
    by_set = LatentClassMNL(formula="x", classes=2, starts=2, prior=0.1, by="set").fit(data)
    plain = MNL(formula="x").fit(data)
    for model in (by_set, plain):
        assert not is_panel_model(model)
        assert person_log_likelihoods(model, data) is None
