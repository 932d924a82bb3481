"""Sections and results -> every format: text, Markdown, HTML, LaTeX, a data frame, and what a notebook shows.

    HTML        one page that is whole in itself: nothing is fetched, and a content security policy forbids it. It
                follows the reader's light or dark mode, fits a phone and prints. Where it has figures of plotly,
                plotly's script lies in it; without scripts, each such figure is the table of its numbers. The markup is
                in `templates`; every text is escaped there, and what a terminal would obey is written out.
    Markdown    the same words and tables; a figure is the table of its numbers
    text        what a terminal shows: paragraphs, tables and notes, without titles and figures
    notebook    a title and blocks. A result says what it holds by `_blocks`, and what it is in one line by `_short`;
                parts of an explanation are shown by the sections that `pcmcnet.plots` makes of them.

A result of facts, one table and notes says once what it holds, as :class:`ResultContent`; how that is written is the
same for all of them. A data frame needs pandas, which is not among what pcmcnet needs.
"""

from __future__ import annotations

import json
import math
import os
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from pcmcnet.errors import ConfigError, InputError, printable
from pcmcnet.reports.sections import (
    Block,
    Code,
    Facts,
    Figure,
    Heading,
    Intervals,
    PictureFile,
    Points,
    Section,
    Table,
    Text,
    Tiles,
    note,
)
from pcmcnet.reports.tables import Cells, escaped, fitting, keep_short, latex_table, markdown_table, text_table
from pcmcnet.storage import write_bytes

if TYPE_CHECKING:
    from jinja2 import Environment

# -- Data frames -------------------------------------------------------------------------------------------------------


def data_frame(table: pa.Table, *, index: str | None = None, asked: str = "to_frame", instead: str = "") -> Any:
    """Return a table as a pandas data frame.

    Parameters
    ----------
    table
        The columns.
    index
        Name of the one that becomes the index.
    asked, instead
        For the message where pandas is missing: the method that was called, and what to use without it.
    """
    if find_spec("pandas") is None:
        other = f", or use {instead}" if instead else ""
        raise InputError(f"{asked} needs pandas, which is not installed: pip install pandas{other}.")
    frame = table.to_pandas()
    return frame if index is None else frame.set_index(index)


# -- Html --------------------------------------------------------------------------------------------------------------


def to_html(title: str, sections: Sequence[Section]) -> str:
    """Return the page as text.

    Raises
    ------
    ConfigError
        When there are figures and plotly, whose script goes into the page, is not installed.
    """
    drawn = any(isinstance(block, Figure) for section in sections for block in section.blocks)
    library = plotly_script() if drawn else None
    return _templates().get_template("report.html.jinja").render(title=title, sections=sections, library=library)


def to_fragment(title: str, blocks: Sequence[Block]) -> str:
    """Return blocks without figures as a part of a page, such as a notebook's, whose colours and letters it takes."""
    return _templates().get_template("fragment.html.jinja").render(title=title, blocks=blocks)


def write_html(text: str, path: str | os.PathLike[str]) -> Path:
    """Write a page, whole or not at all; refuses a name that does not end in .html."""
    target = Path(path)
    if target.suffix.lower() != ".html":
        raise InputError(f"expected a file name that ends in .html, got {target.name!r}.")
    write_bytes(target, text.encode())
    return target


def plotly_script() -> str:
    """Return plotly's JavaScript, out of the installed package; the package itself is not loaded."""
    found = find_spec("plotly")
    if found is None or found.origin is None:
        raise ConfigError("a report with figures needs plotly: pip install plotly, or 'pcmcnet[serve]'.")
    text = (Path(found.origin).parent / "package_data" / "plotly.min.js").read_text("utf-8")
    return text.replace("</script", "<\\/script")


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("pcmcnet.reports"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        extensions=["jinja2.ext.loopcontrols"],
    )
    templates.policies["json.dumps_function"] = _json
    templates.filters["lines"] = _lines
    templates.filters["base64"] = lambda file: b64encode(file.read_bytes()).decode()
    templates.globals["Table"] = Table
    return templates


def _shown(value: Any) -> Any:
    """Write out what a terminal would obey; what is markup already, such as plotly's script, stays as it is."""
    return value if hasattr(value, "__html__") else printable(str(value))


def _json(value: Any, **_: Any) -> str:
    """Write JSON without what is not visible; of that, Python's own leaves DEL as it is."""
    return json.dumps(value, allow_nan=False).replace("\x7f", "\\u007f")


def _lines(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Yield what shares a line of the page: neighbouring figures that need half of it, and each other block alone."""
    for narrow, group in groupby(blocks, key=lambda block: getattr(block, "narrow", False)):
        together = list(group)
        yield from [together] if narrow else ([block] for block in together)


# -- Markdown ----------------------------------------------------------------------------------------------------------


def to_markdown(title: str, sections: Sequence[Section]) -> str:
    """Return the report in Markdown; pictures are named by their files."""
    found = [f"# {escaped(title)}"]
    for section in sections:
        found += [f"## {escaped(section.title)}"] if section.title else []
        found += map(_markdown, section.blocks)
    return printable("\n\n".join(found) + "\n")


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
        case PictureFile(file=file, caption=caption, others=others):
            links = ", ".join(f"[{name}]({name})" for name in others)
            return f"![{escaped(caption)}]({file.name})" + (f"\n\nAlso as {links}." if links else "")


# -- Text --------------------------------------------------------------------------------------------------------------


def to_text(title: str, sections: Sequence[Section]) -> str:
    """Return the report in plain letters; notes that follow each other stand on lines of their own."""
    parts = [title]
    shown = [block for section in sections for block in section.blocks if isinstance(block, Text | Table)]
    for is_note, blocks in groupby(shown, key=lambda block: isinstance(block, Text) and block.tone == "note"):
        words = [block.text if isinstance(block, Text) else text_table(block.cells) for block in blocks]
        parts += ["\n".join(words)] if is_note else words
    return printable("\n\n".join(parts))


# -- Notebook ----------------------------------------------------------------------------------------------------------


class NotebookMixin:
    """A result with one line in a prompt, and blocks in a notebook."""

    __slots__ = ()

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        keep_short(cls, NotebookMixin.__repr__)

    def _short(self) -> str:
        """What it is, in one line."""
        raise NotImplementedError

    def _blocks(self) -> Sequence[Block]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._short()})"

    def _repr_html_(self) -> str:
        return to_fragment(f"{type(self).__name__}: {self._short()}", without_figures(self._blocks()))


class ReportPartMixin(NotebookMixin):
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


# -- Formats -----------------------------------------------------------------------------------------------------------


_LONG = 40  # letters of a fact that still stands in a line of a table


@dataclass(frozen=True, kw_only=True)
class ResultContent:
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


class FormatsMixin:
    """What a result can be written as; a subclass says what it holds."""

    __slots__ = ()

    def _content(self) -> ResultContent:
        raise NotImplementedError

    def __str__(self) -> str:
        printed = self._content()
        width = max(map(len, printed.facts), default=0)
        lines = [printed.title, "=" * len(printed.title)]
        lines += [f"{name:<{width}}  {value}" for name, value in printed.facts.items()]
        notes = ["", *printed.notes] if printed.notes else []
        return printable("\n".join([*lines, "", text_table(printed.cells, printed.rules), *notes]))

    def to_markdown(self) -> str:
        """Return title, facts, table and notes in Markdown."""
        printed = self._content()
        return to_markdown(printed.title, [Section(title="", blocks=printed.blocks)])

    def to_html(self) -> str:
        """Return title, facts, table and notes as a part of an HTML page; every text is escaped."""
        printed = self._content()
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
        printed = self._content()
        short = {name: value for name, value in printed.facts.items() if len(value) <= _LONG}
        long = [f"{name}: {value}" for name, value in printed.facts.items() if len(value) > _LONG]
        return latex_table(
            printed.cells, rules=printed.rules, facts=short, notes=[*long, *printed.notes], caption=caption, label=label
        )


@dataclass(frozen=True, repr=False)
class Summary(FormatsMixin):
    """What a fitted model tells of itself: a title, facts, and a table with one header row."""

    title: str
    facts: dict[str, str]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def _content(self) -> ResultContent:
        return ResultContent(title=self.title, facts=self.facts, cells=[self.header, *self.rows])

    def __repr__(self) -> str:
        return str(self)


def in_plain_letters(*results: object, width: int | None = None) -> str:
    """Write results one below the other, a line between two staying empty; tables are no wider than ``width``."""
    with fitting(width):
        return "\n\n".join(map(str, results))


# -- Plain values ------------------------------------------------------------------------------------------------------


def to_json(value: Any) -> Any:
    """Return plain dicts, lists, numbers and words; what is infinite or not a number becomes None.

    A dataclass becomes the dict of its fields, or what its method ``to_dict`` returns.

    Examples
    --------
    >>> to_json({"law": (0.5, np.float64(0.25)), 2: {"nll": float("inf"), "sets": np.int64(3)}})
    {'law': [0.5, 0.25], '2': {'nll': None, 'sets': 3}}
    """
    if isinstance(value, Mapping):
        return {str(key): to_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(inner) for inner in value]
    if isinstance(value, np.generic | np.ndarray):
        return to_json(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "to_dict"):
        return to_json(value.to_dict())
    if is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    return value


class ToDictMixin:
    """A dataclass of results with ``to_dict``; ``_derived`` names the properties that come along."""

    __slots__ = ()
    _derived: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON knows them; an infinite number is None."""
        names = [*self.__dataclass_fields__, *self._derived]  # type: ignore[attr-defined]  # every subclass is a dataclass
        return {name: to_json(getattr(self, name)) for name in names}
