"""The chain of a choice set -> a picture: rates as a table of colours, flows as arrows between the alternatives.

Alternatives stand on a circle, with areas in proportion to their probabilities. An arrow is a flow, as wide as it is
strong; where the way back is weaker, it is coloured, the more so the more one-sided the pair is. In a reversible chain
all arrows are grey. A picture holds up to 12 alternatives: of more, the most probable are drawn.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number, require_word
from pcmcnet.insight.chain import Chain
from pcmcnet.plots.page_figures import BLUE, safe
from pcmcnet.plots.page_figures import GREY as PAGE_GREY
from pcmcnet.plots.page_figures import ORANGE as PAGE_ORANGE
from pcmcnet.plots.style import axes_for, colour, paper, picture_path, save_picture
from pcmcnet.reports.sections import Figure as PageFigure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST = 12  # alternatives in a picture
PAGE_NODES = 8  # alternatives in a page
ARROWS = 40  # flows in a picture
FAINT = 0.01  # of the strongest flow: what is below is not drawn
GREY, ORANGE = (0.62, 0.62, 0.62), (0.835, 0.369, 0.0)
SIZE = (11.5, 5.8)  # of the figure, in inches
_AREA = 2400.0  # of a node with probability 1, in square points
_DIM = 1e-4  # smallest rate that has a colour of its own


class FlowArrow(NamedTuple):
    """The flow from one alternative to another, by their places in the chart."""

    source: int
    target: int
    flow: float  # share of the strongest one
    ahead: float  # excess over the way back, as a share of both; 0 where it is the weaker one


class ChainChart(NamedTuple):
    """What is drawn of a chain."""

    labels: tuple[str, ...]
    probabilities: Floats  # (n,)
    rates: Floats  # (n, n)
    places: Floats  # (n, 2) on the unit circle, clockwise from the top
    arrows: tuple[FlowArrow, ...]  # the weakest first, so that the strongest lie on top
    circulation: float  # of the whole chain
    notes: tuple[str, ...]  # what is left out


def chain_chart(chain: Chain, most: int = MOST) -> ChainChart:
    """Choose what to draw of a chain: the most probable alternatives, in their order, and the strongest flows."""
    require_number("most", most, whole=True, low=1)
    # 1. The most probable alternatives.
    p = chain.probabilities
    kept = np.sort(np.argsort(-p, kind="stable")[:most])
    n = len(kept)
    notes = []
    if n < len(p):
        share = f"{p[kept].sum():.1%} of the probability"
        notes.append(f"{n} of {len(p)} alternatives, with {share}; the others are left out")
    # 2. Their places on a circle, and the flows between them.
    angle = 2 * np.pi * np.arange(n) / n
    flows = chain.flows[np.ix_(kept, kept)]
    arrows, faint = _arrows(flows)
    if faint:
        notes.append(f"{faint} weaker flows are not drawn")
    return ChainChart(
        labels=tuple(chain.labels[k] for k in kept),
        probabilities=p[kept],
        rates=chain.rates[np.ix_(kept, kept)],
        places=np.column_stack([np.sin(angle), np.cos(angle)]),
        arrows=arrows,
        circulation=chain.circulation,
        notes=tuple(notes),
    )


def _arrows(flows: Floats) -> tuple[tuple[FlowArrow, ...], int]:
    """Return the strongest flows, and the number of those that are not among them."""
    top = float(flows.max(initial=0.0))
    pairs = [(float(flows[i, j]), i, j) for i in range(len(flows)) for j in range(len(flows)) if i != j]
    shown = sorted(pair for pair in pairs if top and pair[0] >= FAINT * top)[-ARROWS:]
    ahead = [(f - flows[j, i]) / (f + flows[j, i]) for f, i, j in shown]
    arrows = [FlowArrow(i, j, f / top, max(float(a), 0.0)) for (f, i, j), a in zip(shown, ahead, strict=True)]
    return tuple(arrows), len(pairs) - len(shown)


def draw_chain(chain: Chain, path: str | os.PathLike[str], *, most: int = MOST, title: str | None = None) -> Path:
    """Draw the rates and the flows of a chain.

    Parameters
    ----------
    chain
        What :func:`pcmcnet.insight.chain.chain` returned.
    path
        Where the file goes, which is returned: .png, .pdf or .svg, in a folder that exists.
    most
        Alternatives to draw at most.
    title
        Above the picture; by default the id of the choice set.
    """
    from matplotlib.figure import Figure

    # 1. Two panels, the first with room for its labels.
    target = picture_path(path)
    chart = chain_chart(chain, most)
    figure = Figure(figsize=SIZE)
    left, right = (figure.add_axes(box) for box in _boxes(chart))
    _draw_rates(left, chart)
    _draw_flows(right, chart)
    # 2. The words above and below them.
    heading = title if title is not None else chain.name
    left.set_title(f"{heading}\nrates, the largest at 1", parse_math=False)
    if chart.notes:
        right.text(0.5, 0.0, "\n".join(chart.notes), transform=right.transAxes, ha="center", va="top", alpha=0.8)
    return save_picture(figure, target, dpi=110)


def plot_chain(
    chain: Chain, ax: Axes | None = None, *, most: int = MOST, what: Literal["flows", "rates"] = "flows"
) -> Axes:
    """Draw the flows of a chain between its alternatives, or its rates as a table of colours.

    Parameters
    ----------
    chain
        What :func:`pcmcnet.insight.chain.chain` returned.
    ax
        Where to draw; a new figure if None.
    most
        Alternatives to draw at most.
    what
        "flows" or "rates".
    """
    require_word("what", what, ("flows", "rates"))
    chart, axes = chain_chart(chain, most), axes_for(ax, (6.4, 5.4))
    if what == "flows":
        _draw_flows(axes, chart)
    else:
        _draw_rates(axes, chart)
        axes.set_title(f"{chain.name}\nrates, the largest at 1", parse_math=False)
    return axes


def _boxes(chart: ChainChart) -> list[tuple[float, float, float, float]]:
    """Return where the two panels are, in shares of the figure: the first leaves room for its labels."""
    longest = 0.085 * max(len(_short(label)) for label in chart.labels)  # inches
    left, bottom = 0.5 + longest, 0.65 + (0.72 * longest if _slanted(chart) else 0.0)
    width, height = SIZE
    panels = [(left, bottom, 5.6 - left, height - 0.6 - bottom), (5.9, 0.55, 5.5, height - 1.15)]
    return [(x / width, y / height, across / width, up / height) for x, y, across, up in panels]


def _slanted(chart: ChainChart) -> bool:
    """Whether labels side by side would touch."""
    return max(len(_short(label)) for label in chart.labels) * len(chart.labels) > 45


def _draw_rates(axes: Axes, chart: ChainChart) -> None:
    """Draw the rates as a table: rows are left, columns entered."""
    from matplotlib.colors import LogNorm

    # 1. Colours by the logarithm of a rate, and the number in letters that stand out.
    n = len(chart.labels)
    shown = np.ma.masked_where(np.eye(n, dtype=bool), np.maximum(chart.rates, _DIM))
    low = float(shown.min()) if n > 1 else _DIM
    axes.imshow(shown, cmap="Blues", norm=LogNorm(min(low, 0.1), 1.0), aspect="auto")
    size = 10 if n <= 8 else 7.5
    for i in range(n):
        for j in range(n):
            if i != j:
                dark = np.log(shown[i, j]) > 0.45 * np.log(min(low, 0.1))
                letters = "white" if dark else "black"
                axes.text(j, i, _number(chart.rates[i, j]), ha="center", va="center", color=letters, fontsize=size)
    # 2. The names of the alternatives on both sides.
    names = [_short(label) for label in chart.labels]
    slanted = _slanted(chart)
    axes.set_xticks(range(n), names, rotation=45 if slanted else 0, ha="right" if slanted else "center")
    axes.set_yticks(range(n), names)
    for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        text.set_parse_math(False)
    axes.set_xlabel("alternative entered")
    axes.set_ylabel("alternative left")


def _draw_flows(axes: Axes, chart: ChainChart) -> None:
    """Draw the alternatives on a circle and the flows between them."""
    from matplotlib.patches import FancyArrowPatch

    # 1. Arrows as wide as their flows, the more orange the more one-sided they are.
    areas = np.maximum(_AREA * chart.probabilities, 20.0)
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
    # 2. The alternatives on top of them, and their names outside the circle.
    x, y = chart.places.T
    axes.scatter(x, y, s=areas, color=colour(0), edgecolor=paper(), linewidth=1.0, zorder=4)
    for label, p, (across, up), radius in zip(chart.labels, chart.probabilities, chart.places, radii, strict=True):
        beside: dict[str, Any] = {"xytext": ((radius + 5) * across, (radius + 13) * up), "textcoords": "offset points"}
        side = "left" if across > 0.3 else "right" if across < -0.3 else "center"
        axes.annotate(f"{_short(label)}\n{p:.1%}", (across, up), **beside, ha=side, va="center", parse_math=False)
    # 3. A square without axes.
    axes.set(xlim=(-1.75, 1.75), ylim=(-1.5, 1.5))
    axes.set_aspect("equal")
    axes.set_axis_off()
    heading = "flows: width by moves, orange where one way prevails"
    axes.set_title(f"{heading}\n{chart.circulation:.1%} of all moves go round in circles")


def _number(rate: float) -> str:
    """A rate in at most five characters."""
    if rate >= 0.0995:
        return f"{rate:.2f}"
    return f"{rate:.3f}" if rate >= 0.001 else f"{rate:.0e}".replace("e-0", "e-")


def _short(label: str) -> str:
    """A label that fits beside a node."""
    return label if len(label) <= 16 else f"{label[:15]}…"


# -- in a page -------------------------------------------------------------------------------------------------------


def chain_figure(found: Chain) -> PageFigure:
    """Return a page's figure of the alternatives on a circle and the flows between them."""
    # 1. The alternatives, as large as they are probable, with their names outside the circle.
    chart = chain_chart(found, PAGE_NODES)
    whose = "" if found.of_class is None else f" of class {found.of_class}, the most frequent ({found.share:.0%})"
    sizes = np.maximum(70 * np.sqrt(chart.probabilities), 8)
    nodes = {
        "type": "scatter",
        "mode": "markers+text",
        "x": chart.places[:, 0].tolist(),
        "y": chart.places[:, 1].tolist(),
        "text": [f"{safe(_short(name))}<br>{p:.1%}" for name, p in zip(chart.labels, chart.probabilities, strict=True)],
        "textposition": [_side(x, y) for x, y in chart.places.tolist()],
        "marker": {"size": sizes.tolist(), "color": BLUE, "opacity": 1},
        "cliponaxis": False,
        "hoverinfo": "text",
        "showlegend": False,
    }
    # 2. The flows, on axes that are not seen.
    blank = {"visible": False, "fixedrange": True}
    layout = {
        "xaxis": {**blank, "range": [-1.9, 1.9]},
        "yaxis": {**blank, "range": [-1.35, 1.35], "scaleanchor": "x"},
        "annotations": [_arrow(chart, arrow, sizes) for arrow in chart.arrows],
    }
    # 3. The same as a table, the strongest flow first.
    flows = [
        [chart.labels[a.source], chart.labels[a.target], f"{a.flow:.3f}", f"{a.ahead:.1%}"] for a in chart.arrows[::-1]
    ]
    notes = "".join(f" {note[0].upper()}{note[1:]}." for note in chart.notes)
    return PageFigure(
        traces=(nodes,),
        layout=layout,
        caption=(
            f"The chain behind the probabilities{whose}: arrows are moves in the long run, as wide as they are "
            f"frequent, orange where one way prevails. {found.circulation:.1%} of all moves go round in circles.{notes}"
        ),
        numbers=[["from", "to", "flow, the strongest 1", "excess over the way back"], *flows],
        height=400,
        square=True,
    )


def _arrow(chart: ChainChart, arrow: FlowArrow, sizes: Any) -> dict[str, Any]:
    """Return an arrow from node to node; the two ways of a pair lie side by side."""
    # 1. Its ends, a little aside of the line between the nodes.
    tail, head = chart.places[arrow.source], chart.places[arrow.target]
    along = head - tail
    aside = 0.025 * np.array([along[1], -along[0]]) / np.linalg.norm(along)
    # 2. What plotly calls an annotation without text, which ends at the edges of the nodes.
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
    """Where the words of a node stand: away from the circle."""
    height = "top" if y > 0.3 else "bottom" if y < -0.3 else "middle"
    side = "right" if x > 0.3 else "left" if x < -0.3 else "center"
    return f"{height} {side}" if (height, side) != ("middle", "center") else "top center"
