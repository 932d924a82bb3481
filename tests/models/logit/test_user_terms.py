"""Transformations that users define: values, exact derivatives, estimates against built-in ones, saved models."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from choice_tables import read
from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, ConfigError, InputError, SchemaError, UndefinedTermError
from pcmcnet.models import MNL, LatentClassMNL, MixedMNL, NestedMNL, load
from pcmcnet.models.logit import user_terms
from pcmcnet.models.logit.design import Design
from pcmcnet.models.logit.user_terms import term


@pytest.fixture(autouse=True)
def _no_terms_remain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(user_terms, "_USER_TERMS", {})
    return


def table(sets: int = 300, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    time, cost = rng.uniform(10, 120, (sets, 3)), rng.uniform(1, 9, (sets, 3))
    took = (-2 * (time / 60) ** 0.5 - 0.4 * cost + rng.gumbel(size=(sets, 3))).argmax(1)
    return {
        "trip": np.repeat(np.arange(sets), 3),
        "took": (took[:, None] == np.arange(3)).ravel(),
        "mode": np.tile(["car", "bus", "train"], sets),
        "time": time.ravel(),
        "cost": cost.ravel(),
        "kind": np.tile(["a", "b", "a"], sets),
        "income": np.repeat(rng.uniform(1, 5, sets), 3),
        "person": np.repeat(np.arange(sets) // 3, 3),
        "weight": np.repeat(1.0 + np.arange(sets) % 2, 3),
    }


@pytest.fixture(scope="module")
def data() -> ChoiceData:
    roles = {"alternative": "mode", "features": ["time", "cost", "kind"], "individual": ["income"], "weight": "weight"}
    return read(table(), **roles)


def power(x: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
    """Box-Cox transformation, as a user would write it."""
    return (x**e - 1) / e


# -- values and derivatives ----------------------------------------------------------------------------------------


def test_values_and_slopes_are_those_by_hand() -> None:
    """f = r x y at x = (1, 2), y = (3, 4), r = 2: values (6, 16), derivatives in r (3, 8), in s (0, 0)."""
    product = term("product", lambda x, y, r, s: r * x * y, {"r": 1, "s": 1})
    columns = [np.array([1.0, 2.0]), np.array([3.0, 4.0])]
    assert product.values(columns, [2.0, 5.0]).tolist() == [6, 16]
    assert product.slopes(columns, [2.0, 5.0], "r").tolist() == [3, 8]
    assert product.slopes(columns, [2.0, 5.0], "s").tolist() == [0, 0]
    assert product.n_columns == 2


def test_the_linearised_utility_has_the_derivatives_of_differences(data: ChoiceData) -> None:
    term("power", power, {"e": 0.7})
    design = Design.learn("power(time/60):cost + power(time/60)[car] + cost", data, by_term=True)
    assert design.names[-2:] == ("e[power(time/60):cost]", "e[power(time/60)[car]]")
    values = np.random.default_rng(0).normal(size=len(design.names))
    values[-2:] = 0.6, 1.3
    near = design.linearised(data, values)
    slopes = near.matrix @ near.chain
    step = 1e-6 * np.eye(len(values))
    differences = [(design.utilities(data, values + h) - design.utilities(data, values - h)) / 2e-6 for h in step]
    np.testing.assert_allclose(slopes, np.column_stack(differences), rtol=1e-6, atol=1e-6)


# -- models --------------------------------------------------------------------------------------------------------


def test_a_term_like_box_cox_has_its_estimates_and_errors(data: ChoiceData) -> None:
    term("power", power, {"e": 1.0})
    own, built_in = (MNL(formula=f"{f}(time/60) + cost").fit(data) for f in ("power", "boxcox"))
    assert own.estimates_.log_likelihood == pytest.approx(built_in.estimates_.log_likelihood, abs=1e-8)
    np.testing.assert_allclose(own.estimates_.values, built_in.estimates_.values, rtol=1e-5)  # two searches
    for kind in ("classical", "robust"):
        np.testing.assert_allclose(own.covariance(kind), built_in.covariance(kind), rtol=1e-4)
    assert own.coefficients["e[power(time/60)]"] == pytest.approx(built_in.coefficients["lambda[time]"], rel=1e-5)
    assert own.estimates_.null.tolist()[-1] == 0
    assert own.elasticities(data, "time")["car", "car"].value == pytest.approx(
        built_in.elasticities(data, "time")["car", "car"].value, rel=1e-5
    )
    np.testing.assert_allclose(own.predict_proba(data), built_in.predict_proba(data), rtol=1e-5)


def test_parameters_can_be_fixed_bounded_and_equal(data: ChoiceData) -> None:
    term("power", power, {"e": 1.0})
    square = MNL(formula="power(time/60) + cost", fixed={"e[power(time/60)]": 2}).fit(data)
    plain = MNL(formula="square(time/60) + cost").fit(data)
    assert square.estimates_.log_likelihood == pytest.approx(plain.estimates_.log_likelihood, abs=1e-6)
    bounded = MNL(formula="power(time/60) + cost", bounds={"e[power(time/60)]": (0.9, 1)}).fit(data)
    assert 0.9 <= bounded.coefficients["e[power(time/60)]"] <= 1
    names = ("e[power(time/60)[car]]", "e[power(time/60)[bus,train]]")
    formula = "power(time/60)[car] + power(time/60)[bus,train]"
    own = MNL(formula=formula, exponents="term", equal=[names]).fit(data)
    shared = MNL(formula=formula).fit(data)
    assert own.coefficients[names[0]] == own.coefficients[names[1]]
    assert own.estimates_.log_likelihood == pytest.approx(shared.estimates_.log_likelihood, abs=1e-6)


def test_terms_without_parameters_work_in_every_logit(data: ChoiceData) -> None:
    term("fare", lambda cost, time: cost / time)
    term("ratio", lambda cost, income: cost / income)
    linear = MNL(formula="fare(cost, time) + ratio(cost, income)").fit(data)
    columns = table() | {"fare": table()["cost"] / table()["time"], "ratio": table()["cost"] / table()["income"]}
    by_column = MNL().fit(read(columns, alternative="mode", features=["fare", "ratio"], weight="weight"))
    np.testing.assert_allclose(linear.estimates_.values, by_column.estimates_.values, rtol=1e-5)  # float32 columns
    nests = {"car": "road", "bus": "road", "train": "rail"}
    for model in (
        NestedMNL(formula="fare(cost, time) + time", nests=nests),
        MixedMNL(formula="fare(cost, time) + time", random={"fare(cost, time)": "normal"}, draws=20, starts=1),
        LatentClassMNL(formula="fare(cost, time) + time", classes=2, membership="1", starts=2),
    ):
        fitted = model.fit(data)
        assert np.isfinite(fitted.predict_log_proba(data)).all()
        assert any("fare(cost, time)" in name for name in fitted.coefficients)


def test_parameters_of_terms_are_estimated_in_nested_logits(data: ChoiceData) -> None:
    term("power", power, {"e": 1.0})
    nests = {"car": "road", "bus": "road", "train": "rail"}
    own, built_in = (NestedMNL(formula=f"{f}(time/60) + cost", nests=nests).fit(data) for f in ("power", "boxcox"))
    assert own.estimates_.log_likelihood == pytest.approx(built_in.estimates_.log_likelihood, abs=1e-6)
    with pytest.raises(ConfigError, match=r"estimating 'e\[power\(time/60\)\]' is not supported by LatentClassMNL"):
        LatentClassMNL(formula="power(time/60)", classes=2).fit(data)


# -- saved models --------------------------------------------------------------------------------------------------


def test_a_saved_model_needs_the_same_function(data: ChoiceData, tmp_path: Path) -> None:
    term("power", power, {"e": 1.0})
    model = MNL(formula="power(time/60) + cost").fit(data)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(data), model.predict_proba(data))
    assert not [file for file in (tmp_path / "model").iterdir() if b"lambda x" in file.read_bytes()]
    term("power", lambda x, e: x**e, {"e": 1.0})
    with pytest.raises(ArtifactError, match="'power' is not the function that the model was fitted with"):
        load(tmp_path / "model")
    term("power", lambda x, f: x**f, {"f": 1.0})
    with pytest.raises(ArtifactError, match="'power' has other arguments than when the model was saved"):
        load(tmp_path / "model")
    user_terms._USER_TERMS.clear()
    with pytest.raises(ArtifactError, match=r"must be defined first, with pcmcnet.term\('power', function\)"):
        load(tmp_path / "model")
    term("power", power, {"e": 0.5})  # another start is the same function
    assert load(tmp_path / "model").coefficients == model.coefficients


# -- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("two words", torch.exp), "expected a name that is a word"),
        (("log", lambda x: x), "'log' is a built-in transformation"),
        (("f", 3), "expected a function of tensors"),
        (("f", lambda x: x, {"rate": 1}), r"got the arguments \['x'\]"),
        (("f", lambda rate: rate, {"rate": 1}), "expected a function of columns"),
        (("f", lambda *x: x[0]), "expected a function of columns"),
        (("f", lambda x, r: x, {"r": "1"}), "parameters"),
        (("f", lambda x, r: x, ["r"]), "parameters must map names to starting values"),
    ],
)
def test_invalid_definitions_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        term(*arguments)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: 3.0, "got float"),
        (lambda x: x.sum(), r"got shape \(\)"),
        (lambda x: x - x.mean(), "depends on other rows"),
        (lambda x: torch.log(x - 50), "expected finite values, but the function of the term returns nan"),
        (lambda x: x.no_such_method(), "the term 'f' failed"),
    ],
)
def test_functions_that_are_not_row_by_row_are_refused(
    data: ChoiceData, function: Callable[..., Any], message: str
) -> None:
    term("f", function)
    with pytest.raises(InputError, match=message):
        MNL(formula="f(time)").fit(data)


def test_formulas_with_wrong_columns_are_refused(data: ChoiceData) -> None:
    with pytest.raises(UndefinedTermError, match=r"must be defined first, with pcmcnet.term\('fare', function\)"):
        MNL(formula="fare(cost, time)")
    term("fare", lambda cost, time: cost / time)
    for formula in ("fare(cost)", "fare(cost, cost)", "fare(cost, time, income)"):
        with pytest.raises(ConfigError, match="fare takes 2 different columns"):
            MNL(formula=formula)
    with pytest.raises(ConfigError, match="expected a column in fare"):
        MNL(formula="fare(cost, 3)")
    with pytest.raises(SchemaError, match="expected a numeric column, but 'kind' is categorical"):
        MNL(formula="fare(cost, kind)").fit(data)
    with pytest.raises(ConfigError, match="supported in utilities only"):
        LatentClassMNL(membership="fare(income, income2)")


def test_missing_values_are_refused() -> None:
    term("fare", lambda cost, time: cost / time)
    columns = table() | {"time": np.where(np.arange(900) == 5, np.nan, table()["time"])}
    with pytest.raises(SchemaError, match="column 'time' has 1 missing values"):
        MNL(formula="fare(cost, time)").fit(read(columns, features=["time", "cost"], missing="indicator"))


# -- scaling inside transformations, and exponents of terms ------------------------------------------------------------


def test_columns_are_divided_inside_transformations(data: ChoiceData) -> None:
    time = data.features["time"].plain().astype(float)
    for formula, expected in {
        "square(time/60) | 0": (time / 60) ** 2,
        "square(time)/60 | 0": time**2 / 60,
        "log(time/60) | 0": np.log(time / 60),
        "sqrt(time/60)/2 | 0": np.sqrt(time / 60) / 2,
        "boxcox(time/60, 0.5) | 0": (np.sqrt(time / 60) - 1) / 0.5,
        "standardise(time/60) | 0": (time - time.mean()) / time.std(),
    }.items():
        design = Design.learn(formula, data)
        np.testing.assert_allclose(design.matrix(data)[:, 0], expected, rtol=1e-6)
        assert design.columns == (formula.removesuffix(" | 0"),)
        assert Design.from_dict(design.to_dict()).columns == design.columns
    knots = Design.learn("piecewise(time/60, 0.5, 1) | 0", data).matrix(data)
    np.testing.assert_allclose(knots.sum(1), time / 60, rtol=1e-6)


def test_willingness_to_pay_is_in_units_of_the_table(data: ChoiceData) -> None:
    values = [MNL(formula=f"piecewise({x}, {knot}) + cost").fit(data) for x, knot in (("time", 60), ("time/60", 1))]
    names = ("piecewise(time, 60)[to 60]", "piecewise(time/60, 1)[to 1]")
    a, b = (model.willingness_to_pay(name, "cost").value for model, name in zip(values, names, strict=True))
    assert a == pytest.approx(b, rel=1e-6)


def test_values_outside_the_domain_are_shown_in_units_of_the_table(data: ChoiceData) -> None:
    columns = table() | {"cost": table()["cost"] - 5}
    with pytest.raises(SchemaError, match=r"log\(cost\): expected values > 0 in column 'cost', got -"):
        MNL(formula="log(cost/100)").fit(read(columns, features=["cost"]))
    with pytest.raises(ConfigError, match="divided by 0"):
        MNL(formula="log(cost/0)")


def test_each_term_has_its_own_exponent(data: ChoiceData) -> None:
    """The exponents of two disjoint groups of alternatives: columns and terms differ by one parameter."""
    formula = "boxcox(time/60)[car] + boxcox(time/60)[bus,train] + cost"
    by_column, by_term = (MNL(formula=formula, exponents=by).fit(data) for by in ("column", "term"))
    assert by_column.coefficients.keys() >= {"lambda[time]"}
    own = {"lambda[boxcox(time/60)[car]]", "lambda[boxcox(time/60)[bus,train]]"}
    assert by_term.coefficients.keys() >= own
    assert by_term.num_parameters == by_column.num_parameters + 1
    assert by_term.estimates_.log_likelihood > by_column.estimates_.log_likelihood
    assert by_term.estimates_.convergence.gradient < 1e-4
    tied = MNL(formula=formula, exponents="term", equal=[tuple(own)]).fit(data)
    assert tied.estimates_.log_likelihood == pytest.approx(by_column.estimates_.log_likelihood, abs=1e-6)


def test_two_exponents_in_one_term_have_different_names(data: ChoiceData) -> None:
    design = Design.learn("boxcox(time):boxcox(cost) | 0", data, by_term=True)
    assert design.names[1:] == ("lambda[boxcox(time):boxcox(cost), time]", "lambda[boxcox(time):boxcox(cost), cost]")
    assert Design.from_dict(design.to_dict()) == design


def test_exponents_must_be_of_columns_or_terms() -> None:
    with pytest.raises(ConfigError, match="unknown exponents 'label'"):
        MNL(exponents="label")
