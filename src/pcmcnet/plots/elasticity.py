"""Demand curves -> lines: the share of some alternatives over what a column is scaled by, or set to.

One line for each segment of each curve; a dot marks things as they are, where the points are factors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.errors import InputError
from pcmcnet.insight.demand import DemandCurve
from pcmcnet.insight.segments import ALL
from pcmcnet.plots.files import picture_path, save_picture
from pcmcnet.plots.style import COLOURS, plain, set_title, tidy

STYLES = ("-", "--", ":", "-.")


class DemandLine(NamedTuple):
    """One segment of one curve, from left to right."""

    label: str
    x: Floats
    share: Floats
    now: float  # the share as things are
    curve: int  # which of the curves
    segment: int  # which of its segments


class DemandChart(NamedTuple):
    """What is drawn of demand curves."""

    lines: tuple[DemandLine, ...]
    scaled: bool
    x_label: str
    y_label: str


def demand_chart(curves: DemandCurve | Mapping[str, DemandCurve]) -> DemandChart:
    """Gather the lines of one demand curve, or of several by their titles, such as those of two models.

    Raises
    ------
    InputError
        When there is no curve, or the curves are not of one column, some scaled and others set to values.
    """
    named = {"": curves} if isinstance(curves, DemandCurve) else dict(curves)
    if not named:
        raise InputError("expected at least one demand curve to draw, got none.")
    kinds = {(curve.column, curve.changed, curve.scaled) for curve in named.values()}
    if len(kinds) > 1:
        raise InputError("expected demand curves of one column of one alternative, all by factors or all by values.")
    column, changed, scaled = kinds.pop()
    lines = []
    for k, (title, curve) in enumerate(named.items()):
        order = np.argsort(curve.points, kind="stable")
        for g, segment in enumerate(curve.segments):
            label = ", ".join(part for part in (title, "" if segment == ALL else segment) if part)
            share = curve.shares[g][order]
            lines.append(DemandLine(label, curve.points[order], share, float(curve.now[g]), k, g))
    whose = " and ".join(dict.fromkeys(curve.of for curve in named.values()))
    what = f"{column} of {changed}" if changed else column
    x_label = f"{what}, times what it is" if scaled else what
    return DemandChart(tuple(lines), scaled, x_label, f"predicted share of {whose}")


def draw_demand(
    curves: DemandCurve | Mapping[str, DemandCurve], path: str | os.PathLike[str], *, title: str = ""
) -> Path:
    """Draw demand curves.

    Parameters
    ----------
    curves
        What :func:`pcmcnet.insight.demand.demand` returned, or several of them by title.
    path
        Where the file goes, .png, .pdf or .svg; its folder must exist.
    title
        Title of the picture.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    InputError
        When the curves do not go together, or the path is not that of a picture in an existing folder.
    """
    from matplotlib.figure import Figure

    target, chart = picture_path(path), demand_chart(curves)
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for line in chart.lines:
        colour, style = COLOURS[line.segment % len(COLOURS)], STYLES[line.curve % len(STYLES)]
        if len({other.segment for other in chart.lines}) == 1:
            colour, style = COLOURS[line.curve % len(COLOURS)], "-"
        label = plain(line.label) or None
        axes.plot(line.x, line.share, style, color=colour, label=label, linewidth=1.8)
        if chart.scaled:
            axes.plot(1.0, line.now, "o", color=colour, markersize=6)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(plain(chart.x_label), fontsize=11)
    axes.set_ylabel(plain(chart.y_label), fontsize=11)
    tidy(axes)
    if any(line.label for line in chart.lines):
        axes.legend(fontsize=10, edgecolor="none", framealpha=1)
    set_title(figure, title)
    return save_picture(figure, target)
