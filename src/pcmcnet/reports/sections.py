"""What a report is made of: sections of text, facts, tables and figures, before anybody draws or prints them.

A result becomes sections once; ``formats.py`` makes a page, a Markdown file and what a terminal shows of them. A figure
is a plain mapping with ``data`` and ``layout`` as plotly reads them, and never comes without its numbers: a page shows
them below it, a Markdown file instead of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from pcmcnet.reports.tables import Cells, number

Tone = Literal["plain", "note", "warning"]

_FEW = 3  # numbers of a vector, beyond which not all are written
_LONGEST = 60  # letters of a text in a cell
_LONG = 28  # letters of a cell that need no second line


@dataclass(frozen=True)
class Text:
    """A paragraph: plain, in small letters, or one that must not be missed."""

    text: str
    tone: Tone = "plain"
    kind: ClassVar[str] = "text"


def note(text: str) -> Text:
    """A paragraph in small letters."""
    return Text(text, "note")


def warning(text: str) -> Text:
    """A paragraph that must not be missed."""
    return Text(text, "warning")


@dataclass(frozen=True)
class Heading:
    """A heading within a section; where ``folded`` is set, what follows opens and closes by a click on it."""

    text: str
    folded: Literal["open", "closed"] | None = None
    kind: ClassVar[str] = "heading"


@dataclass(frozen=True)
class Code:
    """A command or another text that is to be copied as it is."""

    text: str
    kind: ClassVar[str] = "code"


@dataclass(frozen=True)
class Facts:
    """Names and what is to be said of them."""

    pairs: Mapping[str, object]
    kind: ClassVar[str] = "facts"


@dataclass(frozen=True)
class Tiles:
    """The numbers to see first: name, value, and a word beside it."""

    tiles: tuple[tuple[str, str, str], ...]
    kind: ClassVar[str] = "tiles"


class Point(NamedTuple):
    """A sentence, the figures behind it, and the name of the section where they are."""

    text: str
    figures: str
    section: str


@dataclass(frozen=True)
class Points:
    """What is to be known first, in sentences."""

    points: tuple[Point, ...]
    kind: ClassVar[str] = "points"


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text, the heads first; behind a line to click where ``folded`` gives its words.

    ``strong`` numbers the rows after the heads, from 0, that stand out, and ``rules`` those with a line above. A row
    shorter than the heads, such as that of a failure, ends in a cell that takes the rest of the line.
    """

    cells: Cells
    strong: frozenset[int] = frozenset()
    rules: frozenset[int] = frozenset()
    folded: str | None = None
    kind: ClassVar[str] = "table"

    @property
    def of_words(self) -> list[bool]:
        """Which columns after the first hold texts that may need a second line."""
        head, *body = self.cells
        whole = [row for row in body if len(row) == len(head)]
        return [k > 0 and any(len(row[k]) > _LONG for row in whole) for k in range(len(head))]


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
    kind: ClassVar[str] = "figure"


class Dot(NamedTuple):
    """A value with its interval, on the line of its model."""

    line: int  # index of the model among the labels
    value: float
    low: float  # ends of the interval, which may be infinite; both are the value where there is none
    high: float
    marked: bool  # hollow: of scores, not probabilities, or in-sample


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """One metric of several models, a dot with its interval for each; drawn without a script."""

    metric: str
    caption: str
    labels: tuple[str, ...]
    dots: tuple[Dot, ...]
    best: int | None = None  # index of the model that stands out
    reference: float | None = None  # a dashed line, of the model that tells no alternatives apart
    narrow: bool = True
    kind: ClassVar[str] = "intervals"

    @property
    def limits(self) -> tuple[float, float]:
        """Ends of an axis that holds all that is finite, with a margin."""
        reference = [] if self.reference is None else [self.reference]
        ends = np.array([end for dot in self.dots for end in dot[1:4]] + reference)
        low, high = float(ends[np.isfinite(ends)].min()), float(ends[np.isfinite(ends)].max())
        margin = 0.05 * (high - low) or 0.05
        return low - margin, high + margin

    @property
    def ticks(self) -> list[float]:
        """Round numbers along the axis."""
        from matplotlib.ticker import MaxNLocator

        low, high = self.limits
        return [float(tick) for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]

    def at(self, value: float, left: float, right: float) -> float:
        """Where a value lies on an axis from left to right."""
        return round(float(np.interp(value, self.limits, (left, right))), 1)

    @property
    def numbers(self) -> Cells:
        """The values and intervals as a table."""
        rows = [[self.labels[dot.line], *(f"{value:.4f}" for value in dot[1:4])] for dot in self.dots]
        return [["", self.metric, "low", "high"], *rows]


@dataclass(frozen=True, kw_only=True)
class PictureFile:
    """A PNG file, and the names of files beside it that hold the same picture in other formats, such as PDF."""

    file: Path
    caption: str
    others: tuple[str, ...] = ()
    kind: ClassVar[str] = "picture"


Block = Text | Heading | Code | Facts | Tiles | Points | Table | Figure | Intervals | PictureFile


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a report; ``name`` is its address within the page, and puts it into the contents."""

    title: str
    blocks: tuple[Block, ...]
    name: str | None = None

    @property
    def tables(self) -> list[Cells]:
        """The cells of its tables."""
        return [block.cells for block in self.blocks if isinstance(block, Table)]


class Thumbnail(str):
    """A cell that is a picture: its text stands for it where there are only letters."""

    __slots__ = ("uri",)
    uri: str

    @classmethod
    def of(cls, uri: str, text: str = "picture") -> Thumbnail:
        """Show a picture that lies in a data URI, which is all that a page may load."""
        cell = cls(text)
        cell.uri = uri
        return cell


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
