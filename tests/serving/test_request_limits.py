"""Bodies are bounded while they arrive, in length, in time and together; slow senders take no place."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import pytest
from starlette.requests import Request

from pcmcnet.models import PCMCNet
from pcmcnet.serving.refusal import RefusalError
from pcmcnet.serving.request_limits import LARGE, Bodies
from pcmcnet.serving.settings import ServeSettings

JSON = {"Content-Type": "application/json"}


def arriving(*chunks: bytes, end: str = "http.request") -> Request:
    """Make a request whose body comes in chunks, and ends or breaks off."""
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    messages.append({"type": end, "body": b""})

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    return Request({"type": "http", "headers": [(b"content-type", b"application/json")]}, receive)


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "é"])
def test_another_content_type_is_refused(kind: str | None, net: PCMCNet, make_client: Any) -> None:
    """A page of another site can send those without asking, so that they must have no effect."""
    headers = {} if kind is None else {"Content-Type": kind.encode("latin-1")}
    answer = make_client(net).post("/v1/probabilities", content=b'{"sets": []}', headers=headers)
    assert answer.status_code == 415
    assert "expected application/json" in answer.json()["error"]


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/problem+json"])
def test_a_content_type_may_have_parameters(kind: str, net: PCMCNet, make_client: Any) -> None:
    answer = make_client(net).post("/v1/probabilities", content=b'{"sets": []}', headers={"Content-Type": kind})
    assert answer.status_code == 422


def test_a_body_is_measured_by_its_declared_length_or_while_it_arrives(net: PCMCNet, make_client: Any) -> None:
    client = make_client(net, max_body=1_000)
    message = "the body is larger than 1,000 bytes: ask about fewer choice sets at once, or raise --max-body."
    taken = []

    async def chunks() -> AsyncIterator[bytes]:
        for k in range(1_000):
            taken.append(k)
            yield b" " * 100

    for content in (b" " * 1_001, chunks()):
        answer = client.post("/v1/probabilities", content=content, headers=JSON)
        assert (answer.status_code, answer.json()["error"]) == (413, message)
        assert answer.headers["connection"] == "close"
    assert len(taken) <= 12, "the rest of the body is not asked for"
    assert client.post("/v1/probabilities", content=b" " * 1_000, headers=JSON).status_code == 400


def test_a_body_that_does_not_arrive_is_not_waited_for(net: PCMCNet, make_client: Any) -> None:
    client = make_client(net, body_timeout=0.01)

    async def chunks() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    answer = client.post("/v1/probabilities", content=chunks(), headers=JSON)
    assert (answer.status_code, answer.json()["error"]) == (408, "the body did not arrive within 0.01 seconds.")
    assert client.app.state.service.worker.under_way == 0


def test_a_client_that_goes_away_is_no_mishap() -> None:
    bodies = Bodies(ServeSettings())
    with bodies.place() as place, pytest.raises(RefusalError, match="the connection was closed"):
        asyncio.run(place.read(arriving(b"{", end="http.disconnect")))


def test_slow_senders_take_no_place_among_requests_under_way(net: PCMCNet, make_client: Any, sets: Any) -> None:
    """Three bodies that never end, on a server that takes one request at a time: a fourth is answered all the same."""
    client = make_client(net, queue=1)
    begun = asyncio.Semaphore(0)

    async def chunks() -> AsyncIterator[bytes]:
        yield b"{"
        begun.release()
        await asyncio.Event().wait()

    async def run() -> int:
        ask = client.http.post
        slow = [asyncio.create_task(ask("/v1/rates", content=chunks(), headers=JSON)) for _ in range(3)]
        for _ in slow:
            await begun.acquire()
        assert client.app.state.service.worker.under_way == 0
        answer = await ask("/v1/probabilities", json={"sets": sets})
        for task in slow:
            task.cancel()
        return int(answer.status_code)

    assert client.runner.run(run()) == 200


def test_large_bodies_are_bounded_together_and_small_ones_are_always_read() -> None:
    bodies = Bodies(ServeSettings(max_body=3 * LARGE, max_bodies=5 * LARGE))
    large, small = b" " * 2 * LARGE, b" " * LARGE

    def read(place: Any, *chunks: bytes) -> int:
        return len(asyncio.run(place.read(arriving(*chunks))))

    with ExitStack() as stack:
        for _ in range(2):
            assert read(stack.enter_context(bodies.place()), large[:LARGE], large[LARGE:]) == 2 * LARGE
        with bodies.place() as third, pytest.raises(RefusalError, match="holds as many large requests") as refusal:
            read(third, large)
        assert refusal.value.status == 503
        for _ in range(10):
            assert read(stack.enter_context(bodies.place()), small) == LARGE
        assert bodies.held == 4 * LARGE
    assert bodies.held == 0


def test_one_body_of_the_largest_size_is_always_taken() -> None:
    bodies = Bodies(ServeSettings(max_body=3 * LARGE, max_bodies=1))
    with bodies.place() as place:
        assert len(asyncio.run(place.read(arriving(b" " * 3 * LARGE)))) == 3 * LARGE


def test_a_large_body_is_read_beside_the_event_loop(net: PCMCNet, make_client: Any, sets: Any) -> None:
    answer = make_client(net).post("/v1/probabilities", json={"sets": sets * 50})
    assert len(answer.request.content) > 100_000
    assert len(answer.json()["sets"]) == 50 * len(sets)
