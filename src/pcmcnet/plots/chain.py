"""The chain of a choice set -> a picture: rates as a table of colours, flows as arrows between the alternatives.

Alternatives stand on a circle, with areas in proportion to their probabilities. An arrow is a flow, as wide as it is
strong; where the way back is weaker, it is coloured, the more so the more one-sided the pair is. In a reversible chain
all arrows are grey. A picture holds up to 12 alternatives: of more, the most probable are drawn.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number, require_word
from pcmcnet.insight.chain import Chain
from pcmcnet.plots.files import picture_path, save_picture
from pcmcnet.plots.style import axes_for, colour, paper
from pcmcnet.reports.drawing import draws

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST = 12  # alternatives in a picture
ARROWS = 40  # flows in a picture
FAINT = 0.01  # of the strongest flow: what is below is not drawn
GREY, ORANGE = (0.62, 0.62, 0.62), (0.835, 0.369, 0.0)
SIZE = (11.5, 5.8)  # of the figure, in inches
_AREA = 2400.0  # of a node with probability 1, in square points
_DIM = 1e-4  # smallest rate that has a colour of its own


class Arrow(NamedTuple):
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
    arrows: tuple[Arrow, ...]  # the weakest first, so that the strongest lie on top
    circulation: float  # of the whole chain
    notes: tuple[str, ...]  # what is left out


def chain_chart(chain: Chain, most: int = MOST) -> ChainChart:
    """Choose what to draw of a chain: the most probable alternatives, in their order, and the strongest flows."""
    require_number("most", most, whole=True, low=1)
    p = chain.probabilities
    kept = np.sort(np.argsort(-p, kind="stable")[:most])
    n = len(kept)
    notes = []
    if n < len(p):
        share = f"{p[kept].sum():.1%} of the probability"
        notes.append(f"{n} of {len(p)} alternatives, with {share}; the others are left out")
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


def _arrows(flows: Floats) -> tuple[tuple[Arrow, ...], int]:
    """Return the strongest flows, and the number of those that are not among them."""
    top = float(flows.max(initial=0.0))
    pairs = [(float(flows[i, j]), i, j) for i in range(len(flows)) for j in range(len(flows)) if i != j]
    shown = sorted(pair for pair in pairs if top and pair[0] >= FAINT * top)[-ARROWS:]
    ahead = [(f - flows[j, i]) / (f + flows[j, i]) for f, i, j in shown]
    arrows = [Arrow(i, j, f / top, max(float(a), 0.0)) for (f, i, j), a in zip(shown, ahead, strict=True)]
    return tuple(arrows), len(pairs) - len(shown)


def draw_chain(chain: Chain, path: str | os.PathLike[str], *, most: int = MOST, title: str | None = None) -> Path:
    """Draw the rates and the flows of a chain.

    Parameters
    ----------
    chain
        What :func:`pcmcnet.insight.chain.chain` returned.
    path
        Where the file goes, .png, .pdf or .svg; its folder must exist.
    most
        Alternatives to draw at most.
    title
        Above the picture; by default the id of the choice set.

    Returns
    -------
    Path
        The file written.
    """
    from matplotlib.figure import Figure

    target = picture_path(path)
    chart = chain_chart(chain, most)
    figure = Figure(figsize=SIZE)
    left, right = (figure.add_axes(box) for box in _boxes(chart))
    _draw_rates(left, chart)
    _draw_flows(right, chart)
    heading = title if title is not None else chain.name
    left.set_title(f"{heading}\nrates, the largest at 1", parse_math=False)
    if chart.notes:
        right.text(0.5, 0.0, "\n".join(chart.notes), transform=right.transAxes, ha="center", va="top", alpha=0.8)
    return save_picture(figure, target, dpi=110)


@draws("chain")
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

    Returns
    -------
    matplotlib.axes.Axes
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

    areas = np.maximum(_AREA * chart.probabilities, 20.0)
    radii = np.sqrt(areas) / 2
    widest = 4.6 if len(areas) <= 6 else 2.4
    for arrow in chart.arrows:
        width = 0.4 + widest * arrow.flow
        shade = tuple(g + (o - g) * min(1.6 * arrow.ahead, 1.0) for g, o in zip(GREY, ORANGE, strict=True))
        patch = FancyArrowPatch(
            tuple(chart.places[arrow.source]),
            tuple(chart.places[arrow.target]),
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
    axes.scatter(
        chart.places[:, 0], chart.places[:, 1], s=areas, color=colour(0), edgecolor=paper(), linewidth=1.0, zorder=4
    )
    for label, p, (across, up), radius in zip(chart.labels, chart.probabilities, chart.places, radii, strict=True):
        axes.annotate(
            f"{_short(label)}\n{p:.1%}",
            (across, up),
            xytext=((radius + 5) * across, (radius + 13) * up),
            textcoords="offset points",
            ha="left" if across > 0.3 else "right" if across < -0.3 else "center",
            va="center",
            parse_math=False,
        )
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
