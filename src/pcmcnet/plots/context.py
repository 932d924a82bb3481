"""Context effects -> pictures: the strongest cases of a search, and the map of a third that moves in a real set.

A case is a line from the share of i against j without an alternative to that with it; a logit would have dots alone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.errors import InputError
from pcmcnet.insight.context_effects import PreferenceMap, Search
from pcmcnet.plots.files import picture_path, save_picture
from pcmcnet.plots.preference_map import draw_preference_maps
from pcmcnet.plots.style import BLUE, ORANGE, plain, tidy

_WIDEST = 60  # letters of a label


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
        tuple("\n".join(_short(line) for line in label.splitlines()) for label in labels),
        np.array([c.share_without for c in cases]),
        np.array([c.share_with for c in cases]),
        np.array([c.by_adding for c in cases]),
    )


def _short(line: str) -> str:
    return line if len(line) <= _WIDEST else f"{line[: _WIDEST - 3]}..."


def draw_effects(found: Search, path: str | os.PathLike[str], *, most: int = 12) -> Path:
    """Draw the strongest cases of a search.

    Parameters
    ----------
    found, most
        As for :func:`effects_chart`.
    path
        Where the file goes, .png, .pdf or .svg; its folder must exist.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    InputError
        When there is no case, or the path is not that of a PNG, PDF or SVG file in an existing folder.
    """
    from matplotlib.figure import Figure

    target, chart = picture_path(path), effects_chart(found, most=most)
    lines = np.arange(len(chart.labels))
    figure = Figure(figsize=(8.0, 1.1 + 0.5 * len(lines)), layout="constrained")
    axes = figure.subplots()
    axes.hlines(lines, chart.share_without, chart.share_with, color="0.6", linewidth=3, zorder=1)
    axes.plot(chart.share_without, lines, "o", color=BLUE, markersize=8, label="without")
    axes.plot(chart.share_with, lines, "o", color=ORANGE, markersize=8, label="when it has joined")
    for line, change in zip(lines, chart.by_adding, strict=True):
        axes.annotate(f"{change:+.2f}", (1.02, line), xycoords=("axes fraction", "data"), va="center", fontsize=10)
    tidy(axes, grid="x")
    axes.set_yticks(lines, [plain(label) for label in chart.labels], fontsize=9)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("share of the first against the second; on the right, the change of their log-ratio", fontsize=10)
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=10)
    return save_picture(figure, target)


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
