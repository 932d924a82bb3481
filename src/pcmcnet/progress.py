"""Progress of long computations: a bar on a terminal or in a notebook, plain lines elsewhere, or nothing.

    terminal   ━━━━━━━━━━━━━━━╸━━━━━━━━━━  60%  0:00:12 elapsed  0:00:08 left
               fold 2/3, pcmcnet
    notebook   the same bar, drawn by the browser in the output of the cell
    elsewhere  one line per step, written to the program's log if it has handlers, otherwise to standard error

Log lines that are written while the bar is shown appear above it.
"""

from __future__ import annotations

import html
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from pcmcnet.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

log = logging.getLogger("pcmcnet")
EpochCallback = Callable[[dict[str, Any]], None]  # called with each epoch's entry of the history

_REDRAW_SECONDS = 0.2  # between two updates of a bar in a notebook


@contextmanager
def show_epochs(epochs: int, *, show: bool) -> Iterator[EpochCallback]:
    """Show training progress. Yield a function, to be called with the history entry of each epoch."""
    if not show:
        yield lambda entry: None
        return
    with _bar(epochs) as bar:

        def show_epoch(entry: dict[str, Any]) -> None:
            words = f"epoch {entry['epoch']}/{epochs}: {describe_epoch(entry)}"
            log_line(words) if bar is None else bar.show(entry["epoch"], words)

        yield show_epoch


def describe_epoch(entry: dict[str, Any]) -> str:
    """Return an epoch's losses and duration as text."""
    valid = "" if entry["valid_loss"] is None else f", valid {entry['valid_loss']:.4f}"
    return f"train {entry['train_loss']:.4f}{valid}, {entry['seconds']:.1f} s"


class StepReporter:
    """Base class of progress reporters for computations in steps. This class itself shows nothing."""

    def begin(self, step: str) -> None:
        """Show that a step has begun."""

    def note(self, text: str) -> None:
        """Show the state of the current step."""

    def end(self, step: str, result: str) -> None:
        """Show the result of a step."""

    def epochs(self, on_epoch: EpochCallback | None, **more: Any) -> EpochCallback:
        """Return a callback that shows each epoch of a step and passes its entry and ``more`` to ``on_epoch``."""

        def report_epoch(entry: dict[str, Any]) -> None:
            self.note(f"epoch {entry['epoch']}, {describe_epoch(entry)}")
            if on_epoch is not None:
                on_epoch({**entry, **more})

        return report_epoch


class _LineReporter(StepReporter):
    def end(self, step: str, result: str) -> None:
        log_line(f"{step}: {result}")


class _BarReporter(StepReporter):
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
    """Show the progress of a multi-step computation. Yield the reporter to call at each step."""
    if not show:
        yield StepReporter()
        return
    with _bar(steps) as bar:
        yield _LineReporter() if bar is None else _BarReporter(bar)


def log_line(line: str) -> None:
    """Write a line to the log, or to standard error if the program has no log handler."""
    if log.hasHandlers():
        log.info("%s", line)
    elif sys.stderr is not None:
        sys.stderr.write(printable(line) + "\n")


# -- Bars ---------------------------------------------------------------------------------------------------------


class Bar(Protocol):
    """A progress bar on the screen."""

    def show(self, done: int, words: str) -> None:
        """Set the number of finished steps and the text below the bar."""

    def draw(self) -> None:
        """Redraw immediately."""

    def keep(self, line: str) -> None:
        """Write a line that remains visible after the bar has disappeared."""


@contextmanager
def _bar(total: int) -> Iterator[Bar | None]:
    """Yield a progress bar for the notebook or the terminal, or None if there is neither."""
    if _in_notebook():
        bar = _NotebookBar(total)
        try:
            yield bar
        finally:
            bar.draw()
    elif sys.stderr is not None and sys.stderr.isatty():
        terminal_bar = _TerminalBar(total)
        with terminal_bar.live, _log_above(terminal_bar.console):
            yield terminal_bar
    else:
        yield None


class _TerminalBar:
    def __init__(self, total: int) -> None:
        from rich.console import Console, Group
        from rich.live import Live
        from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
        from rich.text import Text

        class TimeLeftColumn(ProgressColumn):
            def render(self, task: Any) -> Text:
                return Text(time_left(task.elapsed or 0.0, task.completed, task.total), style="progress.remaining")

        self.console = Console(stderr=True)
        times = (TimeElapsedColumn(), TextColumn("elapsed"), TimeLeftColumn(), TextColumn("left"))
        self.progress = Progress(BarColumn(), TaskProgressColumn(), *times, console=self.console)
        self.task = self.progress.add_task("", total=total)
        self.words = Text(no_wrap=True, overflow="ellipsis", style="dim")
        render = lambda: Group(self.progress.get_renderable(), self.words)  # noqa: E731
        # Output that is redirected to a file must not appear above the bar.
        redirect = sys.stdout is not None and sys.stdout.isatty()
        self.live = Live(console=self.console, get_renderable=render, transient=True, redirect_stdout=redirect)

    def draw(self) -> None:
        self.live.refresh()

    def show(self, done: int, words: str) -> None:
        self.words.plain = printable(words)
        self.progress.update(self.task, completed=done)

    def keep(self, line: str) -> None:
        self.console.print(printable(line), markup=False, highlight=False)


@contextmanager
def _log_above(console: Console) -> Iterator[None]:
    """Redirect log handlers that write to the terminal, so that their lines appear above the bar."""
    from rich.file_proxy import FileProxy

    redirected = []
    for handler in (*log.handlers, *logging.getLogger().handlers):
        stream = getattr(handler, "stream", None)
        if isinstance(handler, logging.StreamHandler) and stream is not None and stream.isatty():
            redirected.append((handler, handler.setStream(FileProxy(console, stream))))
    try:
        yield
    finally:
        for handler, stream in redirected:
            handler.setStream(stream)


class _NotebookBar:
    """A progress bar as HTML in the output of a notebook cell, without widgets."""

    def __init__(self, total: int) -> None:
        self.browser: Any = import_module("IPython.display")
        self.total, self.done, self.words = total, 0, ""
        self.began, self.drawn = time.monotonic(), 0.0
        self.handle = self.browser.display(self._html(), display_id=True)

    def show(self, done: int, words: str) -> None:
        self.done, self.words = done, words
        if time.monotonic() - self.drawn >= _REDRAW_SECONDS:
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
    """Return the time left if the remaining steps take as long, on average, as the finished steps.

    Examples
    --------
    >>> time_left(60.0, 2, 6), time_left(3.0, 0, 6)
    ('0:02:00', '-:--:--')
    """
    return format_duration(elapsed * (total / done - 1)) if done else "-:--:--"


def format_duration(seconds: float) -> str:
    """Return a duration as hours:minutes:seconds.

    Examples
    --------
    >>> format_duration(75.9), format_duration(3600)
    ('0:01:15', '1:00:00')
    """
    minutes, remainder = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{remainder:02}"


def _in_notebook() -> bool:
    """Return True if the code runs in a notebook kernel."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


@contextmanager
def log_once() -> Iterator[None]:
    """Drop repeated log messages: each message is logged once per first argument, such as a column name."""
    passed: set[tuple[int, str, str]] = set()

    def is_new(record: logging.LogRecord) -> bool:
        subject = record.args[0] if isinstance(record.args, tuple) and record.args else ""
        key = (record.levelno, str(record.msg), str(subject))
        is_new_key = key not in passed
        passed.add(key)
        return is_new_key

    log.addFilter(is_new)
    try:
        yield
    finally:
        log.removeFilter(is_new)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Drop the warnings of this thread while trial fits run; the final fit repeats those that apply to it."""
    thread = threading.get_ident()

    def passes(record: logging.LogRecord) -> bool:
        return record.levelno != logging.WARNING or record.thread != thread

    log.addFilter(passes)
    try:
        yield
    finally:
        log.removeFilter(passes)
