"""Sections -> what a terminal shows: paragraphs, tables and notes, without titles and figures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from pcmcnet.errors import visible
from pcmcnet.reports.sections import Section, Table, Text
from pcmcnet.reports.tables import text_table


def to_text(title: str, sections: Sequence[Section]) -> str:
    """Return the report in plain letters; notes that follow each other stand on lines of their own."""
    parts = [title]
    shown = [block for section in sections for block in section.blocks if isinstance(block, Text | Table)]
    for is_note, blocks in groupby(shown, key=lambda block: isinstance(block, Text) and block.tone == "note"):
        words = [block.text if isinstance(block, Text) else text_table(block.cells) for block in blocks]
        parts += ["\n".join(words)] if is_note else words
    return visible("\n\n".join(parts))
