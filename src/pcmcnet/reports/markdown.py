"""Sections -> a Markdown file with the same words and tables; a figure is the table of its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from pcmcnet.errors import visible
from pcmcnet.reports.sections import (
    Block,
    Code,
    Facts,
    Figure,
    Heading,
    Intervals,
    Picture,
    Points,
    Section,
    Table,
    Text,
    Tiles,
)
from pcmcnet.reports.tables import escaped, markdown_table


def to_markdown(title: str, sections: Sequence[Section]) -> str:
    """Return the report in Markdown; pictures are named by their files."""
    found = [f"# {escaped(title)}"]
    for section in sections:
        found += [f"## {escaped(section.title)}"] if section.title else []
        found += map(_markdown, section.blocks)
    return visible("\n\n".join(found) + "\n")


def _markdown(block: Block) -> str:
    match block:
        case Text(text, tone):
            return f"**{escaped(text)}**" if tone == "warning" else escaped(text)
        case Heading(text):
            return f"### {escaped(text)}"
        case Code(text):
            return f"```text\n{text}\n```"
        case Facts(pairs):
            return "\n".join(f"- {escaped(name)}: {escaped(str(value))}" for name, value in pairs.items())
        case Tiles(tiles):
            return "\n".join(f"- {escaped(name)}: {escaped(value)} ({escaped(word)})" for name, value, word in tiles)
        case Points(points):
            return "\n".join(f"- {escaped(point.text)} ({escaped(point.figures)})" for point in points)
        case Table(cells=cells):
            return markdown_table(cells)
        case Figure(caption=caption, numbers=numbers) | Intervals(caption=caption, numbers=numbers):
            return f"{markdown_table(numbers)}\n\n{escaped(caption)}"
        case Picture(file=file, caption=caption, others=others):
            links = ", ".join(f"[{name}]({name})" for name in others)
            return f"![{escaped(caption)}]({file.name})" + (f"\n\nAlso as {links}." if links else "")
