"""What a person sees of long work: a bar on a terminal, plain lines in a log, nothing when not wanted."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pcmcnet.errors import visible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

log = logging.getLogger("pcmcnet")
Report = Callable[[dict[str, Any]], None]  # takes an epoch's entry of the history


@contextmanager
def show_epochs(epochs: int, *, show: bool) -> Iterator[Report]:
    """Yield a function that takes each epoch's entry of the history."""
    if not show:
        yield lambda entry: None
    elif not sys.stderr.isatty():
        yield lambda entry: log.info("epoch %d/%d: %s", entry["epoch"], epochs, describe_epoch(entry))
    else:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

        description = TextColumn("{task.description}")
        with _bar(TextColumn("epoch"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), description) as bar:
            task = bar.add_task("", total=epochs)
            yield lambda entry: bar.update(task, completed=entry["epoch"], description=describe_epoch(entry))


def describe_epoch(entry: dict[str, Any]) -> str:
    """Put an epoch into words."""
    valid = "" if entry["valid_loss"] is None else f", valid {entry['valid_loss']:.4f}"
    return f"train {entry['train_loss']:.4f}{valid}, {entry['seconds']:.1f} s"


class Steps:
    """Told when a step begins and how it ended."""

    def begin(self, step: str) -> None:
        """Say what is being done."""

    def end(self, step: str, result: str) -> None:
        """Say what came of it."""


class _Lines(Steps):
    def end(self, step: str, result: str) -> None:
        log.info("%s: %s", step, result)


class _Bar(Steps):
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self.progress, self.task = progress, task

    def begin(self, step: str) -> None:
        self.progress.update(self.task, description=visible(step))

    def end(self, step: str, result: str) -> None:
        self.progress.advance(self.task)
        if result.startswith("failed"):
            self.progress.console.print(visible(f"{step}: {result}"), markup=False, highlight=False)


@contextmanager
def show_steps(steps: int, *, show: bool) -> Iterator[Steps]:
    """Yield what is told of each of so many steps."""
    if not show:
        yield Steps()
    elif not sys.stderr.isatty():
        yield _Lines()
    else:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

        description = TextColumn("{task.description}", markup=False)
        with _bar(MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), description) as bar:
            yield _Bar(bar, bar.add_task("", total=steps))


def _bar(*columns: Any) -> Progress:
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), transient=True)


@contextmanager
def said_once() -> Iterator[None]:
    """Let each message of the log pass once for each thing it is about, such as a column, its first argument."""
    said: set[tuple[int, str, str]] = set()

    def is_new(record: logging.LogRecord) -> bool:
        subject = record.args[0] if isinstance(record.args, tuple) and record.args else ""
        key = (record.levelno, str(record.msg), str(subject))
        new = key not in said
        said.add(key)
        return new

    log.addFilter(is_new)
    try:
        yield
    finally:
        log.removeFilter(is_new)
