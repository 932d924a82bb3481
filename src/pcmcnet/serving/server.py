"""Run the application: report the start once the socket is bound, and let requests finish on shutdown.

On shutdown, requests in progress have a few seconds to finish, while new requests get status 503. The socket is then
closed, and the remaining requests also get status 503.
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
# Timeouts for clients that send the headers of a request, or read a response, too slowly.
#
# uvicorn limits only the idle time between two requests: without these timeouts, headers that arrive byte by byte, or a
# response that is never read, would keep a connection open forever. `pcmcnet.serving.request_body` limits bodies.
#
# A request may be rejected before its body has arrived, for example because the server is busy. If the connection were
# closed then, the system would reset it, and the client would lose the response. So the rest of the body is discarded,
# within the timeout and a limit, and the connection stays open.


_MIN_BYTES_READ = 65_536  # bytes of a response that a client must read within the timeout
_MAX_DISCARDED_BYTES = 32_000_000  # of a body whose request has been rejected


class TimedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with timeouts.

    There is a timeout for the headers of a request, for each 64 KiB of a long response, and for the rest of the body of
    a rejected request.
    """

    client_timeout: float  # seconds

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head: asyncio.TimerHandle | None = None
        self._answer: asyncio.TimerHandle | None = None
        self._rest: asyncio.TimerHandle | None = None
        self._rejected: Any = None  # the request whose body is discarded
        self._discarded = 0  # bytes after the response

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for the headers of a request."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Start the timeout at the first byte of the headers, and stop it when the headers are complete."""
        if self._rest is not None:
            self._discarded += len(data)
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._head = _stopped(self._head)
        elif not self.transport.is_closing():
            self._await_head()
        if self._rest is not None:
            self._check_rest()

    def on_response_complete(self) -> None:
        """Start the timeout for the rest of a body that nobody will read."""
        super().on_response_complete()
        self._rest = _stopped(self._rest)
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._rejected, self._discarded = self.cycle, 0
            self._rest = self.loop.call_later(self.client_timeout, self.transport.abort)

    def _check_rest(self) -> None:
        """Stop the timeout if the body is complete, and abort the connection if the body is too long.

        The end of the body and the next request may arrive together.
        """
        if self.conn.their_state is not h11.SEND_BODY or self.cycle is not self._rejected:
            self._rest = _stopped(self._rest)
        elif self._discarded > _MAX_DISCARDED_BYTES:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timeouts."""
        self._head, self._answer, self._rest = map(_stopped, (self._head, self._answer, self._rest))
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the timeout for a client that does not read the response."""
        super().pause_writing()
        self._answer = self._answer or self._await_reading()

    def resume_writing(self) -> None:
        """Stop the timeout, because the client is reading again."""
        super().resume_writing()
        self._answer = _stopped(self._answer)

    def _await_reading(self) -> asyncio.TimerHandle:
        return self.loop.call_later(self.client_timeout, self._check_reading, self.transport.get_write_buffer_size())

    def _check_reading(self, before: int) -> None:
        """Abort the connection if the client has read too little since the last check."""
        if self.transport.get_write_buffer_size() > before - _MIN_BYTES_READ:
            self.transport.abort()
        else:
            self._answer = self._await_reading()

    def _await_head(self) -> None:
        self._head = self._head or self.loop.call_later(self.client_timeout, self._give_up)

    def _give_up(self) -> None:
        """Close a connection with incomplete headers. If some headers have arrived, send status 408."""
        if not self.transport.is_closing():
            if self.conn.trailing_data[0]:
                message = f"the headers of the request did not arrive within {self.client_timeout:g} seconds."
                body = json.dumps({"error": message}).encode()
                headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
                head = h11.Response(status_code=408, headers=[*headers, ("Connection", "close")])
                for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                    self.transport.write(self.conn.send(event) or b"")
            self.transport.close()


def _stopped(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel a timer, if there is one, and return None to replace it."""
    if timer is not None:
        timer.cancel()
    return None


def timed_protocol(client_timeout: float) -> type[TimedProtocol]:
    """Return a protocol class with this timeout in seconds, because uvicorn expects a class."""
    return type("TimedProtocol", (TimedProtocol,), {"client_timeout": client_timeout})


# -- Server ------------------------------------------------------------------------------------------------------------


# Seconds that a worker thread may hold the interpreter while requests wait to be read. With Python's default of 5 ms,
# few requests are read during a batch, so that the next batch is small.
_SWITCH_INTERVAL = 0.0005
_CLOSE_SECONDS = 1  # for connections to close, after the time for requests to finish
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Port 0 means any free port. Raise ConfigError if the address is not available."""
    listening = None
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, _, _, address = addresses[0]
        # TCP must be named: otherwise asyncio keeps Nagle's algorithm, and each response waits 40 ms.
        listening = socket.socket(family, kind, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)
        return listening
    except (OSError, OverflowError) as error:
        if listening is not None:
            listening.close()
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot listen on {host}:{port}: {reason}. Choose another --host or --port.") from error


def loopback_names(host: str) -> tuple[str, ...] | None:
    """Return the host names of this machine if the server listens on the loopback interface only, else None."""
    name = host.lower().strip("[]")
    with suppress(ValueError):  # a host name, not an address
        if ip_address(name).is_loopback:
            return tuple(dict.fromkeys((*_LOOPBACK_NAMES, f"[{name}]" if ":" in name else name)))
    return _LOOPBACK_NAMES if name == "localhost" else None


def require_token(host: str, token: str | None, *, insecure: bool) -> None:
    """Raise ConfigError if other machines could use the model without a token, unless ``insecure`` is True."""
    if token is None and not insecure and loopback_names(host) is None:
        raise ConfigError(
            f"at {host!r}, other machines could use the model without a token: set the environment variable "
            f"PCMCNET_TOKEN, or add --insecure to allow this."
        )


def server_url(listening: socket.socket) -> str:
    """Return the URL of the server."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(app: Any, listening: socket.socket, *, on_start: Callable[[], None] | None = None) -> None:
    """Serve until a signal arrives, then wait ``settings.drain`` seconds for requests in progress."""
    import uvicorn

    worker = app.state.service.worker

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            worker.stop()
            until = monotonic() + worker.settings.drain
            while worker.in_flight and monotonic() < until and not self.force_exit:
                await asyncio.sleep(0.02)
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="error",  # invalid requests are not logged
        access_log=False,
        server_header=False,
        lifespan="on",
        http=timed_protocol(worker.settings.head_timeout),
        ws="none",
        timeout_keep_alive=15,
        timeout_graceful_shutdown=_CLOSE_SECONDS,
    )
    with _tuned_process():
        if on_start is not None:
            on_start()
        Server(config).run(sockets=[listening])


@contextmanager
def stop_on_signal() -> Iterator[None]:
    """End the block, but not the process, on SIGTERM or Ctrl+C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _tuned_process() -> Iterator[None]:
    """Tune the process for serving: switch threads often, log errors only, and freeze existing objects.

    Warnings about the data of clients, such as unseen categories, are not logged. The garbage collector, which stops
    all threads, skips frozen objects.
    """
    log, interval = logging.getLogger("pcmcnet"), sys.getswitchinterval()
    level, uvicorn_log = log.level, logging.getLogger("uvicorn.error")
    log.setLevel(logging.ERROR)
    uvicorn_log.addFilter(_is_relevant)
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        uvicorn_log.removeFilter(_is_relevant)
        log.setLevel(level)
        sys.setswitchinterval(interval)


def _is_relevant(record: logging.LogRecord) -> bool:
    """Filter out uvicorn's message that requests are cancelled on shutdown, because their clients get a response."""
    return not str(record.msg).startswith("Cancel %s running task(s)")
