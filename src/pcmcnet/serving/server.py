"""Run the application: a socket that is bound before anything is promised, and an end that lets requests finish.

At the end, requests under way have some seconds to finish, while those that come are answered with 503. Then the socket
is closed, and what is still under way is cut off with 503, too.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from time import monotonic
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pcmcnet.errors import ConfigError

# -- Protocol ----------------------------------------------------------------------------------------------------------
# Connections that take too long: to send the head of a request, or to read an answer.
#
# uvicorn bounds how long a connection may rest between two requests, and nothing else: a head that comes byte by byte,
# or an answer that nobody takes, would be kept for ever. Bodies are bounded by `pcmcnet.serving.request_body`.


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


# -- Server ------------------------------------------------------------------------------------------------------------


# Seconds that the thread which asks the models may keep the interpreter while requests are to be read. At Python's own
# 5 ms, few requests are read during a batch, so that the next batch is small.
_TURN = 0.0005
_LAST = 1  # second in which connections end by themselves, once requests had their time to finish
_LOCAL = ("localhost", "127.0.0.1", "[::1]")


def bind(host: str, port: int) -> socket.socket:
    """Open the socket; port 0 takes any free one."""
    listening = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, _, _, address = found[0]
        # Named as TCP, or asyncio leaves Nagle's algorithm on, and each answer waits 40 ms for an acknowledgement.
        listening = socket.socket(family, kind, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)
        return listening
    except (OSError, OverflowError) as error:
        if listening is not None:
            listening.close()
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot listen at {host}:{port}: {reason}. Choose another by --host and --port.") from error


def own_names(host: str) -> tuple[str, ...] | None:
    """Return the names of this machine to itself, where only it is listened to."""
    name = host.lower().strip("[]")
    with suppress(ValueError):  # a name
        if ip_address(name).is_loopback:
            return tuple(dict.fromkeys((*_LOCAL, f"[{name}]" if ":" in name else name)))
    return _LOCAL if name == "localhost" else None


def require_guarded(host: str, token: str | None, *, insecure: bool) -> None:
    """Refuse to let other machines ask without a token, unless that is said to be meant."""
    if token is None and not insecure and own_names(host) is None:
        raise ConfigError(
            f"at {host!r} other machines could ask the model without a token: set the environment variable "
            f"PCMCNET_TOKEN, or say --insecure if everyone who can reach it may ask."
        )


def server_url(listening: socket.socket) -> str:
    """Return the address to type into a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(app: Any, listening: socket.socket, *, on_start: Callable[[], None] | None = None) -> None:
    """Serve until a signal comes; requests under way then have the seconds of ``settings.drain`` to finish."""
    import uvicorn

    worker = app.state.service.worker

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            worker.stop()
            until = monotonic() + worker.settings.drain
            while worker.under_way and monotonic() < until and not self.force_exit:
                await asyncio.sleep(0.02)
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="error",  # what strangers send is no news
        access_log=False,
        server_header=False,
        lifespan="on",
        http=timed(worker.settings.head_timeout),
        ws="none",
        timeout_keep_alive=15,
        timeout_graceful_shutdown=_LAST,
    )
    with _at_service():
        if on_start is not None:
            on_start()
        Server(config).run(sockets=[listening])


@contextmanager
def until_stopped() -> Iterator[None]:
    """Let SIGTERM or Ctrl+C end the block, and nothing else."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _at_service() -> Iterator[None]:
    """Let threads take turns often, and log errors alone: what clients send, unseen categories say, is no news.

    What was loaded until now stays: the search for garbage, which stops all threads, does not look through it again.
    """
    log, turn = logging.getLogger("pcmcnet"), sys.getswitchinterval()
    level, theirs = log.level, logging.getLogger("uvicorn.error")
    log.setLevel(logging.ERROR)
    theirs.addFilter(_is_news)
    sys.setswitchinterval(_TURN)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        theirs.removeFilter(_is_news)
        log.setLevel(level)
        sys.setswitchinterval(turn)


def _is_news(record: logging.LogRecord) -> bool:
    """Tell uvicorn's word that requests are cut off at the end: they are meant to be, and their clients are told."""
    return not str(record.msg).startswith("Cancel %s running task(s)")
