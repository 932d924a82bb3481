"""Figures of a report: plotly accepts them, and no text of a table becomes markup."""

from collections.abc import Iterator

import pytest

from pcmcnet import Explanation
from pcmcnet.plots.page_figures import escape_markup
from pcmcnet.plots.report import explanation_sections
from pcmcnet.reports.sections import Figure

NAMES = ["chain", "logit", "ranking", "unknown", "table"]


def all_figures(explanation: Explanation) -> Iterator[Figure]:
    for section in explanation_sections(explanation):
        yield from (block for block in section.blocks if isinstance(block, Figure))


@pytest.mark.parametrize("name", NAMES)
def test_plotly_knows_every_property_of_every_figure(name: str, explained: dict[str, Explanation]) -> None:
    graphs = pytest.importorskip("plotly.graph_objects", reason="needs plotly: pip install plotly")
    drawn = list(all_figures(explained[name]))
    assert drawn
    for figure in drawn:
        graphs.Figure(data=list(figure.traces), layout=figure.layout)  # rejects unknown properties


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_its_numbers_and_a_caption(name: str, explained: dict[str, Explanation]) -> None:
    for figure in all_figures(explained[name]):
        head, *rows = figure.numbers
        assert rows
        assert {len(row) for row in rows} == {len(head)}
        assert figure.caption.endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_names_of_the_table_are_not_markup(name: str, explained: dict[str, Explanation]) -> None:
    for figure in all_figures(explained[name]):
        assert "<a " not in repr((figure.traces, figure.layout))


def test_placeholders_in_names_are_escaped() -> None:
    assert escape_markup("%{x}") == "% {x}"
