"""Long tables: sets, choices, labels, weights and individuals are checked, and only our errors are raised."""

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.errors import PcmcNetError, SchemaError

NAN = float("nan")
Table = dict[str, list[Any]]
Roles = dict[str, Any]


def read(table: Any, roles: Roles, **changes: Any) -> ChoiceData:
    return ChoiceData.from_long(table, **{**roles, **changes})


# -- sets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 2**16, 2**16 + 1])
def test_rows_of_scattered_sets_keep_table_order(n: int) -> None:
    """A small number of sets is sorted by 16-bit codes."""
    sets = np.concatenate([np.arange(n), np.arange(n)[::-1]])
    data = ChoiceData.from_long(pa.table({"set": sets, "x": sets}), choice_set="set", features=["x"])
    assert data.rows.tolist() == np.stack([np.arange(n), 2 * n - 1 - np.arange(n)], 1).ravel().tolist()


def test_sets_are_ordered_by_their_first_rows(trips: Table, roles: Roles) -> None:
    data = read(trips, roles)
    assert data.set_ids.tolist() == [7, 3]
    assert data.offsets.tolist() == [0, 2, 5]
    assert data.chosen is not None
    assert data.chosen.tolist() == [0, 2]
    assert data.weights.tolist() == [1, 1]
    assert data.rows.tolist() == [0, 1, 2, 3, 4]
    assert data.labels is not None
    assert data.labels.plain().tolist() == trips["mode"]
    assert {name: column.plain().tolist() for name, column in data.features.items()} == {
        name: trips[name] for name in ("time", "seats", "shade")
    }
    assert data.individual["income"].plain().tolist() == [2.5, 1.0]
    assert data.individual["town"].plain().tolist() == ["A", "B"]
    assert data.keep["person"].plain().tolist() == ["p", "q"]
    assert data.schema.categorical == ("town", "shade")


def test_rows_of_a_set_need_not_be_adjacent() -> None:
    """Rows 0, 2, 4 are set b, rows 1, 3 set a; b comes first because its first row does."""
    table = {"id": ["b", "a", "b", "a", "b"], "y": [0, 1, 0, 0, 1], "x": [0, 1, 2, 3, 4]}
    data = ChoiceData.from_long(table, choice_set="id", chosen="y", features=["x"])
    assert data.set_ids.tolist() == ["b", "a"]
    assert data.rows.tolist() == [0, 2, 4, 1, 3]
    assert data.features["x"].plain().tolist() == [0, 2, 4, 1, 3]
    assert data.chosen is not None
    assert data.chosen.tolist() == [2, 0]


@given(seed=st.integers(0, 2**16))
def test_row_order_only_reorders_sets_and_alternatives(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 4, 12)
    y = [int(k == np.flatnonzero(ids == i)[-1]) for k, i in enumerate(ids)]
    table = pa.table({"id": ids, "y": y, "x": rng.normal(size=12), "who": ids * 2.0})
    order = rng.permutation(12)
    roles: Roles = {"choice_set": "id", "chosen": "y", "features": ["x"], "individual": ["who"]}
    straight, shuffled = read(table, roles), read(table.take(order), roles)
    x, y_of = straight.features["x"].plain(), straight.chosen
    assert y_of is not None
    assert shuffled.chosen is not None
    for s, name in enumerate(shuffled.set_ids):
        t = straight.set_ids.tolist().index(name)
        shuffled_rows, straight_rows = slice(*shuffled.offsets[s : s + 2]), slice(*straight.offsets[t : t + 2])
        assert sorted(shuffled.features["x"].plain()[shuffled_rows]) == sorted(x[straight_rows])
        assert shuffled.features["x"].plain()[shuffled_rows][shuffled.chosen[s]] == x[straight_rows][y_of[t]]
        assert shuffled.individual["who"].plain()[s] == 2 * name
    by_row = table["x"].to_numpy()[order].astype(np.float32)
    np.testing.assert_array_equal(shuffled.features["x"].plain(), by_row[shuffled.rows])
    assert (np.diff(shuffled.rows[: shuffled.sizes[0]]) > 0).all()


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([2, 1, 2], [2, 1]),
        ([2.5, 1.0, 2.5], [2.5, 1.0]),
        (["x", "é", "x"], ["x", "é"]),
        ([True, False, True], [True, False]),
        ([2**53 + 1, 2**53, 2**53 + 1], [2**53 + 1, 2**53]),
        (pa.array([2**64 - 1, 0, 2**64 - 1], pa.uint64()), [2**64 - 1, 0]),
        (pa.array(["x", "y", "x"], pa.string_view()), ["x", "y"]),
        (pa.array(["x", "y", "x"], pa.large_string()), ["x", "y"]),
        (pd.Series(["b", "a", "b"], dtype=pd.CategoricalDtype(["a", "b", "c"])), ["b", "a"]),
        ([dt.date(2024, 1, 2), dt.date(2024, 1, 1), dt.date(2024, 1, 2)], [dt.date(2024, 1, 2), dt.date(2024, 1, 1)]),
    ],
    ids=str,
)
def test_ids_may_have_any_type(ids: Any, expected: list[Any]) -> None:
    data = ChoiceData.from_long({"id": ids, "x": [0, 1, 2]}, choice_set="id", features=["x"])
    assert data.set_ids.tolist() == expected
    assert data.sizes.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, None, None], "column 'trip', row 1: expected the id of a choice set, got nothing; 2 such rows"),
        ([1.0, 2.0, NAN], "column 'trip', row 2: expected the id of a choice set, got nothing; 1 such row"),
        (["x", None, "x"], "column 'trip', row 1: expected the id"),
        ([None, None, None], "column 'trip', row 0: expected the id .* 3 such rows"),
        (
            [1.0, 2.0**53, 3.0],
            "floating-point ids of 2.*53 or more, where distinct integers .* the same number: store them as text",
        ),
        ([1.0, 2.0, np.inf], "floating-point ids of 2.*53 or more"),
        ([dt.time(1), -1, -1], "'trip': choice-set ids of type time64.* are not supported"),
        ([[1], [1], [2]], "'trip': choice-set ids of type list.* are not supported"),
    ],
)
def test_an_invalid_id_is_refused(ids: list[Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        ChoiceData.from_long({"trip": ids}, choice_set="trip")


def test_long_integer_ids_in_a_csv_stay_distinct(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"id,x\n{2**62},1\n{2**62 + 1},2\n")
    assert ChoiceData.from_long(path, choice_set="id", features=["x"]).set_ids.tolist() == [2**62, 2**62 + 1]
    path.write_text(f"id,x\n{2**70},1\n{2**70 + 1},2\n")
    assert ChoiceData.from_long(path, choice_set="id", features=["x"]).set_ids.tolist() == [str(2**70), str(2**70 + 1)]


def test_an_empty_table_is_refused() -> None:
    empty: dict[str, list[int]] = {"id": [], "took": []}
    for table in (empty, pd.DataFrame(empty), pl.DataFrame(empty)):
        with pytest.raises(SchemaError, match="the table is empty: expected at least one row"):
            ChoiceData.from_long(table, choice_set="id", chosen="took")


# -- choices and availability ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("took", "message"),
    [
        ([1, 0, 0, 0, 0], "choice set 3: column 'took': expected exactly one chosen alternative, got none. Drop"),
        ([0, 0, 0, 0, 0], "choice sets 7, 3: column 'took': expected exactly one chosen alternative, got none"),
        (
            [1, 0, 1, 1, 1],
            "choice set 3: column 'took': expected exactly one .*, got up to 3. Remove rows that",
        ),
        ([1, 0, 0, 2, 1], r"column 'took', row 3 \(choice set 3\): expected 0 or 1, got 2; 1 such row"),
        ([1, 0, 0, None, 1], r"column 'took', row 3 \(choice set 3\): expected 0 or 1, got nothing"),
        (["y", "n", "n", "n", "y"], r"column 'took', row 0 \(choice set 7\): expected 0 or 1, got 'y'; 5 such rows"),
    ],
)
def test_a_set_has_exactly_one_choice(took: list[Any], message: str, trips: Table, roles: Roles) -> None:
    with pytest.raises(SchemaError, match=message):
        read({**trips, "took": took}, roles)


def test_an_error_names_the_first_sets_and_their_number() -> None:
    table = {"id": list(range(8)), "y": [0] * 8}
    with pytest.raises(SchemaError, match=r"choice sets 0, 1, 2, 3, 4, ... \(8 in all\): column 'y': .* got none"):
        ChoiceData.from_long(table, choice_set="id", chosen="y")


def test_a_table_for_prediction_needs_no_choices(trips: Table, roles: Roles) -> None:
    assert read(trips, roles, chosen=None).chosen is None


def test_unavailable_rows_are_excluded_and_may_hold_anything(trips: Table, roles: Roles) -> None:
    """Without row 2, set 3 is bus and bike, and bike is the second of them."""
    odd = {**trips, "ok": [1, 1, 0, 1, 1]}
    for column, value in {
        "time": NAN,
        "seats": 2**80,
        "income": 99.0,
        "town": None,
        "took": None,
        "mode": "bus",
    }.items():
        odd[column] = [*odd[column]]
        odd[column][2] = value
    data = read(odd, roles, available="ok")
    assert data.sizes.tolist() == [2, 2]
    assert data.rows.tolist() == [0, 1, 3, 4]
    assert data.hidden_rows.tolist() == [2]
    assert data.hidden_sets.tolist() == [1]
    assert data.chosen is not None
    assert data.chosen.tolist() == [0, 1]
    assert data.individual["town"].plain().tolist() == ["A", "B"]


def test_declared_numbers_may_be_text_in_unavailable_rows(trips: Table, roles: Roles) -> None:
    odd = {**trips, "time": ["10", "20", "-", "9.5", "30"], "ok": [1, 1, 0, 1, 1]}
    data = read(odd, roles, available="ok", categorical=["town", "shade"])
    assert data.features["time"].plain().tolist() == [10, 20, 9.5, 30]


@pytest.mark.parametrize("no_yes", [("0", "1"), ("False", "true"), (" 0 ", "TRUE")])
def test_text_flags_are_read_as_in_a_csv(no_yes: tuple[str, str], trips: Table, roles: Roles) -> None:
    flags = {"took": [1, 0, 0, 0, 1], "ok": [1, 1, 0, 1, 1]}
    text = {name: [no_yes[value] for value in values] for name, values in flags.items()}
    text["took"][2] = "?"  # outside its set
    data, expected = (read({**trips, **table}, roles, available="ok") for table in (text, flags))
    assert data.chosen is not None
    assert data.chosen.tolist() == expected.chosen.tolist() == [0, 1]  # type: ignore[union-attr]
    assert data.hidden_rows.tolist() == [2]
    text["took"][2] = no_yes[1]
    with pytest.raises(SchemaError, match=r"column 'took', row 2 .*: the chosen alternative is marked unavailable"):
        read({**trips, **text}, roles, available="ok")


@pytest.mark.parametrize(
    ("ok", "message"),
    [
        ([1, 1, 0, 0, 0], "choice set 3: column 'ok': no alternative is available. Drop these sets or correct"),
        ([0, 0, 0, 0, 0], "choice sets 7, 3: column 'ok': no alternative is available"),
        (
            [1, 1, 1, 1, 0],
            r"column 'took', row 4 \(choice set 3\): the chosen alternative is marked unavailable in .* 'ok'; 1",
        ),
        ([1, 1, 1, 1, 5], r"column 'ok', row 4 \(choice set 3\): expected 0 or 1, got 5"),
        ([1, 1, 1, 1, None], r"column 'ok', row 4 \(choice set 3\): expected 0 or 1, got nothing"),
    ],
)
def test_a_set_without_available_choice_is_refused(ok: list[Any], message: str, trips: Table, roles: Roles) -> None:
    with pytest.raises(SchemaError, match=message):
        read({**trips, "ok": ok}, roles, available="ok")


# -- labels and weights ----------------------------------------------------------------------------------


def test_a_label_occurs_once_in_a_set(trips: Table, roles: Roles) -> None:
    message = (
        r"column 'mode', row 2 \(choice set 3\): the label 'car' occurs more than once in this set; "
        r"1 such labels in the table. Labels must be unique"
    )
    with pytest.raises(SchemaError, match=message):
        read({**trips, "mode": ["car", "bus", "car", "bus", "car"]}, roles)


def test_a_missing_label_is_refused(trips: Table, roles: Roles) -> None:
    with pytest.raises(
        SchemaError, match=r"column 'mode', row 1 \(choice set 7\): expected a category, got nothing.*Name these"
    ):
        read({**trips, "mode": ["car", None, "car", "bus", "bike"]}, roles)


def test_a_label_may_also_be_a_feature(trips: Table, roles: Roles) -> None:
    numbers = {**trips, "mode": [1, 2, 1, 2, 3]}
    data = read(numbers, roles, features=["mode"])
    assert data.labels is not None
    assert data.labels.plain().tolist() == ["1", "2", "1", "2", "3"]
    assert data.features["mode"].kind == "numeric"


def test_weights_are_one_per_set(trips: Table, roles: Roles) -> None:
    data = read({**trips, "w": [2, 2, 0.5, 0.5, 0.5]}, roles, weight="w")
    assert data.weights.tolist() == [2, 0.5]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (
            [1, 1, -2, -2, -2],
            r"column 'w', row 2 \(choice set 3\): expected a weight of at least 0, got -2.0; 3 such rows",
        ),
        ([1, 1, 1e-42, 1e-42, 1e-42], r"column 'w', row 2 \(choice set 3\): expected a weight of 0 or from 1e-30 to"),
        ([-1e-300] * 5, r"column 'w', row 0 \(choice set 7\): expected a weight of at least 0"),
        ([1e-300] * 5, r"expected a weight of 0 or from 1e-30 to 1e\+30, got \S+; 5 such rows\. Multiply all"),
        ([1e31] * 5, r"expected a weight of 0 or from 1e-30 to 1e\+30, got \S+; 5 such rows"),
        ([0, 0, 0, 0, 0], "column 'w': all weights are 0, expected at least one above 0"),
        ([1, 2, 1, 1, 1], "choice set 7: the weight in column 'w' varies within the set. Each set needs one weight"),
        ([1, 1, NAN, 1, 1], r"column 'w', row 2 \(choice set 3\): expected a finite number, got nan"),
    ],
)
def test_an_invalid_weight_is_refused(weights: list[float], message: str, trips: Table, roles: Roles) -> None:
    with pytest.raises(SchemaError, match=message):
        read({**trips, "w": weights}, roles, weight="w")


def test_a_person_is_kept_as_a_name(trips: Table, roles: Roles) -> None:
    data = read({**trips, "id": [3, 3, 12, 12, 12]}, roles, person="id")
    assert data.keep["id"].plain().tolist() == ["3", "12"]
    assert list(data.keep) == ["person", "id"]
    assert list(read(trips, roles, person="person").keep) == ["person"]


@pytest.mark.parametrize(
    ("persons", "message"),
    [
        (["p", "p", "q", None, None], r"column 'id', row 3 \(choice set 3\): .* nothing; 2 such rows. Fill in the id"),
        ([1.0, NAN, 2.0, 2.0, 2.0], r"column 'id', row 1 \(choice set 7\): .* got nothing; 1 such row"),
        (
            ["p", "q", "q", "q", "q"],
            "choice set 7: the person in column 'id' varies within the set. Each set needs one person",
        ),
    ],
)
def test_a_set_without_person_or_with_several_is_refused(
    persons: list[Any], message: str, trips: Table, roles: Roles
) -> None:
    with pytest.raises(SchemaError, match=message):
        read({**trips, "id": persons}, roles, person="id", missing="indicator", conflict="first")


# -- individuals -----------------------------------------------------------------------------------------


def test_a_varying_individual_column_is_named_with_a_remedy(trips: Table, roles: Roles) -> None:
    varying = {**trips, "income": [2.5, 9.0, 1.0, 1.0, 2.0], "town": ["A", "A", "B", "C", "B"]}
    message = (
        r"individual-level columns must be constant within a choice set, but "
        r"'income' varies within 2 choice sets \(first: 7, 3\); 'town' varies within 1 choice sets \(first: 3\). "
        r"Declare them as features, or declare conflict='first' to use the first value of each set."
    )
    with pytest.raises(SchemaError, match=message):
        read(varying, roles)
    data = read(varying, roles, conflict="first")
    assert data.individual["income"].plain().tolist() == [2.5, 1.0]
    assert data.individual["town"].plain().tolist() == ["A", "B"]


def test_a_varying_kept_column_is_refused(trips: Table, roles: Roles) -> None:
    with pytest.raises(SchemaError, match=r"'person' varies within 1 choice sets \(first: 7\)"):
        read({**trips, "person": ["p", "x", "q", "q", "q"]}, roles)


def test_variation_below_float32_precision_is_detected() -> None:
    """Seconds in 2023: float32 rounds them to 128 seconds."""
    table = {"id": [1, 1], "t": [1_700_000_000, 1_700_000_060]}
    with pytest.raises(SchemaError, match="'t' varies within 1 choice sets"):
        ChoiceData.from_long(table, choice_set="id", individual=["t"])


def test_missing_values_are_equal_and_differ_from_numbers() -> None:
    roles: Roles = {"choice_set": "id", "individual": ["x", "c"], "categorical": ["c"], "missing": "indicator"}
    data = read({"id": [1, 1, 2], "x": [NAN, None, 1.0], "c": [None, None, "u"]}, roles)
    np.testing.assert_array_equal(data.individual["x"].plain(), [NAN, 1])
    assert data.individual["c"].plain().tolist() == ["<missing>", "u"]
    with pytest.raises(SchemaError, match=r"'x' varies within 1 choice sets .*; 'c' varies within 1 choice sets"):
        read({"id": [1, 1, 2], "x": [NAN, 0.0, 1.0], "c": [None, "", "u"]}, roles)


def test_conflict_first_ignores_the_other_values() -> None:
    roles: Roles = {"choice_set": "id", "individual": ["x", "c"], "categorical": ["c"], "conflict": "first"}
    data = read({"id": [1, 1, 2], "x": [1.0, NAN, 2.0], "c": ["u", None, "v"]}, roles)
    assert data.individual["x"].plain().tolist() == [1, 2]
    assert data.individual["c"].plain().tolist() == ["u", "v"]
    with pytest.raises(SchemaError, match=r"column 'x', row 2 \(choice set 2\): expected a finite number, got nan"):
        read({"id": [1, 1, 2], "x": [1.0, 1.0, NAN], "c": ["u", "u", "v"]}, roles)


# -- features --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("time", [1, 2, NAN, 4, 5], r"column 'time', row 2 \(choice set 3\): expected a finite number, got nan; 1"),
        ("time", [1, 2, np.inf, 4, 5], r"column 'time', row 2 \(choice set 3\): expected a finite number, got inf; 1"),
        ("time", [1, 2, 3, 1e39, 5], r"column 'time', row 3 \(choice set 3\): expected a number below 3.4e38"),
        (
            "shade",
            ["r", None, "r", "r", "r"],
            r"column 'shade', row 1 \(choice set 7\): expected a category, got nothing",
        ),
    ],
)
def test_a_bad_value_is_named_with_its_row(
    column: str, values: list[Any], message: str, trips: Table, roles: Roles
) -> None:
    with pytest.raises(SchemaError, match=message):
        read({**trips, column: values}, roles)


def test_text_in_a_declared_number_is_refused(trips: Table, roles: Roles) -> None:
    message = r"column 'time', row 3 \(choice set 3\): expected a number, got 'soon'; 1 such row. Correct them, or list"
    with pytest.raises(SchemaError, match=message):
        read({**trips, "time": ["1", "2", "3", "soon", "5"]}, roles, categorical=["town", "shade"])


@pytest.mark.parametrize("source", ["csv", "objects", "text"])
def test_a_little_text_among_numbers_is_refused_from_any_source(source: str, tmp_path: Path) -> None:
    price: list[Any] = [10.5] * 19 + ["n/k"]
    table: Any = {"id": list(range(20)), "price": price}
    if source == "text":
        table["price"] = [str(p) for p in price]
    elif source == "csv":
        pd.DataFrame(table).to_csv(tmp_path / "t.csv", index=False)
        table = tmp_path / "t.csv"
    message = r"column 'price', row 19 \(choice set 19\): expected a number as in the other rows, got 'n/k'; 1 such row"
    with pytest.raises(SchemaError, match=message):
        ChoiceData.from_long(table, choice_set="id", features=["price"])
    data = ChoiceData.from_long(table, choice_set="id", features=["price"], categorical=["price"])
    assert data.features["price"].plain().tolist() == ["10.5"] * 19 + ["n/k"]


def test_a_timestamp_may_be_a_category_but_not_a_number(trips: Table, roles: Roles) -> None:
    dated = {**trips, "shade": [dt.datetime(2024, 1, k) for k in (1, 2, 1, 2, 1)]}
    with pytest.raises(SchemaError, match=r"'shade': expected numbers, got the type timestamp\[us\]. Convert"):
        read(dated, roles)
    data = read(dated, roles, categorical=["shade", "town"])
    assert data.features["shade"].plain()[:2].tolist() == ["2024-01-01", "2024-01-02"]


def test_declared_categories_keep_leading_zeros_of_a_csv(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,zip\n1,007\n1,7\n")
    data = ChoiceData.from_long(tmp_path / "t.csv", choice_set="id", features=["zip"], categorical=["zip"])
    assert data.features["zip"].plain().tolist() == ["007", "7"]


# -- arbitrary tables ------------------------------------------------------------------------------------

KINDS = [
    *(pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.null(), pa.decimal128(10, 2)),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary(3), pa.list_(pa.int8())),
    *(pa.date32(), pa.timestamp("ns"), pa.timestamp("s", "UTC"), pa.time32("s"), pa.duration("s")),
    *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.uint8(), pa.int64()), pa.struct([("a", pa.int8())])),
]
CELLS: list[st.SearchStrategy[Any]] = [
    *(st.integers(0, 1), st.integers(), st.floats(), st.booleans(), st.text(max_size=2), st.binary(max_size=3)),
    *(st.dates(), st.datetimes(), st.decimals(), st.lists(st.integers(), max_size=1), st.complex_numbers()),
    st.sampled_from(["1", "x", "nan", "inf", "1_0", "True", "1.0", "", object(), pd.NA, pd.NaT, np.float32(1)]),
]
NAMES = ["id", "y", "label", "ok", "w", "who", "", "x", 'é "quoted"', "a.b"]


@st.composite
def odd_columns(draw: st.DrawFn, n: int) -> Any:
    cells = draw(st.sampled_from([*CELLS, st.one_of(CELLS)]))
    n += draw(st.sampled_from([0] * 50 + [1]))
    values = draw(st.lists(st.one_of(cells, st.none()) if draw(st.booleans()) else cells, min_size=n, max_size=n))
    make = draw(st.sampled_from([list, np.array, pd.Series, lambda v: pa.array(v, draw(st.sampled_from(KINDS)))]))
    try:
        return make(values)
    except Exception:  # noqa: BLE001  # no such column exists
        return values


@st.composite
def odd_tables(draw: st.DrawFn) -> tuple[Any, Roles]:
    n = draw(st.integers(0, 7))
    ids = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    good = {
        "id": ids,
        "y": [int(i not in ids[:k]) for k, i in enumerate(ids)],
        "label": list(range(n)),
        "ok": [1] * n,
        "w": [1.0 + i for i in ids],
    }
    table = {name: good[name] if name in good and draw(st.booleans()) else draw(odd_columns(n)) for name in NAMES}
    roles: Roles = {
        role: draw(st.sampled_from([None, name]))
        for role, name in {"chosen": "y", "alternative": "label", "available": "ok", "weight": "w"}.items()
    }
    roles["individual"] = draw(st.lists(st.sampled_from(["who", ""]), unique=True))
    roles["features"] = draw(st.lists(st.sampled_from(["x", 'é "quoted"', "a.b", "label"]), unique=True))
    roles["categorical"] = draw(st.sampled_from([None, [], roles["features"], roles["individual"]]))
    roles["keep"] = draw(st.sampled_from([[], ["who"], ["w"]]))
    roles["conflict"] = draw(st.sampled_from(["error", "first"]))
    roles["missing"] = draw(st.sampled_from(["error", "indicator"]))
    try:
        return draw(st.sampled_from([dict, pd.DataFrame, pa.table]))(table), {"choice_set": "id", **roles}
    except Exception:  # noqa: BLE001  # no such frame exists
        return table, {"choice_set": "id", **roles}


@settings(max_examples=3 * settings.default.max_examples)
@given(case=odd_tables())
def test_an_arbitrary_table_is_read_or_refused_with_our_error(case: tuple[Any, Roles]) -> None:
    table, roles = case
    try:
        data = read(table, {}, **roles)
    except PcmcNetError:
        return
    assert (data.sizes > 0).all()
    assert sorted([*data.rows, *data.hidden_rows]) == list(range(data.n_rows))
    assert len(data.fingerprint()) == 64
    for column in [*data.features.values(), *data.individual.values()]:
        if column.kind == "categorical":
            assert ((column.codes >= 0) & (column.codes < len(column.categories))).all()
        else:
            assert np.isfinite(column.values).all() or roles["missing"] == "indicator"
            assert not np.isinf(column.values).any()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1e-300, 1e-300, 1.0, 1.0], r"row 0 .* got 1e-300; 2 such rows"),
        (["one", "one", "1", "1"], r"got 'one'; 2 such rows. Write weights as numbers.$"),
    ],
)
def test_an_error_shows_the_invalid_weight(weights: list[Any], message: str) -> None:
    table = {"s": [0, 0, 1, 1], "c": [1, 0, 1, 0], "x": [1.0, 2.0, 3.0, 4.0], "w": weights}
    with pytest.raises(SchemaError, match=message):
        ChoiceData.from_long(table, choice_set="s", chosen="c", features=["x"], weight="w")
