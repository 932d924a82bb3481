"""Cells of text -> a table in Markdown or in plain letters.

A table is a list of rows, the heads first. The first column is words, the others are numbers and stand to the right.
A row shorter than the heads, such as that of a failure, ends in a cell that takes the rest of the line.

Within ``fitting(width)``, as on a terminal, a table in plain letters is no wider: columns that do not fit stand below,
with the first column before them again, and the texts of short rows are broken between words.
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

Cells = Sequence[Sequence[str]]

_WIDTH: ContextVar[int | None] = ContextVar("width of tables in plain letters", default=None)


@contextmanager
def fitting(width: int | None) -> Iterator[None]:
    """Keep tables in plain letters within a width."""
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
    """Return a table in plain letters, its columns aligned; what a terminal would obey is written out.

    With ``rules``, a line is drawn below the heads and above the rows of these numbers, the first after the heads being
    0.

    Examples
    --------
    >>> print(text_table([["model", "NLL"], ["uniform", "1.5"], ["net", "failed: no data"]]))
    model                NLL
    uniform              1.5
    net      failed: no data
    """
    cells = [list(map(printable, row)) for row in cells]
    whole = [row for row in cells if len(row) == len(cells[0])]
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    widths[0] = max(len(row[0]) for row in cells)
    blocks = _blocks(widths, _WIDTH.get())
    return "\n\n".join(_block(cells, widths, columns, rules, first=columns is blocks[0]) for columns in blocks)


def _blocks(widths: Sequence[int], limit: int | None) -> list[list[int]]:
    """Part the columns after the first into blocks that fit with it into the limit; one column at least in each."""
    blocks: list[list[int]] = [[]]
    for k, width in enumerate(widths[1:], start=1):
        taken = widths[0] + sum(widths[c] + 2 for c in blocks[-1])
        if limit is not None and blocks[-1] and taken + 2 + width > limit:
            blocks.append([])
        blocks[-1].append(k)
    return blocks


def _block(
    cells: Cells, widths: Sequence[int], columns: Sequence[int], rules: Collection[int] | None, *, first: bool
) -> str:
    """Write the first column and some others; texts of short rows, once, in the first block."""
    limit, lines = _WIDTH.get(), []
    rule = "-" * (widths[0] + sum(widths[k] + 2 for k in columns))
    for number, row in enumerate(cells):
        if rules is not None and number > 0 and (number == 1 or number - 1 in rules):
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


class TableMixin:
    """A result that is one table, in plain letters, in Markdown and in a notebook; a subclass gives its cells."""

    __slots__ = ()

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        keep_short(cls, TableMixin.__repr__)

    def __repr__(self) -> str:
        n = len(self._cells()) - 1
        return f"{type(self).__name__}({n} {'row' if n == 1 else 'rows'}; print it for the table)"

    def _repr_html_(self) -> str:
        from pcmcnet.reports.formats import to_fragment  # which builds on this module
        from pcmcnet.reports.sections import Table

        return to_fragment(type(self).__name__, [Table(cells=self._cells())])

    def to_markdown(self) -> str:
        """Return the table in Markdown."""
        return markdown_table(self._cells())

    def __str__(self) -> str:
        return text_table(self._cells())

    def _cells(self) -> Cells:
        raise NotImplementedError


def keep_short(kind: type, short: Callable[[Any], str]) -> None:
    """Give a class a short ``__repr__``, unless it has its own: a dataclass would put all its numbers there."""
    if "__repr__" not in vars(kind):
        kind.__repr__ = short  # type: ignore[assignment]


def escaped(text: str) -> str:
    """Keep a cell of a Markdown table in its cell, what is no markup from being taken for it, and all of it visible."""
    plain = printable(" ".join(text.split()))
    for sign in ("\\", "|", "*", "_", "<", "`"):
        plain = plain.replace(sign, f"\\{sign}")
    return plain


def number(value: Any) -> str:
    """Write a value for people: four digits that matter, words as they are, a dash for none.

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
    """Write a share in per cent: one decimal, or as many as a small one needs to be told from 0.

    Examples
    --------
    >>> percent(0.1414), percent(0.000213), percent(-0.00004), percent(0.0)
    ('14.1%', '0.02%', '-0.004%', '0.0%')
    """
    return f"{share:.{decimals_of_percent(share)}%}"


def decimals_of_percent(share: float) -> int:
    """Return how many decimals a share needs in per cent: one at least, seven at most."""
    return 1 if share == 0 else min(max(1, math.ceil(-math.log10(abs(share)) - 2)), 7)


# -- Latex -------------------------------------------------------------------------------------------------------------
# Cells of text -> a table in LaTeX, with the rules of booktabs and no other package.
#
# Every text is escaped. A minus before a number is set as one, and stars behind a number are raised. The preamble needs
# `\usepackage{booktabs}`.


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
    r"""Escape what LaTeX would obey; what a terminal would obey is written out.

    Examples
    --------
    >>> print(latex_text("cost_eur [50%] & {x}"))
    cost\_eur [50\%] \& \{x\}
    """
    return _SIGN.sub(lambda found: _SIGNS[found[0]], printable(" ".join(text.split())))


def latex_cell(text: str) -> str:
    r"""Write a cell: a number with a true minus and raised stars, or text.

    Examples
    --------
    >>> print(latex_cell("-1.278***"), latex_cell("0.5"), latex_cell("time_min"))
    $-$1.278$^{***}$ 0.5 time\_min
    """
    number = _NUMBER.fullmatch(text)
    if number is None:
        return latex_text(text)
    minus, digits, stars = number.groups()
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
    """Return a ``tabular``, inside a ``table`` where there is a caption or a label.

    Parameters
    ----------
    cells
        The heads, then the rows; the first column stands to the left, the others to the right.
    rules
        Rows after the heads, from 0, above which a rule is drawn.
    facts
        Lines of a name and a value below the rows.
    notes
        Lines below the table, in small letters.
    caption, label
        Of the ``table`` environment.
    """
    head, *body = cells
    lines = [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule", _row(head), r"\midrule"]
    for place, row in enumerate(body):
        lines += [r"\midrule"] if place in rules else []
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


def _line(written: Sequence[str]) -> str:
    r"""End a row; a bracket at its beginning would be taken for an option of the row end before."""
    first = f"{{{written[0]}}}" if written[0].startswith("[") else written[0]
    return " & ".join([first, *written[1:]]) + r" \\"


def _floating(lines: list[str], caption: str | None, label: str | None) -> list[str]:
    begin = [r"\begin{table}", r"\centering"]
    begin += [] if caption is None else [rf"\caption{{{latex_text(caption)}}}"]
    begin += [] if label is None else [rf"\label{{{label}}}"]
    return [*begin, *lines, r"\end{table}"]
