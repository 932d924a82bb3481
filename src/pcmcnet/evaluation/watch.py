"""What a person sees of a long work: a bar on a terminal, a plain line per cell in a log, nothing when not wanted."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pcmcnet.errors import visible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

log = logging.getLogger("pcmcnet")


class Watch:
    """Told when a cell begins and how it ended."""

    def begin(self, cell: str) -> None:
        """Say what is being measured."""

    def end(self, cell: str, result: str) -> None:
        """Say what came of it."""


class _Lines(Watch):
    def end(self, cell: str, result: str) -> None:
        log.info("%s: %s", cell, result)


class _Bar(Watch):
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self.progress, self.task = progress, task

    def begin(self, cell: str) -> None:
        self.progress.update(self.task, description=visible(cell))

    def end(self, cell: str, result: str) -> None:
        self.progress.advance(self.task)
        if result.startswith("failed"):
            self.progress.console.print(visible(f"{cell}: {result}"), markup=False, highlight=False)


@contextmanager
def watch(cells: int, *, show: bool) -> Iterator[Watch]:
    """Yield what is told of each of so many cells."""
    if not show:
        yield Watch()
    elif not sys.stderr.isatty():
        yield _Lines()
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        description = TextColumn("{task.description}", markup=False)
        columns = (MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), description)
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            yield _Bar(progress, progress.add_task("", total=cells))


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
