"""Calibrations -> curves: predicted probability against observed share, with intervals, for one model or several.

On the diagonal, what was said is what happened. Below it a model is surer than it should be.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from pcmcnet.checks import require_word
from pcmcnet.errors import InputError
from pcmcnet.insight.calibration import Calibration, Curve
from pcmcnet.plots.files import new_picture
from pcmcnet.plots.style import COLOURS, axes_for, colour, ink
from pcmcnet.reports.drawing import draws

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@draws("calibration")
def plot_calibration(
    calibrations: Calibration | Mapping[str, Calibration],
    ax: Axes | None = None,
    *,
    which: Literal["first", "alternatives"] = "first",
) -> Axes:
    """Draw the calibration of one model or of several.

    Parameters
    ----------
    calibrations
        What :func:`pcmcnet.insight.calibration.calibration` returned, or several of them by the name of their model.
    ax
        Where to draw; a new figure if None.
    which
        The "first", which are the most probable alternatives of each set, or all "alternatives".

    Returns
    -------
    matplotlib.axes.Axes
    """
    require_word("which", which, ("first", "alternatives"))
    named = {"": calibrations} if isinstance(calibrations, Calibration) else calibrations
    axes = axes_for(ax, (4.8, 4.6))
    _draw_curves(axes, {label: getattr(found, which) for label, found in _few(named).items()})
    axes.set_ylabel("observed share")
    axes.set_title(_HEADINGS[which])
    return axes


def draw_calibration(calibrations: Mapping[str, Calibration], path: str | os.PathLike[str]) -> Path:
    """Draw the calibration of models: of all alternatives on the left, of the most probable ones on the right.

    Parameters
    ----------
    calibrations
        Name of a model -> its calibration.
    path
        Where the picture goes: see :func:`~pcmcnet.plots.files.new_picture`.

    Returns
    -------
    Path
        The file written.
    """
    with new_picture(path, (9.2, 4.8), dpi=110) as figure:
        panels = figure.subplots(1, 2)
        plot_calibration(calibrations, panels[0], which="alternatives")
        plot_calibration(calibrations, panels[1]).set_ylabel("")
    return Path(path)


_HEADINGS = {"alternatives": "all alternatives", "first": "the most probable alternative of each set"}


def _few(calibrations: Mapping[str, Calibration]) -> Mapping[str, Calibration]:
    if not 1 <= len(calibrations) <= len(COLOURS):
        raise InputError(f"expected 1 to {len(COLOURS)} calibrations to draw, got {len(calibrations)}.")
    return calibrations


def _draw_curves(axes: Axes, curves: Mapping[str, Curve]) -> None:
    axes.plot([0, 1], [0, 1], color=ink(), alpha=0.5, linewidth=1, zorder=1)
    for k, (name, curve) in enumerate(curves.items()):
        low, high = np.nan_to_num(curve.low, neginf=0.0), np.nan_to_num(curve.high, posinf=1.0)
        reach = np.maximum([curve.observed - low, high - curve.observed], 0.0)
        label = f"{name}: error {curve.error:.3f}" if name else f"error {curve.error:.3f}"
        axes.errorbar(
            curve.predicted, curve.observed, reach, fmt="o-", color=colour(k), markersize=4, linewidth=1.2, label=label
        )
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="predicted probability")
    legend = axes.legend(fontsize="small", loc="upper left", frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
