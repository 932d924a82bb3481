"""Preference maps -> a picture: the preference of a over b as a third alternative moves; lighter favours a.

The maps are computed by ``pcmcnet.insight.preference_map``; those of figure 2 of the paper mark the places of c that
are known for an effect on a.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pcmcnet.errors import InputError
from pcmcnet.insight.preference_map import Point, PreferenceMap, preference_error, preference_map
from pcmcnet.plots.files import picture_path, save_picture
from pcmcnet.plots.style import axes_for, plain
from pcmcnet.reports.drawing import draws

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

__all__ = ["CONTEXTS", "Point", "PreferenceMap", "draw_preference_maps", "preference_error", "preference_map"]

CONTEXTS: Mapping[str, Point] = {"attraction": (3.0, 5.0), "similarity": (3.5, 6.5), "compromise": (2.0, 8.0)}
_COLUMNS = 4  # panels side by side


def draw_preference_maps(
    maps: Mapping[str, PreferenceMap],
    path: str | os.PathLike[str],
    *,
    features: tuple[str, str] = ("attribute 1", "attribute 2"),
    contexts: Mapping[str, Point] = CONTEXTS,
    error: tuple[str, PreferenceMap] | None = None,
) -> Path:
    """Draw preference maps side by side on one grey scale, whose middle is the preference without c.

    Parameters
    ----------
    maps
        Title -> map.
    path
        Where the file goes, .png, .pdf or .svg; its folder must exist.
    features
        Names of the two features, for the axes.
    contexts
        Third alternatives to mark, by the effect they have on a; "attraction" is marked as c with index A.
    error
        Title and map of an error, see :func:`preference_error`, for a last panel with a scale of its own.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    InputError
        When there is no map, or the path is not that of a PNG, PDF or SVG file in an existing folder.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    target = picture_path(path)
    if not maps:
        raise InputError("expected at least one preference map to draw, got none.")
    shown = {**maps, **({error[0]: error[1]} if error is not None else {})}
    columns = len(shown) if len(shown) == _COLUMNS + 1 else min(len(shown), _COLUMNS)  # a fifth is not left alone
    rows = -(-len(shown) // columns)
    width = 1.2 + 3.0 * columns + (1.0 if error is not None else 0.0)
    apart = ConstrainedLayoutEngine(w_pad=0.08)  # the name of a scale stays clear of the panel beside it
    figure = Figure(figsize=(width, 0.5 + 3.4 * rows), layout=apart)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    names = {f"$c_{name[0].upper()}$": name for name in contexts}
    middle = float(np.mean([m.without for m in maps.values()]))
    reach = max(0.05, *(float(np.abs(m.preference - middle).max()) for m in maps.values()))
    greys = ("gray", middle - reach, middle + reach)  # indifference, or the preference without c, is in the middle
    for k, (axes, (title, drawn)) in enumerate(zip(panels, shown.items(), strict=False)):
        is_error = k == len(maps)
        scale = ("gray_r", 0.0, max(0.01, float(drawn.preference.max()))) if is_error else greys
        image = _draw_map(axes, drawn, scale)
        if k == min(columns, len(maps)) - 1 or is_error:
            _draw_scale(axes, image, "absolute error" if is_error else "preference for $a$ over $b$")
        _mark(axes, {"$a$": drawn.a, "$b$": drawn.b}, marker="o")
        _mark(axes, {} if drawn.c is None else {"$c$": drawn.c}, marker="D")
        _mark(axes, dict(zip(names, contexts.values(), strict=True)), marker="D")
        axes.set_title(title)
        _label(axes, features, bottom=k + columns >= len(shown), left=k % columns == 0)
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    figure.supxlabel("     ".join(f"{label} {name}" for label, name in names.items()))
    return save_picture(figure, target)


@draws("preference_map")
def plot_preference_map(
    drawn: PreferenceMap, ax: Axes | None = None, *, features: tuple[str, str] = ("attribute 1", "attribute 2")
) -> Axes:
    """Draw one preference map with its scale; its middle is the preference without c.

    Parameters
    ----------
    drawn
        What :func:`pcmcnet.insight.preference_map.preference_map` or ``preference_map_in_set`` returned.
    ax
        Where to draw; a new figure if None.
    features
        Names of the two features, for the axes.

    Returns
    -------
    matplotlib.axes.Axes
    """
    axes = axes_for(ax, (5.0, 4.0))
    reach = max(0.05, float(np.abs(drawn.preference - drawn.without).max()))
    image = _draw_map(axes, drawn, ("gray", drawn.without - reach, drawn.without + reach))
    _draw_scale(axes, image, "preference for $a$ over $b$")
    _mark(axes, {"$a$": drawn.a, "$b$": drawn.b}, marker="o")
    _mark(axes, {} if drawn.c is None else {"$c$": drawn.c}, marker="D")
    axes.set_title(f"without $c$: {drawn.without:.2f}")
    _label(axes, (plain(features[0]), plain(features[1])), bottom=True, left=True)
    return axes


def _draw_scale(axes: Axes, image: AxesImage, label: str) -> None:
    """Draw the scale of an image beside its panel, as high as it."""
    bar = axes.figure.colorbar(image, cax=axes.inset_axes((1.06, 0, 0.05, 1)))
    bar.set_label(label)
    low, high = image.get_clim()
    bar.ax.set_ylim(max(low, 0.0), min(high, 1.0))  # no preference is beyond


def _draw_map(axes: Axes, drawn: PreferenceMap, scale: tuple[str, float, float]) -> AxesImage:
    """Draw one map, its edges those of its cells, on a scale of colours from low to high."""
    from matplotlib.colors import Normalize
    from matplotlib.ticker import FixedLocator, MaxNLocator

    colours, low, high = scale
    edges = [(v[0] - (v[1] - v[0]) / 2, v[-1] + (v[1] - v[0]) / 2) for v in (drawn.x, drawn.y)]
    for axis, ends in zip((axes.xaxis, axes.yaxis), edges, strict=True):
        # Ends of figure 2 are round; those of a table's quantiles are not.
        axis.set_major_locator(FixedLocator(np.linspace(*ends, 5).tolist()) if drawn.c is None else MaxNLocator(4))
    return axes.imshow(
        drawn.preference,
        origin="lower",
        extent=(*edges[0], *edges[1]),
        cmap=colours,
        norm=Normalize(low, high),
        interpolation="nearest",
        aspect=float(np.ptp(edges[0]) / np.ptp(edges[1])),  # a square panel, whatever the units
    )


def _label(axes: Axes, features: tuple[str, str], *, bottom: bool, left: bool) -> None:
    """Label the outer axes; inner ones repeat them."""
    if bottom:
        axes.set_xlabel(f"{features[0]} of $c$")
    else:
        axes.tick_params(labelbottom=False)
    if left:
        axes.set_ylabel(f"{features[1]} of $c$")
    else:
        axes.tick_params(labelleft=False)


def _mark(axes: Axes, points: Mapping[str, Point], marker: str) -> None:
    """Mark and label points so that they can be read on black and on white."""
    from matplotlib.patheffects import withStroke

    for label, (x, y) in points.items():
        axes.plot(x, y, marker, color="black", markeredgecolor="white", markersize=6, markeredgewidth=1.2)
        axes.annotate(
            label,
            (x, y),
            xytext=(5, 4),
            textcoords="offset points",
            fontsize="large",
            color="black",
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
