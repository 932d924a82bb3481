"""Run the application: a socket that is bound before anything is promised, and an end that lets requests finish.

At the end, requests under way have some seconds to finish, while those that come are answered with 503. Then the socket
is closed, and what is still under way is cut off with 503, too.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from time import monotonic
from typing import Any

from pcmcnet.errors import ConfigError

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


def address_of(listening: socket.socket) -> str:
    """Return the address to type into a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(app: Any, listening: socket.socket, *, on_start: Callable[[], None] | None = None) -> None:
    """Serve until a signal comes; requests under way then have the seconds of ``settings.drain`` to finish."""
    import uvicorn

    from pcmcnet.serving.protocol import timed

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
