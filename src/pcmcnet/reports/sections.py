"""The elements of a report, independent of the output format: sections of text, facts, tables and figures.

A result is turned into sections once. ``formats.py`` renders sections as an HTML page, as Markdown or as plain text. A
figure holds plotly traces and a layout, and always comes with a table of its values. A page shows this table below the
figure, and a Markdown file shows it instead of the figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from pcmcnet.reports.tables import Cells, number

Tone = Literal["plain", "note", "warning"]

_MAX_NUMBERS = 3  # a longer vector is abbreviated
_MAX_CELL_LENGTH = 60  # characters; longer text is cut
_MAX_LINE_LENGTH = 28  # characters; a column with longer cells wraps


@dataclass(frozen=True)
class Text:
    """A paragraph: plain, a note in small print, or a warning."""

    text: str
    tone: Tone = "plain"
    kind: ClassVar[str] = "text"


def note(text: str) -> Text:
    """Return a paragraph in small print."""
    return Text(text, "note")


def warning(text: str) -> Text:
    """Return a highlighted paragraph."""
    return Text(text, "warning")


@dataclass(frozen=True)
class Heading:
    """A heading within a section. If ``folded`` is set, a click on the heading shows or hides the next blocks."""

    text: str
    folded: Literal["open", "closed"] | None = None
    kind: ClassVar[str] = "heading"


@dataclass(frozen=True)
class Code:
    """A command or other text, printed verbatim."""

    text: str
    kind: ClassVar[str] = "code"


@dataclass(frozen=True)
class Facts:
    """A list of names with their values."""

    pairs: Mapping[str, object]
    kind: ClassVar[str] = "facts"


@dataclass(frozen=True)
class Tiles:
    """Key figures at the top of a report: name, value and a short remark."""

    tiles: tuple[tuple[str, str, str], ...]
    kind: ClassVar[str] = "tiles"


class Point(NamedTuple):
    """A finding: a sentence, the numbers that support it, and the name of the section with the details."""

    text: str
    figures: str
    section: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Points:
    """The main findings, one sentence each."""

    points: tuple[Point, ...]
    kind: ClassVar[str] = "points"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of text cells, the header row first.

    ``strong`` contains the indices of bold rows, and ``rules`` the indices of rows with a line above them, both counted
    from 0 after the header. In a row with fewer cells than the header, such as the row of a failed model, the last cell
    spans the remaining columns. If ``folded`` is a string, the table is hidden until the reader clicks on this text.
    """

    cells: Cells
    strong: frozenset[int] = frozenset()
    rules: frozenset[int] = frozenset()
    folded: str | None = None
    kind: ClassVar[str] = "table"

    @property
    def wraps(self) -> list[bool]:
        """Whether each column has long text that may wrap. The first column never wraps."""
        head, *body = self.cells
        full = [row for row in body if len(row) == len(head)]
        return [k > 0 and any(len(row[k]) > _MAX_LINE_LENGTH for row in full) for k in range(len(head))]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A plotly figure with its caption and a table of its values."""

    traces: tuple[Mapping[str, Any], ...]
    caption: str
    numbers: Cells
    layout: Mapping[str, Any] = field(default_factory=dict)
    height: int = 360  # in pixels
    narrow: bool = False  # True if half the width of a wide page is enough
    square: bool = False  # True to limit the height to the width of a narrow screen
    kind: ClassVar[str] = "figure"


class Dot(NamedTuple):
    """A value with its interval, in the row of its model."""

    line: int  # index of the model in the labels
    value: float
    low: float  # ends of the interval, possibly infinite; both equal the value if there is no interval
    high: float
    marked: bool  # drawn hollow: the value is in-sample, or from scores that are not probabilities


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """One metric of several models, each with a value and an interval. A page draws them as SVG, without a script."""

    metric: str
    caption: str
    labels: tuple[str, ...]
    dots: tuple[Dot, ...]
    best: int | None = None  # index of the highlighted model
    reference: float | None = None  # value of the uniform model, drawn as a dashed line
    narrow: bool = True
    kind: ClassVar[str] = "intervals"

    @property
    def limits(self) -> tuple[float, float]:
        """Limits of an axis that contains all finite values, with a margin."""
        reference = [] if self.reference is None else [self.reference]
        ends = np.array([end for dot in self.dots for end in dot[1:4]] + reference)
        low, high = float(ends[np.isfinite(ends)].min()), float(ends[np.isfinite(ends)].max())
        margin = 0.05 * (high - low) or 0.05
        return low - margin, high + margin

    @property
    def ticks(self) -> list[float]:
        """Ticks at round numbers along the axis."""
        from matplotlib.ticker import MaxNLocator

        low, high = self.limits
        return [float(tick) for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]

    def position(self, value: float, left: float, right: float) -> float:
        """Return the coordinate of a value on an axis drawn from ``left`` to ``right``."""
        return round(float(np.interp(value, self.limits, (left, right))), 1)

    @property
    def numbers(self) -> Cells:
        """The values and intervals as a table."""
        rows = [[self.labels[dot.line], *(f"{value:.4f}" for value in dot[1:4])] for dot in self.dots]
        return [["", self.metric, "low", "high"], *rows]


@dataclass(frozen=True, kw_only=True)
class PictureFile:
    """A PNG file, and the names of files in the same folder with the same picture in other formats, such as PDF."""

    file: Path
    caption: str
    others: tuple[str, ...] = ()
    kind: ClassVar[str] = "picture"


Block = Text | Heading | Code | Facts | Tiles | Points | Table | Figure | Intervals | PictureFile


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a report. A section with a ``name``, which serves as its anchor, is in the table of contents.

    A page hides the contents of a ``folded`` section, which is for specialists, until the reader clicks on its title.
    """

    title: str
    blocks: tuple[Block, ...]
    name: str | None = None
    folded: bool = False

    @property
    def tables(self) -> list[Cells]:
        """The cells of all tables in the section."""
        return [block.cells for block in self.blocks if isinstance(block, Table)]


class Thumbnail(str):
    """A table cell that is an image. Text formats show the text of the cell instead."""

    __slots__ = ("uri",)
    uri: str

    @classmethod
    def of(cls, uri: str, text: str = "picture") -> Thumbnail:
        """Return a cell with an image from a data URI, the only kind of image that a page may load."""
        cell = cls(text)
        cell.uri = uri
        return cell


def format_cell(value: Any) -> str:
    """Return a value as a table cell: a number, a word, a shortened text or list, or an image.

    Examples
    --------
    >>> (
    ...     format_cell(0.123456),
    ...     format_cell(None),
    ...     format_cell([0.25, 2, 3.5, 4]),
    ...     format_cell(["wifi", "pool"]),
    ...     format_cell([]),
    ... )
    ('0.1235', '-', '0.25, 2, … (4)', 'wifi, pool', 'none')
    """
    if isinstance(value, str):
        return Thumbnail.of(value) if is_image_uri(value) else _shorten(value)
    if not isinstance(value, list):
        return number(value)
    if value and not isinstance(value[0], str) and len(value) > _MAX_NUMBERS:
        return f"{', '.join(map(number, value[: _MAX_NUMBERS - 1]))}, … ({len(value):,})"
    return _shorten(", ".join(map(number, value))) or "none"


def is_image_uri(value: Any) -> bool:
    """Return True if the value is an image in a data URI."""
    return isinstance(value, str) and value.startswith("data:image/")


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_CELL_LENGTH else f"{text[: _MAX_CELL_LENGTH - 1]}…"
