"""What a notebook shows of a result that is the last line of a cell: a title and blocks, as a part of its page.

A result says what it holds by ``_blocks``, and what it is in one line by ``_short``. The parts of an explanation are
shown as in its report, by the sections that ``pcmcnet.plots`` makes of them. A figure is the table of its numbers:
plots are asked for by methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pcmcnet.reports.html import to_fragment
from pcmcnet.reports.sections import Block, Figure, Intervals, Table
from pcmcnet.reports.tables import keep_short


class InNotebooks:
    """A result with one line in a prompt, and blocks in a notebook."""

    __slots__ = ()

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        keep_short(cls, InNotebooks.__repr__)

    def _short(self) -> str:
        """What it is, in one line."""
        raise NotImplementedError

    def _blocks(self) -> Sequence[Block]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._short()})"

    def _repr_html_(self) -> str:
        return to_fragment(f"{type(self).__name__}: {self._short()}", without_figures(self._blocks()))


class PartOfReport(InNotebooks):
    """A part of an explanation: a notebook shows it as the report does."""

    __slots__ = ()

    def _blocks(self) -> Sequence[Block]:
        from pcmcnet.plots.report import section_of

        return section_of(self).blocks


def without_figures(blocks: Sequence[Block]) -> list[Block]:
    """Return blocks with the table of its numbers, behind a line to click, in the place of each figure."""
    return [
        Table(cells=block.numbers, folded=block.caption) if isinstance(block, Figure | Intervals) else block
        for block in blocks
    ]
