"""Streams of rows have the order and types of the table in memory, even if a CSV changes its type late."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.distinct import keys_of, partition_numbers, uniform_draws
from pcmcnet.data.files.sources import open_stream
from pcmcnet.data.files.tabular import read_table
from pcmcnet.errors import SchemaError


def rows_of(path: Path, columns: list[str], **options: Any) -> pa.Table:
    stream = open_stream(path, columns, **options)
    table = pa.Table.from_batches(list(stream.batches(7)), stream.schema)
    assert stream.rows == table.num_rows
    assert all(batch.num_rows <= 7 for batch in stream.batches(7))
    return table


def test_files_of_a_folder_are_streamed_in_path_order(tmp_path: Path) -> None:
    for year, k in ((2024, 0), (2023, 1)):
        (tmp_path / f"year={year}").mkdir()
        part = pa.table({"x": pa.array(range(20 * k, 20 * k + 20), pa.int32() if k else pa.int64())})
        pyarrow.parquet.write_table(part, tmp_path / f"year={year}" / "0.parquet", row_group_size=6)
    expected = read_table(tmp_path, ["year", "x"])
    assert rows_of(tmp_path, ["year", "x"]).to_pylist() == expected.to_pylist()
    assert expected["x"].to_pylist()[0] == 20


def test_a_file_of_a_folder_without_a_column_is_named(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"x": [1], "y": [1]}), tmp_path / "a.parquet")
    pyarrow.parquet.write_table(pa.table({"x": [1]}), tmp_path / "b.parquet")
    with pytest.raises(SchemaError, match=r"b\.parquet has no column 'y'"):
        open_stream(tmp_path, ["x", "y"])


@pytest.mark.parametrize(("late", "kind"), [("2.5", pa.float64()), ("many", pa.string()), ("", pa.int64())])
def test_a_late_row_of_a_csv_determines_the_type(tmp_path: Path, late: str, kind: pa.DataType) -> None:
    n = 300_000  # beyond the first block
    (tmp_path / "t.csv").write_text("x,code\n" + "7,007\n" * n + f"{late},x\n")
    stream = open_stream(tmp_path / "t.csv", ["x", "code"], ["code"])
    assert (stream.rows, stream.schema.field("x").type) == (n + 1, kind)
    *_, last = stream.batches(2**18)
    assert last.column("code")[0].as_py() in ("007", "x")


def test_arrow_streams_are_read_like_arrow_files(tmp_path: Path) -> None:
    table = pa.table({"y": range(30), "x": range(30, 60)})
    for opened in (pa.ipc.new_file, pa.ipc.new_stream):
        with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, opened(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=11)
        assert rows_of(tmp_path / "t.arrow", ["x", "y"]).equals(table.select(["x", "y"]))


def test_an_arrow_file_with_offsets_beyond_its_end_is_refused(tmp_path: Path) -> None:
    file, table = tmp_path / "t.arrow", pa.table({"x": ["ab", "cd", "ef", "gh"]})
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    ends, beyond = (np.array([0, 2, 4, end, 8], np.int32).tobytes() for end in (6, 10**9))
    assert ends in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(ends, beyond))
    with pytest.raises(SchemaError, match=r"t\.arrow"):
        list(open_stream(file, ["x"]).batches(10))


def test_counting_rows_of_a_truncated_arrow_file_names_it(tmp_path: Path) -> None:
    file, table = tmp_path / "t.arrow", pa.table({"x": np.arange(1000)})
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    file.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(SchemaError, match=r"t\.arrow: cannot be read as \.arrow"):
        _ = open_stream(file, ["x"]).rows


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".arrow"])
def test_a_broken_file_gives_an_error_of_one_sentence(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"broken{ending}"
    path.write_bytes(b"x,y\n1,\xff\xfe\n" if ending == ".csv" else b"PAR1 and nothing")
    with pytest.raises(SchemaError, match="broken"):
        ChoiceData.scan(path, choice_set="x", features=["y"])


@pytest.mark.parametrize("cut", [0.5, 0.9])
def test_a_truncated_file_of_a_folder_is_named(tmp_path: Path, cut: float) -> None:
    folder = tmp_path / "table"
    folder.mkdir()
    for k in range(2):
        pyarrow.parquet.write_table(pa.table({"x": range(1000), "y": range(1000)}), folder / f"{k}.parquet")
    content = (folder / "1.parquet").read_bytes()
    (folder / "1.parquet").write_bytes(content[: int(len(content) * cut)])
    with pytest.raises(SchemaError, match=r"1\.parquet: cannot be read as \.parquet"):
        ChoiceData.scan(folder, choice_set="x", features=["y"])


# -- keys ----------------------------------------------------------------------------------------------------


def test_equal_ids_of_any_integer_type_have_equal_keys() -> None:
    ids = [3, -7, 3, 2**40]
    assert keys_of(pa.array(ids)).tolist() == keys_of(pa.array(ids, pa.int64())).tolist()
    assert keys_of(pa.array(ids[:3], pa.int8())).tolist() == keys_of(pa.array(ids[:3])).tolist()
    words = pa.array(["a", "b", "a"])
    assert keys_of(words).tolist() == keys_of(words.dictionary_encode()).tolist()
    zeros = keys_of(pa.array([0.0, -0.0]))
    assert zeros[0] == zeros[1]
    assert len(set(keys_of(pa.array(range(10_000))).tolist())) == 10_000


def test_draws_and_buckets_are_uniform_and_depend_on_the_seed() -> None:
    """A tenth of 100,000 uniform draws has 10,000, standard deviation 95; four of these are allowed."""
    keys = keys_of(pa.array(range(100_000)))
    for seed in (0, 1):
        drawn = uniform_draws(keys, seed)
        counts = np.histogram(drawn, 10, (0, 1))[0]
        assert np.abs(counts - 10_000).max() < 380
    assert abs(np.corrcoef(uniform_draws(keys, 0), uniform_draws(keys, 1))[0, 1]) < 0.02
    assert np.abs(np.bincount(partition_numbers(keys, 10)) - 10_000).max() < 380
