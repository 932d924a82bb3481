"""What a report is made of: sections of words, facts, tables and figures, before anybody draws or prints them.

A figure is a plain mapping with ``data`` and ``layout`` as plotly reads them, and never comes without its numbers: a
page shows them below it, a Markdown file instead of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pcmcnet.reports.html import Thumbnail
from pcmcnet.reports.tables import Cells, number, percent

__all__ = [
    "Block",
    "Facts",
    "Figure",
    "Heading",
    "Section",
    "Table",
    "Tiles",
    "Tone",
    "Words",
    "brief",
    "is_picture",
    "note",
    "number",
    "percent",
    "warning",
    "words",
]

Tone = Literal["plain", "note", "warning"]

_FEW = 3  # numbers of a vector, beyond which not all are written
_LONGEST = 60  # letters of a text in a cell


@dataclass(frozen=True, kw_only=True)
class Words:
    """A paragraph: plain, in small letters, or one that must not be missed."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Names and what is to be said of them."""

    pairs: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """The numbers to see first: name, value, and a word beside it."""

    tiles: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text, the heads first; behind a line to click where ``folded`` gives its words."""

    cells: Cells
    strong: frozenset[int] = frozenset()
    folded: str | None = None


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A plotly figure, what is to be seen in it, and its numbers."""

    traces: tuple[Mapping[str, Any], ...]
    caption: str
    numbers: Cells
    layout: Mapping[str, Any] = field(default_factory=dict)
    height: int = 360  # in pixels
    narrow: bool = False  # whether half the width of a wide page is enough
    square: bool = False  # whether it is to be no higher than a narrow screen is wide


Block = Words | Heading | Facts | Tiles | Table | Figure


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the report; ``name`` is its address within the page."""

    name: str
    title: str
    blocks: tuple[Block, ...]


def brief(value: Any) -> str:
    """Write a value for a cell: a number, a word, the beginning of a long text or list, or a picture as such.

    Examples
    --------
    >>> brief(0.123456), brief(None), brief([0.25, 2, 3.5, 4]), brief(["wifi", "pool"]), brief([])
    ('0.1235', '-', '0.25, 2, … (4)', 'wifi, pool', 'none')
    """
    if isinstance(value, str):
        return Thumbnail.of(value) if is_picture(value) else _cut(value)
    if not isinstance(value, list):
        return number(value)
    if value and not isinstance(value[0], str) and len(value) > _FEW:
        return f"{', '.join(map(number, value[: _FEW - 1]))}, … ({len(value):,})"
    return _cut(", ".join(map(number, value))) or "none"


def is_picture(value: Any) -> bool:
    """Tell a picture, which comes as a data URI."""
    return isinstance(value, str) and value.startswith("data:image/")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def words(text: str) -> Words:
    """A plain paragraph."""
    return Words(text=text)


def note(text: str) -> Words:
    """A paragraph in small letters."""
    return Words(text=text, tone="note")


def warning(text: str) -> Words:
    """A paragraph that must not be missed."""
    return Words(text=text, tone="warning")
