"""What a notebook shows of results, and what a prompt does."""

from dataclasses import dataclass
from pathlib import Path

from pcmcnet.reports.notebook import InNotebooks, without_figures
from pcmcnet.reports.sections import Block, Code, Figure, Picture, Table, Text
from pcmcnet.reports.tables import PrintsAsTable


@dataclass(frozen=True, slots=True)
class Rows(PrintsAsTable):
    values: tuple[int, ...]

    def _cells(self) -> list[list[str]]:
        return [["<n>", "square"], *([str(v), str(v * v)] for v in self.values)]


@dataclass(frozen=True)
class Found(InNotebooks):
    numbers: list[float]

    def _short(self) -> str:
        return f"{len(self.numbers)} numbers"

    def _blocks(self) -> list[Block]:
        return [Text("a < b"), Table(cells=[["x"], *([str(n)] for n in self.numbers)])]


def test_a_table_has_one_line_in_a_prompt_and_rows_in_a_notebook() -> None:
    found = Rows(tuple(range(1000)))
    assert repr(found) == "Rows(1000 rows; print it for the table)"
    assert repr(Rows((1,))) == "Rows(1 row; print it for the table)"
    page = found._repr_html_()
    assert "&lt;n&gt;" in page
    assert page.count("<tr") == 1001


def test_a_result_has_one_line_in_a_prompt_and_its_blocks_in_a_notebook() -> None:
    found = Found([1.5] * 300)
    assert repr(found) == "Found(300 numbers)"
    assert found == Found([1.5] * 300)  # still a dataclass
    page = found._repr_html_()
    assert "<strong>Found: 300 numbers</strong>" in page
    assert "a &lt; b" in page


def test_a_class_may_have_its_own_line() -> None:
    class Own(Found):
        def __repr__(self) -> str:
            return "own"

    assert repr(Own([])) == "own"


def test_a_figure_is_the_table_of_its_numbers() -> None:
    figure = Figure(traces=(), caption="what is seen", numbers=[["x", "y"], ["1", "2"]])
    other = [Code("a"), Picture(file=Path("a.png"), caption="b")]
    assert without_figures([figure, *other]) == [Table(cells=figure.numbers, folded="what is seen"), *other]
