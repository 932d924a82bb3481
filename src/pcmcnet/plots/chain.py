"""Plot the Markov chain of a choice set: rates as a heat map, flows as arrows between the alternatives.

Alternatives are nodes on a circle, with areas proportional to their probabilities. The width of an arrow is
proportional to the flow. An arrow is coloured if the reverse flow is weaker, and the larger the imbalance, the stronger
the colour. In a reversible chain, all arrows are grey. Only the 12 most probable alternatives are drawn.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number, require_word
from pcmcnet.insight.chain import Chain
from pcmcnet.plots.page_figures import BLUE, escape_markup
from pcmcnet.plots.page_figures import GREY as PAGE_GREY
from pcmcnet.plots.page_figures import ORANGE as PAGE_ORANGE
from pcmcnet.plots.style import axes_for, background_colour, colour, require_picture_path, save_picture
from pcmcnet.reports.sections import Figure as PageFigure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MAX_ALTERNATIVES = 12  # in a matplotlib figure
MAX_PAGE_ALTERNATIVES = 8  # on a page
MAX_ARROWS = 40
MIN_RELATIVE_FLOW = 0.01  # relative to the strongest flow; weaker flows are not drawn
GREY, ORANGE = (0.62, 0.62, 0.62), (0.835, 0.369, 0.0)
FIGURE_INCHES = (11.5, 5.8)
_NODE_AREA = 2400.0  # of a node with probability 1, in square points
_MIN_COLOURED_RATE = 1e-4  # smaller rates share the lightest colour


class FlowArrow(NamedTuple):
    """The flow between two alternatives, which are identified by their indices in the chart."""

    source: int
    target: int
    flow: float  # relative to the strongest flow
    ahead: float  # excess over the reverse flow, relative to their sum; 0 for the weaker of the two


class ChainChart(NamedTuple):
    """The part of a Markov chain that is drawn.

    Attributes
    ----------
    labels
        Labels of the n alternatives.
    probabilities
        Probabilities (n,) of the alternatives.
    rates
        Rates (n, n) between the alternatives.
    places
        Positions (n, 2) of the alternatives on the unit circle, clockwise from the top.
    arrows
        The flows between the alternatives, the weakest first, so that the strongest are drawn on top.
    circulation
        Share of moves in the whole chain that are part of cycles.
    notes
        Notes on alternatives and flows that are left out.
    """

    labels: tuple[str, ...]
    probabilities: Floats
    rates: Floats
    places: Floats
    arrows: tuple[FlowArrow, ...]
    circulation: float
    notes: tuple[str, ...]


def chain_chart(chain: Chain, most: int = MAX_ALTERNATIVES) -> ChainChart:
    """Select the part of a chain to draw: the most probable alternatives and the strongest flows between them.

    Parameters
    ----------
    chain
        Result of :func:`pcmcnet.insight.chain.chain`.
    most
        Maximum number of alternatives (default 12).

    Returns
    -------
    ChainChart
        Labels, probabilities, rates, positions on a circle and arrows.

    Raises
    ------
    ConfigError
        If ``most`` is not an integer of at least 1.
    """
    require_number("most", most, whole=True, low=1)
    # 1. Select the most probable alternatives, in the order of the chain.
    p = chain.probabilities
    selected = np.sort(np.argsort(-p, kind="stable")[:most])
    n = len(selected)
    notes = []
    if n < len(p):
        share = f"{p[selected].sum():.1%} of the probability"
        notes.append(f"{n} of {len(p)} alternatives are shown; they have {share}")
    # 2. Place them on a circle, and select the flows between them.
    angle = 2 * np.pi * np.arange(n) / n
    flows = chain.flows[np.ix_(selected, selected)]
    arrows, omitted = _arrows(flows)
    if omitted:
        notes.append(f"{omitted} weaker flows are not drawn")
    return ChainChart(
        labels=tuple(chain.labels[k] for k in selected),
        probabilities=p[selected],
        rates=chain.rates[np.ix_(selected, selected)],
        places=np.column_stack([np.sin(angle), np.cos(angle)]),
        arrows=arrows,
        circulation=chain.circulation,
        notes=tuple(notes),
    )


def _arrows(flows: Floats) -> tuple[tuple[FlowArrow, ...], int]:
    """Return arrows for the strongest flows, and the number of flows that are left out."""
    top = float(flows.max(initial=0.0))
    pairs = [(float(flows[i, j]), i, j) for i in range(len(flows)) for j in range(len(flows)) if i != j]
    drawn = sorted(pair for pair in pairs if top and pair[0] >= MIN_RELATIVE_FLOW * top)[-MAX_ARROWS:]
    ahead = [(f - flows[j, i]) / (f + flows[j, i]) for f, i, j in drawn]
    arrows = [FlowArrow(i, j, f / top, max(float(a), 0.0)) for (f, i, j), a in zip(drawn, ahead, strict=True)]
    return tuple(arrows), len(pairs) - len(drawn)


def draw_chain(
    chain: Chain, path: str | os.PathLike[str], *, most: int = MAX_ALTERNATIVES, title: str | None = None
) -> Path:
    """Draw the rates and the flows of a chain side by side, and write the figure to a file.

    Parameters
    ----------
    chain
        Result of :func:`pcmcnet.insight.chain.chain`.
    path
        File to write: .png, .pdf or .svg, in an existing folder.
    most
        Maximum number of alternatives (default 12).
    title
        Title of the figure (default: the id of the choice set).

    Returns
    -------
    Path
        Path of the written file.

    Raises
    ------
    InputError
        If the path does not end in .png, .pdf or .svg, or its folder does not exist.
    """
    from matplotlib.figure import Figure

    # 1. Draw two panels, the first with room for its labels.
    target = require_picture_path(path)
    chart = chain_chart(chain, most)
    figure = Figure(figsize=FIGURE_INCHES)
    left, right = (figure.add_axes(box) for box in _boxes(chart))
    _draw_rates(left, chart)
    _draw_flows(right, chart)
    # 2. Add the title and the notes.
    heading = title if title is not None else chain.name
    left.set_title(f"{heading}\nrates, relative to the largest", parse_math=False)
    if chart.notes:
        right.text(0.5, 0.0, "\n".join(chart.notes), transform=right.transAxes, ha="center", va="top", alpha=0.8)
    return save_picture(figure, target, dpi=110)


def plot_chain(
    chain: Chain, ax: Axes | None = None, *, most: int = MAX_ALTERNATIVES, what: Literal["flows", "rates"] = "flows"
) -> Axes:
    """Plot the flows of a chain between its alternatives, or its rates as a heat map.

    Parameters
    ----------
    chain
        Result of :func:`pcmcnet.insight.chain.chain`.
    ax
        Axes to draw on (default: a new figure).
    most
        Maximum number of alternatives (default 12).
    what
        "flows" (the default) or "rates".

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    ConfigError
        If ``most`` or ``what`` is not valid.
    """
    require_word("what", what, ("flows", "rates"))
    chart, axes = chain_chart(chain, most), axes_for(ax, (6.4, 5.4))
    if what == "flows":
        _draw_flows(axes, chart)
    else:
        _draw_rates(axes, chart)
        axes.set_title(f"{chain.name}\nrates, relative to the largest", parse_math=False)
    return axes


def _boxes(chart: ChainChart) -> list[tuple[float, float, float, float]]:
    """Return the positions of the two panels, relative to the figure. The first panel leaves room for its labels."""
    longest = 0.085 * max(len(_shorten_label(label)) for label in chart.labels)  # inches
    left, bottom = 0.5 + longest, 0.65 + (0.72 * longest if _has_slanted_labels(chart) else 0.0)
    width, height = FIGURE_INCHES
    panels = [(left, bottom, 5.6 - left, height - 0.6 - bottom), (5.9, 0.55, 5.5, height - 1.15)]
    return [(x / width, y / height, across / width, up / height) for x, y, across, up in panels]


def _has_slanted_labels(chart: ChainChart) -> bool:
    """Return True if horizontal labels would overlap."""
    return max(len(_shorten_label(label)) for label in chart.labels) * len(chart.labels) > 45


def _draw_rates(axes: Axes, chart: ChainChart) -> None:
    """Draw the rates as a heat map, from the alternative in the row to the alternative in the column."""
    from matplotlib.colors import LogNorm

    # 1. Colour each cell by the logarithm of its rate, and write the rate in white or black.
    n = len(chart.labels)
    rates = np.ma.masked_where(np.eye(n, dtype=bool), np.maximum(chart.rates, _MIN_COLOURED_RATE))
    low = float(rates.min()) if n > 1 else _MIN_COLOURED_RATE
    axes.imshow(rates, cmap="Blues", norm=LogNorm(min(low, 0.1), 1.0), aspect="auto")
    size = 10 if n <= 8 else 7.5
    for i in range(n):
        for j in range(n):
            if i != j:
                dark = np.log(rates[i, j]) > 0.45 * np.log(min(low, 0.1))
                text = _format_rate(chart.rates[i, j])
                axes.text(j, i, text, ha="center", va="center", color="white" if dark else "black", fontsize=size)
    # 2. Label both axes with the alternatives.
    names = [_shorten_label(label) for label in chart.labels]
    slanted = _has_slanted_labels(chart)
    axes.set_xticks(range(n), names, rotation=45 if slanted else 0, ha="right" if slanted else "center")
    axes.set_yticks(range(n), names)
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_parse_math(False)
    axes.set_xlabel("alternative entered")
    axes.set_ylabel("alternative left")


def _draw_flows(axes: Axes, chart: ChainChart) -> None:
    """Draw the alternatives on a circle and the flows between them."""
    from matplotlib.patches import FancyArrowPatch

    # 1. Draw the arrows: the width is the flow, the colour its excess over the reverse flow.
    areas = np.maximum(_NODE_AREA * chart.probabilities, 20.0)
    radii = np.sqrt(areas) / 2
    widest = 4.6 if len(areas) <= 6 else 2.4
    for arrow in chart.arrows:
        width = 0.4 + widest * arrow.flow
        shade = tuple(g + (o - g) * min(1.6 * arrow.ahead, 1.0) for g, o in zip(GREY, ORANGE, strict=True))
        patch = FancyArrowPatch(
            *(tuple(chart.places[end]) for end in (arrow.source, arrow.target)),
            connectionstyle="arc3,rad=0.16",
            arrowstyle="-|>",
            mutation_scale=7 + 2.2 * width,
            linewidth=width,
            color=shade,
            shrinkA=float(radii[arrow.source]) + 2,
            shrinkB=float(radii[arrow.target]) + 2,
            zorder=2 + arrow.ahead,
        )
        axes.add_patch(patch)
    # 2. Draw the alternatives on top of the arrows, with their names outside the circle.
    x, y = chart.places.T
    axes.scatter(x, y, s=areas, color=colour(0), edgecolor=background_colour(), linewidth=1.0, zorder=4)
    for label, p, (across, up), radius in zip(chart.labels, chart.probabilities, chart.places, radii, strict=True):
        offset: dict[str, Any] = {"xytext": ((radius + 5) * across, (radius + 13) * up), "textcoords": "offset points"}
        side = "left" if across > 0.3 else "right" if across < -0.3 else "center"
        text = f"{_shorten_label(label)}\n{p:.1%}"
        axes.annotate(text, (across, up), **offset, ha=side, va="center", parse_math=False)
    # 3. Make the panel square, without axes.
    axes.set(xlim=(-1.75, 1.75), ylim=(-1.5, 1.5))
    axes.set_aspect("equal")
    axes.set_axis_off()
    heading = "wider arrows: stronger flows; orange: stronger than the reverse flow"
    axes.set_title(f"{heading}\n{chart.circulation:.1%} of all moves are part of cycles")


def _format_rate(rate: float) -> str:
    """Format a rate in at most five characters."""
    if rate >= 0.0995:
        return f"{rate:.2f}"
    return f"{rate:.3f}" if rate >= 0.001 else f"{rate:.0e}".replace("e-0", "e-")


def _shorten_label(label: str) -> str:
    """Shorten a label to fit next to a node."""
    return label if len(label) <= 16 else f"{label[:15]}…"


# -- On a page ---------------------------------------------------------------------------------------------------------


def chain_figure(chain: Chain) -> PageFigure:
    """Return the figure of a chain for a report: alternatives on a circle and the flows between them."""
    # 1. Draw the alternatives, with areas proportional to their probabilities and names outside the circle.
    chart = chain_chart(chain, MAX_PAGE_ALTERNATIVES)
    of_class = "" if chain.of_class is None else f" of class {chain.of_class}, the most frequent ({chain.share:.0%})"
    sizes = np.maximum(70 * np.sqrt(chart.probabilities), 8)
    nodes = {
        "type": "scatter",
        "mode": "markers+text",
        "x": chart.places[:, 0].tolist(),
        "y": chart.places[:, 1].tolist(),
        "text": [
            f"{escape_markup(_shorten_label(name))}<br>{p:.1%}"
            for name, p in zip(chart.labels, chart.probabilities, strict=True)
        ],
        "textposition": [_side(x, y) for x, y in chart.places.tolist()],
        "marker": {"size": sizes.tolist(), "color": BLUE, "opacity": 1},
        "cliponaxis": False,
        "hoverinfo": "text",
        "showlegend": False,
    }
    # 2. Draw the flows, on invisible axes.
    blank = {"visible": False, "fixedrange": True}
    layout = {
        "xaxis": {**blank, "range": [-1.9, 1.9]},
        "yaxis": {**blank, "range": [-1.35, 1.35], "scaleanchor": "x"},
        "annotations": [_arrow(chart, arrow, sizes) for arrow in chart.arrows],
    }
    # 3. List the flows in a table, the strongest first.
    flows = [
        [chart.labels[a.source], chart.labels[a.target], f"{a.flow:.3f}", f"{a.ahead:.1%}"] for a in chart.arrows[::-1]
    ]
    notes = "".join(f" {note[0].upper()}{note[1:]}." for note in chart.notes)
    return PageFigure(
        traces=(nodes,),
        layout=layout,
        caption=(
            f"The Markov chain behind the probabilities{of_class}. Arrows are long-run flows: wider arrows are "
            f"stronger, orange arrows exceed the reverse flow. {chain.circulation:.1%} of all moves are part of "
            f"cycles.{notes}"
        ),
        numbers=[["from", "to", "flow, relative to the strongest", "excess over the reverse flow"], *flows],
        height=400,
        square=True,
    )


def _arrow(chart: ChainChart, arrow: FlowArrow, sizes: Any) -> dict[str, Any]:
    """Return an arrow between two nodes as a plotly annotation. The two directions of a pair do not overlap."""
    # 1. Shift the ends slightly off the line between the nodes.
    tail, head = chart.places[arrow.source], chart.places[arrow.target]
    along = head - tail
    aside = 0.025 * np.array([along[1], -along[0]]) / np.linalg.norm(along)
    # 2. Describe the arrow as an annotation without text, which ends at the edges of the nodes.
    return {
        **dict(zip(("x", "y", "ax", "ay"), [*(head + aside).tolist(), *(tail + aside).tolist()], strict=True)),
        "xref": "x",
        "yref": "y",
        "axref": "x",
        "ayref": "y",
        "text": "",
        "showarrow": True,
        "arrowhead": 2,
        "arrowsize": 0.8,
        "arrowwidth": round(0.8 + 3.2 * arrow.flow, 2),
        "arrowcolor": PAGE_ORANGE if arrow.ahead > 0.02 else PAGE_GREY,
        "opacity": round(0.35 + 0.6 * arrow.flow, 2),
        "standoff": float(sizes[arrow.target] / 2 + 2),
        "startstandoff": float(sizes[arrow.source] / 2 + 2),
    }


def _side(x: float, y: float) -> str:
    """Return the position of a node's text, outside the circle."""
    height = "top" if y > 0.3 else "bottom" if y < -0.3 else "middle"
    side = "right" if x > 0.3 else "left" if x < -0.3 else "center"
    return f"{height} {side}" if (height, side) != ("middle", "center") else "top center"
