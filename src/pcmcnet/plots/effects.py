"""What a model goes by -> charts: importance of columns, demand, liked categories, probabilities, rivals, tastes.

Rows go from top to bottom, the largest first; what does not fit is left out, and said to be. A demand curve has one
line for each segment, over the change of a column in per cent or over the values it is set to; a dot marks things as
they are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number
from pcmcnet.data.columns.names import DEFAULT_NAMES, ColumnNames
from pcmcnet.errors import InputError
from pcmcnet.insight.demand import DemandCurve
from pcmcnet.insight.feature_effects import CategoryEffects
from pcmcnet.insight.importance import Importance
from pcmcnet.insight.queries import ALL_SEGMENT
from pcmcnet.insight.removals import Attribution
from pcmcnet.insight.table_summary import ExampleSet
from pcmcnet.plots.charts import GREY, Axis, Bars, Chart, Line, draw_chart, finite_ends, row_inches
from pcmcnet.plots.page_figures import GREY as PAGE_GREY
from pcmcnet.plots.page_figures import ORANGE, bars, names_axis, page_axis
from pcmcnet.plots.style import colour, ink, new_picture, plain, tidy
from pcmcnet.reports.sections import Figure
from pcmcnet.reports.tables import Cells, decimals_of_percent, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pcmcnet.models.mixed_mnl import Taste, Tastes

LOSSES = {"nll": "NLL", "misses": "misses"}  # in words
ALTERNATIVES_SHOWN = 15  # of a choice set
_RIVALS_SHOWN = 10  # in a report
_DASHES: tuple[Literal["solid", "dash", "dot", "dashdot"], ...] = ("solid", "dash", "dot", "dashdot")
_BINS, _ENDS = 60, (0.005, 0.995)  # the tails of a lognormal would leave no room for the rest
_ACROSS = 3  # panels side by side


def importance_chart(found: Importance, names: ColumnNames = DEFAULT_NAMES, *, most: int = 20) -> Chart:
    """Describe the increase of the loss when a column is shuffled, for so many columns at most."""
    require_number("most", most, whole=True, low=1)
    rows = found.rows[:most]
    values = [row.value for row in rows]
    low, high = finite_ends(values, [row.low for row in rows], [row.high for row in rows])
    noun = "NLL per choice set" if found.loss == "nll" else "share of misses"
    cells = [
        [names[r.name], f"{r.value:+.4f}", f"{r.spread:.4f}", f"{r.low:+.4f} to {r.high:+.4f}"] for r in found.rows
    ]
    return Chart(
        marks=(Bars(values=values, low=low, high=high, colours=[0] * len(rows)),),
        rows=tuple(names[row.name] for row in rows),
        x=Axis(title=f"increase of {noun} when shuffled", values="+.4f"),
        note=_left_out(len(found.rows) - len(rows)),
        caption="How much worse choices are predicted when a column is shuffled. Lines: 95 % intervals.",
        numbers=[["shuffled", f"increase of {LOSSES[found.loss]}", "spread", "95 % interval"], *cells],
        inches=row_inches(len(rows)),
    )


def _left_out(number: int) -> str:
    return f"{number} more, with shorter bars, are not shown" if number else ""


def draw_importance(found: Importance, path: str | os.PathLike[str], *, most: int = 20, title: str = "") -> Path:
    """Draw a bar for each column with its interval.

    Parameters
    ----------
    found
        What :func:`pcmcnet.insight.importance.importance` returned.
    path, title
        Where the picture goes, which is returned, and its title: see :func:`~pcmcnet.plots.style.new_picture`.
    most
        Bars, at most.
    """
    return _write_chart(importance_chart(found, most=most), path, title)


def _write_chart(chart: Chart, path: str | os.PathLike[str], title: str) -> Path:
    with new_picture(path, chart.inches, title=title) as figure:
        draw_chart(chart, figure.subplots())
    return Path(path)


def plot_importance(
    found: Importance, ax: Axes | None = None, *, most: int = 20, names: ColumnNames = DEFAULT_NAMES
) -> Axes:
    """Draw a bar for each column with its interval.

    Parameters
    ----------
    found
        What :func:`pcmcnet.insight.importance.importance` returned.
    ax
        Where to draw; a new figure if None.
    most
        Bars, at most.
    names
        What people call the columns.
    """
    return draw_chart(importance_chart(found, names, most=most), ax)


# -- demand ----------------------------------------------------------------------------------------------------------


def demand_chart(curves: DemandCurve | Mapping[str, DemandCurve], names: ColumnNames = DEFAULT_NAMES) -> Chart:
    """Describe one demand curve, or several by their titles: of two models, or of several alternatives.

    Raises
    ------
    InputError
        When there is no curve, or the curves are not of one column, some scaled and others set to values.
    """
    # 1. What the curves have in common: a column, whose it is, and whether it is scaled or set to values.
    named = {"": curves} if isinstance(curves, DemandCurve) else dict(curves)
    if not named:
        raise InputError("expected at least one demand curve to draw, got none.")
    each_its_own = len(named) > 1 and all(curve.changed == curve.of for curve in named.values())
    kinds = {(curve.column, "" if each_its_own else curve.changed, curve.scaled) for curve in named.values()}
    if len(kinds) > 1:
        raise InputError("expected demand curves of one column of one alternative, all by factors or all by values.")
    column, changed, scaled = kinds.pop()
    # 2. A line for each segment of each curve: colours tell segments apart and dashes curves, or colours curves alone.
    several = max(len(curve.segments) for curve in named.values()) > 1
    lines = []
    for k, (title, curve) in enumerate(named.items()):
        order = np.argsort(curve.points, kind="stable")
        for g, segment in enumerate(curve.segments):
            legend = ", ".join(part for part in (title, "" if segment == ALL_SEGMENT else segment) if part)
            lines.append(
                Line(
                    x=curve.points[order] - 1 if scaled else curve.points[order],
                    y=curve.shares[g][order],
                    colour=g if several else k,
                    dash=_DASHES[k % len(_DASHES)] if several else "solid",
                    legend=legend,
                    dot=(0.0, float(curve.now[g])) if scaled else None,
                )
            )
    # 3. The words: whose column changes, and whose share is followed.
    followed = list(dict.fromkeys(curve.of for curve in named.values()))
    label = f"change of {names[column]}" if scaled else names.label(column)
    label = f"{label} of {changed}" if changed else label
    share = "predicted share" if each_its_own and len(followed) > 1 else f"predicted share of {' and '.join(followed)}"
    now = [f"{curve.now[g]:.4f}" for curve in named.values() for g in range(len(curve.segments))]
    return Chart(
        marks=tuple(lines),
        x=Axis(title=label, ticks="+.0%" if scaled else "", values="+.0%" if scaled else ".4g"),
        y=Axis(title=share, ticks=".0%", values=".1%", from_zero=True),
        caption=f"Predicted share of the alternatives named as {names[column]} changes for them alone.",
        numbers=[*_share_cells(lines, label, "+.0%" if scaled else ".4g"), ["as it is", *now]],
        narrow=True,
    )


def _share_cells(lines: Sequence[Line], label: str, form: str) -> Cells:
    """Return the shares of all lines by their places; a line has none where another has been asked."""
    shares = [dict(zip(line.x.tolist(), line.y.tolist(), strict=True)) for line in lines]
    places = sorted({x for share in shares for x in share})
    rows = [[f"{x:{form}}", *(f"{share[x]:.4f}" if x in share else "-" for share in shares)] for x in places]
    return [[label, *(line.legend for line in lines)], *rows]


def draw_demand(
    curves: DemandCurve | Mapping[str, DemandCurve], path: str | os.PathLike[str], *, title: str = ""
) -> Path:
    """Draw demand curves.

    Parameters
    ----------
    curves
        What :func:`pcmcnet.insight.demand.demand` returned, or several of them by title.
    path, title
        Where the picture goes, which is returned, and its title: see :func:`~pcmcnet.plots.style.new_picture`.

    Raises
    ------
    InputError
        When the curves do not go together.
    """
    return _write_chart(demand_chart(curves), path, title)


def plot_demand(
    curves: DemandCurve | Mapping[str, DemandCurve], ax: Axes | None = None, *, names: ColumnNames = DEFAULT_NAMES
) -> Axes:
    """Draw demand curves.

    Parameters
    ----------
    curves
        What :func:`pcmcnet.insight.demand.demand` returned, or several of them by title.
    ax
        Where to draw; a new figure if None.
    names
        What people call the columns.
    """
    return draw_chart(demand_chart(curves, names), ax)


# -- categories ------------------------------------------------------------------------------------------------------


def categories_chart(found: CategoryEffects, names: ColumnNames = DEFAULT_NAMES) -> Chart:
    """Describe the lift of each category, the most liked on top: blue gains, orange loses, grey may do either."""
    rows, column = found.rows, names[found.column]
    values = [row.lift for row in rows]
    low, high = finite_ends(values, [row.low for row in rows], [row.high for row in rows])
    colours = [(0 if row.lift > 1 else 1) if row.is_significant else GREY for row in rows]
    others = f" {found.others:,} rarer ones were not asked about." if found.others else ""
    cells = [
        [r.category, f"{r.frequency:.1%}", percent(r.share), f"{r.lift:.2f}", f"{r.low:.2f} to {r.high:.2f}"]
        for r in rows
    ]
    return Chart(
        marks=(Bars(values=values, low=low, high=high, colours=colours),),
        rows=tuple(row.category for row in rows),
        x=Axis(title=f"times the share of an average {column}", values=".2f", from_zero=True),
        reference=1,
        caption=(
            f"How often an alternative would be chosen with each {column}, all else equal, against an average one. "
            f"Blue gains, orange loses, grey may do either. Lines: 95 % intervals.{others}"
        ),
        numbers=[[column, "frequency", "share", "times the average", "95 % interval"], *cells],
        inches=row_inches(len(rows)),
    )


def plot_categories(found: CategoryEffects, ax: Axes | None = None, *, names: ColumnNames = DEFAULT_NAMES) -> Axes:
    """Draw how often an alternative would be chosen with each category, against an average one.

    Parameters
    ----------
    found
        What :func:`pcmcnet.insight.feature_effects.category_effects` returned.
    ax
        Where to draw; a new figure if None.
    names
        What people call the columns.
    """
    return draw_chart(categories_chart(found, names), ax)


# -- one choice set --------------------------------------------------------------------------------------------------


def shown_alternatives(example: ExampleSet) -> list[int]:
    """Return which alternatives are shown: the most probable ones, and always the choice."""
    order = [int(k) for k in np.argsort(-example.p, kind="stable")[:ALTERNATIVES_SHOWN]]
    if example.chosen is not None and example.chosen not in order:
        order[-1] = example.chosen
    return order


def probabilities_chart(example: ExampleSet) -> Chart:
    """Describe the probabilities of a set, the most probable on top and the choice in the second colour."""
    order = shown_alternatives(example)
    rows = tuple(example.names[k] + (" (chosen)" if k == example.chosen else "") for k in order)
    rest = len(example.p) - len(order)
    left = f" {rest} less probable ones, {1 - example.p[order].sum():.1%} together, are not drawn." if rest else ""
    chosen = " Orange: the choice." if example.chosen is not None else ""
    return Chart(
        marks=(Bars(values=example.p[order].tolist(), colours=[int(k == example.chosen) for k in order]),),
        rows=rows,
        x=Axis(title="predicted probability", ticks=".0%", values=".2%"),
        title=f"choice set {example.choice_set}",
        caption=f"Predicted probabilities.{chosen}{left}",
        numbers=[["alternative", "probability"], *([rows[r], f"{example.p[k]:.4f}"] for r, k in enumerate(order))],
        inches=row_inches(len(order)),
        narrow=True,
    )


def plot_probabilities(example: ExampleSet, ax: Axes | None = None) -> Axes:
    """Draw the probabilities of a choice set, the most probable on top and the choice in the second colour."""
    return draw_chart(probabilities_chart(example), ax)


def attribution_chart(found: Attribution, *, most: int = 12) -> Chart:
    """Describe how rivals push the log-probability of an alternative: in all, and beyond a logit's share."""
    require_number("most", most, whole=True, low=1)
    rows = found.rivals[:most]
    n = len(rows)
    return Chart(
        marks=(
            Bars(values=found.push[:n].tolist(), colours=[GREY] * n, legend="push"),
            Bars(values=found.beyond[:n].tolist(), colours=[1] * n, legend="beyond a proportional share"),
        ),
        rows=rows,
        x=Axis(title=f"push on log p of {found.alternative}, p = {found.p:.3f}"),
        note=_left_out(len(found.rivals) - n),
        inches=row_inches(2 * n),
    )


def draw_attribution(found: Attribution, path: str | os.PathLike[str], *, most: int = 12, title: str = "") -> Path:
    """Draw two bars for each rival: its whole push, and what goes beyond a logit's.

    Parameters
    ----------
    found
        What :func:`pcmcnet.insight.removals.attribution` returned.
    path, most, title
        As for :func:`draw_importance`.
    """
    return _write_chart(attribution_chart(found, most=most), path, title)


def plot_attribution(found: Attribution, ax: Axes | None = None, *, most: int = 12) -> Axes:
    """Draw two bars for each rival: its whole push, and what goes beyond a logit's.

    Parameters
    ----------
    found
        What :func:`pcmcnet.insight.removals.attribution` returned.
    ax, most
        As for :func:`plot_importance`.
    """
    return draw_chart(attribution_chart(found, most=most), ax)


def changes_figure(found: Attribution) -> Figure:
    """Return a page's figure of what each rival does to the probability: as in a logit, and beyond that."""
    # 1. The rivals with the largest changes, and the two parts that add up to each change.
    order = np.argsort(-np.abs(found.change), kind="stable")[:_RIVALS_SHOWN]
    names = [found.rivals[k] for k in order]
    beyond = found.change_beyond[order]
    parts = {"as a logit would": (found.change[order] - beyond, PAGE_GREY), "beyond that": (beyond, ORANGE)}
    traces = [
        {
            **bars(names[::-1], values[::-1].tolist(), shade),
            "name": name,
            "showlegend": True,
            "hovertemplate": f"%{{y}}, {name}: %{{x:+.3~p}}<extra></extra>",
        }
        for name, (values, shade) in parts.items()
    ]
    # 2. The same as a table, and an axis with the decimals that the largest change needs.
    changes = (found.change, found.change_beyond)
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
            "xaxis": page_axis(Axis(title="change of the probability", ticks=f"+.{decimals + 1}~%")),
            "yaxis": names_axis(),
            "barmode": "relative",
            "showlegend": True,
        },
        caption=f"What the presence of each rival does to {found.alternative}, at {percent(found.p)}.{left}",
        numbers=[["rival", "its probability", "without it", "change", "beyond a logit's"], *rows],
        height=140 + 26 * len(order),
        narrow=True,
    )


# -- tastes ----------------------------------------------------------------------------------------------------------


class TasteChart(NamedTuple):
    """A histogram of one coefficient, between its outer quantiles."""

    title: str
    edges: Floats  # (B + 1,)
    density: Floats  # (B,)
    median: float
    note: str


def taste_chart(taste: Taste, values: Floats) -> TasteChart:
    """Compute what is drawn of a coefficient's draws (R,)."""
    low, high = np.quantile(values, _ENDS).tolist()
    if low == high:
        low, high = low - 0.5, high + 0.5
    counts, edges = np.histogram(values, _BINS, range=(low, high))
    density = counts / (len(values) * np.diff(edges))
    note = f"{taste.below_0:.0%} below 0" if 0 < taste.below_0 < 1 else f"all {'below' if taste.below_0 else 'above'} 0"
    return TasteChart(f"{taste.name}: {taste.distribution}", edges, density, taste.median, note)


def draw_taste(chart: TasteChart, axes: Axes) -> Axes:
    """Draw one coefficient: what is below 0 in another colour than what is above."""
    # 1. The histogram, its bars coloured by their sign.
    middle = (chart.edges[:-1] + chart.edges[1:]) / 2
    colours = [colour(1) if at < 0 else colour(0) for at in middle]
    axes.bar(middle, chart.density, width=np.diff(chart.edges), color=colours, alpha=0.75, linewidth=0)
    # 2. The median, and 0 where it lies between.
    axes.axvline(chart.median, color=ink(), linewidth=1)
    axes.annotate("median", (chart.median, 1), (3, -2), xycoords=("data", "axes fraction"), textcoords="offset points",
                  fontsize=8, va="top", color=ink())  # fmt: skip
    if chart.edges[0] < 0 < chart.edges[-1]:
        axes.axvline(0, color=ink(), alpha=0.5, linewidth=1, linestyle=":")
    # 3. The words around it.
    axes.set_title(plain(chart.title), fontsize=11)
    axes.set(xlabel=f"coefficient ({chart.note})", ylabel="density", ylim=(0, float(chart.density.max()) * 1.12))
    tidy(axes)
    return axes


def draw_tastes(tastes: Tastes, name: str | None = None, ax: Axes | None = None) -> Any:
    """Draw one coefficient into axes, or all of them into a figure; returns the axes, or the figure."""
    # 1. What is drawn of each coefficient asked for.
    charts = [taste_chart(row, values) for row, values in zip(tastes.rows, tastes.draws, strict=True)]
    if name is not None:
        charts = [charts[tastes.position(name)]]
    # 2. The caller's axes hold one of them.
    if ax is not None:
        if len(charts) > 1:
            raise InputError(f"one set of axes holds one coefficient, and there are {len(charts)}: give name=.")
        return draw_taste(charts[0], ax)
    # 3. A new figure has a panel for each.
    from matplotlib.figure import Figure as Drawing

    across = min(len(charts), _ACROSS)
    down = -(-len(charts) // across)
    figure = Drawing(figsize=(4.2 * across, 3.1 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for chart, axes in zip(charts, panels, strict=False):
        draw_taste(chart, axes)
    for axes in panels[len(charts) :]:
        axes.set_visible(False)
    return panels[0] if name is not None else figure
