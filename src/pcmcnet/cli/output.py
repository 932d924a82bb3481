"""How commands print results, for people or as JSON, and messages: names out of a table never steer the terminal."""

from __future__ import annotations

import json
import logging
from typing import Annotated, Any

import typer

from pcmcnet.errors import visible

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def show(text: str, result: dict[str, Any], *, as_json: bool) -> None:
    """Print one of the two forms of a result to standard output."""
    typer.echo(json.dumps(result, indent=1) if as_json else visible(text))


def say(message: str) -> None:
    """Print a message to standard error."""
    typer.echo(visible(message), err=True)


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
