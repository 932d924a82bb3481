"""How commands print results, for people or as JSON, and messages: names out of a table never steer the terminal."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import Annotated, Any

import typer

from pcmcnet.errors import printable

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Open = Annotated[bool, typer.Option("--open", help="Show the page in the browser when it is written.")]


@contextmanager
def kept_when_interrupted(folder: Path) -> Iterator[None]:
    """End on Ctrl-C with a word on how to go on: the state of the work is in the folder."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"\ninterrupted; to go on, give the same command again (state in {folder}).")
        raise SystemExit(130) from None


def show(text: object, result: dict[str, Any], *, as_json: bool, strong: Collection[str] = ()) -> None:
    """Print one of the two forms of a result to standard output.

    ``text`` is whatever prints, or several such things, between which a line stays empty. On a terminal tables fit its
    width, other lines are broken between words, and the lines in ``strong`` stand out.
    """
    if as_json:
        typer.echo(json.dumps(result, indent=1))
        return
    from pcmcnet.reports.formats import to_plain_text

    results = text if isinstance(text, tuple) else (text,)
    words = to_plain_text(*results, width=columns() if sys.stdout.isatty() else None)
    marked = {printable(line) for line in strong} if in_colour(sys.stdout) else set()
    for line in printable(words).split("\n"):
        shown = _broken(line, sys.stdout)
        typer.echo(typer.style(shown, bold=True) if line in marked else shown)


def _broken(line: str, stream: Any) -> str:
    """Break a line for a terminal between words; what is longer than its width, such as a path, stays whole."""
    if not stream.isatty() or len(line) <= columns():
        return line
    name = re.match(r"\S+(?: \S+)* {2,}", line)  # the value of a fact stays below itself
    indent = " " * len(name[0]) if name else ""
    return fill(line, columns(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def in_colour(stream: Any) -> bool:
    """Tell whether a stream goes to a terminal that shows colours, and NO_COLOR does not ask for none."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def columns() -> int:
    """Return how many letters a line may have: those of the terminal; where there is none, those of a page."""
    return get_terminal_size((100, 24)).columns if sys.stdout.isatty() or sys.stderr.isatty() else 100


def written(files: Iterable[Path]) -> str:
    """Say which files a command has written."""
    return f"written: {', '.join(map(str, files))}"


def open_page(page: Path) -> None:
    """Show a page in the browser, or say where it is."""
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        say(f"no browser could be opened here: open {page} in one.")


def say(message: str) -> None:
    """Print a message to standard error."""
    typer.echo(as_message(message), err=True)


def as_message(text: str) -> str:
    """Return a text as standard error shows it."""
    return "\n".join(_broken(line, sys.stderr) for line in printable(text).split("\n"))


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """Read whole numbers separated by commas."""
    from pcmcnet.errors import ConfigError

    try:
        return tuple(int(n) for n in text.split(","))
    except ValueError:
        raise ConfigError(f"{option}: expected whole numbers such as 1,5, got {text!r}.") from None
