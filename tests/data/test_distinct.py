"""Distinct values: numbered, named alike whatever they came from, parsed."""

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data.distinct import Distinct, by_first_row, distinct, first_rows, names, numbers

cells = st.one_of(
    st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=1, max_size=12),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4),
    st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", ""])), min_size=1, max_size=12),
    st.lists(st.one_of(st.none(), st.booleans()), min_size=1, max_size=12),
)


def in_chunks(values: list[Any], cut: int, kind: pa.DataType | None = None) -> pa.ChunkedArray:
    kind = kind or pa.array(values).type
    return pa.chunked_array([pa.array(values[:cut], kind), pa.array(values[cut:], kind)])


def test_values_are_numbered_and_gaps_are_marked() -> None:
    found = distinct(pa.chunked_array([pa.array(["b", None, "a"]), pa.array(["a", "b"])]))
    assert found.codes.tolist() == [0, -1, 1, 1, 0]
    assert found.values.to_pylist() == ["b", "a"]


def test_runs_of_integers_are_looked_up_once_each() -> None:
    found = distinct(pa.chunked_array([pa.array([5, 5, 2]), pa.array([2, 5])]))
    assert found.codes.tolist() == [0, 0, 1, 1, 0]
    assert found.values.to_pylist() == [5, 2]


@given(values=cells, cut=st.integers(0, 12), encode=st.booleans())
def test_codes_lead_back_to_the_values(values: list[Any], cut: int, encode: bool) -> None:
    column = in_chunks(values, cut)
    codes, found = distinct(column.dictionary_encode() if encode else column)
    assert [None if code < 0 else found[int(code)].as_py() for code in codes] == values


@pytest.mark.parametrize("encode", [False, True])
def test_a_column_of_gaps_has_no_values(encode: bool) -> None:
    column = pa.chunked_array([pa.nulls(2), pa.nulls(1)])
    found = distinct(column.dictionary_encode() if encode else column)
    assert found.codes.tolist() == [-1, -1, -1]
    assert names(found.values) == []


@pytest.mark.parametrize(
    ("indices", "dictionary"),
    [([0, 1, 2, 0], ["a", None, "b"]), ([0, 1, 2, 3], ["a", None, "b", "a"])],
    ids=["a gap among the entries", "an entry twice"],
)
def test_an_untidy_dictionary_is_tidied(indices: list[int], dictionary: list[str | None]) -> None:
    column = pa.chunked_array([pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(dictionary))])
    found = distinct(column)
    assert found.codes.tolist() == [0, -1, 1, 0]
    assert found.values.to_pylist() == ["a", "b"]


def test_values_are_put_in_the_order_of_their_first_rows_and_unused_ones_left_out() -> None:
    """Rows c, gap, a, c of the dictionary a, b, c: c comes first, then a; nobody has b."""
    found = by_first_row(Distinct(np.array([2, -1, 0, 2], np.int32), pa.array(["a", "b", "c"])))
    assert found.codes.tolist() == [0, -1, 1, 0]
    assert found.values.to_pylist() == ["c", "a"]


def test_a_code_without_row_has_its_first_row_after_the_last() -> None:
    assert first_rows(np.array([1, -1, 1, 0], np.int32), 3).tolist() == [3, 0, 4]


NEW_YEAR = dt.datetime(2024, 1, 1)
TEN = dt.datetime(2024, 1, 1, 10, 0, 0, 500_000)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, -2, None]), ["1", "-2", None]),
        (pa.array([1.0, 2.5, float("nan"), None, 1e20]), ["1", "2.5", None, None, "1e+20"]),
        (pa.array([0.1, 3.0], pa.float32()), ["0.1", "3"]),
        (pa.array([np.float16(2)]), ["2"]),
        (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        (pa.array([True, False, None]), ["true", "false", None]),
        (
            pa.array(["True", "FALSE", "1.0", "-3.00", "1.50", "007", " x"]),
            ["true", "false", "1", "-3", "1.50", "007", " x"],
        ),
        (pa.array(["é"], pa.large_string()), ["é"]),
        (pa.array(["é"], pa.string_view()), ["é"]),
        (pa.array([decimal.Decimal("2.00"), decimal.Decimal("2.50")]), ["2", "2.50"]),
        (pa.array([dt.date(2024, 1, 1)]), ["2024-01-01"]),
        *(
            (pa.array([NEW_YEAR, TEN], pa.timestamp(u)), ["2024-01-01", "2024-01-01 10:00:00.5"])
            for u in ("ms", "us", "ns")
        ),
        (pa.array([dt.datetime(2020, 10, 10, 10, 20)], pa.timestamp("s")), ["2020-10-10 10:20:00"]),
        (pa.array([NEW_YEAR], pa.timestamp("us", "UTC")), ["2024-01-01Z"]),
        (pa.array([b"ab"]), ["ab"]),
        (pa.array([None]), [None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_a_category_is_named_by_its_text(values: pa.Array, expected: list[str | None]) -> None:
    assert names(values) == expected


@pytest.mark.parametrize("values", [pa.array([[1]]), pa.array([{"a": 1}]), pa.array([b"\xff"])], ids=str)
def test_what_has_no_text_form_is_left_to_the_caller(values: pa.Array) -> None:
    with pytest.raises(pa.ArrowException):
        names(values)


def test_numbers_are_parsed_and_the_rest_is_nan() -> None:
    values = pa.array(["1", " 2.5 ", "-1e3", "x", "", "1_000", None, "inf"])
    np.testing.assert_array_equal(numbers(values), [1, 2.5, -1000, np.nan, np.nan, np.nan, np.nan, np.inf])
