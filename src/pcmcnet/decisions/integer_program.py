"""Mixed integer linear programs by HiGHS, quietly: the solver prints a line of its own to standard output at times."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pcmcnet.arrays import Floats


def solve_integer_program(objective: Floats, **program: Any) -> Any:
    """Minimise; see :func:`scipy.optimize.milp`, which takes the same words and gives this result."""
    from scipy.optimize import milp

    with _quiet():
        return milp(objective, **program)


@contextmanager
def _quiet() -> Iterator[None]:
    """Let nothing that compiled code prints reach standard output, where results go that programs read."""
    if sys.stdout is not None:
        sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # there is no standard output
        yield
        return
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
