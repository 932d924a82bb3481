"""Columns: rows taken and appended keep their values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data.column_arrays import Categorical, Contents, Numeric, concat, concat_column, number_contents, raw, take
from pcmcnet.errors import SchemaError

words = st.lists(st.sampled_from(["a", "b", "c", "é"]), max_size=6)


def categorical(values: list[str], categories: list[str]) -> Categorical:
    return Categorical(np.array([categories.index(v) for v in values], np.int32), tuple(categories))


def test_taking_rows_keeps_all_categories() -> None:
    column = categorical(["x", "y", "x"], ["x", "y"]).take(np.array([2, 0]))
    assert column.plain().tolist() == ["x", "x"]
    assert column.categories == ("x", "y")
    assert len(column) == 2


def test_numbers_are_their_own_plain_form() -> None:
    column = Numeric(np.array([1.5, 2.5], np.float32))
    assert column.plain().tolist() == [1.5, 2.5]
    assert len(column) == 2


def test_columns_are_taken_and_appended_together() -> None:
    columns = {"n": Numeric(np.array([1, 2], np.float32)), "c": categorical(["x", "y"], ["x", "y"])}
    both = concat(columns, take(columns, np.array([1])))
    assert raw(both["n"]).tolist() == [1, 2, 2]
    assert raw(both["c"]).tolist() == [0, 1, 1]


@given(first=words, second=words, seed=st.integers(0, 99))
def test_appended_categories_are_joined_by_name(first: list[str], second: list[str], seed: int) -> None:
    orders = np.random.default_rng(seed).permuted([["a", "b", "c", "é"]] * 2, axis=1).tolist()
    joined = concat_column(categorical(first, orders[0]), categorical(second, orders[1]))
    assert joined.plain().tolist() == first + second


def contents(codes: list[int], table: list[list[float]]) -> Contents:
    vectors = np.array(table, np.float32).reshape(len(table), -1 if table else 0)
    return Contents(np.array(codes, np.int32), vectors, "vector")


def test_contents_are_taken_without_copying_their_table() -> None:
    column = contents([0, 1, -1, 0], [[1], [2]])
    some = column.take(np.array([3, 2]))
    assert some.table is column.table
    assert [None if row is None else row.tolist() for row in some.plain()] == [[1], None]
    assert raw(some).tolist() == [0, -1]


def test_compact_contents_are_those_in_use_in_the_order_of_their_rows() -> None:
    found = contents([3, -1, 1, 3], [[10], [11], [12], [13]]).compact()
    assert found.codes.tolist() == [0, -1, 1, 0]
    assert found.table.tolist() == [[13], [11]]
    assert contents([-1], []).compact().codes.tolist() == [-1]


def test_appended_contents_are_joined_by_what_they_are() -> None:
    joined = concat_column(contents([0, -1, 1], [[1, 1], [2, 2]]), contents([1, 0, -1], [[3, 3], [1, 1]]))
    assert joined.codes.tolist() == [0, -1, 1, 0, 2, -1]
    assert joined.table.tolist() == [[1, 1], [2, 2], [3, 3]]
    with pytest.raises(SchemaError, match=r"only vectors of one size can be joined, got \(2,\) and \(1,\)"):
        concat_column(contents([0], [[1, 1]]), contents([0], [[1]]))


@given(values=st.lists(st.integers(0, 3), max_size=8))
def test_equal_contents_have_one_number_by_first_row(values: list[int]) -> None:
    codes, first = number_contents(np.array(values, np.float32).reshape(-1, 1))
    assert [values[first[code]] for code in codes] == values
    assert [values[row] for row in first] == list(dict.fromkeys(values))
