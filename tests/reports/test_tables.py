from hypothesis import given
from hypothesis import strategies as st

from pcmcnet.reports.tables import escaped, limit_table_width, markdown_table, text_table

CELLS = [["model", "NLL", "TOP 1"], ["uniform", "1.10", "0.333"], ["a long name", "failed: no data at all"]]


def test_columns_are_aligned_and_a_short_row_does_not_widen_them() -> None:
    assert text_table(CELLS).splitlines() == [
        "model         NLL  TOP 1",
        "uniform      1.10  0.333",
        "a long name  failed: no data at all",
    ]


def test_short_rows_of_markdown_are_filled() -> None:
    lines = markdown_table(CELLS).splitlines()
    assert lines[1] == "| --- | ---: | ---: |"
    assert lines[-1] == "| a long name | failed: no data at all |  |"


def test_markup_and_line_ends_are_escaped() -> None:
    assert escaped("a|b *c* _d_ <e> `f`\n\\g") == r"a\|b \*c\* \_d\_ \<e> \`f\` \\g"


def test_control_characters_are_escaped_and_columns_aligned() -> None:
    cells = [["a\x1b[2J", "b"], ["c", "1"]]
    assert text_table(cells) == "a\\x1b[2J  b\nc         1"
    assert markdown_table(cells).splitlines()[0] == "| a\\\\x1b[2J | b |"


def test_rules_are_below_the_head_and_above_given_rows() -> None:
    cells = [["a", "b"], ["x", "10"], ["y", "2"]]
    assert text_table(cells, {1}).splitlines() == ["a   b", "-----", "x  10", "-----", "y   2"]
    assert text_table(cells, ()).splitlines() == ["a   b", "-----", "x  10", "y   2"]


def test_columns_that_do_not_fit_move_below() -> None:
    with limit_table_width(20):
        assert text_table(CELLS).splitlines() == [
            "model         NLL",
            "uniform      1.10",
            "a long name  failed:",
            "             no data",
            "             at all",
            "",
            "model        TOP 1",
            "uniform      0.333",
        ]
    assert len(text_table(CELLS).splitlines()) == 3


@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(15, 60))
def test_no_line_exceeds_the_width_and_no_cell_is_lost(widths: list[int], limit: int) -> None:
    """The first column has 1 letter, so any column of up to 12 fits next to it."""
    head = ["a", *("h" * width for width in widths)]
    with limit_table_width(limit):
        text = text_table([head, ["b", *(f"{k}" * width for k, width in enumerate(widths))]])
    assert max(map(len, text.splitlines())) <= limit
    for k, width in enumerate(widths):
        assert f"{k}" * width in text
