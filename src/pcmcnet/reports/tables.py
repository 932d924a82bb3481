"""Format cells of text as a table in Markdown, plain text or LaTeX.

A table is a list of rows, the header first. The first column is left-aligned. The other columns, which are mostly
numbers, are right-aligned. In a row with fewer cells than the header, such as the row of a failed model, the last cell
spans the remaining columns.

Within ``limit_table_width(width)``, as on a terminal, plain-text tables are split to fit: columns that do not fit are
printed below, with the first column repeated, and the text of short rows is wrapped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from textwrap import fill
from typing import Any

from pcmcnet.errors import printable
from pcmcnet.reports.frames import FrameMixin

Cells = Sequence[Sequence[str]]

_WIDTH: ContextVar[int | None] = ContextVar("width of plain-text tables", default=None)


@contextmanager
def limit_table_width(width: int | None) -> Iterator[None]:
    """Limit plain-text tables inside the block to ``width`` characters. If ``width`` is None, there is no limit."""
    before = _WIDTH.set(width)
    try:
        yield
    finally:
        _WIDTH.reset(before)


def markdown_table(cells: Cells) -> str:
    r"""Return a table in Markdown.

    Examples
    --------
    >>> print(markdown_table([["model", "NLL"], ["a|b", "1.5"]]))
    | model | NLL |
    | --- | ---: |
    | a\|b | 1.5 |
    """
    width = len(cells[0])
    head, *body = ([*map(escaped, row), *[""] * (width - len(row))] for row in cells)
    table = [head, ["---", *["---:"] * (width - 1)], *body]
    return "\n".join("| " + " | ".join(row) + " |" for row in table)


def text_table(cells: Cells, rules: Collection[int] | None = None) -> str:
    """Return a table as plain text with aligned columns and escaped control characters.

    With ``rules``, a line is drawn below the header and above the rows with these indices, counted from 0 after the
    header.

    Examples
    --------
    >>> print(text_table([["model", "NLL"], ["uniform", "1.5"], ["net", "failed: no data"]]))
    model                NLL
    uniform              1.5
    net      failed: no data
    """
    cells = [list(map(printable, row)) for row in cells]
    full = [row for row in cells if len(row) == len(cells[0])]
    widths = [max(map(len, column)) for column in zip(*full, strict=True)]
    widths[0] = max(len(row[0]) for row in cells)
    blocks = _column_blocks(widths, _WIDTH.get())
    return "\n\n".join(_block_text(cells, widths, columns, rules, first=columns is blocks[0]) for columns in blocks)


def _column_blocks(widths: Sequence[int], limit: int | None) -> list[list[int]]:
    """Group the columns after the first so that each group fits the limit together with the first column."""
    blocks: list[list[int]] = [[]]
    for k, width in enumerate(widths[1:], start=1):
        used = widths[0] + sum(widths[c] + 2 for c in blocks[-1])
        if limit is not None and blocks[-1] and used + 2 + width > limit:
            blocks.append([])
        blocks[-1].append(k)
    return blocks


def _block_text(
    cells: Cells, widths: Sequence[int], columns: Sequence[int], rules: Collection[int] | None, *, first: bool
) -> str:
    """Format the first column and the given columns as one block. Short rows appear in the first block only."""
    limit, lines = _WIDTH.get(), []
    rule = "-" * (widths[0] + sum(widths[k] + 2 for k in columns))
    for index, row in enumerate(cells):
        if rules is not None and index > 0 and (index == 1 or index - 1 in rules):
            lines.append(rule)
        if len(row) == len(widths):
            lines.append("  ".join([row[0].ljust(widths[0]), *(row[k].rjust(widths[k]) for k in columns)]).rstrip())
        elif first:
            line = "  ".join([row[0].ljust(widths[0]), *row[1:]]).rstrip()
            indent = " " * (widths[0] + 2)
            lines.append(line if limit is None else fill(line, limit, subsequent_indent=indent))
    if rules is not None and len(cells) == 1:
        lines.append(rule)
    return "\n".join(lines)


class TableMixin(FrameMixin):
    """Mixin that formats a table as text, Markdown or notebook output.

    A subclass defines ``_cells``. If it also defines ``_caveats``, these sentences are shown below the table.
    """

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        set_short_repr(cls, TableMixin.__repr__)

    def __repr__(self) -> str:
        n = len(self._cells()) - 1
        return f"{type(self).__name__}({n} {'row' if n == 1 else 'rows'}; print it to see the table)"

    def _repr_html_(self) -> str:
        from pcmcnet.reports.formats import to_fragment  # imported late: formats.py imports this module
        from pcmcnet.reports.sections import Block, Table, note

        blocks: list[Block] = [Table(cells=self._cells()), *(note(f"Caveat: {caveat}.") for caveat in self._caveats())]
        return to_fragment(type(self).__name__, blocks)

    def to_markdown(self) -> str:
        """Return the table in Markdown.

        Returns
        -------
        str
            The header, the alignment line and one line per row, followed by the caveats.
        """
        return "\n\n".join([markdown_table(self._cells()), *(f"Caveat: {escaped(c)}." for c in self._caveats())])

    def __str__(self) -> str:
        caveats = [f"Caveat: {printable(caveat)}." for caveat in self._caveats()]
        limit = _WIDTH.get()
        lines = caveats if limit is None else [fill(caveat, limit) for caveat in caveats]
        return "\n".join([text_table(self._cells()), *([""] if lines else []), *lines])

    def _caveats(self) -> tuple[str, ...]:
        """Return sentences without a final stop."""
        return ()

    def _cells(self) -> Cells:
        raise NotImplementedError


def set_short_repr(kind: type, short: Callable[[Any], str]) -> None:
    """Set a short ``__repr__`` unless the class defines one, since that of a dataclass would print all numbers."""
    if "__repr__" not in vars(kind):
        kind.__repr__ = short  # type: ignore[assignment]


def escaped(text: str) -> str:
    """Escape Markdown markup and control characters, and join lines, so that text stays inside its cell."""
    plain = printable(" ".join(text.split()))
    for sign in ("\\", "|", "*", "_", "<", "`"):
        plain = plain.replace(sign, f"\\{sign}")
    return plain


def number(value: Any) -> str:
    """Format a value for human readers: numbers with four significant digits, text unchanged, a dash for None.

    Examples
    --------
    >>> number(0.123456), number(20144), number(1500.25), number(None), number("A7")
    ('0.1235', '20,144', '1,500', '-', 'A7')
    """
    if value is None:
        return "-"
    if isinstance(value, bool | str):
        return str(value)
    whole = float(value).is_integer() and abs(value) < 1e15
    if whole or 1e4 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:,.4g}"


def percent(share: float) -> str:
    """Format a share in per cent with one decimal place, or more if a small share would otherwise read 0.0%.

    Examples
    --------
    >>> percent(0.1414), percent(0.000213), percent(-0.00004), percent(0.0)
    ('14.1%', '0.02%', '-0.004%', '0.0%')
    """
    return f"{share:.{percent_decimals(share)}%}"


def percent_decimals(share: float) -> int:
    """Return the number of decimal places that a share needs in per cent, from one to seven."""
    return 1 if share == 0 else min(max(1, math.ceil(-math.log10(abs(share)) - 2)), 7)


# -- LaTeX -------------------------------------------------------------------------------------------------------------
# Tables for LaTeX. The preamble needs `\usepackage{booktabs}` and no other package. All text is escaped; a number gets
# a proper minus sign and superscript stars.


_SIGNS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
_SIGN = re.compile("[" + re.escape("".join(_SIGNS)) + "]")
_NUMBER = re.compile(r"(-?)((?:\d[\d.,]*(?:e[+-]?\d+)?|inf)%?)(\*{0,3})")


def latex_text(text: str) -> str:
    r"""Escape LaTeX commands and control characters.

    Examples
    --------
    >>> print(latex_text("cost_eur [50%] & {x}"))
    cost\_eur [50\%] \& \{x\}
    """
    return _SIGN.sub(lambda match: _SIGNS[match[0]], printable(" ".join(text.split())))


def latex_cell(text: str) -> str:
    r"""Format a cell: a number with a proper minus sign and superscript stars, or escaped text.

    Examples
    --------
    >>> print(latex_cell("-1.278***"), latex_cell("0.5"), latex_cell("time_min"))
    $-$1.278$^{***}$ 0.5 time\_min
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        return latex_text(text)
    minus, digits, stars = match.groups()
    return ("$-$" if minus else "") + digits.replace("%", r"\%") + (f"$^{{{stars}}}$" if stars else "")


def latex_table(
    cells: Cells,
    *,
    rules: frozenset[int] = frozenset(),
    facts: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    caption: str | None = None,
    label: str | None = None,
) -> str:
    """Return a ``tabular`` environment, inside a ``table`` environment if there is a caption or a label.

    Parameters
    ----------
    cells
        The header and the rows. The first column is aligned left, all others are aligned right.
    rules
        Indices of rows with a horizontal line above them, counted from 0 after the header.
    facts
        Names and values to print below the rows.
    notes
        Lines to print below the table, in small print.
    caption, label
        Caption and label of the ``table`` environment.
    """
    head, *body = cells
    lines = [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule", _row(head), r"\midrule"]
    for index, row in enumerate(body):
        lines += [r"\midrule"] if index in rules else []
        lines.append(_row([*row, *[""] * (len(head) - len(row))]))
    if facts:
        lines += [r"\midrule"] if body else []
        lines += [_fact(name, value, len(head)) for name, value in facts.items()]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip{{\footnotesize {latex_text(note)}}}" for note in notes]
    return "\n".join(lines if caption is None and label is None else _floating(lines, caption, label))


def _row(cells: Sequence[str]) -> str:
    return _line([latex_cell(cell) for cell in cells])


def _fact(name: str, value: str, width: int) -> str:
    if width == 1:
        return _line([f"{latex_text(name)}: {latex_cell(value)}"])
    return _line([latex_text(name), rf"\multicolumn{{{width - 1}}}{{r}}{{{latex_cell(value)}}}"])


def _line(cells: Sequence[str]) -> str:
    r"""Join cells into a row. A leading bracket is put in braces, because LaTeX reads it as an option of ``\\``."""
    first = f"{{{cells[0]}}}" if cells[0].startswith("[") else cells[0]
    return " & ".join([first, *cells[1:]]) + r" \\"


def _floating(lines: list[str], caption: str | None, label: str | None) -> list[str]:
    begin = [r"\begin{table}", r"\centering"]
    begin += [] if caption is None else [rf"\caption{{{latex_text(caption)}}}"]
    begin += [] if label is None else [rf"\label{{{label}}}"]
    return [*begin, *lines, r"\end{table}"]
