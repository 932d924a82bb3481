"""Ids are unchanged integers without missing values."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from choice_tables import read_column
from pcmcnet.data.kinds.id import IdCode
from pcmcnet.errors import SchemaError

read = partial(read_column, "node", "id", missing="indicator")


def test_ids_are_unchanged() -> None:
    column = read([7, 2, 7])
    assert column.codes.tolist() == [0, 1, 0]
    assert IdCode.learn("node", column.table).prepare(column.table).tolist() == [7, 2]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, -2], r"row 1 \(choice set A\): expected a whole number of at least 0, got -2; 1 such row"),
        ([1, None], r"row 1 \(choice set A\): expected an id, got nothing; 1 such row"),
        ([1.5, 2.0], "has type double: expected whole numbers"),
        (np.array(["a"]), "expected whole numbers"),
    ],
)
def test_values_that_are_not_ids_are_refused(values: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        read(values)
