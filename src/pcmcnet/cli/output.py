"""Print results (as text or JSON) and messages. Control characters from tables are escaped."""

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
Open = Annotated[bool, typer.Option("--open", help="Open the page in a browser once it is written.")]


@contextmanager
def resume_hint_on_interrupt(folder: Path) -> Iterator[None]:
    """On Ctrl-C, print how to continue from the state saved in ``folder``, and exit with status 130."""
    try:
        yield
    except KeyboardInterrupt:
        print_message(f"\ninterrupted; to continue, run the same command again (state in {folder}).")
        raise SystemExit(130) from None


def print_result(text: object, result: dict[str, Any], *, as_json: bool, strong: Collection[str] = ()) -> None:
    """Print a result to standard output, as text or as JSON.

    ``text`` is a printable object, or a tuple of objects, which are separated by empty lines. On a terminal, tables fit
    its width, other lines wrap between words, and the lines in ``strong`` are bold.
    """
    if as_json:
        typer.echo(json.dumps(result, indent=1))
        return
    from pcmcnet.reports.formats import to_plain_text

    results = text if isinstance(text, tuple) else (text,)
    plain = to_plain_text(*results, width=line_width() if sys.stdout.isatty() else None)
    bold = {printable(line) for line in strong} if supports_colour(sys.stdout) else set()
    for line in printable(plain).split("\n"):
        wrapped = _wrap(line, sys.stdout)
        typer.echo(typer.style(wrapped, bold=True) if line in bold else wrapped)


def _wrap(line: str, stream: Any) -> str:
    """Wrap a line between words if the stream is a terminal. A word that is longer than a line is not broken."""
    if not stream.isatty() or len(line) <= line_width():
        return line
    name = re.match(r"\S+(?: \S+)* {2,}", line)  # "name  value": indent the value on the next lines
    indent = " " * len(name[0]) if name else ""
    return fill(line, line_width(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def supports_colour(stream: Any) -> bool:
    """Return True if the stream is a terminal with colours and NO_COLOR is not set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def line_width() -> int:
    """Return the width of the terminal in characters, or 100 without a terminal."""
    return get_terminal_size((100, 24)).columns if sys.stdout.isatty() or sys.stderr.isatty() else 100


def written_files(files: Iterable[Path]) -> str:
    """Return a line that lists the files a command has written."""
    return f"written: {', '.join(map(str, files))}"


def open_page(page: Path) -> None:
    """Open a page in the browser. If there is no browser, print the path of the page."""
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        print_message(f"no browser is available: open {page} yourself.")


def print_message(message: str) -> None:
    """Print a message to standard error."""
    typer.echo(format_message(message), err=True)


def format_message(text: str) -> str:
    """Return text with control characters escaped, wrapped for standard error."""
    return "\n".join(_wrap(line, sys.stderr) for line in printable(text).split("\n"))


def parse_integers(option: str, text: str) -> tuple[int, ...]:
    """Parse comma-separated integers."""
    from pcmcnet.errors import ConfigError

    try:
        return tuple(int(n) for n in text.split(","))
    except ValueError:
        raise ConfigError(f"{option}: expected comma-separated integers such as 1,5; got {text!r}.") from None
