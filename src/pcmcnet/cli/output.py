"""How commands print results: for people, or as JSON."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def show(text: str, result: dict[str, Any], *, as_json: bool) -> None:
    """Print one of the two forms of a result to standard output."""
    typer.echo(json.dumps(result, indent=1) if as_json else text)


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """Read whole numbers separated by commas."""
    from pcmcnet.errors import ConfigError

    try:
        return tuple(int(n) for n in text.split(","))
    except ValueError:
        raise ConfigError(f"{option}: expected whole numbers such as 1,5, got {text!r}.") from None
