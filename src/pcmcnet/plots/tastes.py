"""Draws of random coefficients -> densities over people, with the share on either side of 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.errors import InputError
from pcmcnet.plots.style import colour, ink, plain, tidy
from pcmcnet.reports.drawing import draws

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pcmcnet.models.logits.tastes import Taste, Tastes

_BINS, _ENDS = 60, (0.005, 0.995)  # the tails of a lognormal would leave no room for the rest
_ACROSS = 3  # panels side by side


class TasteChart(NamedTuple):
    """A histogram of one coefficient, between its outer quantiles."""

    title: str
    edges: Floats  # (B + 1,)
    density: Floats  # (B,)
    median: float
    note: str


def taste_chart(taste: Taste, values: Floats) -> TasteChart:
    """Compute what is drawn of a coefficient's draws (R,)."""
    low, high = np.quantile(values, _ENDS).tolist()
    if low == high:
        low, high = low - 0.5, high + 0.5
    counts, edges = np.histogram(values, _BINS, range=(low, high))
    density = counts / (len(values) * np.diff(edges))
    note = f"{taste.below_0:.0%} below 0" if 0 < taste.below_0 < 1 else f"all {'below' if taste.below_0 else 'above'} 0"
    return TasteChart(f"{taste.name}: {taste.distribution}", edges, density, taste.median, note)


def draw_taste(chart: TasteChart, axes: Axes) -> Axes:
    """Draw one coefficient: what is below 0 in another colour than what is above."""
    middle = (chart.edges[:-1] + chart.edges[1:]) / 2
    colours = [colour(1) if at < 0 else colour(0) for at in middle]
    axes.bar(middle, chart.density, width=np.diff(chart.edges), color=colours, alpha=0.75, linewidth=0)
    axes.axvline(chart.median, color=ink(), linewidth=1)
    axes.annotate("median", (chart.median, 1), (3, -2), xycoords=("data", "axes fraction"), textcoords="offset points",
                  fontsize=8, va="top", color=ink())  # fmt: skip
    if chart.edges[0] < 0 < chart.edges[-1]:
        axes.axvline(0, color=ink(), alpha=0.5, linewidth=1, linestyle=":")
    axes.set_title(plain(chart.title), fontsize=11)
    axes.set(xlabel=f"coefficient ({chart.note})", ylabel="density", ylim=(0, float(chart.density.max()) * 1.12))
    tidy(axes)
    return axes


@draws("tastes")
def draw_tastes(tastes: Tastes, name: str | None = None, ax: Axes | None = None) -> Any:
    """Draw one coefficient into axes, or all of them into a figure; returns the axes, or the figure."""
    charts = [taste_chart(row, values) for row, values in zip(tastes.rows, tastes.draws, strict=True)]
    if name is not None:
        charts = [charts[tastes.position(name)]]
    if ax is not None:
        if len(charts) > 1:
            raise InputError(f"one set of axes holds one coefficient, and there are {len(charts)}: give name=.")
        return draw_taste(charts[0], ax)
    from matplotlib.figure import Figure

    across = min(len(charts), _ACROSS)
    down = -(-len(charts) // across)
    figure = Figure(figsize=(4.2 * across, 3.1 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for chart, axes in zip(charts, panels, strict=False):
        draw_taste(chart, axes)
    for axes in panels[len(charts) :]:
        axes.set_visible(False)
    return panels[0] if name is not None else figure
