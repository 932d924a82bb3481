"""Plot submarkets as a heat map.

A row for each factor, and a bar for its share of the choices. The columns are the features of the choices that are
reached through each factor, in standard deviations from the mean of all choices, or the alternatives, with their shares
of these choices. Flows have a row for each pair of alternatives, and a column for each factor through which they
exchange choices.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number, require_word
from pcmcnet.errors import InputError
from pcmcnet.insight.submarkets import SubmarketPlot, Submarkets
from pcmcnet.plots.style import axes_for, colour, new_picture
from pcmcnet.reports.tables import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_COLOURED_DIFFERENCE = 2.0  # standard deviations; larger differences have the strongest colour
MIN_COLOURED_DIFFERENCE = 0.5  # the strongest colour, if no difference is larger
MAX_ROWS_AND_COLUMNS = 12
_MAX_LABEL_LENGTH = 22  # characters of a column's name
_BAR_WIDTH = 0.22  # of the bars on the right, relative to the heat map
_CELL_INCHES = (0.62, 0.36)
_NO_NAMES = "several choice sets without labels have no common alternatives: pass a single set, data.subset([0])."


class SubmarketsChart(NamedTuple):
    """The part of the submarkets that is drawn.

    Attributes
    ----------
    rows
        Names of the factors, or of pairs of alternatives, the largest share first.
    columns
        Names of the features, alternatives or factors.
    values
        Values of the cells, (rows, columns).
    shares
        Share of each row in the choices or, for pairs, in all moves.
    title
        What the cells show.
    bar_title
        What the bars show.
    note
        What is left out, or an empty string.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Floats
    shares: Floats
    title: str
    bar_title: str
    note: str


def submarkets_chart(
    submarkets: Submarkets, what: SubmarketPlot = "features", *, most: int = MAX_ROWS_AND_COLUMNS
) -> SubmarketsChart:
    """Select the factors with the largest shares, and the columns that differ most or the most probable alternatives.

    For flows, select the pairs of alternatives that exchange most.

    Parameters
    ----------
    submarkets
        Result of :func:`pcmcnet.submarkets`.
    what
        "features" (the default), "alternatives" or "flows".
    most
        Maximum number of rows and of columns (12 by default).

    Returns
    -------
    SubmarketsChart
        Names, values and shares.

    Raises
    ------
    InputError
        If there is no column to draw.
    ConfigError
        If an option is invalid.
    """
    require_word("what", what, ("features", "alternatives", "flows"))
    require_number("most", most, whole=True, low=1)
    if what == "flows":
        return _flows_chart(submarkets, most)
    # 1. Select columns, in the order of the table.
    if what == "features":
        names, values = submarkets.features_reached.columns, submarkets.features_reached.differences
        size = submarkets.choices @ np.abs(values)
        title = "choices reached through each factor:\nfeatures, in standard deviations from the mean of all choices"
        remedy = "no numeric or categorical feature varies within choice sets: use what='alternatives'."
    else:
        names, values, size = submarkets.alternatives, submarkets.reached, submarkets.probabilities
        title = "choices reached through each factor:\nshares of the alternatives, in per cent"
        remedy = _NO_NAMES
    if not names:
        raise InputError(f"there is no column to draw: {remedy}")
    columns = np.sort(np.argsort(-size, kind="stable")[:most])
    rows = submarkets.order[:most]
    # 2. Note what is left out.
    notes = []
    if len(rows) < submarkets.rank:
        share = percent(float(submarkets.choices[rows].sum()))
        notes.append(f"{len(rows)} of {submarkets.rank} factors are shown, with {share} of the choices")
    if len(columns) < len(names):
        noun = "features and categories" if what == "features" else "alternatives"
        notes.append(f"{len(columns)} of {len(names):,} {noun} are shown")
    return SubmarketsChart(
        rows=tuple(f"factor {k + 1}" for k in rows),
        columns=tuple(names[k] for k in columns),
        values=values[np.ix_(rows, columns)],
        shares=submarkets.choices[rows],
        title=title,
        bar_title="share of choices",
        note="; ".join(notes),
    )


def _flows_chart(submarkets: Submarkets, most: int) -> SubmarketsChart:
    """Select the pairs of alternatives that exchange most, and the factors with the largest shares."""
    names = submarkets.alternatives
    if not names:
        raise InputError(f"there is no pair of alternatives to draw: {_NO_NAMES}")
    # 1. Select pairs that exchange choices, and factors.
    first, second = np.triu_indices(len(names), 1)
    exchanged = submarkets.exchanged[:, first, second].T  # (pairs, r)
    totals = exchanged.sum(axis=1)
    n_pairs = int((totals > 0).sum())
    if not n_pairs:
        raise InputError("there is no pair of alternatives to draw: no choice set has two different alternatives.")
    pairs, factors = np.argsort(-totals, kind="stable")[: min(most, n_pairs)], submarkets.order[:most]
    # 2. Note what is left out.
    notes = []
    if len(pairs) < n_pairs:
        share = percent(float(totals[pairs].sum() / totals.sum()))
        notes.append(f"{len(pairs)} of {n_pairs:,} pairs are shown, with {share} of all exchanges")
    if len(factors) < submarkets.rank:
        notes.append(f"{len(factors)} of {submarkets.rank} factors are shown")
    return SubmarketsChart(
        rows=tuple(f"{_short(names[first[k]])} and {_short(names[second[k]])}" for k in pairs),
        columns=tuple(f"factor {k + 1}" for k in factors),
        values=exchanged[np.ix_(pairs, factors)],
        shares=totals[pairs],
        title="moves between two alternatives, in either direction:\nthrough each factor, in per cent of all moves",
        bar_title="all factors",
        note="; ".join(notes),
    )


def plot_submarkets(
    submarkets: Submarkets,
    ax: Axes | None = None,
    *,
    what: SubmarketPlot = "features",
    most: int = MAX_ROWS_AND_COLUMNS,
) -> Axes:
    """Plot a heat map of the factors, with a bar for the share of each row.

    Parameters
    ----------
    submarkets
        Result of :func:`pcmcnet.submarkets`.
    ax
        Axes to draw on (default: a new figure).
    what
        "features" (the default) for the features of the choices that are reached through each factor, "alternatives"
        for the shares of the alternatives in these choices, or "flows" for the moves between pairs of alternatives.
    most
        Maximum number of rows and of columns (12 by default).

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the heat map. The bars are in axes inside it.

    Raises
    ------
    InputError
        If there is no column to draw.
    ConfigError
        If an option is invalid.
    """
    chart = submarkets_chart(submarkets, what, most=most)
    axes = axes_for(ax, _inches(chart))
    _draw(axes, chart, is_share=what != "features")
    return axes


def draw_submarkets(
    submarkets: Submarkets,
    path: str | os.PathLike[str],
    *,
    what: SubmarketPlot = "features",
    most: int = MAX_ROWS_AND_COLUMNS,
    title: str = "",
) -> Path:
    """Draw a heat map of the factors, and write the figure to a file.

    Parameters
    ----------
    submarkets
        Result of :func:`pcmcnet.submarkets`.
    path
        File to write: .png, .pdf or .svg, in an existing folder.
    what
        "features" (the default), "alternatives" or "flows": see :func:`plot_submarkets`.
    most
        Maximum number of rows and of columns (12 by default).
    title
        Title of the figure (default: none).

    Returns
    -------
    Path
        Path of the written file.

    Raises
    ------
    InputError
        If there is no column to draw, or the path is not valid.
    """
    chart = submarkets_chart(submarkets, what, most=most)
    with new_picture(path, _inches(chart), title=title) as figure:
        _draw(figure.subplots(), chart, is_share=what != "features")
    return Path(path)


def _inches(chart: SubmarketsChart) -> tuple[float, float]:
    """Return the size of a figure with readable cells."""
    width, height = _CELL_INCHES
    return max(6.4, 3.2 + width * len(chart.columns)), max(3.2, 2.4 + height * len(chart.rows))


def _short(name: str) -> str:
    return name if len(name) <= _MAX_LABEL_LENGTH else f"{name[: _MAX_LABEL_LENGTH - 1]}…"


def _draw(axes: Axes, chart: SubmarketsChart, *, is_share: bool) -> None:
    """Draw the cells with their values, and the shares of the rows on the right."""
    # 1. Colour the cells: differences in blue (below the mean) and red (above it), shares in blue.
    limit = np.clip(np.abs(chart.values).max(), MIN_COLOURED_DIFFERENCE, MAX_COLOURED_DIFFERENCE)
    scale = (0.0, max(float(chart.values.max()), 0.01)) if is_share else (-limit, limit)
    image = axes.imshow(
        chart.values, cmap="Blues" if is_share else "RdBu_r", vmin=scale[0], vmax=scale[1], aspect="auto"
    )
    # 2. Write the values, in white on dark cells.
    decimals = 0 if chart.values.max() >= 0.1 else 1
    luminance = np.asarray(image.to_rgba(chart.values))[..., :3] @ (0.3, 0.59, 0.11)
    for (i, j), value in np.ndenumerate(chart.values):
        dark = luminance[i, j] < 0.5
        text = (
            f"{100 * value:.{decimals}f}" if is_share else f"{value:+.1f}".replace("-0.0", "0.0").replace("+0.0", "0.0")
        )
        axes.text(j, i, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    # 3. Label rows and columns.
    names = [_short(name) for name in chart.columns]
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(chart.rows)), chart.rows)
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_parse_math(False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(chart.title, fontsize="medium", loc="left")
    if chart.note:
        axes.set_xlabel(chart.note, fontsize="small", alpha=0.8)
    # 4. Draw the shares as bars at the right of the rows.
    bars = axes.inset_axes((1.02, 0.0, _BAR_WIDTH, 1.0), sharey=axes)
    bars.barh(range(len(chart.rows)), chart.shares, color=colour(0), height=0.7)
    for i, share in enumerate(chart.shares.tolist()):
        bars.annotate(
            percent(share), (share, i), xytext=(3, 0), textcoords="offset points", va="center", fontsize="small"
        )
    bars.set_xlim(0.0, 1.9 * float(chart.shares.max()))  # leaves room for the text
    bars.set_title(chart.bar_title, fontsize="small")
    bars.set_axis_off()
