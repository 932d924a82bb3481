"""Parts of an explanation that are a few bars or dots: sizes of choice sets, fit, liked categories, one choice set.

The numbers are those of the report's figures (``pcmcnet.plots.explanation``), drawn by matplotlib.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pcmcnet.data.column_names import PLAIN, ColumnNames
from pcmcnet.insight.category_effects import CategoryEffects
from pcmcnet.insight.example_sets import ExampleSet
from pcmcnet.insight.fit_quality import FitQuality
from pcmcnet.insight.table_summary import TableSummary
from pcmcnet.plots.explanation.page_set_figures import shown
from pcmcnet.plots.explanation.quality import fit_intervals
from pcmcnet.plots.style import axes_for, colour, ink, name_lines, paper, plain, tidy
from pcmcnet.reports.drawing import draws

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GREY = "0.6"


@draws("sizes")
def plot_sizes(table: TableSummary, ax: Axes | None = None) -> Axes:
    """Draw how many choice sets have how many alternatives."""
    from matplotlib.ticker import MaxNLocator

    axes = axes_for(ax, (6.4, 3.0))
    axes.bar(table.sizes, table.counts, color=colour(0))
    tidy(axes)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="alternatives in the set", ylabel="choice sets")
    return axes


@draws("fit")
def plot_fit(part: FitQuality, ax: Axes | None = None) -> Axes:
    """Draw the NLL of a model and of its baselines, with intervals; hollow: in-sample."""
    found = fit_intervals(part)
    axes = axes_for(ax, (5.6, 1.3 + 0.34 * len(found.labels)))
    for dot in found.dots:
        shade = colour(1 if dot.line == found.best else 0)
        axes.plot(np.clip(dot[2:4], *found.limits), [dot.line] * 2, color=shade, linewidth=1.8, solid_capstyle="butt")
        axes.plot(dot.value, dot.line, "o", color=shade, markerfacecolor=paper() if dot.marked else shade)
    name_lines(axes, found.labels)
    axes.set_xlim(*found.limits)
    axes.set_xlabel(found.metric + ("; hollow: in-sample" if any(dot.marked for dot in found.dots) else ""))
    return axes


@draws("categories")
def plot_categories(found: CategoryEffects, ax: Axes | None = None, *, names: ColumnNames = PLAIN) -> Axes:
    """Draw how often an alternative would be chosen with each category, against an average one.

    Parameters
    ----------
    found
        What :func:`pcmcnet.insight.category_effects.category_effects` returned.
    ax
        Where to draw; a new figure if None.
    names
        What people call the columns.

    Returns
    -------
    matplotlib.axes.Axes
    """
    axes = axes_for(ax, (6.4, 1.3 + 0.3 * max(len(found.rows), 2)))
    for k, row in enumerate(found.rows):
        shade = colour(0 if row.lift > 1 else 1) if row.is_sure else _GREY  # may be chance
        axes.barh(k, row.lift, color=shade, height=0.6)
        ends = np.nan_to_num([row.low, row.high], posinf=row.lift, neginf=row.lift)
        axes.plot(ends, [k, k], color=ink(), linewidth=1.4)
    name_lines(axes, [row.category for row in found.rows])
    axes.axvline(1, color=ink(), linestyle=":", linewidth=1)
    axes.set_xlabel(plain(f"share with this {names[found.column]}, times that of an average one"))
    return axes


@draws("probabilities")
def plot_probabilities(example: ExampleSet, ax: Axes | None = None) -> Axes:
    """Draw the probabilities of a choice set, the most probable on top and the choice in the second colour."""
    order = shown(example)
    axes = axes_for(ax, (6.4, 1.3 + 0.3 * max(len(order), 2)))
    axes.barh(range(len(order)), example.p[order], color=[colour(int(k == example.chosen)) for k in order], height=0.6)
    name_lines(axes, [example.names[k] + (" (chosen)" if k == example.chosen else "") for k in order])
    axes.set_xlabel("predicted probability")
    axes.set_title(plain(f"choice set {example.choice_set}"))
    return axes
