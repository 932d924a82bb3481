"""Choice sets -> figures: a map of context, probabilities as bars, what rivals do, and the chain behind it all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcmcnet.insight.attribution import Attribution
from pcmcnet.insight.chain import Chain
from pcmcnet.insight.example_sets import ExampleSet
from pcmcnet.insight.preference_map import PreferenceMap
from pcmcnet.plots.chain import Arrow, ChainChart, chain_chart
from pcmcnet.plots.explanation.page_figures import BLUE, GREY, ORANGE, axis, bars, names_axis, safe
from pcmcnet.reports.sections import Figure
from pcmcnet.reports.tables import decimals_of_percent, number, percent

SHOWN = 15  # alternatives of a set that are drawn
RIVALS = 10
NODES = 8
REACH = 0.05  # of a share, that full colours stand for at least: small changes look small
_LESS, _SAME, _MORE = (0xB3, 0x56, 0x1B), (0xEE, 0xEE, 0xEE), (0x20, 0x63, 0x9B)  # orange, grey, blue


def map_figure(found: PreferenceMap, features: tuple[str, str], names: tuple[str, str, str]) -> Figure:
    """Draw the share of i against j as the third moves; ``names`` are those of i, j and the third."""
    i, j, third = names
    least, most = (float(end(found.preference)) for end in (np.min, np.max))
    reach = max(abs(least - found.without), abs(most - found.without), REACH)
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
        "hovertemplate": f"{safe(features[0])} %{{x:.4g}}, {safe(features[1])} %{{y:.4g}}: %{{z:.1%}}<extra></extra>",
    }
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
    picked = np.unique(np.linspace(0, len(found.x) - 1, 7).round().astype(int))
    cells = [[f"{features[1]} \\ {features[0]}", *(number(found.x[k]) for k in picked)]]
    cells += [[number(found.y[r]), *(f"{found.preference[r, k]:.4f}" for k in picked)] for r in picked[::-1]]
    return Figure(
        traces=(heat, *dots),
        layout={"xaxis": axis(features[0]), "yaxis": axis(features[1]), "showlegend": True},
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
    found: list[list[Any]] = []
    for at in np.linspace(0, 1, 17):
        far = (low + at * (high - low) - middle) / reach  # from -1 to 1
        end = _MORE if far > 0 else _LESS
        red, green, blue = (round(s + abs(far) * (e - s)) for s, e in zip(_SAME, end, strict=True))
        found.append([float(at), f"rgb({red},{green},{blue})"])
    return found


def probabilities_figure(example: ExampleSet) -> Figure:
    """Draw the probabilities of a set, the most probable on top and the choice in orange."""
    order = shown(example)
    colours = [ORANGE if k == example.chosen else BLUE for k in order]
    names = [example.names[k] + (" (chosen)" if k == example.chosen else "") for k in order]
    trace = {
        **bars(names[::-1], example.p[order][::-1].tolist(), colours[::-1]),
        "hovertemplate": "%{y}: %{x:.2%}<extra></extra>",
    }
    rest = len(example.p) - len(order)
    left = f" {rest} less probable ones, {1 - example.p[order].sum():.1%} together, are not drawn." if rest else ""
    chosen = " Orange: the choice." if example.chosen is not None else ""
    return Figure(
        traces=(trace,),
        layout={"xaxis": {**axis("probability"), "tickformat": ".0%"}, "yaxis": names_axis()},
        caption=f"Predicted probabilities.{chosen}{left}",
        numbers=[["alternative", "probability"], *([names[r], f"{example.p[k]:.4f}"] for r, k in enumerate(order))],
        height=110 + 24 * len(order),
        narrow=True,
    )


def shown(example: ExampleSet) -> list[int]:
    """Return which alternatives are shown: the most probable ones, and always the choice."""
    order = np.argsort(-example.p, kind="stable").tolist()
    kept = order[:SHOWN]
    if example.chosen is not None and example.chosen not in kept:
        kept[-1] = example.chosen
    return [int(k) for k in kept]


def attribution_figure(found: Attribution) -> Figure:
    """Draw what each rival's presence does to the alternative: as in a logit, and beyond that."""
    order = np.argsort(-np.abs(found.change), kind="stable")[:RIVALS]
    names = [found.rivals[k] for k in order]
    beyond = found.change_beyond[order]
    changes = (found.change, found.change_beyond)
    parts = {"as a logit would": (found.change[order] - beyond, GREY), "beyond that": (beyond, ORANGE)}
    traces = [
        {
            **bars(names[::-1], values[::-1].tolist(), colour),
            "name": name,
            "showlegend": True,
            "hovertemplate": f"%{{y}}, {name}: %{{x:+.3~p}}<extra></extra>",
        }
        for name, (values, colour) in parts.items()
    ]
    rows = [
        [found.rivals[k], *(f"{v[k]:.4g}" for v in (found.rival_p, found.without)), *(f"{v[k]:+.3g}" for v in changes)]
        for k in order
    ]
    decimals = decimals_of_percent(float(np.abs(found.change[order]).max(initial=0.0)))
    rest = len(found.rivals) - len(order)
    left = f" {rest} with smaller changes are not drawn." if rest else ""
    return Figure(
        traces=tuple(traces),
        layout={
            "xaxis": {**axis("change of the probability"), "tickformat": f"+.{decimals + 1}~%"},
            "yaxis": names_axis(),
            "barmode": "relative",
            "showlegend": True,
        },
        caption=f"What the presence of each rival does to {found.alternative}, at {percent(found.p)}.{left}",
        numbers=[["rival", "its probability", "without it", "change", "beyond a logit's"], *rows],
        height=140 + 26 * len(order),
        narrow=True,
    )


def chain_figure(found: Chain) -> Figure:
    """Draw the alternatives on a circle and the flows between them."""
    chart = chain_chart(found, NODES)
    whose = "" if found.of_class is None else f" of class {found.of_class}, the most frequent ({found.share:.0%})"
    sizes = np.maximum(70 * np.sqrt(chart.probabilities), 8)
    nodes = {
        "type": "scatter",
        "mode": "markers+text",
        "x": chart.places[:, 0].tolist(),
        "y": chart.places[:, 1].tolist(),
        "text": [f"{name}<br>{p:.1%}" for name, p in zip(_safe(chart.labels), chart.probabilities, strict=True)],
        "textposition": [_side(x, y) for x, y in chart.places.tolist()],
        "marker": {"size": sizes.tolist(), "color": BLUE, "opacity": 1},
        "cliponaxis": False,
        "hoverinfo": "text",
        "showlegend": False,
    }
    blank = {"visible": False, "fixedrange": True}
    layout = {
        "xaxis": {**blank, "range": [-1.9, 1.9]},
        "yaxis": {**blank, "range": [-1.35, 1.35], "scaleanchor": "x"},
        "annotations": [_arrow(chart, arrow, sizes) for arrow in chart.arrows],
    }
    flows = [
        [chart.labels[a.source], chart.labels[a.target], f"{a.flow:.3f}", f"{a.ahead:.1%}"] for a in chart.arrows[::-1]
    ]
    notes = "".join(f" {note[0].upper()}{note[1:]}." for note in chart.notes)
    return Figure(
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


def _arrow(chart: ChainChart, arrow: Arrow, sizes: Any) -> dict[str, Any]:
    """An arrow from node to node; the two ways of a pair lie side by side."""
    tail, head = chart.places[arrow.source], chart.places[arrow.target]
    along = head - tail
    aside = 0.025 * np.array([along[1], -along[0]]) / np.linalg.norm(along)
    strong = arrow.ahead > 0.02
    return {
        "x": float(head[0] + aside[0]),
        "y": float(head[1] + aside[1]),
        "ax": float(tail[0] + aside[0]),
        "ay": float(tail[1] + aside[1]),
        "xref": "x",
        "yref": "y",
        "axref": "x",
        "ayref": "y",
        "text": "",
        "showarrow": True,
        "arrowhead": 2,
        "arrowsize": 0.8,
        "arrowwidth": round(0.8 + 3.2 * arrow.flow, 2),
        "arrowcolor": ORANGE if strong else GREY,
        "opacity": round(0.35 + 0.6 * arrow.flow, 2),
        "standoff": float(sizes[arrow.target] / 2 + 2),
        "startstandoff": float(sizes[arrow.source] / 2 + 2),
    }


def _side(x: float, y: float) -> str:
    """Where the words of a node stand: away from the circle."""
    height = "top" if y > 0.3 else "bottom" if y < -0.3 else "middle"
    side = "right" if x > 0.3 else "left" if x < -0.3 else "center"
    return f"{height} {side}" if (height, side) != ("middle", "center") else "top center"


def _safe(labels: Sequence[str]) -> list[str]:
    """Shorten labels, and keep them from being taken for markup."""
    short = (label if len(label) <= 16 else f"{label[:15]}…" for label in labels)
    return [safe(label) for label in short]
