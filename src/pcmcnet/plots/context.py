"""Context -> pictures: the strongest effects of a search, orders of effects, and maps of the preference of a over b.

A case of a search is a line from the share of i against j without an alternative to that with it; a logit would have
dots alone. A preference map shows the preference of a over b as a third alternative c moves; lighter favours a. Maps
are computed by ``pcmcnet.insight.preference_map``; those of figure 2 of the paper mark the places of c that are known
for an effect on a.
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
from pcmcnet.plots.page_figures import page_axis, safe
from pcmcnet.plots.style import axes_for, colour, cut, ink, new_picture, picture_path, plain, save_picture, tidy
from pcmcnet.reports.sections import Figure
from pcmcnet.reports.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

PAPER_CONTEXTS: Mapping[str, Point] = {"attraction": (3.0, 5.0), "similarity": (3.5, 6.5), "compromise": (2.0, 8.0)}
_COLUMNS = 4  # panels side by side
_REACH = 0.05  # of a share, that full colours stand for at least: small changes look small
_LESS, _SAME, _MORE = (0xB3, 0x56, 0x1B), (0xEE, 0xEE, 0xEE), (0x20, 0x63, 0x9B)  # orange, grey, blue


class EffectsChart(NamedTuple):
    """What is drawn of a search, the strongest case first."""

    labels: tuple[str, ...]
    share_without: Floats  # (cases,) P(i) / (P(i) + P(j)) without the alternative
    share_with: Floats  # (cases,) the same with it
    by_adding: Floats  # (cases,) change of the log-ratio


def effects_chart(found: ContextSearch, *, most: int = 12) -> EffectsChart:
    """Gather what is drawn of a search.

    Parameters
    ----------
    found
        What :func:`pcmcnet.insight.context_effects.search` returned.
    most
        Cases to draw.
    """
    cases = found.cases[:most]
    if not cases:
        raise InputError("expected at least one case to draw, got none.")
    labels = [f"{cut(f'set {c.choice_set}: {c.i} against {c.j}')}\n{cut(f'when {c.removed} joins')}" for c in cases]
    numbers = np.array([(c.share_without, c.share_with, c.by_adding) for c in cases]).T
    return EffectsChart(tuple(labels), *numbers)


def draw_effects(found: ContextSearch, path: str | os.PathLike[str], *, most: int = 12) -> Path:
    """Draw the strongest cases of a search.

    Parameters
    ----------
    found, most
        As for :func:`effects_chart`.
    path
        Where the picture goes, which is returned: see :func:`~pcmcnet.plots.style.new_picture`.

    Raises
    ------
    InputError
        When there is no case.
    """
    with new_picture(path, _size(len(effects_chart(found, most=most).labels))) as figure:
        plot_effects(found, figure.subplots(), most=most)
    return Path(path)


def plot_effects(found: ContextSearch, ax: Axes | None = None, *, most: int = 12) -> Axes:
    """Draw the strongest cases of a search for context effects.

    Parameters
    ----------
    found, most
        As for :func:`effects_chart`.
    ax
        Where to draw; a new figure if None.

    Raises
    ------
    InputError
        When there is no case.
    """
    # 1. A line from one share to the other, and the change of the log-ratio beside it.
    chart = effects_chart(found, most=most)
    lines = np.arange(len(chart.labels))
    axes = axes_for(ax, _size(len(lines)))
    axes.hlines(lines, chart.share_without, chart.share_with, color=ink(), alpha=0.4, linewidth=3, zorder=1)
    axes.plot(chart.share_without, lines, "o", color=colour(0), markersize=8, label="without")
    axes.plot(chart.share_with, lines, "o", color=colour(1), markersize=8, label="when it has joined")
    for line, change in zip(lines, chart.by_adding, strict=True):
        axes.annotate(f"{change:+.2f}", (1.02, line), xycoords=("axes fraction", "data"), va="center")
    # 2. The names of the cases, of two lines each, and the words around them.
    tidy(axes, grid="x")
    axes.set_yticks(lines, [plain(label) for label in chart.labels], fontsize="small")
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("share of the first against the second; on the right, the change of their log-ratio")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    return axes


def _size(cases: int) -> tuple[float, float]:
    return 8.0, 1.1 + 0.5 * cases


# -- orders of effects -----------------------------------------------------------------------------------------------


def order_chart(found: OrderEffects, what: OrderView = "orders") -> Chart:
    """Describe what each of the orders contributes to log-odds, or the largest of the terms."""
    # 1. Orders, with the error of sampling and the variance explained up to each.
    if what == "orders":
        rows = found.orders
        bars = Bars(
            values=[row.contribution for row in rows],
            low=[row.contribution - row.error for row in rows],
            high=[row.contribution + row.error for row in rows],
            colours=[0] * len(rows),
            notes=[f"{row.explained:.1%}" for row in rows],
        )
        title = "mean |contribution| to log-odds; on the right, variance explained up to here"
        names = tuple(f"order {row.order}" for row in rows)
        return Chart(marks=(bars,), rows=names, x=Axis(title=title), inches=row_inches(len(rows), 0.32))
    # 2. Terms, named by those who act and those acted on.
    if not found.terms:
        raise InputError("there is no term to draw: no set has three alternatives.")
    values = [term.value for term in found.terms]
    bars = Bars(values=values, colours=[int(v <= 0) for v in values], notes=[f"{v:+.2f}" for v in values])
    pairs = [cut(f"set {term.choice_set}: {term.i} against {term.k}") for term in found.terms]
    return Chart(
        marks=(bars,),
        rows=tuple(f"{pair}\n{cut('by ' + ' + '.join(t.others))}" for pair, t in zip(pairs, found.terms, strict=True)),
        x=Axis(title="what the others add to the log-odds of the two"),
        inches=row_inches(len(values), 0.45),
    )


def plot_order_effects(found: OrderEffects, ax: Axes | None = None, *, what: OrderView = "orders") -> Axes:
    """Draw a bar for each order with the share of the variance up to it, or for each of the largest terms.

    Parameters
    ----------
    found
        What :func:`pcmcnet.order_effects` returned.
    ax
        Where to draw; a new figure if None.
    what
        The "orders", or the "terms": an error where there are none.
    """
    return draw_chart(order_chart(found, what), ax)


# -- preference maps -------------------------------------------------------------------------------------------------


def draw_preference_maps(
    maps: Mapping[str, PreferenceMap],
    path: str | os.PathLike[str],
    *,
    features: tuple[str, str] = ("attribute 1", "attribute 2"),
    contexts: Mapping[str, Point] = PAPER_CONTEXTS,
    error: tuple[str, PreferenceMap] | None = None,
) -> Path:
    """Draw preference maps side by side on one grey scale, whose middle is the preference without c.

    Parameters
    ----------
    maps
        Title -> map.
    path
        Where the file goes, which is returned: .png, .pdf or .svg, in a folder that exists.
    features
        Names of the two features, for the axes.
    contexts
        Third alternatives to mark, by the effect they have on a; "attraction" is marked as c with index A.
    error
        Title and map of an error, see :func:`preference_error`, for a last panel with a scale of its own.

    Raises
    ------
    InputError
        When there is no map, or the path is not that of a PNG, PDF or SVG file in an existing folder.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    # 1. A grid of panels, the error last.
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
    # 2. One scale for all maps, so that they compare.
    names = {f"$c_{name[0].upper()}$": name for name in contexts}
    middle = float(np.mean([m.without for m in maps.values()]))
    reach = max(_REACH, *(float(np.abs(m.preference - middle).max()) for m in maps.values()))
    greys = ("gray", middle - reach, middle + reach)  # indifference, or the preference without c, is in the middle
    # 3. Each map with its marks, and its title and labels where no neighbour has them.
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
    # 4. What is left of the grid stays empty; the effects are named below it.
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    figure.supxlabel("     ".join(f"{label} {name}" for label, name in names.items()))
    return save_picture(figure, target)


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
    """
    axes = axes_for(ax, (5.0, 4.0))
    reach = _reach(drawn)
    image = _draw_map(axes, drawn, ("gray", drawn.without - reach, drawn.without + reach))
    _draw_scale(axes, image, "preference for $a$ over $b$")
    _mark(axes, {"$a$": drawn.a, "$b$": drawn.b}, marker="o")
    _mark(axes, {} if drawn.c is None else {"$c$": drawn.c}, marker="D")
    axes.set_title(f"without $c$: {drawn.without:.2f}")
    _label(axes, (plain(features[0]), plain(features[1])), bottom=True, left=True)
    return axes


def _reach(drawn: PreferenceMap) -> float:
    """Return how far from the preference without c the colours of a map reach, on both sides alike."""
    return max(_REACH, float(np.abs(drawn.preference - drawn.without).max()))


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
    for ticked, ends in zip((axes.xaxis, axes.yaxis), edges, strict=True):
        # Ends of figure 2 are round; those of a table's quantiles are not.
        ticked.set_major_locator(FixedLocator(np.linspace(*ends, 5).tolist()) if drawn.c is None else MaxNLocator(4))
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
    axes.set_xlabel(f"{features[0]} of $c$" if bottom else "")
    axes.set_ylabel(f"{features[1]} of $c$" if left else "")
    axes.tick_params(labelbottom=bottom, labelleft=left)


def _mark(axes: Axes, points: Mapping[str, Point], marker: str) -> None:
    """Mark and label points so that they can be read on black and on white."""
    from matplotlib.patheffects import withStroke

    for label, (x, y) in points.items():
        axes.plot(x, y, marker, color="black", markeredgecolor="white", markersize=6, markeredgewidth=1.2)
        halo = [withStroke(linewidth=2.5, foreground="white")]
        look: dict[str, Any] = {"fontsize": "large", "color": "black", "path_effects": halo}
        axes.annotate(label, (x, y), xytext=(5, 4), textcoords="offset points", **look)


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
    """
    words = f"without $c$: {drawn.without:.2f}" if title is None else title
    return draw_preference_maps({words: drawn}, path, features=features, contexts={})


def map_figure(found: PreferenceMap, features: tuple[str, str], names: tuple[str, str, str]) -> Figure:
    """Return a page's figure of the share of i against j as the third moves; ``names`` are those of the three."""
    # 1. The map in colours, within what a share can be.
    (i, j, third), (x, y) = names, features
    least, most, reach = float(found.preference.min()), float(found.preference.max()), _reach(found)
    low, high = max(0.0, found.without - reach), min(1.0, found.without + reach)
    heat = {
        "type": "heatmap",
        "x": found.x.tolist(),
        "y": found.y.tolist(),
        "z": found.preference.tolist(),
        "colorscale": _colours(low, high, found.without, reach),
        "zmin": low,
        "zmax": high,
        "colorbar": {"tickformat": ".1~%", "thickness": 12, "nticks": 6},
        "hovertemplate": f"{safe(x)} %{{x:.4g}}, {safe(y)} %{{y:.4g}}: %{{z:.1%}}<extra></extra>",
    }
    # 2. Where the three lie.
    marks = [(i, found.a, "circle"), (j, found.b, "square"), (third, found.c, "x")]
    dots = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [at[0]],
            "y": [at[1]],
            "name": safe(name),
            "marker": {"symbol": symbol, "size": 12, "color": "#111111", "line": {"color": "#ffffff", "width": 1.5}},
            "hovertemplate": f"{safe(name)}<extra></extra>",
        }
        for name, at, symbol in marks
        if at is not None
    ]
    # 3. A few rows and columns as a table.
    picked = np.unique(np.linspace(0, len(found.x) - 1, 7).round().astype(int))
    cells = [[f"{y} \\ {x}", *(number(found.x[k]) for k in picked)]]
    cells += [[number(found.y[r]), *(f"{found.preference[r, k]:.4f}" for k in picked)] for r in picked[::-1]]
    return Figure(
        traces=(heat, *dots),
        layout={"xaxis": page_axis(Axis(title=x)), "yaxis": page_axis(Axis(title=y)), "showlegend": True},
        caption=(
            f"Share of {i} against {j} for every place of {third}: grey at {found.without:.1%}, as without {third}, "
            f"towards orange where {i} loses by it and towards blue where it gains. On this map it goes from "
            f"{least:.1%} to {most:.1%}. All others of the set are there too."
        ),
        numbers=cells,
        height=440,
    )


def _colours(low: float, high: float, middle: float, reach: float) -> list[list[Any]]:
    """Colours from low to high: grey at the middle, full ones at ``reach`` from it, on both sides alike."""
    colours: list[list[Any]] = []
    for at in np.linspace(0, 1, 17):
        far = (low + at * (high - low) - middle) / reach  # from -1 to 1
        end = _MORE if far > 0 else _LESS
        red, green, blue = (round(s + abs(far) * (e - s)) for s, e in zip(_SAME, end, strict=True))
        colours.append([float(at), f"rgb({red},{green},{blue})"])
    return colours
