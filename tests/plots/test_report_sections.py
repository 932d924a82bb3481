"""Sections of a report on context effects, examples and responses."""

import json
import re
from dataclasses import replace
from pathlib import Path

from pcmcnet import Explanation
from pcmcnet.insight.willingness_to_pay import TradeOff, TradeOffs
from pcmcnet.plots import write_explanation
from pcmcnet.plots.page_figures import BLUE, GREY, ORANGE
from pcmcnet.plots.report import explanation_sections
from pcmcnet.plots.report_sections import (
    categories_section,
    context_section,
    elasticities_section,
    examples_section,
    trade_offs_section,
)
from pcmcnet.reports.formats import packed_script, plotly_script
from pcmcnet.reports.sections import Figure, Heading, Table, Text, Thumbnail


def test_the_strongest_case_has_text_table_and_map(explained: dict[str, Explanation]) -> None:
    part = explained["chain"].context
    assert part is not None
    assert not part.has_no_effects
    first, cases, heading, strongest, drawn, together, _, orders = context_section(part).blocks
    assert isinstance(first, Text)
    assert f"is {part.search.cases[0].share_with:.1%} with" in first.text
    assert isinstance(cases, Table)
    assert len(cases.cells) == 1 + len(part.search.cases)
    assert isinstance(heading, Heading)
    assert isinstance(strongest, Table)
    assert isinstance(drawn, Figure)
    assert part.orders is not None
    assert together == Heading("Orders of interaction")
    assert orders == Table(cells=part.orders.cells)


def test_examples_mark_the_choice_and_show_the_chain(explained: dict[str, Explanation]) -> None:
    for name, figures in (("chain", 2), ("logit", 2), ("ranking", 1)):
        part = explained[name].examples
        assert part is not None
        section = examples_section(part)
        chains = name == "chain"  # the chain of the first example
        assert sum(isinstance(block, Figure) for block in section.blocks) == figures * len(part) + chains
        tables = [block for block in section.blocks if isinstance(block, Table)]
        for table, example in zip(tables, part, strict=True):
            (strong,) = table.strong
            assert example.chosen is not None
            assert table.cells[1 + strong][0] == f"{example.names[example.chosen]} (chosen)"


def test_an_unknown_choice_is_not_marked(explained: dict[str, Explanation]) -> None:
    part = explained["unknown"].examples
    assert part is not None
    section = examples_section(part)
    assert not any(block.strong for block in section.blocks if isinstance(block, Table))
    assert any("the choice is unknown" in block.text for block in section.blocks if isinstance(block, Text))


def test_columns_of_contents_are_shown_by_kind(rich: Explanation, evil: str) -> None:
    assert set(rich.left_out) == {"categories", "trade_offs"}  # one number and no category
    assert rich.importance is not None
    assert {row.name for row in rich.importance.rows} == {"price", "photo", "about", "services", "style", "guest", "at"}
    assert rich.elasticities is not None
    assert [table.column for table in rich.elasticities.tables] == ["price"]
    sections = {section.name: section for section in explanation_sections(rich)}
    notes = [block.text for block in sections["elasticities"].blocks if isinstance(block, Text)]
    assert "These features are not numeric and have no elasticity: photo, about, services, style." in " ".join(notes)
    tables = [block.cells for block in sections["examples"].blocks if isinstance(block, Table)]
    guest, alternatives = tables[:2]
    assert list(guest[0]) == ["of the individual", "guest"]
    heads, first = alternatives[:2]
    cells = dict(zip(heads, first, strict=True))
    assert isinstance(cells["photo"], Thumbnail)
    assert len(cells["about"]) == 60
    assert cells["style"].endswith("… (5)")
    about = [block.cells for block in sections["table"].blocks if isinstance(block, Table)]
    other_columns = next(cells for cells in about if "kind" in cells[0])
    what = {row[0]: row[-1] for row in other_columns}
    assert what["style"] == "5 numbers"
    assert what["services"] == f"{evil}, pool, wifi (3 names)"
    assert what["at"].startswith("2024-03-0")


def test_a_report_with_pictures_is_self_contained(rich: Explanation, evil: str, tmp_path: Path) -> None:
    page, text, numbers = write_explanation(rich, tmp_path)
    html = page.read_text("utf-8").replace(packed_script(plotly_script()), "")
    sources = re.findall(r'src="([^"]*)"', html)
    assert rich.context is not None
    of_context = 0 if rich.context.has_no_effects else 3  # the strongest case has three rooms
    assert len(sources) == 2 * (3 + 1) + of_context  # each of two examples has three rooms and a guest
    assert all(source.startswith("data:image/png;") for source in sources)
    assert evil not in html
    assert "data:image" not in text.read_text("utf-8")
    example = json.loads(numbers.read_text("utf-8"))["examples"][0]
    assert example["columns"]["photo"][0].startswith("data:image/png;")
    assert len(example["columns"]["style"][0]) == 5


def test_the_table_of_elasticities_has_names_and_units(explained: dict[str, Explanation], evil: str) -> None:
    part, names = explained["chain"].elasticities, explained["chain"].names
    assert part is not None
    section = elasticities_section(part, names)
    table = next(block for block in section.blocks if isinstance(block, Table))
    assert [row[0] for row in table.cells[1:]] == [names.label(table_.column) for table_ in part.tables]
    assert f"Price {evil} (EUR)" in [row[0] for row in table.cells]
    assert float(table.cells[1][2]) == float(f"{part.tables[0].rows[0].own:.4g}")
    assert sum(isinstance(block, Figure) for block in section.blocks) == len(part.demand) == 2


def test_colours_of_categories_match_the_caption(explained: dict[str, Explanation]) -> None:
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
    assert "Blue: above average. Orange: below average. Grey: not significant." in figure.caption
    assert figure.numbers[0][0] == "Seat"


def test_ensembles_have_intervals(explained: dict[str, Explanation]) -> None:
    row = TradeOff("time", -0.8, -1.2, -0.4, 0.03, (-1.0, -0.6))
    many = trade_offs_section(TradeOffs("price", (row,), 60, 5), explained["chain"].names)
    heads, cells = next(block for block in many.blocks if isinstance(block, Table)).cells
    assert heads[1].startswith("compensated by Price ")
    assert list(cells) == ["time", "-0.8", "-1.2 to -0.4", "3.0%", "-1 to -0.6"]
    one = trade_offs_section(TradeOffs("price", (replace(row, ends=None),), 60))
    assert len(next(block for block in one.blocks if isinstance(block, Table)).cells[0]) == 4
    assert any("A single model has no interval" in block.text for block in one.blocks if isinstance(block, Text))
