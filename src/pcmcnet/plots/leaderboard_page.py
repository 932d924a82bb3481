"""A leaderboard -> one HTML page: the verdict, the standings with their picture, and the comparison on each table."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from pcmcnet.evaluation.standings import Leaderboard
from pcmcnet.evaluation.table_result import TableResult
from pcmcnet.plots.leaderboard import plot_leaderboard
from pcmcnet.reports.html import to_html, write_html
from pcmcnet.reports.sections import Block, Picture, Section, Table, Text, note


def write_leaderboard_page(board: Leaderboard, path: str | os.PathLike[str], *, title: str = "Leaderboard") -> Path:
    """Write the page of a leaderboard.

    Parameters
    ----------
    board
        What :func:`pcmcnet.leaderboard` returned.
    path, title
        As for :func:`pcmcnet.plots.write_comparison_page`.
    """
    return write_html(leaderboard_page(board, title=title), path)


def leaderboard_page(board: Leaderboard, *, title: str = "Leaderboard") -> str:
    """Return the page as text."""
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


def _picture(board: Leaderboard, file: Path) -> list[Picture]:
    """Draw the mean ranks, where there are some to compare."""
    if len(board.models) < 2 or not board.ranked():
        return []
    plot_leaderboard(board, path=file)
    return [Picture(file=file, caption="Mean ranks; bars join models that are not told apart.")]


def _section(result: TableResult) -> Section:
    found = result.comparison
    notes = map(note, (found.how, *found.notes))
    blocks: list[Block] = [Text(found.verdict), Table(cells=found.cells()), *notes]
    return Section(name=f"table-{result.name}", title=result.name, blocks=tuple(blocks))
