"""Data frames of choice sets have the rows of the table, and are read as the same data."""

import logging
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choice_tables import picture
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError

TABLE = {
    "trip": [7, 3, 7, 3, 3],
    "mode": ["car", "bus", "bus", "car", "tram"],
    "took": [1, 0, 0, 1, 0],
    "ok": [1, 1, 1, 1, 0],
    "cost": [2.0, 1.0, 1.5, 3.0, 9.0],
    "shade": ["red", None, "blue", "red", "red"],
    "income": [5, 4, 5, 4, 4],
    "who": [12, 11, 12, 11, 11],
    "w": [0.5, 2.0, 0.5, 2.0, 2.0],
}
ROLES: dict[str, Any] = {
    "choice_set": "trip",
    "chosen": "took",
    "alternative": "mode",
    "available": "ok",
    "features": ["cost", "shade"],
    "individual": ["income"],
    "person": "who",
    "weight": "w",
    "missing": "indicator",
}


def assert_same(data: ChoiceData) -> None:
    """Require that the data frame of the data is read as the same data."""
    back = ChoiceData.from_schema(data.to_frame(), data.schema)
    assert back.fingerprint() == data.fingerprint()
    assert back.set_ids.tolist() == data.set_ids.tolist()
    for name in ("rows", "hidden_rows", "hidden_sets"):
        np.testing.assert_array_equal(getattr(back, name), getattr(data, name))
    assert {k: v.plain().tolist() for k, v in back.keep.items()} == {
        k: v.plain().tolist() for k, v in data.keep.items()
    }


def test_a_frame_has_the_rows_and_columns_of_the_table() -> None:
    """The last row is not available, so its label and features are not stored. Numbers are exact in float32."""
    data = ChoiceData.from_long(TABLE, **ROLES)
    frame = data.to_frame()
    assert list(frame.columns) == ["trip", "took", "mode", "ok", "w", "who", "income", "cost", "shade"]
    expected = pd.DataFrame({**TABLE, "who": list(map(str, TABLE["who"]))})[list(frame.columns)]
    expected.loc[4, ["mode", "cost", "shade"]] = None
    pd.testing.assert_frame_equal(frame, expected, check_dtype=False)
    assert_same(data)


@st.composite
def tables(draw: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a table with rows in any order, and roles of which some are left out."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    ids = rng.permutation(np.repeat(np.arange(rng.integers(1, 6)), 3))
    first = np.isin(np.arange(len(ids)), [np.flatnonzero(ids == i)[0] for i in np.unique(ids)])
    place = np.array([(ids[:k] == ids[k]).sum() for k in range(len(ids))])
    table = {
        "id": ids,
        "y": first.astype(int),
        "ok": (first | (rng.random(len(ids)) < 0.6)).astype(int),
        "mode": np.array(["a", "b", "c"])[place],
        "x": np.where(rng.random(len(ids)) < 0.2, np.nan, rng.normal(size=len(ids))),
        "c": rng.choice(np.array(["u", "v", None], object), len(ids)),
        "income": ids * 0.1,
        "g": np.array(["even", "odd"])[ids % 2],
        "w": 0.1 + ids,
        "who": ids // 2 + 0.5,
    }
    roles: dict[str, Any] = {"choice_set": "id", "chosen": "y", "features": ["x", "c"], "missing": "indicator"}
    options = {"available": "ok", "alternative": "mode", "individual": ["income"], "keep": ["g"], "weight": "w"}
    options |= {"person": "who", "outside": draw(st.sampled_from(["none", "b"]))}
    chosen = draw(st.sets(st.sampled_from(sorted(options))))
    return table, {**roles, **{role: value for role, value in options.items() if role in chosen}}


@given(drawn=tables())
def test_a_frame_is_read_as_the_same_data(drawn: tuple[dict[str, Any], dict[str, Any]]) -> None:
    table, roles = drawn
    data = ChoiceData.from_long(table, **roles)
    if data.added == 0 or data.labels is None:
        assert len(data.to_frame()) == len(table["id"])
    back = ChoiceData.from_schema(data.to_frame(), data.schema)
    assert back.fingerprint() == data.fingerprint()
    part = data.subset(np.arange(len(data)) % 2 == 0)
    assert ChoiceData.from_schema(part.to_frame(), part.schema).fingerprint() == part.fingerprint()


def test_contents_are_read_as_the_same_data() -> None:
    table = {
        "id": [1, 1, 2, 2, 2],
        "y": [1, 0, 0, 1, 0],
        "ok": [1, 1, 1, 1, 0],
        "v": [[1.0, 2.0], [0.0, 1.0], [1.0, 2.0], [4.0, 4.0], [0.0, 0.0]],
        "at": ["2024-01-01T10:30", "2024-01-02", "2024-01-02", "2024-01-01", "2024-01-01"],
        "tags": [["a", "b"], [], ["b"], ["c", "a"], ["a"]],
        "note": ["good food", "bad", "good food", "", "none"],
        "photo": [picture(0), picture(200), picture(0), picture(90), picture(1)],
        "item": [2**60, 3, 4, 3, 5],
    }
    kinds = {"v": "vector", "at": "datetime", "tags": "multi", "note": "text", "photo": "image", "item": "id"}
    roles: dict[str, Any] = {"choice_set": "id", "chosen": "y", "features": [*kinds], "kinds": kinds}
    assert_same(ChoiceData.from_long(table, **roles))
    assert_same(ChoiceData.from_long(table, **roles, available="ok"))
    empty = {**table, "tags": [[]] * 5, "v": [None] * 5, "at": [None] * 5, "note": [None] * 5, "photo": [None] * 5}
    assert_same(ChoiceData.from_long(empty, **roles, missing="indicator"))
    outside = ChoiceData.from_long(table, **roles, outside="none")
    assert ChoiceData.from_schema(outside.to_frame(), outside.schema).fingerprint() == outside.fingerprint()


def test_outside_options_have_rows_only_with_labels(caplog: pytest.LogCaptureFixture) -> None:
    roles = {"choice_set": "trip", "chosen": "took", "features": ["cost"], "outside": "none"}
    table = {**TABLE, "took": [0, 0, 0, 1, 0]}
    plain, labelled = (ChoiceData.from_long(table, **roles, **label) for label in ({}, {"alternative": "mode"}))
    assert (len(plain.to_frame()), len(labelled.to_frame())) == (5, 7)
    assert labelled.to_frame()["mode"].tolist()[5:] == ["none", "none"]
    with caplog.at_level(logging.WARNING, "pcmcnet"):
        for data in (plain, labelled):
            back = ChoiceData.from_schema(data.to_frame(), data.schema)
            assert back.fingerprint() == data.fingerprint()
    assert "are ignored" not in caplog.text


def test_rankings_have_one_row_per_alternative() -> None:
    """In the first ranking the only alternative without a rank is the last; the second ranking is partial."""
    table = {
        "person": [1, 1, 1, 2, 2, 2, 2],
        "mode": ["a", "b", "c", "a", "b", "c", "d"],
        "rank": [2, 1, 3, None, 1, None, 2],
        "cost": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
    }
    roles = {"choice_set": "person", "rank": "rank", "alternative": "mode", "features": ["cost"]}
    data = ChoiceData.from_long(table, **roles)
    frame = data.to_frame()
    assert frame["rank"].tolist() == [2, 1, None, None, 1, None, 2]
    assert frame["mode"].tolist() == table["mode"]
    assert_same(data)
    assert_same(data.subset([2, 3]))
    with pytest.raises(InputError, match="choice set 1/2 belongs to a ranking whose earlier choices are not"):
        data.subset([1, 2]).to_frame()


def test_a_wide_table_becomes_long() -> None:
    table = {"choice": ["car", "bus"], "car_cost": [1.0, 2.0], "bus_cost": [3.0, 4.0], "age": [30, 40]}
    features = {"cost": "{alternative}_cost"}
    data = ChoiceData.from_wide(
        table, chosen="choice", alternatives=["car", "bus"], features=features, individual=["age"]
    )
    assert data.to_frame()["cost"].tolist() == [1, 3, 2, 4]
    assert_same(data)


def test_tables_without_choices_or_rows_have_frames() -> None:
    data = ChoiceData.from_long(TABLE, choice_set="trip", features=["cost"])
    assert list(data.to_frame().columns) == ["trip", "cost"]
    assert_same(data)
    assert data.subset([]).to_frame().shape == (0, 2)


def test_repeated_ids_are_refused() -> None:
    data = ChoiceData.from_long(TABLE, **ROLES)
    with pytest.raises(InputError, match="two choice sets have the same id"):
        data.concat(data).to_frame()
