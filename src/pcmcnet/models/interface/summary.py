"""What a fitted model tells of itself: a title, facts, and a table; text, Markdown, HTML and LaTeX."""

from __future__ import annotations

from dataclasses import dataclass

from pcmcnet.reports.formats import InEveryFormat, Printed


@dataclass(frozen=True, repr=False)
class Summary(InEveryFormat):
    """Facts about a fitted model and a table with one header row."""

    title: str
    facts: dict[str, str]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def _printed(self) -> Printed:
        return Printed(title=self.title, facts=self.facts, cells=[self.header, *self.rows])

    def __repr__(self) -> str:
        return str(self)
