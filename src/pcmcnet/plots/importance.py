"""Bars: how much columns matter to a model, and how rivals push one alternative up or down.

Both charts are lists of bars, from top to bottom; what does not fit is left out, and said to be.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pcmcnet.checks import require_number
from pcmcnet.data.column_names import PLAIN, ColumnNames
from pcmcnet.insight.attribution import Attribution
from pcmcnet.insight.importance import Importance
from pcmcnet.plots.files import new_picture
from pcmcnet.plots.style import axes_for, colour, ink, name_lines, plain
from pcmcnet.reports.drawing import draws

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ImportanceBar(NamedTuple):
    """One column, or group of columns."""

    label: str
    value: float
    low: float  # ends of the interval; both are the value where there is none
    high: float


class AttributionBar(NamedTuple):
    """One rival."""

    label: str
    push: float
    beyond: float


def importance_bars(found: Importance, *, most: int = 20) -> tuple[ImportanceBar, ...]:
    """Gather the bars of the most important columns, the longest first."""
    require_number("most", most, whole=True, low=1)
    bars = []
    for row in found.rows[:most]:
        low, high = (row.low, row.high) if np.isfinite([row.low, row.high]).all() else (row.value, row.value)
        bars.append(ImportanceBar(row.name, row.value, low, high))
    return tuple(bars)


def attribution_bars(found: Attribution, *, most: int = 12) -> tuple[AttributionBar, ...]:
    """Gather the bars of the rivals that push most beyond a logit's share, in the order of the attribution."""
    require_number("most", most, whole=True, low=1)
    figures = zip(found.rivals, found.push.tolist(), found.beyond.tolist(), strict=True)
    return tuple(AttributionBar(*entry) for entry in list(figures)[:most])


def draw_importance(found: Importance, path: str | os.PathLike[str], *, most: int = 20, title: str = "") -> Path:
    """Draw a bar for each column with its interval.

    Parameters
    ----------
    found
        What :func:`pcmcnet.insight.importance.importance` returned.
    path, title
        Where the picture goes, and its title: see :func:`~pcmcnet.plots.files.new_picture`.
    most
        Bars, at most.

    Returns
    -------
    Path
        The file written.
    """
    with new_picture(path, _size(len(importance_bars(found, most=most))), title=title) as figure:
        plot_importance(found, figure.subplots(), most=most)
    return Path(path)


@draws("importance")
def plot_importance(found: Importance, ax: Axes | None = None, *, most: int = 20, names: ColumnNames = PLAIN) -> Axes:
    """Draw a bar for each column with its interval.

    Parameters
    ----------
    found
        What :func:`pcmcnet.insight.importance.importance` returned.
    ax
        Where to draw; a new figure if None.
    most
        Bars, at most.
    names
        What people call the columns.

    Returns
    -------
    matplotlib.axes.Axes
    """
    bars = importance_bars(found, most=most)
    axes = axes_for(ax, _size(len(bars)))
    for k, bar in enumerate(bars):
        axes.barh(k, bar.value, color=colour(0), height=0.6)
        axes.plot([bar.low, bar.high], [k, k], color=ink(), linewidth=1.4)
    _finish(axes, [names[bar.label] for bar in bars], len(found.rows) - len(bars))
    noun = "NLL per choice set" if found.loss == "nll" else "share of misses"
    axes.set_xlabel(f"increase of {noun} when shuffled")
    return axes


def draw_attribution(found: Attribution, path: str | os.PathLike[str], *, most: int = 12, title: str = "") -> Path:
    """Draw two bars for each rival: its whole push, and what goes beyond a logit's.

    Parameters
    ----------
    found
        What :func:`pcmcnet.insight.attribution.attribution` returned.
    path, most, title
        As for :func:`draw_importance`.

    Returns
    -------
    Path
        The file written.
    """
    with new_picture(path, _size(2 * len(attribution_bars(found, most=most))), title=title) as figure:
        plot_attribution(found, figure.subplots(), most=most)
    return Path(path)


@draws("attribution")
def plot_attribution(found: Attribution, ax: Axes | None = None, *, most: int = 12) -> Axes:
    """Draw two bars for each rival: its whole push, and what goes beyond a logit's.

    Parameters
    ----------
    found
        What :func:`pcmcnet.insight.attribution.attribution` returned.
    ax, most
        As for :func:`plot_importance`.

    Returns
    -------
    matplotlib.axes.Axes
    """
    bars = attribution_bars(found, most=most)
    axes = axes_for(ax, _size(2 * len(bars)))
    for k, bar in enumerate(bars):
        axes.barh(k - 0.19, bar.push, color="0.7", height=0.36, label="push" if k == 0 else None)
        name = "beyond a proportional share" if k == 0 else None
        axes.barh(k + 0.19, bar.beyond, color=colour(1), height=0.36, label=name)
    _finish(axes, [bar.label for bar in bars], len(found.rivals) - len(bars))
    axes.set_xlabel(plain(f"push on log p of {found.alternative}, p = {found.p:.3f}"))
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False)
    return axes


def _size(bars: int) -> tuple[float, float]:
    return 6.4, 1.3 + 0.3 * max(bars, 2)


def _finish(axes: Axes, labels: list[str], left_out: int) -> None:
    name_lines(axes, labels)
    axes.axvline(0, color=ink(), linewidth=1)
    if left_out:
        axes.set_title(f"{left_out} more, with shorter bars, are not shown", fontsize="small", alpha=0.7)
