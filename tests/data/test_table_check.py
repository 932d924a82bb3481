"""Checks of tables before a fit: guessed roles, problems and hints."""

import re
from typing import Any

import pyarrow as pa
import pytest

from choice_tables import trips
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.wide_columns import recognise_wide
from pcmcnet.data.table_check import check_table
from pcmcnet.datasets import intercity
from pcmcnet.errors import SchemaError

WIDE: dict[str, Any] = {
    "resp": [1, 2, 3],
    "income": [20, 30, 20],
    "choice": ["car", "bus", "car"],
    "cost_car": [3.0, 4.0, 5.0],
    "cost_bus": [2.0, 2.0, 2.5],
    "time_car": [10, 20, 30],
    "time_bus": [20, 30, 40],
}


def table(**changed: Any) -> dict[str, Any]:
    """Return a small table without problems, with some columns replaced."""
    columns = {
        "trip": [1, 1, 2, 2, 3, 3],
        "mode": ["car", "bus", "car", "bus", "car", "bus"],
        "took": [1, 0, 0, 1, 1, 0],
        "price": [1.0, 2.0, 3.5, 1.0, 1.5, 2.5],
        "income": [10.0, 10.0, 20.0, 20.0, 15.5, 15.5],
    }
    return {**columns, **changed}


def test_the_roles_of_a_packaged_table_are_guessed() -> None:
    check = check_table(intercity.PATH)
    schema = check.schema
    assert schema is not None
    for role in ("choice_set", "chosen", "alternative", "person", "available"):
        assert getattr(schema, role) == intercity.ROLES[role]
    assert set(schema.individual) == set(intercity.ROLES["individual"])
    assert set(schema.features) == set(intercity.ROLES["features"])
    assert check.findings == ()
    assert check.data is not None
    assert len(check.data) == 1_000


def test_columns_that_hardly_repeat_are_no_inputs() -> None:
    check = check_table(table(note=[f"row {k}" for k in range(6)], user_id=[7, 7, 8, 8, 9, 9]))
    assert check.schema is not None
    assert (check.schema.choice_set, check.schema.chosen, check.schema.alternative) == ("trip", "took", "mode")
    assert (check.schema.features, check.schema.individual) == (("price",), ("income",))


def test_given_roles_are_kept() -> None:
    check = check_table(table(), choice_set="trip", features=["price"], individual=[])
    assert check.schema is not None
    assert (check.schema.chosen, check.schema.features, check.schema.individual) == ("took", ("price",), ())
    with pytest.raises(SchemaError, match=r"no column 'prise'\. Did you mean 'price'"):
        check_table(table(), features=["prise"])


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (table(took=[1, 0, 0, 0, 1, 0]), r"1 choice set with no chosen alternative \(ids 2\)"),
        (table(took=[1, 0, 1, 1, 1, 0]), r"1 choice set with several chosen alternatives \(ids 2\)"),
        (
            table(booked=[1, 0, 0, 1, 1, 0]),
            "column '(booked|took)' is a copy of '(took|booked)', so it reveals the choice",
        ),
        ({"price": [1.0, 2.0], "time": [3.0, 4.0]}, "no column with ids of choice sets was found"),
        (table(took=["car"] * 6), "no column of 0 and 1 with one 1 in most choice sets was found"),
        (
            {**WIDE, "choice": [None] * 3},
            r"looks wide, .*'cost_car', 'cost_bus'.*no column names the chosen alternative",
        ),
    ],
)
def test_a_problem_is_found(columns: dict[str, Any], problem: str) -> None:
    check = check_table(columns)
    assert len(check.problems) == 1

    assert re.search(problem, check.problems[0])


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"trip": [1] * 6}, "column 'trip': all rows have the same id"),
        ({"trip": [1, 2, 3, 4, 5, 6]}, "column 'trip': each row has its own id"),
    ],
)
def test_wrong_ids_are_problems(changed: dict[str, Any], problem: str) -> None:
    (found,) = check_table(table(**changed), choice_set="trip", chosen="took").problems
    assert found.startswith(problem)


@pytest.mark.parametrize(
    ("changed", "hint"),
    [
        (
            {"mode": ["car", " bus", "car", "bus", "car", "bus"]},
            "column 'mode': ' bus' and 'bus' differ only in blanks",
        ),
        ({"mode": ["Car", "bus", "car", "bus", "car", "bus"]}, "column 'mode': 'Car' and 'car' differ only"),
        ({"price": ["1", "2", "3", "1", "2", "4"]}, "column 'price' holds numbers as text"),
        ({"price": [1.0, None, 2.0, 3.0, 2.0, 1.0]}, "column 'price': 1 missing value"),
        ({"price": [1.0] * 6}, "column 'price' has the same value in all rows"),
        ({"trip": [1, 1, 2, 2, 3, 4], "took": [1, 0, 0, 1, 1, 1]}, "2 choice sets of one alternative"),
    ],
)
def test_a_hint_is_given(changed: dict[str, Any], hint: str) -> None:
    check = check_table(table(**changed), choice_set="trip", chosen="took")
    assert any(found.startswith(hint) for found in check.hints), check.findings


def test_repeated_rows_are_counted() -> None:
    columns = {name: [*values, values[1]] for name, values in table().items()}
    assert "1 row repeats another row in all columns: remove duplicates" in check_table(columns).hints


@pytest.mark.parametrize("values", [[1.5, 2.5, 1.5, None, None], ["a", "b", "a", None, None]])
def test_rows_repeat_if_missing_values_do(values: list[Any]) -> None:
    """Rows 2 and 4 repeat rows 0 and 3: their values of "more" are equal, too."""
    check = check_table({"value": values, "more": [1, 1, 1, 2, 2]})
    assert "2 rows repeat other rows in all columns: remove duplicates" in check.hints


def test_repeated_rows_of_nested_columns_are_not_counted() -> None:
    check = check_table({"value": [1, 1], "vector": [[1.0, 2.0], [1.0, 2.0]]})
    assert not any("repeat" in hint for hint in check.hints)


def test_a_wide_table_gets_the_schema_of_a_wide_table() -> None:
    check = check_table(WIDE)
    assert (check.problems, len(check.hints)) == ((), 1)
    assert check.schema is not None
    assert check.schema.wide["chosen"] == "choice"
    assert check.schema.individual == ("income",)
    data = ChoiceData.from_schema(WIDE, check.schema)
    assert (len(data), [*data.features], data.chosen.tolist()) == (3, ["cost", "time"], [0, 1, 0])  # type: ignore[union-attr]


def test_wide_columns_are_recognised_in_several_spellings() -> None:
    for names in (["cost.a", "cost.b", "time.a", "time.b"], ["a_cost", "b_cost", "a_time", "b_time"]):
        found = recognise_wide(names, ["a", "b"])
        assert found is not None
        assert (found.alternatives, set(found.features)) == (("a", "b"), {"cost", "time"})
    numbered = recognise_wide(["cost1", "cost2", "time1", "time2"])
    assert numbered is not None
    assert numbered.features == {"cost": "cost{alternative}", "time": "time{alternative}"}
    assert recognise_wide(["cost_car", "cost_bus"]) is None  # one feature is not enough without the choices
    assert recognise_wide(["cost_car", "cost_bus"], ["car", "bus"]) is not None
    assert recognise_wide([*trips(4)]) is None
    assert recognise_wide(["travel_time", "travel_cost", "wait_time"]) is None


def test_nested_columns_are_skipped() -> None:
    columns = {**table(), "photo": pa.array([[1, 2]] * 6), "extra": pa.array([{"a": 1}] * 6)}
    assert check_table(pa.table(columns)).schema is not None
