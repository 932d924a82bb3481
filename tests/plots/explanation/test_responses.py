"""Sections on how probabilities respond."""

from dataclasses import replace

from pcmcnet import Explanation
from pcmcnet.insight.trade_offs import TradeOff, TradeOffs
from pcmcnet.plots.explanation.page_figures import BLUE, GREY, ORANGE
from pcmcnet.plots.explanation.responses import categories_section, elasticities_section, trade_offs_section
from pcmcnet.reports.sections import Figure, Table, Text


def test_the_table_of_elasticities_has_a_line_for_each_feature_by_its_name_and_unit(
    explained: dict[str, Explanation], evil: str
) -> None:
    part, names = explained["chain"].elasticities, explained["chain"].names
    assert part is not None
    section = elasticities_section(part, names)
    table = next(block for block in section.blocks if isinstance(block, Table))
    assert [row[0] for row in table.cells[1:]] == [names.label(found.column) for found in part.tables]
    assert f"Price {evil} (EUR)" in [row[0] for row in table.cells]
    assert float(table.cells[1][2]) == float(f"{part.tables[0].rows[0].own:.4g}")
    assert sum(isinstance(block, Figure) for block in section.blocks) == len(part.demand) == 2


def test_categories_are_coloured_as_the_caption_says(explained: dict[str, Explanation]) -> None:
    part = explained["chain"].categories
    assert part is not None
    (table,) = part.tables
    assert table.column == "seat"
    ends = [(2.0, 1.5, 2.5), (1.1, 0.9, 1.3), (0.5, 0.2, 0.8)]
    rows = tuple(replace(row, lift=x, low=low, high=high) for row, (x, low, high) in zip(table.rows, ends, strict=True))
    section = categories_section(replace(part, tables=(replace(table, rows=rows),)), explained["chain"].names)
    (figure,) = (block for block in section.blocks if isinstance(block, Figure))
    assert figure.traces[0]["marker"]["color"] == [ORANGE, GREY, BLUE]
    assert figure.traces[0]["x"] == [0.5, 1.1, 2.0]
    assert "Blue gains, orange loses, grey may do either." in figure.caption
    assert figure.numbers[0][0] == "Seat"


def test_an_interval_is_shown_where_there_are_members_to_ask(explained: dict[str, Explanation]) -> None:
    row = TradeOff("time", -0.8, -1.2, -0.4, 0.03, (-1.0, -0.6))
    many = trade_offs_section(TradeOffs("price", (row,), 60, 5), explained["chain"].names)
    heads, cells = next(block for block in many.blocks if isinstance(block, Table)).cells
    assert heads[1].startswith("made up for by Price ")
    assert list(cells) == ["time", "-0.8", "-1.2 to -0.4", "3.0%", "-1 to -0.6"]
    one = trade_offs_section(TradeOffs("price", (replace(row, ends=None),), 60))
    assert len(next(block for block in one.blocks if isinstance(block, Table)).cells[0]) == 4
    assert any("A single model has no interval" in block.text for block in one.blocks if isinstance(block, Text))
