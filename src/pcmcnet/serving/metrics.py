"""What the server counts, in the text format that Prometheus reads.

Labels take few values: paths that are not routes are counted together. Written from the event loop and from the worker.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock

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


class Metrics:
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
