"""Connections that take too long: to send the head of a request, or to read an answer.

uvicorn bounds how long a connection may rest between two requests, and nothing else: a head that comes byte by byte, or
an answer that nobody takes, would be kept for ever. Bodies are bounded by :mod:`pcmcnet.serving.request_limits`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_LEAST = 65_536  # bytes of an answer that a client must read while the server is patient


class TimedProtocol(H11Protocol):
    """HTTP/1.1 of uvicorn with ``patience``: seconds for the head of a request, and for each part of a long answer."""

    patience: float

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head: asyncio.TimerHandle | None = None
        self._answer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the head of a request."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a head from its first byte on, however the rest comes."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._head = _stopped(self._head)
        elif not self.transport.is_closing():
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._head, self._answer = _stopped(self._head), _stopped(self._answer)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Begin to wait for a client that does not read."""
        super().pause_writing()
        self._answer = self._answer or self._await_reading()

    def resume_writing(self) -> None:
        """Wait no longer: the client reads on."""
        super().resume_writing()
        self._answer = _stopped(self._answer)

    def _await_reading(self) -> asyncio.TimerHandle:
        return self.loop.call_later(self.patience, self._check_reading, self.transport.get_write_buffer_size())

    def _check_reading(self, before: int) -> None:
        """Break off an answer that is hardly read."""
        if self.transport.get_write_buffer_size() > before - _LEAST:
            self.transport.abort()
        else:
            self._answer = self._await_reading()

    def _await_head(self) -> None:
        self._head = self._head or self.loop.call_later(self.patience, self._give_up)

    def _give_up(self) -> None:
        """Close a connection whose head is not complete; say so where some of it has come."""
        if not self.transport.is_closing():
            if self.conn.trailing_data[0]:
                message = f"the head of the request did not arrive within {self.patience:g} seconds."
                body = json.dumps({"error": message}).encode()
                headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
                head = h11.Response(status_code=408, headers=[*headers, ("Connection", "close")])
                for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                    self.transport.write(self.conn.send(event) or b"")
            self.transport.close()


def _stopped(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Stop a timer; returns None, to be kept in its place."""
    if timer is not None:
        timer.cancel()
    return None


def timed(patience: float) -> type[TimedProtocol]:
    """Return the protocol with its patience, as uvicorn takes it: a class."""
    return type("TimedProtocol", (TimedProtocol,), {"patience": patience})
