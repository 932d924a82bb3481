"""A place where workers leave word of their epochs, and learn that they are to end.

Ray keeps it in a process of its own. Whoever started the work takes what was left there.
"""

from __future__ import annotations

from typing import Any


class Board:
    """Messages by the name of the work; the order of each work's messages is kept."""

    def __init__(self) -> None:
        self.entries: dict[str, list[dict[str, Any]]] = {}
        self.ended: dict[str, str] = {}

    def leave(self, work: str, entry: dict[str, Any]) -> str | None:
        """Leave an epoch's entry of the history; returns why the work is to end, if it is."""
        self.entries.setdefault(work, []).append(entry)
        return self.ended.get(work)

    def take(self) -> dict[str, list[dict[str, Any]]]:
        """Return all entries since the last time."""
        taken, self.entries = self.entries, {}
        return taken

    def end(self, work: str, why: str) -> None:
        """Let a work end at its next entry."""
        self.ended[work] = why


def new_board(ray: Any) -> Any:
    """Start a board that takes no CPU from workers and outlives none of them."""
    return ray.remote(num_cpus=0)(Board).remote()
