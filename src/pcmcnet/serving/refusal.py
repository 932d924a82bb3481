"""Requests that are turned away: a status and one sentence that says what, where and what to do."""

from __future__ import annotations

from collections.abc import Mapping


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
