"""Distinct values of a column: their codes, their names, and parsing of numbers."""

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.distinct import (
    NUMBER_FORMATS,
    DistinctValues,
    FormatDetector,
    distinct,
    first_rows,
    names,
    numbers,
    renumber_by_first_row,
)
from pcmcnet.data.files.read_files import read_as_written
from pcmcnet.errors import SchemaError
from pcmcnet.models import MNL

cells = st.one_of(
    st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=1, max_size=12),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4),
    st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", ""])), min_size=1, max_size=12),
    st.lists(st.one_of(st.none(), st.booleans()), min_size=1, max_size=12),
)


def in_chunks(values: list[Any], cut: int, kind: pa.DataType | None = None) -> pa.ChunkedArray:
    kind = kind or pa.array(values).type
    return pa.chunked_array([pa.array(values[:cut], kind), pa.array(values[cut:], kind)])


def test_values_get_codes_and_missing_values_get_minus_1() -> None:
    result = distinct(pa.chunked_array([pa.array(["b", None, "a"]), pa.array(["a", "b"])]))
    assert result.codes.tolist() == [0, -1, 1, 1, 0]
    assert result.values.to_pylist() == ["b", "a"]


def test_runs_of_integers_are_looked_up_once_each() -> None:
    result = distinct(pa.chunked_array([pa.array([5, 5, 2]), pa.array([2, 5])]))
    assert result.codes.tolist() == [0, 0, 1, 1, 0]
    assert result.values.to_pylist() == [5, 2]


@given(values=cells, cut=st.integers(0, 12), encode=st.booleans())
def test_codes_and_values_restore_the_column(values: list[Any], cut: int, encode: bool) -> None:
    column = in_chunks(values, cut)
    codes, distinct_values = distinct(column.dictionary_encode() if encode else column)
    assert [None if code < 0 else distinct_values[int(code)].as_py() for code in codes] == values


@pytest.mark.parametrize("encode", [False, True])
def test_a_column_of_missing_values_has_no_distinct_values(encode: bool) -> None:
    column = pa.chunked_array([pa.nulls(2), pa.nulls(1)])
    result = distinct(column.dictionary_encode() if encode else column)
    assert result.codes.tolist() == [-1, -1, -1]
    assert names(result.values) == []


@pytest.mark.parametrize(
    ("indices", "dictionary"),
    [([0, 1, 2, 0], ["a", None, "b"]), ([0, 1, 2, 3], ["a", None, "b", "a"])],
    ids=["null entry", "duplicate entry"],
)
def test_duplicates_and_nulls_in_a_dictionary_are_removed(indices: list[int], dictionary: list[str | None]) -> None:
    column = pa.chunked_array([pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(dictionary))])
    result = distinct(column)
    assert result.codes.tolist() == [0, -1, 1, 0]
    assert result.values.to_pylist() == ["a", "b"]


def test_values_are_ordered_by_first_row_without_unused_ones() -> None:
    """Rows c, missing, a, c of the dictionary a, b, c: c comes first, then a; no row has b."""
    renumbered = renumber_by_first_row(DistinctValues(np.array([2, -1, 0, 2], np.int32), pa.array(["a", "b", "c"])))
    assert renumbered.codes.tolist() == [0, -1, 1, 0]
    assert renumbered.values.to_pylist() == ["c", "a"]


def test_an_unused_code_has_its_first_row_after_the_last() -> None:
    assert first_rows(np.array([1, -1, 1, 0], np.int32), 3).tolist() == [3, 0, 4]


NEW_YEAR = dt.datetime(2024, 1, 1)
TEN = dt.datetime(2024, 1, 1, 10, 0, 0, 500_000)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, -2, None]), ["1", "-2", None]),
        (pa.array([1.0, 2.5, float("nan"), None, 1e20]), ["1", "2.5", None, None, "1e+20"]),
        (pa.array([0.1, 3.0], pa.float32()), ["0.1", "3"]),
        (pa.array([np.float16(2)]), ["2"]),
        (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        (pa.array([True, False, None]), ["true", "false", None]),
        (
            pa.array(["True", "FALSE", "1.0", "-3.00", "1.50", "007", " x"]),
            ["true", "false", "1", "-3", "1.50", "007", " x"],
        ),
        (pa.array(["é"], pa.large_string()), ["é"]),
        (pa.array(["é"], pa.string_view()), ["é"]),
        (pa.array([decimal.Decimal("2.00"), decimal.Decimal("2.50")]), ["2", "2.50"]),
        (pa.array([dt.date(2024, 1, 1)]), ["2024-01-01"]),
        *(
            (pa.array([NEW_YEAR, TEN], pa.timestamp(u)), ["2024-01-01", "2024-01-01 10:00:00.5"])
            for u in ("ms", "us", "ns")
        ),
        (pa.array([dt.datetime(2020, 10, 10, 10, 20)], pa.timestamp("s")), ["2020-10-10 10:20:00"]),
        (pa.array([NEW_YEAR], pa.timestamp("us", "UTC")), ["2024-01-01Z"]),
        (pa.array([b"ab"]), ["ab"]),
        (pa.array([None]), [None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_a_category_is_named_by_its_text(values: pa.Array, expected: list[str | None]) -> None:
    assert names(values) == expected


@pytest.mark.parametrize("values", [pa.array([[1]]), pa.array([{"a": 1}]), pa.array([b"\xff"])], ids=str)
def test_values_without_a_text_form_have_no_names(values: pa.Array) -> None:
    with pytest.raises(pa.ArrowException):
        names(values)


def test_numbers_are_parsed_and_the_rest_is_nan() -> None:
    values = pa.array(["1", " 2.5 ", "-1e3", "x", "", "1_000", None, "inf"])
    np.testing.assert_array_equal(numbers(values), [1, 2.5, -1000, np.nan, np.nan, np.nan, np.nan, np.inf])


# -- Written -----------------------------------------------------------------------------------------------------------
# Text is read as numbers only if no information is lost. Ids in a file without types stay distinct.


READ = {"memory": ChoiceData.from_long, "disk": lambda *args, **roles: ChoiceData.scan(*args, **roles).read()}
both_ways = pytest.mark.parametrize("read", READ.values(), ids=READ)


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-20", None], pa.int64()),
        (["1.5", "3"], pa.float64()),
        (["1.5", "3.0", "-0.0"], pa.float64()),
        (["1e+20", "3"], pa.float64()),
        (["-0", "3"], pa.string()),
        (["inf", "3"], pa.string()),
        (["-inf", "3.5"], pa.string()),
        (["nan", "3.5"], pa.string()),
        (["3", "3.0"], pa.string()),
        (["12.1", "12.10"], pa.string()),
        (["007"], pa.string()),
        (["1e3"], pa.string()),
        (["12345678901234567890"], pa.string()),
        (["0.1234567890123456789"], pa.string()),
        ([" 7"], pa.string()),
        ([""], pa.string()),
        (["NA", "7"], pa.string()),
    ],
)
def test_text_becomes_numbers_only_if_it_survives_a_round_trip(texts: list[str | None], kind: Any) -> None:
    writing = FormatDetector(NUMBER_FORMATS)
    for text in texts:
        writing.update(pa.array([text], pa.string()))
    assert writing.type == kind


@pytest.mark.parametrize("ids", [("12.1", "12.10"), ("7", "007"), ("1e3", "1000"), ("9" * 20, "9" * 19 + "8")])
@both_ways
def test_csv_ids_are_equal_only_if_written_alike(read: Any, ids: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("set,x\n" + "".join(f"{name},{k}\n" for name in ids for k in range(2)))
    data = read(path, choice_set="set", features=["x"])
    assert data.set_ids.tolist() == list(ids)
    assert data.sizes.tolist() == [2, 2]


@both_ways
def test_integer_ids_are_the_same_in_csv_and_parquet(read: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("set,x\n 30,1\n 30,2\n-4,3\n-4,4\n")
    pyarrow.parquet.write_table(pa.table({"set": [30, 30, -4, -4], "x": [1, 2, 3, 4]}), tmp_path / "t.parquet")
    of_csv, of_parquet = (read(tmp_path / f"t.{end}", choice_set="set", features=["x"]) for end in ("csv", "parquet"))
    np.testing.assert_array_equal(of_csv.set_ids, of_parquet.set_ids)
    assert of_csv.fingerprint() == of_parquet.fingerprint()


def test_splits_of_scanned_csv_and_parquet_are_the_same(tmp_path: Path) -> None:
    table = pa.table({"set": np.repeat(np.arange(50), 2), "x": np.arange(100.0)})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    pyarrow.csv.write_csv(table, tmp_path / "t.csv")
    parts = [
        ChoiceData.scan(tmp_path / name, choice_set="set", features=["x"]).split((0.5, 0.5))[0].read().set_ids.tolist()
        for name in ("t.parquet", "t.csv")
    ]
    assert parts[0] == parts[1]


def test_numeric_and_text_labels_are_compared_as_text(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = {
        "set": np.repeat(np.arange(30), 2),
        "item": [7, 10] * 30,
        "took": [1, 0] * 29 + [0, 1],
        "x": rng.normal(size=60),
    }
    pyarrow.parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    pyarrow.csv.write_csv(pa.table(table), tmp_path / "t.csv")
    roles: dict[str, Any] = {"choice_set": "set", "chosen": "took", "alternative": "item", "features": ["x"]}
    for one, other in (("t.parquet", "t.csv"), ("t.csv", "t.parquet")):
        model = MNL().fit(ChoiceData.from_long(tmp_path / one, **roles))
        np.testing.assert_array_equal(model.predict_proba(tmp_path / one), model.predict_proba(tmp_path / other))


def test_a_wide_csv_keeps_ids_and_codes_distinct(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("trip,choice,a_x,b_x\n7,01,1,2\n007,1,3,4\n")
    data = ChoiceData.from_wide(
        tmp_path / "t.csv",
        chosen="choice",
        choice_set="trip",
        alternatives={"a": "1", "b": "01"},
        features={"x": "{alternative}_x"},
    )
    assert data.set_ids.tolist() == ["7", "007"]
    assert data.chosen is not None
    assert data.chosen.tolist() == [1, 0]


@both_ways
def test_quoted_line_breaks_do_not_start_rows(read: Any, tmp_path: Path) -> None:
    """The file is larger than a parsed block, in memory and on disk."""
    note = '"' + "first line\n" * 40 + 'last"'
    (tmp_path / "t.csv").write_text(
        "set,took,x,note\n" + "".join(f"{k // 2},{k % 2},{k},{note}\n" for k in range(12_000))
    )
    assert (tmp_path / "t.csv").stat().st_size > 2**22
    data = read(tmp_path / "t.csv", choice_set="set", chosen="took", features=["x"])
    assert data.n_rows == 12_000
    assert data.features["x"].values.tolist() == list(range(12_000))


def test_ids_beyond_64_bits_stay_distinct() -> None:
    data = ChoiceData.from_long({"set": [2**64, 2**64, 2**64 + 1], "x": [1, 2, 3]}, choice_set="set", features=["x"])
    assert data.set_ids.tolist() == [str(2**64), str(2**64 + 1)]


@pytest.mark.parametrize("role", ["choice_set", "person", "alternative"])
def test_float32_ids_that_may_have_merged_are_refused(role: str) -> None:
    table = {"set": [1, 2], "x": [1, 2], "id": np.array([2**24, 2**24 + 1], np.float32)}
    with pytest.raises(SchemaError, match=r"column 'id' holds floating-point ids of 2\*\*24 or more"):
        ChoiceData.from_long(table, **({"choice_set": "set", "features": ["x"]} | {role: "id"}))


def test_minus_zero_and_zero_are_the_same_id_and_category() -> None:
    table = {"set": [0.0, -0.0], "mode": ["a", "b"], "zone": ["-0.0", "0"], "x": [1, 2]}
    data = ChoiceData.from_long(
        table, choice_set="set", alternative="mode", features=["x", "zone"], categorical=["zone"]
    )
    assert len(data) == 1
    assert data.features["zone"].plain().tolist() == ["0", "0"]


def test_read_as_written_keeps_the_text_of_a_csv(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('n,zip,gap,price,count\n1,007,NA,1.50,3\n2,501,,2.00,4\n3,7,"",NA,5\n')
    table = read_as_written(tmp_path / "t.csv", numbers=["price", "count"])
    assert table["n"].to_pylist() == [1, 2, 3]
    assert table["zip"].to_pylist() == ["007", "501", "7"]
    assert table["gap"].to_pylist() == ["NA", None, ""]
    assert table["price"].to_pylist() == ["1.50", "2.00", "NA"]  # "NA" cannot be stored as a number
    assert table["count"].type == pa.int64()
