"""Settings of a server: limits on requests, queues and batches, timeouts and access."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pcmcnet.checks import require_number
from pcmcnet.errors import ConfigError

TOKEN_VARIABLE = "PCMCNET_TOKEN"  # the environment variable


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeSettings:
    """Request limits and access control of a server.

    Parameters
    ----------
    token
        Bearer token that requests must send. If None (the default), there is no authentication.
    hosts
        Allowed values of the Host header. If None (the default), any value is allowed. Without a token, only names of
        this machine are safe: a web page on another site could otherwise reach the service by DNS rebinding.
    max_sets, max_alternatives
        Maximum number of choice sets in a request (default 1,000) and of alternatives in a set (default 500).
    max_pairs
        Maximum number of ordered pairs of alternatives in a request, summed over its sets (default 2,000,000). The
        running time of a chain model is proportional to this number.
    max_body
        Maximum size of a request body, in bytes (default 4,000,000).
    max_bodies
        Maximum total size of all bodies above 64 KiB in memory, from arrival to response, in bytes (default
        64,000,000). Further requests get status 503, but one body of ``max_body`` is always accepted. Parsed bodies
        take up to ten times as much memory.
    max_values, max_depth
        Maximum number of JSON values in a request, counting lists and objects (default 400,000), and maximum nesting
        depth (default 100). Values and depth are counted before any object is created. A valid request has six levels
        of nesting. In the worst case, 400,000 values take 50 MB and half a second.
    max_pixels
        Maximum number of pixels in the images of a request, counted before decoding (default 25,000,000).
    max_points
        Maximum number of map points along each axis (default 50).
    max_market_bytes
        Maximum size of the body of a request for a market, in bytes (default 16,000,000).
    max_market_rows, max_market_pairs
        Maximum number of alternatives (default 1,000,000) and of ordered pairs of alternatives (default 40,000,000) in
        a request for a market, summed over the table and all its scenarios.
    max_scenarios
        Maximum number of scenarios in a request for a market (default 32).
    queue
        Maximum number of requests in progress, counted from the end of their bodies (default 256). Further requests get
        status 503.
    batch_sets, batch_pairs
        Maximum number of choice sets (default 1,000) and of pairs (default 100,000) in a batch of small requests, or in
        a chunk of a large one. A batch of 100,000 pairs takes 50 ms for a network of 64x64 units.
    large_threads
        Maximum number of threads for large requests (default 2). All but one of them wait while there are small
        requests.
    gather
        Time that the first request of a batch waits for requests that are still being read, in seconds (default 0.003).
    head_timeout, body_timeout
        Timeouts for the headers (default 10) and the body (default 30) of a request, in seconds. A client that reads
        less than 64 KiB of a long response within ``head_timeout`` is disconnected.
    deadline
        Timeout from the end of the body to the response, in seconds (default 30). After this time, the request gets
        status 504.
    drain
        Time for requests in progress to finish when the server stops, in seconds (default 20).
    title
        Name of the model on the page (default: the class of the model).

    Raises
    ------
    ConfigError
        If a limit is not positive, or the token is not one line of printable ASCII characters.
    """

    token: str | None = None
    hosts: tuple[str, ...] | None = None
    max_sets: int = 1_000
    max_alternatives: int = 500
    max_pairs: int = 2_000_000
    max_body: int = 4_000_000
    max_bodies: int = 64_000_000
    max_values: int = 400_000
    max_depth: int = 100
    max_pixels: int = 25_000_000
    max_points: int = 50
    max_market_bytes: int = 16_000_000
    max_market_rows: int = 1_000_000
    max_market_pairs: int = 40_000_000
    max_scenarios: int = 32
    queue: int = 256
    batch_sets: int = 1_000
    batch_pairs: int = 100_000
    large_threads: int = 2
    gather: float = 0.003
    head_timeout: float = 10.0
    body_timeout: float = 30.0
    deadline: float = 30.0
    drain: float = 20.0
    title: str | None = None

    def __post_init__(self) -> None:
        sizes = ("max_sets", "max_alternatives", "max_pairs", "max_body", "max_values", "max_pixels", "queue")
        markets = ("max_market_bytes", "max_market_rows", "max_market_pairs", "max_scenarios")
        for name in (*sizes, *markets, "max_bodies", "batch_sets", "batch_pairs", "large_threads"):
            require_number(name, getattr(self, name), whole=True, low=1)
        require_number("max_depth", self.max_depth, whole=True, low=1, high=500)  # Python's recursion limit is 1,000
        require_number("max_points", self.max_points, whole=True, low=2)
        for name in ("gather", "head_timeout", "body_timeout", "deadline", "drain"):
            require_number(name, getattr(self, name), low=0)
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token.strip()):
            raise ConfigError("token must be one non-empty line of printable ASCII characters.")
        if self.token is not None and self.token != self.token.strip():
            raise ConfigError("token must not begin or end with a space.")


def resolve_token(token: str | None) -> str | None:
    """Return the token, by default from the environment. Raise ConfigError if the environment variable is empty."""
    if token is None:
        token = os.environ.get(TOKEN_VARIABLE)
        if token is not None and not token.strip():
            raise ConfigError(
                f"the environment variable {TOKEN_VARIABLE} is empty: set a token, or unset the variable."
            )
    return token
