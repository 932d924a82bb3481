"""A column is added to a CSV, and nothing else changes."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.data.files.csv_files import append_column, records
from pcmcnet.errors import SchemaError

ODD = b'\xef\xbb\xbfid,note\r\n007,"two\r\nlines, ""quoted"""\r\n\r\nNA,5" pipe\r\n"",\xff'


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_adding_a_column_keeps_all_other_bytes(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(gzip.compress(ODD) if name.endswith("gz") else ODD)
    append_column(tmp_path / name, tmp_path / "out.csv", "p, ü", np.array([0.1, 0.25, 1.0]))
    assert (tmp_path / "out.csv").read_bytes() == (
        b'\xef\xbb\xbfid,note,"p, \xc3\xbc"\r\n007,"two\r\nlines, ""quoted""",0.1\r\n\r\nNA,5" pipe,0.25\r\n"",\xff,1.0'
    )


@pytest.mark.parametrize("count", [1, 3])
def test_a_file_with_another_number_of_rows_is_refused(count: int, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n2\n")
    with pytest.raises(SchemaError, match="changed while it was read"):
        append_column(tmp_path / "t.csv", tmp_path / "out.csv", "p", np.zeros(count))
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


@given(st.lists(st.tuples(st.text('a,"\n ', max_size=6), st.text('b,"\n', max_size=6)), max_size=5))
def test_records_match_those_of_the_csv_reader(rows: list[tuple[str, str]]) -> None:
    def cell(text: str) -> str:
        return '"' + text.replace('"', '""') + '"'

    text = "x,y\n" + "".join(f"{cell(x)},{cell(y)}\n" for x, y in rows)
    found_records = list(records(text.splitlines(keepends=True)))
    assert "".join(found_records) == text
    assert len(found_records) == len(rows) + 1


def test_quotes_inside_a_value_do_not_open_a_quoted_value(tmp_path: Path) -> None:
    text = 'a,b\n1,5" pipe\n2,7" pipe\n3,"x"\n'
    (tmp_path / "t.csv").write_text(text)
    assert len(list(records(text.splitlines(keepends=True)))) - 1 == pyarrow.csv.read_csv(tmp_path / "t.csv").num_rows


def test_a_line_break_in_a_quoted_header_after_a_bom_is_kept(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b'\xef\xbb\xbf"price\n(EUR)",b\n1,2\n')
    append_column(tmp_path / "t.csv", tmp_path / "out.csv", "p", np.array([0.5]))
    assert (tmp_path / "out.csv").read_bytes() == b'\xef\xbb\xbf"price\n(EUR)",b,p\n1,2,0.5\n'


def test_the_separator_is_kept(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('a;b\n1;"x;\ny"\n2;"5,5"\n')
    append_column(tmp_path / "t.csv", tmp_path / "out.csv", "p;q", np.array([0.5, 0.25]))
    assert (tmp_path / "out.csv").read_text() == 'a;b;"p;q"\n1;"x;\ny";0.5\n2;"5,5";0.25\n'
