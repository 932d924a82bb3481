"""What every request passes through: the token, the headers of the answer, the count.

A plain ASGI application around another. No exception leaves it: what went wrong inside becomes a JSON answer.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from threading import Lock
from time import perf_counter
from typing import Any, TypeVar

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pcmcnet.serving.request_body import RefusalError, busy
from pcmcnet.serving.settings import ServeSettings

log = logging.getLogger("pcmcnet.serving")

# -- Deadline ----------------------------------------------------------------------------------------------------------
# Work that is wanted: until its deadline, and as long as the client is there.


T = TypeVar("T")
CLIENT_GONE = 499  # nobody reads this answer: it is there to be counted


async def while_wanted(work: Awaitable[T], request: Request, seconds: float) -> T:
    """Await ``work`` for a request whose body has been read; cancel it at the deadline, or when the client leaves."""
    try:
        async with asyncio.timeout(seconds) as limit:
            watch = asyncio.create_task(_end_with_client(request, limit))
            try:
                return await work
            finally:
                watch.cancel()
    except TimeoutError:
        if not limit.expired():  # the work's own
            raise
        if watch.done():
            raise RefusalError(CLIENT_GONE, "the connection was closed before the answer was there.") from None
        message = f"there was no answer within {seconds:g} seconds: ask about fewer choice sets at once, or try again "
        raise RefusalError(504, message + "when there is less to do.") from None


async def _end_with_client(request: Request, limit: asyncio.Timeout) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    limit.reschedule(asyncio.get_running_loop().time())


# -- Metrics -----------------------------------------------------------------------------------------------------------
# What the server counts, in the text format that Prometheus reads.
#
# Labels take few values: paths that are not routes are counted together. Written from the event loop and from the
# worker.


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


class Histogram:
    """Counts of values up to each bound, with their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: Mapping[str, str] | None = None) -> Iterator[str]:
        """Write the series of one histogram; counts add up from bound to bound."""
        total = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            yield _line(f"{name}_bucket", {**(labels or {}), "le": bound}, total)
        yield _line(f"{name}_sum", labels, self.sum)
        yield _line(f"{name}_count", labels, total)


class ServerMetrics:
    """All that is counted; ``under_way`` is asked for the requests under way when the text is written."""

    def __init__(self, under_way: Callable[[], int] = lambda: 0) -> None:
        self.under_way = under_way
        self._lock = Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(SECONDS))
        self._batches = Histogram(SETS)
        self._jobs = Histogram(SETS)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        with self._lock:
            self._requests[route, status] += 1
            self._seconds[route].observe(seconds)

    def batch(self, *, sets: int, requests: int) -> None:
        """Count what was predicted at once."""
        with self._lock:
            self._batches.observe(sets)
            self._jobs.observe(requests)

    def text(self) -> str:
        """Write everything."""
        with self._lock:
            return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _head("pcmcnet_requests_total", "counter", "Requests by route and status.")
        for (route, status), count in sorted(self._requests.items()):
            yield _line("pcmcnet_requests_total", {"route": route, "status": str(status)}, count)
        yield from _head("pcmcnet_request_seconds", "histogram", "Time from a request to its answer.")
        for route, histogram in sorted(self._seconds.items()):
            yield from histogram.lines("pcmcnet_request_seconds", {"route": route})
        yield from _head("pcmcnet_queue_length", "gauge", "Requests being read, waiting or predicted.")
        yield _line("pcmcnet_queue_length", None, self.under_way())
        yield from _head("pcmcnet_batch_sets", "histogram", "Choice sets predicted in one batch.")
        yield from self._batches.lines("pcmcnet_batch_sets")
        yield from _head("pcmcnet_batch_requests", "histogram", "Requests answered by one batch.")
        yield from self._jobs.lines("pcmcnet_batch_requests")
        yield from _head("pcmcnet_sets_predicted_total", "counter", "Choice sets predicted.")
        yield _line("pcmcnet_sets_predicted_total", None, self._batches.sum)


def _head(name: str, kind: str, help_: str) -> Iterator[str]:
    yield f"# HELP {name} {help_}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, labels: Mapping[str, str] | None, value: float) -> str:
    """Write one sample; the values of labels are routes, statuses and bounds, which need no escapes."""
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
