"""Bars: how much columns matter to a model, and how rivals push one alternative up or down.

Both charts are lists of bars, from top to bottom; what does not fit is left out, and said to be.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pcmcnet.checks import require_number
from pcmcnet.insight.attribution import Attribution
from pcmcnet.insight.importance import Importance
from pcmcnet.plots.files import picture_path, save_picture
from pcmcnet.plots.style import BLUE, ORANGE, name_lines, plain, set_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    path
        Where the file goes, .png, .pdf or .svg; its folder must exist.
    most
        Bars, at most.
    title
        Title of the picture.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    InputError
        When the path is not that of a picture in an existing folder.
    """
    target, bars = picture_path(path), importance_bars(found, most=most)
    figure, axes = _panel(len(bars), title)
    for k, bar in enumerate(bars):
        axes.barh(k, bar.value, color=BLUE, height=0.6)
        axes.plot([bar.low, bar.high], [k, k], color="black", linewidth=1.4)
    _finish(axes, [bar.label for bar in bars], len(found.rows) - len(bars))
    noun = "NLL per choice set" if found.loss == "nll" else "share of misses"
    axes.set_xlabel(f"increase of {noun} when shuffled", fontsize=11)
    return save_picture(figure, target)


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
    target, bars = picture_path(path), attribution_bars(found, most=most)
    figure, axes = _panel(2 * len(bars), title)
    for k, bar in enumerate(bars):
        axes.barh(k - 0.19, bar.push, color="0.7", height=0.36, label="push" if k == 0 else None)
        name = "beyond a proportional share" if k == 0 else None
        axes.barh(k + 0.19, bar.beyond, color=ORANGE, height=0.36, label=name)
    _finish(axes, [bar.label for bar in bars], len(found.rivals) - len(bars))
    axes.set_xlabel(plain(f"push on log p of {found.alternative}, p = {found.p:.3f}"), fontsize=11)
    axes.legend(fontsize=10, edgecolor="none", framealpha=1)
    return save_picture(figure, target)


def _panel(bars: int, title: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 1.3 + 0.3 * max(bars, 2)), layout="constrained")
    set_title(figure, title)
    return figure, figure.subplots()


def _finish(axes: Axes, labels: list[str], left_out: int) -> None:
    name_lines(axes, labels)
    axes.axvline(0, color="0.3", linewidth=1)
    if left_out:
        axes.set_title(f"{left_out} more, with shorter bars, are not shown", fontsize=9, color="0.35")
