"""Sections -> a Markdown file with the same words and tables; a figure is the table of its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from pcmcnet.errors import visible
from pcmcnet.reports.sections import Block, Facts, Figure, Heading, Section, Table, Tiles, Words
from pcmcnet.reports.tables import escaped, markdown_table


def explanation_markdown(sections: Sequence[Section], *, title: str) -> str:
    """Return the report in Markdown."""
    found = [f"# {escaped(title)}"]
    for section in sections:
        found += [f"## {section.title}", *map(_markdown, section.blocks)]
    return visible("\n\n".join(found) + "\n")


def _markdown(block: Block) -> str:
    match block:
        case Words(text=text, tone=tone):
            return f"**{escaped(text)}**" if tone == "warning" else escaped(text)
        case Heading(text=text):
            return f"### {escaped(text)}"
        case Facts(pairs=pairs):
            return "\n".join(f"- {escaped(name)}: {escaped(str(value))}" for name, value in pairs.items())
        case Tiles(tiles=tiles):
            return "\n".join(
                f"- {escaped(name)}: {escaped(value)} ({escaped(beside)})" for name, value, beside in tiles
            )
        case Table(cells=cells):
            return markdown_table(cells)
        case Figure(caption=caption, numbers=numbers):
            return f"{markdown_table(numbers)}\n\n{escaped(caption)}"
