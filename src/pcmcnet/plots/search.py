"""Plots of searches: the trials of a tuning run, and the offer frontier.

The plot of a tuning run has two panels: the loss of every trial with the lowest loss so far, and the importance of each
dimension. Complete trials are filled dots. Pruned trials are hollow dots, at the lowest loss they reached. Failed
trials are crosses at the bottom. Losses far above the others are drawn at the upper edge, because they would otherwise
compress the rest. A frontier shows the expected revenue against the number of alternatives shown, with bounds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_word
from pcmcnet.decisions import Frontier
from pcmcnet.errors import InputError
from pcmcnet.plots.style import axes_for, background_colour, colour, label_rows, new_picture, style_axes, text_colour
from pcmcnet.tuning.result import Tuning

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class SearchChart(NamedTuple):
    """The values in the plot of a tuning run. Trials are identified by their numbers.

    Attributes
    ----------
    complete, complete_loss
        Complete trials and their losses.
    pruned, pruned_loss
        Pruned trials and the lowest loss that each reached.
    failed
        Failed trials.
    best_so_far
        Lowest loss (trials,) of all complete trials so far, or NaN before the first complete trial.
    best
        The best trial.
    limits
        Limits of the loss axis. Larger losses are drawn at its upper edge.
    importance
        Dimensions with their importance, the largest first.
    """

    complete: Ints
    complete_loss: Floats
    pruned: Ints
    pruned_loss: Floats
    failed: Ints
    best_so_far: Floats
    best: int
    limits: tuple[float, float]
    importance: tuple[tuple[str, float], ...]


def search_chart(tuning: Tuning) -> SearchChart:
    """Return the losses of all trials of a tuning run, and the importance of the dimensions.

    Parameters
    ----------
    tuning
        Result of :func:`pcmcnet.tune`.

    Returns
    -------
    SearchChart
        Trials by state, best loss so far, limits of the axis and importance.
    """
    # 1. Group the trials by state.
    numbers, losses = {}, {}
    for state in ("complete", "pruned", "failed"):
        numbers[state] = np.array([trial.number for trial in tuning.trials if trial.state == state], np.int64)
        losses[state] = np.array([trial.value for trial in tuning.trials if trial.state == state], np.float64)
    # 2. Compute the lowest loss of complete trials so far.
    values = [t.value if t.state == "complete" else None for t in tuning.trials]
    best = np.fmin.accumulate(np.array([np.nan if v is None else v for v in values], np.float64))
    return SearchChart(
        complete=numbers["complete"],
        complete_loss=losses["complete"],
        pruned=numbers["pruned"],
        pruned_loss=losses["pruned"],
        failed=numbers["failed"],
        best_so_far=best,
        best=tuning.best_trial.number,
        limits=_limits(np.concatenate([losses["complete"], losses["pruned"]])),
        importance=tuple(sorted(tuning.importance.items(), key=lambda entry: -entry[1])),
    )


def _limits(losses: Floats) -> tuple[float, float]:
    """Return the limits of the loss axis. The maximum is at most 4 times as far from the best loss as the median."""
    low, high = float(losses.min()), float(losses.max())
    bulk = float(np.median(losses)) - low
    high = min(high, low + 4 * bulk) if bulk > 0 else high
    margin = 0.06 * (high - low) or 0.05
    return low - margin, high + margin


def draw_search(chart: SearchChart, path: str | os.PathLike[str], *, title: str = "") -> Path:
    """Draw the trials of a tuning run and, if known, the importance of the dimensions. Write the figure to a file.

    Parameters
    ----------
    chart
        Result of :func:`search_chart`.
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
    panels = 2 if chart.importance else 1
    with new_picture(path, (6.4 + 3.6 * (panels - 1), 4.0), title=title) as figure:
        axes = figure.subplots(1, panels, squeeze=False, width_ratios=[6.4, 3.6][:panels]).ravel()
        _draw_history(axes[0], chart)
        if chart.importance:
            _draw_importance(axes[1], chart)
    return Path(path)


def plot_search(tuning: Tuning, ax: Axes | None = None, *, what: Literal["trials", "importance"] = "trials") -> Axes:
    """Plot the loss of every trial of a tuning run, or the importance of each dimension.

    Parameters
    ----------
    tuning
        Result of :func:`pcmcnet.tune`.
    ax
        Axes to draw on (default: a new figure).
    what
        "trials" (the default) or "importance".

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    InputError
        If the importance is not available.
    """
    require_word("what", what, ("trials", "importance"))
    chart = search_chart(tuning)
    if what == "importance" and not chart.importance:
        raise InputError("the importance of the options is not available: run more trials.")
    axes = axes_for(ax, (6.4, 4.0))
    (_draw_history if what == "trials" else _draw_importance)(axes, chart)
    return axes


def _draw_history(axes: Axes, chart: SearchChart) -> None:
    from matplotlib.ticker import MaxNLocator

    # 1. Draw the best loss so far, then the trials by state; losses beyond the axis are drawn at its edge.
    low, high = chart.limits
    numbers = np.arange(1, len(chart.best_so_far) + 1)
    axes.plot(numbers, chart.best_so_far, color=colour(1), drawstyle="steps-post", label="best so far")
    groups = [
        ("complete", chart.complete, chart.complete_loss, colour(0)),
        ("pruned", chart.pruned, chart.pruned_loss, background_colour()),
    ]
    for label, at, losses, inside in groups:
        if len(at):
            axes.plot(
                at, np.minimum(losses, high), "o", color=colour(0), markerfacecolor=inside, label=label, clip_on=False
            )
    if len(chart.failed):
        bottom = np.full(len(chart.failed), low)
        axes.plot(chart.failed, bottom, "x", color=text_colour(), alpha=0.7, label="failed", clip_on=False)
    # 2. Draw a ring around the best trial.
    best = float(chart.complete_loss.min())
    axes.plot(
        chart.best, best, "o", color="none", markeredgecolor=text_colour(), markersize=10, label=f"best: {best:.4f}"
    )
    # 3. Set the axes.
    axes.set_ylim(low, high)
    axes.set_xlim(0.5, len(numbers) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    style_axes(axes)
    axes.set_xlabel("trial")
    axes.set_ylabel("validation loss per choice set")
    axes.legend(edgecolor="none", framealpha=1)


def _draw_importance(axes: Axes, chart: SearchChart) -> None:
    names, shares = zip(*chart.importance, strict=True)
    axes.barh(range(len(names)), shares, color=colour(0))
    label_rows(axes, names)
    axes.set_xlim(0, 1)
    axes.set_xlabel("importance (share of variance explained)")


def draw_offer_frontier(frontier: Frontier, ax: Axes | None = None) -> Axes:
    """Draw the best expected revenue by number of alternatives shown, with bounds for offers not proven optimal.

    Parameters
    ----------
    frontier
        Result of :func:`pcmcnet.offer_frontier`.
    ax
        Axes to draw on (default: a new figure).

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.
    """
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(figsize=(6.4, 4.0), layout="constrained").subplots()
    # 1. Draw the best revenue of each size.
    values = [offer.value for offer in frontier.offers]
    ax.plot(frontier.sizes, values, color=colour(0), marker="o", label="best offer found")
    # 2. Draw a line up to the bound for offers that are not proven optimal.
    unproven = [(size, o) for size, o in zip(frontier.sizes, frontier.offers, strict=True) if not o.exact]
    for k, (size, offer) in enumerate(unproven):
        ax.plot([size] * 2, [offer.value, offer.bound], color=colour(1), label=None if k else "up to its bound")
    # 3. Set the axes.
    style_axes(ax)
    ax.set_xticks(frontier.sizes)
    ax.set_xlabel("alternatives shown, at most")
    ax.set_ylabel("expected revenue per choice")
    if unproven:
        ax.legend(frameon=False)
    return ax
