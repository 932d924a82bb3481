"""Searches -> pictures: the trials of a tuning, and the frontier of offers.

A tuning has two panels: the loss of every trial with the best so far, and how much each dimension mattered. Complete
trials are filled dots, pruned ones hollow, at the least loss they had reached; failed ones are ticks at the foot.
Losses far above the bulk would flatten the rest: they are drawn at the upper edge. A frontier is the expected revenue
against the number of alternatives shown, with bounds.
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
from pcmcnet.plots.style import axes_for, colour, ink, name_lines, new_picture, paper, tidy
from pcmcnet.tuning.result import Tuning

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class SearchChart(NamedTuple):
    """What is drawn of a search; trials by their numbers."""

    complete: Ints
    complete_loss: Floats
    pruned: Ints
    pruned_loss: Floats
    failed: Ints
    best_so_far: Floats  # (trials,) nan before the first complete one
    best: int  # number of the best trial
    limits: tuple[float, float]  # of the losses shown at their place
    importance: tuple[tuple[str, float], ...]  # the largest first


def search_chart(tuning: Tuning) -> SearchChart:
    """Gather what is drawn of a search.

    Parameters
    ----------
    tuning
        What :func:`pcmcnet.tune` returned.
    """
    # 1. The trials by how they ended.
    numbers, losses = {}, {}
    for state in ("complete", "pruned", "failed"):
        numbers[state] = np.array([trial.number for trial in tuning.trials if trial.state == state], np.int64)
        losses[state] = np.array([trial.value for trial in tuning.trials if trial.state == state], np.float64)
    # 2. The least loss of complete trials up to each.
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
    """Show all losses up to four times as far from the best as the middle one is."""
    low, high = float(losses.min()), float(losses.max())
    bulk = float(np.median(losses)) - low
    high = min(high, low + 4 * bulk) if bulk > 0 else high
    margin = 0.06 * (high - low) or 0.05
    return low - margin, high + margin


def draw_search(chart: SearchChart, path: str | os.PathLike[str], *, title: str = "") -> Path:
    """Draw the history of a search, and beside it the importance of the dimensions where it is known.

    Parameters
    ----------
    chart
        What :func:`search_chart` returned.
    path, title
        Where the picture goes, which is returned, and its title: see :func:`~pcmcnet.plots.style.new_picture`.
    """
    panels = 2 if chart.importance else 1
    with new_picture(path, (6.4 + 3.6 * (panels - 1), 4.0), title=title) as figure:
        axes = figure.subplots(1, panels, squeeze=False, width_ratios=[6.4, 3.6][:panels]).ravel()
        _draw_history(axes[0], chart)
        if chart.importance:
            _draw_importance(axes[1], chart)
    return Path(path)


def plot_search(tuning: Tuning, ax: Axes | None = None, *, what: Literal["trials", "importance"] = "trials") -> Axes:
    """Draw the loss of every trial of a search, or how much each dimension mattered.

    Parameters
    ----------
    tuning
        What :func:`pcmcnet.tune` returned.
    ax
        Where to draw; a new figure if None.
    what
        "trials" or "importance".

    Raises
    ------
    InputError
        When the importance is asked for and the trials tell nothing of it.
    """
    require_word("what", what, ("trials", "importance"))
    chart = search_chart(tuning)
    if what == "importance" and not chart.importance:
        raise InputError("the trials do not tell how much each dimension mattered: search further.")
    axes = axes_for(ax, (6.4, 4.0))
    (_draw_history if what == "trials" else _draw_importance)(axes, chart)
    return axes


def _draw_history(axes: Axes, chart: SearchChart) -> None:
    from matplotlib.ticker import MaxNLocator

    # 1. The best so far, then the trials by their state; losses beyond the axis lie on its edge.
    low, high = chart.limits
    numbers = np.arange(1, len(chart.best_so_far) + 1)
    axes.plot(numbers, chart.best_so_far, color=colour(1), drawstyle="steps-post", label="best so far")
    groups = [
        ("complete", chart.complete, chart.complete_loss, colour(0)),
        ("pruned", chart.pruned, chart.pruned_loss, paper()),
    ]
    for label, at, losses, inside in groups:
        if len(at):
            shown = np.minimum(losses, high)
            axes.plot(at, shown, "o", color=colour(0), markerfacecolor=inside, label=label, clip_on=False)
    if len(chart.failed):
        at_foot = np.full(len(chart.failed), low)
        axes.plot(chart.failed, at_foot, "x", color=ink(), alpha=0.7, label="failed", clip_on=False)
    # 2. A ring around the best.
    best = float(chart.complete_loss.min())
    axes.plot(chart.best, best, "o", color="none", markeredgecolor=ink(), markersize=10, label=f"best: {best:.4f}")
    # 3. The axes.
    axes.set_ylim(low, high)
    axes.set_xlim(0.5, len(numbers) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    tidy(axes)
    axes.set_xlabel("trial")
    axes.set_ylabel("validation loss per choice set")
    axes.legend(edgecolor="none", framealpha=1)


def _draw_importance(axes: Axes, chart: SearchChart) -> None:
    names, shares = zip(*chart.importance, strict=True)
    axes.barh(range(len(names)), shares, color=colour(0))
    name_lines(axes, names)
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of the differences")


def draw_offer_frontier(frontier: Frontier, ax: Axes | None = None) -> Axes:
    """Draw the best revenue of each size, and a bound where an offer is not proven to be the best."""
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(figsize=(6.4, 4.0), layout="constrained").subplots()
    # 1. The best revenue of each size.
    values = [offer.value for offer in frontier.offers]
    ax.plot(frontier.sizes, values, color=colour(0), marker="o", label="best offer found")
    # 2. Up to the bound, where a better offer may exist.
    open_ = [(size, o) for size, o in zip(frontier.sizes, frontier.offers, strict=True) if not o.exact]
    for k, (size, offer) in enumerate(open_):
        ax.plot([size] * 2, [offer.value, offer.bound], color=colour(1), label=None if k else "up to its bound")
    # 3. The axes.
    tidy(ax)
    ax.set_xticks(frontier.sizes)
    ax.set_xlabel("alternatives shown, at most")
    ax.set_ylabel("expected revenue of one choice")
    if open_:
        ax.legend(frameon=False)
    return ax
