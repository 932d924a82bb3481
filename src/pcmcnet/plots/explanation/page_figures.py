"""Parts of an explanation -> figures of lines and bars: how it learnt, how good it is, what it goes by.

Every function returns traces and a layout as plain mappings, and the numbers drawn as a table. Colours are those of
Okabe and Ito in tones that can be told apart on white and on black; text and grid are coloured by the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pcmcnet.data.column_names import PLAIN, ColumnNames
from pcmcnet.insight.calibration import Calibration, Curve
from pcmcnet.insight.category_effects import CategoryEffects
from pcmcnet.insight.demand import DemandCurve
from pcmcnet.insight.importance import Importance
from pcmcnet.insight.table_summary import TableSummary
from pcmcnet.plots.importance import importance_bars
from pcmcnet.plots.learning_curve import learning_curve
from pcmcnet.reports.sections import Figure
from pcmcnet.reports.tables import number, percent

BLUE, ORANGE, GREEN, PINK, SKY, GREY = "#3a87c2", "#e07b39", "#2a9d7c", "#c573a5", "#79b8de", "#8b9099"
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY)
LOSSES = {"nll": "NLL", "misses": "misses"}  # in words


def sizes_figure(table: TableSummary) -> Figure:
    """Draw how many choice sets have how many alternatives."""
    trace = {
        "type": "bar",
        "x": table.sizes.tolist(),
        "y": table.counts.tolist(),
        "marker": {"color": BLUE},
        "hovertemplate": "%{y:,} sets of %{x}<extra></extra>",
    }
    rows = zip(table.sizes.tolist(), table.counts.tolist(), strict=True)
    return Figure(
        traces=(trace,),
        layout={"xaxis": axis("alternatives in the set"), "yaxis": axis("choice sets"), "bargap": 0.15},
        caption="How many alternatives people had.",
        numbers=[["alternatives", "choice sets"], *([f"{n:,}", f"{count:,}"] for n, count in rows)],
        height=260,
    )


def learning_figure(histories: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Draw the losses by epoch, of one network or of the members of an ensemble."""
    traces: list[dict[str, Any]] = []
    cells = [["epoch", "of", "training loss", "validation loss", "learning rate"]]
    for k, (name, history) in enumerate(histories.items()):
        curve, behind = learning_curve(history), f" ({name})" if name else ""
        colour = COLOURS[k % len(COLOURS)]
        other = ORANGE if len(histories) == 1 else colour
        traces.append(line(curve.epoch, curve.train_loss, f"training{behind}", colour))
        if len(curve.valid_epoch):
            valid = line(curve.valid_epoch, curve.valid_loss, f"validation{behind}", other)
            traces.append({**valid, "line": {"color": other, "dash": "dash"}})
        cells += [
            [str(entry["epoch"]), name, *(number(entry[key]) for key in ("train_loss", "valid_loss", "lr"))]
            for entry in history
        ]
    if set(histories) == {""}:
        cells = [[row[0], *row[2:]] for row in cells]
    return Figure(
        traces=tuple(traces),
        layout={"xaxis": axis("epoch"), "yaxis": axis("loss per choice set"), "showlegend": len(traces) > 1},
        caption="Loss by epoch of the training.",
        numbers=cells,
        height=300,
    )


def calibration_figures(found: Calibration) -> tuple[Figure, Figure]:
    """Draw predicted against observed, for favourites, whose distance is the calibration error, and for all."""
    level = f"{found.level:.0%} intervals"
    return (
        _calibration_figure(found.first, ORANGE, f"The favourite of each set. Bars: {level}."),
        _calibration_figure(found.alternatives, BLUE, f"All alternatives. Bars: {level}."),
    )


def _calibration_figure(curve: Curve, colour: str, caption: str) -> Figure:
    low, high = _ends(curve)
    end = min(1.0, 1.06 * float(max(curve.predicted.max(), high.max())))
    diagonal = {
        **line([0, end], [0, end], "as predicted", GREY),
        "mode": "lines",
        "line": {"color": GREY, "dash": "dot", "width": 1.5},
        "hoverinfo": "skip",
    }
    share = {"range": [-0.03 * end, end], "tickformat": ".0%"}
    rows = [
        [f"{p:.4f}", f"{o:.4f}", f"{lowest:.4f} to {highest:.4f}", f"{w:.3f}"]
        for p, o, lowest, highest, w in zip(curve.predicted, curve.observed, low, high, curve.share, strict=True)
    ]
    return Figure(
        traces=(diagonal, _curve(curve, "observed", colour)),
        layout={
            "xaxis": {**axis("predicted probability"), **share},
            "yaxis": {**axis("share chosen"), **share},
            "showlegend": False,
        },
        caption=f"{caption} On the dotted line what is predicted is what happens.",
        numbers=[["predicted", "observed", "interval", "weight"], *rows],
        height=340,
        narrow=True,
    )


def _ends(curve: Curve) -> tuple[Any, Any]:
    """Ends of the intervals within 0 and 1; one set alone has infinite ones."""
    return np.clip(curve.low, 0, 1), np.clip(curve.high, 0, 1)


def _curve(curve: Curve, name: str, colour: str) -> dict[str, Any]:
    return {
        **line(curve.predicted, curve.observed, name, colour),
        "error_y": error_bars(curve.observed, *_ends(curve), colour),
        "hovertemplate": "predicted %{x:.1%}, chosen %{y:.1%}<extra></extra>",
    }


def importance_figure(found: Importance, names: ColumnNames = PLAIN) -> Figure:
    """Draw the increase of the loss by each column, the most important on top."""
    shown = importance_bars(found, most=len(found.rows))[::-1]
    values, low, high = np.array([bar[1:] for bar in shown]).T
    what = LOSSES[found.loss]
    trace = {
        **bars([names[bar.label] for bar in shown], values.tolist(), BLUE),
        "error_x": error_bars(values, low, high, GREY),
        "hovertemplate": f"%{{y}}: {what} %{{x:+.4f}}<extra></extra>",
    }
    cells = [
        [names[r.name], f"{r.value:+.4f}", f"{r.spread:.4f}", f"{r.low:+.4f} to {r.high:+.4f}"] for r in found.rows
    ]
    return Figure(
        traces=(trace,),
        layout={"xaxis": axis(f"increase of {what}"), "yaxis": names_axis()},
        caption="How much worse choices are predicted when a column is shuffled. Lines: 95 % intervals.",
        numbers=[["shuffled", f"increase of {what}", "spread", "95 % interval"], *cells],
        height=120 + 24 * len(shown),
    )


def demand_figure(curves: Mapping[str, DemandCurve], names: ColumnNames = PLAIN) -> Figure:
    """Draw shares as one feature is scaled, or set to values; a scale is drawn as the change from what is."""
    first = next(iter(curves.values()))
    label = f"change of {names[first.column]}" if first.scaled else names.label(first.column)
    at = first.points - 1 if first.scaled else first.points
    traces = [
        {
            **line(at, curve.shares[0], name, COLOURS[k % len(COLOURS)]),
            "hovertemplate": f"{'%{x:+.0%}' if first.scaled else '%{x:.4g}'}: share %{{y:.1%}}<extra></extra>",
        }
        for k, (name, curve) in enumerate(curves.items())
    ]
    points = zip(at, *(curve.shares[0] for curve in curves.values()), strict=True)
    form = "{:+.0%}" if first.scaled else "{:.4g}"
    return Figure(
        traces=tuple(traces),
        layout={
            "xaxis": {**axis(label), **({"tickformat": "+.0%"} if first.scaled else {})},
            "yaxis": {**axis("predicted share"), "tickformat": ".0%", "rangemode": "tozero"},
            "showlegend": True,
        },
        caption=f"Predicted share of the alternatives named as {names[first.column]} changes for them alone.",
        numbers=[
            [label, *curves],
            *([form.format(x), *(f"{share:.4f}" for share in shares)] for x, *shares in points),
            ["as it is", *(f"{curve.now[0]:.4f}" for curve in curves.values())],
        ],
        narrow=True,
    )


def category_figure(found: CategoryEffects, names: ColumnNames = PLAIN) -> Figure:
    """Draw the lift of each category, the most liked on top: blue gains, orange loses, grey may do either."""
    rows = found.rows[::-1]
    values, low, high = (np.array([getattr(row, name) for row in rows]) for name in ("lift", "low", "high"))
    colours = [(BLUE if row.lift > 1 else ORANGE) if row.is_sure else GREY for row in rows]
    ends = np.where(np.isfinite(low), low, values), np.where(np.isfinite(high), high, values)
    trace = {
        **bars([row.category for row in rows], values.tolist(), colours),
        "error_x": error_bars(values, *ends, GREY),
        "hovertemplate": "%{y}: %{x:.2f} times<extra></extra>",
    }
    dotted = {"color": GREY, "dash": "dot"}
    average = {"type": "line", "x0": 1, "x1": 1, "y0": 0, "y1": 1, "yref": "paper", "line": dotted}
    others = f" {found.others:,} rarer ones were not asked about." if found.others else ""
    cells = [
        [r.category, f"{r.frequency:.1%}", percent(r.share), f"{r.lift:.2f}", f"{r.low:.2f} to {r.high:.2f}"]
        for r in found.rows
    ]
    return Figure(
        traces=(trace,),
        layout={
            "xaxis": {**axis("times the share of an average one"), "rangemode": "tozero"},
            "yaxis": names_axis(),
            "shapes": [average],
        },
        caption=(
            f"How often an alternative would be chosen with each {names[found.column]}, all else equal, against an "
            f"average one. Blue gains, orange loses, grey may do either. Lines: 95 % intervals.{others}"
        ),
        numbers=[[names[found.column], "frequency", "share", "times the average", "95 % interval"], *cells],
        height=120 + 24 * len(rows),
    )


def safe(name: str) -> str:
    """Keep a name of the table from being taken for markup, or for a placeholder of a hover text.

    Examples
    --------
    >>> safe("<b>R&D</b>")
    '&lt;b>R&amp;D&lt;/b>'
    """
    return name.replace("&", "&amp;").replace("<", "&lt;").replace("%{", "% {")


def axis(title: str) -> dict[str, Any]:
    """An axis with its title, which makes room for its labels."""
    return {"title": {"text": safe(title)}, "automargin": True}


def names_axis() -> dict[str, Any]:
    """A vertical axis of names, each of them shown, taken as they are."""
    return {"automargin": True, "type": "category", "dtick": 1, "ticksuffix": " "}


def bars(names: Sequence[str], values: Sequence[float], colour: Any) -> dict[str, Any]:
    """Horizontal bars."""
    return {
        "type": "bar",
        "orientation": "h",
        "y": [safe(name) for name in names],
        "x": list(values),
        "marker": {"color": colour},
        "showlegend": False,
    }


def error_bars(values: Any, low: Any, high: Any, colour: str) -> dict[str, Any]:
    """Intervals around values, from low to high."""
    return {
        "type": "data",
        "symmetric": False,
        "array": np.maximum(high - values, 0).tolist(),
        "arrayminus": np.maximum(values - low, 0).tolist(),
        "color": colour,
        "thickness": 1.2,
        "width": 3,
    }


def line(x: Any, y: Any, name: str, colour: str) -> dict[str, Any]:
    """A line with dots."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": np.asarray(x).tolist(),
        "y": np.asarray(y, dtype=np.float64).tolist(),
        "name": safe(name),
        "line": {"color": colour},
        "marker": {"color": colour, "size": 6},
    }
