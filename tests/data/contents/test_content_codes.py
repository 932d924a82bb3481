"""Codes of all kinds: what they learn from the parts of a table, blank contents, and JSON."""

import json
from functools import partial
from typing import Any

import numpy as np
import pytest

from choice_tables import objects, picture
from pcmcnet.data.column_arrays import Contents
from pcmcnet.data.contents import code_from_dict, code_to_dict, learn_codes, prepare
from pcmcnet.data.kinds import KINDS
from pcmcnet.errors import SchemaError

png = partial(picture, size=(9, 6))
TABLES = {
    "vector": np.array([[1, 2], [3, 5]], np.float32),
    "datetime": np.array(["2024-01-01", "2024-02-05"], "datetime64[us]"),
    "multi": objects(("a", "b"), ("c",)),
    "text": objects("a quiet room for 20", "pool"),
    "image": objects(png(1), png(2)),
    "id": np.array([5, 2]),
}


def test_every_kind_has_a_code() -> None:
    assert set(KINDS) == set(TABLES)


@pytest.mark.parametrize("kind", KINDS)
def test_a_code_survives_json(kind: str) -> None:
    code = KINDS[kind].code.learn("x", TABLES[kind])
    again = code_from_dict(json.loads(json.dumps(code_to_dict(code))))
    assert again == code
    assert np.array_equal(again.prepare(TABLES[kind]), code.prepare(TABLES[kind]))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_prepared_has_the_form_that_the_code_promises(kind: str) -> None:
    code = KINDS[kind].code.learn("x", TABLES[kind])
    found = code.prepare(TABLES[kind])
    assert found.dtype == code.dtype
    assert len(found) == 2
    assert found.ndim == 1 + len(code.shape)


@pytest.mark.parametrize(
    "entries",
    [
        {"kind": "vector", "name": "x", "mean": [1.0], "scale": [float("nan")]},
        {"kind": "vector", "name": "x", "mean": [1.0, 2.0], "scale": [1.0]},
        {"kind": "vector", "name": "x", "mean": [], "scale": []},
        {"kind": "datetime", "name": "x", "mean": 0.0, "scale": -1.0},
        {"kind": "multi", "name": "x", "categories": [1]},
        {"kind": "multi", "name": 3, "categories": ["a"]},
        {"kind": "text", "name": "x", "mean": 0.0, "scale": float("inf")},
        {"kind": "image", "name": "x", "channels": 2, "height": 8, "width": 8},
        {"kind": "image", "name": "x", "channels": 1, "height": 8, "width": 8000},
        {"kind": "picture", "name": "x"},
        {"kind": "datetime", "name": "x"},
    ],
)
def test_altered_entries_are_refused(entries: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        code_from_dict(entries)


def test_codes_are_learnt_from_the_contents_in_use_of_all_parts() -> None:
    """The mean of the distinct 1, 3 and 8 is 4; 100 is in the table, but no row has it."""
    first = Contents(np.array([0, 1, 1], np.int32), np.array([[1], [3], [100]], np.float32), "vector")
    second = Contents(np.array([0, 1], np.int32), np.array([[8], [1]], np.float32), "vector")
    (code,) = learn_codes([{"x": first}, {"x": second}])
    assert code.mean == (4.0,)


def test_a_column_without_any_content_is_refused() -> None:
    nothing = Contents(np.array([-1], np.int32), np.zeros((0, 0), np.float32), "vector")
    with pytest.raises(SchemaError, match="'x' has no content at all in the training part"):
        learn_codes([{"x": nothing}])


def test_a_gap_is_a_blank_content() -> None:
    code = KINDS["vector"].code.learn("x", TABLES["vector"])
    codes, table = prepare(code, Contents(np.array([1, -1, 1], np.int32), TABLES["vector"], "vector"))
    assert codes.tolist() == [0, 1, 0]
    assert table.tolist() == [[1, 1], [0, 0]]
    codes, table = prepare(code, Contents(np.array([-1], np.int32), TABLES["vector"][:0], "vector"))
    assert (codes.tolist(), table.tolist()) == ([0], [[0, 0]])
