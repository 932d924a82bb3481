"""The report in Markdown: the words and tables of the page, and numbers in place of figures."""

from pcmcnet.reports.markdown import to_markdown
from pcmcnet.reports.sections import Facts, Figure, Heading, Section, Table, Text, Tiles, warning


def test_every_kind_of_block_has_its_form() -> None:
    cells = [["a", "b"], ["x|y", "1"]]
    blocks = (
        Text("One *word*."),
        warning("Mind it."),
        Heading("More"),
        Facts({"seed": 0}),
        Tiles((("NLL", "1.2", "uniform: 3"),)),
        Table(cells=cells),
        Figure(traces=(), caption="Seen.", numbers=cells),
    )
    text = to_markdown("Report", [Section(name="s", title="All", blocks=blocks)])
    assert text == (
        "# Report\n\n## All\n\nOne \\*word\\*.\n\n**Mind it.**\n\n### More\n\n- seed: 0\n\n- NLL: 1.2 (uniform: 3)\n\n"
        "| a | b |\n| --- | ---: |\n| x\\|y | 1 |\n\n| a | b |\n| --- | ---: |\n| x\\|y | 1 |\n\nSeen.\n"
    )
