"""Plots of training and quality: sizes of choice sets, learning curves, fit against baselines, calibration.

A history is a list with one entry per epoch: ``epoch``, ``train_loss``, ``valid_loss`` (None without a validation part)
and ``lr``. On the diagonal of a calibration plot, predicted probabilities equal observed shares. Below the diagonal, a
model is overconfident.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_word
from pcmcnet.errors import InputError
from pcmcnet.insight.calibration import MODEL_LABEL, Calibration, CalibrationCurve, FitQuality
from pcmcnet.insight.table_summary import TableSummary
from pcmcnet.plots.charts import GREY, Axis, Bars, Chart, Line, Ring, draw_chart, draw_intervals
from pcmcnet.plots.style import COLOURS, axes_for, escape_dollars, label_rows, new_picture, style_axes, text_colour
from pcmcnet.reports.sections import Dot, Intervals
from pcmcnet.reports.tables import Cells, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

History = Sequence[Mapping[str, Any]]
Which = Literal["first", "alternatives"]

_KEYS = ("epoch", "train_loss", "valid_loss", "lr")
_HEADINGS = {"alternatives": "all alternatives", "first": "the most probable alternative of each set"}
_CAPTIONS = {"alternatives": "All alternatives.", "first": "The most probable alternative of each set."}


def sizes_chart(table: TableSummary) -> Chart:
    """Return a chart of the number of choice sets by number of alternatives."""
    sizes, counts = table.sizes.tolist(), table.counts.tolist()
    return Chart(
        marks=(Bars(at=sizes, values=counts, colours=[0] * len(sizes)),),
        x=Axis(title="alternatives in the set", whole=True),
        y=Axis(title="choice sets", values=","),
        caption="Number of alternatives per choice set.",
        numbers=[["alternatives", "choice sets"], *([f"{n:,}", f"{k:,}"] for n, k in zip(sizes, counts, strict=True))],
        inches=(6.4, 3.0),
    )


def plot_sizes(table: TableSummary, ax: Axes | None = None) -> Axes:
    """Plot the number of choice sets by number of alternatives.

    Parameters
    ----------
    table
        Summary of a table (``explanation.table``).
    ax
        Axes to draw on (default: a new figure).

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.
    """
    return draw_chart(sizes_chart(table), ax)


# -- Learning curve ----------------------------------------------------------------------------------------------------


class LearningCurve(NamedTuple):
    """Losses and learning rate by epoch.

    Attributes
    ----------
    epoch
        Epoch numbers (epochs,).
    train_loss
        Training losses (epochs,).
    valid_epoch, valid_loss
        Epochs (validated,) with a validation loss, and these validation losses.
    lr
        Learning rates (epochs,).
    best_epoch
        The first epoch with the lowest validation loss, or None if there is no validation part.
    """

    epoch: NDArray[np.int64]
    train_loss: Floats
    valid_epoch: NDArray[np.int64]
    valid_loss: Floats
    lr: Floats
    best_epoch: int | None


def learning_curve(history: History) -> LearningCurve:
    """Return the learning curve of a fitted network.

    Parameters
    ----------
    history
        ``model.history`` of a fitted network.

    Returns
    -------
    LearningCurve
        Losses and learning rates by epoch, and the best epoch.

    Raises
    ------
    InputError
        If the history is empty or an entry lacks one of its keys.

    Examples
    --------
    >>> learning_curve(
    ...     [
    ...         {"epoch": 1, "train_loss": 1.2, "valid_loss": 1.1, "lr": 0.01},
    ...         {"epoch": 2, "train_loss": 0.9, "valid_loss": 1.0, "lr": 0.01},
    ...     ]
    ... ).best_epoch
    2
    """
    # 1. Check that every entry has all keys.
    if not history:
        raise InputError("the history is empty: expected one entry per epoch. Was the model fitted?")
    for k, entry in enumerate(history):
        missing = [key for key in _KEYS if key not in entry]
        if missing:
            raise InputError(f"history, entry {k}: expected {', '.join(_KEYS)}; {', '.join(missing)} not found.")
    # 2. Select the epochs with a validation loss; a run that diverged may end with NaN.
    validated = [entry for entry in history if entry["valid_loss"] is not None]
    valid_epoch = np.array([entry["epoch"] for entry in validated], np.int64)
    valid_loss = np.array([entry["valid_loss"] for entry in validated], np.float64)
    finite = np.flatnonzero(np.isfinite(valid_loss))
    return LearningCurve(
        epoch=np.array([entry["epoch"] for entry in history], np.int64),
        train_loss=np.array([entry["train_loss"] for entry in history], np.float64),
        valid_epoch=valid_epoch,
        valid_loss=valid_loss,
        lr=np.array([entry["lr"] for entry in history], np.float64),
        best_epoch=int(valid_epoch[finite[np.argmin(valid_loss[finite])]]) if finite.size else None,
    )


def learning_chart(histories: History | Mapping[str, History]) -> Chart:
    """Return a chart of the losses by epoch of one network, or of several networks by name."""
    named = histories if isinstance(histories, Mapping) else {"": histories}
    chart = _losses_chart({name: learning_curve(history) for name, history in named.items()})
    return replace(chart, numbers=_epoch_cells(named))


def _losses_chart(curves: Mapping[str, LearningCurve]) -> Chart:
    """Return a chart of learning curves without a table of values. Each network has a different colour."""
    marks: list[Line | Ring] = []
    for k, (name, curve) in enumerate(curves.items()):
        # 1. Draw both losses of a network; the validation loss is dashed and, if there is one network, in the second
        #    colour.
        suffix, valid_colour = f" ({name})" if name else "", 1 if len(curves) == 1 else k
        marks.append(Line(x=curve.epoch, y=curve.train_loss, colour=k, legend=f"training{suffix}"))
        if len(curve.valid_epoch):
            legend = f"validation{suffix}"
            marks.append(Line(x=curve.valid_epoch, y=curve.valid_loss, colour=valid_colour, legend=legend, dash="dash"))
        # 2. Mark the best epoch of a single network; the marks of several would hide the lines.
        if curve.best_epoch is not None and len(curves) == 1:
            best = float(curve.valid_loss[curve.valid_epoch == curve.best_epoch][0])
            marks.append(Ring(x=curve.best_epoch, y=best, legend=f"best: {best:.4f} at epoch {curve.best_epoch}"))
    longest = max(curves.values(), key=lambda curve: len(curve.epoch)).epoch
    limits = (float(longest[0]) - 0.5, float(longest[-1]) + 0.5)
    return Chart(
        marks=tuple(marks),
        x=Axis(title="epoch", values="d", whole=True, limits=limits),
        y=Axis(title="loss per choice set"),
        caption="Loss by epoch.",
    )


def _epoch_cells(histories: Mapping[str, History]) -> Cells:
    """Return the losses and the learning rate of every epoch as a table."""
    cells = [["epoch", "of", "training loss", "validation loss", "learning rate"]]
    for name, history in histories.items():
        cells += [[str(entry["epoch"]), name, *(number(entry[key]) for key in _KEYS[1:])] for entry in history]
    return [[row[0], *row[2:]] for row in cells] if set(histories) == {""} else cells


def plot_learning_curve(histories: History | Mapping[str, History], ax: Axes | None = None) -> Axes:
    """Plot the losses of a fitted network, or of several networks, by epoch.

    Parameters
    ----------
    histories
        ``model.history`` of a fitted network, or several histories by name.
    ax
        Axes to draw on (default: a new figure).

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    InputError
        If a history is empty or an entry lacks one of its keys.
    """
    return draw_chart(learning_chart(histories), ax)


def draw_learning_curve(curve: LearningCurve, path: str | os.PathLike[str], *, title: str = "") -> Path:
    """Draw losses by epoch, with the learning rate below them if it changes. Write the figure to a file.

    Parameters
    ----------
    curve
        Result of :func:`learning_curve`.
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
    changes = bool((curve.lr != curve.lr[0]).any())
    heights = [3, 1] if changes else [1]
    with new_picture(path, (6.4, 5.2 if changes else 4.0)) as figure:
        panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights).ravel()
        draw_chart(_losses_chart({"": curve}), panels[0]).set_title(escape_dollars(title))
        if changes:
            # The panels share the axis of epochs, so only the lower one is labelled.
            panels[0].set_xlabel("")
            panels[1].plot(curve.epoch, curve.lr, color=text_colour(), alpha=0.7, drawstyle="steps-mid")
            panels[1].set(yscale="log", xlabel="epoch", ylabel="learning rate")
            style_axes(panels[1])
        figure.align_ylabels()
    return Path(path)


# -- Fit and calibration -----------------------------------------------------------------------------------------------


def fit_intervals(part: FitQuality) -> Intervals:
    """Return the finite NLL values of the model and its baselines, or their accuracies if the model has no NLL."""
    # 1. Collect one metric of the model and its baselines.
    metric = "top_1" if part.report.nll is None else "nll"
    rows = [(MODEL_LABEL, part.report.values[metric], part.report.intervals)]
    rows += [(r.label, r.values.get(metric), r.intervals) for r in part.baseline_rows]
    # 2. Make a dot for each finite value; the dot of the model is hollow if it was trained on the table.
    name, in_sample = metric.upper().replace("_", " "), part.seen != "none known"
    return Intervals(
        metric=name,
        caption=f"{name} with intervals{'; hollow: in-sample' if in_sample else ''}.",
        labels=tuple(label for label, _, _ in rows),
        dots=tuple(
            Dot(k, value, *ends.get(metric, (value, value)), marked=k == 0 and in_sample)
            for k, (_, value, ends) in enumerate(rows)
            if value is not None and isfinite(value)
        ),
        best=0,
    )


def plot_fit(part: FitQuality, ax: Axes | None = None) -> Axes:
    """Plot the NLL of a model and its baselines with intervals. Hollow dots are in-sample values.

    Parameters
    ----------
    part
        Quality of a model (``explanation.fit``).
    ax
        Axes to draw on (default: a new figure).

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.
    """
    intervals = fit_intervals(part)
    axes = axes_for(ax, (5.6, 1.3 + 0.34 * len(intervals.labels)))
    draw_intervals(axes, intervals)
    label_rows(axes, intervals.labels)
    hollow = any(dot.marked for dot in intervals.dots)
    axes.set_xlabel(intervals.metric + ("; hollow: in-sample" if hollow else ""))
    return axes


def calibration_chart(calibrations: Calibration | Mapping[str, Calibration], which: Which = "first") -> Chart:
    """Return a chart of observed shares against predicted probabilities, for one model or several models by name.

    Raises
    ------
    InputError
        If there are no calibrations, or more calibrations than colours.
    """
    require_word("which", which, ("first", "alternatives"))
    named = {"": calibrations} if isinstance(calibrations, Calibration) else calibrations
    if not 1 <= len(named) <= len(COLOURS):
        raise InputError(f"expected 1 to {len(COLOURS)} calibrations to draw, got {len(named)}.")
    # 1. Make a curve for each model. Intervals are limited to [0, 1]: those of a single choice set are infinite.
    marks, cells = [], [["predicted", "observed", "interval", "weight"]]
    end = 0.0
    for k, (name, calibration) in enumerate(named.items()):
        curve: CalibrationCurve = getattr(calibration, which)
        low, high = np.clip(curve.low, 0, 1), np.clip(curve.high, 0, 1)
        end = max(end, float(curve.predicted.max()), float(high.max()))
        legend = f"{name}: error {curve.error:.3f}" if name else f"error {curve.error:.3f}"
        marks.append(Line(x=curve.predicted, y=curve.observed, low=low, high=high, colour=k, legend=legend))
        cells += [
            [f"{p:.4f}", f"{o:.4f}", f"{lowest:.4f} to {highest:.4f}", f"{w:.3f}"]
            for p, o, lowest, highest, w in zip(curve.predicted, curve.observed, low, high, curve.share, strict=True)
        ]
    # 2. Draw the diagonal up to the end of the curves.
    end = min(1.0, 1.06 * end)
    ends = np.array([0.0, end])
    diagonal = Line(x=ends, y=ends, colour=GREY, dash="dot", points=False)
    share: dict[str, Any] = {"limits": (-0.03 * end, 1.02 * end), "ticks": ".0%", "values": ".1%"}
    level = next(iter(named.values())).level
    return Chart(
        marks=(diagonal, *marks),
        x=Axis(title="predicted probability", **share),
        y=Axis(title="observed share", **share),
        title=_HEADINGS[which],
        caption=(
            f"{_CAPTIONS[which]} Bars: {level:.0%} intervals. On the dotted line, predicted and observed shares agree."
        ),
        numbers=cells,
        inches=(4.8, 4.6),
        narrow=True,
    )


def plot_calibration(
    calibrations: Calibration | Mapping[str, Calibration], ax: Axes | None = None, *, which: Which = "first"
) -> Axes:
    """Plot the calibration of one or several models.

    Parameters
    ----------
    calibrations
        Result of :func:`pcmcnet.insight.calibration.calibration`, or several results by name of the model.
    ax
        Axes to draw on (default: a new figure).
    which
        "first" (the default) for the most probable alternative of each choice set, or "alternatives" for all.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    InputError
        If there are no calibrations, or more calibrations than colours.
    """
    return draw_chart(calibration_chart(calibrations, which), ax)


def draw_calibration(calibrations: Mapping[str, Calibration], path: str | os.PathLike[str]) -> Path:
    """Draw the calibration of models for all alternatives and for the most probable ones, and write the figure.

    Parameters
    ----------
    calibrations
        Calibrations of the models, by name.
    path
        File to write: .png, .pdf or .svg, in an existing folder.

    Returns
    -------
    Path
        Path of the written file.

    Raises
    ------
    InputError
        If there are no calibrations, more calibrations than colours, or the path is not valid.
    """
    with new_picture(path, (9.2, 4.8), dpi=110) as figure:
        panels = figure.subplots(1, 2)
        plot_calibration(calibrations, panels[0], which="alternatives")
        plot_calibration(calibrations, panels[1]).set_ylabel("")
    return Path(path)
