from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.evaluation import contestants
from pcmcnet.evaluation.contestants import (
    default_contestants,
    entrants,
    formula_with_individual,
    require_contestants,
)
from pcmcnet.models import MNL, MODELS, LatentClassMNL, Uniform


def read(**roles: Any) -> ChoiceData:
    """120 trips by three modes; age is twice the income, and the class goes with both."""
    rng = np.random.default_rng(0)
    n = 120
    income = rng.integers(1, 5, n)
    table = {
        "trip": np.repeat(np.arange(n), 3),
        "mode": np.tile(["car", "bus", "bike"], n),
        "cost": rng.uniform(1, 9, 3 * n),
        "minutes": rng.uniform(1, 9, 3 * n),
        "took": (rng.random((n, 3)).argsort(1) == 0).ravel(),
        "income": np.repeat(income, 3),
        "age": np.repeat(2 * income, 3),
        "purpose": np.repeat(rng.choice(["work", "leisure"], n), 3),
    }
    given: dict[str, Any] = {"individual": ["income", "age", "purpose"], "features": ["cost", "minutes"]}
    return ChoiceData.from_long(table, choice_set="trip", chosen="took", **{**given, **roles})


def test_by_default_every_model_takes_part_that_needs_no_choice() -> None:
    expected = {*MODELS, "mnl+individual", "lc-mnl+individual"} - {"cross-nested-mnl", "nested-mnl", "rank-by"}
    found = default_contestants()
    assert set(found) == expected
    for name in expected & set(MODELS):
        assert found[name].config == MODELS[name]().config  # type: ignore[union-attr]


def test_with_labels_the_individual_has_a_coefficient_per_alternative() -> None:
    data = read(alternative="mode")
    formula = formula_with_individual(data)
    assert formula == ". | standardise(income) + purpose"  # the age adds nothing
    assert len(MNL(formula=formula).fit(data).coefficients) == 2 + 2 + 2 + 2  # features, constants, income, purpose


def test_without_labels_features_are_multiplied_by_numbers_of_the_individual() -> None:
    data = read()
    formula = formula_with_individual(data)
    assert formula == ". + cost:standardise(income) + minutes:standardise(income)"
    assert set(MNL(formula=formula).fit(data).coefficients) == {
        "cost",
        "minutes",
        "cost:standardise(income)",
        "minutes:standardise(income)",
    }


@pytest.mark.parametrize(
    ("roles", "most", "message"),
    [
        ({"individual": []}, 40, "the table has no columns of the individual"),
        ({"individual": ["purpose"]}, 40, "no labels, nor features and numeric columns of the individual"),
        ({}, 3, "4 products of features and columns of the individual are more than 3"),
    ],
)
def test_a_table_without_such_a_formula_says_why(
    roles: dict[str, Any], most: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contestants, "MOST_PRODUCTS", most)
    data = read(**roles)
    with pytest.raises(InputError, match=message):
        formula_with_individual(data)
    models, absent = entrants(require_contestants(["uniform", "mnl+individual"]), data)
    assert list(models) == ["uniform"]
    assert message in absent["mnl+individual"]


def test_columns_that_add_nothing_to_the_features_leave_no_formula() -> None:
    """Where everyone has the same income, its products are multiples of the features."""
    data = read(individual=["income"])
    same = data.subset(data.individual["income"].values == 2)
    with pytest.raises(InputError, match="add nothing to the features within any choice set"):
        formula_with_individual(same)


def test_models_are_names_or_labels_with_models() -> None:
    named = require_contestants(["mnl", "lc-mnl+individual"])
    assert isinstance(named["mnl"], MNL)
    assert isinstance(entrants(named, read()).models["lc-mnl+individual"], LatentClassMNL)
    mine = {"flat": Uniform(), "built": lambda data: MNL(formula=next(iter(data.features)))}
    assert entrants(require_contestants(mine), read()).models["built"].config.formula == "cost"


@pytest.mark.parametrize(
    ("models", "error", "message"),
    [
        (["mnll"], ConfigError, r"unknown model 'mnll'. Did you mean 'mnl'\?"),
        (["mnl", "mnl"], ConfigError, "'mnl' is named twice"),
        ("mnl", InputError, r"models: expected names such as \['mnl', 'pcmcnet'\]"),
        ([], InputError, "models: expected names"),
        ({"a": MNL}, InputError, r"models, 'a': expected a model such as MNL\(\)"),
    ],
)
def test_other_models_are_refused(models: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        require_contestants(models)


def test_a_model_whose_defaults_are_nobodys_says_so_on_the_table() -> None:
    found = entrants(require_contestants(["uniform", "rank-by"]), read())
    assert list(found.models) == ["uniform"]
    assert found.absent["rank-by"].startswith("column must name the feature to rank by")
