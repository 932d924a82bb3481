"""A result that is facts, one table and notes, in every format: text, Markdown, HTML, LaTeX, and shown by a notebook.

The result says once what it holds, as :class:`Printed`; how that is written is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pcmcnet.errors import visible
from pcmcnet.reports.html import to_fragment
from pcmcnet.reports.latex import latex_table
from pcmcnet.reports.markdown import to_markdown
from pcmcnet.reports.sections import Block, Facts, Section, Table, note
from pcmcnet.reports.tables import Cells, fitting, text_table

_LONG = 40  # letters of a fact that still stands in a line of a table


@dataclass(frozen=True, kw_only=True)
class Printed:
    """What is to be written; ``rules`` are the rows after the heads, from 0, with a line above."""

    title: str
    cells: Cells
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    rules: frozenset[int] = frozenset()

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The same as the parts of a report."""
        facts = [Facts(self.facts)] if self.facts else []
        return (*facts, Table(cells=self.cells, rules=self.rules), *map(note, self.notes))


class InEveryFormat:
    """What a result can be written as; a subclass says what it holds."""

    __slots__ = ()

    def _printed(self) -> Printed:
        raise NotImplementedError

    def __str__(self) -> str:
        printed = self._printed()
        width = max(map(len, printed.facts), default=0)
        lines = [printed.title, "=" * len(printed.title)]
        lines += [f"{name:<{width}}  {value}" for name, value in printed.facts.items()]
        notes = ["", *printed.notes] if printed.notes else []
        return visible("\n".join([*lines, "", text_table(printed.cells, printed.rules), *notes]))

    def to_markdown(self) -> str:
        """Return title, facts, table and notes in Markdown."""
        printed = self._printed()
        return to_markdown(printed.title, [Section(title="", blocks=printed.blocks)])

    def to_html(self) -> str:
        """Return title, facts, table and notes as a part of an HTML page; every text is escaped."""
        printed = self._printed()
        return to_fragment(printed.title, printed.blocks)

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_latex(self, *, caption: str | None = None, label: str | None = None) -> str:
        """Return the table for LaTeX, facts below the rows; the preamble needs the package booktabs and no other.

        Parameters
        ----------
        caption, label
            With one of them, the table is inside a ``table`` environment.
        """
        printed = self._printed()
        short = {name: value for name, value in printed.facts.items() if len(value) <= _LONG}
        long = [f"{name}: {value}" for name, value in printed.facts.items() if len(value) > _LONG]
        return latex_table(
            printed.cells,
            rules=printed.rules,
            facts=short,
            notes=[*long, *printed.notes],
            caption=caption,
            label=label,
        )


@dataclass(frozen=True, repr=False)
class Summary(InEveryFormat):
    """What a fitted model tells of itself: a title, facts, and a table with one header row."""

    title: str
    facts: dict[str, str]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def _printed(self) -> Printed:
        return Printed(title=self.title, facts=self.facts, cells=[self.header, *self.rows])

    def __repr__(self) -> str:
        return str(self)


def in_plain_letters(*results: object, width: int | None = None) -> str:
    """Write results one below the other, a line between two staying empty; tables are no wider than ``width``."""
    with fitting(width):
        return "\n\n".join(map(str, results))
