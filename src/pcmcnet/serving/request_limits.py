"""The bytes of a request's body, bounded while they arrive: in length, in time, and over all requests together.

A request takes no place among those under way before its body is complete, so that slow senders keep nobody out. What
they can take is memory, and of that large bodies have a bounded share; small ones are always read.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request

from pcmcnet.errors import shown
from pcmcnet.serving.refusal import RefusalError, busy
from pcmcnet.serving.settings import ServeSettings

LARGE = 65_536  # bytes from which a body counts as large, and reading it would hold up other requests
_JSON = re.compile(r"application/(json|[\w.-]+\+json)\s*(;.*)?", re.IGNORECASE)


class Bodies:
    """Reads bodies, and counts the bytes of the large ones that are held."""

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings
        self.most = max(settings.max_bodies, settings.max_body)
        self.held = 0

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Make a place for one body, which is held until the end of the block."""
        place = Place(self)
        try:
            yield place
        finally:
            self.held -= place.held


class Place:
    """The place of one body."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.held = 0

    async def read(self, request: Request) -> bytes:
        """Read the whole body; raises :class:`RefusalError`."""
        kind = request.headers.get("content-type", "")
        if not _JSON.fullmatch(kind.strip()):
            raise RefusalError(415, f"content-type: expected application/json, got {shown(kind) if kind else 'none'}.")
        seconds = self._bodies.settings.body_timeout
        try:
            async with asyncio.timeout(seconds):
                return await self._read(request)
        except TimeoutError:
            message = f"the body did not arrive within {seconds:g} seconds."
            raise RefusalError(408, message, {"Connection": "close"}) from None
        except ClientDisconnect:
            raise RefusalError(400, "the connection was closed before the body had arrived.") from None

    async def _read(self, request: Request) -> bytes:
        limit = self._bodies.settings.max_body
        declared = request.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared[:20]) > limit:
            raise _too_large(limit)
        content = bytearray()
        async for chunk in request.stream():
            content += chunk
            if len(content) > limit:
                raise _too_large(limit)
            self._hold(len(content))
        return bytes(content)

    def _hold(self, length: int) -> None:
        """Count a body that has become larger."""
        if length > LARGE:
            more = length - self.held
            if self._bodies.held + more > self._bodies.most:
                raise busy("the server holds as many large requests as it can", close=True)
            self._bodies.held += more
            self.held = length


def _too_large(limit: int) -> RefusalError:
    message = f"the body is larger than {limit:,} bytes: ask about fewer choice sets at once, or raise --max-body."
    return RefusalError(413, message, {"Connection": "close"})
