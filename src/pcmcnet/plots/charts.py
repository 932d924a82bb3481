"""Charts of bars, lines and intervals: each described once, drawn by matplotlib here and by plotly in a page.

A function such as ``importance_chart`` describes a chart: marks with their values and intervals, names, axes, colours
by their meaning, a caption, and the numbers as a table. :func:`draw_chart` draws any chart on axes of matplotlib, and
:func:`pcmcnet.plots.page_figures.page_figure` makes a figure of a report of it. Neither knows what a chart is about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pcmcnet.arrays import Floats, Ints
from pcmcnet.plots.style import axes_for, colour, ink, name_lines, paper, plain, quiet_lines, tidy
from pcmcnet.reports.sections import Intervals
from pcmcnet.reports.tables import Cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as TickedAxis

GREY = -1  # in the place of a colour's number: what stands back, or may be chance
_MANY_POINTS = 40  # of a line, beyond which they are not marked one by one
_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}


@dataclass(frozen=True, kw_only=True, eq=False)
class Axis:
    """An axis: its title and how its numbers are written, in the format language of Python, which is that of d3."""

    title: str = ""
    ticks: str = ""  # format of the numbers along it; "" for what the backend chooses
    values: str = ".4g"  # format of a single value, which a page shows under the pointer
    limits: tuple[float, float] | None = None
    from_zero: bool = False
    whole: bool = False  # whether it has whole numbers only


@dataclass(frozen=True, kw_only=True, eq=False)
class Bars:
    """A bar for each row of the chart, or an upright one over each number of ``at`` where it has no rows."""

    values: Sequence[float]
    colours: Sequence[int]  # numbers in the cycle of colours, or GREY
    low: Sequence[float] | None = None  # ends of the intervals
    high: Sequence[float] | None = None
    at: Sequence[float] = ()
    legend: str = ""
    notes: Sequence[str] = ()  # right of the bars of a picture


@dataclass(frozen=True, kw_only=True, eq=False)
class Line:
    """A line through points, with an interval for each where there are some."""

    x: Floats | Ints
    y: Floats
    colour: int = 0
    legend: str = ""
    dash: Literal["solid", "dash", "dot", "dashdot"] = "solid"
    low: Floats | None = None
    high: Floats | None = None
    points: bool = True  # whether its points are marked
    dot: tuple[float, float] | None = None  # a point that stands out in a picture; a page marks all of them


@dataclass(frozen=True, kw_only=True, eq=False)
class Ring:
    """A ring around a point."""

    x: float
    y: float
    legend: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Chart:
    """What is drawn, whoever draws it."""

    marks: tuple[Bars | Line | Ring, ...]
    x: Axis
    y: Axis = Axis()
    rows: tuple[str, ...] = ()  # names of lying bars, from top to bottom
    reference: float | None = None  # a dotted upright line
    title: str = ""  # of a picture; a page has headings
    note: str = ""  # what is left out
    caption: str = ""  # of a page
    numbers: Cells = ()  # what is drawn as a table, for a page
    inches: tuple[float, float] = (6.4, 4.0)
    narrow: bool = False  # whether half the width of a wide page is enough


def row_inches(rows: int, each: float = 0.3) -> tuple[float, float]:
    """Return the size of a chart with so many rows."""
    return 6.4, 1.3 + each * max(rows, 2)


def finite_ends(values: ArrayLike, low: ArrayLike, high: ArrayLike) -> tuple[list[float], list[float]]:
    """Return intervals that can be drawn: an infinite end, which a single set has, becomes the value itself."""
    ends = [np.where(np.isfinite(end), end, values).tolist() for end in (np.asarray(low), np.asarray(high))]
    return ends[0], ends[1]


def draw_chart(chart: Chart, ax: Axes | None = None) -> Axes:
    """Draw a chart on axes of matplotlib, or on those of a new figure if None."""
    axes = axes_for(ax, chart.inches)
    # 1. The marks. Several bars of one row share its height.
    bars = [mark for mark in chart.marks if isinstance(mark, Bars)]
    for mark in chart.marks:
        match mark:
            case Bars() if chart.rows:
                _draw_lying_bars(axes, mark, bars.index(mark), len(bars))
            case Bars():
                axes.bar(mark.at, mark.values, color=[_paint(number) for number in mark.colours])
            case Line():
                _draw_line(axes, mark)
            case Ring():
                ring = {"color": "none", "markeredgecolor": ink(), "markersize": 9, "label": plain(mark.legend)}
                axes.plot(mark.x, mark.y, "o", **ring)
    # 2. The axes: rows have names in the place of numbers, and begin at 0.
    if chart.rows:
        name_lines(axes, chart.rows)
        axes.axvline(0, color=ink(), linewidth=1)
    else:
        tidy(axes)
        _set_axis(axes.yaxis, chart.y, axes.set_ylim)
    _set_axis(axes.xaxis, chart.x, axes.set_xlim)
    if chart.reference is not None:
        axes.axvline(chart.reference, color=ink(), linestyle=":", linewidth=1)
    # 3. The words around them; the legend of bars stands above, where no bar can be.
    if any(mark.legend for mark in chart.marks):
        above = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "ncols": 2, "frameon": False}
        axes.legend(**(above if chart.rows else {"edgecolor": "none", "framealpha": 1}))
    if chart.title:
        axes.set_title(plain(chart.title))
    elif chart.note:
        axes.set_title(chart.note, fontsize="small", alpha=0.7)
    return axes


def _paint(number: int) -> Any:
    return "0.65" if number == GREY else colour(number)


def _draw_lying_bars(axes: Axes, bars: Bars, which: int, number: int) -> None:
    """Draw one bar in every row, of so many that a row has."""
    height = 0.6 if number == 1 else 0.72 / number
    places = np.arange(len(bars.values)) + (which - (number - 1) / 2) * height
    colours = [_paint(number) for number in bars.colours]
    axes.barh(places, bars.values, color=colours, height=height, label=plain(bars.legend) or None)
    if bars.low is not None and bars.high is not None:
        for place, ends in zip(places, zip(bars.low, bars.high, strict=True), strict=True):
            axes.plot(ends, [place, place], color=ink(), linewidth=1.4)
    for place, note in zip(places, bars.notes, strict=False):
        axes.annotate(note, (1.02, place), xycoords=("axes fraction", "data"), va="center")


def _draw_line(axes: Axes, line: Line) -> None:
    """Draw a line with its intervals; dashes, since print may be grey."""
    shade = _paint(line.colour)
    marker = "." if line.points and len(line.x) < _MANY_POINTS else ""
    look = {"color": shade, "linestyle": _DASHES[line.dash], "marker": marker, "label": plain(line.legend) or None}
    if line.low is None or line.high is None:
        axes.plot(line.x, line.y, **look)
    else:
        reach = np.maximum([line.y - line.low, line.high - line.y], 0.0)
        axes.errorbar(line.x, line.y, reach, markersize=8, linewidth=1.2, **look)
    if line.dot is not None:
        axes.plot(*line.dot, "o", color=shade, markersize=6)


def _set_axis(ticked: TickedAxis, axis: Axis, set_limits: Callable[..., object]) -> None:
    """Give an axis of matplotlib its title, its limits and its numbers."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    ticked.set_label_text(plain(axis.title))
    if axis.whole:
        ticked.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    if axis.ticks.endswith("%"):  # as many decimals as neighbours need to differ
        sign = "+" if axis.ticks.startswith("+") else ""
        ticked.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:{sign}.4g}%"))
    if axis.limits is not None or axis.from_zero:
        set_limits(*(axis.limits or (0.0, None)))


def draw_intervals(axes: Axes, intervals: Intervals) -> None:
    """Draw a dot with its interval for each model, those that stand for something else hollow; dashed: the reference.

    A page draws the same intervals without a script (``reports/templates``).
    """
    if intervals.reference is not None:
        axes.axvline(intervals.reference, color=ink(), alpha=0.5, linestyle="--", linewidth=1)
    for dot in intervals.dots:
        shade = colour(1 if dot.line == intervals.best else 0)
        ends = np.clip([dot.low, dot.high], *intervals.limits)  # infinite ones end at the edge
        axes.plot(ends, [dot.line] * 2, color=shade, linewidth=1.8, solid_capstyle="butt")
        axes.plot(dot.value, dot.line, "o", color=shade, markerfacecolor=paper() if dot.marked else shade)
    axes.set_xlim(*intervals.limits)
    quiet_lines(axes)
