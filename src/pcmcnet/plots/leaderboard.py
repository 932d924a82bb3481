"""The critical-difference diagram of a leaderboard (Demsar, 2006), and its HTML page.

The diagram shows mean ranks on a line, with the best model on the left. A bar joins models whose mean ranks differ by
less than the critical distance, so the difference between them is not significant.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from pcmcnet.errors import InputError
from pcmcnet.evaluation.leaderboard_entries import Use
from pcmcnet.evaluation.standings import Leaderboard, TableResult, groups_within_distance
from pcmcnet.plots.style import (
    colour,
    enable_notebook_display,
    escape_dollars,
    require_picture_path,
    save_picture,
    text_colour,
)
from pcmcnet.reports.formats import to_html, write_html
from pcmcnet.reports.sections import Block, PictureFile, Section, Table, Text, note

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class RankBar(NamedTuple):
    """A group of models whose ranks do not differ significantly."""

    first: int  # indices in the labels of the chart
    last: int
    level: int  # 0 is nearest to the line; bars of one level do not overlap


class RankChart(NamedTuple):
    """The values in the diagram of a leaderboard.

    Attributes
    ----------
    labels
        Names of the models, the best first.
    mean_ranks
        Mean rank of each model over the tables.
    n_tables
        Number of tables.
    critical_distance
        Smallest significant difference between two mean ranks.
    bars
        Groups of models whose ranks do not differ significantly.
    """

    labels: tuple[str, ...]
    mean_ranks: tuple[float, ...]
    n_tables: int
    critical_distance: float
    bars: tuple[RankBar, ...]


def rank_chart(board: Leaderboard, use: Use | None = None) -> RankChart:
    """Return the mean ranks of a leaderboard and the groups of models that do not differ significantly.

    Parameters
    ----------
    board
        Result of :func:`pcmcnet.leaderboard`.
    use
        Use only tables of this kind (default: all tables).

    Returns
    -------
    RankChart
        Labels, mean ranks, critical distance and groups.

    Raises
    ------
    InputError
        If there are fewer than two models, or no ranked table.
    """
    standings, n_tables = board.standings(use), len(board.ranked(use))
    if len(board.models) < 2 or not n_tables:
        counts = f"{len(board.models)} and {n_tables}"
        raise InputError(f"ranks need at least two models and one table, got {counts}.")
    means = tuple(standing.mean_rank for standing in standings)
    distance = board.critical_distance(use)
    bars = _levels(groups_within_distance(means, distance))
    return RankChart(tuple(standing.model for standing in standings), means, n_tables, distance, bars)


def _levels(groups: list[tuple[int, int]]) -> tuple[RankBar, ...]:
    """Assign each bar the lowest level on which it does not overlap the previous bar."""
    ends: list[int] = []
    bars = []
    for first, last in groups:
        level = next((k for k, end in enumerate(ends) if end < first), len(ends))
        ends[level : level + 1] = [last]
        bars.append(RankBar(first, last, level))
    return tuple(bars)


def draw_ranks(chart: RankChart) -> Figure:
    """Draw the critical-difference diagram: the line of ranks, the models, and bars that join groups.

    Parameters
    ----------
    chart
        Result of :func:`rank_chart`.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 1.1 + 0.28 * sum(_heights(chart))), layout="constrained")
    _draw_ranks(figure.subplots(), chart)
    return figure


def _heights(chart: RankChart) -> tuple[int, float]:
    """Return the number of rows of model names, and the height of the bars above these rows."""
    levels = max((bar.level for bar in chart.bars), default=-1) + 1
    return (len(chart.labels) + 1) // 2, 0.5 * levels + 0.4


def _draw_ranks(axes: Axes, chart: RankChart) -> None:
    # 1. Draw the line of ranks above all names.
    k = len(chart.labels)
    left, below = _heights(chart)  # the better half has its names on the left, the others on the right
    axes.set_xlim(1 - 0.02 * k, k + 0.02 * k)
    axes.set_ylim(left + below + 0.4, -2.2)
    axes.axis("off")
    _draw_line(axes, k, chart.critical_distance)
    # 2. Draw each model at the end of a line from its rank, the best in the second colour.
    for position, (label, rank) in enumerate(zip(chart.labels, chart.mean_ranks, strict=True)):
        on_left = position < left
        height = below + (position if on_left else k - 1 - position) + 0.4
        edge = 1.0 if on_left else float(k)
        shade = colour(1) if position == 0 else text_colour()
        axes.plot([rank, rank, edge], [0, height, height], color=shade, linewidth=0.9, solid_joinstyle="miter")
        name = escape_dollars(label)
        text, side = (f"{name}  {rank:.2f} ", "right") if on_left else (f" {rank:.2f}  {name}", "left")
        axes.text(edge, height, text, ha=side, va="center")
    # 3. Draw the bars that join groups of models.
    for bar in chart.bars:
        height = 0.4 + 0.5 * bar.level
        ends = [chart.mean_ranks[bar.first] - 0.03, chart.mean_ranks[bar.last] + 0.03]
        axes.plot(ends, [height, height], color=colour(0), linewidth=3.5, solid_capstyle="round")
    noun = "table" if chart.n_tables == 1 else "tables"
    title = f"mean rank over {chart.n_tables} {noun}; bars join models without a significant difference"
    axes.set_title(title, fontsize="medium")


def _draw_line(axes: Axes, k: int, distance: float) -> None:
    """Draw the line of ranks from 1 to k, with the critical distance above it."""
    axes.plot([1, k], [0, 0], color=text_colour(), linewidth=1)
    for rank in range(1, k + 1):
        axes.plot([rank, rank], [0, -0.25], color=text_colour(), linewidth=1)
        axes.text(rank, -0.4, str(rank), ha="center", va="bottom", fontsize="small")
    ends = [1, 1 + min(distance, k - 1)]
    axes.plot(ends, [-1.4, -1.4], color=text_colour(), alpha=0.7, linewidth=1, marker="|", markersize=6)
    axes.text(1, -1.55, f"critical distance {distance:.2f}", ha="left", va="bottom", fontsize="small", alpha=0.8)


def plot_leaderboard(
    board: Leaderboard, use: Use | None = None, path: str | Path | None = None, ax: Axes | None = None
) -> Axes | Figure:
    """Plot the critical-difference diagram of a leaderboard. If a path is given, write the diagram to a file.

    Parameters
    ----------
    board
        Result of :func:`pcmcnet.leaderboard`.
    use
        Use only tables of this kind (default: all tables).
    path
        File to write: .png, .pdf or .svg, in an existing folder (default: write no file).
    ax
        Axes to draw on (default: a new figure).

    Returns
    -------
    matplotlib.axes.Axes or matplotlib.figure.Figure
        The axes if ``ax`` is given, else the figure.

    Raises
    ------
    InputError
        If there are fewer than two models, no ranked table, or the path is not valid.
    """
    target, chart = None if path is None else require_picture_path(path), rank_chart(board, use)
    if ax is not None:
        _draw_ranks(ax, chart)
        return ax
    figure = draw_ranks(chart)
    if target is None:
        enable_notebook_display()
    else:
        save_picture(figure, target)
    return figure


# -- Page --------------------------------------------------------------------------------------------------------------


def write_leaderboard_page(board: Leaderboard, path: str | os.PathLike[str], *, title: str = "Leaderboard") -> Path:
    """Write the HTML page of a leaderboard.

    Parameters
    ----------
    board
        Result of :func:`pcmcnet.leaderboard`.
    path
        File to write, with the ending .html.
    title
        Heading of the page (default "Leaderboard").

    Returns
    -------
    Path
        Path of the written file.

    Raises
    ------
    InputError
        If the file name does not end in .html.
    """
    return write_html(leaderboard_page(board, title=title), path)


def leaderboard_page(board: Leaderboard, *, title: str = "Leaderboard") -> str:
    """Return the HTML page of a leaderboard.

    Parameters
    ----------
    board
        Result of :func:`pcmcnet.leaderboard`.
    title
        Heading of the page (default "Leaderboard").

    Returns
    -------
    str
        A self-contained HTML page.
    """
    best = frozenset({0} if board.standings() else ())
    first: list[Block] = [Text(board.verdict), note(board.how), Table(cells=board.standing_cells(), strong=best)]
    tables: list[Block] = [Table(cells=board.nll_cells()), *map(note, board.notes)]
    with TemporaryDirectory() as folder:
        sections = [
            Section(title="", blocks=(*first, *_picture(board, Path(folder) / "ranks.png"))),
            Section(name="tables", title="NLL on every table", blocks=tuple(tables)),
            *map(_section, board.tables),
        ]
        return to_html(title, sections)


def _picture(board: Leaderboard, file: Path) -> list[PictureFile]:
    """Draw the mean ranks if there are at least two models and one ranked table."""
    if len(board.models) < 2 or not board.ranked():
        return []
    plot_leaderboard(board, path=file)
    return [PictureFile(file=file, caption="Mean ranks; bars join models without a significant difference.")]


def _section(result: TableResult) -> Section:
    comparison = result.comparison
    notes = map(note, (comparison.how, *comparison.notes))
    blocks: list[Block] = [Text(comparison.verdict), Table(cells=comparison.cells()), *notes]
    return Section(name=f"table-{result.name}", title=result.name, blocks=tuple(blocks))
