"""Charts of bars, lines and intervals: described once, drawn with matplotlib here and with plotly in reports.

A function such as ``importance_chart`` describes a chart: marks with values and intervals, row names, axes, colours, a
caption, and a table of the values. :func:`draw_chart` draws any chart on matplotlib axes, and
:func:`pcmcnet.plots.page_figures.page_figure` turns it into a figure of a report. Neither function depends on what a
chart shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pcmcnet.arrays import Floats, Ints
from pcmcnet.plots.style import (
    axes_for,
    background_colour,
    colour,
    escape_dollars,
    label_rows,
    style_axes,
    style_row_axes,
    text_colour,
)
from pcmcnet.reports.sections import Intervals
from pcmcnet.reports.tables import Cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as TickedAxis

GREY = -1  # used instead of a colour index, for background marks and insignificant values
_MAX_MARKED_POINTS = 40  # a line with more points has no markers
_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}


@dataclass(frozen=True, kw_only=True, eq=False)
class Axis:
    """An axis: its title, its limits and its number formats, which Python and d3 both understand."""

    title: str = ""
    ticks: str = ""  # format of tick labels; "" for the default of the backend
    values: str = ".4g"  # format of a single value, which a page shows on hover
    limits: tuple[float, float] | None = None
    from_zero: bool = False
    whole: bool = False  # True to place ticks at integers only


@dataclass(frozen=True, kw_only=True, eq=False)
class Bars:
    """A horizontal bar for each row or, in a chart without rows, a vertical bar at each position in ``at``."""

    values: Sequence[float]
    colours: Sequence[int]  # indices in the colour cycle, or GREY
    low: Sequence[float] | None = None  # ends of the intervals
    high: Sequence[float] | None = None
    at: Sequence[float] = ()
    legend: str = ""
    notes: Sequence[str] = ()  # text to the right of the bars, in matplotlib only


@dataclass(frozen=True, kw_only=True, eq=False)
class Line:
    """A line through points, each with an optional interval."""

    x: Floats | Ints
    y: Floats
    colour: int = 0
    legend: str = ""
    dash: Literal["solid", "dash", "dot", "dashdot"] = "solid"
    low: Floats | None = None
    high: Floats | None = None
    points: bool = True  # True to mark the points
    dot: tuple[float, float] | None = None  # a highlighted point, in matplotlib only


@dataclass(frozen=True, kw_only=True, eq=False)
class Ring:
    """A ring around a point."""

    x: float
    y: float
    legend: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Chart:
    """The description of a chart, independent of the drawing library."""

    marks: tuple[Bars | Line | Ring, ...]
    x: Axis
    y: Axis = Axis()
    rows: tuple[str, ...] = ()  # names of horizontal bars, from top to bottom
    reference: float | None = None  # position of a dotted vertical line
    title: str = ""  # in matplotlib only; a page has headings
    note: str = ""  # what is left out
    caption: str = ""  # on a page only
    numbers: Cells = ()  # the drawn values as a table, on a page only
    inches: tuple[float, float] = (6.4, 4.0)
    narrow: bool = False  # True if half the width of a wide page is enough


def row_inches(rows: int, each: float = 0.3) -> tuple[float, float]:
    """Return the width and the height of a chart with this number of rows, in inches."""
    return 6.4, 1.3 + each * max(rows, 2)


def finite_ends(values: ArrayLike, low: ArrayLike, high: ArrayLike) -> tuple[list[float], list[float]]:
    """Replace infinite limits of an interval, which a single choice set produces, by the value itself."""
    ends = [np.where(np.isfinite(end), end, values).tolist() for end in (np.asarray(low), np.asarray(high))]
    return ends[0], ends[1]


def draw_chart(chart: Chart, ax: Axes | None = None) -> Axes:
    """Draw a chart on matplotlib axes, or on the axes of a new figure if ``ax`` is None."""
    axes = axes_for(ax, chart.inches)
    # 1. Draw the marks. Several bars in one row share its height.
    bars = [mark for mark in chart.marks if isinstance(mark, Bars)]
    for mark in chart.marks:
        match mark:
            case Bars() if chart.rows:
                _draw_horizontal_bars(axes, mark, bars.index(mark), len(bars))
            case Bars():
                axes.bar(mark.at, mark.values, color=[_paint(number) for number in mark.colours])
            case Line():
                _draw_line(axes, mark)
            case Ring():
                ring = {
                    "color": "none",
                    "markeredgecolor": text_colour(),
                    "markersize": 9,
                    "label": escape_dollars(mark.legend),
                }
                axes.plot(mark.x, mark.y, "o", **ring)
    # 2. Set the axes: rows have names instead of numbers, and a line at 0.
    if chart.rows:
        label_rows(axes, chart.rows)
        axes.axvline(0, color=text_colour(), linewidth=1)
    else:
        style_axes(axes)
        _set_axis(axes.yaxis, chart.y, axes.set_ylim)
    _set_axis(axes.xaxis, chart.x, axes.set_xlim)
    if chart.reference is not None:
        axes.axvline(chart.reference, color=text_colour(), linestyle=":", linewidth=1)
    # 3. Add the legend and the title. The legend of horizontal bars is above the axes, where it hides no bar.
    if any(mark.legend for mark in chart.marks):
        above = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "ncols": 2, "frameon": False}
        axes.legend(**(above if chart.rows else {"edgecolor": "none", "framealpha": 1}))
    if chart.title:
        axes.set_title(escape_dollars(chart.title))
    elif chart.note:
        axes.set_title(chart.note, fontsize="small", alpha=0.7)
    return axes


def _paint(number: int) -> Any:
    return "0.65" if number == GREY else colour(number)


def _draw_horizontal_bars(axes: Axes, bars: Bars, index: int, count: int) -> None:
    """Draw bar number ``index`` of the ``count`` bars in every row."""
    height = 0.6 if count == 1 else 0.72 / count
    positions = np.arange(len(bars.values)) + (index - (count - 1) / 2) * height
    colours = [_paint(number) for number in bars.colours]
    axes.barh(positions, bars.values, color=colours, height=height, label=escape_dollars(bars.legend) or None)
    if bars.low is not None and bars.high is not None:
        for position, ends in zip(positions, zip(bars.low, bars.high, strict=True), strict=True):
            axes.plot(ends, [position, position], color=text_colour(), linewidth=1.4)
    for position, note in zip(positions, bars.notes, strict=False):
        axes.annotate(note, (1.02, position), xycoords=("axes fraction", "data"), va="center")


def _draw_line(axes: Axes, line: Line) -> None:
    """Draw a line with its intervals and its dash pattern, which remains visible in greyscale print."""
    shade = _paint(line.colour)
    marker = "." if line.points and len(line.x) < _MAX_MARKED_POINTS else ""
    look = {
        "color": shade,
        "linestyle": _DASHES[line.dash],
        "marker": marker,
        "label": escape_dollars(line.legend) or None,
    }
    if line.low is None or line.high is None:
        axes.plot(line.x, line.y, **look)
    else:
        errors = np.maximum([line.y - line.low, line.high - line.y], 0.0)
        axes.errorbar(line.x, line.y, errors, markersize=8, linewidth=1.2, **look)
    if line.dot is not None:
        axes.plot(*line.dot, "o", color=shade, markersize=6)


def _set_axis(ticked: TickedAxis, axis: Axis, set_limits: Callable[..., object]) -> None:
    """Set the title, the limits and the tick labels of a matplotlib axis."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    ticked.set_label_text(escape_dollars(axis.title))
    if axis.whole:
        ticked.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    if axis.ticks.endswith("%"):  # with enough decimals to distinguish neighbouring ticks
        sign = "+" if axis.ticks.startswith("+") else ""
        ticked.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:{sign}.4g}%"))
    if axis.limits is not None or axis.from_zero:
        set_limits(*(axis.limits or (0.0, None)))


def draw_intervals(axes: Axes, intervals: Intervals) -> None:
    """Draw a dot with its interval for each model (hollow if marked), and the reference as a dashed line.

    A page draws the same intervals as SVG (``reports/templates``).
    """
    if intervals.reference is not None:
        axes.axvline(intervals.reference, color=text_colour(), alpha=0.5, linestyle="--", linewidth=1)
    for dot in intervals.dots:
        shade = colour(1 if dot.line == intervals.best else 0)
        ends = np.clip([dot.low, dot.high], *intervals.limits)  # infinite intervals end at the edge
        axes.plot(ends, [dot.line] * 2, color=shade, linewidth=1.8, solid_capstyle="butt")
        axes.plot(dot.value, dot.line, "o", color=shade, markerfacecolor=background_colour() if dot.marked else shade)
    axes.set_xlim(*intervals.limits)
    style_row_axes(axes)
