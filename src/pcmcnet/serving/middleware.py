"""What every request passes through: the token, the headers of the answer, the count.

A plain ASGI application around another. No exception leaves it: what went wrong inside becomes a JSON answer.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from collections.abc import Callable, Collection, MutableMapping
from time import perf_counter
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pcmcnet.serving.metrics import Metrics
from pcmcnet.serving.refusal import busy
from pcmcnet.serving.settings import ServeSettings

log = logging.getLogger("pcmcnet.serving")

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_MISHAP = "something went wrong inside the server: its log says what."


class Gate:
    """Lets requests in; ``open_paths`` need no token, and ``routes`` are counted one by one.

    ``stopping`` tells whether the server stops: what is cut off then has an answer, too.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: ServeSettings,
        open_paths: Collection[str],
        routes: Collection[str],
        metrics: Metrics,
        stopping: Callable[[], bool],
    ) -> None:
        self.app = app
        self.expected = None if settings.token is None else settings.token.encode()
        self.hosts = settings.hosts
        self.open_paths = frozenset(open_paths)
        self.routes = frozenset(routes)
        self.metrics = metrics
        self.stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, begun = perf_counter(), 500, False

        async def send_on(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                _add_headers(message)
            await send(message)

        try:
            await self._answer(scope, receive, send_on)
        except Exception:
            log.exception("a request to %s failed", scope["path"] if scope["path"] in self.routes else "another path")
            if begun:
                raise  # half an answer is out: all that can be done is to break off
            await JSONResponse({"error": _MISHAP}, 500)(scope, receive, send_on)
        except asyncio.CancelledError:  # cut off by a server that stops, or by one that has lost the client
            if begun or not self.stopping():
                raise
            cut = busy("the server is stopping", close=True)
            await JSONResponse({"error": cut.message}, cut.status, cut.headers)(scope, receive, send_on)
        finally:
            path = scope["path"]
            self.metrics.request(path if path in self.routes else "other", status, perf_counter() - began)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if self.hosts is not None and _host(scope) not in self.hosts:
            app = JSONResponse({"error": f"host: expected one of {', '.join(self.hosts)}; or serve with a token."}, 421)
        elif scope["path"] not in self.open_paths and not self._has_token(scope):
            message = "a token is required: send the header Authorization: Bearer TOKEN, with that of --token."
            app = JSONResponse({"error": message}, 401, {"WWW-Authenticate": "Bearer"})
        await app(scope, receive, send)

    def _has_token(self, scope: Scope) -> bool:
        if self.expected is None:
            return True
        scheme, _, token = _header(scope, b"authorization").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self.expected)


def _header(scope: Scope, name: bytes) -> bytes:
    found: bytes = next((value for key, value in scope["headers"] if key == name), b"")
    return found


def _host(scope: Scope) -> str:
    """Return the name by which a request addresses the server, without the port."""
    return re.sub(r":\d*$", "", _header(scope, b"host").decode("latin-1")).lower()


def _add_headers(message: MutableMapping[str, Any]) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
