"""Rows that a device encodes and checks: what the usual way makes of them, or a refusal; computed here on a CPU."""

from collections.abc import Callable, Mapping
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest
import torch

from pcmcnet import ChoiceData
from pcmcnet.data.clean_rows import CleanRows
from pcmcnet.data.encoding import Encoder
from pcmcnet.data.float32_resolution import Span
from pcmcnet.errors import SchemaError

SIZES = np.array([3, 2, 3])
ROLES: dict[str, Any] = {
    "choice_set": "trip",
    "alternative": "mode",
    "features": ["cost"],
    "individual": ["age", "home"],
}
TABLE: dict[str, np.ndarray] = {
    "trip": np.repeat([7, 3, 5], SIZES),
    "mode": np.array(["bus", "car", "bike", "car", "bus", "bike", "bus", "car"]),
    "cost": np.array([3.0, 1.5, 2.0, 4.0, 8.0, 1.0, 0.5, 2.5]),
    "age": np.repeat([30.0, 41.0, 52.0], SIZES),
    "home": np.repeat(["town", "farm", "town"], SIZES),
}


def with_value(column: str, row: int, value: object) -> dict[str, np.ndarray]:
    """The table with another value in one place."""
    changed = TABLE[column].copy()
    changed[row] = value
    return {**TABLE, column: changed}


def encoder(conflict: str = "error") -> Encoder:
    return Encoder.learn(ChoiceData.from_long(TABLE, conflict=conflict, **ROLES), labels=True)


def encode(table: Mapping[str, Any], by: Encoder) -> Any:
    return CleanRows(table, SIZES, by, torch.device("cpu")).encode()


def assert_same_sets(found: Any, expected: Any) -> None:
    for name in ("starts", "counts", "numeric", "categorical", "individual_numeric", "individual_categorical"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-6, atol=0)


def of_pandas(table: pa.Table) -> dict[str, Any]:
    """Columns as pieces of a pandas frame have them: arrays of numbers, series of others."""
    frame = nw.from_native(table.to_pandas(), eager_only=True)
    return {s.name: s.to_numpy() if s.dtype.is_numeric() else s for s in frame.iter_columns()}


@pytest.mark.parametrize("given", [lambda table: table, of_pandas], ids=["arrow", "pandas"])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_clean_rows_are_encoded_as_in_the_usual_way(given: Callable[[pa.Table], Any], kind: type) -> None:
    table = {name: column.astype(kind) if column.dtype.kind == "f" else column for name, column in TABLE.items()}
    by = encoder()
    assert by.features.categorical  # the label
    assert_same_sets(encode(given(pa.table(table)), by), by.encode(ChoiceData.from_long(table, **ROLES)))


def test_numbers_of_several_types_stand_side_by_side() -> None:
    """Whole numbers beside fractions of 32 bits: both go over as fractions of 64."""
    table = {**TABLE, "cost": TABLE["cost"].astype(np.float32), "stops": np.array([0, 1, 2, 0, 3, 1, 1, 0], np.uint16)}
    roles = {**ROLES, "features": ["cost", "stops"]}
    data = ChoiceData.from_long(table, **roles)
    by = Encoder.learn(data)
    assert_same_sets(encode(pa.table(table), by), by.encode(data))


@pytest.mark.parametrize("kind", [">f8", np.float16, np.bool_])
def test_numbers_of_seldom_types_are_left_to_the_usual_way(kind: object) -> None:
    with pytest.raises(SchemaError, match="to be read in the usual way"):
        encode({**of_pandas(pa.table(TABLE)), "cost": TABLE["cost"].astype(kind)}, encoder())


def test_a_table_may_have_no_numbers_at_all() -> None:
    roles = {**ROLES, "features": [], "individual": ["home"]}
    data = ChoiceData.from_long(TABLE, **roles)
    by = Encoder.learn(data, labels=True)
    assert_same_sets(encode(pa.table(TABLE), by), by.encode(data))


def test_categories_may_be_numbers() -> None:
    table = {**TABLE, "home": np.repeat([2, 1, 2], SIZES)}
    roles = {**ROLES, "categorical": ["home"]}
    data = ChoiceData.from_long(table, **roles)
    by = Encoder.learn(data, labels=True)
    for rows in (pa.table(table), of_pandas(pa.table(table))):
        assert_same_sets(encode(rows, by), by.encode(data))


@pytest.mark.parametrize(
    ("column", "row", "value"),
    [
        *(("mode", 1, "bus"), ("age", 4, 42.0), ("home", 4, "town")),
        *(("cost", 0, np.nan), ("cost", 5, np.inf), ("cost", 5, 2.0**53), ("cost", 5, -(2.0**53))),
    ],
    ids=["label twice", "number varies", "category varies", "gap", "infinite", "not exact", "below 0, not exact"],
)
def test_rows_that_are_not_clean_are_refused(column: str, row: int, value: object) -> None:
    with pytest.raises(SchemaError, match="to be read in the usual way"):
        encode(pa.table(with_value(column, row, value)), encoder())


def test_the_largest_number_that_is_surely_exact_is_clean() -> None:
    table = with_value("cost", 5, 2.0**53 - 1)
    by = encoder()
    assert_same_sets(encode(pa.table(table), by), by.encode(ChoiceData.from_long(table, **ROLES)))


@pytest.mark.parametrize(("column", "value"), [("age", 99.0), ("home", "farm")])
def test_of_columns_that_may_vary_the_first_row_of_each_set_counts(column: str, value: object) -> None:
    """The second row of the first set differs: nothing changes. In its first row the new value counts."""
    by = encoder("first")
    data = ChoiceData.from_long(TABLE, conflict="first", **ROLES)
    assert_same_sets(encode(pa.table(with_value(column, 1, value)), by), by.encode(data))
    changed = with_value(column, 0, value)
    expected = by.encode(ChoiceData.from_long(changed, conflict="first", **ROLES))
    assert_same_sets(encode(pa.table(changed), by), expected)
    side = "individual_numeric" if column == "age" else "individual_categorical"
    assert not torch.equal(getattr(expected, side), getattr(by.encode(data), side))


def test_the_same_label_may_be_in_several_sets_and_two_equal_numbers_side_by_side() -> None:
    """Sets that end and begin with the same age are two sets, not one that varies."""
    table = {**TABLE, "age": np.repeat([30.0, 30.0, 52.0], SIZES)}
    by = encoder()
    assert_same_sets(encode(pa.table(table), by), by.encode(ChoiceData.from_long(table, **ROLES)))


def test_numbers_wider_than_float32_are_told_as_whole_ones_that_lose_digits() -> None:
    """So that no rounding noise excuses them; those of individuals are counted by set. Of float32 nothing is told."""
    rows = CleanRows(pa.table(TABLE), SIZES, encoder(), torch.device("cpu"))
    rows.encode()
    assert rows.spans == {"cost": Span(0.5, 8.0, 8, True, True), "age": Span(30.0, 52.0, 3, True, True)}
    narrow = {name: TABLE[name].astype(np.float32) for name in ("cost", "age")}
    rows = CleanRows(pa.table({**TABLE, **narrow}), SIZES, encoder(), torch.device("cpu"))
    rows.encode()
    assert rows.spans == {}
