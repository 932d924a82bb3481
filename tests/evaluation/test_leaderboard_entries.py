from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.datasets import packaged
from pcmcnet.errors import ConfigError, InputError
from pcmcnet.evaluation import leaderboard_entries
from pcmcnet.evaluation.leaderboard_entries import (
    MAX_SETS,
    build_contestants,
    formula_with_individual,
    public_tables,
    require_contestants,
    require_tables,
    sample_table,
)
from pcmcnet.models import MNL, MODELS, LatentClassMNL, Uniform


def read(**roles: Any) -> ChoiceData:
    """Return 120 trips by three modes. Age is twice the income, so it adds nothing."""
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
    defaults: dict[str, Any] = {"individual": ["income", "age", "purpose"], "features": ["cost", "minutes"]}
    return ChoiceData.from_long(table, choice_set="trip", chosen="took", **{**defaults, **roles})


def test_the_default_is_every_model_without_required_options() -> None:
    expected = {*MODELS, "mnl+individual", "lc-mnl+individual"} - {"cross-nested-mnl", "nested-mnl", "rank-by"}
    result = require_contestants(None)
    assert set(result) == expected
    for name in expected & set(MODELS):
        assert result[name].config == MODELS[name]().config  # type: ignore[union-attr]


def test_individual_columns_have_a_coefficient_per_label() -> None:
    data = read(alternative="mode")
    formula = formula_with_individual(data)
    assert formula == ". | standardise(income) + purpose"  # age is collinear with income
    assert len(MNL(formula=formula).fit(data).coefficients) == 2 + 2 + 2 + 2  # features, constants, income, purpose


def test_individual_columns_of_unconnected_alternatives_are_identified() -> None:
    """Trips offer car and bus, or bike and walk. Age is collinear with income, but income is identified."""
    rng = np.random.default_rng(0)
    income = np.repeat(rng.integers(1, 5, 120), 2)
    table = {
        "trip": np.repeat(np.arange(120), 2),
        "mode": np.tile(["car", "bus", "bike", "walk"], 60),
        "took": (rng.random((120, 2)).argsort(1) == 0).ravel(),
        "income": income,
        "age": 2 * income,
    }
    roles: dict[str, Any] = {"choice_set": "trip", "chosen": "took", "alternative": "mode"}
    data = ChoiceData.from_long(table, individual=["income", "age"], **roles)
    formula = formula_with_individual(data)
    assert formula == ". | standardise(income)"
    assert MNL(formula=formula).fit(data).num_parameters == 2 + 2  # constants, income


def test_individual_numbers_multiply_features_without_labels() -> None:
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
        ({"individual": []}, 40, "the table has no individual-level columns"),
        ({"individual": ["purpose"]}, 40, "expected labels, or features and numeric individual-level columns"),
        ({}, 3, "at most 3 products of features and individual-level columns, got 4"),
    ],
)
def test_tables_without_a_formula_for_individuals_give_a_reason(
    roles: dict[str, Any], most: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaderboard_entries, "MAX_PRODUCTS", most)
    data = read(**roles)
    with pytest.raises(InputError, match=message):
        formula_with_individual(data)
    models, absent = build_contestants(require_contestants(["uniform", "mnl+individual"]), data)
    assert list(models) == ["uniform"]
    assert message in absent["mnl+individual"]


def test_collinear_individual_columns_are_refused() -> None:
    """If everyone has the same income, its products are multiples of the features."""
    data = read(individual=["income"])
    equal_incomes = data.subset(data.individual["income"].values == 2)
    with pytest.raises(InputError, match="collinear with the features within every choice set"):
        formula_with_individual(equal_incomes)


def test_models_are_names_or_a_mapping() -> None:
    named = require_contestants(["mnl", "lc-mnl+individual"])
    assert isinstance(named["mnl"], MNL)
    assert isinstance(build_contestants(named, read()).models["lc-mnl+individual"], LatentClassMNL)
    mine = {"flat": Uniform(), "built": lambda data: MNL(formula=next(iter(data.features)))}
    assert build_contestants(require_contestants(mine), read()).models["built"].config.formula == "cost"


@pytest.mark.parametrize(
    ("models", "error", "message"),
    [
        (["mnll"], ConfigError, r"unknown model 'mnll'. Did you mean 'mnl'\?"),
        (["mnl", "mnl"], ConfigError, "'mnl' is listed twice"),
        ("mnl", InputError, r"models: expected names such as \['mnl'\]"),
        ([], InputError, "models: expected names"),
        ({"a": MNL}, InputError, r"models, 'a': expected a model such as MNL\(\)"),
    ],
)
def test_invalid_models_are_refused(models: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        require_contestants(models)


def test_a_model_with_required_options_is_absent_with_a_reason() -> None:
    result = build_contestants(require_contestants(["uniform", "rank-by"]), read())
    assert list(result.models) == ["uniform"]
    assert result.absent["rank-by"].startswith("column must be the feature to rank by")


# -- Leaderboard tables ------------------------------------------------------------------------------------------------


def test_public_tables_are_packaged_or_simulated() -> None:
    result = public_tables()
    uses = {name: table.use for name, table in packaged.TABLES.items()}
    assert uses.pop("intercity") == "example"  # an example is not a benchmark
    assert {name: result[name].use for name in uses} == uses
    assert set(result) - set(uses) == {"swissmetro-random", "mlba", "airline", "rock-paper-scissors"}
    assert not any(table.use == "simulated" for table in result.values() if table.name in packaged.TABLES)


def test_the_random_split_of_swissmetro_is_not_ranked() -> None:
    result = public_tables()
    assert (result["swissmetro-random"].by_set, result["swissmetro-random"].ranked) == (True, False)
    assert all(not t.by_set and t.ranked for name, t in result.items() if name != "swissmetro-random")


@pytest.mark.parametrize("name", ["mlba", "airline", "rock-paper-scissors"])
def test_the_floor_of_a_simulated_table_is_below_the_uniform_loss(name: str) -> None:
    """The floor is the loss of the true probabilities."""
    data, whole, floor, _ = public_tables()[name].read(600)
    assert len(data) == whole == 600
    uniform = float(np.log(data.sizes).mean())
    assert floor is not None
    assert 0 < floor < uniform
    second = public_tables()[name].read(600)
    assert second.floor == floor
    assert second.data.fingerprint() == data.fingerprint()


def test_a_simulated_table_has_at_most_a_few_thousand_sets() -> None:
    assert all(public_tables()[name].read(MAX_SETS).whole <= 4_000 for name in ("mlba", "rock-paper-scissors"))


def test_a_sample_has_whole_persons_and_is_reproducible(trips_table: Any, read_trips: Any) -> None:
    table = trips_table(sets=40)
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["x"], person="person")
    part, whole, floor, _ = sample_table(data, 11)
    assert (whole, floor) == (40, None)
    assert len(part) == 12  # three persons with four trips: the smallest number of persons with 11 trips
    assert sample_table(data, 11).data.fingerprint() == part.fingerprint()
    assert sample_table(data, 40).data is data


def test_tables_of_large_sets_have_smaller_samples() -> None:
    """100 sets of 16 alternatives have as many rows as 200 sets of 8, so half of them are taken."""
    n = 100
    table = {"trip": np.repeat(np.arange(n), 16), "took": np.tile([1] + [0] * 15, n), "x": np.arange(16.0 * n)}
    data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["x"])
    assert len(sample_table(data, 100).data) == 50


def test_tables_are_selected_by_name_by_use_or_as_data(trips: ChoiceData) -> None:
    assert [table.name for table in require_tables(["mlba", "mode-canada"], None)] == ["mlba", "mode-canada"]
    assert {table.name for table in require_tables(None, "simulated")} == {"mlba", "airline", "rock-paper-scissors"}
    judged = require_tables(None, "judged")
    assert judged
    assert {table.use for table in judged} == {"judged"}
    (given,) = require_tables({"mine": trips}, None)
    assert (given.name, given.use, given.read(40).data) == ("mine", "given", trips)


@pytest.mark.parametrize(
    ("tables", "use", "error", "message"),
    [
        (["mlbaa"], None, ConfigError, r"unknown table 'mlbaa'. Did you mean 'mlba'\?"),
        ("mlba", None, InputError, "tables: expected names, or a mapping from names to choice data, got 'mlba'"),
        (None, "jugded", ConfigError, "use must be one of 'development', 'judged', 'simulated', 'given', got 'jugded'"),
        (["mlba"], "judged", InputError, "expected at least one table with use 'judged'"),
        ({"a": 3}, None, InputError, "tables, 'a': expected ChoiceData, got int"),
        ({"../a": 3}, None, InputError, "tables: expected names that are valid folder names"),
    ],
)
def test_invalid_tables_are_refused(tables: Any, use: str | None, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        require_tables(tables, use)
