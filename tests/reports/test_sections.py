"""Cells of a report: numbers and words are unchanged, long texts and vectors are truncated, pictures are shown."""

from pcmcnet.reports.sections import Thumbnail, format_cell

URI = "data:image/png;base64,AAAA"


def test_a_picture_is_a_cell_with_an_alternative_text() -> None:
    cell = format_cell(URI)
    assert isinstance(cell, Thumbnail)
    assert (cell, cell.uri) == ("picture", URI)


def test_long_texts_and_lists_are_truncated() -> None:
    assert format_cell("x" * 60) == "x" * 60
    assert format_cell("x" * 61) == "x" * 59 + "…"
    assert format_cell(["a" * 40, "b" * 40]) == "a" * 40 + ", " + "b" * 17 + "…"
    assert format_cell([1.5, 2.5, 3.5]) == "1.5, 2.5, 3.5"
    assert format_cell([1.5] * 384) == "1.5, 1.5, … (384)"
