"""Cells of text -> a table in Markdown or in plain letters.

A table is a list of rows, the heads first. The first column is words, the others are numbers and stand to the right.
A row shorter than the heads, such as that of a failure, ends in a cell that takes the rest of the line.
"""

from __future__ import annotations

from collections.abc import Sequence

Cells = Sequence[Sequence[str]]


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


def text_table(cells: Cells) -> str:
    """Return a table in plain letters, its columns aligned.

    Examples
    --------
    >>> print(text_table([["model", "NLL"], ["uniform", "1.5"], ["net", "failed: no data"]]))
    model                NLL
    uniform              1.5
    net      failed: no data
    """
    whole = [row for row in cells if len(row) == len(cells[0])]
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    widths[0] = max(len(row[0]) for row in cells)
    lines = []
    for first, *rest in cells:
        line = [first.ljust(widths[0])]
        line += map(str.rjust, rest, widths[1:]) if len(rest) == len(widths) - 1 else rest
        lines.append("  ".join(line).rstrip())
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Keep a cell of a Markdown table in its cell, and what is no markup from being taken for it."""
    plain = " ".join(text.split())
    for sign in ("\\", "|", "*", "_", "<", "`"):
        plain = plain.replace(sign, f"\\{sign}")
    return plain
