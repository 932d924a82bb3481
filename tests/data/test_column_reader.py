"""Checked columns: each type is read exactly, and each error names its row."""

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data.column_reader import MISSING_CATEGORY, ColumnReader
from pcmcnet.errors import SchemaError

NAN = float("nan")


def reader(values: Any, rows: list[int] | None = None) -> ColumnReader:
    """Read one column "a"; the choice set of row r is named "set r"."""
    column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    everything = ColumnReader.of(pa.table({"a": column}), name_set=lambda row: f"set {row}")
    return everything if rows is None else everything.at(np.array(rows, np.int64))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, -2], pa.int8()), [1, -2]),
        (pa.array([2**64 - 1], pa.uint64()), [2.0**64]),
        (pa.array([2**53 + 1, 2**62]), [2.0**53, 2.0**62]),
        (pa.array([np.float16(0.5)]), [0.5]),
        (pa.array([1.5], pa.float32()), [1.5]),
        (pa.array([True, False]), [1, 0]),
        (pa.array([decimal.Decimal("12.50")]), [12.5]),
        (pa.array([decimal.Decimal("12.50")], pa.decimal256(60, 2)), [12.5]),
        (pa.array(["1", " 2.5", "-1e3"]), [1, 2.5, -1000]),
        (pa.array(["1"], pa.large_string()), [1]),
        (pa.array(["1"], pa.string_view()), [1]),
        (pa.array(["1", "2", "1"]).dictionary_encode(), [1, 2, 1]),
        (pa.array([5, 7, 5]).dictionary_encode(), [5, 7, 5]),
        (pa.chunked_array([[1, 2], [3]]), [1, 2, 3]),
        (pa.array([3e38, -1e-30]), [np.float32(3e38), np.float32(-1e-30)]),
    ],
    ids=lambda value: str(value.type) if not isinstance(value, list) else "",
)
def test_numbers_of_every_type_become_float32(values: Any, expected: list[float]) -> None:
    column = reader(values).numeric("a")
    assert column.values.dtype == np.float32
    np.testing.assert_array_equal(column.values, np.array(expected, np.float32))


@pytest.mark.parametrize("values", [[1.0, None, NAN], [1, None, None], ["1", None, None], [None, None, None]])
def test_missing_values_are_nan_with_an_indicator(values: list[Any]) -> None:
    column = reader(values).numeric("a", missing="indicator").values
    np.testing.assert_array_equal(column, np.array([NAN if v is None else float(v) for v in values], np.float32))


@given(
    values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1),
    order=st.randoms(use_true_random=False),
)
def test_a_reader_returns_its_rows_in_order(values: list[float], order: Any) -> None:
    rows = [k for k in range(len(values)) if order.random() < 0.7]
    order.shuffle(rows)
    expected = np.array([values[k] for k in rows], np.float32)
    np.testing.assert_array_equal(reader(values, rows).numeric("a").values, expected)
    assert reader(values, rows).categorical("a").plain().astype(float).tolist() == [values[k] for k in rows]


@pytest.mark.parametrize(
    ("values", "missing", "message"),
    [
        (
            [1.0, NAN, NAN],
            "error",
            r"row 1 \(choice set set 1\): expected a finite number, got nan; 2 such rows. Drop them or",
        ),
        ([1, 2, None], "error", "row 2 .* expected a finite number, got nan; 1 such row"),
        ([1.0, 2.0, np.inf], "error", "row 2 .* expected a finite number, got inf; 1 such row"),
        ([NAN, -np.inf, 1.0], "indicator", "row 1 .* expected a finite number, got -inf; 1 such row. Correct or drop"),
        ([1.0, 1e39, -4e38], "error", r"row 1 .* expected a number below 3.4e38, got 1e\+39; 2 such rows. Rescale"),
        (["1", "two", "three"], "error", "row 1 .* expected a number, got 'two'; 2 such rows. Correct them, or list"),
        (["1", "1_000", None], "indicator", "row 1 .* expected a number, got '1_000'; 1 such row"),
        (["1", "nan", None], "indicator", "row 1 .* expected a number, got 'nan'; 1 such row"),
        (["1", "inf", "2"], "error", "row 1 .* expected a finite number, got inf; 1 such row"),
    ],
)
def test_a_bad_number_is_named_with_its_row(values: list[Any], missing: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=f"column 'a', {message}"):
        reader(values).numeric("a", missing=missing)


def test_the_first_bad_row_is_the_first_in_the_table() -> None:
    with pytest.raises(SchemaError, match=r"row 1 .* 2 such rows"):
        reader([1.0, NAN, 2.0, NAN], [3, 2, 1, 0]).numeric("a")
    with pytest.raises(SchemaError, match=r"row 1 .* got 'x'; 2 such rows"):
        reader(["1", "x", "2", "y"], [3, 2, 1, 0]).numeric("a")


@pytest.mark.parametrize("bad", [NAN, np.inf, 1e300])
def test_rows_that_are_not_read_may_hold_anything(bad: float) -> None:
    assert reader([1.0, bad, 2.0], [0, 2]).numeric("a").values.tolist() == [1, 2]
    assert reader(["1", "x", None, "2"], [0, 3]).numeric("a").values.tolist() == [1, 2]
    assert reader(["u", None, "v"], [0, 2]).categorical("a").plain().tolist() == ["u", "v"]
    assert reader([0, 7, 1], [0, 2]).flag("a").tolist() == [False, True]


@pytest.mark.parametrize(
    "values",
    [[dt.datetime(2024, 1, 1)], [dt.date(2024, 1, 1)], [dt.time(1)], [[1]], [b"1"], [dt.timedelta(1)]],
    ids=str,
)
def test_a_type_without_numbers_is_refused_with_a_remedy(values: list[Any]) -> None:
    with pytest.raises(
        SchemaError, match=r"column 'a': expected numbers, got the type .*. Convert .* list it in categorical"
    ):
        reader(values).numeric("a")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, False, True], ["true", "false", "true"]),
        ([1, 2, 1], ["1", "2", "1"]),
        ([1.0, 2.0, 1.5], ["1", "2", "1.5"]),
        (["x", "1.0", "1"], ["x", "1", "1"]),
        ([dt.date(2024, 1, 1)], ["2024-01-01"]),
        (pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]),
        ([2**53, 2**53 + 1], ["9007199254740992", "9007199254740993"]),
    ],
    ids=str,
)
def test_anything_with_a_text_form_is_a_category(values: Any, expected: list[str]) -> None:
    column = reader(values).categorical("a")
    assert column.plain().tolist() == expected
    assert column.codes.dtype == np.int32
    assert column.codes.flags.writeable
    assert len(set(column.categories)) == len(column.categories)


@pytest.mark.parametrize("values", [["x", None, "y"], [1.0, NAN, 2.0], [1, None, 2]], ids=str)
def test_a_missing_category_is_refused_or_its_own_category(values: list[Any]) -> None:
    with pytest.raises(SchemaError, match=r"column 'a', row 1 .* expected a category, got nothing; 1 such row"):
        reader(values).categorical("a")
    column = reader(values).categorical("a", missing="indicator")
    assert column.plain()[1] == MISSING_CATEGORY
    assert len(column.categories) == 3


@pytest.mark.parametrize("values", [[[1]], [{"a": 1}], [b"\xff"]], ids=str)
def test_values_without_a_name_are_not_categories(values: list[Any]) -> None:
    with pytest.raises(SchemaError, match=r"column 'a': .* (are not supported|cannot be compared)"):
        reader(values).categorical("a")


def test_a_flag_is_zero_or_one() -> None:
    for values in ([0, 1], [False, True], [0.0, 1.0], [decimal.Decimal(0), decimal.Decimal(1)]):
        assert reader(values).flag("a").tolist() == [False, True]


@pytest.mark.parametrize("no_yes", ["0 1", "0.0 1.0", "00 01", "false true", "False True", "FALSE TRUE", "False 1"])
def test_a_flag_may_be_text(no_yes: str) -> None:
    assert reader(no_yes.split()).flag("a").tolist() == [False, True]
    assert reader([f" {word} " for word in no_yes.split()]).flag("a").tolist() == [False, True]
    assert reader([*no_yes.split(), None], [1, 0]).flag("a").tolist() == [True, False]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, 2, 3], "row 1 .* expected 0 or 1, got 2; 2 such rows"),
        ([0.0, NAN, 1.0], "row 1 .* expected 0 or 1, got nan; 1 such row"),
        ([None, True], "row 0 .* expected 0 or 1, got nothing; 1 such row"),
        (["0", None, "1"], "row 1 .* expected 0 or 1, got nothing; 1 such row"),
        (["0", "1", "yes", "no"], "row 2 .* expected 0 or 1, got 'yes'; 2 such rows. Write 0 or 1, or false or true."),
        (["0", "1", ""], "row 2 .* expected 0 or 1, got ''; 1 such row"),
        (["0", "2"], "row 1 .* expected 0 or 1, got '2'; 1 such row"),
        ([0, 2**32, 1], f"row 1 .* expected 0 or 1, got {2**32}; 1 such row"),
    ],
)
def test_a_flag_of_another_value_is_refused(values: list[Any], message: str) -> None:
    with pytest.raises(SchemaError, match=f"column 'a', {message}"):
        reader(values).flag("a")


def test_a_flag_of_another_type_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"column 'a': expected 0/1 or true/false, got the type date32\[day\]"):
        reader([dt.date(2024, 1, 1)]).flag("a")


def test_columns_no_longer_needed_are_freed() -> None:
    first = ColumnReader.of(pa.table({"a": ["x"], "b": ["y"]}), name_set=str)
    second = first.at(np.array([0]))
    second.categorical("a")
    second.keep_only({"b"})
    assert list(first.columns) == ["b"]
    assert not first.distinct_by_column


# -- resolution of float32 -------------------------------------------------------------------------------

SECONDS = 1_700_000_000
STEPS = np.arange(50)


@pytest.mark.parametrize(
    "values",
    [
        SECONDS + STEPS / 7,
        SECONDS + STEPS,
        -(SECONDS + STEPS),
        SECONDS * 10**9 + STEPS,  # nanoseconds: float64 cannot distinguish them either
        pa.chunked_array([SECONDS + STEPS[:10], SECONDS + STEPS[10:]]),
        pa.array([str(SECONDS + k) for k in STEPS]),
        pa.array([decimal.Decimal(SECONDS) + int(k) for k in STEPS]),
    ],
)
def test_numbers_that_collapse_in_float32_are_refused(values: Any) -> None:
    read = reader(values)
    message = r"column 'a': its values differ by less than .* \(from .* to .*\). Subtract an offset"
    with pytest.raises(SchemaError, match=message):
        read.numeric("a")
    with pytest.raises(SchemaError, match=message):
        read.checked(read.exact("a", categorical=False), "error")


def test_missing_values_do_not_hide_a_collapse() -> None:
    with pytest.raises(SchemaError, match=r"from 1700000000.0 to 1700000007.0"):
        reader([None, *(float(SECONDS + k) for k in range(8))]).numeric("a", missing="indicator")


@pytest.mark.parametrize(
    "values",
    [
        np.full(50, SECONDS),  # constant
        SECONDS + 86400 * 30 * STEPS,  # days apart
        10_000_000 + STEPS,  # whole numbers below 2**24 are exact
        np.where(STEPS % 2, 0.3, 0.1 + 0.2),  # constant except for rounding
        (SECONDS + STEPS).astype(np.float32),  # float32 already, so no precision is lost
        np.array([1000.0, 1000.05]),  # two prices that are 820 float32 steps apart
        np.array([3.4e38, -3.4e38]),
        np.zeros(50),
    ],
)
def test_numbers_that_float32_distinguishes_are_read(values: Any) -> None:
    read = reader(values)
    np.testing.assert_array_equal(read.numeric("a").values, values.astype(np.float32))
    exact = read.exact("a", categorical=False)
    assert len(read.checked(exact, "error")) == len(values)


def test_a_collapse_is_judged_by_the_rows_read() -> None:
    values = np.concatenate([SECONDS + STEPS, [0]])
    assert len(reader(values).numeric("a")) == 51
    with pytest.raises(SchemaError, match="Subtract an offset"):
        reader(values, rows=list(range(50))).numeric("a")
    assert len(reader(values, rows=[0, 50]).numeric("a")) == 2


def test_weights_may_be_close_together() -> None:
    assert len(reader(1 + STEPS * 1e-8).weight("a")) == 50


# -- remedies --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["error", "indicator"])
def test_infinity_is_refused_even_with_an_indicator(missing: Any) -> None:
    with pytest.raises(SchemaError, match=r"row 2 .* got inf; 1 such row. Correct or drop them.$"):
        reader([1.0, NAN, np.inf]).numeric("a", missing=missing)


def test_a_missing_weight_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"row 1 .* got nan; 1 such row. Correct or drop them.$"):
        reader([1.0, NAN]).weight("a")
