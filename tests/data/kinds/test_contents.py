"""Codes of all column kinds: learning from parts of a table, missing contents, and JSON."""

import json
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choice_tables import objects, picture
from pcmcnet.data.columns.arrays import Contents
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.kinds.contents import code_from_dict, code_to_dict, learn_codes, prepare
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
def test_a_code_survives_a_json_round_trip(kind: str) -> None:
    code = KINDS[kind].code.learn("x", TABLES[kind])
    restored = code_from_dict(json.loads(json.dumps(code_to_dict(code))))
    assert restored == code
    assert np.array_equal(restored.prepare(TABLES[kind]), code.prepare(TABLES[kind]))


@pytest.mark.parametrize("kind", KINDS)
def test_prepared_contents_have_the_declared_shape(kind: str) -> None:
    code = KINDS[kind].code.learn("x", TABLES[kind])
    prepared = code.prepare(TABLES[kind])
    assert prepared.dtype == code.dtype
    assert len(prepared) == 2
    assert prepared.ndim == 1 + len(code.shape)


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
def test_invalid_entries_are_refused(entries: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        code_from_dict(entries)


def test_codes_are_learnt_from_used_contents_of_all_parts() -> None:
    """The mean of the distinct values 1, 3 and 8 is 4. 100 is in the table, but in no row."""
    first = Contents(np.array([0, 1, 1], np.int32), np.array([[1], [3], [100]], np.float32), "vector")
    second = Contents(np.array([0, 1], np.int32), np.array([[8], [1]], np.float32), "vector")
    (code,) = learn_codes([{"x": first}, {"x": second}])
    assert code.mean == (4.0,)


def test_a_column_without_any_content_is_refused() -> None:
    nothing = Contents(np.array([-1], np.int32), np.zeros((0, 0), np.float32), "vector")
    with pytest.raises(SchemaError, match="'x' has no values in the training data"):
        learn_codes([{"x": nothing}])


def test_a_missing_content_is_blank() -> None:
    code = KINDS["vector"].code.learn("x", TABLES["vector"])
    codes, table = prepare(code, Contents(np.array([1, -1, 1], np.int32), TABLES["vector"], "vector"))
    assert codes.tolist() == [0, 1, 0]
    assert table.tolist() == [[1, 1], [0, 0]]
    codes, table = prepare(code, Contents(np.array([-1], np.int32), TABLES["vector"][:0], "vector"))
    assert (codes.tolist(), table.tolist()) == ([0], [[0, 0]])


# -- Learning ----------------------------------------------------------------------------------------------------------
# Codes learnt from any parts equal those of the whole; each distinct content counts once.


def learnt(kind: Any, *parts: Any) -> Any:
    """Learn a code from one table of distinct contents per part."""
    columns = [{"x": Contents(np.arange(len(table), dtype=np.int32), table, kind)} for table in parts]
    (code,) = learn_codes(iter(columns))
    return code


@given(cuts=st.lists(st.integers(0, 12), max_size=4), seed=st.integers(0, 100))
def test_scales_learnt_in_parts_equal_those_of_the_whole(cuts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(12, 3)).astype(np.float32)
    vectors[:, 2] = 0.1
    instants = np.datetime64("2024-01-01", "us") + rng.choice(10**13, 12, replace=False)
    for kind, table in (("vector", vectors), ("datetime", instants)):
        whole, parts = learnt(kind, table), learnt(kind, *np.split(table, sorted(cuts)), table[:5])
        np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(
            parts.scale, whole.scale, rtol=1e-9, atol=1e-12
        )  # sums of squares about different means
    assert learnt("vector", vectors[:6], vectors[6:]).scale[2] == 0


def test_text_list_and_image_codes_can_be_learnt_in_parts() -> None:
    texts = objects(*[f"room {k} for {10 * k} euros" for k in range(6)])
    whole, parts = learnt("text", texts), learnt("text", texts[:2], texts[1:5], texts[4:])
    assert (parts.mean, parts.scale) == (pytest.approx(whole.mean, rel=1e-12), pytest.approx(whole.scale, rel=1e-12))
    constant = learnt("text", objects("7 beds"), objects("7 rooms"), objects("none"))
    assert constant.scale == 0
    assert learnt("text", objects("a"), objects("b")).mean == 0
    lists = objects(("b", "a"), (), ("c",))
    assert learnt("multi", lists[:1], lists[1:]) == learnt("multi", lists)

    for sizes, modes in (([(5, 4)] * 2, "LL"), ([(5, 4), (4, 5)], "LL"), ([(100, 30), (200, 30)], ["L", "RGB"])):
        pictures = objects(*[picture(0, size, mode) for size, mode in zip(sizes, modes, strict=True)])
        assert learnt("image", pictures[:1], pictures[1:]) == learnt("image", pictures)
    assert learnt("id", np.arange(3), np.arange(5)).kind == "id"


def test_a_column_without_content_in_all_parts_is_refused() -> None:
    nothing = Contents(np.full(2, -1, np.int32), np.empty(0, object), "text")
    with pytest.raises(SchemaError, match="column 'x' has no values in the training data"):
        learn_codes(iter([{"x": nothing}, {"x": nothing}]))
    (code,) = learn_codes(iter([{"x": nothing}, {"x": Contents(np.zeros(1, np.int32), objects("a 5"), "text")}]))
    assert code.name == "x"
