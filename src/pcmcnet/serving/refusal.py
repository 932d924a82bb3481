"""Requests that are turned away: a status and one sentence that says what, where and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LONGEST = 60


class RefusalError(Exception):
    """A request is turned away; it becomes the answer ``{"error": message}``."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


def unusable(message: str) -> RefusalError:
    """Build the refusal of a request that is well-formed JSON but not what is expected."""
    return RefusalError(422, message)


def busy(what: str, *, close: bool = False) -> RefusalError:
    """Build the refusal of a request that comes at the wrong moment; ``close`` ends its connection."""
    headers = {"Retry-After": "1"} | ({"Connection": "close"} if close else {})
    return RefusalError(503, f"{what}: try again in a moment.", headers)


def shortened(text: str, most: int = 500) -> str:
    """Cut off what a message quotes at length."""
    return text if len(text) <= most else text[:most] + "..."


def shown(value: Any) -> str:
    """Show what was found, in few characters: a client may send anything."""
    match value:
        case None:
            return "null"
        case True | False:
            return str(value).lower()
        case dict():
            return "an object"
        case list():
            return f"a list of {len(value)}"
        case str():
            return repr(shortened(value, _LONGEST))
        case int():  # Python refuses to write very long ones
            return str(value) if abs(value) < 10**_LONGEST else f"a whole number of more than {_LONGEST} digits"
        case _:
            return str(value)
