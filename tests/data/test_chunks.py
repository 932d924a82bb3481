"""Tables split between choice sets: in memory, one file while it is read, and a folder whose ids are read first."""

import threading
from functools import partial
from pathlib import Path
from unittest import mock

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pcmcnet.concurrency import results_in_order
from pcmcnet.data.chunks import (
    Chunk,
    ChunkProblem,
    FileChunks,
    FrameChunks,
    InMemory,
    ParquetChunks,
    chunk_lengths,
    chunk_source,
    open_table,
    set_starts,
)
from pcmcnet.data.files.sources import TableStream, open_stream
from pcmcnet.data.files.tabular import read_table
from pcmcnet.data.schema import Schema
from pcmcnet.errors import ResourceError, SchemaError

SCHEMA = Schema(choice_set="trip", individual=("age",), features=("cost", "mode"), categorical=("mode",))
IDS = {"numbers": [5, 5, 5, 2, 2, 9, 9, 9, 7], "text": list("bbbaadddc")}
KEY_BYTES = 2**20


def a_table(ids: object) -> pa.Table:
    n = len(ids)  # type: ignore[arg-type]
    numbers = {"cost": np.arange(n, dtype=np.float64), "age": np.full(n, 40.0)}
    return pa.table({"trip": ids, **numbers, "mode": ["bus", "car"] * (n // 2) + ["bus"] * (n % 2)})


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars"])
@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
def test_chunks_are_whole_sets_of_about_the_requested_rows(kind: str, ids: list[object]) -> None:
    """Sets of 3, 2, 3 and 1 rows: the last cut at or before row 4 is at 3, the last at or before 8 at 8."""
    whole = a_table(ids)
    table: InMemory = whole
    if kind != "arrow":
        pytest.importorskip(kind)
        table = open_table(whole.to_pandas() if kind == "pandas" else nw.from_arrow(whole, backend=kind), SCHEMA)
        assert isinstance(table, nw.DataFrame)
    source = FrameChunks.of(table, SCHEMA, rows=4)
    assert source is not None
    assert source.n_rows == 9
    chunks = list(source.chunks())
    assert [chunk.sizes.tolist() for chunk in chunks] == [[3], [2, 3], [1]]
    tables = [read_table(chunk.rows, SCHEMA.columns) for chunk in chunks]
    rows = pa.concat_tables(tables, promote_options="permissive")
    assert rows.to_pydict() == whole.select(list(SCHEMA.columns)).to_pydict()


@pytest.mark.parametrize(
    "ids",
    [[1, 1, 2, 2, 1, 1], [1, 1, None, None, 2, 2], [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]],
    ids=["apart", "missing", "fractions"],
)
def test_tables_with_scattered_sets_are_read_in_one_chunk(ids: list[object]) -> None:
    assert FrameChunks.of(a_table(ids), SCHEMA, rows=2) is None


def test_small_tables_are_read_in_one_chunk() -> None:
    assert FrameChunks.of(a_table([1, 1, 2, 2]), SCHEMA, rows=4) is None


FAR = 6_148_914_691_236_517_205  # 2**64 // 3, so differences of the ids overflow int64


@pytest.mark.parametrize(
    "ids",
    [pa.array([7, 3, 7], pa.uint32()), pa.array([2, 1, 0, 2], pa.uint8()), pa.array([0, FAR, -FAR - 1, 0])],
    ids=["uint32", "uint8", "far apart"],
)
def test_ids_whose_differences_overflow_are_distinguished(ids: pa.Array) -> None:
    assert set_starts(pa.chunked_array([ids])) is None
    starts = set_starts(pa.chunked_array([ids[:-1]]))
    assert starts is not None
    assert starts.tolist() == list(range(len(ids) - 1))


def test_sets_across_arrow_chunks_start_once() -> None:
    starts = set_starts(pa.chunked_array([["a", "a"], ["a", "b"], ["b"]]))
    assert starts is not None
    assert starts.tolist() == [0, 3]


def test_other_sources_become_an_arrow_table(tmp_path: Path) -> None:
    table = a_table([1, 1, 2, 2])
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    assert open_table(str(tmp_path / "a.parquet"), SCHEMA) == tmp_path / "a.parquet"
    assert isinstance(open_table(table, SCHEMA), pa.Table)
    assert isinstance(open_table(table.to_pydict(), SCHEMA), pa.Table)


def test_frames_with_columns_of_mixed_types_are_read_in_one_chunk() -> None:
    frame = open_table(a_table([1, 1, 2, 2]).to_pandas().assign(mode=["bus", 1, "car", 2]), SCHEMA)
    assert FrameChunks.of(frame, SCHEMA, rows=2) is None


# -- one Parquet file --


def a_file(folder: Path, ids: list[object], **options: object) -> Path:
    table = a_table(ids)
    pa.parquet.write_table(table.append_column("note", [["-"] * len(ids)]), folder / "a.parquet", **options)
    return folder / "a.parquet"


def read(path: Path, rows: int) -> list[Chunk | ChunkProblem]:
    source = ParquetChunks.of(path, SCHEMA, rows)
    assert source is not None
    return list(source.chunks())


def read_clean(path: Path, rows: int) -> list[Chunk]:
    chunks = read(path, rows)
    assert all(isinstance(chunk, Chunk) for chunk in chunks)
    return chunks  # type: ignore[return-value]


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
@pytest.mark.parametrize("group", [1, 4, 9])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 8])
def test_chunks_are_whole_sets_in_file_order(ids: list[object], group: int, rows: int, tmp_path: Path) -> None:
    """Sets of 3, 2, 3 and 1 rows; some are longer than a block of rows."""
    chunks = read_clean(a_file(tmp_path, ids, row_group_size=group), rows)
    assert [size for chunk in chunks for size in chunk.sizes.tolist()] == [3, 2, 3, 1]
    tables = [read_table(chunk.rows, SCHEMA.columns) for chunk in chunks]
    assert [len(table) for table in tables] == [chunk.sizes.sum() for chunk in chunks]
    assert pa.concat_tables(tables)["cost"].to_pylist() == list(range(9))


def test_a_chunk_ends_with_the_last_complete_set(tmp_path: Path) -> None:
    """The blocks are 5 5 5 2, 2 9 9 9, and 7: only the third shows that set 9 has ended."""
    chunks = read_clean(a_file(tmp_path, IDS["numbers"]), 4)
    assert [chunk.sizes.tolist() for chunk in chunks] == [[3], [2], [3, 1]]


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
    ids=["apart", "unsigned apart", "names apart", "apart within a chunk", "missing", "fractions"],
)
def test_a_file_with_scattered_sets_ends_with_a_problem(ids: list[object], tmp_path: Path) -> None:
    *_, last = read(a_file(tmp_path, ids), 4)
    assert isinstance(last, ChunkProblem)
    assert "may not be adjacent" in last.reason


def test_small_files_are_read_in_one_chunk(tmp_path: Path) -> None:
    path = a_file(tmp_path, [1, 1, 2, 2])
    assert ParquetChunks.of(path, SCHEMA, 4) is None
    assert chunk_source(path, SCHEMA) is None


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """The last of three row groups is damaged: the first can still be read."""
    path = a_file(tmp_path, [1, 1, 2, 2, 3, 3], row_group_size=2, use_dictionary=False)
    groups = pa.parquet.read_metadata(path)
    damaged = next(c for k in range(5) if (c := groups.row_group(2).column(k)).path_in_schema == "cost")
    with path.open("r+b") as file:
        file.seek(damaged.data_page_offset)
        file.write(bytes(damaged.total_compressed_size))
    source = ParquetChunks.of(path, SCHEMA, 2)
    assert source is not None
    chunks = source.chunks()
    first = next(chunks)
    assert isinstance(first, Chunk)
    assert len(read_table(first.rows, SCHEMA.columns)) == 2
    with pytest.raises(SchemaError, match=r"a\.parquet: cannot be read as \.parquet"):
        list(chunks)


def test_a_file_without_a_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(pa.table({"trip": [1, 1], "age": [40.0, 40.0]}), path)
    with pytest.raises(SchemaError, match="cost"):
        ParquetChunks.of(path, SCHEMA, 1)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"none\.parquet: no such file"):
        chunk_source(tmp_path / "none.parquet", SCHEMA)


def test_tables_in_memory_use_frame_chunks(tmp_path: Path) -> None:
    path = a_file(tmp_path, IDS["numbers"])
    assert isinstance(chunk_source(path, SCHEMA, 4), ParquetChunks)
    assert isinstance(chunk_source(pa.parquet.read_table(path), SCHEMA, 4), FrameChunks)


# -- folders --


def stream(ids: pa.Array, folder: Path, cuts: tuple[int, ...] = (0,)) -> TableStream:
    """Write ids, each with a number and a word, to files that start at rows ``cuts``, in row groups of three."""
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
    ids=["numbers", "text", "dictionary"],
)
def test_chunks_of_files_are_whole_sets_of_about_the_requested_rows(
    ids: pa.Array, cuts: tuple[int, ...], tmp_path: Path
) -> None:
    """Sets of 3, 2, 3 and 1 rows: the last cut at or before row 4 is at 3, the last at or before 8 at 8."""
    table = stream(ids, tmp_path, cuts)
    source = FileChunks.of(table, "id", 4, KEY_BYTES)
    assert source is not None
    assert source.n_rows == 9
    chunks = [chunk for chunk in source.chunks() if isinstance(chunk, Chunk)]
    assert [chunk.sizes.tolist() for chunk in chunks] == [[3], [2, 3], [1]]
    assert [x for chunk in chunks for x in chunk.rows["x"].to_pylist()] == list(range(9))
    assert [word for chunk in chunks for word in chunk.rows["word"].to_pylist()] == ["bus", "car"] * 4 + ["bus"]


def test_rows_lost_during_reading_are_a_problem(tmp_path: Path) -> None:
    table = stream(pa.array(np.arange(6)), tmp_path)
    *chunks, problem = FileChunks(table, "id", np.array([3, 4]), 2).chunks()
    assert len(chunks) == 1
    assert isinstance(problem, ChunkProblem)
    assert "lost rows while it was read" in problem.reason


@pytest.mark.parametrize("rows", range(1, 12))
def test_chunk_boundaries_match_those_in_memory(rows: int, tmp_path: Path) -> None:
    ids = np.repeat([3, 1, 2, 8, 9, 4], [1, 4, 1, 6, 2, 1])
    lengths = chunk_lengths(stream(pa.array(ids), tmp_path, (0, 7)).only("id"), rows, KEY_BYTES)
    starts = np.array([0, 1, 5, 6, 12, 14])
    cuts = np.unique([starts[starts <= row].max() for row in range(0, 15, rows)])
    assert lengths is not None
    assert lengths.tolist() == np.diff([*cuts, 15]).tolist()


@pytest.mark.parametrize(
    "ids",
    [[1, 1, 2, 2, 1, 1], [1, 2, 1, 3, 3, 3], [1, 1, None, 2, 2, 2], [1.0, 1.0, 2.0, 2.0, 3.0, 3.0], list("aabbba")],
    ids=["apart", "apart in a batch", "missing", "fractions", "text apart"],
)
def test_files_with_scattered_sets_have_no_chunks(ids: list[object], tmp_path: Path) -> None:
    assert chunk_lengths(stream(pa.array(ids), tmp_path, (0, 4)).only("id"), 4, KEY_BYTES) is None


def test_ids_stay_within_the_memory_limit(tmp_path: Path) -> None:
    ids = stream(pa.array(np.repeat(np.arange(100), 2)), tmp_path).only("id")
    assert chunk_lengths(ids, 10, 100 * 24) is not None
    assert chunk_lengths(ids, 10, 100 * 24 - 1) is None


def test_a_folder_without_rows_has_no_chunks(tmp_path: Path) -> None:
    lengths = chunk_lengths(stream(pa.array([], pa.int64()), tmp_path).only("id"), 4, KEY_BYTES)
    assert lengths is not None
    assert lengths.tolist() == []


# -- Results in order --------------------------------------------------------------------------------------------------
# Tasks run in threads; results come in order.


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_task_order(threads: int) -> None:
    assert list(results_in_order((partial(pow, k, 2) for k in range(10)), threads)) == [k**2 for k in range(10)]


def test_later_tasks_start_before_an_earlier_one_ends() -> None:
    """The first of two tasks ends only after the second has started."""
    begun = threading.Event()

    def second() -> int:
        begun.set()
        return 2

    assert list(results_in_order([lambda: begun.wait(10), second], 2)) == [True, 2]


def test_only_one_task_more_than_threads_is_started() -> None:
    started: list[int] = []

    def tasks() -> object:
        for k in range(10):
            started.append(k)
            yield partial(int, k)

    results = results_in_order(tasks(), 2)  # type: ignore[arg-type]
    assert next(results) == 0
    assert started == [0, 1, 2]
    results.close()  # type: ignore[attr-defined]


def test_tasks_without_threads_are_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread needs memory for its stack. No task runs twice: in the calling thread, and from the pool's queue."""
    executed: list[int] = []
    monkeypatch.setattr(threading.Thread, "start", mock.Mock(side_effect=RuntimeError("can't start new thread")))
    with pytest.raises(ResourceError, match=r"not enough memory or threads \(can't start new thread\): raise"):
        list(results_in_order([partial(executed.append, k) for k in range(3)]))
    assert executed == []


def test_an_error_is_raised_in_task_order() -> None:
    results = results_in_order([lambda: 1, lambda: 1 // 0, lambda: 3], 2)
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)
