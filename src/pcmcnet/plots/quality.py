"""Training and quality of a model -> charts: sizes of choice sets, learning curve, fit beside baselines, calibration.

A history is a list with one entry per epoch: ``epoch``, ``train_loss``, ``valid_loss`` (None where there is
no validation part) and ``lr``. On the diagonal of a calibration, what was predicted is what happened; below it a model
is surer than it should be.
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
from pcmcnet.insight.calibration import Calibration, CalibrationCurve, FitQuality
from pcmcnet.insight.table_summary import TableSummary
from pcmcnet.plots.charts import GREY, Axis, Bars, Chart, Line, Ring, draw_chart, draw_intervals
from pcmcnet.plots.style import COLOURS, axes_for, ink, name_lines, new_picture, plain, tidy
from pcmcnet.reports.sections import Dot, Intervals
from pcmcnet.reports.tables import Cells, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

History = Sequence[Mapping[str, Any]]
Which = Literal["first", "alternatives"]

_KEYS = ("epoch", "train_loss", "valid_loss", "lr")
_HEADINGS = {"alternatives": "all alternatives", "first": "the most probable alternative of each set"}
_CAPTIONS = {"alternatives": "All alternatives.", "first": "The favourite of each set."}


def sizes_chart(table: TableSummary) -> Chart:
    """Describe how many choice sets have how many alternatives."""
    sizes, counts = table.sizes.tolist(), table.counts.tolist()
    return Chart(
        marks=(Bars(at=sizes, values=counts, colours=[0] * len(sizes)),),
        x=Axis(title="alternatives in the set", whole=True),
        y=Axis(title="choice sets", values=","),
        caption="How many alternatives people had.",
        numbers=[["alternatives", "choice sets"], *([f"{n:,}", f"{k:,}"] for n, k in zip(sizes, counts, strict=True))],
        inches=(6.4, 3.0),
    )


def plot_sizes(table: TableSummary, ax: Axes | None = None) -> Axes:
    """Draw how many choice sets have how many alternatives."""
    return draw_chart(sizes_chart(table), ax)


# -- the learning curve ----------------------------------------------------------------------------------------------


class LearningCurve(NamedTuple):
    """Losses and learning rate by epoch."""

    epoch: NDArray[np.int64]  # (epochs,)
    train_loss: Floats  # (epochs,)
    valid_epoch: NDArray[np.int64]  # (validated,) epochs with a validation loss
    valid_loss: Floats  # (validated,)
    lr: Floats  # (epochs,)
    best_epoch: int | None  # the first epoch of least validation loss


def learning_curve(history: History) -> LearningCurve:
    """Gather the learning curve of a model's history.

    Parameters
    ----------
    history
        ``model.history`` of a fitted network.

    Raises
    ------
    InputError
        When the history is empty or an entry lacks one of its keys.

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
    # 1. Every entry has its keys.
    if not history:
        raise InputError("the history is empty: expected one entry per epoch. Was the model fitted?")
    for k, entry in enumerate(history):
        lacking = [key for key in _KEYS if key not in entry]
        if lacking:
            raise InputError(f"history, entry {k}: expected {', '.join(_KEYS)}; {', '.join(lacking)} not found.")
    # 2. Validation losses are where there are some; a run that broke down may end with NaN.
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
    """Describe the losses of a network by epoch, or those of the members of an ensemble by name."""
    named = histories if isinstance(histories, Mapping) else {"": histories}
    chart = _losses_chart({name: learning_curve(history) for name, history in named.items()})
    return replace(chart, numbers=_epoch_cells(named))


def _losses_chart(curves: Mapping[str, LearningCurve]) -> Chart:
    """Describe learning curves without their table; each of several networks has a colour of its own."""
    marks: list[Line | Ring] = []
    for k, (name, curve) in enumerate(curves.items()):
        # 1. Both losses of a network: by colour where it is alone, by dashes in any case.
        behind, other = f" ({name})" if name else "", 1 if len(curves) == 1 else k
        marks.append(Line(x=curve.epoch, y=curve.train_loss, colour=k, legend=f"training{behind}"))
        if len(curve.valid_epoch):
            legend = f"validation{behind}"
            marks.append(Line(x=curve.valid_epoch, y=curve.valid_loss, colour=other, legend=legend, dash="dash"))
        # 2. The epoch that was kept; those of several networks would hide the lines.
        if curve.best_epoch is not None and len(curves) == 1:
            best = float(curve.valid_loss[curve.valid_epoch == curve.best_epoch][0])
            marks.append(Ring(x=curve.best_epoch, y=best, legend=f"best: {best:.4f} at epoch {curve.best_epoch}"))
    longest = max(curves.values(), key=lambda curve: len(curve.epoch)).epoch
    limits = (float(longest[0]) - 0.5, float(longest[-1]) + 0.5)
    return Chart(
        marks=tuple(marks),
        x=Axis(title="epoch", values="d", whole=True, limits=limits),
        y=Axis(title="loss per choice set"),
        caption="Loss by epoch of the training.",
    )


def _epoch_cells(histories: Mapping[str, History]) -> Cells:
    """Return the losses and the learning rate of every epoch as a table."""
    cells = [["epoch", "of", "training loss", "validation loss", "learning rate"]]
    for name, history in histories.items():
        cells += [[str(entry["epoch"]), name, *(number(entry[key]) for key in _KEYS[1:])] for entry in history]
    return [[row[0], *row[2:]] for row in cells] if set(histories) == {""} else cells


def plot_learning_curve(histories: History | Mapping[str, History], ax: Axes | None = None) -> Axes:
    """Draw the losses of a fitted network by epoch, or those of the members of an ensemble.

    Parameters
    ----------
    histories
        ``model.history``, or several of them by name.
    ax
        Where to draw; a new figure if None.
    """
    return draw_chart(learning_chart(histories), ax)


def draw_learning_curve(curve: LearningCurve, path: str | os.PathLike[str], *, title: str = "") -> Path:
    """Draw losses by epoch, and below them the learning rate where it changes.

    Parameters
    ----------
    curve
        What :func:`learning_curve` returned.
    path, title
        Where the picture goes, which is returned, and its title: see :func:`~pcmcnet.plots.style.new_picture`.
    """
    changes = bool((curve.lr != curve.lr[0]).any())
    heights = [3, 1] if changes else [1]
    with new_picture(path, (6.4, 5.2 if changes else 4.0)) as figure:
        panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights).ravel()
        draw_chart(_losses_chart({"": curve}), panels[0]).set_title(plain(title))
        if changes:
            # The panels share their epochs, which the lower one names.
            panels[0].set_xlabel("")
            panels[1].plot(curve.epoch, curve.lr, color=ink(), alpha=0.7, drawstyle="steps-mid")
            panels[1].set(yscale="log", xlabel="epoch", ylabel="learning rate")
            tidy(panels[1])
        figure.align_ylabels()
    return Path(path)


# -- fit and calibration ---------------------------------------------------------------------------------------------


def fit_intervals(part: FitQuality) -> Intervals:
    """The NLL of all, or the accuracy where the model has none; what is infinite cannot be drawn."""
    # 1. The model and its baselines, by one metric.
    metric = "top_1" if part.report.nll is None else "nll"
    rows = [("this model", part.report.values[metric], part.report.intervals)]
    rows += [(r.label, r.values.get(metric), r.intervals) for r in (part.baselines.rows if part.baselines else ())]
    # 2. A dot for each that is finite; that of the model is hollow where it has seen the table.
    name, seen = metric.upper().replace("_", " "), part.seen != "none known"
    return Intervals(
        metric=name,
        caption=f"{name} with intervals{'; hollow: in-sample' if seen else ''}.",
        labels=tuple(label for label, _, _ in rows),
        dots=tuple(
            Dot(k, value, *ends.get(metric, (value, value)), marked=k == 0 and seen)
            for k, (_, value, ends) in enumerate(rows)
            if value is not None and isfinite(value)
        ),
        best=0,
    )


def plot_fit(part: FitQuality, ax: Axes | None = None) -> Axes:
    """Draw the NLL of a model and of its baselines, with intervals; hollow: in-sample."""
    intervals = fit_intervals(part)
    axes = axes_for(ax, (5.6, 1.3 + 0.34 * len(intervals.labels)))
    draw_intervals(axes, intervals)
    name_lines(axes, intervals.labels)
    hollow = any(dot.marked for dot in intervals.dots)
    axes.set_xlabel(intervals.metric + ("; hollow: in-sample" if hollow else ""))
    return axes


def calibration_chart(calibrations: Calibration | Mapping[str, Calibration], which: Which = "first") -> Chart:
    """Describe predicted probabilities against observed shares, of one model or of several by their names.

    Raises
    ------
    InputError
        When there are none, or more than there are colours.
    """
    require_word("which", which, ("first", "alternatives"))
    named = {"": calibrations} if isinstance(calibrations, Calibration) else calibrations
    if not 1 <= len(named) <= len(COLOURS):
        raise InputError(f"expected 1 to {len(COLOURS)} calibrations to draw, got {len(named)}.")
    # 1. A curve for each model, with intervals within 0 and 1: one set alone has infinite ones.
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
    # 2. The diagonal, as far as there is something to see.
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
            f"{_CAPTIONS[which]} Bars: {level:.0%} intervals. On the dotted line what is predicted is what happens."
        ),
        numbers=cells,
        inches=(4.8, 4.6),
        narrow=True,
    )


def plot_calibration(
    calibrations: Calibration | Mapping[str, Calibration], ax: Axes | None = None, *, which: Which = "first"
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
    """
    return draw_chart(calibration_chart(calibrations, which), ax)


def draw_calibration(calibrations: Mapping[str, Calibration], path: str | os.PathLike[str]) -> Path:
    """Draw the calibration of models: of all alternatives on the left, of the most probable ones on the right.

    Parameters
    ----------
    calibrations
        Name of a model -> its calibration.
    path
        Where the picture goes, which is returned: see :func:`~pcmcnet.plots.style.new_picture`.
    """
    with new_picture(path, (9.2, 4.8), dpi=110) as figure:
        panels = figure.subplots(1, 2)
        plot_calibration(calibrations, panels[0], which="alternatives")
        plot_calibration(calibrations, panels[1]).set_ylabel("")
    return Path(path)
