r"""Cells of text -> a table in LaTeX, with the rules of booktabs and no other package.

Every text is escaped. A minus before a number is set as one, and stars behind a number are raised. The preamble needs
``\usepackage{booktabs}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pcmcnet.errors import visible
from pcmcnet.reports.tables import Cells

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
    return _SIGN.sub(lambda found: _SIGNS[found[0]], visible(" ".join(text.split())))


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
