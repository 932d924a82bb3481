"""The report in Markdown: the words and tables of the page, and numbers in place of figures."""

from pcmcnet import Explanation
from pcmcnet.evaluation.tables import markdown_table
from pcmcnet.plots.explanation.blocks import Facts, Figure, Heading, Section, Table, Tiles, warning, words
from pcmcnet.plots.explanation.markdown import explanation_markdown
from pcmcnet.plots.explanation.sections import sections_of


def test_every_kind_of_block_has_its_form() -> None:
    cells = [["a", "b"], ["x|y", "1"]]
    blocks = (
        words("One *word*."),
        warning("Mind it."),
        Heading(text="More"),
        Facts(pairs={"seed": 0}),
        Tiles(tiles=(("NLL", "1.2", "uniform: 3"),)),
        Table(cells=cells),
        Figure(traces=(), caption="Seen.", numbers=cells),
    )
    text = explanation_markdown([Section(name="s", title="All", blocks=blocks)], title="Report")
    assert text == (
        "# Report\n\n## All\n\nOne \\*word\\*.\n\n**Mind it.**\n\n### More\n\n- seed: 0\n\n- NLL: 1.2 (uniform: 3)\n\n"
        "| a | b |\n| --- | ---: |\n| x\\|y | 1 |\n\n| a | b |\n| --- | ---: |\n| x\\|y | 1 |\n\nSeen.\n"
    )


def test_the_report_has_all_tables_and_no_markup_of_the_table(explained: dict[str, Explanation]) -> None:
    for found in explained.values():
        sections = sections_of(found)
        text = explanation_markdown(sections, title=found.title)
        for section in sections:
            assert f"\n## {section.title}\n" in text
            for block in section.blocks:
                if isinstance(block, Table):
                    assert markdown_table(block.cells) in text
                if isinstance(block, Figure):
                    assert markdown_table(block.numbers) in text
        assert "<a " not in text.replace("\\<", "")
