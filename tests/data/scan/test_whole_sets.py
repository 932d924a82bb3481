"""Pieces of whole sets, by one look at the ids."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pcmcnet.data.scan.sources import Stream, open_stream
from pcmcnet.data.scan.whole_sets import piece_lengths, read_pieces

ROOM = 2**20


def stream(ids: pa.Array, folder: Path, cuts: tuple[int, ...] = (0,)) -> Stream:
    """Write ids, with a number and a word for each, to files that begin at some rows; row groups have three rows."""
    n = len(ids)
    table = pa.table({"id": ids, "x": np.arange(n), "word": [("bus", "car")[k % 2] for k in range(n)]})
    for k, (begin, end) in enumerate(zip(cuts, (*cuts[1:], n), strict=True)):
        pa.parquet.write_table(table.slice(begin, end - begin), folder / f"{k}.parquet", row_group_size=3)
    return open_stream(folder, ["id", "x", "word"])


@pytest.mark.parametrize("cuts", [(0,), (0, 4, 5)], ids=["one file", "three files"])
@pytest.mark.parametrize(
    "ids",
    [
        pa.array([5, 5, 5, 2, 2, 9, 9, 9, 7]),
        pa.array(list("bbbaadddc")),
        pa.array(list("bbbaadddc")).dictionary_encode(),
    ],
    ids=["numbers", "text", "words and codes"],
)
def test_pieces_are_whole_sets_of_about_as_many_rows_as_asked_for(
    ids: pa.Array, cuts: tuple[int, ...], tmp_path: Path
) -> None:
    """Sets of 3, 2, 3 and 1 rows: the last cut at or before row 4 is at 3, the last at or before 8 at 8."""
    table = stream(ids, tmp_path, cuts)
    lengths = piece_lengths(table.only("id"), 4, ROOM)
    assert lengths is not None
    assert lengths.tolist() == [3, 5, 1]
    found = [read() for read in read_pieces(table, lengths, 4, "id")]
    assert [piece.num_rows for piece in found] == [3, 5, 1]
    assert [x for piece in found for x in piece["x"].to_pylist()] == list(range(9))
    assert [word for piece in found for word in piece["word"].to_pylist()] == ["bus", "car"] * 4 + ["bus"]


def test_pieces_may_be_asked_for_after_the_last_was_yielded(tmp_path: Path) -> None:
    """The one that reads them may lag behind the one that goes through them: none is given up."""
    table = stream(pa.array(np.arange(60)), tmp_path)
    reads = list(read_pieces(table, np.ones(60, np.int64), 1, "id"))
    assert [x for read in reads for x in read()["x"].to_pylist()] == list(range(60))


@pytest.mark.parametrize("rows", range(1, 12))
def test_cuts_are_those_of_a_table_in_memory(rows: int, tmp_path: Path) -> None:
    ids = np.repeat([3, 1, 2, 8, 9, 4], [1, 4, 1, 6, 2, 1])
    lengths = piece_lengths(stream(pa.array(ids), tmp_path, (0, 7)).only("id"), rows, ROOM)
    starts = np.array([0, 1, 5, 6, 12, 14])
    cuts = np.unique([starts[starts <= row].max() for row in range(0, 15, rows)])
    assert lengths is not None
    assert lengths.tolist() == np.diff([*cuts, 15]).tolist()


@pytest.mark.parametrize(
    "ids",
    [[1, 1, 2, 2, 1, 1], [1, 2, 1, 3, 3, 3], [1, 1, None, 2, 2, 2], [1.0, 1.0, 2.0, 2.0, 3.0, 3.0], list("aabbba")],
    ids=["apart", "apart in a batch", "a gap", "fractions", "text apart"],
)
def test_sets_that_may_be_apart_have_no_pieces(ids: list[object], tmp_path: Path) -> None:
    assert piece_lengths(stream(pa.array(ids), tmp_path, (0, 4)).only("id"), 4, ROOM) is None


def test_ids_take_no_more_than_the_room_there_is(tmp_path: Path) -> None:
    ids = stream(pa.array(np.repeat(np.arange(100), 2)), tmp_path).only("id")
    assert piece_lengths(ids, 10, 100 * 24) is not None
    assert piece_lengths(ids, 10, 100 * 24 - 1) is None


def test_a_table_without_rows_has_no_pieces(tmp_path: Path) -> None:
    lengths = piece_lengths(stream(pa.array([], pa.int64()), tmp_path).only("id"), 4, ROOM)
    assert lengths is not None
    assert lengths.tolist() == []
