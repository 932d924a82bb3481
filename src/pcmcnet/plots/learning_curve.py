"""A model's history -> its learning curve: loss on the training and validation parts, and the learning rate.

A history is a list with one entry per epoch: ``epoch``, ``train_loss``, ``valid_loss`` (None where there is
no validation part) and ``lr``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.errors import InputError
from pcmcnet.plots.files import new_picture
from pcmcnet.plots.style import axes_for, colour, ink, plain, tidy
from pcmcnet.reports.drawing import draws

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_KEYS = ("epoch", "train_loss", "valid_loss", "lr")


class LearningCurve(NamedTuple):
    """Losses and learning rate by epoch."""

    epoch: NDArray[np.int64]  # (epochs,)
    train_loss: Floats  # (epochs,)
    valid_epoch: NDArray[np.int64]  # (validated,) epochs with a validation loss
    valid_loss: Floats  # (validated,)
    lr: Floats  # (epochs,)
    best_epoch: int | None  # the first epoch of least validation loss


def learning_curve(history: Sequence[Mapping[str, Any]]) -> LearningCurve:
    """Gather the learning curve of a model's history.

    Parameters
    ----------
    history
        ``model.history`` of a fitted network.

    Returns
    -------
    LearningCurve

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
    if not history:
        raise InputError("the history is empty: expected one entry per epoch. Was the model fitted?")
    for k, entry in enumerate(history):
        lacking = [key for key in _KEYS if key not in entry]
        if lacking:
            raise InputError(f"history, entry {k}: expected {', '.join(_KEYS)}; {', '.join(lacking)} not found.")
    validated = [entry for entry in history if entry["valid_loss"] is not None]
    valid_epoch = np.array([entry["epoch"] for entry in validated], np.int64)
    valid_loss = np.array([entry["valid_loss"] for entry in validated], np.float64)
    known = np.flatnonzero(np.isfinite(valid_loss))  # a run that broke down may end with NaN
    return LearningCurve(
        epoch=np.array([entry["epoch"] for entry in history], np.int64),
        train_loss=np.array([entry["train_loss"] for entry in history], np.float64),
        valid_epoch=valid_epoch,
        valid_loss=valid_loss,
        lr=np.array([entry["lr"] for entry in history], np.float64),
        best_epoch=int(valid_epoch[known[np.argmin(valid_loss[known])]]) if known.size else None,
    )


def draw_learning_curve(curve: LearningCurve, path: str | os.PathLike[str], *, title: str = "") -> Path:
    """Draw losses by epoch, and below them the learning rate where it changes.

    Parameters
    ----------
    curve
        What :func:`learning_curve` returned.
    path, title
        Where the picture goes, and its title: see :func:`~pcmcnet.plots.files.new_picture`.

    Returns
    -------
    Path
        The file written.
    """
    changes = bool((curve.lr != curve.lr[0]).any())
    heights = [3, 1] if changes else [1]
    with new_picture(path, (6.4, 5.2 if changes else 4.0)) as figure:
        panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights).ravel()
        _draw_losses(panels[0], curve)
        panels[0].set_title(plain(title))
        if changes:
            panels[1].plot(curve.epoch, curve.lr, color=ink(), alpha=0.7, drawstyle="steps-mid")
            panels[1].set_yscale("log")
            panels[1].set_ylabel("learning rate")
            tidy(panels[1])
        _draw_epochs(panels[-1], curve)
        figure.align_ylabels()
    return Path(path)


@draws("history")
def plot_learning_curve(
    histories: Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Mapping[str, Any]]], ax: Axes | None = None
) -> Axes:
    """Draw the losses of a fitted network by epoch, or those of the members of an ensemble.

    Parameters
    ----------
    histories
        ``model.history``, or several of them by name.
    ax
        Where to draw; a new figure if None.

    Returns
    -------
    matplotlib.axes.Axes
    """
    named = histories if isinstance(histories, Mapping) else {"": histories}
    curves = {name: learning_curve(history) for name, history in named.items()}
    axes = axes_for(ax, (6.4, 4.0))
    for k, (name, curve) in enumerate(curves.items()):
        _draw_losses(axes, curve, name, k if len(curves) > 1 else None)
    _draw_epochs(axes, max(curves.values(), key=lambda curve: len(curve.epoch)))
    return axes


def _draw_epochs(axes: Axes, curve: LearningCurve) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.set_xlim(curve.epoch[0] - 0.5, curve.epoch[-1] + 0.5)


def _draw_losses(axes: Axes, curve: LearningCurve, name: str = "", number: int | None = None) -> None:
    """Draw both losses; dashes, since print may be grey. Of several networks, each has the colour of its number."""
    dots, behind = "." if len(curve.epoch) < 40 else "", f" ({plain(name)})" if name else ""
    colours = (colour(0), colour(1)) if number is None else (colour(number), colour(number))
    axes.plot(curve.epoch, curve.train_loss, color=colours[0], marker=dots, label=f"training{behind}")
    if len(curve.valid_epoch):
        label = f"validation{behind}"
        axes.plot(curve.valid_epoch, curve.valid_loss, "--", color=colours[1], marker=dots, label=label)
    if curve.best_epoch is not None and number is None:
        best = float(curve.valid_loss[curve.valid_epoch == curve.best_epoch][0])
        label = f"best: {best:.4f} at epoch {curve.best_epoch}"
        axes.plot(curve.best_epoch, best, "o", color="none", markeredgecolor=ink(), markersize=9, label=label)
    axes.set_ylabel("loss per choice set")
    axes.legend(edgecolor="none", framealpha=1)
    tidy(axes)
