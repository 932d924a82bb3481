"""Lists of categories: order does not count, number does, and words never seen are none."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from choice_tables import read_column
from pcmcnet.data.kinds.multi import MultiCode
from pcmcnet.errors import SchemaError

read = partial(read_column, "has", "multi")


def test_lists_with_the_same_words_are_one_content() -> None:
    column = read([["pool", "wifi"], [], ["wifi", "pool"], ["wifi", "wifi"]])
    assert column.codes.tolist() == [0, 1, 0, 2]
    assert column.table.tolist() == [("pool", "wifi"), (), ("wifi", "wifi")]


def test_numbers_and_text_files_name_categories_like_a_categorical_column() -> None:
    assert read([[1, 2], [2]]).table.tolist() == [("1", "2"), ("2",)]
    assert read(['["pool", "wifi"]', "[]"]).table.tolist() == [("pool", "wifi"), ()]


def test_gaps_are_admitted_as_the_schema_says() -> None:
    assert read([["a"], None, []], missing="indicator").codes.tolist() == [0, -1, 1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([["a"], ["b", None]], r"row 1 \(choice set A\): expected the name of a category, got nothing; 1 such rows"),
        ([["a"], None], r"row 1 \(choice set A\): expected a content of kind multi, got nothing"),
        (["a;b"], "row 0 .* expected a list of names such as .*, got 'a;b'"),
        ([3], "has type int64: expected lists of names"),
        ([[["a"]]], "expected lists of names"),
    ],
)
def test_what_is_no_list_of_names_is_refused(values: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        read(values)


def test_the_vocabulary_is_that_of_training_and_other_words_are_none() -> None:
    table = np.empty(3, object)
    table[:] = [("b", "c"), (), ("a", "b", "b")]
    code = MultiCode.learn("has", table[:2])
    assert code.categories == ("b", "c")
    assert code.prepare(table).tolist() == [[1, 2], [0, 0], [1, 1]]


def test_lists_that_are_all_empty_have_one_place() -> None:
    table = np.empty(1, object)
    table[:] = [()]
    assert MultiCode("has", ("a",)).prepare(table).tolist() == [[0]]
