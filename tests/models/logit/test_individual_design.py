"""Columns of individuals: coded as in training; collinear ones are omitted under '.' and refused by name."""

import json
import logging
from typing import Any, Literal

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ArtifactError, ConfigError, InputError, SchemaError
from pcmcnet.models.logit.individual_design import IndividualDesign, parse_membership

INCOME = np.array([10.0, 20, 30, 40, 50, 60])
WHERE = np.array(["north", "south", "south", "east", "south", "north"])


def people(missing: Literal["error", "indicator"] = "error", **columns: Any) -> ChoiceData:
    """Return six sets of two alternatives with columns of individuals."""
    table: dict[str, Any] = {"s": np.repeat(np.arange(6), 2), "y": [1, 0] * 6, "x": np.arange(12.0)}
    table |= {name: np.repeat(values, 2) for name, values in columns.items()}
    return ChoiceData.from_long(
        table, choice_set="s", chosen="y", features=["x"], individual=list(columns), missing=missing
    )


def learn(formula: str, data: ChoiceData, least: int = 0) -> IndividualDesign:
    return IndividualDesign.learn(formula, data, least=least)


# -- columns -------------------------------------------------------------------------------------------------------


def test_columns_are_a_constant_standardised_numbers_and_levels() -> None:
    data = people(income=INCOME, where=WHERE)
    design = learn(".", data)
    assert design.names == ("constant", "standardise(income)", "where[east]", "where[north]")
    numbers = design.matrix(data)
    np.testing.assert_array_equal(numbers[:, 0], 1)
    np.testing.assert_allclose(numbers[:, 1], (INCOME - 35) / INCOME.std(), rtol=1e-6)  # columns are float32
    np.testing.assert_array_equal(numbers[:, 2:], np.column_stack([WHERE == "east", WHERE == "north"]))


def test_named_columns_come_first_and_are_not_standardised() -> None:
    design = learn(". + income", people(age=INCOME**2, income=INCOME))
    assert design.names == ("constant", "income", "standardise(age)")
    np.testing.assert_array_equal(design.matrix(people(age=INCOME**2, income=INCOME))[:, 1], INCOME)


def test_transformations_and_products_are_supported() -> None:
    data = people(income=INCOME, where=WHERE)
    design = learn("log(income) + log(income):where", data)
    assert design.names == ("constant", "log(income)", "log(income):where[east]", "log(income):where[north]")
    np.testing.assert_allclose(design.matrix(data)[:, 3], np.log(INCOME) * (WHERE == "north"), rtol=1e-6)


def test_a_product_without_main_terms_has_all_levels() -> None:
    by_place = ("income:where[south]", "income:where[east]", "income:where[north]")
    assert learn("income:where", people(income=INCOME, where=WHERE)).names == ("constant", *by_place)


def test_products_of_categories_omit_one_cell() -> None:
    sex = np.array(["f", "m", "f", "m", "m", "m"])
    home = np.array(["own", "rent", "rent", "own", "own", "rent"])
    design = learn("sex:home", people(sex=sex, home=home))
    assert len(design.names) == 4  # four cells: three columns and the constant


@pytest.mark.parametrize("formula", ["1", "."])
def test_no_columns_leave_a_constant(formula: str) -> None:
    data = people()
    design = learn(formula, data)
    assert design.names == ("constant",)
    np.testing.assert_array_equal(design.matrix(data), np.ones((6, 1)))
    assert learn("1", people(income=INCOME)).names == ("constant",)


def test_rare_levels_are_pooled_and_unseen_ones_join_them() -> None:
    where = np.array(["a", "a", "a", "b", "b", "c"])
    design = learn(".", people(where=where), least=2)
    assert design.names == ("constant", "where[b]")  # c alone is too rare for a level
    result = design.matrix(people(where=np.array(["b", "c", "never", "a", "b", "b"])))
    np.testing.assert_array_equal(result[:, 1], [1, 0, 0, 0, 1, 1])


def test_missing_values_get_the_mean_and_an_indicator() -> None:
    income = INCOME.copy()
    income[1] = np.nan
    data = people(missing="indicator", income=income)
    design = learn(".", data)
    assert design.names == ("constant", "standardise(income)", "standardise(income)[missing]")
    np.testing.assert_allclose(design.matrix(data)[1], [1, 0, 1], atol=1e-7)  # columns are float32
    with pytest.raises(SchemaError, match="column 'income' has 1 missing values, but had none in the training data"):
        learn(".", people(income=INCOME)).matrix(data)


# -- collinear columns ---------------------------------------------------------------------------------------------


def test_collinear_columns_are_omitted_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="pcmcnet"):
        design = learn(".", people(income=INCOME, still=np.full(6, 7.0), cents=100 * INCOME + 3, age=INCOME**2))
    assert design.names == ("constant", "standardise(income)", "standardise(age)")
    assert design.left_out == ("standardise(still)", "standardise(cents)")
    assert "not identified: standardise(still), standardise(cents)" in caplog.text
    other = people(income=INCOME, still=np.arange(6.0), cents=np.arange(6.0), age=INCOME)
    assert design.matrix(other).shape == (6, 3)


def test_collinear_levels_are_omitted() -> None:
    design = learn(".", people(where=WHERE, code=np.char.add("c-", WHERE)))
    assert design.names == ("constant", "where[east]", "where[north]")
    assert design.left_out == ("code[c-east]", "code[c-north]")


def test_columns_are_omitted_if_there_are_fewer_individuals() -> None:
    rng = np.random.default_rng(0)
    design = learn(".", people("error", **{f"c{k}": rng.normal(size=6) for k in range(9)}))
    assert len(design.names) == 6
    assert len(design.left_out) == 4


def test_a_large_mean_is_not_collinear_with_the_constant() -> None:
    assert learn("year", people(year=np.array([2019.0, 2020, 2021, 2019, 2020, 2021]))).names == ("constant", "year")


def test_named_collinear_columns_are_refused() -> None:
    data = people(income=INCOME, still=np.full(6, 7.0), cents=100 * INCOME, age=INCOME**2)
    with pytest.raises(
        InputError, match="membership: 'still' is the same for everyone, so its coefficient is not identified"
    ):
        learn("still", data)
    problem = "'cents' is a linear combination of 'income' for everyone.* 1 such columns: 'cents'"
    with pytest.raises(InputError, match=problem):
        learn("income + cents + age", data)
    design = learn("cents + .", data)
    assert design.names == ("constant", "cents", "standardise(age)")
    assert design.left_out == ("standardise(income)", "standardise(still)")


# -- invalid input -------------------------------------------------------------------------------------------------


def test_membership_formulas_are_parsed() -> None:
    terms, dot = parse_membership("income + log(age):`home town` + .")
    assert [str(term) for term in terms] == ["income", "log(age):`home town`"]
    assert dot
    assert parse_membership("1") == ((), False)


@pytest.mark.parametrize(
    ("formula", "problem"),
    [
        ("", "membership must be a formula such as 'income \\+ age', .*, got ''"),
        (None, "got None"),
        ("income | age", "got 'income | age'"),
        ("income + 0", "membership always has a constant"),
        ("income +", "membership must be .*: formula"),
        ("cube(income)", "unknown transformation 'cube'"),
    ],
)
def test_invalid_membership_formulas_are_refused(formula: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_membership(formula)


def test_missing_columns_and_columns_of_another_kind_are_refused() -> None:
    data = people(income=INCOME, where=WHERE)
    with pytest.raises(
        SchemaError, match=r"membership: 'incom' is not an individual-level column. Did you mean 'income'"
    ):
        learn("incom", data)
    with pytest.raises(SchemaError, match="membership: 'x' is not an individual-level column"):
        learn("x", data)
    with pytest.raises(SchemaError, match=r"log\(where\): expected a numeric column, but 'where' is categorical"):
        learn("log(where)", data)
    design = learn(".", data)
    with pytest.raises(
        SchemaError, match="the model needs the individual-level column 'where', which is not in the table"
    ):
        design.matrix(people(income=INCOME))
    with pytest.raises(SchemaError, match="column 'where' is numeric here, but not in the training data"):
        design.matrix(people(income=INCOME, where=INCOME))
    with pytest.raises(SchemaError, match="membership: two coefficients would be called 'constant'"):
        learn("constant", people(constant=INCOME))


# -- saved form ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("formula", [".", "1", "log(income) + log(income):where"])
def test_a_design_survives_json(formula: str) -> None:
    data = people(income=INCOME, where=WHERE, still=np.ones(6))
    design = learn(formula, data)
    back = IndividualDesign.from_dict(json.loads(json.dumps(design.to_dict())))
    assert back == design
    np.testing.assert_array_equal(back.matrix(data), design.matrix(data))


def test_an_altered_design_is_refused() -> None:
    entries = learn(".", people(income=INCOME)).to_dict()
    changes: list[dict[str, Any]] = [{"codes": []}, {"codes": {}}, {"terms": "income +"}, {"names": None}, {"terms": 3}]
    for change in changes:
        with pytest.raises(ArtifactError, match="the saved individual-level columns are incomplete or damaged"):
            IndividualDesign.from_dict({**entries, **change})
