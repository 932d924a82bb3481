"""Conversion of numbers from and to Arrow agrees with Arrow's own."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data.columns.arrays import (
    Categorical,
    Contents,
    Numeric,
    array_from_numpy,
    array_to_numpy,
    concat,
    concat_column,
    content_codes,
    stored_values,
    take,
    to_numpy,
)
from pcmcnet.errors import SchemaError

TYPES = ["int8", "uint16", "int32", "int64", "uint64", "float16", "float32", "float64"]


@pytest.mark.parametrize("kind", TYPES)
def test_numbers_from_arrow_agree_with_its_own_conversion(kind: str) -> None:
    whole = pa.array(np.arange(6).astype(kind))
    gaps = pa.array(np.arange(6).astype(kind), mask=np.arange(6) == 3)
    for one in (whole, whole[2:5], whole[:0], gaps, gaps[4:]):
        np.testing.assert_array_equal(array_to_numpy(one), one.to_numpy(zero_copy_only=False), strict=True)
    for chunks in ([whole], [whole[1:], whole], [whole, gaps], []):
        column = pa.chunked_array(chunks, whole.type)
        np.testing.assert_array_equal(to_numpy(column), column.to_numpy(), strict=True)


@pytest.mark.parametrize("kind", TYPES)
def test_numbers_of_any_type_and_layout_convert_to_arrow(kind: str) -> None:
    numbers = np.arange(6).astype(kind)
    for values in (numbers, numbers[::2], numbers[:0]):
        assert array_from_numpy(values).equals(pa.array(values))
        is_missing = np.arange(len(values)) % 3 == 1
        assert array_from_numpy(values, is_missing).equals(pa.array(values, mask=is_missing))


# -- Column arrays -----------------------------------------------------------------------------------------------------
# Taking and appending rows of columns keeps their values.


words = st.lists(st.sampled_from(["a", "b", "c", "é"]), max_size=6)


def categorical(values: list[str], categories: list[str]) -> Categorical:
    return Categorical(np.array([categories.index(v) for v in values], np.int32), tuple(categories))


def test_taking_rows_keeps_all_categories() -> None:
    column = categorical(["x", "y", "x"], ["x", "y"]).take(np.array([2, 0]))
    assert column.plain().tolist() == ["x", "x"]
    assert column.categories == ("x", "y")
    assert len(column) == 2


def test_plain_form_of_numbers_is_unchanged() -> None:
    column = Numeric(np.array([1.5, 2.5], np.float32))
    assert column.plain().tolist() == [1.5, 2.5]
    assert len(column) == 2


def test_take_and_concat_apply_to_all_columns() -> None:
    columns = {"n": Numeric(np.array([1, 2], np.float32)), "c": categorical(["x", "y"], ["x", "y"])}
    both = concat(columns, take(columns, np.array([1])))
    assert stored_values(both["n"]).tolist() == [1, 2, 2]
    assert stored_values(both["c"]).tolist() == [0, 1, 1]


@given(first=words, second=words, seed=st.integers(0, 99))
def test_concat_matches_categories_by_name(first: list[str], second: list[str], seed: int) -> None:
    orders = np.random.default_rng(seed).permuted([["a", "b", "c", "é"]] * 2, axis=1).tolist()
    joined = concat_column(categorical(first, orders[0]), categorical(second, orders[1]))
    assert joined.plain().tolist() == first + second


def contents(codes: list[int], table: list[list[float]]) -> Contents:
    vectors = np.array(table, np.float32).reshape(len(table), -1 if table else 0)
    return Contents(np.array(codes, np.int32), vectors, "vector")


def test_taking_contents_does_not_copy_their_table() -> None:
    column = contents([0, 1, -1, 0], [[1], [2]])
    some = column.take(np.array([3, 2]))
    assert some.table is column.table
    assert [None if row is None else row.tolist() for row in some.plain()] == [[1], None]
    assert stored_values(some).tolist() == [0, -1]


def test_compact_keeps_used_contents_in_row_order() -> None:
    compact = contents([3, -1, 1, 3], [[10], [11], [12], [13]]).compact()
    assert compact.codes.tolist() == [0, -1, 1, 0]
    assert compact.table.tolist() == [[13], [11]]
    assert contents([-1], []).compact().codes.tolist() == [-1]


def test_concat_merges_equal_contents() -> None:
    joined = concat_column(contents([0, -1, 1], [[1, 1], [2, 2]]), contents([1, 0, -1], [[3, 3], [1, 1]]))
    assert joined.codes.tolist() == [0, -1, 1, 0, 2, -1]
    assert joined.table.tolist() == [[1, 1], [2, 2], [3, 3]]
    with pytest.raises(SchemaError, match=r"expected vectors of the same size in both tables, got \(2,\) and \(1,\)"):
        concat_column(contents([0], [[1, 1]]), contents([0], [[1]]))


@given(values=st.lists(st.integers(0, 3), max_size=8))
def test_equal_contents_share_a_code_in_row_order(values: list[int]) -> None:
    codes, first = content_codes(np.array(values, np.float32).reshape(-1, 1))
    assert [values[first[code]] for code in codes] == values
    assert [values[row] for row in first] == list(dict.fromkeys(values))
