"""How much a server takes on: limits on requests, on what waits and on what is predicted at once."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pcmcnet.checks import require_number
from pcmcnet.errors import ConfigError

TOKEN = "PCMCNET_TOKEN"  # the environment variable


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeSettings:
    """Limits and access.

    Parameters
    ----------
    token
        Bearer token that requests must show; None lets everyone in.
    hosts
        Names by which requests may address the server; None takes any. Without a token, those of this machine alone
        keep out pages of other sites whose name was made to point here.
    max_sets, max_alternatives
        Choice sets of a request, and alternatives of a set.
    max_pairs
        Ordered pairs of alternatives of a request, summed over its sets: what the time of a chain model grows with.
    max_body
        Bytes of a request's body.
    max_bodies
        Bytes of all bodies above 64 KiB that are held at once, from their arrival to their answer; more are turned away
        with status 503; one of ``max_body`` is always taken. What is made of them takes up to ten times as much memory.
    max_values, max_depth
        Values of a request, its lists and objects among them, and levels of nesting: both are counted before any object
        is made. A request needs six levels; 400,000 values of the worst kind take 50 MB and half a second.
    max_pixels
        Pixels of the pictures of a request, counted before any is decoded.
    max_points
        Points of a map along each axis.
    queue
        Requests under way at once, from the end of their body on; more are turned away with status 503.
    batch_sets, batch_pairs
        Bounds on what is predicted in one batch. A request that is larger is predicted in pieces, which take turns with
        the batches of others: 100,000 pairs take 50 ms for a network of 64x64 units.
    gather
        Seconds that the first request of a batch waits for others that are being read.
    head_timeout, body_timeout
        Seconds within which the head of a request must have arrived, and its body. A client that reads less
        than 64 KiB of a long answer in the first of the two is cut off.
    deadline
        Seconds from the end of the body within which there must be an answer; then the work stops, with status 504.
    drain
        Seconds that requests under way have to finish when the server is told to stop.
    title
        What the page calls the model; by default its class.
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
    queue: int = 256
    batch_sets: int = 1_000
    batch_pairs: int = 100_000
    gather: float = 0.003
    head_timeout: float = 10.0
    body_timeout: float = 30.0
    deadline: float = 30.0
    drain: float = 20.0
    title: str | None = None

    def __post_init__(self) -> None:
        sizes = ("max_sets", "max_alternatives", "max_pairs", "max_body", "max_values", "max_pixels", "queue")
        for name in (*sizes, "max_bodies", "batch_sets", "batch_pairs"):
            require_number(name, getattr(self, name), whole=True, low=1)
        require_number("max_depth", self.max_depth, whole=True, low=1, high=500)  # Python itself gives up at 1,000
        require_number("max_points", self.max_points, whole=True, low=2)
        for name in ("gather", "head_timeout", "body_timeout", "deadline", "drain"):
            require_number(name, getattr(self, name), low=0)
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token.strip()):
            raise ConfigError("token must be one line of printable ASCII characters, and not empty.")
        if self.token is not None and self.token != self.token.strip():
            raise ConfigError("token must not begin or end with a space.")


def token_of(given: str | None) -> str | None:
    """Return the token that was given, else that of the environment; an empty one there would let everyone in."""
    token = os.environ.get(TOKEN) if given is None else given
    if given is None and token is not None and not token.strip():
        raise ConfigError(f"the environment variable {TOKEN} is empty: give it a token, or unset it.")
    return token
