"""Sections on what a model does."""

from pcmcnet import Explanation
from pcmcnet.plots.explanation.answers import context_section, elasticities_section, examples_section
from pcmcnet.plots.explanation.blocks import Figure, Heading, Table, Words


def test_the_table_of_elasticities_has_a_line_for_each_feature(explained: dict[str, Explanation]) -> None:
    part = explained["chain"].elasticities
    assert part is not None
    table = next(block for block in elasticities_section(part).blocks if isinstance(block, Table))
    assert [row[0] for row in table.cells[1:]] == [found.column for found in part.tables]
    assert float(table.cells[1][2]) == float(f"{part.tables[0].rows[0].own:.4g}")


def test_the_strongest_case_is_told_tabled_and_mapped(explained: dict[str, Explanation]) -> None:
    part = explained["chain"].context
    assert part is not None
    assert not part.none
    first, cases, heading, strongest, drawn = context_section(part).blocks
    assert isinstance(first, Words)
    assert f"is {part.search.cases[0].share_with:.1%} where" in first.text
    assert isinstance(cases, Table)
    assert len(cases.cells) == 1 + len(part.search.cases)
    assert isinstance(heading, Heading)
    assert isinstance(strongest, Table)
    assert isinstance(drawn, Figure)


def test_examples_mark_the_choice_and_show_the_chain_where_there_is_one(explained: dict[str, Explanation]) -> None:
    for name, figures in (("chain", 3), ("logit", 2), ("ranking", 1)):
        part = explained[name].examples
        assert part is not None
        section = examples_section(part)
        assert sum(isinstance(block, Figure) for block in section.blocks) == figures * len(part)
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
    assert any("the choice is not known" in block.text for block in section.blocks if isinstance(block, Words))
