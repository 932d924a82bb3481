"""Render sections and results as text, Markdown, HTML, LaTeX or notebook output.

    HTML        one self-contained page: it fetches nothing, and a content security policy enforces that. It follows
                the reader's light or dark mode, fits a phone and prints well. A page with plotly figures contains the
                plotly script; without JavaScript, the reader sees the values of each figure as a table. The markup is
                in `templates`, which escape all text and control characters.
    Markdown    the same text and tables; a figure becomes a table of its values
    text        for a terminal: paragraphs, tables and notes, without section titles and figures
    notebook    a title and blocks. A result defines `_short`, its one-line description, and `_blocks`, its contents;
                parts of an explanation are shown as the sections that `pcmcnet.plots` builds.

A result that consists of facts, one table and notes describes itself once, as :class:`ResultContent`, which all formats
share.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from base64 import b64encode, b85encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pcmcnet.errors import ConfigError, InputError, printable
from pcmcnet.reports.frames import FrameMixin
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
from pcmcnet.reports.tables import (
    Cells,
    escaped,
    latex_table,
    limit_table_width,
    markdown_table,
    set_short_repr,
    text_table,
)
from pcmcnet.storage import write_bytes

if TYPE_CHECKING:
    from jinja2 import Environment

# -- HTML --------------------------------------------------------------------------------------------------------------


def to_html(title: str, sections: Sequence[Section]) -> str:
    """Return a self-contained HTML page.

    Raises
    ------
    ConfigError
        If the page has figures but plotly, whose script is embedded in the page, is not installed.
    """
    has_figures = any(isinstance(block, Figure) for section in sections for block in section.blocks)
    library = packed_script(plotly_script()) if has_figures else None
    return _templates().get_template("report.html.jinja").render(title=title, sections=sections, library=library)


def to_fragment(title: str, blocks: Sequence[Block]) -> str:
    """Return blocks without figures as an HTML fragment that inherits colours and fonts, as in a notebook."""
    return _templates().get_template("fragment.html.jinja").render(title=title, blocks=blocks)


def write_html(text: str, path: str | os.PathLike[str]) -> Path:
    """Write a page atomically. Raise InputError if the file name does not end in .html."""
    target = Path(path)
    if target.suffix.lower() != ".html":
        raise InputError(f"expected a file name that ends in .html, got {target.name!r}.")
    write_bytes(target, text.encode())
    return target


def plotly_script() -> str:
    """Return plotly's JavaScript without importing plotly. Raise ConfigError if plotly is not installed."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise ConfigError("a report with figures needs plotly: pip install plotly, or 'pcmcnet[serve]'.")
    text = (Path(spec.origin).parent / "package_data" / "plotly.min.js").read_text("utf-8")
    return text.replace("</script", "<\\/script")


# The digits of base 85: those of Python, without the characters < and & of markup.
DIGITS = bytes.maketrans(b"<&", b",:")


@cache
def packed_script(script: str) -> str:
    """Return a script as compressed text, which takes 38% of its size. ``figures.js`` unpacks it in the browser."""
    return b85encode(zlib.compress(script.encode(), 9)).translate(DIGITS).decode()


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("pcmcnet.reports"),
        autoescape=True,
        finalize=_escape_controls,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        extensions=["jinja2.ext.loopcontrols"],
    )
    templates.policies["json.dumps_function"] = _dump_json
    templates.filters["lines"] = _page_rows
    templates.filters["base64"] = lambda file: b64encode(file.read_bytes()).decode()
    templates.globals["Table"] = Table
    return templates


def _escape_controls(value: Any) -> Any:
    """Escape control characters, but leave markup, such as the plotly script, unchanged."""
    return value if hasattr(value, "__html__") else printable(str(value))


def _dump_json(value: Any, **_: Any) -> str:
    """Return JSON with six digits of each number, in which all control characters are escaped.

    ``json.dumps`` alone does not escape DEL.
    """
    return json.dumps(_rounded(value), allow_nan=False).replace("\x7f", "\\u007f")


def _rounded(value: Any) -> Any:
    """Return a value with six significant digits of each number, which is more than a figure can show."""
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _page_rows(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Yield the blocks that share a row of the page: adjacent narrow figures together, any other block by itself."""
    for narrow, group in groupby(blocks, key=lambda block: getattr(block, "narrow", False)):
        neighbours = list(group)
        yield from [neighbours] if narrow else ([block] for block in neighbours)


# -- Markdown ----------------------------------------------------------------------------------------------------------


def to_markdown(title: str, sections: Sequence[Section]) -> str:
    """Return the report in Markdown, with pictures linked by their file names."""
    parts = [f"# {escaped(title)}"]
    for section in sections:
        parts += [f"## {escaped(section.title)}"] if section.title else []
        parts += map(_markdown, section.blocks)
    return printable("\n\n".join(parts) + "\n")


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
            return "\n".join(f"- {escaped(name)}: {escaped(value)} ({escaped(note)})" for name, value, note in tiles)
        case Points(points):
            texts = [f"**{escaped(p.text)}**" if p.tone == "warning" else escaped(p.text) for p in points]
            return "\n".join(f"- {text} ({escaped(p.figures)})" for text, p in zip(texts, points, strict=True))
        case Table(cells=cells):
            return markdown_table(cells)
        case Figure(caption=caption, numbers=numbers) | Intervals(caption=caption, numbers=numbers):
            return f"{markdown_table(numbers)}\n\n{escaped(caption)}"
        case PictureFile(file=file, caption=caption, others=others):
            links = ", ".join(f"[{name}]({name})" for name in others)
            return f"![{escaped(caption)}]({file.name})" + (f"\n\nAlso as {links}." if links else "")


# -- Text --------------------------------------------------------------------------------------------------------------


def to_text(title: str, sections: Sequence[Section]) -> str:
    """Return the report as plain text, without empty lines between consecutive notes."""
    parts = [title]
    blocks_of_text = [block for section in sections for block in section.blocks if isinstance(block, Text | Table)]
    for is_note, blocks in groupby(blocks_of_text, key=lambda block: isinstance(block, Text) and block.tone == "note"):
        texts = [block.text if isinstance(block, Text) else text_table(block.cells) for block in blocks]
        parts += ["\n".join(texts)] if is_note else texts
    return printable("\n\n".join(parts))


# -- Notebook ----------------------------------------------------------------------------------------------------------


class NotebookMixin(FrameMixin):
    """Mixin that displays a result as one line at a Python prompt and as blocks in a notebook."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        set_short_repr(cls, NotebookMixin.__repr__)

    def _short(self) -> str:
        """Return a one-line description."""
        raise NotImplementedError

    def _blocks(self) -> Sequence[Block]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._short()})"

    def _repr_html_(self) -> str:
        return to_fragment(f"{type(self).__name__}: {self._short()}", figures_as_tables(self._blocks()))


class ReportPartMixin(NotebookMixin):
    """Mixin that displays a part of an explanation in a notebook like its section in the report."""

    __slots__ = ()

    def _blocks(self) -> Sequence[Block]:
        from pcmcnet.plots.report import part_section

        return part_section(self).blocks


def figures_as_tables(blocks: Sequence[Block]) -> list[Block]:
    """Replace each figure by a folded table of its values."""
    return [
        Table(cells=block.numbers, folded=block.caption) if isinstance(block, Figure | Intervals) else block
        for block in blocks
    ]


# -- Formats -----------------------------------------------------------------------------------------------------------


_MAX_FACT_LENGTH = 40  # characters; in LaTeX, a longer fact becomes a note below the table


@dataclass(frozen=True, kw_only=True)
class ResultContent:
    """The contents of a printed result. A line is drawn above the rows in ``rules``, counted without the header."""

    title: str
    cells: Cells
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    rules: frozenset[int] = frozenset()

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The contents as blocks of a report."""
        facts = [Facts(self.facts)] if self.facts else []
        return (*facts, Table(cells=self.cells, rules=self.rules), *map(note, self.notes))


class FormatsMixin(FrameMixin):
    """Mixin that formats a result as text, Markdown, HTML, LaTeX or a data frame. A subclass defines ``_content``."""

    __slots__ = ()

    def _content(self) -> ResultContent:
        raise NotImplementedError

    def __str__(self) -> str:
        content = self._content()
        width = max(map(len, content.facts), default=0)
        lines = [content.title, "=" * len(content.title)]
        lines += [f"{name:<{width}}  {value}" for name, value in content.facts.items()]
        notes = ["", *content.notes] if content.notes else []
        return printable("\n".join([*lines, "", text_table(content.cells, content.rules), *notes]))

    def to_markdown(self) -> str:
        """Return title, facts, table and notes in Markdown.

        Returns
        -------
        str
            Markdown text.
        """
        content = self._content()
        return to_markdown(content.title, [Section(title="", blocks=content.blocks)])

    def to_html(self) -> str:
        """Return title, facts, table and notes as an HTML fragment.

        Returns
        -------
        str
            HTML in which all text is escaped.
        """
        content = self._content()
        return to_fragment(content.title, content.blocks)

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_latex(self, *, caption: str | None = None, label: str | None = None) -> str:
        """Return the table in LaTeX, with the facts below the rows. The preamble needs the package booktabs.

        Parameters
        ----------
        caption, label
            Caption and label of the table. If either is given, the rows are inside a ``table`` environment.

        Returns
        -------
        str
            LaTeX source in which all text is escaped.
        """
        content = self._content()
        short = {name: value for name, value in content.facts.items() if len(value) <= _MAX_FACT_LENGTH}
        long = [f"{name}: {value}" for name, value in content.facts.items() if len(value) > _MAX_FACT_LENGTH]
        return latex_table(
            content.cells, rules=content.rules, facts=short, notes=[*long, *content.notes], caption=caption, label=label
        )


@dataclass(frozen=True, repr=False)
class Summary(FormatsMixin):
    """Summary of a fitted model: a title, facts, a table with one header row, and caveats of the model."""

    title: str
    facts: dict[str, str]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caveats: tuple[str, ...] = ()

    def _frame_rows(self) -> list[dict[str, Any]]:
        columns = [_numbers_or_text(column) for column in zip(*self.rows, strict=True)]
        return [dict(zip(self.header, row, strict=True)) for row in zip(*columns, strict=True)]

    def _content(self) -> ResultContent:
        notes = tuple(f"Caveat: {caveat}." for caveat in self.caveats)
        return ResultContent(title=self.title, facts=self.facts, cells=[self.header, *self.rows], notes=notes)

    def __repr__(self) -> str:
        return str(self)


class SummaryMixin(FrameMixin):
    """Mixin that displays a result like its summary. A subclass is a dataclass without repr, and has ``to_frame``."""

    __slots__ = ()

    def summary(self) -> Summary:
        """Return the summary of the result."""
        raise NotImplementedError

    def _content(self) -> ResultContent:
        return self.summary()._content()

    def __str__(self) -> str:
        return str(self.summary())

    def __repr__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().to_html()


def _numbers_or_text(cells: Sequence[str]) -> Sequence[str] | list[float | None]:
    """Return the numbers in the cells of a column, or the cells if they contain other text."""
    try:
        return [None if cell in ("", "-") else float(cell.replace(",", "")) for cell in cells]
    except ValueError:
        return cells


def to_plain_text(*results: object, width: int | None = None) -> str:
    """Return results as text, separated by empty lines. Tables are no wider than ``width`` characters."""
    with limit_table_width(width):
        return "\n\n".join(map(str, results))


# -- Plain values ------------------------------------------------------------------------------------------------------


def to_json(value: Any) -> Any:
    """Convert a value to dicts, lists, numbers and strings. Infinity and NaN become None.

    A dataclass becomes the dict of its fields, or the return value of its method ``to_dict``.

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
    """Mixin that adds ``to_dict`` to a result dataclass.

    ``_derived`` lists the properties to include, and ``_hidden`` the fields to leave out.
    """

    __slots__ = ()
    _derived: ClassVar[tuple[str, ...]] = ()
    _hidden: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON types. Infinity and NaN become None.

        Returns
        -------
        dict
            The value of each field and derived property, by name.
        """
        names = [*(field.name for field in fields(self)), *self._derived]  # type: ignore[arg-type]  # a dataclass
        return {name: to_json(getattr(self, name)) for name in names if name not in self._hidden}
