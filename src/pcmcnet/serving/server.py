"""Run the application: a socket that is bound before anything is promised, and an end that lets requests finish."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pcmcnet.errors import ConfigError

# Seconds that the thread which asks the models may keep the interpreter while requests are to be read. At Python's own
# 5 ms, few requests are read during a batch, so that the next batch is small.
_TURN = 0.0005


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
    local = ("localhost", "127.0.0.1", "[::1]")
    return local if host.lower() in (*local, "::1") else None


def address_of(listening: socket.socket) -> str:
    """Return the address to type into a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(app: Any, listening: socket.socket, *, patience: int = 30, on_start: Callable[[], None] | None = None) -> None:
    """Serve until a signal comes; requests under way then have ``patience`` seconds to finish."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="error",  # what strangers send is no news
        access_log=False,
        server_header=False,
        lifespan="on",
        http="h11",  # bounds the headers of a request; the faster httptools, taken where it is installed, does not
        ws="none",
        timeout_keep_alive=15,
        timeout_graceful_shutdown=patience,
    )
    server = uvicorn.Server(config)
    with _at_service():
        if on_start is not None:
            on_start()
        server.run(sockets=[listening])


@contextmanager
def _at_service() -> Iterator[None]:
    """Let threads take turns often, and log errors alone: what clients send, unseen categories say, is no news."""
    log, turn = logging.getLogger("pcmcnet"), sys.getswitchinterval()
    level = log.level
    log.setLevel(logging.ERROR)
    sys.setswitchinterval(_TURN)
    try:
        yield
    finally:
        log.setLevel(level)
        sys.setswitchinterval(turn)
