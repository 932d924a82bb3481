"""A chart shows the same values, names and colours as a picture and in a page."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from pcmcnet.plots import page_figures, style
from pcmcnet.plots.charts import GREY, Axis, Bars, Chart, Line, Ring, draw_chart, draw_intervals, finite_ends
from pcmcnet.plots.page_figures import page_figure
from pcmcnet.reports.sections import Dot, Intervals

ROWS = Chart(
    marks=(Bars(values=[2.0, 1.0, 0.5], low=[1.5, 1.0, 0.4], high=[2.5, 1.0, 0.6], colours=[0, GREY, 1]),),
    rows=("$a$", "<b>", "c"),
    x=Axis(title="share", ticks=".0%"),
    reference=1,
    note="2 more are not shown",
    caption="Seen.",
    numbers=[["x"], ["1"]],
)
LINES = Chart(
    marks=(
        Line(x=np.array([0.0, 1.0]), y=np.array([0.0, 1.0]), colour=GREY, dash="dot", points=False),
        Line(x=np.array([0.1, 0.5]), y=np.array([0.2, 0.4]), legend="net", dot=(0.1, 0.2)),
        Ring(x=0.5, y=0.4, legend="best"),
    ),
    x=Axis(title="before", limits=(0.0, 1.0)),
    y=Axis(title="after", from_zero=True),
)


def test_pictures_and_pages_show_the_same_bars() -> None:
    axes = draw_chart(ROWS, Figure().subplots())
    (trace,) = page_figure(ROWS).traces
    assert [bar.get_width() for bar in axes.patches] == trace["x"][::-1] == [2.0, 1.0, 0.5]
    assert [text.get_text() for text in axes.get_yticklabels()] == [r"\$a\$", "<b>", "c"]
    assert trace["y"] == ["c", "&lt;b>", "$a$"]
    assert [to_hex(bar.get_facecolor()).upper() for bar in axes.patches][::2] == [style.BLUE, style.ORANGE]
    assert trace["marker"]["color"] == [page_figures.ORANGE, page_figures.GREY, page_figures.BLUE]
    ends = [line.get_xdata() for line in axes.lines[:3]]
    assert [tuple(end) for end in ends] == [(1.5, 2.5), (1.0, 1.0), (0.4, 0.6)]
    np.testing.assert_allclose(trace["error_x"]["array"], [0.1, 0.0, 0.5], atol=1e-12)


def test_pictures_and_pages_show_the_same_texts() -> None:
    axes, figure = draw_chart(ROWS, Figure().subplots()), page_figure(ROWS)
    assert axes.get_xlabel() == figure.layout["xaxis"]["title"]["text"] == "share"
    assert axes.get_title() == "2 more are not shown"
    assert figure.caption == "Seen. 2 more are not shown"
    assert axes.xaxis.get_major_formatter()(0.125) == "12.5%"
    assert [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == ":"] == [1]  # type: ignore[index]
    assert figure.layout["shapes"][0]["x0"] == 1


def test_pictures_and_pages_show_the_same_lines() -> None:
    axes, figure = draw_chart(LINES, Figure().subplots()), page_figure(LINES)
    diagonal, net, ring = figure.traces
    drawn = [line for line in axes.lines if len(line.get_xdata()) == 2]  # type: ignore[arg-type]
    assert [list(line.get_xdata()) for line in drawn] == [diagonal["x"], net["x"]]
    assert [list(line.get_ydata()) for line in drawn] == [diagonal["y"], net["y"]]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [net["name"], ring["name"]] == ["net", "best"]
    assert [trace["showlegend"] for trace in figure.traces] == [False, True, True]
    assert axes.get_xlim() == (0.0, 1.0)
    assert figure.layout["xaxis"]["range"] == [0.0, 1.0]
    assert axes.get_ylim()[0] == 0


def test_several_bars_of_a_row_are_side_by_side() -> None:
    both = tuple(Bars(values=[1.0, 2.0], colours=[k, k], legend=f"{k}") for k in range(2))
    axes = draw_chart(Chart(marks=both, rows=("a", "b"), x=Axis()), Figure().subplots())
    middles = [bar.get_y() + bar.get_height() / 2 for bar in axes.patches]
    assert middles == pytest.approx([-0.18, 0.82, 0.18, 1.18])
    assert max(bar.get_height() for bar in axes.patches) == pytest.approx(0.36)


def test_an_infinite_end_is_replaced_by_the_value() -> None:
    assert finite_ends([1.0, 2.0], [-np.inf, 1.5], [np.inf, 2.5]) == ([1.0, 1.5], [1.0, 2.5])


def test_intervals_end_at_the_edge_and_the_reference_is_dashed() -> None:
    """Finite ends span 0.5 to 1.5; the axis adds a margin of a twentieth."""
    dots = (Dot(0, 1.0, 0.5, np.inf, marked=True), Dot(1, 1.2, 1.2, 1.5, marked=False))
    intervals = Intervals(metric="NLL", caption="NLL.", labels=("a", "b"), dots=dots, best=1, reference=0.9)
    axes = Figure().subplots()
    draw_intervals(axes, intervals)
    reference, first, hollow, _, second = axes.lines
    assert reference.get_linestyle() == "--"
    assert list(first.get_xdata()) == pytest.approx([0.5, 1.55])
    assert hollow.get_markerfacecolor() == "white"
    assert second.get_color() == style.ORANGE
