"""What a person sees of long work: a bar on a terminal or in a notebook, plain lines elsewhere, nothing if not wanted.

    terminal   ━━━━━━━━━━━━━━━╸━━━━━━━━━━  60%  0:00:12 elapsed  0:00:08 left
               fold 2/3, pcmcnet
    notebook   the same, drawn by the browser, in the output of the cell
    elsewhere  a line for each step: to the log of the program where it has one, else to standard error

Lines of the log that are written meanwhile go above the bar, never into it.
"""

from __future__ import annotations

import html
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from pcmcnet.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

log = logging.getLogger("pcmcnet")
EpochCallback = Callable[[dict[str, Any]], None]  # takes an epoch's entry of the history

_PAUSE = 0.2  # seconds between two pictures of a bar in a notebook


@contextmanager
def show_epochs(epochs: int, *, show: bool) -> Iterator[EpochCallback]:
    """Yield a function that takes each epoch's entry of the history."""
    if not show:
        yield lambda entry: None
        return
    with _bar(epochs) as bar:

        def tell(entry: dict[str, Any]) -> None:
            words = f"epoch {entry['epoch']}/{epochs}: {describe_epoch(entry)}"
            log_line(words) if bar is None else bar.show(entry["epoch"], words)

        yield tell


def describe_epoch(entry: dict[str, Any]) -> str:
    """Return an epoch's losses and seconds in words."""
    valid = "" if entry["valid_loss"] is None else f", valid {entry['valid_loss']:.4f}"
    return f"train {entry['train_loss']:.4f}{valid}, {entry['seconds']:.1f} s"


class StepReporter:
    """Told when a step begins, what is under way in it, and how it ended."""

    def begin(self, step: str) -> None:
        """Say what is being done."""

    def note(self, text: str) -> None:
        """Say how far it is."""

    def end(self, step: str, result: str) -> None:
        """Say what came of it."""

    def epochs(self, on_epoch: EpochCallback | None, **more: Any) -> EpochCallback:
        """Return what notes each epoch of a step, and tells it, with ``more`` about it, to who asked for epochs."""

        def tell(entry: dict[str, Any]) -> None:
            self.note(f"epoch {entry['epoch']}, {describe_epoch(entry)}")
            if on_epoch is not None:
                on_epoch({**entry, **more})

        return tell


class _Lines(StepReporter):
    def end(self, step: str, result: str) -> None:
        log_line(f"{step}: {result}")


class _Shown(StepReporter):
    def __init__(self, bar: Bar) -> None:
        self.bar, self.done, self.step = bar, 0, ""

    def begin(self, step: str) -> None:
        self.step = step
        self.bar.show(self.done, step)
        self.bar.draw()

    def note(self, text: str) -> None:
        self.bar.show(self.done, f"{self.step}: {text}")

    def end(self, step: str, result: str) -> None:
        self.done += 1
        self.bar.show(self.done, f"{step}: {result}")
        if result.startswith("failed"):
            self.bar.keep(f"{step}: {result}")


@contextmanager
def show_steps(steps: int, *, show: bool) -> Iterator[StepReporter]:
    """Yield what is told of each of so many steps."""
    if not show:
        yield StepReporter()
        return
    with _bar(steps) as bar:
        yield _Lines() if bar is None else _Shown(bar)


def log_line(line: str) -> None:
    """Write a line to the log; a program that has set up none gets it on standard error."""
    if log.hasHandlers():
        log.info("%s", line)
    elif sys.stderr is not None:
        sys.stderr.write(printable(line) + "\n")


# -- bars ---------------------------------------------------------------------------------------------------------


class Bar(Protocol):
    """A bar that is being shown."""

    def show(self, done: int, words: str) -> None:
        """Show how many steps are done, and what is to be said."""

    def draw(self) -> None:
        """Show it now, and not when it next would be."""

    def keep(self, line: str) -> None:
        """Write a line that stays."""


@contextmanager
def _bar(total: int) -> Iterator[Bar | None]:
    """Yield the bar that there can be here, if any."""
    if _in_notebook():
        bar = _NotebookBar(total)
        try:
            yield bar
        finally:
            bar.draw()
    elif sys.stderr is not None and sys.stderr.isatty():
        shown = _TerminalBar(total)  # which is gone at the end
        with shown.live, _log_above(shown.console):
            yield shown
    else:
        yield None


class _TerminalBar:
    def __init__(self, total: int) -> None:
        from rich.console import Console, Group
        from rich.live import Live
        from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
        from rich.text import Text

        class Left(ProgressColumn):
            def render(self, task: Any) -> Text:
                return Text(time_left(task.elapsed or 0.0, task.completed, task.total), style="progress.remaining")

        self.console = Console(stderr=True)
        times = (TimeElapsedColumn(), TextColumn("elapsed"), Left(), TextColumn("left"))
        self.progress = Progress(BarColumn(), TaskProgressColumn(), *times, console=self.console)
        self.task = self.progress.add_task("", total=total)
        self.words = Text(no_wrap=True, overflow="ellipsis", style="dim")
        picture = lambda: Group(self.progress.get_renderable(), self.words)  # noqa: E731
        out = sys.stdout is not None and sys.stdout.isatty()  # what goes to a file is not for the terminal
        self.live = Live(console=self.console, get_renderable=picture, transient=True, redirect_stdout=out)

    def draw(self) -> None:
        self.live.refresh()

    def show(self, done: int, words: str) -> None:
        self.words.plain = printable(words)
        self.progress.update(self.task, completed=done)

    def keep(self, line: str) -> None:
        self.console.print(printable(line), markup=False, highlight=False)


@contextmanager
def _log_above(console: Console) -> Iterator[None]:
    """Let handlers of the log that write to the terminal do so above what is shown there."""
    from rich.file_proxy import FileProxy

    moved = []
    for handler in (*log.handlers, *logging.getLogger().handlers):
        stream = getattr(handler, "stream", None)
        if isinstance(handler, logging.StreamHandler) and stream is not None and stream.isatty():
            moved.append((handler, handler.setStream(FileProxy(console, stream))))
    try:
        yield
    finally:
        for handler, stream in moved:
            handler.setStream(stream)


class _NotebookBar:
    """HTML in the output of a cell, drawn anew as the work goes on; needs no widgets."""

    def __init__(self, total: int) -> None:
        self.browser: Any = import_module("IPython.display")
        self.total, self.done, self.words = total, 0, ""
        self.began, self.drawn = time.monotonic(), 0.0
        self.handle = self.browser.display(self._html(), display_id=True)

    def show(self, done: int, words: str) -> None:
        self.done, self.words = done, words
        if time.monotonic() - self.drawn >= _PAUSE:
            self.draw()

    def keep(self, line: str) -> None:
        sys.stderr.write(printable(line) + "\n")

    def draw(self) -> None:
        self.drawn = time.monotonic()
        self.handle.update(self._html())

    def _html(self) -> Any:
        elapsed = time.monotonic() - self.began
        left = f", {time_left(elapsed, self.done, self.total)} left" if self.done < self.total else ""
        numbers = f"{self.done / self.total:.0%}, {format_duration(elapsed)} elapsed{left}"
        bar = f'<progress max="{self.total}" value="{self.done}"></progress>'
        return self.browser.HTML(f"{bar} {numbers}<br><small>{html.escape(printable(self.words))}</small>")


def time_left(elapsed: float, done: float, total: float) -> str:
    """Write how long the rest takes, if it is as quick as what is done: steps may differ much, so all of them count.

    Examples
    --------
    >>> time_left(60.0, 2, 6), time_left(3.0, 0, 6)
    ('0:02:00', '-:--:--')
    """
    return format_duration(elapsed * (total / done - 1)) if done else "-:--:--"


def format_duration(seconds: float) -> str:
    """Write a length of time.

    Examples
    --------
    >>> format_duration(75.9), format_duration(3600)
    ('0:01:15', '1:00:00')
    """
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _in_notebook() -> bool:
    """Tell a notebook's kernel, whose outputs a browser shows, from other programs."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


@contextmanager
def log_once() -> Iterator[None]:
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
