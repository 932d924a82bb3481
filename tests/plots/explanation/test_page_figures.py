"""Figures of lines and bars: what plotly reads, and the numbers of the part they are drawn from."""

from collections.abc import Iterator

import numpy as np
import pytest

from pcmcnet import Explanation
from pcmcnet.plots.explanation import page_figures
from pcmcnet.plots.explanation.sections import sections_of
from pcmcnet.reports.sections import Figure

NAMES = ["chain", "logit", "ranking", "unknown", "table"]


def all_figures(found: Explanation) -> Iterator[Figure]:
    for section in sections_of(found):
        yield from (block for block in section.blocks if isinstance(block, Figure))


@pytest.mark.parametrize("name", NAMES)
def test_plotly_knows_every_property_of_every_figure(name: str, explained: dict[str, Explanation]) -> None:
    graphs = pytest.importorskip("plotly.graph_objects", reason="needs plotly: pip install plotly")
    drawn = list(all_figures(explained[name]))
    assert drawn
    for figure in drawn:
        graphs.Figure(data=list(figure.traces), layout=figure.layout)  # refuses what it does not know


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_its_numbers_and_a_caption(name: str, explained: dict[str, Explanation]) -> None:
    for figure in all_figures(explained[name]):
        head, *rows = figure.numbers
        assert rows
        assert {len(row) for row in rows} == {len(head)}
        assert figure.caption.endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_the_table_is_taken_for_markup(name: str, explained: dict[str, Explanation]) -> None:
    for figure in all_figures(explained[name]):
        assert "<a " not in repr((figure.traces, figure.layout))


def test_a_placeholder_in_a_name_is_none() -> None:
    assert page_figures.safe("%{x}") == "% {x}"


def test_importance_is_drawn_from_bottom_to_top(explained: dict[str, Explanation]) -> None:
    part = explained["logit"].importance
    assert part is not None
    figure = page_figures.importance_figure(part)
    assert figure.traces[0]["x"] == [row.value for row in part.rows[::-1]]
    assert [row[0] for row in figure.numbers[1:]] == [row.name for row in part.rows]


def test_calibration_draws_both_curves_within_their_range(explained: dict[str, Explanation]) -> None:
    part = explained["logit"].calibration
    assert part is not None
    for figure, curve in zip(page_figures.calibration_figures(part), (part.first, part.alternatives), strict=True):
        _, drawn = figure.traces
        assert drawn["x"] == curve.predicted.tolist()
        assert drawn["y"] == curve.observed.tolist()
        top = np.array(drawn["y"]) + drawn["error_y"]["array"]
        np.testing.assert_allclose(top, np.clip(curve.high, 0, 1), rtol=0, atol=1e-12)
        assert figure.layout["xaxis"]["range"][1] >= min(1, max(drawn["x"]))


def test_a_learning_curve_has_a_line_for_each_network() -> None:
    entry = {"epoch": 1, "train_loss": 1.5, "valid_loss": None, "lr": 0.1}
    one = page_figures.learning_figure({"": [entry]})
    assert [trace["name"] for trace in one.traces] == ["training"]
    assert one.numbers == [["epoch", "training loss", "validation loss", "learning rate"], ["1", "1.5", "-", "0.1"]]
    two = page_figures.learning_figure({"member 1": [{**entry, "valid_loss": 1.25}], "member 2": [entry]})
    assert [trace["name"] for trace in two.traces] == [
        "training (member 1)",
        "validation (member 1)",
        "training (member 2)",
    ]
    assert two.numbers[1] == ["1", "member 1", "1.5", "1.25", "0.1"]


def test_demand_draws_the_shares_of_every_curve(explained: dict[str, Explanation]) -> None:
    part = explained["chain"].elasticities
    assert part is not None
    figure = page_figures.demand_figure(part.curves)
    assert [trace["y"] for trace in figure.traces] == [curve.shares[0].tolist() for curve in part.curves.values()]
    assert figure.numbers[-1][0] == "as it is"
