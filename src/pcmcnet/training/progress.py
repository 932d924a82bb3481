"""What a person sees of a fit: a bar on a terminal, plain lines in a log, nothing when not wanted."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger("pcmcnet")
Report = Callable[[dict[str, Any]], None]  # takes an epoch's entry of the history


@contextmanager
def watch(epochs: int, *, show: bool) -> Iterator[Report]:
    """Yield a function that takes each epoch's entry of the history."""
    if not show:
        yield lambda entry: None
    elif sys.stderr.isatty():
        with _bar(epochs) as report:
            yield report
    else:
        yield lambda entry: log.info("epoch %d/%d: %s", entry["epoch"], epochs, describe(entry))


def describe(entry: dict[str, Any]) -> str:
    """Put an epoch into words."""
    valid = "" if entry["valid_loss"] is None else f", valid {entry['valid_loss']:.4f}"
    return f"train {entry['train_loss']:.4f}{valid}, {entry['seconds']:.1f} s"


@contextmanager
def _bar(epochs: int) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("epoch"),
        MofNCompleteColumn(),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=epochs)
        yield lambda entry: progress.update(task, completed=entry["epoch"], description=describe(entry))
