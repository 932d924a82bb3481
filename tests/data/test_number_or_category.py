"""Numbers or categories, by type and by text: numbers stored as text are refused, other kinds are suggested."""

import datetime as dt
import decimal
import logging
import re
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.data.column_reader import ColumnReader, is_categorical
from pcmcnet.errors import SchemaError

READ = {"memory": ChoiceData.from_long, "disk": lambda *args, **roles: ChoiceData.scan(*args, **roles).read()}
both_ways = pytest.mark.parametrize("read", READ.values(), ids=READ)

NUMBERS = {
    "dollars": "${}.50",
    "euros": "{} €",
    "code before": "EUR {}.5",
    "per cent": "{}%",
    "thousands": "{},200",
    "apostrophes": "{}'200.5",
    "decimal comma": "{},5",
    "negative": "-${}",
    "plain": "{}.25",
    "whole": "{}",
}


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """Return a function that writes a Parquet file with a column of text, one row per value."""

    def write(values: list[Any]) -> Path:
        rows = pa.table({"set": [k // 2 for k in range(len(values))], "a": values})
        pyarrow.parquet.write_table(rows, tmp_path / "t.parquet")
        return tmp_path / "t.parquet"

    return write


@pytest.mark.parametrize("how", NUMBERS)
@both_ways
def test_numbers_stored_as_text_are_refused_unless_declared(how: str, read: Any, table: Any) -> None:
    values = [NUMBERS[how].format(k + 1) for k in range(30)]
    message = r"column 'a': .*, got numbers stored as text, such as .*, in 100% .* 30 distinct .* categorical"
    with pytest.raises(SchemaError, match=message):
        read(table(values), choice_set="set", features=["a"])
    declared = read(table(values), choice_set="set", features=["a"], categorical=["a"])
    assert declared.features["a"].plain().tolist() == values


@both_ways
def test_numbers_stored_as_text_are_read_if_categories_are_listed(read: Any, table: Any) -> None:
    data = read(table([f"{k}.5" for k in range(30)]), choice_set="set", features=["a"], categorical=[])
    assert data.features["a"].values.tolist() == [k + 0.5 for k in range(30)]


@both_ways
def test_declaring_a_curve_declares_numbers(read: Any, table: Any) -> None:
    data = read(table([f"{k}.5" for k in range(30)]), choice_set="set", features=["a"], kinds={"a": "spline"})
    assert data.features["a"].values.tolist() == [k + 0.5 for k in range(30)]


@both_ways
def test_a_categorical_type_declares_categories(read: Any, table: Any) -> None:
    values = pa.array([f"{k}%" for k in range(30)]).dictionary_encode()
    assert read(table(values), choice_set="set", features=["a"]).schema.categorical == ("a",)


NOTES = {
    "levels": (
        ["1", "2", "3"],
        r"holds numbers as text, such as '1', .* read as 3 categories: store it as numbers",
    ),
    "shares": (["5%", "10%"], r"holds numbers as text, such as '5%', and is read as 2 categories"),
    "dates": (["2024-05-17", "2024-05-18T09:30"], r"holds dates or times, .* declare kinds=\{'a': 'datetime'\}"),
    "lists": (["[1, 2]", "[]"], r"holds lists, .* declare kinds=\{'a': 'multi'\} for lists of names, or 'vector'"),
    "texts": ([f"a room with view {k}" for k in range(22)], r"texts of 5 words .* declare kinds=\{'a': 'text'\}"),
}


@pytest.mark.parametrize("what", NOTES)
@both_ways
def test_reading_text_as_categories_suggests_other_kinds(
    what: str, read: Any, table: Any, caplog: pytest.LogCaptureFixture
) -> None:
    values, note = NOTES[what]
    with caplog.at_level(logging.WARNING, "pcmcnet"):
        assert read(table(values * 4), choice_set="set", features=["a"]).schema.categorical == ("a",)
    assert len(caplog.messages) == 1
    assert caplog.text.count("column 'a'") == 1
    assert re.search(note, caplog.text)


NAMES = {
    "postcodes": [f"{k * 397:05d}" for k in range(40)],
    "itineraries": [f"A{k}/A{k + 1}" for k in range(40)],
    "streets": [f"{k} High Street" for k in range(40)],
    "flights": [f"AF{k}" for k in range(40)],
    "few answers": ["I am very satisfied with it", "not at all, to be honest"] * 20,
    "half numbers": [f"{k},5" for k in range(20)] + [f"x{k}" for k in range(20)],
}


@pytest.mark.parametrize("what", NAMES)
@both_ways
def test_names_are_categories_without_a_note(
    what: str, read: Any, table: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "pcmcnet"):
        assert read(table(NAMES[what]), choice_set="set", features=["a"]).schema.categorical == ("a",)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("values", "kind"),
    [([date(2024, 5, 17)], "datetime"), ([[1.0, 2.0]], "vector"), ([["wifi"]], "multi"), ([b"\x89PNG"], "image")],
)
@both_ways
def test_the_error_of_a_type_without_numbers_names_its_kind(read: Any, values: Any, kind: str, table: Any) -> None:
    with pytest.raises(SchemaError, match=rf"or declare kinds=\{{'a': '{kind}'\}}\."):
        read(table(values * 2), choice_set="set", features=["a"])


# -- by type and by text ---------------------------------------------------------------------------------


def reader(values: Any) -> ColumnReader:
    """Read one column "a"; the choice set of row r is named "set r"."""
    column = values if isinstance(values, pa.Array) else pa.array(values)
    return ColumnReader.of(pa.table({"a": column}), name_set=lambda row: f"set {row}")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], False),
        ([1.5], False),
        ([decimal.Decimal(1)], False),
        ([dt.date(2024, 1, 1)], False),
        ([None], False),
        ([True], True),
        (["x", "y"], True),
        (["1", "2"], True),
        (["1", "2", "x"], True),
        (pa.array([1, 2]).dictionary_encode(), True),
        (pa.array(["1"] * 19 + ["x"]).dictionary_encode(), True),
    ],
    ids=str,
)
def test_the_default_kind_follows_the_type(values: Any, expected: bool) -> None:
    assert is_categorical(reader(values), "a") is expected


@pytest.mark.parametrize("encoded", [False, True])
def test_a_little_text_among_numbers_is_a_mistake_not_a_category(encoded: bool) -> None:
    """One of ten, or two of twenty, is little; two of nineteen is not. Missing values do not count."""

    def text(values: list[str | None]) -> ColumnReader:
        column = reader(pa.array(values).dictionary_encode() if encoded else values)
        return ColumnReader(column.columns, column.rows, True, column.name_set, dictionaries_are_text=encoded)

    message = "column 'a', row 9 .*: expected a number as in the other rows, got 'x'; 1 such row. Correct them, or list"
    with pytest.raises(SchemaError, match=message):
        is_categorical(text(["1"] * 9 + ["x"]), "a")
    with pytest.raises(SchemaError, match=r"row 0 .* got 'inf'; 2 such rows"):
        is_categorical(text(["inf", "x"] + ["1"] * 18), "a")
    assert is_categorical(text(["1"] * 17 + ["x", "x"]), "a")
    assert is_categorical(text(["1"] * 8 + ["x"] + [None] * 9), "a")


@pytest.mark.parametrize("write", ["{},000", "{},5", "-1.0{:02d},5", " {},000.25 "])
def test_numbers_with_decimal_commas_are_not_categories(write: str) -> None:
    values = [write.format(k) for k in range(30)]
    message = "column 'a': .*, got numbers stored as text, such as .*, in 97% of its values.* 32 distinct numbers"
    with pytest.raises(SchemaError, match=message):
        is_categorical(reader([*values, "950", "7", "n/a"]), "a")
    assert is_categorical(reader(pa.array(values, pa.string_view())[:20]), "a")
    assert reader(values).categorical("a").codes.tolist() == list(range(30))


def test_other_text_with_commas_stays_categorical() -> None:
    assert is_categorical(reader([f"Street {k}, 10" for k in range(30)]), "a")
    assert is_categorical(reader([f"{k},5" for k in range(15)] + [f"x{k}" for k in range(15)]), "a")
