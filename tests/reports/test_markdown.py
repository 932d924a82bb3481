"""The report in Markdown: the words and tables of the page, and numbers in place of figures."""

from pcmcnet.reports.markdown import explanation_markdown
from pcmcnet.reports.sections import Facts, Figure, Heading, Section, Table, Tiles, warning, words


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
