"""Middleware for all requests: authentication, security headers, metrics and timeouts.

The middleware is an ASGI application that wraps another one and turns its exceptions into JSON responses.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from threading import Lock
from time import perf_counter
from typing import TypeVar

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pcmcnet.serving.request_body import RequestError, busy
from pcmcnet.serving.settings import ServeSettings

log = logging.getLogger("pcmcnet.serving")

# -- Deadline ----------------------------------------------------------------------------------------------------------
# Work stops at its deadline, or when the client disconnects.


T = TypeVar("T")
CLIENT_GONE = 499  # status for the metrics only; the client has disconnected


async def run_until_deadline(work: Awaitable[T], request: Request, seconds: float) -> T:
    """Await ``work`` for a request with a complete body. Cancel ``work`` on timeout, or if the client disconnects."""
    try:
        async with asyncio.timeout(seconds) as limit:
            watch = asyncio.create_task(_stop_on_disconnect(request, limit))
            try:
                return await work
            finally:
                watch.cancel()
    except TimeoutError:
        if not limit.expired():  # raised by the work itself
            raise
        if watch.done():
            raise RequestError(CLIENT_GONE, "the connection was closed before the response.") from None
        message = f"timeout after {seconds:g} seconds: send fewer choice sets, or try again later."
        raise RequestError(504, message) from None


async def _stop_on_disconnect(request: Request, limit: asyncio.Timeout) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    limit.reschedule(asyncio.get_running_loop().time())


# -- Metrics -----------------------------------------------------------------------------------------------------------
# Metrics in the text format of Prometheus. Paths that are not routes share one label, so that the number of labels is
# bounded. Updated by the event loop and the worker threads.


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SETS_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


class Histogram:
    """A histogram: the number of values up to each bound, and the sum of all values."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: Mapping[str, str] | None = None) -> Iterator[str]:
        """Yield the lines of one histogram, with cumulative counts."""
        total = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            yield _line(f"{name}_bucket", {**(labels or {}), "le": bound}, total)
        yield _line(f"{name}_sum", labels, self.sum)
        yield _line(f"{name}_count", labels, total)


class ServerMetrics:
    """The metrics of the server. ``in_flight`` returns the number of requests in progress."""

    def __init__(self, in_flight: Callable[[], int] = lambda: 0) -> None:
        self.in_flight = in_flight
        self._lock = Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(SECONDS_BUCKETS))
        self._batches = Histogram(SETS_BUCKETS)
        self._jobs = Histogram(SETS_BUCKETS)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a completed request."""
        with self._lock:
            self._requests[route, status] += 1
            self._seconds[route].observe(seconds)

    def batch(self, *, sets: int, requests: int) -> None:
        """Count a predicted batch."""
        with self._lock:
            self._batches.observe(sets)
            self._jobs.observe(requests)

    def text(self) -> str:
        """Return all metrics in the text format of Prometheus."""
        with self._lock:
            return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _head("pcmcnet_requests_total", "counter", "Requests by route and status.")
        for (route, status), count in sorted(self._requests.items()):
            yield _line("pcmcnet_requests_total", {"route": route, "status": str(status)}, count)
        yield from _head("pcmcnet_request_seconds", "histogram", "Time from a request to its response.")
        for route, histogram in sorted(self._seconds.items()):
            yield from histogram.lines("pcmcnet_request_seconds", {"route": route})
        yield from _head("pcmcnet_queue_length", "gauge", "Requests in progress: being read, queued or predicted.")
        yield _line("pcmcnet_queue_length", None, self.in_flight())
        yield from _head("pcmcnet_batch_sets", "histogram", "Choice sets predicted in one batch.")
        yield from self._batches.lines("pcmcnet_batch_sets")
        yield from _head("pcmcnet_batch_requests", "histogram", "Requests in one batch.")
        yield from self._jobs.lines("pcmcnet_batch_requests")
        yield from _head("pcmcnet_sets_predicted_total", "counter", "Choice sets predicted.")
        yield _line("pcmcnet_sets_predicted_total", None, self._batches.sum)


def _head(name: str, kind: str, help_: str) -> Iterator[str]:
    yield f"# HELP {name} {help_}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, labels: Mapping[str, str] | None, value: float) -> str:
    """Return the line of a metric sample. Label values are routes, statuses and bounds, which need no escaping."""
    inside = ",".join(f'{key}="{text}"' for key, text in (labels or {}).items())
    number = str(int(value)) if float(value).is_integer() else repr(float(value))
    return f"{name}{{{inside}}} {number}" if inside else f"{name} {number}"


# -- Middleware --------------------------------------------------------------------------------------------------------


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
_HTTP_VERSIONS = ("1.0", "1.1", "2", "3")  # as servers write them; the last two are not text protocols
_INTERNAL_ERROR = "internal error: see the server log."


class GateMiddleware:
    """Middleware that checks host and token, adds security headers and counts requests.

    Requests to ``open_paths`` need no token. Each path in ``routes`` has a separate label in the metrics. ``stopping``
    returns True while the server is stopping. A request that is cancelled during shutdown also gets a response.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: ServeSettings,
        open_paths: Collection[str],
        routes: Collection[str],
        metrics: ServerMetrics,
        stopping: Callable[[], bool],
    ) -> None:
        self.app, self.metrics, self.stopping = app, metrics, stopping
        self.expected = None if settings.token is None else settings.token.encode()
        self.hosts = settings.hosts
        self.open_paths, self.routes = frozenset(open_paths), frozenset(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, responding = perf_counter(), 500, False

        async def send_on(message: Message) -> None:
            nonlocal status, responding
            if message["type"] == "http.response.start":
                status, responding = message["status"], True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._respond(scope, receive, send_on)
        except Exception:
            log.exception("a request to %s failed", scope["path"] if scope["path"] in self.routes else "another path")
            if responding:
                raise  # part of the response is sent: the connection must be closed
            await JSONResponse({"error": _INTERNAL_ERROR}, 500)(scope, receive, send_on)
        except asyncio.CancelledError:  # the server stops, or the client disconnected
            if responding or not self.stopping():
                raise
            stopped = busy("the server is stopping", close=True)
            await JSONResponse({"error": stopped.message}, stopped.status, stopped.headers)(scope, receive, send_on)
        finally:
            path = scope["path"]
            self.metrics.request(path if path in self.routes else "other", status, perf_counter() - start)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if (version := scope.get("http_version", "1.1")) not in _HTTP_VERSIONS:
            message = f"HTTP/{version} is not supported: use HTTP/1.1."
            app = JSONResponse({"error": message}, 505, {"Connection": "close"})
        elif _header(scope, b"transfer-encoding") and _header(scope, b"content-length"):
            message = "a request must not have both Content-Length and Transfer-Encoding."
            app = JSONResponse({"error": message}, 400, {"Connection": "close"})
        elif self.hosts is not None and _host(scope) not in self.hosts:
            message = f"host: expected one of {', '.join(self.hosts)}. To allow any host, serve the model with a token."
            app = JSONResponse({"error": message}, 421)
        elif scope["path"] not in self.open_paths and not self._has_token(scope):
            message = "a token is required: send the header Authorization: Bearer TOKEN, with the token of --token."
            app = JSONResponse({"error": message}, 401, {"WWW-Authenticate": "Bearer"})
        await app(scope, receive, send)

    def _has_token(self, scope: Scope) -> bool:
        if self.expected is None:
            return True
        scheme, _, token = _header(scope, b"authorization").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self.expected)


def _header(scope: Scope, name: bytes) -> bytes:
    header: bytes = next((value for key, value in scope["headers"] if key == name), b"")
    return header


def _host(scope: Scope) -> str:
    """Return the Host header of a request, without the port."""
    return re.sub(r":\d*$", "", _header(scope, b"host").decode("latin-1")).lower()
