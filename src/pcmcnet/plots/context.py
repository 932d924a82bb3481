"""Context effects -> pictures: the strongest cases of a search, and the map of a third that moves in a real set.

A case is a line from the share of i against j without an alternative to that with it; a logit would have dots alone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.errors import InputError
from pcmcnet.insight.context_effects import PreferenceMap, Search
from pcmcnet.plots.files import new_picture
from pcmcnet.plots.preference_map import draw_preference_maps
from pcmcnet.plots.style import axes_for, colour, cut, ink, plain, tidy
from pcmcnet.reports.drawing import draws

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class EffectsChart(NamedTuple):
    """What is drawn of a search, the strongest case first."""

    labels: tuple[str, ...]
    share_without: Floats  # (cases,) P(i) / (P(i) + P(j)) without the alternative
    share_with: Floats  # (cases,) the same with it
    by_adding: Floats  # (cases,) change of the log-ratio


def effects_chart(found: Search, *, most: int = 12) -> EffectsChart:
    """Gather what is drawn of a search.

    Parameters
    ----------
    found
        What :func:`pcmcnet.insight.context_effects.search` returned.
    most
        Cases to draw.

    Returns
    -------
    EffectsChart
    """
    cases = found.cases[:most]
    if not cases:
        raise InputError("expected at least one case to draw, got none.")
    labels = [f"set {c.choice_set}: {c.i} against {c.j}\nwhen {c.removed} joins" for c in cases]
    return EffectsChart(
        tuple("\n".join(cut(line) for line in label.splitlines()) for label in labels),
        np.array([c.share_without for c in cases]),
        np.array([c.share_with for c in cases]),
        np.array([c.by_adding for c in cases]),
    )


def draw_effects(found: Search, path: str | os.PathLike[str], *, most: int = 12) -> Path:
    """Draw the strongest cases of a search.

    Parameters
    ----------
    found, most
        As for :func:`effects_chart`.
    path
        Where the picture goes: see :func:`~pcmcnet.plots.files.new_picture`.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    InputError
        When there is no case.
    """
    with new_picture(path, _size(len(effects_chart(found, most=most).labels))) as figure:
        plot_effects(found, figure.subplots(), most=most)
    return Path(path)


@draws("context")
def plot_effects(found: Search, ax: Axes | None = None, *, most: int = 12) -> Axes:
    """Draw the strongest cases of a search for context effects.

    Parameters
    ----------
    found, most
        As for :func:`effects_chart`.
    ax
        Where to draw; a new figure if None.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        When there is no case.
    """
    chart = effects_chart(found, most=most)
    lines = np.arange(len(chart.labels))
    axes = axes_for(ax, _size(len(lines)))
    axes.hlines(lines, chart.share_without, chart.share_with, color=ink(), alpha=0.4, linewidth=3, zorder=1)
    axes.plot(chart.share_without, lines, "o", color=colour(0), markersize=8, label="without")
    axes.plot(chart.share_with, lines, "o", color=colour(1), markersize=8, label="when it has joined")
    for line, change in zip(lines, chart.by_adding, strict=True):
        axes.annotate(f"{change:+.2f}", (1.02, line), xycoords=("axes fraction", "data"), va="center")
    tidy(axes, grid="x")
    axes.set_yticks(lines, [plain(label) for label in chart.labels], fontsize="small")
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("share of the first against the second; on the right, the change of their log-ratio")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    return axes


def _size(cases: int) -> tuple[float, float]:
    return 8.0, 1.1 + 0.5 * cases


def draw_third(
    drawn: PreferenceMap, path: str | os.PathLike[str], *, features: tuple[str, str], title: str | None = None
) -> Path:
    """Draw the map of a third that moves; grey of the scale's middle is the preference without it.

    Parameters
    ----------
    drawn
        What :func:`pcmcnet.insight.context_effects.preference_map_in_set` returned.
    path
        As for :func:`draw_effects`.
    features
        Names of the two features, for the axes.
    title
        Above the map; the preference without the third where none is given.

    Returns
    -------
    Path
        The file written.
    """
    words = f"without $c$: {drawn.without:.2f}" if title is None else title
    return draw_preference_maps({words: drawn}, path, features=features, contexts={})
