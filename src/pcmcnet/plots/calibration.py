"""Calibrations -> curves: predicted probability against observed share, with intervals, for one model or several.

On the diagonal, what was said is what happened. Below it a model is surer than it should be.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pcmcnet.errors import InputError
from pcmcnet.insight.calibration import Calibration, Curve
from pcmcnet.plots.files import picture_path, save_picture
from pcmcnet.plots.style import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_calibration(calibrations: Mapping[str, Calibration], path: str | os.PathLike[str]) -> Path:
    """Draw the calibration of models: of all alternatives on the left, of the most probable ones on the right.

    Parameters
    ----------
    calibrations
        Name of a model -> its calibration.
    path
        Where the file goes, .png, .pdf or .svg; its folder must exist.

    Returns
    -------
    Path
        The file written.
    """
    from matplotlib.figure import Figure

    target = picture_path(path)
    if not 1 <= len(calibrations) <= len(COLOURS):
        raise InputError(f"expected 1 to {len(COLOURS)} calibrations to draw, got {len(calibrations)}.")
    figure = Figure(figsize=(9.2, 4.8), layout="constrained")
    panels = figure.subplots(1, 2)
    which = {"alternatives": "all alternatives", "first": "the most probable alternative of each set"}
    for axes, (name, heading) in zip(panels, which.items(), strict=True):
        _draw_curves(axes, {label: getattr(found, name) for label, found in calibrations.items()})
        axes.set_title(heading, fontsize=12)
    panels[0].set_ylabel("observed share")
    return save_picture(figure, target, dpi=110)


def _draw_curves(axes: Axes, curves: Mapping[str, Curve]) -> None:
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, zorder=1)
    for (name, curve), colour in zip(curves.items(), COLOURS, strict=False):
        low, high = np.nan_to_num(curve.low, neginf=0.0), np.nan_to_num(curve.high, posinf=1.0)
        reach = np.maximum([curve.observed - low, high - curve.observed], 0.0)
        label = f"{name}: error {curve.error:.3f}"
        axes.errorbar(
            curve.predicted, curve.observed, reach, fmt="o-", color=colour, markersize=4, linewidth=1.2, label=label
        )
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="predicted probability")
    legend = axes.legend(fontsize=9, loc="upper left", frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
