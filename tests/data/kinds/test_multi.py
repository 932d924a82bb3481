"""Lists of categories: order does not matter, repetition does, and unseen categories are dropped."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from choice_tables import read_column
from pcmcnet.data.kinds.multi import MultiCode
from pcmcnet.errors import SchemaError

read = partial(read_column, "has", "multi")


def test_lists_in_any_order_are_the_same_content() -> None:
    column = read([["pool", "wifi"], [], ["wifi", "pool"], ["wifi", "wifi"]])
    assert column.codes.tolist() == [0, 1, 0, 2]
    assert column.table.tolist() == [("pool", "wifi"), (), ("wifi", "wifi")]


def test_list_entries_are_named_like_categories() -> None:
    assert read([[1, 2], [2]]).table.tolist() == [("1", "2"), ("2",)]
    assert read(['["pool", "wifi"]', "[]"]).table.tolist() == [("pool", "wifi"), ()]


def test_missing_lists_are_allowed_only_if_declared() -> None:
    assert read([["a"], None, []], missing="indicator").codes.tolist() == [0, -1, 1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([["a"], ["b", None]], r"row 1 \(choice set A\): expected the name of a category, got nothing; 1 such row"),
        ([["a"], None], r"row 1 \(choice set A\): expected a value of kind multi, got nothing"),
        (["a;b"], "row 0 .* expected a list of names such as .*, got 'a;b'"),
        ([3], "has type int64: expected lists of names"),
        ([[["a"]]], "expected lists of names"),
    ],
)
def test_values_that_are_not_lists_of_names_are_refused(values: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        read(values)


def test_categories_unseen_in_training_are_dropped() -> None:
    table = np.empty(3, object)
    table[:] = [("b", "c"), (), ("a", "b", "b")]
    code = MultiCode.learn("has", table[:2])
    assert code.categories == ("b", "c")
    assert code.prepare(table).tolist() == [[1, 2], [0, 0], [1, 1]]


def test_empty_lists_have_one_column() -> None:
    table = np.empty(1, object)
    table[:] = [()]
    assert MultiCode("has", ("a",)).prepare(table).tolist() == [[0]]
