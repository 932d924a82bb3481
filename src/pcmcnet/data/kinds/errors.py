"""What is wrong with a content, and in which row; the reader adds the column and the choice set."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class BadContentError(Exception):
    """A row that cannot be read."""

    def __init__(self, row: int, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.row, self.problem, self.remedy = row, problem, remedy


class BadTypeError(Exception):
    """A column whose type cannot hold contents of the kind; the message says what is expected."""


def refuse(bad: NDArray[np.bool_], problem: str, remedy: str, got: Any) -> None:
    """Refuse the first bad row, if there is one; ``got(row)`` says what stands there."""
    rows = np.flatnonzero(bad)
    if rows.size:
        first = int(rows[0])
        raise BadContentError(first, f"{problem}, got {got(first)}; {rows.size} such rows.", remedy)
