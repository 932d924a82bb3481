"""Ids: whole numbers as they are, none of them missing."""

from typing import Any

import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.data.contents.ids import IdCode
from pcmcnet.errors import SchemaError


def read(values: Any) -> Any:
    table = {"id": ["A"] * len(values), "node": values}
    return ChoiceData.from_long(
        table, choice_set="id", features=["node"], kinds={"node": "id"}, missing="indicator"
    ).features["node"]


def test_ids_stay_what_they_are() -> None:
    column = read([7, 2, 7])
    assert column.codes.tolist() == [0, 1, 0]
    assert IdCode.learn("node", column.table).prepare(column.table).tolist() == [7, 2]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, -2], r"row 1 \(choice set A\): expected a whole number from 0, got -2; 1 such rows"),
        ([1, None], r"row 1 \(choice set A\): expected an id, got nothing; 1 such rows"),
        ([1.5, 2.0], "has the type double: expected whole numbers"),
        (np.array(["a"]), "expected whole numbers"),
    ],
)
def test_what_is_no_id_is_refused(values: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        read(values)
