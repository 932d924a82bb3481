"""Plots of a model comparison, as a figure and as an HTML page, and of the metrics of a single model.

There is one panel per metric and one row per model, in the order of the table. Each value is a dot with an interval.
The value of the uniform model is a reference line in every panel. Models without a value, such as failed ones, are left
out and listed in a note.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pcmcnet.checks import require_word
from pcmcnet.errors import InputError
from pcmcnet.evaluation.comparison import GIVEN_TEST_PART, Comparison, ComparisonRow
from pcmcnet.evaluation.model_bootstrap import BootstrapResult
from pcmcnet.evaluation.report import Report
from pcmcnet.plots.charts import draw_intervals
from pcmcnet.plots.style import (
    axes_for,
    background_colour,
    colour,
    escape_dollars,
    label_rows,
    new_picture,
    text_colour,
)
from pcmcnet.reports.formats import to_html, write_html
from pcmcnet.reports.sections import Block, Dot, Facts, Intervals, Section, Table, Text, note

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ComparisonChart(NamedTuple):
    """The values in the plot of a comparison.

    Attributes
    ----------
    labels
        Labels of the models.
    best
        Index of the best model, or None if no model predicts probabilities.
    panels
        Values and intervals, one panel per metric.
    left_out
        Models that are not drawn, with the reason.
    """

    labels: tuple[str, ...]
    best: int | None
    panels: tuple[Intervals, ...]
    left_out: tuple[str, ...]


def comparison_chart(comparison: Comparison) -> ComparisonChart:
    """Return the values and intervals of a comparison, one panel per metric.

    Parameters
    ----------
    comparison
        Result of :func:`pcmcnet.compare`.

    Returns
    -------
    ComparisonChart
        Labels, panels, and the models that are left out.

    Raises
    ------
    InputError
        If every model failed.
    """
    # 1. Select the models that have values.
    rows = [row for row in comparison.rows if row.error is None]
    if not rows:
        raise InputError("every model in the comparison failed, so there is nothing to draw.")
    labels = tuple(row.label for row in rows)
    # 2. List the models that are left out, with the reason.
    left_out = [f"{row.label} failed" for row in comparison.rows if row.error is not None]
    left_out += [f"{row.label}: infinite NLL" for row in rows if row.values.get("nll") == np.inf]
    left_out += [f"{row.label}: a ranking, without NLL" for row in rows if row.gives == "ranking"]
    # 3. Make a panel for each metric.
    best = labels.index(comparison.best) if comparison.best is not None else None
    return ComparisonChart(
        labels=labels,
        best=best,
        panels=tuple(_panel(rows, best, name, comparison.uniform[name]) for name in comparison.shown),
        left_out=tuple(left_out),
    )


def _panel(rows: list[ComparisonRow], best: int | None, name: str, reference: float) -> Intervals:
    """Return the finite values of one metric. The NLL of scores that are not probabilities is marked."""
    metric, dots = name.upper().replace("_", " "), []
    for line, row in enumerate(rows):
        value = row.values.get(name, np.nan)
        if np.isfinite(value):
            low, high = row.intervals.get(name, (value, value))
            dots.append(Dot(line, value, low, high, marked=row.gives == "scores" and name == "nll"))
    return Intervals(
        metric=metric,
        caption=f"{metric} ({'lower' if name == 'nll' else 'higher'} is better)",
        labels=tuple(row.label for row in rows),
        dots=tuple(dots),
        best=best,
        reference=reference,
    )


def draw_comparison(chart: ComparisonChart, path: str | os.PathLike[str], *, title: str = "") -> Path:
    """Draw the panels of a comparison side by side, and write the figure to a file.

    Parameters
    ----------
    chart
        Result of :func:`comparison_chart`.
    path
        File to write: .png, .pdf or .svg, in an existing folder.
    title
        Title of the figure (default: none).

    Returns
    -------
    Path
        Path of the written file.

    Raises
    ------
    InputError
        If the path is not valid.
    """
    marked = any(dot.marked for panel in chart.panels for dot in panel.dots)
    notes = ["dashed: uniform", *(["hollow: scores, not probabilities"] if marked else []), *chart.left_out]
    size = (1.6 + 2.9 * len(chart.panels), 1.5 + 0.34 * len(chart.labels))
    with new_picture(path, size, title=title) as figure:
        panels = figure.subplots(1, len(chart.panels), sharey=True, squeeze=False).ravel()
        for axes, panel in zip(panels, chart.panels, strict=True):
            _draw_panel(axes, panel)
        label_rows(panels[0], chart.labels)
        figure.supxlabel(escape_dollars("; ".join(notes)), fontsize="small", alpha=0.8, wrap=True)
    return Path(path)


def plot_comparison(comparison: Comparison, ax: Axes | None = None, *, metric: str = "nll") -> Axes:
    """Plot one metric of every model with its interval. The dashed line shows the uniform model.

    Parameters
    ----------
    comparison
        Result of :func:`pcmcnet.compare`.
    ax
        Axes to draw on (default: a new figure).
    metric
        One of ``comparison.columns``: "nll" (the default), "top_1", ...

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    InputError
        If every model failed.
    ConfigError
        If the metric is not in the comparison.
    """
    require_word("metric", metric, comparison.columns)
    chart = comparison_chart(comparison)
    axes = axes_for(ax, (5.6, 1.5 + 0.34 * len(chart.labels)))
    _draw_panel(axes, chart.panels[comparison.columns.index(metric)])
    label_rows(axes, chart.labels)
    return axes


def plot_report(report: Report, ax: Axes | None = None) -> Axes:
    """Plot the metrics of a model with their intervals. Hollow dots show the uniform model.

    Parameters
    ----------
    report
        Result of :func:`pcmcnet.evaluate`.
    ax
        Axes to draw on (default: a new figure).

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.
    """
    # 1. Select informative metrics: if no choice set has more than n alternatives, TOP n is 1 for every model.
    values = {
        name: value
        for name, value in report.values.items()
        if value is not None and np.isfinite(value) and not (name.startswith("top_") and report.uniform[name] == 1)
    }
    # 2. Draw a dot with its interval for each metric, and a hollow dot for the uniform model.
    axes = axes_for(ax, (5.6, 1.3 + 0.34 * len(values)))
    for k, (name, value) in enumerate(values.items()):
        low, high = report.intervals.get(name, (value, value))
        ends = np.nan_to_num([low, high], posinf=value, neginf=value)
        axes.plot(ends, [k, k], color=colour(0), linewidth=1.8, solid_capstyle="butt")
        axes.plot(value, k, "o", color=colour(0), label="this model" if k == 0 else None)
        hollow = {
            "color": text_colour(),
            "markerfacecolor": background_colour(),
            "label": "uniform" if k == 0 else None,
        }
        axes.plot(report.uniform[name], k, "o", **hollow)
    # 3. Label the rows, and start the axis at 0.
    label_rows(axes, [name.upper().replace("_", " ") for name in values])
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.set_xlabel("NLL, BRIER: lower is better; TOP n: higher is better")
    axes.legend(edgecolor="none", framealpha=1)
    return axes


def plot_bootstrap(result: BootstrapResult, ax: Axes | None = None) -> Axes:
    """Plot the numbers of a statistic with their bootstrap intervals, one row per number.

    Parameters
    ----------
    result
        Result of :func:`pcmcnet.bootstrap`.
    ax
        Axes to draw on (default: a new figure).

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.
    """
    ends = result.intervals
    dots = [Dot(k, value, *ends[name], marked=False) for k, (name, value) in enumerate(_named_values(result))]
    caption = f"{result.level:.0%} {result.kind} intervals, {len(result.draws):,} replicates"
    axes = axes_for(ax, (5.6, 1.3 + 0.34 * len(dots)))
    draw_intervals(axes, Intervals(metric="", caption=caption, labels=result.labels, dots=tuple(dots)))
    label_rows(axes, result.labels)
    axes.set_xlabel(caption)
    return axes


def _named_values(result: BootstrapResult) -> list[tuple[str, float]]:
    """Return the name and value of each number."""
    return list(zip(result.labels, result.values.tolist(), strict=True))


def _draw_panel(axes: Axes, panel: Intervals) -> None:
    draw_intervals(axes, panel)
    axes.set_title(panel.caption, fontsize="medium")


# -- Page --------------------------------------------------------------------------------------------------------------


def write_comparison_page(
    comparison: Comparison, path: str | os.PathLike[str], *, title: str = "Comparison of choice models"
) -> Path:
    """Write the HTML page of a comparison.

    Parameters
    ----------
    comparison
        Result of :func:`pcmcnet.compare`.
    path
        File to write, with the ending .html.
    title
        Heading of the page (default "Comparison of choice models").

    Returns
    -------
    Path
        Path of the written file.

    Raises
    ------
    InputError
        If the file name does not end in .html.
    """
    return write_html(comparison_page(comparison, title=title), path)


def comparison_page(comparison: Comparison, *, title: str = "Comparison of choice models") -> str:
    """Return the HTML page of a comparison.

    Parameters
    ----------
    comparison
        Result of :func:`pcmcnet.compare`.
    title
        Heading of the page (default "Comparison of choice models").

    Returns
    -------
    str
        A self-contained HTML page.
    """
    best = frozenset(k for k, row in enumerate(comparison.rows) if row.label == comparison.best)
    how_to_read = (
        f"In brackets: {comparison.level:.0%} bootstrap intervals. NLL: mean negative log-likelihood of the choices. "
        f"TOP n: share of choices among the n most probable alternatives. NLL - best: difference from the best model "
        f"that predicts probabilities, on the same choice sets. p: two-sided p-value for the hypothesis of no "
        f"difference."
    )
    notes = map(note, (*comparison.notes, how_to_read))
    table = Table(cells=comparison.cells(), strong=best)
    sections = [
        Section(title="", blocks=(Text(comparison.verdict), note(comparison.how), table, *notes)),
        Section(title="Values with intervals", blocks=_charts(comparison)),
        Section(title="Design of the comparison", blocks=(Facts(_facts(comparison)),)),
    ]
    return to_html(title, sections)


def _charts(comparison: Comparison) -> tuple[Block, ...]:
    if all(row.error is not None for row in comparison.rows):
        return (note("Every model failed."),)
    chart = comparison_chart(comparison)
    left_out = [f"Not shown: {'; '.join(chart.left_out)}."] if chart.left_out else []
    return (
        *chart.panels,
        *map(note, ["Dashed line: the uniform model. Hollow dots: scores that are not probabilities.", *left_out]),
    )


def _facts(comparison: Comparison) -> dict[str, object]:
    design = comparison.design
    folds = f"{design['folds']} folds" if design["split"] is None else f"one split, {design['split']}"
    if design["split"] == GIVEN_TEST_PART:
        folds = "given test part"
    versions = {"pcmcnet": design["version"], **design["versions"]}
    facts = {
        "design": folds,
        "seed": design["seed"],
        "groups kept whole": design["by"] or "none",
        "held out for early stopping": f"{design['valid']:.0%}",
        "choice sets tested": f"{comparison.n_sets:,}",
        "bootstrap samples": f"{design['resamples']:,}",
        "table (SHA-256)": design["table"],
        "machine": f"{design['machine']}; device {design['device']}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    for row in comparison.rows:
        options = ", ".join(f"{name}={value}" for name, value in row.options.items())
        facts[f"model {row.label}"] = f"{row.model}: {options}" if options else row.model
    return facts
