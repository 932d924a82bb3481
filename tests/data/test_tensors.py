"""Encoding on a device gives the result of the host, or a problem; tested here on a CPU."""

from collections.abc import Callable, Mapping
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest
import torch

from pcmcnet import ChoiceData
from pcmcnet.data import tensors
from pcmcnet.data.chunks import Chunk, ChunkProblem
from pcmcnet.data.columns.arrays import Categorical, Numeric
from pcmcnet.data.columns.statistics import Span
from pcmcnet.data.encoder import Encoder, SideEncoder
from pcmcnet.data.kinds.category import CategoryCode, UnseenCounts
from pcmcnet.data.kinds.number import BinCode, NumericCode
from pcmcnet.data.tensors import EncodedChunk, encode_rows

CPU = torch.device("cpu")
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
    """Return the table with one value changed."""
    changed = TABLE[column].copy()
    changed[row] = value
    return {**TABLE, column: changed}


def encoder(conflict: str = "error") -> Encoder:
    return Encoder.learn(ChoiceData.from_long(TABLE, conflict=conflict, **ROLES), labels=True)


def encode_chunk(table: Mapping[str, Any], by: Encoder) -> EncodedChunk:
    chunk = encode_rows(by, Chunk(table, SIZES), CPU)
    assert isinstance(chunk, EncodedChunk)
    return chunk


def encode(table: Mapping[str, Any], by: Encoder) -> Any:
    return encode_chunk(table, by).sets


def assert_left_to_the_checked_reader(table: Mapping[str, Any], by: Encoder, reason: str) -> None:
    problem = encode_rows(by, Chunk(table, SIZES), CPU)
    assert isinstance(problem, ChunkProblem)
    assert reason in problem.reason


def assert_same_sets(actual: Any, expected: Any) -> None:
    for name in ("starts", "counts", "numeric", "categorical", "individual_numeric", "individual_categorical"):
        torch.testing.assert_close(getattr(actual, name), getattr(expected, name), rtol=1e-6, atol=0)


def of_pandas(table: pa.Table) -> dict[str, Any]:
    """Return columns as chunks of a pandas frame have them: arrays for numbers, otherwise series."""
    frame = nw.from_native(table.to_pandas(), eager_only=True)
    return {s.name: s.to_numpy() if s.dtype.is_numeric() else s for s in frame.iter_columns()}


@pytest.mark.parametrize("given", [lambda table: table, of_pandas], ids=["arrow", "pandas"])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_clean_rows_are_encoded_as_on_the_host(given: Callable[[pa.Table], Any], kind: type) -> None:
    table = {name: column.astype(kind) if column.dtype.kind == "f" else column for name, column in TABLE.items()}
    by = encoder()
    assert by.features.categorical  # the label
    assert_same_sets(encode(given(pa.table(table)), by), by.encode(ChoiceData.from_long(table, **ROLES)))


def test_numbers_of_several_types_can_be_mixed() -> None:
    """Integers and 32-bit floats are both copied as 64-bit floats."""
    table = {**TABLE, "cost": TABLE["cost"].astype(np.float32), "stops": np.array([0, 1, 2, 0, 3, 1, 1, 0], np.uint16)}
    roles = {**ROLES, "features": ["cost", "stops"]}
    data = ChoiceData.from_long(table, **roles)
    by = Encoder.learn(data)
    assert_same_sets(encode(pa.table(table), by), by.encode(data))


@pytest.mark.parametrize("kind", [">f8", np.float16, np.bool_])
def test_numbers_of_rare_types_are_left_to_the_host(kind: object) -> None:
    table = {**of_pandas(pa.table(TABLE)), "cost": TABLE["cost"].astype(kind)}
    assert_left_to_the_checked_reader(table, encoder(), "a type that needs further checks")


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
    ("column", "row", "value", "reason"),
    [
        ("mode", 1, "bus", "column 'mode': a label occurs twice in a set"),
        ("age", 4, 42.0, "vary within a set"),
        ("home", 4, "town", "column 'home' varies within a set"),
        ("cost", 0, np.nan, "are missing"),
        ("cost", 5, np.inf, "infinite"),
        ("cost", 5, 2.0**53, "too large"),
        ("cost", 5, -(2.0**53), "too large"),
    ],
    ids=["label twice", "number varies", "category varies", "missing", "infinite", "not exact", "below 0, not exact"],
)
def test_invalid_rows_are_a_problem(column: str, row: int, value: object, reason: str) -> None:
    assert_left_to_the_checked_reader(pa.table(with_value(column, row, value)), encoder(), reason)


def test_a_missing_category_is_a_problem() -> None:
    table = pa.table(TABLE).set_column(1, "mode", pa.array([None, *TABLE["mode"][1:].tolist()]))
    assert_left_to_the_checked_reader(table, encoder(), "column 'mode' has missing values")


def test_bins_of_a_curve_are_encoded_from_one_column() -> None:
    """With bins, a column has several codes but is copied once."""
    data = ChoiceData.from_long(TABLE, **ROLES)
    by = Encoder.learn(data, labels=True).with_knots(data).with_bins(4)
    assert len(by.features.numeric) > 1
    assert_same_sets(encode(pa.table(TABLE), by), by.encode(data))


def test_the_largest_exact_number_is_accepted() -> None:
    table = with_value("cost", 5, 2.0**53 - 1)
    by = encoder()
    assert_same_sets(encode(pa.table(table), by), by.encode(ChoiceData.from_long(table, **ROLES)))


@pytest.mark.parametrize(("column", "value"), [("age", 99.0), ("home", "farm")])
def test_conflict_first_uses_the_first_row_of_each_set(column: str, value: object) -> None:
    """A change in the second row of a set has no effect; a change in its first row has."""
    by = encoder("first")
    data = ChoiceData.from_long(TABLE, conflict="first", **ROLES)
    assert_same_sets(encode(pa.table(with_value(column, 1, value)), by), by.encode(data))
    changed = with_value(column, 0, value)
    expected = by.encode(ChoiceData.from_long(changed, conflict="first", **ROLES))
    assert_same_sets(encode(pa.table(changed), by), expected)
    side = "individual_numeric" if column == "age" else "individual_categorical"
    assert not torch.equal(getattr(expected, side), getattr(by.encode(data), side))


def test_adjacent_sets_may_share_labels_and_values() -> None:
    """Two adjacent sets with the same age are two sets, not one that varies."""
    table = {**TABLE, "age": np.repeat([30.0, 30.0, 52.0], SIZES)}
    by = encoder()
    assert_same_sets(encode(pa.table(table), by), by.encode(ChoiceData.from_long(table, **ROLES)))


def test_numbers_that_lose_digits_in_float32_are_reported() -> None:
    """Individuals are counted by set. Columns of float32 are not reported."""
    chunk = encode_chunk(pa.table(TABLE), encoder())
    assert chunk.spans == {"cost": Span(0.5, 8.0, 8, True, True), "age": Span(30.0, 52.0, 3, True, True)}
    narrow = {name: TABLE[name].astype(np.float32) for name in ("cost", "age")}
    assert encode_chunk(pa.table({**TABLE, **narrow}), encoder()).spans == {}


# -- columns --


CODES = (
    NumericCode("plain", 0.3, 1.7, False),
    NumericCode("constant", 2.0, 0.0, True),
    NumericCode("bent", 1.3, 0.7, False, bend=2.5),
    NumericCode("gaps", -0.3, 0.7, True),
    BinCode("plain", -0.1, 0.4, False),
)


@pytest.mark.parametrize("rows", [4, 2**17], ids=["several blocks", "one block"])
def test_numbers_match_those_of_the_host(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "BLOCK_ROWS", rows)
    rng = np.random.default_rng(0)
    columns = {code.name: Numeric(rng.normal(size=9).astype(np.float32)) for code in CODES}
    columns["constant"].values[2] = columns["gaps"].values[5] = np.nan
    values = [columns[code.name].values for code in CODES]
    encoded = tensors.numbers_on_device(CODES, values, 9, CPU)
    np.testing.assert_allclose(encoded.numpy(), SideEncoder(CODES, ()).numbers(columns, 9), rtol=1e-6)
    assert encoded[:, 5:].nonzero().tolist() == [[2, 0], [5, 1]]  # indicators of the two missing values


def test_indices_match_those_of_the_host() -> None:
    side = SideEncoder((), (CategoryCode("a", ("x", "y")), CategoryCode("b", ("u",))))
    columns = {
        "a": Categorical(np.array([0, 1, 2], np.int32), ("y", "new", "x")),
        "b": Categorical(np.array([0, 0, 0], np.int32), ("u",)),
    }
    indices = tensors.indices_on_device(side.codes(columns, UnseenCounts()), 3, CPU)
    assert indices.tolist() == side.indices(columns, 3, UnseenCounts()).tolist() == [[2, 1], [0, 1], [1, 1]]


def test_no_columns_give_empty_rows() -> None:
    assert tensors.numbers_on_device((), [], 5, CPU).shape == (5, 0)
    assert tensors.indices_on_device([], 5, CPU).shape == (5, 0)


def test_columns_are_copied_as_rows_of_a_tensor() -> None:
    """Chunks of integers and of floats."""
    columns = [[np.arange(3) + k, np.array([9.5 - k], np.float32)] for k in range(3)]
    copied = tensors.copy_to_device(columns, 4, torch.float64, CPU)
    assert copied.tolist() == [[k, k + 1, k + 2, 9.5 - k] for k in range(3)]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("columns", [1, 5])
@pytest.mark.parametrize("chunks", [[7], [3, 1, 4]])
def test_a_table_is_copied_column_by_column(kind: pa.DataType, columns: int, chunks: list[int]) -> None:
    """Chunks whose lengths are not multiples of Arrow's eight bytes."""
    values = np.random.default_rng(0).normal(size=(columns, sum(chunks)))
    cut = np.cumsum(chunks)[:-1]
    table = pa.table({f"x{k}": pa.chunked_array(np.split(row, cut), kind) for k, row in enumerate(values)})
    copied = tensors.copy_table_to_device(table, CPU)
    assert copied.tolist() == [column.to_pylist() for column in table.columns]


def test_a_slice_of_a_table_is_copied_alone() -> None:
    table = pa.table({"a": np.arange(9.0), "b": np.arange(9.0) + 0.5})
    assert tensors.copy_table_to_device(table.slice(4, 3), CPU).tolist() == [[4, 5, 6], [4.5, 5.5, 6.5]]


def test_columns_with_uneven_spacing_are_copied() -> None:
    """Arrow stores more bytes for a slice of a longer column, so the columns are not evenly spaced."""
    longer, exact = pa.array(np.arange(20.0)).slice(0, 17), pa.array(np.arange(17.0) + 0.5)
    table = pa.table({"a": longer, "b": exact, "c": longer, "d": exact})
    copied = tensors.copy_table_to_device(table, CPU)
    assert copied.tolist() == [column.to_pylist() for column in table.columns]


@pytest.mark.parametrize("columns", [1, 3])
def test_empty_chunks_are_skipped(columns: int) -> None:
    part = pa.table({f"x{k}": np.arange(4.0) + k for k in range(columns)})
    table = pa.concat_tables([part.slice(0, 0), part, part.slice(2, 0), part])
    copied = tensors.copy_table_to_device(table, CPU)
    assert copied.tolist() == [column.to_pylist() for column in table.columns]
