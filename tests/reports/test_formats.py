from dataclasses import dataclass
from pathlib import Path

from pcmcnet.reports.formats import (
    FormatsMixin,
    NotebookMixin,
    ResultContent,
    Summary,
    figures_as_tables,
    to_markdown,
    to_text,
)
from pcmcnet.reports.sections import (
    Block,
    Code,
    Facts,
    Figure,
    Heading,
    PictureFile,
    Section,
    Table,
    Text,
    Tiles,
    note,
    warning,
)
from pcmcnet.reports.tables import TableMixin

EVIL = "<b>_x_ & \x1b[2J"


class Result(FormatsMixin):
    def _content(self) -> ResultContent:
        return ResultContent(
            title="Toy",
            facts={"sets": "3", "formula": "a + " * 12 + "b"},
            cells=[["name", "value"], ["x", "-1.5*"], [EVIL, "2"]],
            notes=("* p < 0.05",),
            rules=frozenset({1}),
        )


def test_text_has_title_facts_table_and_notes() -> None:
    lines = str(Result()).split("\n")
    assert lines[:3] == ["Toy", "===", "sets     3"]
    assert lines[5:] == [
        "name              value",
        "-----------------------",
        "x                 -1.5*",
        "-----------------------",
        r"<b>_x_ & \x1b[2J      2",
        "",
        "* p < 0.05",
    ]


def test_html_is_an_escaped_fragment_for_notebooks() -> None:
    html = Result().to_html()
    assert html == Result()._repr_html_()
    assert html.startswith('<div class="pcmcnet">')
    assert r"&lt;b&gt;_x_ &amp; \x1b[2J" in html
    assert '<tr class="rule"><th scope="row">&lt;b&gt;' in html
    assert "<html" not in html
    assert '<p class="note">* p &lt; 0.05</p>' in html


def test_latex_puts_long_facts_below_the_table() -> None:
    assert "- sets: 3" in Result().to_markdown()
    assert r"| x | -1.5\* |" in Result().to_markdown()
    latex = Result().to_latex()
    assert r"sets & \multicolumn{1}{r}{3} \\" in latex
    assert r"\textless{}b\textgreater{}\_x\_ \& \textbackslash{}x1b[2J & 2 \\" in latex
    below = latex.split(r"\end{tabular}")[1]
    assert "formula: a + a + " in below
    assert r"* p \textless{} 0.05" in below


def test_a_summary_prints_its_facts_and_an_aligned_table() -> None:
    summary = Summary(
        "Toy",
        {"trained on": "3 sets", "epochs": "12"},
        ("weights", "shape"),
        (("rate", "16 x 2"), ("a longer name", "1")),
    )
    assert str(summary).split("\n") == [
        "Toy",
        "===",
        "trained on  3 sets",
        "epochs      12",
        "",
        "weights         shape",
        "---------------------",
        "rate           16 x 2",
        "a longer name       1",
    ]


def test_a_summary_may_have_no_facts_and_no_rows() -> None:
    summary = Summary("Toy", {}, ("weights",), ())
    assert repr(summary) == str(summary) == "Toy\n===\n\nweights\n-------"


def test_a_summary_converts_to_latex_html_and_markdown() -> None:
    summary = Summary("Toy", {"log-likelihood": "-12.5"}, ("coefficient", "estimate"), (("cost_eur", "-1.5"),))
    assert r"cost\_eur & $-$1.5 \\" in summary.to_latex()
    assert "<td>-1.5</td>" in summary.to_html() == summary._repr_html_()
    assert r"| cost\_eur | -1.5 |" in summary.to_markdown()


# -- Markdown ----------------------------------------------------------------------------------------------------------
# The report in Markdown has the texts and tables of the page, and numbers instead of figures.


def test_every_kind_of_block_has_a_markdown_form() -> None:
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


# -- Notebook ----------------------------------------------------------------------------------------------------------
# Results in a notebook and at a prompt.


@dataclass(frozen=True, slots=True)
class Rows(TableMixin):
    values: tuple[int, ...]

    def _cells(self) -> list[list[str]]:
        return [["<n>", "square"], *([str(v), str(v * v)] for v in self.values)]


@dataclass(frozen=True)
class Numbers(NotebookMixin):
    numbers: list[float]

    def _short(self) -> str:
        return f"{len(self.numbers)} numbers"

    def _blocks(self) -> list[Block]:
        return [Text("a < b"), Table(cells=[["x"], *([str(n)] for n in self.numbers)])]


def test_a_table_has_one_line_in_a_prompt_and_rows_in_a_notebook() -> None:
    result = Rows(tuple(range(1000)))
    assert repr(result) == "Rows(1000 rows; print it to see the table)"
    assert repr(Rows((1,))) == "Rows(1 row; print it to see the table)"
    page = result._repr_html_()
    assert "&lt;n&gt;" in page
    assert page.count("<tr") == 1001


def test_a_result_has_one_line_in_a_prompt_and_its_blocks_in_a_notebook() -> None:
    result = Numbers([1.5] * 300)
    assert repr(result) == "Numbers(300 numbers)"
    assert result == Numbers([1.5] * 300)  # still a dataclass
    page = result._repr_html_()
    assert "<strong>Numbers: 300 numbers</strong>" in page
    assert "a &lt; b" in page


def test_a_class_may_define_its_own_repr() -> None:
    class Own(Numbers):
        def __repr__(self) -> str:
            return "own"

    assert repr(Own([])) == "own"


def test_a_figure_becomes_a_table_of_its_numbers() -> None:
    figure = Figure(traces=(), caption="what is seen", numbers=[["x", "y"], ["1", "2"]])
    other = [Code("a"), PictureFile(file=Path("a.png"), caption="b")]
    assert figures_as_tables([figure, *other]) == [Table(cells=figure.numbers, folded="what is seen"), *other]


# -- Text --------------------------------------------------------------------------------------------------------------


def test_a_terminal_shows_paragraphs_tables_and_notes() -> None:
    first = Section(
        title="One", blocks=(Text("Words."), Table(cells=[["a", "b"], ["x", "10"]]), note("n1"), note("n2"))
    )
    second = Section(title="Two", blocks=(Facts({"seed": 0}), Text("More.")))
    assert to_text("Title", [first, second]) == "Title\n\nWords.\n\na   b\nx  10\n\nn1\nn2\n\nMore."
