"""A comparison -> dots and intervals: one panel per metric, one line per model, in the order of the table.

The value of the model that tells no alternatives apart is a reference line in every panel. Models without a value,
such as failed ones, are left out and named.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pcmcnet.checks import require_word
from pcmcnet.errors import InputError
from pcmcnet.evaluation.comparison import Comparison, Row
from pcmcnet.evaluation.report import Report
from pcmcnet.plots.files import new_picture
from pcmcnet.plots.style import axes_for, colour, ink, name_lines, paper, plain, quiet_lines
from pcmcnet.reports.drawing import draws
from pcmcnet.reports.sections import Dot, limits_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Panel(NamedTuple):
    """One metric."""

    title: str
    lower_is_better: bool
    dots: tuple[Dot, ...]
    reference: float  # of the model that tells no alternatives apart
    limits: tuple[float, float]  # of the axis: hold all that is finite


class ComparisonChart(NamedTuple):
    """What is drawn of a comparison."""

    labels: tuple[str, ...]
    best: int | None  # index of the best model
    panels: tuple[Panel, ...]
    left_out: tuple[str, ...]  # who is not to be seen, and why


def comparison_chart(comparison: Comparison) -> ComparisonChart:
    """Gather the dots and intervals of a comparison.

    Parameters
    ----------
    comparison
        What :func:`pcmcnet.compare` returned.

    Returns
    -------
    ComparisonChart

    Raises
    ------
    InputError
        When every model failed: there is nothing to draw.
    """
    rows = [row for row in comparison.rows if row.error is None]
    if not rows:
        raise InputError("every model of the comparison failed: there is nothing to draw.")
    labels = tuple(row.label for row in rows)
    left_out = [f"{row.label} failed" for row in comparison.rows if row.error is not None]
    left_out += [f"{row.label}: infinite NLL" for row in rows if row.values.get("nll") == np.inf]
    left_out += [f"{row.label}: a ranking, without NLL" for row in rows if row.gives == "ranking"]
    return ComparisonChart(
        labels=labels,
        best=labels.index(comparison.best) if comparison.best is not None else None,
        panels=tuple(_panel(rows, name, comparison.uniform[name]) for name in comparison.shown),
        left_out=tuple(left_out),
    )


def _panel(rows: list[Row], name: str, reference: float) -> Panel:
    dots = tuple(_dot(k, row, name) for k, row in enumerate(rows) if np.isfinite(row.values.get(name, np.nan)))
    return Panel(name.upper().replace("_", " "), name == "nll", dots, reference, limits_of(dots, reference))


def _dot(line: int, row: Row, name: str) -> Dot:
    value = row.values[name]
    low, high = row.intervals.get(name, (value, value))
    return Dot(line, value, low, high, marked=row.gives == "scores" and name == "nll")


def draw_comparison(chart: ComparisonChart, path: str | os.PathLike[str], *, title: str = "") -> Path:
    """Draw the panels side by side.

    Parameters
    ----------
    chart
        What :func:`comparison_chart` returned.
    path, title
        Where the picture goes, and its title: see :func:`~pcmcnet.plots.files.new_picture`.

    Returns
    -------
    Path
        The file written.
    """
    notes = ["dashed: uniform", *(["hollow: scores, not probabilities"] if _marked(chart) else []), *chart.left_out]
    size = (1.6 + 2.9 * len(chart.panels), 1.5 + 0.34 * len(chart.labels))
    with new_picture(path, size, title=title) as figure:
        panels = figure.subplots(1, len(chart.panels), sharey=True, squeeze=False).ravel()
        for axes, panel in zip(panels, chart.panels, strict=True):
            _draw_panel(axes, panel, chart.best)
        name_lines(panels[0], chart.labels)
        figure.supxlabel(plain("; ".join(notes)), fontsize="small", alpha=0.8, wrap=True)
    return Path(path)


@draws("comparison")
def plot_comparison(comparison: Comparison, ax: Axes | None = None, *, metric: str = "nll") -> Axes:
    """Draw one metric of every model with its interval; dashed: the model that tells no alternatives apart.

    Parameters
    ----------
    comparison
        What :func:`pcmcnet.compare` returned.
    ax
        Where to draw; a new figure if None.
    metric
        One of ``comparison.columns``: "nll", "top_1", ...

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        When every model failed: there is nothing to draw.
    """
    require_word("metric", metric, comparison.columns)
    chart = comparison_chart(comparison)
    axes = axes_for(ax, (5.6, 1.5 + 0.34 * len(chart.labels)))
    _draw_panel(axes, chart.panels[comparison.columns.index(metric)], chart.best)
    name_lines(axes, chart.labels)
    return axes


@draws("report")
def plot_report(report: Report, ax: Axes | None = None) -> Axes:
    """Draw the metrics of a model with their intervals; hollow: the model that tells no alternatives apart.

    Parameters
    ----------
    report
        What :func:`pcmcnet.evaluate` returned.
    ax
        Where to draw; a new figure if None.

    Returns
    -------
    matplotlib.axes.Axes
    """
    shown = {
        name: value
        for name, value in report.values.items()
        if value is not None and np.isfinite(value) and not (name.startswith("top_") and report.uniform[name] == 1)
    }  # where no set has more than n alternatives, every model has TOP n
    axes = axes_for(ax, (5.6, 1.3 + 0.34 * len(shown)))
    for k, (name, value) in enumerate(shown.items()):
        low, high = report.intervals.get(name, (value, value))
        ends = np.nan_to_num([low, high], posinf=value, neginf=value)
        axes.plot(ends, [k, k], color=colour(0), linewidth=1.8, solid_capstyle="butt")
        axes.plot(value, k, "o", color=colour(0), label="this model" if k == 0 else None)
        hollow = {"color": ink(), "markerfacecolor": paper(), "label": "uniform" if k == 0 else None}
        axes.plot(report.uniform[name], k, "o", **hollow)
    name_lines(axes, [name.upper().replace("_", " ") for name in shown])
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.set_xlabel("NLL, BRIER: lower is better; TOP n: higher is better")
    axes.legend(edgecolor="none", framealpha=1)
    return axes


def _draw_panel(axes: Axes, panel: Panel, best: int | None) -> None:
    axes.axvline(panel.reference, color=ink(), alpha=0.5, linestyle="--", linewidth=1)
    axes.set_xlim(*panel.limits)
    for dot in panel.dots:
        shade = colour(1) if dot.line == best else colour(0)
        low, high = np.clip([dot.low, dot.high], *panel.limits)
        axes.plot([low, high], [dot.line, dot.line], color=shade, linewidth=1.8, solid_capstyle="butt")
        inside = paper() if dot.marked else shade
        axes.plot(dot.value, dot.line, "o", color=shade, markerfacecolor=inside, markersize=6)
    axes.set_title(f"{panel.title} ({'lower' if panel.lower_is_better else 'higher'} is better)", fontsize="medium")
    quiet_lines(axes)


def _marked(chart: ComparisonChart) -> bool:
    return any(dot.marked for panel in chart.panels for dot in panel.dots)
