"""Parquet files cut between choice sets while they are read."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pcmcnet.data.parquet_pieces import ParquetPieces, pieces_of
from pcmcnet.data.pieces import Piece, Pieces
from pcmcnet.data.schema import Schema
from pcmcnet.data.tabular import read_table
from pcmcnet.errors import SchemaError

SCHEMA = Schema(choice_set="trip", individual=("age",), features=("cost",))
CALLED = {"numbers": [5, 5, 5, 2, 2, 9, 9, 9, 7], "text": list("bbbaadddc")}


def a_file(folder: Path, ids: list[object], **options: object) -> Path:
    n = len(ids)
    table = {"trip": ids, "cost": np.arange(n, dtype=np.float64), "age": np.full(n, 40.0), "note": ["-"] * n}
    pa.parquet.write_table(pa.table(table), folder / "a.parquet", **options)
    return folder / "a.parquet"


def read(path: Path, rows: int) -> list[Piece]:
    pieces = ParquetPieces.of(path, SCHEMA, rows)
    assert pieces is not None
    return list(pieces)


@pytest.mark.parametrize("ids", CALLED.values(), ids=CALLED)
@pytest.mark.parametrize("group", [1, 4, 9])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 8])
def test_pieces_are_whole_sets_in_the_order_of_the_file(
    ids: list[object], group: int, rows: int, tmp_path: Path
) -> None:
    """Sets of 3, 2, 3 and 1 rows, also where a set is longer than the rows that are read at once."""
    found = read(a_file(tmp_path, ids, row_group_size=group), rows)
    assert [size for piece in found for size in piece.sizes.tolist()] == [3, 2, 3, 1]
    tables = [read_table(piece.rows(), SCHEMA.columns) for piece in found]
    assert [len(table) for table in tables] == [piece.sizes.sum() for piece in found]
    assert pa.concat_tables(tables)["cost"].to_pylist() == list(range(9))


def test_a_piece_ends_with_the_last_set_that_is_read_whole(tmp_path: Path) -> None:
    """The rows read at once are 5 5 5 2, 2 9 9 9, and 7: with the third it is known that the set 9 has ended."""
    found = read(a_file(tmp_path, CALLED["numbers"]), 4)
    assert [piece.sizes.tolist() for piece in found] == [[3], [2], [3, 1]]


@pytest.mark.parametrize(
    "ids",
    [
        [1, 1, 2, 2, 1, 1],
        np.array([7, 7, 5, 5, 3, 3, 7], np.uint32),
        list("aabbaa"),
        [1, 2, 1, 2, 3, 3],
        [1, 1, None, None, 2, 2],
        [1.0, 1.0, 2.0, 2.0, 3.0, 3.0],
    ],
    ids=["apart", "unsigned apart", "names apart", "apart within a piece", "gaps", "fractions"],
)
def test_sets_that_may_be_apart_are_refused(ids: list[object], tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="may be apart"):
        read(a_file(tmp_path, ids), 4)


def test_small_files_are_read_whole(tmp_path: Path) -> None:
    path = a_file(tmp_path, [1, 1, 2, 2])
    assert ParquetPieces.of(path, SCHEMA, 4) is None
    assert ParquetPieces.of(path, SCHEMA) is None


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """The last of three groups of rows is damaged: the first can still be read."""
    path = a_file(tmp_path, [1, 1, 2, 2, 3, 3], row_group_size=2, use_dictionary=False)
    groups = pa.parquet.read_metadata(path)
    damaged = next(c for k in range(4) if (c := groups.row_group(2).column(k)).path_in_schema == "cost")
    with path.open("r+b") as file:
        file.seek(damaged.data_page_offset)
        file.write(bytes(damaged.total_compressed_size))
    pieces = ParquetPieces.of(path, SCHEMA, 2)
    assert pieces is not None
    found = iter(pieces)
    assert len(read_table(next(found).rows(), SCHEMA.columns)) == 2
    with pytest.raises(SchemaError, match=r"a\.parquet: cannot be read as \.parquet"):
        list(found)


def test_a_file_without_a_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(pa.table({"trip": [1, 1], "age": [40.0, 40.0]}), path)
    with pytest.raises(SchemaError, match="cost"):
        ParquetPieces.of(path, SCHEMA, 1)


def test_tables_in_memory_are_cut_in_their_own_way(tmp_path: Path) -> None:
    path = a_file(tmp_path, CALLED["numbers"])
    assert isinstance(pieces_of(path, SCHEMA, 4), ParquetPieces)
    assert isinstance(pieces_of(pa.parquet.read_table(path), SCHEMA, 4), Pieces)
