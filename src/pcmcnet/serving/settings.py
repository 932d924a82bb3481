"""How much a server takes on: limits on requests, on what waits and on what is predicted at once."""

from __future__ import annotations

from dataclasses import dataclass

from pcmcnet.errors import ConfigError
from pcmcnet.training.config import require_number


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
    max_pixels
        Pixels of the pictures of a request, counted before any is decoded.
    max_points
        Points of a map along each axis.
    queue
        Requests under way at once; more are turned away with status 503.
    batch_sets, batch_pairs
        Bounds on what is predicted in one batch. A request that is larger is a batch of its own.
    gather
        Seconds that the first request of a batch waits for others that are being read.
    body_timeout
        Seconds within which a body must have arrived.
    """

    token: str | None = None
    hosts: tuple[str, ...] | None = None
    max_sets: int = 1_000
    max_alternatives: int = 500
    max_pairs: int = 2_000_000
    max_body: int = 4_000_000
    max_pixels: int = 25_000_000
    max_points: int = 50
    queue: int = 256
    batch_sets: int = 1_000
    batch_pairs: int = 500_000
    gather: float = 0.003
    body_timeout: float = 30.0

    def __post_init__(self) -> None:
        sizes = ("max_sets", "max_alternatives", "max_pairs", "max_body", "max_pixels", "queue", "batch_sets")
        for name in (*sizes, "batch_pairs"):
            require_number(name, getattr(self, name), whole=True, low=1)
        require_number("max_points", self.max_points, whole=True, low=2)
        require_number("gather", self.gather, low=0)
        require_number("body_timeout", self.body_timeout, low=0)
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token.strip()):
            raise ConfigError("token must be one line of printable ASCII characters, and not empty.")
        if self.token is not None and self.token != self.token.strip():
            raise ConfigError("token must not begin or end with a space.")
