"""Wide tables: groups of columns become rows, and choices become flags."""

import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.read_wide import to_long
from pcmcnet.errors import SchemaError

TABLE: dict[str, list[Any]] = {
    "choice": [2, 1],
    "car_time": [10, 12],
    "bus_time": [20.5, 9.0],
    "car_ok": [1, 1],
    "bus_ok": [1, 0],
    "who": ["p", "q"],
    "w": [2.0, 1.0],
    "trip": ["t", "u"],
}
ROLES: dict[str, Any] = {
    "chosen": "choice",
    "alternatives": {"car": 1, "bus": 2},
    "features": {"time": "{alternative}_time"},
}


def test_each_row_becomes_one_row_per_alternative() -> None:
    table, schema = to_long(
        TABLE,
        **ROLES | {"features": {"time": "{alternative}_time", "fare": {"car": 0, "bus": 1.5}}},
        available={"car": 1, "bus": "bus_ok"},
        individual=["who"],
        weight="w",
        choice_set="trip",
    )
    assert table.to_pydict() == {
        "choice_set": ["t", "t", "u", "u"],
        "alternative": ["car", "bus", "car", "bus"],
        "who": ["p", "p", "q", "q"],
        "w": [2, 2, 1, 1],
        "time": [10, 20.5, 12, 9],
        "fare": [0, 1.5, 0, 1.5],
        "available": [1, 1, 1, 0],
        "chosen": [0, 1, 1, 0],
    }
    assert (schema.chosen, schema.available, schema.features) == ("chosen", "available", ("time", "fare"))


def test_a_wide_table_makes_choice_sets() -> None:
    data = ChoiceData.from_wide(TABLE, **ROLES, available="{alternative}_ok", weight="w", keep=["who"])
    assert data.set_ids.tolist() == [0, 1]
    assert data.sizes.tolist() == [2, 1]
    assert data.chosen is not None
    assert data.chosen.tolist() == [1, 0]
    assert data.weights.tolist() == [2, 1]
    assert data.features["time"].plain().tolist() == [10, 20.5, 12]
    assert data.keep["who"].plain().tolist() == ["p", "q"]
    assert data.to_rows(np.array([0.25, 0.75, 1.0])).tolist() == [0.25, 0.75, 1.0, 0.0]


def test_persons_of_a_wide_table_become_those_of_its_sets() -> None:
    data = ChoiceData.from_wide(TABLE, **ROLES, person="who")
    assert data.schema.person == "who"
    assert data.keep["who"].plain().tolist() == ["p", "q"]


def test_choices_need_not_be_known() -> None:
    assert ChoiceData.from_wide(TABLE, **ROLES | {"chosen": None}).chosen is None


@given(rows=st.integers(1, 5), seed=st.integers(0, 2**16))
def test_alternative_k_of_row_r_becomes_row_r_times_n_plus_k(rows: int, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(rows, 3)).astype(np.float32)
    table = {f"x_{label}": x[:, k] for k, label in enumerate("abc")}
    data = ChoiceData.from_wide(table, chosen=None, alternatives=list("abc"), features={"x": "x_{alternative}"})
    np.testing.assert_array_equal(data.features["x"].plain().reshape(rows, 3), x)


@pytest.mark.parametrize(
    ("choice", "alternatives"),
    [
        ([2.0, 1.0], {"car": 1, "bus": 2}),
        (["2", "1"], {"car": 1, "bus": 2}),
        ([2, 1], {"car": 1.0, "bus": 2.0}),
        (["bus", "car"], ["car", "bus"]),
        ([True, False], {"car": False, "bus": True}),
        (pa.array(["bus", "car"]).dictionary_encode(), ("car", "bus")),
    ],
    ids=str,
)
def test_a_choice_may_be_written_in_several_ways(choice: Any, alternatives: Any) -> None:
    data = ChoiceData.from_wide({**TABLE, "choice": choice}, **ROLES | {"alternatives": alternatives})
    assert data.chosen is not None
    assert data.chosen.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("car", "bus", "expected"),
    [
        ([1, 2], [0.5, 1.5], [1, 0.5, 2, 1.5]),
        ([True, False], [2, 3], [1, 2, 0, 3]),
        ([2**60, 1], [0.5, 1.5], [2.0**60, 0.5, 1, 1.5]),
        ([decimal.Decimal(1), decimal.Decimal(2)], [3, 4], [1, 3, 2, 4]),
    ],
)
def test_columns_of_mixed_numeric_types_become_numbers(car: Any, bus: Any, expected: list[float]) -> None:
    data = ChoiceData.from_wide({**TABLE, "car_time": car, "bus_time": bus}, **ROLES)
    assert data.features["time"].plain().tolist() == expected


def test_an_empty_column_does_not_change_the_numeric_type() -> None:
    table = {**TABLE, "car_time": [None, None], "choice": [2, 2]}
    data = ChoiceData.from_wide(table, **ROLES, missing="indicator")
    np.testing.assert_array_equal(data.features["time"].plain(), [np.nan, 20.5, np.nan, 9])


def test_text_columns_become_categories() -> None:
    table = {**TABLE, "car_time": ["x", "y"], "bus_time": pd.Series(["y", "y"], dtype="category")}
    data = ChoiceData.from_wide(table, **ROLES)
    assert data.features["time"].plain().tolist() == ["x", "y", "y", "y"]


def test_declared_categories_in_a_csv_keep_leading_zeros(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("choice,car_code,bus_code,zip\n1,01,1,007\n2,2,02,7\n")
    data = ChoiceData.from_wide(
        tmp_path / "t.csv",
        **ROLES | {"features": {"code": "{alternative}_code"}},
        individual=["zip"],
        categorical=["code", "zip"],
    )
    assert data.features["code"].plain().tolist() == ["01", "1", "2", "02"]
    assert data.individual["zip"].plain().tolist() == ["007", "7"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": {"time": "time"}}, "feature 'time': the template 'time' lacks {alternative}"),
        ({"features": {"time": {"car": "car_time"}}}, "feature 'time' has no entry for alternative 'bus'"),
        ({"features": {"t": {"car": 1, "bus": 2, "van": 3}}}, "feature 't' has an entry for 'van', which is not among"),
        ({"features": {"t": {"car": 1, "bus": None}}}, "feature 't' of 'bus': expected a column or a number, got None"),
        ({"features": {"t": 3}}, "feature 't': expected a template or a mapping from labels to columns, got 3"),
        ({"features": ["t"]}, r"features must be a mapping from names to templates .*, got \['t'\]"),
        ({"features": {"t": "{alternative}_tim"}}, "has no column 'car_tim'. Did you mean 'car_time'"),
        ({"alternatives": "car"}, "a list of distinct labels or a mapping from labels to values, got 'car'"),
        ({"alternatives": []}, "alternatives must be a list of distinct labels"),
        ({"alternatives": ["car", "car"]}, "alternatives must be a list of distinct labels"),
        ({"alternatives": [1, "1"]}, "alternatives must be a list of distinct labels"),
        ({"alternatives": [True, False]}, "alternatives must be a list of distinct labels"),
        ({"alternatives": None}, "alternatives must be a list of distinct labels"),
        ({"alternatives": {"car": 1, "bus": 1}}, "alternatives: expected a distinct value for each label, got"),
        ({"alternatives": {"car": 1, "bus": None}}, "alternatives: expected a distinct value for each label, got"),
        ({"alternatives": {"car": 1, "bus": 3}}, "column 'choice', row 0: expected one of 1, 3, got 2; 1 such row"),
        ({"alternatives": {"car": 1, "bus": object()}}, "column 'choice': expected text or numbers that identify"),
        ({"individual": "who"}, r"individual must be a list of column names, got the string 'who'"),
        ({"individual": ["chosen"]}, "the name 'chosen' is reserved for the long form: rename"),
        ({"features": {"available": "{alternative}_ok"}}, "the name 'available' is reserved for the long form"),
        ({"chosen": "choise"}, "has no column 'choise'. Did you mean 'choice'"),
    ],
)
def test_a_group_of_missing_columns_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        ChoiceData.from_wide(TABLE, **ROLES | changes)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"choice": [2, None]}, "column 'choice', row 1: expected one of 1, 2, got nothing; 1 such row. Drop"),
        ({"choice": [[1], [2]]}, "column 'choice': expected text or numbers that identify the alternatives"),
        ({"car_time": [[1], [2]]}, "feature 'time': expected columns of the same type, got"),
        ({"car_time": [1.0, np.nan]}, "alternative 'car': 'car_time' is blank in row 1; 1 such row. If the"),
        ({"car_time": [1.0, np.inf]}, r"column 'time', row 2 \(choice set 1\): expected a finite number"),
    ],
)
def test_a_bad_cell_is_named(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        ChoiceData.from_wide({**TABLE, **columns}, **ROLES)


def test_an_empty_wide_table_is_refused() -> None:
    with pytest.raises(SchemaError, match="the table is empty: expected at least one row"):
        ChoiceData.from_wide({name: [] for name in TABLE}, **ROLES)


def test_a_repeated_choice_set_is_refused() -> None:
    with pytest.raises(SchemaError, match="the label 'car' occurs more than once in this set"):
        ChoiceData.from_wide({**TABLE, "trip": ["t", "t"]}, **ROLES | {"chosen": None}, choice_set="trip")


# -- columns with two roles ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        (
            {"individual": ["choice"]},
            "'choice' is declared as chosen and also as a model input: .* reveals the choice",
        ),
        ({"features": {"x": {"car": "choice", "bus": 0}}}, "'choice' is declared as chosen and also as a model input"),
        (
            {"available": {"car": 1, "bus": "choice"}},
            "'choice' is declared as chosen and also as available: remove it",
        ),
        ({"weight": "choice"}, "'choice' is declared as chosen and also as weight: each needs its own"),
        ({"choice_set": "choice"}, "'choice' is declared as chosen and also as choice_set"),
        ({"choice_set": "w", "weight": "w"}, "'w' is declared as choice_set and also as weight"),
        ({"choice_set": "trip", "person": "trip"}, "'trip' is declared as choice_set and also as person"),
        ({"features": {"x": {"car": "w", "bus": 0}}, "person": "w"}, "'w' is declared as person and also as a model"),
        ({"individual": ["w"], "weight": "w"}, "'w' is declared as weight and also as a model input"),
        ({"features": {"x": {"car": "w", "bus": 0}}, "weight": "w"}, "'w' is declared as weight and also as a model"),
        (
            {"features": {"x": {"car": "car_ok", "bus": 0}}, "available": "{alternative}_ok"},
            "'car_ok' is declared as available and also as a model input",
        ),
    ],
)
def test_a_column_that_reveals_the_choice_is_refused(roles: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        ChoiceData.from_wide(TABLE, **ROLES | roles)


def test_the_availability_of_one_alternative_may_describe_the_individual() -> None:
    data = ChoiceData.from_wide(TABLE, **ROLES, available="{alternative}_ok", individual=["bus_ok"])
    assert data.individual["bus_ok"].values.tolist() == [1, 0]


# -- columns of other kinds ------------------------------------------------------------------------------------------


def test_kinds_give_the_same_data_as_the_long_form() -> None:
    table = {
        "choice": ["a", "b"],
        "a_v": [[1.0, 2.0], [3.0, 4.0]],
        "b_v": np.array([[5, 6], [1, 2]]),
        "a_has": [["wifi"], []],
        "b_has": [None, ["pool", "wifi"]],
        "a_hour": [3, 4],
        "b_hour": [5.5, 6.5],
        "at": ["2024-05-17", "2024-05-18"],
    }
    data = ChoiceData.from_wide(
        table,
        chosen="choice",
        alternatives=["a", "b"],
        features={name: f"{{alternative}}_{name}" for name in ("v", "has", "hour")},
        individual=["at"],
        kinds={"v": "vector", "has": "multi", "at": "datetime", "hour": "piecewise"},
        missing="indicator",
    )
    assert data.features["v"].plain()[1].tolist() == [5, 6]
    assert data.features["v"].codes.tolist() == [0, 1, 2, 0]  # type: ignore[union-attr]
    assert data.features["has"].plain().tolist() == [("wifi",), None, (), ("pool", "wifi")]
    assert data.features["hour"].plain().tolist() == [3, 5.5, 4, 6.5]
    assert data.individual["at"].kind == "datetime"
    assert data.schema.kinds == {"v": "vector", "has": "multi", "at": "datetime", "hour": "piecewise"}


@pytest.mark.parametrize("other", [np.zeros((2, 3)), [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]])
def test_a_vector_of_another_size_is_named_with_its_row(other: Any) -> None:
    table = {"a_v": np.zeros((2, 2)), "b_v": other, "c_v": np.ones((2, 2))}
    with pytest.raises(
        SchemaError, match=r"column 'v', row 1 .*expected a vector of 2 numbers .* got 3 numbers; 2 such"
    ):
        ChoiceData.from_wide(
            table,
            chosen=None,
            alternatives=["a", "b", "c"],
            features={"v": "{alternative}_v"},
            kinds={"v": "vector"},
        )


def test_lists_and_numbers_cannot_be_mixed() -> None:
    with pytest.raises(SchemaError, match="feature 'v': expected columns of the same type"):
        ChoiceData.from_wide(
            {"a_v": [[1.0]]},
            chosen=None,
            alternatives=["a", "b"],
            features={"v": {"a": "a_v", "b": 0}},
            kinds={"v": "vector"},
        )


def test_kinds_in_a_csv_are_read_as_written(tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text('choice,a_v,b_v\na,"[1, 2]","[3, 4]"\nb,"[5, 6]","[1, 2]"\n')
    data = ChoiceData.from_wide(
        tmp_path / "wide.csv",
        chosen="choice",
        alternatives=["a", "b"],
        features={"v": "{alternative}_v"},
        kinds={"v": "vector"},
    )
    assert [row.tolist() for row in data.features["v"].plain()] == [[1, 2], [3, 4], [5, 6], [1, 2]]


def test_picture_paths_are_relative_to_a_wide_file(tmp_path: Path) -> None:
    from PIL import Image

    Image.new("L", (2, 2), 7).save(tmp_path / "a.png")
    (tmp_path / "wide.csv").write_text("choice,a_photo,b_photo\na,a.png,a.png\n")
    data = ChoiceData.from_wide(
        tmp_path / "wide.csv",
        chosen="choice",
        alternatives=["a", "b"],
        features={"photo": "{alternative}_photo"},
        kinds={"photo": "image"},
    )
    assert data.features["photo"].plain()[1] == (tmp_path / "a.png").read_bytes()


def test_integers_may_be_labels() -> None:
    """Survey codes 1 and 2 need no mapping; templates and mappings of columns accept them."""
    table = {"choice": [2, 1], "t1": [10, 12], "t2": [20, 9]}
    by_template = ChoiceData.from_wide(table, chosen="choice", alternatives=[1, 2], features={"t": "t{alternative}"})
    places = {"t": {1: "t1", 2: "t2"}}
    by_mapping = ChoiceData.from_wide(table, chosen="choice", alternatives={1: 1, 2: 2}, features=places)
    for data in (by_template, by_mapping):
        assert data.labels is not None
        assert data.labels.plain().tolist() == ["1", "2", "1", "2"]
        assert data.chosen is not None
        assert data.chosen.tolist() == [1, 0]
        assert data.features["t"].values.tolist() == [10, 20, 12, 9]
