"""Codes learnt from parts are those of the whole, whatever the parts, and each content counts once."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choice_tables import objects, picture
from pcmcnet.data.column_arrays import Contents
from pcmcnet.data.contents import learn_codes
from pcmcnet.errors import SchemaError


def learnt(kind: Any, *parts: Any) -> Any:
    """Learn from tables of distinct contents, one a part."""
    columns = [{"x": Contents(np.arange(len(table), dtype=np.int32), table, kind)} for table in parts]
    (code,) = learn_codes(iter(columns))
    return code


@given(cuts=st.lists(st.integers(0, 12), max_size=4), seed=st.integers(0, 100))
def test_vectors_and_instants_have_the_scale_of_the_whole(cuts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(12, 3)).astype(np.float32)
    vectors[:, 2] = 0.1
    instants = np.datetime64("2024-01-01", "us") + rng.choice(10**13, 12, replace=False)
    for kind, table in (("vector", vectors), ("datetime", instants)):
        whole, parts = learnt(kind, table), learnt(kind, *np.split(table, sorted(cuts)), table[:5])
        np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(parts.scale, whole.scale, rtol=1e-9, atol=1e-12)  # squares about another mean
    assert learnt("vector", vectors[:6], vectors[6:]).scale[2] == 0


def test_numbers_in_texts_names_in_lists_and_sizes_of_pictures_are_those_of_the_whole() -> None:
    texts = objects(*[f"room {k} for {10 * k} euros" for k in range(6)])
    whole, parts = learnt("text", texts), learnt("text", texts[:2], texts[1:5], texts[4:])
    assert (parts.mean, parts.scale) == (pytest.approx(whole.mean, rel=1e-12), pytest.approx(whole.scale, rel=1e-12))
    same = learnt("text", objects("7 beds"), objects("7 rooms"), objects("none"))
    assert same.scale == 0
    assert learnt("text", objects("a"), objects("b")).mean == 0
    lists = objects(("b", "a"), (), ("c",))
    assert learnt("multi", lists[:1], lists[1:]) == learnt("multi", lists)

    for sizes, modes in (([(5, 4)] * 2, "LL"), ([(5, 4), (4, 5)], "LL"), ([(100, 30), (200, 30)], ["L", "RGB"])):
        pictures = objects(*[picture(0, size, mode) for size, mode in zip(sizes, modes, strict=True)])
        assert learnt("image", pictures[:1], pictures[1:]) == learnt("image", pictures)
    assert learnt("id", np.arange(3), np.arange(5)).kind == "id"


def test_a_column_without_content_in_any_part_is_refused() -> None:
    nothing = Contents(np.full(2, -1, np.int32), np.empty(0, object), "text")
    with pytest.raises(SchemaError, match="column 'x' has no content at all in the training part"):
        learn_codes(iter([{"x": nothing}, {"x": nothing}]))
    (code,) = learn_codes(iter([{"x": nothing}, {"x": Contents(np.zeros(1, np.int32), objects("a 5"), "text")}]))
    assert code.name == "x"
