"""Charts -> figures of a report, which plotly draws: traces and a layout as plain mappings.

Colours are those of Okabe and Ito in tones that can be told apart on white and on black; text and grid are coloured by
the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcmcnet.plots.charts import GREY as BACK
from pcmcnet.plots.charts import Axis, Bars, Chart, Line, Ring
from pcmcnet.reports.sections import Figure

BLUE, ORANGE, GREEN, PINK, SKY, GREY = "#3a87c2", "#e07b39", "#2a9d7c", "#c573a5", "#79b8de", "#8b9099"
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY)
_PIXELS = 85  # of a page, for an inch of a picture


def page_figure(chart: Chart) -> Figure:
    """Return a chart as a figure of a report."""
    # 1. A trace for each mark, and a legend where there is more than one name to tell apart.
    legend = sum(bool(mark.legend) for mark in chart.marks) > 1
    traces = [
        {**_trace(mark, chart), "name": safe(mark.legend), "showlegend": legend and bool(mark.legend)}
        for mark in chart.marks
    ]
    # 2. The axes; the reference is a shape over the whole height.
    layout: dict[str, Any] = {
        "xaxis": page_axis(chart.x),
        "yaxis": names_axis() if chart.rows else page_axis(chart.y),
        "showlegend": legend,
        "bargap": 0.15,
    }
    if chart.reference is not None:
        ends = {"x0": chart.reference, "x1": chart.reference, "y0": 0, "y1": 1, "yref": "paper"}
        layout["shapes"] = [{"type": "line", **ends, "line": {"color": GREY, "dash": "dot"}}]
    # 3. The words below it.
    return Figure(
        traces=tuple(traces),
        layout=layout,
        caption=f"{chart.caption} {chart.note}".strip(),
        numbers=chart.numbers,
        height=round(_PIXELS * chart.inches[1]),
        narrow=chart.narrow,
    )


def _trace(mark: Bars | Line | Ring, chart: Chart) -> dict[str, Any]:
    """Return what plotly reads of a mark; rows are drawn from bottom to top."""
    extra = f"<extra>{safe(mark.legend)}</extra>"
    point = f"{safe(chart.x.title)} %{{x:{chart.x.values}}}, {safe(chart.y.title)} %{{y:{chart.y.values}}}{extra}"
    match mark:
        case Bars() if chart.rows:
            colours = [_paint(number) for number in mark.colours[::-1]]
            lying = bars(chart.rows[::-1], mark.values[::-1], colours)
            if mark.low is not None and mark.high is not None:
                lying["error_x"] = error_bars(mark.values[::-1], mark.low[::-1], mark.high[::-1], GREY)
            return {**lying, "hovertemplate": f"%{{y}}: %{{x:{chart.x.values}}}{extra}"}
        case Bars():
            marker = {"color": [_paint(number) for number in mark.colours]}
            return {"type": "bar", "x": list(mark.at), "y": list(mark.values), "marker": marker, "hovertemplate": point}
        case Line():
            shade = _paint(mark.colour)
            trace: dict[str, Any] = {
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
    return GREY if number == BACK else COLOURS[number % len(COLOURS)]


def safe(name: str) -> str:
    """Keep a name of the table from being taken for markup, or for a placeholder of a hover text.

    Examples
    --------
    >>> safe("<b>R&D</b>")
    '&lt;b>R&amp;D&lt;/b>'
    """
    return name.replace("&", "&amp;").replace("<", "&lt;").replace("%{", "% {")


def page_axis(described: Axis) -> dict[str, Any]:
    """Return an axis with its title, which makes room for its labels."""
    return {
        "title": {"text": safe(described.title)},
        "automargin": True,
        **({"tickformat": described.ticks} if described.ticks else {}),
        **({"range": list(described.limits)} if described.limits else {}),
        **({"rangemode": "tozero"} if described.from_zero else {}),
    }


def names_axis() -> dict[str, Any]:
    """Return a vertical axis of names, each of them shown, taken as they are."""
    return {"automargin": True, "type": "category", "dtick": 1, "ticksuffix": " "}


def bars(names: Sequence[str], values: Sequence[float], colour: Any) -> dict[str, Any]:
    """Return lying bars, the first of them at the bottom."""
    return {
        "type": "bar",
        "orientation": "h",
        "y": [safe(name) for name in names],
        "x": list(values),
        "marker": {"color": colour},
        "showlegend": False,
    }


def error_bars(values: Any, low: Any, high: Any, colour: str) -> dict[str, Any]:
    """Return intervals around values, from low to high."""
    return {
        "type": "data",
        "symmetric": False,
        "array": np.maximum(np.subtract(high, values), 0).tolist(),
        "arrayminus": np.maximum(np.subtract(values, low), 0).tolist(),
        "color": colour,
        "thickness": 1.2,
        "width": 3,
    }
