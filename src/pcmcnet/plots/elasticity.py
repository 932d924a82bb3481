"""Demand curves -> lines: the share of some alternatives over what a column is scaled by, or set to.

One line for each segment of each curve; a dot marks things as they are, where the points are factors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data.column_names import PLAIN, ColumnNames
from pcmcnet.errors import InputError
from pcmcnet.insight.demand import DemandCurve
from pcmcnet.insight.segments import ALL
from pcmcnet.plots.files import new_picture
from pcmcnet.plots.style import axes_for, colour, plain, tidy
from pcmcnet.reports.drawing import draws

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


def demand_chart(curves: DemandCurve | Mapping[str, DemandCurve], names: ColumnNames = PLAIN) -> DemandChart:
    """Gather the lines of one demand curve, or of several by their titles: of two models, or of several alternatives.

    Raises
    ------
    InputError
        When there is no curve, or the curves are not of one column, some scaled and others set to values.
    """
    named = {"": curves} if isinstance(curves, DemandCurve) else dict(curves)
    if not named:
        raise InputError("expected at least one demand curve to draw, got none.")
    own = len(named) > 1 and all(curve.changed == curve.of for curve in named.values())  # each alternative its own
    kinds = {(curve.column, "" if own else curve.changed, curve.scaled) for curve in named.values()}
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
    whose = list(dict.fromkeys(curve.of for curve in named.values()))
    what = names[column] if scaled else names.label(column)
    what = f"{what} of {changed}" if changed else what
    x_label = f"{what}, times what it is" if scaled else what
    y_label = "predicted share" if own and len(whose) > 1 else f"predicted share of {' and '.join(whose)}"
    return DemandChart(tuple(lines), scaled, x_label, y_label)


def draw_demand(
    curves: DemandCurve | Mapping[str, DemandCurve], path: str | os.PathLike[str], *, title: str = ""
) -> Path:
    """Draw demand curves.

    Parameters
    ----------
    curves
        What :func:`pcmcnet.insight.demand.demand` returned, or several of them by title.
    path, title
        Where the picture goes, and its title: see :func:`~pcmcnet.plots.files.new_picture`.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    InputError
        When the curves do not go together.
    """
    with new_picture(path, _SIZE, title=title) as figure:
        plot_demand(curves, figure.subplots())
    return Path(path)


_SIZE = (6.4, 4.0)


@draws("demand")
def plot_demand(
    curves: DemandCurve | Mapping[str, DemandCurve], ax: Axes | None = None, *, names: ColumnNames = PLAIN
) -> Axes:
    """Draw demand curves.

    Parameters
    ----------
    curves
        What :func:`pcmcnet.insight.demand.demand` returned, or several of them by title.
    ax
        Where to draw; a new figure if None.
    names
        What people call the columns.

    Returns
    -------
    matplotlib.axes.Axes
    """
    chart, axes = demand_chart(curves, names), axes_for(ax, _SIZE)
    segments = {line.segment for line in chart.lines}
    for line in chart.lines:
        drawn, style = colour(line.segment), STYLES[line.curve % len(STYLES)]
        if len(segments) == 1:
            drawn, style = colour(line.curve), "-"
        axes.plot(line.x, line.share, style, color=drawn, label=plain(line.label) or None, linewidth=1.8)
        if chart.scaled:
            axes.plot(1.0, line.now, "o", color=drawn, markersize=6)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(plain(chart.x_label))
    axes.set_ylabel(plain(chart.y_label))
    tidy(axes)
    if any(line.label for line in chart.lines):
        axes.legend(edgecolor="none", framealpha=1)
    return axes
