"""Plots of what drives predictions: importance of columns, demand curves, categories, rivals, taste distributions.

Rows are sorted with the largest value on top. A note reports the number of rows left out. A demand curve has one line
per segment, plotted against the percentage change in a column or against its values. A dot marks the current value.
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
from pcmcnet.plots.page_figures import ORANGE, horizontal_bars, names_axis, page_axis
from pcmcnet.plots.style import axes_for, colour, escape_dollars, new_picture, style_axes, text_colour
from pcmcnet.reports.sections import Figure
from pcmcnet.reports.tables import Cells, percent, percent_decimals

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pcmcnet.models.logit.tastes import Taste, Tastes

LOSS_NAMES = {"nll": "NLL", "misses": "misses"}
MAX_ALTERNATIVES_SHOWN = 15  # of a choice set
_MAX_RIVALS_SHOWN = 10  # in a report
_DASHES: tuple[Literal["solid", "dash", "dot", "dashdot"], ...] = ("solid", "dash", "dot", "dashdot")
_BINS = 60
_SHOWN_QUANTILES = (0.005, 0.995)  # the tails of a lognormal would leave no room for the rest
_MAX_COLUMNS = 3  # panels per row


def importance_chart(importance: Importance, names: ColumnNames = DEFAULT_NAMES, *, most: int = 20) -> Chart:
    """Return a chart of the increase in loss when a column is shuffled, for at most ``most`` columns."""
    require_number("most", most, whole=True, low=1)
    rows = importance.rows[:most]
    values = [row.value for row in rows]
    low, high = finite_ends(values, [row.low for row in rows], [row.high for row in rows])
    noun = "NLL per choice set" if importance.loss == "nll" else "share of misses"
    cells = [
        [names[r.name], f"{r.value:+.4f}", f"{r.spread:.4f}", f"{r.low:+.4f} to {r.high:+.4f}"] for r in importance.rows
    ]
    return Chart(
        marks=(Bars(values=values, low=low, high=high, colours=[0] * len(rows)),),
        rows=tuple(names[row.name] for row in rows),
        x=Axis(title=f"increase in {noun} when shuffled", values="+.4f"),
        note=_left_out(len(importance.rows) - len(rows)),
        caption="Increase in prediction error when a column is shuffled. Lines: 95 % intervals.",
        numbers=[["shuffled", f"increase in {LOSS_NAMES[importance.loss]}", "spread", "95 % interval"], *cells],
        inches=row_inches(len(rows)),
    )


def _left_out(number: int) -> str:
    return f"{number} shorter bars are not shown" if number else ""


def draw_importance(importance: Importance, path: str | os.PathLike[str], *, most: int = 20, title: str = "") -> Path:
    """Draw a bar with an interval for each column, and write the figure to a file.

    Parameters
    ----------
    importance
        Result of :func:`pcmcnet.insight.importance.importance`.
    path
        File to write: .png, .pdf or .svg, in an existing folder.
    most
        Largest number of bars (default 20).
    title
        Title of the figure (default: none).

    Returns
    -------
    Path
        Path of the written file.

    Raises
    ------
    InputError
        If the path is not valid.
    """
    return _write_chart(importance_chart(importance, most=most), path, title)


def _write_chart(chart: Chart, path: str | os.PathLike[str], title: str) -> Path:
    with new_picture(path, chart.inches, title=title) as figure:
        draw_chart(chart, figure.subplots())
    return Path(path)


def plot_importance(
    importance: Importance, ax: Axes | None = None, *, most: int = 20, names: ColumnNames = DEFAULT_NAMES
) -> Axes:
    """Plot a bar with an interval for each column.

    Parameters
    ----------
    importance
        Result of :func:`pcmcnet.insight.importance.importance`.
    ax
        Axes to draw on (default: a new figure).
    most
        Largest number of bars (default 20).
    names
        Display names of the columns (default: the names in the table).

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.
    """
    return draw_chart(importance_chart(importance, names, most=most), ax)


# -- Demand ------------------------------------------------------------------------------------------------------------


def demand_chart(curves: DemandCurve | Mapping[str, DemandCurve], names: ColumnNames = DEFAULT_NAMES) -> Chart:
    """Return a chart of one demand curve, or of several by title, such as those of two models or alternatives.

    Raises
    ------
    InputError
        If there is no curve, if the curves show different columns, or if only some of them use factors.
    """
    # 1. Check that the curves are of the same column of the same alternative, all by factors or all by values.
    named = {"": curves} if isinstance(curves, DemandCurve) else dict(curves)
    if not named:
        raise InputError("expected at least one demand curve to draw, got none.")
    each_its_own = len(named) > 1 and all(curve.changed == curve.of for curve in named.values())
    kinds = {(curve.column, "" if each_its_own else curve.changed, curve.scaled) for curve in named.values()}
    if len(kinds) > 1:
        raise InputError(
            "expected demand curves for the same column and alternative, either all by factors or all by values."
        )
    column, changed, scaled = kinds.pop()
    # 2. Make a line for each segment of each curve: colours distinguish segments and dashes distinguish curves, or
    #    colours distinguish curves if there is one segment.
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
    # 3. Label the axes with the column that changes and the alternatives whose share is shown.
    followed = list(dict.fromkeys(curve.of for curve in named.values()))
    label = f"change in {names[column]}" if scaled else names.label(column)
    label = f"{label} of {changed}" if changed else label
    share = "predicted share" if each_its_own and len(followed) > 1 else f"predicted share of {' and '.join(followed)}"
    now = [f"{curve.now[g]:.4f}" for curve in named.values() for g in range(len(curve.segments))]
    return Chart(
        marks=tuple(lines),
        x=Axis(title=label, ticks="+.0%" if scaled else "", values="+.0%" if scaled else ".4g"),
        y=Axis(title=share, ticks=".0%", values=".1%", from_zero=True),
        caption=f"Predicted share of each alternative as its own {names[column]} changes and the others stay the same.",
        numbers=[*_share_cells(lines, label, "+.0%" if scaled else ".4g"), ["unchanged", *now]],
        narrow=True,
    )


def _share_cells(lines: Sequence[Line], label: str, form: str) -> Cells:
    """Return a table with the shares of all lines at each x. A dash means that a line has no point at this x."""
    shares = [dict(zip(line.x.tolist(), line.y.tolist(), strict=True)) for line in lines]
    positions = sorted({x for share in shares for x in share})
    rows = [[f"{x:{form}}", *(f"{share[x]:.4f}" if x in share else "-" for share in shares)] for x in positions]
    return [[label, *(line.legend for line in lines)], *rows]


def draw_demand(
    curves: DemandCurve | Mapping[str, DemandCurve], path: str | os.PathLike[str], *, title: str = ""
) -> Path:
    """Draw demand curves and write the figure to a file.

    Parameters
    ----------
    curves
        Result of :func:`pcmcnet.insight.demand.demand`, or several results by title.
    path
        File to write: .png, .pdf or .svg, in an existing folder.
    title
        Title of the figure (default: none).

    Returns
    -------
    Path
        Path of the written file.

    Raises
    ------
    InputError
        If the curves differ in their column or alternative, or the path is not valid.
    """
    return _write_chart(demand_chart(curves), path, title)


def plot_demand(
    curves: DemandCurve | Mapping[str, DemandCurve], ax: Axes | None = None, *, names: ColumnNames = DEFAULT_NAMES
) -> Axes:
    """Plot demand curves.

    Parameters
    ----------
    curves
        Result of :func:`pcmcnet.insight.demand.demand`, or several results by title.
    ax
        Axes to draw on (default: a new figure).
    names
        Display names of the columns (default: the names in the table).

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    InputError
        If the curves differ in their column or alternative.
    """
    return draw_chart(demand_chart(curves, names), ax)


# -- Categories --------------------------------------------------------------------------------------------------------


def categories_chart(effects: CategoryEffects, names: ColumnNames = DEFAULT_NAMES) -> Chart:
    """Return a chart of the lift of each category: blue above 1, orange below 1, grey if not significant."""
    rows, column = effects.rows, names[effects.column]
    values = [row.lift for row in rows]
    low, high = finite_ends(values, [row.low for row in rows], [row.high for row in rows])
    colours = [(0 if row.lift > 1 else 1) if row.is_significant else GREY for row in rows]
    rare = f" {effects.others:,} rarer categories are left out." if effects.others else ""
    cells = [
        [r.category, f"{r.frequency:.1%}", percent(r.share), f"{r.lift:.2f}", f"{r.low:.2f} to {r.high:.2f}"]
        for r in rows
    ]
    return Chart(
        marks=(Bars(values=values, low=low, high=high, colours=colours),),
        rows=tuple(row.category for row in rows),
        x=Axis(title=f"share relative to an average {column}", values=".2f", from_zero=True),
        reference=1,
        caption=(
            f"Predicted share of an alternative with each {column}, all else equal, relative to an average {column}. "
            f"Blue: above average. Orange: below average. Grey: not significant. Lines: 95 % intervals.{rare}"
        ),
        numbers=[[column, "frequency", "share", "relative to average", "95 % interval"], *cells],
        inches=row_inches(len(rows)),
    )


def plot_categories(effects: CategoryEffects, ax: Axes | None = None, *, names: ColumnNames = DEFAULT_NAMES) -> Axes:
    """Plot the predicted share of an alternative with each category, relative to an average category.

    Parameters
    ----------
    effects
        Result of :func:`pcmcnet.insight.feature_effects.category_effects`.
    ax
        Axes to draw on (default: a new figure).
    names
        Display names of the columns (default: the names in the table).

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.
    """
    return draw_chart(categories_chart(effects, names), ax)


# -- One choice set ----------------------------------------------------------------------------------------------------


def shown_alternatives(example: ExampleSet) -> list[int]:
    """Return the indices of the alternatives to show: the most probable ones, and always the chosen one."""
    order = [int(k) for k in np.argsort(-example.p, kind="stable")[:MAX_ALTERNATIVES_SHOWN]]
    if example.chosen is not None and example.chosen not in order:
        order[-1] = example.chosen
    return order


def probabilities_chart(example: ExampleSet) -> Chart:
    """Return a chart of the probabilities of a choice set. The chosen alternative has the second colour."""
    order = shown_alternatives(example)
    rows = tuple(example.names[k] + (" (chosen)" if k == example.chosen else "") for k in order)
    rest = len(example.p) - len(order)
    omitted = f" {rest} others, with {1 - example.p[order].sum():.1%} in total, are not drawn." if rest else ""
    chosen = " Orange: the chosen alternative." if example.chosen is not None else ""
    return Chart(
        marks=(Bars(values=example.p[order].tolist(), colours=[int(k == example.chosen) for k in order]),),
        rows=rows,
        x=Axis(title="predicted probability", ticks=".0%", values=".2%"),
        title=f"choice set {example.choice_set}",
        caption=f"Predicted probabilities.{chosen}{omitted}",
        numbers=[["alternative", "probability"], *([rows[r], f"{example.p[k]:.4f}"] for r, k in enumerate(order))],
        inches=row_inches(len(order)),
        narrow=True,
    )


def plot_probabilities(example: ExampleSet, ax: Axes | None = None) -> Axes:
    """Plot the probabilities of a choice set, the largest on top. The chosen alternative has the second colour.

    Parameters
    ----------
    example
        One of the examples of an explanation (``explanation.examples``).
    ax
        Axes to draw on (default: a new figure).

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.
    """
    return draw_chart(probabilities_chart(example), ax)


def attribution_chart(attribution: Attribution, *, most: int = 12) -> Chart:
    """Return a chart of each rival's effect on an alternative's log-probability: in total, and in excess of a logit."""
    require_number("most", most, whole=True, low=1)
    rows = attribution.rivals[:most]
    n = len(rows)
    return Chart(
        marks=(
            Bars(values=attribution.push[:n].tolist(), colours=[GREY] * n, legend="total effect"),
            Bars(values=attribution.beyond[:n].tolist(), colours=[1] * n, legend="excess over a proportional effect"),
        ),
        rows=rows,
        x=Axis(title=f"effect on log p of {attribution.alternative}, p = {attribution.p:.3f}"),
        note=_left_out(len(attribution.rivals) - n),
        inches=row_inches(2 * n),
    )


def draw_attribution(
    attribution: Attribution, path: str | os.PathLike[str], *, most: int = 12, title: str = ""
) -> Path:
    """Draw the total effect of each rival, and its excess over a logit. Write the figure to a file.

    Parameters
    ----------
    attribution
        Result of :func:`pcmcnet.insight.removals.attribution`.
    path
        File to write: .png, .pdf or .svg, in an existing folder.
    most
        Largest number of rivals (default 12).
    title
        Title of the figure (default: none).

    Returns
    -------
    Path
        Path of the written file.

    Raises
    ------
    InputError
        If the path is not valid.
    """
    return _write_chart(attribution_chart(attribution, most=most), path, title)


def plot_attribution(attribution: Attribution, ax: Axes | None = None, *, most: int = 12) -> Axes:
    """Plot the total effect of each rival on an alternative, and its excess over the effect in a logit.

    Parameters
    ----------
    attribution
        Result of :func:`pcmcnet.insight.removals.attribution`.
    ax
        Axes to draw on (default: a new figure).
    most
        Largest number of rivals (default 12).

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.
    """
    return draw_chart(attribution_chart(attribution, most=most), ax)


def rival_changes_figure(attribution: Attribution) -> Figure:
    """Return the report figure of each rival's effect on a probability: in a logit, and in excess of a logit."""
    # 1. Select the rivals with the largest effects, and split each effect into its two parts.
    order = np.argsort(-np.abs(attribution.change), kind="stable")[:_MAX_RIVALS_SHOWN]
    names = [attribution.rivals[k] for k in order]
    beyond = attribution.change_beyond[order]
    parts = {"as in a logit": (attribution.change[order] - beyond, PAGE_GREY), "beyond a logit": (beyond, ORANGE)}
    traces = [
        {
            **horizontal_bars(names[::-1], values[::-1].tolist(), shade),
            "name": name,
            "showlegend": True,
            "hovertemplate": f"%{{y}}, {name}: %{{x:+.3~p}}<extra></extra>",
        }
        for name, (values, shade) in parts.items()
    ]
    # 2. List the effects in a table, and choose the decimals of the axis for the largest effect.
    changes = (attribution.change, attribution.change_beyond)
    rows = [
        [
            attribution.rivals[k],
            *(f"{v[k]:.4g}" for v in (attribution.rival_p, attribution.without)),
            *(f"{v[k]:+.3g}" for v in changes),
        ]
        for k in order
    ]
    decimals = percent_decimals(float(np.abs(attribution.change[order]).max(initial=0.0)))
    rest = len(attribution.rivals) - len(order)
    omitted = f" {rest} rivals with smaller effects are not drawn." if rest else ""
    return Figure(
        traces=tuple(traces),
        layout={
            "xaxis": page_axis(Axis(title="change in probability", ticks=f"+.{decimals + 1}~%")),
            "yaxis": names_axis(),
            "barmode": "relative",
            "showlegend": True,
        },
        caption=(
            f"Effect of each rival on the probability of {attribution.alternative}, which is {percent(attribution.p)}."
            f"{omitted}"
        ),
        numbers=[["rival", "its probability", "without it", "change", "beyond a logit"], *rows],
        height=140 + 26 * len(order),
        narrow=True,
    )


# -- Taste distributions -----------------------------------------------------------------------------------------------


class TasteChart(NamedTuple):
    """The histogram of one random coefficient, without its extreme tails.

    Attributes
    ----------
    title
        Name and distribution of the coefficient.
    edges
        Edges (B + 1,) of the bins.
    density
        Density (B,) in each bin.
    median
        Median of the coefficient.
    note
        Share of negative values, as text.
    classes
        Coefficient and share of each latent class of another model, to compare with.
    """

    title: str
    edges: Floats
    density: Floats
    median: float
    note: str
    classes: tuple[tuple[float, float], ...] = ()


def taste_chart(taste: Taste, values: Floats, classes: Sequence[tuple[float, float]] = ()) -> TasteChart:
    """Compute the histogram of a random coefficient.

    Parameters
    ----------
    taste
        A row of ``model.tastes()``.
    values
        Draws of the coefficient, (R,).
    classes
        Coefficient and share of each latent class. The range of the histogram includes the coefficients.

    Returns
    -------
    TasteChart
        Histogram between the 0.5% and 99.5% quantiles, median and share of negative draws.
    """
    low, high = np.quantile(values, _SHOWN_QUANTILES).tolist()
    low, high = min([low, *(b for b, _ in classes)]), max([high, *(b for b, _ in classes)])
    if low == high:
        low, high = low - 0.5, high + 0.5
    counts, edges = np.histogram(values, _BINS, range=(low, high))
    density = counts / (len(values) * np.diff(edges))
    note = f"{taste.below_0:.0%} below 0" if 0 < taste.below_0 < 1 else f"all {'below' if taste.below_0 else 'above'} 0"
    return TasteChart(f"{taste.name}: {taste.distribution}", edges, density, taste.median, note, tuple(classes))


def draw_taste(chart: TasteChart, axes: Axes) -> Axes:
    """Draw the histogram of one random coefficient, with negative values in the second colour.

    Parameters
    ----------
    chart
        Result of :func:`taste_chart`.
    axes
        Axes to draw on.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.
    """
    # 1. Draw the histogram, its bars coloured by sign.
    middle = (chart.edges[:-1] + chart.edges[1:]) / 2
    colours = [colour(1) if at < 0 else colour(0) for at in middle]
    axes.bar(middle, chart.density, width=np.diff(chart.edges), color=colours, alpha=0.75, linewidth=0)
    # 2. Mark the median, and 0 if it is in the range.
    axes.axvline(chart.median, color=text_colour(), linewidth=1)
    axes.annotate("median", (chart.median, 1), (3, -2), xycoords=("data", "axes fraction"), textcoords="offset points",
                  fontsize=8, va="top", color=text_colour())  # fmt: skip
    if chart.edges[0] < 0 < chart.edges[-1]:
        axes.axvline(0, color=text_colour(), alpha=0.5, linewidth=1, linestyle=":")
    # 3. Mark the latent classes: lines whose heights are proportional to the shares.
    largest = max([share for _, share in chart.classes], default=1.0)
    for value, share in chart.classes:
        height = float(chart.density.max()) * share / largest
        axes.vlines(value, 0, height, color=colour(2), linewidth=2)
        axes.annotate(f"{share:.0%}", (value, height), (0, 2), textcoords="offset points", ha="center", fontsize=8,
                      color=text_colour())  # fmt: skip
    # 4. Add the title and the labels.
    axes.set_title(escape_dollars(chart.title), fontsize=11)
    axes.set(xlabel=f"coefficient ({chart.note})", ylabel="density", ylim=(0, float(chart.density.max()) * 1.12))
    style_axes(axes)
    return axes


def draw_traces(draws: Floats, name: str, ax: Axes | None = None) -> Axes:
    """Plot the draws of a parameter by sweep, with a line for each chain.

    Parameters
    ----------
    draws
        Draws (C, R) of each chain.
    name
        Name of the parameter.
    ax
        Axes to draw on (default: a new figure).
    """
    axes = axes_for(ax, (6.4, 3.0))
    for chain, values in enumerate(draws, start=1):
        axes.plot(values, linewidth=0.6, label=f"chain {chain}")
    axes.set_xlabel("draw")
    axes.set_ylabel(name)
    axes.legend(fontsize="small")
    return axes


def draw_tastes(
    tastes: Tastes,
    name: str | None = None,
    ax: Axes | None = None,
    classes: Mapping[str, Sequence[tuple[float, float]]] | None = None,
) -> Any:
    """Draw the histogram of one random coefficient, or the histograms of all random coefficients.

    Parameters
    ----------
    tastes
        Result of ``model.tastes()``.
    name
        Name of the coefficient (default: all coefficients).
    ax
        Axes to draw one coefficient on (default: a new figure).
    classes
        Coefficients and shares of latent classes to mark, by name (default: none).

    Returns
    -------
    matplotlib.axes.Axes or matplotlib.figure.Figure
        The axes of a single histogram, or the figure with all histograms.

    Raises
    ------
    InputError
        If ``ax`` is given for several coefficients.
    """
    # 1. Compute the histograms.
    marked = classes or {}
    charts = [taste_chart(row, v, marked.get(row.name, ())) for row, v in zip(tastes.rows, tastes.draws, strict=True)]
    if name is not None:
        charts = [charts[tastes.position(name)]]
    # 2. Draw on the axes of the caller, which hold one histogram.
    if ax is not None:
        if len(charts) > 1:
            raise InputError(f"ax has room for one coefficient, got {len(charts)}: select one with name=.")
        return draw_taste(charts[0], ax)
    # 3. Draw on a new figure with one panel for each.
    from matplotlib.figure import Figure as Drawing

    columns = min(len(charts), _MAX_COLUMNS)
    rows = -(-len(charts) // columns)
    figure = Drawing(figsize=(4.2 * columns, 3.1 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for chart, axes in zip(charts, panels, strict=False):
        draw_taste(chart, axes)
    for axes in panels[len(charts) :]:
        axes.set_visible(False)
    return panels[0] if name is not None else figure
