"""Every file format gives the same table, and a broken file gives an error of one sentence."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.data.files.read_files import as_schema_errors, column_names, one_line, read_as_written, read_path
from pcmcnet.errors import ResourceError, SchemaError

MEGABYTE = 2**20


def write_csv(table: pa.Table, path: Path) -> None:
    pyarrow.csv.write_csv(table, path)


def write_csv_gz(table: pa.Table, path: Path) -> None:
    with gzip.open(path, "wb") as file:
        pyarrow.csv.write_csv(table, file)


def write_file(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)


def write_stream(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, tuple[str, Callable[[pa.Table, Path], Any]]] = {
    "csv": ("t.csv", write_csv),
    "csv.gz": ("T.CSV.GZ", write_csv_gz),
    "parquet": ("t.parquet", pyarrow.parquet.write_table),
    "arrow file": ("t.arrow", write_file),
    "arrow stream": ("t.arrow", write_stream),
}
every_format = pytest.mark.parametrize("name", WRITERS)


def written(name: str, table: pa.Table, folder: Path) -> Path:
    ending, write = WRITERS[name]
    write(table, folder / ending)
    return folder / ending


@pytest.fixture
def table() -> pa.Table:
    return pa.table(
        {"id": [1, 1, 2], "prix (€)": [1.5, 2.5, None], "a.b": ["x", "y", "x"], "c'[0]": [True, False, True]}
    )


@every_format
def test_columns_are_read_in_the_requested_order(name: str, table: pa.Table, tmp_path: Path) -> None:
    path = written(name, table, tmp_path)
    assert column_names(path) == table.column_names
    columns = ["c'[0]", "a.b", "id", "prix (€)"]
    assert read_path(path, columns).equals(table.select(columns))
    assert read_path(path, None).equals(table)


@every_format
def test_a_missing_column_is_named_with_the_closest_match(name: str, table: pa.Table, tmp_path: Path) -> None:
    path = written(name, table, tmp_path)
    with pytest.raises(
        SchemaError, match=r"t\.\S+ has no column 'prix'. Did you mean 'prix \(€\)'\?".replace("t", "[tT]", 1)
    ):
        read_path(path, ["prix"])


@every_format
def test_a_duplicate_column_is_refused_only_if_requested(name: str, tmp_path: Path) -> None:
    path = written(name, pa.table([[1], [2], [3]], names=["a", "a", "b"]), tmp_path)
    assert read_path(path, ["b"]).to_pydict() == {"b": [3]}
    with pytest.raises(SchemaError, match="has 2 columns named 'a': rename all but one"):
        read_path(path, ["b", "a"])


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "csv"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.9, 0.99])
def test_a_truncated_file_is_named(name: str, share: float, table: pa.Table, tmp_path: Path) -> None:
    path = written(name, pa.concat_tables([table] * 50), tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(
        SchemaError, match=r"[tT]\.\S+: (cannot be read as \.\S+ \(.+\)\. The file may be truncated|the file is empty)"
    ):
        read_path(path, ["id", "a.b"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty. Expected a header line"),
        (b"a,b\n1,2\n3\n", "cannot be read as .csv .*Expected 2 columns, got 1"),
        ("é,b\n1,2\n".encode("latin-1"), "t.csv: the file is not UTF-8 text. Save it as UTF-8"),
        ("a,b\né,2\n".encode("latin-1"), "t.csv: the file is not UTF-8 text. Save it as UTF-8"),
    ],
)
def test_a_broken_csv_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(SchemaError, match=message):
        read_path(path, ["a"], text=["a"])


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("before", [0, MEGABYTE], ids=["first block", "later block"])
def test_a_text_column_that_is_not_utf8_is_refused(before: int, compact: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n" + b"x,1\n" * (before // 4) + "é,2\n".encode("latin-1"))
    with pytest.raises(SchemaError, match=r"the file is not UTF-8 text. Save it as UTF-8"):
        read_path(path, ["a"], compact=compact)
    assert read_path(path, ["b"], compact=compact)["b"][-1].as_py() == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [("t.csv", "no such file or folder"), ("nothing", "no such file or folder"), ("t.xlsx", "unknown file format")],
)
def test_an_unknown_path_or_format_is_refused(name: str, message: str, tmp_path: Path) -> None:
    if name == "t.xlsx":
        (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(SchemaError, match=f"{name}: {message}"):
        read_path(tmp_path / name, None)


# -- csv: types are guessed ------------------------------------------------------------------------------


def csv_that_changes(path: Path, usual: str, last: str) -> int:
    """Write a repeated line of more than a megabyte in all, then the last one. Return the number of rows."""
    n = MEGABYTE // (len(usual) + 3) + 10
    path.write_text("a,b\n" + f"{usual},x\n" * n + f"{last},y\n")
    assert path.stat().st_size > MEGABYTE
    return n + 1


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize(
    ("usual", "last", "expected"),
    [
        ("12345", "1.5", [12345.0, 1.5]),
        ("12345", "much", ["12345", "much"]),
        ("1.5", "much", ["1.5", "much"]),
        ("", "2", [None, 2]),
        ("", "2.5", [None, 2.5]),
        ("12345", str(2**40), [12345, 2**40]),
        ("12345", str(2**80), [12345.0, float(2**80)]),
        ("true", "maybe", ["true", "maybe"]),
    ],
)
def test_a_type_that_changes_after_a_megabyte_is_detected(
    usual: str, last: str, expected: list[Any], compact: bool, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    n = csv_that_changes(path, usual, last)
    table = read_path(path, ["a"], compact=compact)
    assert table.num_rows == n
    assert [table["a"][0].as_py(), table["a"][n - 1].as_py()] == expected


def test_a_compact_table_has_narrow_types_and_the_same_values(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"i,big,x,s,b\n1,{2**40},1.5,u,true\n-2,3,2.5,v,false\n")
    plain, compact = read_path(path, None), read_path(path, None, compact=True)
    assert plain.schema.types == [pa.int64(), pa.int64(), pa.float64(), pa.string(), pa.bool_()]
    encoded = pa.dictionary(pa.int32(), pa.string())
    assert compact.schema.types == [pa.int32(), pa.int64(), pa.float64(), encoded, pa.bool_()]
    assert compact.to_pydict() == plain.to_pydict()


@pytest.mark.parametrize("compact", [False, True])
def test_declared_text_is_kept_as_written(compact: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('zip,x\n007,1\n7,2\n,3\n"NA",4\n')
    assert read_path(path, ["zip", "x"], text=["zip"], compact=compact)["zip"].to_pylist() == ["007", "7", None, "NA"]


def test_a_header_alone_is_an_empty_table(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n")
    assert read_path(path, ["b"], compact=True).shape == (0, 1)


def test_a_header_may_be_long(tmp_path: Path) -> None:
    names = [f"column {k:05d} of a very wide table" for k in range(10_000)]
    (tmp_path / "t.csv").write_text(",".join(names) + "\n" + ",".join(["1"] * len(names)) + "\n")
    assert read_path(tmp_path / "t.csv", [names[-1]]).to_pydict() == {names[-1]: [1]}


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_file_that_ends_inside_quotes_is_refused(name: str, tmp_path: Path) -> None:
    def write(text: str) -> Path:
        (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
        return tmp_path / name

    row = '1,"a value"\n'
    for fine in (row * 3, row + '2,"ends in a line\n"\n', row + '2,"ends in a line\n"', row + "2,b\n3,c"):
        assert read_path(write("a,b\n" + fine), ["a"]).num_rows == fine.count(",")
    opened = write("a,b\n" + row + '2,"never closed\n' + "3,c\n" * 10)
    for read in (
        lambda: read_path(opened, ["a"]),
        lambda: ChoiceData.scan(opened, cache=tmp_path / "cache", choice_set="a"),
    ):
        with pytest.raises(SchemaError, match="the file ends inside a quoted value"):
            read()


MAX_LINE_BYTES = 4 * MEGABYTE  # bytes of a line that is always read


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
@pytest.mark.parametrize("place", ["header", "first row", "last row", "in quotes"])
@pytest.mark.parametrize("length", [MAX_LINE_BYTES - 100, 2 * MAX_LINE_BYTES])
def test_a_csv_line_beyond_the_limit_is_refused(length: int, place: str, name: str, tmp_path: Path) -> None:
    long = "z" * length
    lines = {
        "header": f"a,{long}\n1,2\n3,4\n",
        "first row": f"a,b\n1,{long}\n3,4\n",
        "last row": f"a,b\n1,2\n3,{long}",
        "in quotes": f'a,b\n1,"{long[2:-2]}\n"\n3,4\n',
    }
    content = lines[place].encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(content, 1) if name.endswith(".gz") else content)
    readers: list[Callable[[], ChoiceData]] = [
        lambda: ChoiceData.from_long(path, choice_set="a"),
        lambda: ChoiceData.scan(path, choice_set="a").read(),
    ]
    for read in readers:
        if length < MAX_LINE_BYTES:
            assert read().set_ids.tolist() == [1, 3]
        else:
            with pytest.raises(SchemaError, match=r"t\.csv.*: a line is longer than 4 MiB"):
                read()


# -- folders ---------------------------------------------------------------------------------------------


def write_parts(folder: Path, parts: dict[str, dict[str, list[Any]]]) -> Path:
    for name, columns in parts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pa.table(columns), folder / name)
    return folder


def test_a_folder_is_read_recursively_in_path_order(tmp_path: Path) -> None:
    parts = {name: {"a": [k]} for k, name in enumerate(["3.parquet", "1/b.parquet", "1/a.parquet", "2/x/y.parquet"])}
    assert read_path(write_parts(tmp_path, parts), ["a"]).to_pydict() == {"a": [2, 1, 3, 0]}


def test_folder_names_of_column_and_value_become_columns(tmp_path: Path) -> None:
    folder = write_parts(tmp_path, {"year=2023/p.parquet": {"a": [1, 2]}, "year=2024/p.parquet": {"a": [3]}})
    assert column_names(folder) == ["a", "year"]
    assert read_path(folder, ["year", "a"]).to_pydict() == {"year": [2023, 2023, 2024], "a": [1, 2, 3]}


def test_folders_named_7_and_007_are_different(tmp_path: Path) -> None:
    folder = write_parts(tmp_path, {"id=007/p.parquet": {"a": [1]}, "id=7/p.parquet": {"a": [2]}})
    assert read_path(folder, ["id", "a"]).to_pydict() == {"id": ["007", "7"], "a": [1, 2]}


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32()])  # the type of folder names, and another
@pytest.mark.parametrize(
    ("inside", "shown"),
    [([2023, 2023], None), ([2023, 1], "1"), ([None, 2023], "nothing")],
    ids=["same", "other", "missing"],
)
def test_a_file_may_not_contradict_its_folder_name(
    kind: pa.DataType, inside: list[Any], shown: str | None, tmp_path: Path
) -> None:
    folder = tmp_path / "table"
    write_parts(folder, {"year=2023/p.parquet": {"a": [1, 2], "year": pa.array(inside, kind)}})
    ways = {
        "memory": lambda: ChoiceData.from_long(folder, choice_set="a", features=["year"]),
        "disk": lambda: ChoiceData.scan(folder, choice_set="a", features=["year"]).read(),
    }
    for way in ways.values():
        if shown is None:
            assert way().features["year"].plain().tolist() == [2023, 2023]
        else:
            message = rf"p\.parquet: column 'year' holds {shown}, but its folder is named year=2023"
            with pytest.raises(SchemaError, match=message):
                way()


def test_other_files_in_a_folder_are_ignored(tmp_path: Path) -> None:
    folder = write_parts(tmp_path, {"a.parquet": {"a": [1]}, "_tmp/b.parquet": {"a": [2]}, ".x.parquet": {"a": [3]}})
    (folder / "README.txt").write_text("not a table")
    assert read_path(folder, ["a"]).to_pydict() == {"a": [1]}


def test_files_with_integers_and_with_fractions_combine(tmp_path: Path) -> None:
    folder = write_parts(tmp_path, {"a.parquet": {"a": [1]}, "b.parquet": {"a": [2.5]}})
    assert read_path(folder, ["a"]).to_pydict() == {"a": [1.0, 2.5]}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "the folder contains no .parquet file"),
        ({"a.parquet": {"a": [1]}, "b.parquet": {"b": [1]}}, r"b\.parquet has no column 'a'"),
        (
            {"a.parquet": {"a": [1]}, "b.parquet": {"a": ["x"]}},
            r"b\.parquet: column 'a' has the type string, but the type int64 in .*a\.parquet\. Write each column",
        ),
        (
            {"a.parquet": {"a": [2**60]}, "b.parquet": {"a": [2.5]}},
            r"a\.parquet: .* differ from the rest of the folder, 'a' int64 \(folder: double\), .* cannot be converted",
        ),
    ],
    ids=["empty", "column missing in one file", "text in one file", "numbers beyond the common type"],
)
def test_a_folder_without_a_consistent_table_is_refused(
    parts: dict[str, dict[str, list[Any]]], message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "table"
    folder.mkdir()
    write_parts(folder, parts)
    with pytest.raises(SchemaError, match=message):
        read_path(folder, ["a"])
    with pytest.raises(SchemaError, match=message):
        ChoiceData.scan(folder, choice_set="a")


def test_types_may_differ_in_columns_without_a_role(tmp_path: Path) -> None:
    folder = write_parts(tmp_path, {"a.parquet": {"a": [1], "b": [1]}, "b.parquet": {"a": [2], "b": ["x"]}})
    assert read_path(folder, ["a"]).to_pydict() == {"a": [1, 2]}
    with pytest.raises(SchemaError, match="column 'b' has the type string, but the type int64"):
        read_path(folder, ["a", "b"])
    with pytest.raises(SchemaError, match="column 'b' has the type string, but the type int64"):
        read_as_written(folder, (), ["a"])


@pytest.mark.parametrize("zeros", [slice(0, 0), slice(10, 60), slice(0, 10_000)], ids=["cut", "a page", "all"])
def test_a_broken_file_in_a_folder_is_named(zeros: slice, tmp_path: Path) -> None:
    folder = tmp_path / "table"
    folder.mkdir()
    for name in "abc":
        pyarrow.parquet.write_table(pa.table({"a": range(100)}), folder / f"{name}.parquet", write_page_checksum=True)
    content = bytearray((folder / "b.parquet").read_bytes())
    content[zeros] = bytes(len(content[zeros]))
    (folder / "b.parquet").write_bytes(content[: len(content) - (zeros.stop == 0)])
    with pytest.raises(SchemaError, match=r"b\.parquet: cannot be read as \.parquet"):
        read_path(folder, ["a"])
    with pytest.raises(SchemaError, match=r"b\.parquet: cannot be read as \.parquet"):
        ChoiceData.scan(folder, choice_set="a")


def test_a_library_message_is_shortened_to_one_line() -> None:
    assert one_line(ValueError("first\n  second.")) == "first second"
    assert one_line(ValueError()) == "ValueError"


@pytest.mark.parametrize("sign", [";", "\t"])
@pytest.mark.parametrize("zipped", [False, True])
def test_columns_may_be_separated_by_semicolons_or_tabs(sign: str, zipped: bool, tmp_path: Path) -> None:
    text = f'id{sign}"a,b"{sign}c\n1{sign}2.5{sign}"x{sign}y"\n007{sign}-3{sign}"p,q"\n'
    path = tmp_path / ("t.csv.gz" if zipped else "t.csv")
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    assert column_names(path) == ["id", "a,b", "c"]
    table = read_path(path, ["c", "a,b", "id"], ids=["id"])
    assert table.to_pydict() == {"c": [f"x{sign}y", "p,q"], "a,b": [2.5, -3.0], "id": ["1", "007"]}


@pytest.mark.parametrize("sign", [";", "\t"])
def test_decimal_commas_are_refused_with_an_example(sign: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"id{sign}a\n1{sign}-2,5\n")
    with pytest.raises(
        SchemaError, match=r"t\.csv: expected decimal points, got numbers with decimal commas such as -2,5\. Save"
    ):
        column_names(tmp_path / "t.csv")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_text_is_refused(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,a\n1,2\n", encoding=encoding)
    with pytest.raises(SchemaError, match=r"the file is not UTF-8 text. Save it as UTF-8"):
        column_names(tmp_path / "t.csv")


@pytest.mark.parametrize(
    "error", [OSError("Resource temporarily unavailable"), pa.ArrowMemoryError("malloc of size 9 failed")]
)
def test_a_lack_of_memory_does_not_mean_that_a_file_is_damaged(error: Exception) -> None:
    expected = pytest.raises(ResourceError, match=r"t.parquet: not enough memory or threads to read the file")
    with expected, as_schema_errors(Path("t.parquet")):
        raise error
