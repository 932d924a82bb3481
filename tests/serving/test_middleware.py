"""No work is done for a client that has left or after the timeout."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import Request

from pcmcnet.models import PCMCNet
from pcmcnet.serving.middleware import SECONDS_BUCKETS, Histogram, ServerMetrics, run_until_deadline
from pcmcnet.serving.request_body import RequestError
from pcmcnet.serving.worker import Job


class Held:
    """A model that blocks until it may continue, and records the size of each call."""

    def __init__(self, model: PCMCNet) -> None:
        self.predict = model.predict_log_proba
        self.begun, self.may_go = threading.Event(), threading.Event()
        self.sizes: list[int] = []

    def __call__(self, data: Any) -> Any:
        self.sizes.append(len(data))
        self.begun.set()
        assert self.may_go.wait(60)
        return self.predict(data)


@pytest.fixture
def held(net: PCMCNet, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held(net)
    monkeypatch.setattr(net, "predict_log_proba", held, raising=False)
    yield held
    held.may_go.set()


def request_of(client: asyncio.Event) -> Request:
    """Return a request whose client leaves when an event is set."""

    async def receive() -> dict[str, Any]:
        await client.wait()
        return {"type": "http.disconnect"}

    return Request({"type": "http", "headers": []}, receive)


def test_after_the_timeout_requests_get_504_and_are_not_started(
    held: Held, net: PCMCNet, make_client: Any, sets: Any
) -> None:
    """The model is busy with a request of two chunks. Two more requests time out while they wait."""
    client = make_client(net, deadline=0.01, batch_sets=5)
    service = client.app.state.service
    with service.worker.admit() as admission:
        first = admission.put(Job("main", "log_proba", service.readers["main"].read(sets)))
    assert held.begun.wait(60)
    for _ in range(2):
        answer = client.post("/v1/probabilities", json={"sets": sets})
        assert answer.status_code == 504
        assert answer.json()["error"].startswith("timeout after 0.01 seconds: send fewer")
        assert service.worker.in_flight == 0
    held.may_go.set()
    assert len(first.result(60)) > len(sets)
    service.worker.close()
    assert held.sizes == [5, 3]


def test_abandoned_requests_are_not_computed(held: Held, net: PCMCNet, make_client: Any, sets: Any) -> None:
    """The clients of ten large requests leave while the first chunk is computed."""
    client = make_client(net, batch_sets=4, deadline=60)

    async def run() -> Any:
        left = asyncio.Event()
        handlers = [asyncio.create_task(abandoned(client.app, left, {"sets": sets * 10})) for _ in range(10)]
        while client.app.state.service.worker.in_flight < 10 or not held.begun.is_set():
            await asyncio.sleep(0.001)
        left.set()
        await asyncio.gather(*handlers)
        assert client.app.state.service.worker.in_flight == 0
        held.may_go.set()
        return await client.http.post("/v1/probabilities", json={"sets": sets[:1]})

    assert client.runner.run(run()).status_code == 200
    assert held.sizes == [4, 1]
    assert 'status="499"} 10' in client.app.state.service.worker.metrics.text()


async def abandoned(app: Any, left: asyncio.Event, body: Any) -> None:
    """Send a request over an ASGI connection that closes when an event is set."""
    messages = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    path = "/v1/probabilities"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    await app(scope | {"headers": [(b"content-type", b"application/json")]}, receive, send)


def test_work_within_the_timeout_gives_its_result_or_error() -> None:
    async def work(error: Exception | None = None) -> int:
        await asyncio.sleep(0)
        if error is not None:
            raise error
        return 3

    async def run() -> None:
        request = request_of(asyncio.Event())
        assert await run_until_deadline(work(), request, 60) == 3
        for error in (RequestError(422, "no"), TimeoutError("the model's own")):
            with pytest.raises(type(error), match=str(error)):
                await run_until_deadline(work(error), request, 60)

    asyncio.run(run())


def test_work_is_cancelled_when_the_client_leaves() -> None:
    async def run() -> None:
        left, cancelled = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            left.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        with pytest.raises(RequestError, match="the connection was closed") as refusal:
            await run_until_deadline(work(), request_of(left), 60)
        assert refusal.value.status == 499
        assert cancelled.is_set()

    asyncio.run(run())


# -- Metrics -----------------------------------------------------------------------------------------------------------
# Counters, parsed from the text.


SAMPLE = re.compile(r'(\w+)(?:\{((?:\w+="[^"\\]*",?)+)\})? (\d+(?:\.\d+)?(?:e-?\d+)?)')


def samples(text: str) -> dict[str, float]:
    """Return the value of each series in the text format. Check that HELP and TYPE come first."""
    values: dict[str, float] = {}
    typed: set[str] = set()
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            typed.add(line.split()[2])
        elif not line.startswith("# HELP "):
            name, labels, value = SAMPLE.fullmatch(line).groups()  # type: ignore[union-attr]
            assert re.sub(r"_(bucket|sum|count)$", "", name) in typed or name in typed
            values[f"{name}{{{labels}}}" if labels else name] = float(value)
    return values


def test_histogram_buckets_are_cumulative() -> None:
    histogram = Histogram([1, 2, 4])
    for value in (0.5, 1, 3, 3, 9):
        histogram.observe(value)
    assert list(histogram.lines("x", {"route": "/"})) == [
        'x_bucket{route="/",le="1"} 2',
        'x_bucket{route="/",le="2"} 2',
        'x_bucket{route="/",le="4"} 4',
        'x_bucket{route="/",le="+Inf"} 5',
        'x_sum{route="/"} 16.5',
        'x_count{route="/"} 5',
    ]


def test_requests_are_counted_by_route_and_status(net: PCMCNet, make_client: Any, sets: Any) -> None:
    client = make_client(net)
    for _ in range(3):
        client.post("/v1/probabilities", json={"sets": sets})
    client.post("/v1/probabilities", json={})
    for path in ("/nowhere", "/also-nowhere", "/%22quoted%22%0A", "/health"):
        client.get(path)
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    values = samples(answer.text)
    assert values['pcmcnet_requests_total{route="/v1/probabilities",status="200"}'] == 3
    assert values['pcmcnet_requests_total{route="/v1/probabilities",status="422"}'] == 1
    assert values['pcmcnet_requests_total{route="other",status="404"}'] == 3
    assert values['pcmcnet_requests_total{route="/health",status="200"}'] == 1
    assert values['pcmcnet_request_seconds_count{route="/v1/probabilities"}'] == 4
    assert values['pcmcnet_request_seconds_bucket{route="/v1/probabilities",le="+Inf"}'] == 4
    assert values["pcmcnet_queue_length"] == 0
    assert values["pcmcnet_sets_predicted_total"] == 3 * len(sets)
    assert values["pcmcnet_batch_sets_count"] == values["pcmcnet_batch_requests_count"] == 3


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.25, 1e12])
def test_numbers_follow_the_text_format(value: float) -> None:
    metrics = ServerMetrics()
    metrics.request("/health", 200, value)
    assert samples(metrics.text())['pcmcnet_request_seconds_sum{route="/health"}'] == value
    assert len(SECONDS_BUCKETS) + 1 == metrics.text().count("_seconds_bucket")
