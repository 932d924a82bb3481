"""How commands print results, for people or as JSON, and messages: names out of a table never steer the terminal."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import Annotated, Any

import typer

from pcmcnet.errors import visible

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
PIPE_CLOSED = 141  # 128 + SIGPIPE, as a shell tells it


def show(text: str, result: dict[str, Any], *, as_json: bool, strong: Collection[str] = ()) -> None:
    """Print one of the two forms of a result to standard output; lines in ``strong`` stand out on a terminal."""
    if as_json:
        typer.echo(json.dumps(result, indent=1))
        return
    marked = {visible(line) for line in strong} if in_colour(sys.stdout) else set()
    lines = [typer.style(line, bold=True) if line in marked else line for line in visible(text).split("\n")]
    typer.echo("\n".join(lines))


def in_colour(stream: Any) -> bool:
    """Tell whether a stream goes to a terminal that shows colours, and NO_COLOR does not ask for none."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def columns() -> int:
    """Return how many letters a line may have: those of the terminal; of what goes elsewhere, those of a page."""
    return get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 100


def say(message: str) -> None:
    """Print a message to standard error."""
    typer.echo(visible(message), err=True)


class Stream:
    """Standard output or error, that names itself where it cannot be written, and ends with the pipe it goes to.

    ``pcmcnet ... | head`` has read enough: that is no error, and the status is that of a program ended by SIGPIPE.
    """

    def __init__(self, stream: Any, name: str) -> None:
        self._stream, self._name = stream, name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._stream, attribute)

    def write(self, text: str) -> int:
        """Write a text."""
        with self._named():
            count: int = self._stream.write(text)
        return count

    def flush(self) -> None:
        """Write what was held back."""
        with self._named():
            self._stream.flush()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise SystemExit(PIPE_CLOSED) from None
        except OSError as error:
            error.filename = self._name
            raise


class Visible(logging.Formatter):
    """The form of messages that the library logs."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message alone."""
        return visible(super().format(record))


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """Read whole numbers separated by commas."""
    from pcmcnet.errors import ConfigError

    try:
        return tuple(int(n) for n in text.split(","))
    except ValueError:
        raise ConfigError(f"{option}: expected whole numbers such as 1,5, got {text!r}.") from None
