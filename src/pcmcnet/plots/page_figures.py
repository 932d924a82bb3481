"""Turn charts into report figures: plotly traces and a layout as plain mappings.

The colours are from the palette of Okabe and Ito, in shades that are distinct on white and on black backgrounds. The
page sets the colours of text and grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcmcnet.plots.charts import GREY as CHART_GREY
from pcmcnet.plots.charts import Axis, Bars, Chart, Line, Ring
from pcmcnet.reports.sections import Figure

BLUE, ORANGE, GREEN, PINK, SKY, GREY = "#3a87c2", "#e07b39", "#2a9d7c", "#c573a5", "#79b8de", "#8b9099"
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY)
_PIXELS_PER_INCH = 85


def page_figure(chart: Chart) -> Figure:
    """Return a chart as a report figure."""
    # 1. Make a trace for each mark, and a legend if there are several names.
    legend = sum(bool(mark.legend) for mark in chart.marks) > 1
    traces = [
        {**_trace(mark, chart), "name": escape_markup(mark.legend), "showlegend": legend and bool(mark.legend)}
        for mark in chart.marks
    ]
    # 2. Set the axes; the reference is a line over the whole height.
    layout: dict[str, Any] = {
        "xaxis": page_axis(chart.x),
        "yaxis": names_axis() if chart.rows else page_axis(chart.y),
        "showlegend": legend,
        "bargap": 0.15,
    }
    if chart.reference is not None:
        ends = {"x0": chart.reference, "x1": chart.reference, "y0": 0, "y1": 1, "yref": "paper"}
        layout["shapes"] = [{"type": "line", **ends, "line": {"color": GREY, "dash": "dot"}}]
    # 3. Add the caption and the numbers.
    return Figure(
        traces=tuple(traces),
        layout=layout,
        caption=f"{chart.caption} {chart.note}".strip(),
        numbers=chart.numbers,
        height=round(_PIXELS_PER_INCH * chart.inches[1]),
        narrow=chart.narrow,
    )


def _trace(mark: Bars | Line | Ring, chart: Chart) -> dict[str, Any]:
    """Return the plotly trace of a mark, with rows reversed because plotly draws rows from bottom to top."""
    extra = f"<extra>{escape_markup(mark.legend)}</extra>"
    x_title, y_title = escape_markup(chart.x.title), escape_markup(chart.y.title)
    point = f"{x_title} %{{x:{chart.x.values}}}, {y_title} %{{y:{chart.y.values}}}{extra}"
    match mark:
        case Bars() if chart.rows:
            colours = [_paint(number) for number in mark.colours[::-1]]
            trace = horizontal_bars(chart.rows[::-1], mark.values[::-1], colours)
            if mark.low is not None and mark.high is not None:
                trace["error_x"] = error_bars(mark.values[::-1], mark.low[::-1], mark.high[::-1], GREY)
            return {**trace, "hovertemplate": f"%{{y}}: %{{x:{chart.x.values}}}{extra}"}
        case Bars():
            marker = {"color": [_paint(number) for number in mark.colours]}
            return {"type": "bar", "x": list(mark.at), "y": list(mark.values), "marker": marker, "hovertemplate": point}
        case Line():
            shade = _paint(mark.colour)
            trace = {
                "type": "scatter",
                "mode": "lines+markers" if mark.points else "lines",
                "x": mark.x.tolist(),
                "y": mark.y.tolist(),
                "line": {"color": shade, "dash": mark.dash, "width": 2 if mark.points else 1.5},
                "marker": {"color": shade, "size": 6},
            }
            if mark.low is not None and mark.high is not None:
                trace["error_y"] = error_bars(mark.y, mark.low, mark.high, shade)
            return {**trace, **({"hovertemplate": point} if mark.points else {"hoverinfo": "skip"})}
        case Ring():
            ring = {"symbol": "circle-open", "size": 14, "color": GREY, "line": {"width": 2}}
            return {"type": "scatter", "mode": "markers", "x": [mark.x], "y": [mark.y], "marker": ring}


def _paint(number: int) -> str:
    return GREY if number == CHART_GREY else COLOURS[number % len(COLOURS)]


def escape_markup(name: str) -> str:
    """Escape a name from the table so that plotly reads it neither as markup nor as a placeholder in a hover text.

    Examples
    --------
    >>> escape_markup("<b>R&D</b>")
    '&lt;b>R&amp;D&lt;/b>'
    """
    return name.replace("&", "&amp;").replace("<", "&lt;").replace("%{", "% {")


def page_axis(described: Axis) -> dict[str, Any]:
    """Return the plotly layout of an axis, with a margin that fits its labels."""
    return {
        "title": {"text": escape_markup(described.title)},
        "automargin": True,
        **({"tickformat": described.ticks} if described.ticks else {}),
        **({"range": list(described.limits)} if described.limits else {}),
        **({"rangemode": "tozero"} if described.from_zero else {}),
    }


def names_axis() -> dict[str, Any]:
    """Return the plotly layout of a vertical axis that shows all names."""
    return {"automargin": True, "type": "category", "dtick": 1, "ticksuffix": " "}


def horizontal_bars(names: Sequence[str], values: Sequence[float], colour: Any) -> dict[str, Any]:
    """Return a plotly trace of horizontal bars, the first at the bottom."""
    return {
        "type": "bar",
        "orientation": "h",
        "y": [escape_markup(name) for name in names],
        "x": list(values),
        "marker": {"color": colour},
        "showlegend": False,
    }


def error_bars(values: Any, low: Any, high: Any, colour: str) -> dict[str, Any]:
    """Return the plotly error bars of values with intervals from ``low`` to ``high``."""
    return {
        "type": "data",
        "symmetric": False,
        "array": np.maximum(np.subtract(high, values), 0).tolist(),
        "arrayminus": np.maximum(np.subtract(values, low), 0).tolist(),
        "color": colour,
        "thickness": 1.2,
        "width": 3,
    }
