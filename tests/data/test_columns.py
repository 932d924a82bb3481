"""Columns: rows taken and appended keep their values."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data.columns import Categorical, Numeric, concat, concat_column, raw, take

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
