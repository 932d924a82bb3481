"""Tables cut between choice sets."""

from pathlib import Path

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pcmcnet.data.pieces import InMemory, Pieces, opened, set_starts
from pcmcnet.data.schema import Schema
from pcmcnet.data.tabular import read_table

SCHEMA = Schema(choice_set="trip", individual=("age",), features=("cost", "mode"), categorical=("mode",))


def a_table(ids: list[object]) -> pa.Table:
    n = len(ids)
    numbers = {"cost": np.arange(n, dtype=np.float64), "age": np.full(n, 40.0)}
    return pa.table({"trip": ids, **numbers, "mode": ["bus", "car"] * (n // 2) + ["bus"] * (n % 2)})


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars"])
@pytest.mark.parametrize("ids", [[5, 5, 5, 2, 2, 9, 9, 9, 7], list("bbbaadddc")], ids=["numbers", "text"])
def test_pieces_are_whole_sets_of_about_as_many_rows_as_asked_for(kind: str, ids: list[object]) -> None:
    """Sets of 3, 2, 3 and 1 rows: the last cut at or before row 4 is at 3, the last at or before 8 at 8."""
    whole = a_table(ids)
    table: InMemory = whole
    if kind != "arrow":
        pytest.importorskip(kind)
        table = opened(whole.to_pandas() if kind == "pandas" else nw.from_arrow(whole, backend=kind), SCHEMA)
        assert isinstance(table, nw.DataFrame)
    pieces = Pieces.of(table, SCHEMA, rows=4)
    assert pieces is not None
    found = list(pieces)
    assert [piece.sizes.tolist() for piece in found] == [[3], [2, 3], [1]]
    rows = pa.concat_tables([read_table(piece.rows(), SCHEMA.columns) for piece in found], promote_options="permissive")
    assert rows.to_pydict() == whole.select(list(SCHEMA.columns)).to_pydict()


@pytest.mark.parametrize(
    "ids",
    [[1, 1, 2, 2, 1, 1], [1, 1, None, None, 2, 2], [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]],
    ids=["apart", "gaps", "fractions"],
)
def test_tables_whose_sets_may_be_apart_are_read_whole(ids: list[object]) -> None:
    assert Pieces.of(a_table(ids), SCHEMA, rows=2) is None


def test_small_tables_are_read_whole() -> None:
    assert Pieces.of(a_table([1, 1, 2, 2]), SCHEMA, rows=4) is None


FAR = 6_148_914_691_236_517_205  # from 0, and three times as far is 0 again in 64 bits


@pytest.mark.parametrize(
    "ids",
    [pa.array([7, 3, 7], pa.uint32()), pa.array([2, 1, 0, 2], pa.uint8()), pa.array([0, FAR, -FAR - 1, 0])],
    ids=["uint32", "uint8", "far apart"],
)
def test_ids_whose_differences_do_not_fit_their_type_are_told_apart(ids: pa.Array) -> None:
    assert set_starts(pa.chunked_array([ids])) is None
    starts = set_starts(pa.chunked_array([ids[:-1]]))
    assert starts is not None
    assert starts.tolist() == list(range(len(ids) - 1))


def test_sets_that_go_across_chunks_begin_once() -> None:
    starts = set_starts(pa.chunked_array([["a", "a"], ["a", "b"], ["b"]]))
    assert starts is not None
    assert starts.tolist() == [0, 3]


def test_anything_but_a_parquet_file_or_a_frame_becomes_an_arrow_table(tmp_path: Path) -> None:
    table = a_table([1, 1, 2, 2])
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    assert opened(str(tmp_path / "a.parquet"), SCHEMA) == tmp_path / "a.parquet"
    assert isinstance(opened(table, SCHEMA), pa.Table)
    assert isinstance(opened(table.to_pydict(), SCHEMA), pa.Table)


def test_frames_with_columns_of_several_types_are_read_whole() -> None:
    frame = opened(a_table([1, 1, 2, 2]).to_pandas().assign(mode=["bus", 1, "car", 2]), SCHEMA)
    assert Pieces.of(frame, SCHEMA, rows=2) is None
