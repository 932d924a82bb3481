"""What a fitted model tells of itself: a title, facts, and a table; prints as aligned text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """Facts about a fitted model and a table with one header row."""

    title: str
    facts: dict[str, str]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        width = max((len(k) for k in self.facts), default=0)
        lines = [self.title, "=" * len(self.title)]
        lines += [f"{key:<{width}}  {value}" for key, value in self.facts.items()]
        return "\n".join([*lines, "", *_aligned([self.header, *self.rows])])

    __repr__ = __str__


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Align columns: the first to the left, the others to the right; a rule below the header."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(w) if k == 0 else cell.rjust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]
