"""Tables in memory: the frames of every library give the same columns."""

import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from pcmcnet.data.files.tabular import column_names, read_table
from pcmcnet.errors import SchemaError

COLUMNS = {"id": [1, 2], "x": [1.5, None], "s": ["a", None], "b": [True, False]}
FRAMES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "dict": dict,
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "polars lazy": pl.LazyFrame,
    "pyarrow": pa.table,
}
every_frame = pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)


@every_frame
def test_every_frame_gives_the_same_columns(frame: Callable[[dict[str, Any]], Any]) -> None:
    assert read_table(frame(COLUMNS)).to_pydict() == COLUMNS
    assert read_table(frame(COLUMNS), ["s", "id"]).to_pydict() == {"s": COLUMNS["s"], "id": COLUMNS["id"]}


@every_frame
def test_a_missing_column_is_named_with_the_closest_match(frame: Callable[[dict[str, Any]], Any]) -> None:
    with pytest.raises(SchemaError, match=r"the table has no column 'idd'. Did you mean 'id'?"):
        read_table(frame(COLUMNS), ["s", "idd"])


def test_a_path_may_be_text_or_a_path(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    assert column_names(tmp_path / "t.csv") == ["a", "b"]
    for path in (tmp_path / "t.csv", str(tmp_path / "t.csv")):
        assert read_table(path, ["b"]).to_pydict() == {"b": [2]}


def test_reading_does_not_change_a_frame() -> None:
    frame = pd.DataFrame(COLUMNS, index=[5, 3])
    before = frame.copy()
    read_table(frame, ["x"])
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([1, 2], np.uint8), [1, 2]),
        (np.ma.array([1, 2], mask=[False, True]), [1, None]),
        (pd.Series(["a", "b"], dtype="category"), ["a", "b"]),
        (pl.Series(["a", "b"], dtype=pl.Categorical), ["a", "b"]),
        (pa.array([1, None]), [1, None]),
        (pa.chunked_array([[1], [2]]), [1, 2]),
        ((1, 2), [1, 2]),
        ([1, "x"], ["1", "x"]),
        ([1.5, "x", None, float("nan"), pd.NA, pd.NaT], ["1.5", "x", None, None, None, None]),
        ([decimal.Decimal("1.5"), 2], [1.5, 2.0]),
        ([2**70, 1], [float(2**70), 1.0]),
        ([True, "x"], ["True", "x"]),
    ],
    ids=str,
)
def test_any_array_makes_a_column(values: Any, expected: list[Any]) -> None:
    assert read_table({"a": values})["a"].to_pylist() == expected


@pytest.mark.parametrize("frame", [pd.DataFrame, lambda columns: pl.DataFrame(columns, schema={"a": pl.Object})])
@pytest.mark.parametrize("lazy", [False, True])
def test_objects_of_several_types_become_text(frame: Callable[[Any], Any], lazy: bool) -> None:
    table = frame({"a": [1.5, "x", None]})
    if lazy:
        table = table.lazy() if isinstance(table, pl.DataFrame) else pl.LazyFrame({"a": ["1.5", "x", None]})
    assert read_table(table)["a"].to_pylist() == ["1.5", "x", None]


def test_an_unused_column_may_hold_anything() -> None:
    odd = {"a": [1, 2], "odd": [object(), [1]], 5: [1, 2], "short": [1]}
    assert read_table(odd, ["a"]).to_pydict() == {"a": [1, 2]}
    assert read_table(pd.DataFrame({"a": [1], "odd": [object()]}), ["a"]).to_pydict() == {"a": [1]}


def test_column_names_that_are_not_text_are_ignored() -> None:
    assert read_table(pd.DataFrame([[1, 2]], columns=["a", 1])).to_pydict() == {"a": [1]}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"a": [1], "b": [1, 2]}, "must have the same number of rows, but 'a' has 1, 'b' has 2"),
        ({"a": "text"}, "column 'a': expected a list or an array, got str"),
        ({"a": 3}, "column 'a': expected a list or an array, got int"),
        ({"a": {1, 2}}, "column 'a': expected a list or an array, got set"),
        ({"a": (x for x in [1, "x"])}, "column 'a': expected a list or an array, got generator"),
        ({"a": [object(), 1]}, "column 'a' cannot be read: .*object"),
        ({"a": [10**400, 1]}, "column 'a' cannot be read: "),
        ({"a": np.zeros((2, 2, 2))}, "column 'a' cannot be read: .*1-dimensional"),
        ({"a": np.zeros((2, 2), bool)}, "column 'a' cannot be read: .*1-dimensional"),
        ({"a": np.zeros(2, complex)}, "column 'a' cannot be read: "),
        ({"a": np.array(1)}, "column 'a' cannot be read: "),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "cannot be read: Expected unique column names.*'a' 2 times"),
        (pd.DataFrame({"a": [object()]}), "column 'a' cannot be read: "),
        (pa.table([[1], [2]], names=["a", "a"]), "the table has 2 columns named 'a': rename all but one"),
        (pd.Series([1]), "expected a path, a mapping of arrays or a data frame .*, got Series"),
        (None, "expected a path, a mapping of arrays or a data frame .*, got NoneType"),
        ([{"a": 1}], "expected a path, a mapping of arrays or a data frame .*, got list"),
    ],
)
def test_objects_that_are_not_tables_are_refused(table: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        read_table(table, ["a", "b"] if isinstance(table, dict) and len(table) > 1 else ["a"])


def test_an_array_of_vectors_of_text_is_refused() -> None:
    with pytest.raises(SchemaError, match="'price' cannot be read"):
        read_table({"price": np.zeros((2, 0))}, ["price"])
