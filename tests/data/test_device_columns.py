"""What a GPU makes of raw columns is what the host makes of them; computed here on a CPU by the same operators."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from pcmcnet.data import device_columns
from pcmcnet.data.column_arrays import Categorical, Numeric
from pcmcnet.data.encoding import SideEncoder
from pcmcnet.data.kinds.category import CategoryCode, Unseen
from pcmcnet.data.kinds.number import NumericCode

CPU = torch.device("cpu")
CODES = (
    NumericCode("plain", 0.3, 1.7, False),
    NumericCode("constant", 2.0, 0.0, True),
    NumericCode("bent", 1.3, 0.7, False, bend=2.5),
    NumericCode("gaps", -0.3, 0.7, True),
)


@pytest.mark.parametrize("rows", [4, 2**17], ids=["several blocks", "one block"])
def test_numbers_are_those_of_the_host(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_columns, "_ROWS", rows)
    rng = np.random.default_rng(0)
    values = [rng.normal(size=9).astype(np.float32) for _ in CODES]
    values[1][2] = values[3][5] = np.nan
    columns = {code.name: Numeric(column) for code, column in zip(CODES, values, strict=True)}
    found = device_columns.standardised(CODES, values, 9, CPU)
    np.testing.assert_allclose(found.numpy(), SideEncoder(CODES, ()).numbers(columns, 9), rtol=1e-6)
    assert found[:, 4:].nonzero().tolist() == [[2, 0], [5, 1]]  # indicators of the two gaps


def test_indices_are_those_of_the_host() -> None:
    side = SideEncoder((), (CategoryCode("a", ("x", "y")), CategoryCode("b", ("u",))))
    columns = {
        "a": Categorical(np.array([0, 1, 2], np.int32), ("y", "new", "x")),
        "b": Categorical(np.array([0, 0, 0], np.int32), ("u",)),
    }
    found = device_columns.indices(side.codes(columns, Unseen()), 3, CPU)
    assert found.tolist() == side.indices(columns, 3, Unseen()).tolist() == [[2, 1], [0, 1], [1, 1]]


def test_no_columns_give_empty_rows() -> None:
    assert device_columns.standardised((), [], 5, CPU).shape == (5, 0)
    assert device_columns.indices([], 5, CPU).shape == (5, 0)


def test_columns_are_copied_one_beneath_the_other() -> None:
    """Chunks of whole numbers and of fractions."""
    columns = [[np.arange(3) + k, np.array([9.5 - k], np.float32)] for k in range(3)]
    found = device_columns.sent(columns, 4, torch.float64, CPU)
    assert found.tolist() == [[k, k + 1, k + 2, 9.5 - k] for k in range(3)]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("columns", [1, 5])
@pytest.mark.parametrize("chunks", [[7], [3, 1, 4]])
def test_a_table_is_copied_column_beneath_column(kind: pa.DataType, columns: int, chunks: list[int]) -> None:
    """Chunks whose lengths are no multiples of Arrow's eight bytes."""
    values = np.random.default_rng(0).normal(size=(columns, sum(chunks)))
    cut = np.cumsum(chunks)[:-1]
    table = pa.table({f"x{k}": pa.chunked_array(np.split(row, cut), kind) for k, row in enumerate(values)})
    found = device_columns.sent_table(table, CPU)
    assert found.tolist() == [column.to_pylist() for column in table.columns]


def test_part_of_a_table_is_copied_alone() -> None:
    table = pa.table({"a": np.arange(9.0), "b": np.arange(9.0) + 0.5})
    assert device_columns.sent_table(table.slice(4, 3), CPU).tolist() == [[4, 5, 6], [4.5, 5.5, 6.5]]


def test_columns_that_keep_some_more_of_their_end_stand_beside_others() -> None:
    """Arrow writes more bytes of a part of a longer column than of a whole one: columns are unequally far apart."""
    longer, exact = pa.array(np.arange(20.0)).slice(0, 17), pa.array(np.arange(17.0) + 0.5)
    table = pa.table({"a": longer, "b": exact, "c": longer, "d": exact})
    found = device_columns.sent_table(table, CPU)
    assert found.tolist() == [column.to_pylist() for column in table.columns]


@pytest.mark.parametrize("columns", [1, 3])
def test_chunks_without_rows_are_left_out(columns: int) -> None:
    part = pa.table({f"x{k}": np.arange(4.0) + k for k in range(columns)})
    table = pa.concat_tables([part.slice(0, 0), part, part.slice(2, 0), part])
    found = device_columns.sent_table(table, CPU)
    assert found.tolist() == [column.to_pylist() for column in table.columns]
