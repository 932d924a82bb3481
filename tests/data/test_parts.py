"""Some sets of a table, or those of two: the parts behave as tables of their own."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.parts import positions
from pcmcnet.errors import InputError, SchemaError


def random_table(seed: int) -> dict[str, Any]:
    """Up to five sets in any order of rows, some rows unavailable but never all of a set."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(np.repeat(np.arange(rng.integers(1, 6)), 3))
    first = np.isin(np.arange(len(ids)), [np.flatnonzero(ids == i)[0] for i in np.unique(ids)])
    return {
        "id": ids,
        "y": first.astype(int),
        "ok": (first | (rng.random(len(ids)) < 0.6)).astype(int),
        "x": rng.normal(size=len(ids)),
        "c": rng.choice(["u", "v", "w"], len(ids)),
        "who": ids * 1.5,
        "g": np.array(["even", "odd"])[ids % 2],
    }


def read(table: dict[str, Any]) -> ChoiceData:
    roles: Any = {"choice_set": "id", "chosen": "y", "available": "ok", "individual": ["who"], "keep": ["g"]}
    return ChoiceData.from_long(table, features=["x", "c"], **roles)


def assert_same(a: ChoiceData, b: ChoiceData) -> None:
    assert a.fingerprint() == b.fingerprint()
    for name in ("set_ids", "rows", "hidden_rows", "hidden_sets"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert a.keep["g"].plain().tolist() == b.keep["g"].plain().tolist()


@given(seed=st.integers(0, 2**16), data=st.data())
def test_some_sets_behave_as_the_table_of_their_rows(seed: int, data: st.DataObject) -> None:
    table = random_table(seed)
    everything = read(table)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(everything), max_size=len(everything))))
    if not mask.any():
        assert len(everything.subset(mask)) == 0
        return
    rows = np.isin(table["id"], everything.set_ids[mask])
    assert_same(everything.subset(mask), read({name: values[rows] for name, values in table.items()}))


@given(seed=st.integers(0, 2**16))
def test_taking_twice_is_taking_once(seed: int) -> None:
    data = read(random_table(seed))
    order = np.random.default_rng(seed).permutation(len(data))
    half = order[: len(order) // 2 + 1]
    twice, once = data.subset(order).subset(np.arange(len(half))), data.subset(half)
    assert_same(twice, once)


@given(seed=st.integers(0, 2**16))
def test_joined_parts_make_the_whole(seed: int) -> None:
    data = read(random_table(seed))
    k = len(data) // 2
    joined = data.subset(np.arange(k)).concat(data.subset(np.arange(k, len(data))))
    assert joined.fingerprint() == data.fingerprint()
    assert joined.set_ids.tolist() == data.set_ids.tolist()
    assert sorted([*joined.rows, *joined.hidden_rows]) == list(range(data.n_rows))
    assert sorted(joined.hidden_sets) == sorted(data.hidden_sets)
    for part in (joined.subset([0]), joined.subset([-1])):  # rows and sets of unavailable ones still agree
        assert part.fingerprint() in (data.subset([0]).fingerprint(), data.subset([-1]).fingerprint())
        assert sorted([*part.rows, *part.hidden_rows]) == list(range(part.n_rows))


def test_rows_of_the_second_table_follow_those_of_the_first(trips: Any, roles: Any) -> None:
    data = ChoiceData.from_long(trips, **roles)
    both = data.concat(data)
    assert both.rows.tolist() == list(range(10))
    assert both.offsets.tolist() == [0, 2, 5, 7, 10]
    assert both.labels is not None
    assert both.labels.plain().tolist() == trips["mode"] * 2


def test_tables_of_different_schemas_are_not_joined(trips: Any, roles: Any) -> None:
    data = ChoiceData.from_long(trips, **roles)
    other = ChoiceData.from_long(trips, **{**roles, "keep": []})
    with pytest.raises(SchemaError, match="only choice data with equal schemas can be joined"):
        data.concat(other)


def test_positions_count_from_either_end_and_a_mask_counts_as_its_positions() -> None:
    assert positions(np.array([2, -1, 0]), 4).tolist() == [2, 3, 0]
    assert positions(np.array([True, False, True]), 3).tolist() == [0, 2]
    assert positions(np.array([]), 3).tolist() == []
    assert positions(np.array([1], np.uint8), 3).tolist() == [1]


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([True], r"expected a mask of 3 choice sets, got shape \(1,\)"),
        ([0.5], r"expected a list of positions or a mask of choice sets, got float64 of shape \(1,\)"),
        (["a"], "expected a list of positions or a mask of choice sets, got <U1"),
        ([[0]], r"expected a list of positions .* of shape \(1, 1\)"),
        (0, r"expected a list of positions .* of shape \(\)"),
        ([3], "positions must lie between -3 and 2, as there are 3 choice sets; got 3 to 3"),
        ([-4, 0], "positions must lie between -3 and 2, .* got -4 to 0"),
        ([2**64 - 1], "positions must lie between -3 and 2"),
        ([1, 1], "a choice set may be taken once only: the positions repeat"),
        ([2, -1], "a choice set may be taken once only: the positions repeat"),
    ],
)
def test_what_points_at_no_set_is_refused(index: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        positions(np.asarray(index), 3)
