"""Plots of context effects: the strongest cases, orders of effects, and maps of the preference for a over b.

Each case is drawn as a line from the share of i against j without a third alternative to the share with the third
alternative. In a logit, the two shares are equal. A preference map shows the preference for a over b as a third
alternative c moves. Lighter cells mean a stronger preference for a. ``pcmcnet.insight.preference_map`` computes the
maps. The maps in figure 2 of the paper mark the positions of c that have a known effect on a.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.errors import InputError
from pcmcnet.insight.context_effects import ContextSearch
from pcmcnet.insight.order_effects import OrderEffects, OrderView
from pcmcnet.insight.preference_map import Point, PreferenceMap
from pcmcnet.plots.charts import Axis, Bars, Chart, draw_chart, row_inches
from pcmcnet.plots.page_figures import escape_markup, page_axis
from pcmcnet.plots.style import (
    axes_for,
    colour,
    escape_dollars,
    new_picture,
    require_picture_path,
    save_picture,
    shorten,
    style_axes,
    text_colour,
)
from pcmcnet.reports.sections import Figure
from pcmcnet.reports.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

PAPER_CONTEXTS: Mapping[str, Point] = {"attraction": (3.0, 5.0), "similarity": (3.5, 6.5), "compromise": (2.0, 8.0)}
_MAX_COLUMNS = 4  # panels per row
_MIN_REACH = 0.05  # smallest change of a share that gets full colour, so that small changes look small
_LESS, _SAME, _MORE = (0xB3, 0x56, 0x1B), (0xEE, 0xEE, 0xEE), (0x20, 0x63, 0x9B)  # orange, grey, blue


class ContextEffectsChart(NamedTuple):
    """The drawn cases of a search for context effects, the strongest first.

    Attributes
    ----------
    labels
        Choice set and alternatives of each case.
    share_without, share_with
        Shares (cases,) P(i) / (P(i) + P(j)) without and with the third alternative.
    by_adding
        Change (cases,) in log P(i) / P(j) when the third alternative is added.
    """

    labels: tuple[str, ...]
    share_without: Floats
    share_with: Floats
    by_adding: Floats


def context_effects_chart(search: ContextSearch, *, most: int = 12) -> ContextEffectsChart:
    """Return the strongest cases of a search for context effects.

    Parameters
    ----------
    search
        Result of :func:`pcmcnet.insight.context_effects.search`.
    most
        Largest number of cases (default 12).

    Returns
    -------
    ContextEffectsChart
        Labels and shares of the cases.

    Raises
    ------
    InputError
        If the search found no case.
    """
    cases = search.cases[:most]
    if not cases:
        raise InputError("expected at least one case to draw, got none.")
    labels = [f"{shorten(f'set {c.choice_set}: {c.i} against {c.j}')}\n{shorten(f'adding {c.removed}')}" for c in cases]
    numbers = np.array([(c.share_without, c.share_with, c.by_adding) for c in cases]).T
    return ContextEffectsChart(tuple(labels), *numbers)


def draw_context_effects(search: ContextSearch, path: str | os.PathLike[str], *, most: int = 12) -> Path:
    """Draw the strongest cases of a search for context effects, and write the figure to a file.

    Parameters
    ----------
    search
        Result of :func:`pcmcnet.insight.context_effects.search`.
    path
        File to write: .png, .pdf or .svg, in an existing folder.
    most
        Largest number of cases (default 12).

    Returns
    -------
    Path
        Path of the written file.

    Raises
    ------
    InputError
        If the search found no case, or the path is not valid.
    """
    with new_picture(path, _size(len(context_effects_chart(search, most=most).labels))) as figure:
        plot_context_effects(search, figure.subplots(), most=most)
    return Path(path)


def plot_context_effects(search: ContextSearch, ax: Axes | None = None, *, most: int = 12) -> Axes:
    """Plot the strongest cases of a search for context effects.

    Parameters
    ----------
    search
        Result of :func:`pcmcnet.insight.context_effects.search`.
    ax
        Axes to draw on (default: a new figure).
    most
        Largest number of cases (default 12).

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    InputError
        If the search found no case.
    """
    # 1. Draw a line from one share to the other, with the change of the log-ratio on the right.
    chart = context_effects_chart(search, most=most)
    lines = np.arange(len(chart.labels))
    axes = axes_for(ax, _size(len(lines)))
    axes.hlines(lines, chart.share_without, chart.share_with, color=text_colour(), alpha=0.4, linewidth=3, zorder=1)
    axes.plot(chart.share_without, lines, "o", color=colour(0), markersize=8, label="without the third alternative")
    axes.plot(chart.share_with, lines, "o", color=colour(1), markersize=8, label="with it")
    for line, change in zip(lines, chart.by_adding, strict=True):
        axes.annotate(f"{change:+.2f}", (1.02, line), xycoords=("axes fraction", "data"), va="center")
    # 2. Add the names of the cases, two lines each, and the labels of the axes.
    style_axes(axes, grid="x")
    axes.set_yticks(lines, [escape_dollars(label) for label in chart.labels], fontsize="small")
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("share of the first alternative against the second; on the right: change in the log-ratio")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    return axes


def _size(cases: int) -> tuple[float, float]:
    return 8.0, 1.1 + 0.5 * cases


# -- Orders of effects -------------------------------------------------------------------------------------------------


def order_chart(effects: OrderEffects, what: OrderView = "orders") -> Chart:
    """Return a chart of the contribution of each order of effects to the log-odds, or of the largest single terms."""
    # 1. Orders, each with its sampling error and the variance explained up to it.
    if what == "orders":
        rows = effects.orders
        bars = Bars(
            values=[row.contribution for row in rows],
            low=[row.contribution - row.error for row in rows],
            high=[row.contribution + row.error for row in rows],
            colours=[0] * len(rows),
            notes=[f"{row.explained:.1%}" for row in rows],
        )
        title = "mean |contribution| to log-odds; on the right: cumulative variance explained"
        names = tuple(f"order {row.order}" for row in rows)
        return Chart(marks=(bars,), rows=names, x=Axis(title=title), inches=row_inches(len(rows), 0.32))
    # 2. Terms, named by the pair of alternatives and the alternatives that act on it.
    if not effects.terms:
        raise InputError("no term to draw: no choice set has three alternatives.")
    values = [term.value for term in effects.terms]
    bars = Bars(values=values, colours=[int(v <= 0) for v in values], notes=[f"{v:+.2f}" for v in values])
    pairs = [shorten(f"set {term.choice_set}: {term.i} against {term.k}") for term in effects.terms]
    return Chart(
        marks=(bars,),
        rows=tuple(
            f"{pair}\n{shorten('by ' + ' + '.join(t.others))}" for pair, t in zip(pairs, effects.terms, strict=True)
        ),
        x=Axis(title="contribution to the log-odds of the pair"),
        inches=row_inches(len(values), 0.45),
    )


def plot_order_effects(effects: OrderEffects, ax: Axes | None = None, *, what: OrderView = "orders") -> Axes:
    """Plot a bar for each order of effects, with the cumulative variance explained, or for each of the largest terms.

    Parameters
    ----------
    effects
        Result of :func:`pcmcnet.order_effects`.
    ax
        Axes to draw on (default: a new figure).
    what
        "orders" (the default) or "terms".

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    InputError
        If there is no term to draw.
    """
    return draw_chart(order_chart(effects, what), ax)


# -- Preference maps ---------------------------------------------------------------------------------------------------


def draw_preference_maps(
    maps: Mapping[str, PreferenceMap],
    path: str | os.PathLike[str],
    *,
    features: tuple[str, str] = ("attribute 1", "attribute 2"),
    contexts: Mapping[str, Point] = PAPER_CONTEXTS,
    error: tuple[str, PreferenceMap] | None = None,
) -> Path:
    """Draw preference maps side by side, and write the figure. The shared grey scale is centred at the value without c.

    Parameters
    ----------
    maps
        Maps by title.
    path
        File to write: .png, .pdf or .svg, in an existing folder.
    features
        Names of the two features, for the axes (default "attribute 1" and "attribute 2").
    contexts
        Positions of third alternatives to mark, by their effect on a (default: the positions in figure 2 of the paper).
        For example, "attraction" is marked as c with the subscript A.
    error
        Title and error map (see :func:`preference_error`) for an additional last panel with a separate scale (default:
        no such panel).

    Returns
    -------
    Path
        Path of the written file.

    Raises
    ------
    InputError
        If there is no map, or the path is not valid.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    # 1. Make a grid of panels, the error last.
    target = require_picture_path(path)
    if not maps:
        raise InputError("expected at least one preference map to draw, got none.")
    panel_maps = {**maps, **({error[0]: error[1]} if error is not None else {})}
    columns = (
        len(panel_maps) if len(panel_maps) == _MAX_COLUMNS + 1 else min(len(panel_maps), _MAX_COLUMNS)
    )  # five panels fit in one row
    rows = -(-len(panel_maps) // columns)
    width = 1.2 + 3.0 * columns + (1.0 if error is not None else 0.0)
    layout = ConstrainedLayoutEngine(w_pad=0.08)  # keeps the label of a colour bar clear of the next panel
    figure = Figure(figsize=(width, 0.5 + 3.4 * rows), layout=layout)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    # 2. Choose one scale for all maps, so that they are comparable.
    names = {f"$c_{name[0].upper()}$": name for name in contexts}
    middle = float(np.mean([m.without for m in maps.values()]))
    reach = max(_MIN_REACH, *(float(np.abs(m.preference - middle).max()) for m in maps.values()))
    greys = ("gray", middle - reach, middle + reach)  # the preference without c is in the middle
    # 3. Draw each map with its marks and title; label only the outer axes.
    for k, (axes, (title, panel_map)) in enumerate(zip(panels, panel_maps.items(), strict=False)):
        is_error = k == len(maps)
        scale = ("gray_r", 0.0, max(0.01, float(panel_map.preference.max()))) if is_error else greys
        image = _draw_map(axes, panel_map, scale)
        if k == min(columns, len(maps)) - 1 or is_error:
            _draw_scale(axes, image, "absolute error" if is_error else "preference for $a$ over $b$")
        _mark(axes, {"$a$": panel_map.a, "$b$": panel_map.b}, marker="o")
        _mark(axes, {} if panel_map.c is None else {"$c$": panel_map.c}, marker="D")
        _mark(axes, dict(zip(names, contexts.values(), strict=True)), marker="D")
        axes.set_title(title)
        _label(axes, features, bottom=k + columns >= len(panel_maps), left=k % columns == 0)
    # 4. Hide unused panels, and name the effects below the grid.
    for axes in panels[len(panel_maps) :]:
        axes.set_axis_off()
    figure.supxlabel("     ".join(f"{label} {name}" for label, name in names.items()))
    return save_picture(figure, target)


def plot_preference_map(
    preference_map: PreferenceMap, ax: Axes | None = None, *, features: tuple[str, str] = ("attribute 1", "attribute 2")
) -> Axes:
    """Plot one preference map with its colour bar, centred at the preference without c.

    Parameters
    ----------
    preference_map
        Result of :func:`pcmcnet.insight.preference_map.preference_map` or ``preference_map_in_set``.
    ax
        Axes to draw on (default: a new figure).
    features
        Names of the two features, for the axes (default "attribute 1" and "attribute 2").

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.
    """
    axes = axes_for(ax, (5.0, 4.0))
    reach = _reach(preference_map)
    image = _draw_map(axes, preference_map, ("gray", preference_map.without - reach, preference_map.without + reach))
    _draw_scale(axes, image, "preference for $a$ over $b$")
    _mark(axes, {"$a$": preference_map.a, "$b$": preference_map.b}, marker="o")
    _mark(axes, {} if preference_map.c is None else {"$c$": preference_map.c}, marker="D")
    axes.set_title(f"without $c$: {preference_map.without:.2f}")
    _label(axes, (escape_dollars(features[0]), escape_dollars(features[1])), bottom=True, left=True)
    return axes


def _reach(preference_map: PreferenceMap) -> float:
    """Return the distance, on either side of the preference without c, at which colours reach full strength."""
    return max(_MIN_REACH, float(np.abs(preference_map.preference - preference_map.without).max()))


def _draw_scale(axes: Axes, image: AxesImage, label: str) -> None:
    """Draw the colour bar of an image to the right of its panel, with the same height."""
    bar = axes.figure.colorbar(image, cax=axes.inset_axes((1.06, 0, 0.05, 1)))
    bar.set_label(label)
    low, high = image.get_clim()
    bar.ax.set_ylim(max(low, 0.0), min(high, 1.0))  # a preference is between 0 and 1


def _draw_map(axes: Axes, preference_map: PreferenceMap, scale: tuple[str, float, float]) -> AxesImage:
    """Draw one map, whose axes end at the outer edges of its cells. ``scale`` is a colour map with its limits."""
    from matplotlib.colors import Normalize
    from matplotlib.ticker import FixedLocator, MaxNLocator

    colours, low, high = scale
    edges = [(v[0] - (v[1] - v[0]) / 2, v[-1] + (v[1] - v[0]) / 2) for v in (preference_map.x, preference_map.y)]
    for ticked, ends in zip((axes.xaxis, axes.yaxis), edges, strict=True):
        # The ends of figure 2 are round numbers; those of a map in a choice set are quantiles.
        ticked.set_major_locator(
            FixedLocator(np.linspace(*ends, 5).tolist()) if preference_map.c is None else MaxNLocator(4)
        )
    return axes.imshow(
        preference_map.preference,
        origin="lower",
        extent=(*edges[0], *edges[1]),
        cmap=colours,
        norm=Normalize(low, high),
        interpolation="nearest",
        aspect=float(np.ptp(edges[0]) / np.ptp(edges[1])),  # a square panel in any units
    )


def _label(axes: Axes, features: tuple[str, str], *, bottom: bool, left: bool) -> None:
    """Label only the outer axes of a grid of panels."""
    axes.set_xlabel(f"{features[0]} of $c$" if bottom else "")
    axes.set_ylabel(f"{features[1]} of $c$" if left else "")
    axes.tick_params(labelbottom=bottom, labelleft=left)


def _mark(axes: Axes, points: Mapping[str, Point], marker: str) -> None:
    """Mark and label points so that they are legible on black and on white."""
    from matplotlib.patheffects import withStroke

    for label, (x, y) in points.items():
        axes.plot(x, y, marker, color="black", markeredgecolor="white", markersize=6, markeredgewidth=1.2)
        halo = [withStroke(linewidth=2.5, foreground="white")]
        look: dict[str, Any] = {"fontsize": "large", "color": "black", "path_effects": halo}
        axes.annotate(label, (x, y), xytext=(5, 4), textcoords="offset points", **look)


def draw_preference_map(
    preference_map: PreferenceMap, path: str | os.PathLike[str], *, features: tuple[str, str], title: str | None = None
) -> Path:
    """Draw one preference map and write the figure to a file. Medium grey is the preference without c.

    Parameters
    ----------
    preference_map
        Result of :func:`pcmcnet.insight.context_effects.preference_map_in_set`.
    path
        File to write: .png, .pdf or .svg, in an existing folder.
    features
        Names of the two features, for the axes.
    title
        Title of the map (default: the preference without c).

    Returns
    -------
    Path
        Path of the written file.

    Raises
    ------
    InputError
        If the path is not valid.
    """
    heading = f"without $c$: {preference_map.without:.2f}" if title is None else title
    return draw_preference_maps({heading: preference_map}, path, features=features, contexts={})


def map_figure(preference_map: PreferenceMap, features: tuple[str, str], names: tuple[str, str, str]) -> Figure:
    """Return a preference map as a report figure. ``names`` contains the names of i, j and the third alternative."""
    # 1. Draw the map in colours, limited to the range of a share.
    (i, j, third), (x, y) = names, features
    least, most, reach = (
        float(preference_map.preference.min()),
        float(preference_map.preference.max()),
        _reach(preference_map),
    )
    low, high = max(0.0, preference_map.without - reach), min(1.0, preference_map.without + reach)
    heat = {
        "type": "heatmap",
        "x": preference_map.x.tolist(),
        "y": preference_map.y.tolist(),
        "z": preference_map.preference.tolist(),
        "colorscale": _colours(low, high, preference_map.without, reach),
        "zmin": low,
        "zmax": high,
        "colorbar": {"tickformat": ".1~%", "thickness": 12, "nticks": 6},
        "hovertemplate": f"{escape_markup(x)} %{{x:.4g}}, {escape_markup(y)} %{{y:.4g}}: %{{z:.1%}}<extra></extra>",
    }
    # 2. Mark the three alternatives.
    marks = [(i, preference_map.a, "circle"), (j, preference_map.b, "square"), (third, preference_map.c, "x")]
    dots = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [at[0]],
            "y": [at[1]],
            "name": escape_markup(name),
            "marker": {"symbol": symbol, "size": 12, "color": "#111111", "line": {"color": "#ffffff", "width": 1.5}},
            "hovertemplate": f"{escape_markup(name)}<extra></extra>",
        }
        for name, at, symbol in marks
        if at is not None
    ]
    # 3. List a few rows and columns in a table.
    picked = np.unique(np.linspace(0, len(preference_map.x) - 1, 7).round().astype(int))
    cells = [[f"{y} \\ {x}", *(number(preference_map.x[k]) for k in picked)]]
    cells += [
        [number(preference_map.y[r]), *(f"{preference_map.preference[r, k]:.4f}" for k in picked)] for r in picked[::-1]
    ]
    return Figure(
        traces=(heat, *dots),
        layout={"xaxis": page_axis(Axis(title=x)), "yaxis": page_axis(Axis(title=y)), "showlegend": True},
        caption=(
            f"Share of {i} against {j} for every position of {third}. Grey is {preference_map.without:.1%}, the share "
            f"without {third}; orange means that {i} loses share, blue that it gains. Shares on this map range from "
            f"{least:.1%} to {most:.1%}. The other alternatives of the choice set are also present."
        ),
        numbers=cells,
        height=440,
    )


def _colours(low: float, high: float, middle: float, reach: float) -> list[list[Any]]:
    """Return a plotly colour scale from low to high: grey in the middle, full colours at a distance of ``reach``."""
    colours: list[list[Any]] = []
    for at in np.linspace(0, 1, 17):
        distance = (low + at * (high - low) - middle) / reach  # from -1 to 1
        end = _MORE if distance > 0 else _LESS
        red, green, blue = (round(s + abs(distance) * (e - s)) for s, e in zip(_SAME, end, strict=True))
        colours.append([float(at), f"rgb({red},{green},{blue})"])
    return colours
