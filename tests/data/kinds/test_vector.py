"""Vectors: reading, errors with their row, and scaling."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.data.kinds.vector import VectorCode
from pcmcnet.errors import SchemaError

ROWS = [[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [5.0, 6.0]]


def read(values: Any, **more: Any) -> ChoiceData:
    table = {"id": ["A", "A", "B", "B"], "v": values}
    return ChoiceData.from_long(table, choice_set="id", features=["v"], kinds={"v": "vector"}, **more)


@pytest.mark.parametrize(
    "values",
    [
        ROWS,
        np.array(ROWS),
        np.array(ROWS, np.float32),
        pa.array(ROWS, pa.list_(pa.float64())),
        pa.array(ROWS, pa.list_(pa.float32(), 2)),
        pa.array([list(map(np.float16, row)) for row in ROWS], pa.large_list(pa.float16())),
        pa.array(ROWS, pa.list_(pa.int64())),
        [str(row) for row in ROWS],
    ],
    ids=["lists", "array", "float32 array", "list", "fixed size", "float16", "int", "text"],
)
def test_equal_vectors_of_any_type_are_stored_once(values: Any) -> None:
    column = read(values).features["v"]
    assert column.kind == "vector"
    assert column.codes.tolist() == [0, 1, 0, 2]
    assert column.table.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert column.table.dtype == np.float32


@pytest.mark.parametrize("ragged", [[5.0], [5.0, 6.0, 7.0], []])
def test_a_vector_of_another_size_is_refused_with_row_and_size(ragged: list[float]) -> None:
    where = rf"column 'v', row 3 \(choice set B\): expected a vector of 2 numbers as in most rows, got {len(ragged)} "
    with pytest.raises(SchemaError, match=where + r"numbers; 1 such row\. Give all vectors the same size"):
        read([*ROWS[:3], ragged])


@pytest.mark.parametrize(("bad", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (1e39, r"1e\+39"), (None, "nan")])
def test_a_coordinate_that_is_not_finite_is_refused_with_its_row(bad: Any, shown: str) -> None:
    where = rf"column 'v', row 1 \(choice set A\): expected 2 finite numbers, got a vector that contains {shown}"
    with pytest.raises(SchemaError, match=where):
        read([ROWS[0], [bad, 4.0], *ROWS[2:]])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, 2.0, 3.0, 4.0], "has type double: expected lists of numbers"),
        ([["a"], ["b"], ["c"], ["d"]], "has type list<.*string>: expected lists of numbers"),
        ([[], [], [], []], "expected vectors of at least one number, got empty lists"),
        (["[1, 2]", "[3, 4]", "1; 2", "[5, 6]"], r"row 2 \(choice set B\): expected a list of numbers .* got '1; 2'"),
    ],
)
def test_other_types_are_refused(values: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        read(values)


def test_missing_vectors_are_allowed_only_if_declared() -> None:
    gaps = [ROWS[0], None, *ROWS[2:]]
    with pytest.raises(SchemaError, match=r"row 1 \(choice set A\): expected a value of kind vector, got nothing; 1 "):
        read(gaps)
    column = read(gaps, missing="indicator").features["v"]
    assert column.codes.tolist() == [0, -1, 0, 1]
    assert column.plain()[1] is None


def test_unavailable_rows_may_hold_invalid_vectors() -> None:
    table = {"id": ["A", "A", "B"], "v": [ROWS[0], [9.0], ROWS[1]], "open": [1, 0, 1]}
    data = ChoiceData.from_long(table, choice_set="id", features=["v"], available="open", kinds={"v": "vector"})
    assert data.features["v"].table.tolist() == ROWS[:2]


def test_coordinates_are_standardised_and_constants_are_0() -> None:
    """1, 5 has mean 3 and standard deviation 2."""
    code = VectorCode.learn("v", np.array([[1, 7], [5, 7]], np.float32))
    assert (code.mean, code.scale) == ((3.0, 7.0), (2.0, 0.0))
    assert code.prepare(np.array([[7, 9], [3, 7]], np.float32)).tolist() == [[2, 0], [0, 0]]


def test_vectors_of_another_size_than_in_training_are_refused() -> None:
    code = VectorCode.learn("v", np.array(ROWS, np.float32))
    with pytest.raises(SchemaError, match="'v': expected vectors of 2 numbers, as in training, got 3"):
        code.prepare(np.zeros((1, 3), np.float32))


def test_coordinates_far_beyond_training_are_refused() -> None:
    code = VectorCode.learn("v", np.array(ROWS, np.float32))
    with pytest.raises(SchemaError, match="1 vectors have coordinates more than 1e"):
        code.prepare(np.array([[1, 2], [1e30, 2]], np.float32))
