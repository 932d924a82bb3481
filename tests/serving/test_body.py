"""Bodies are strict JSON, and bounded while they arrive."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pcmcnet.models import PCMCNet
from pcmcnet.serving.body import parse, read_json
from pcmcnet.serving.refusal import RefusalError

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the body is not valid JSON: Expecting value (line 1, column 1)."),
        (b'{"a": 1,}', "the body is not valid JSON"),
        (b'{"a": 1} x', "the body is not valid JSON: Extra data (line 1, column 10)."),
        (b'{"a": NaN}', "the body holds NaN, which JSON does not know: leave the value out, or write null."),
        (b"[-Infinity]", "the body holds -Infinity, which JSON does not know"),
        (b'{"a": 1, "b": 2, "a": 3}', "'a' stands twice in one object: keep one."),
        (b'{"x": {"\\ud800": 1, "\\ud800": 2}}', r"'\ud800' stands twice in one object"),
        (b"\xff\xfe", "the body is not valid Unicode: expected JSON in UTF-8."),
        (b'["\\ud800"]', "the body is not valid Unicode: expected JSON in UTF-8."),
        (b"[" * 100_000, "the body is nested too deeply."),
        (b'{"a":' * 100_000, "the body is nested too deeply."),
        (b"9" * 5_000, "the body holds a number with too many digits."),
    ],
)
def test_what_is_not_strict_json_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(RefusalError) as refusal:
        parse(content)
    assert refusal.value.status == 400
    assert refusal.value.message.startswith(message)


def test_many_names_that_are_all_different_but_two_are_told_apart_quickly() -> None:
    """One look-up a name: a count of each would take minutes for this body."""
    names = ",".join(f'"{k}": 0' for k in range(200_000))
    with pytest.raises(RefusalError, match="'199999' stands twice"):
        parse(f'{{{names}, "199999": 0}}'.encode())


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert parse(b'["\\ud83d\\ude00"]') == ["😀"]


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
    from starlette.requests import Request

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    request = Request({"type": "http", "headers": [(b"content-type", b"application/json")]}, receive)
    with pytest.raises(RefusalError, match="the connection was closed"):
        asyncio.run(read_json(request, limit=10, timeout=10))


def test_a_large_body_is_read_beside_the_event_loop(net: PCMCNet, make_client: Any, sets: Any) -> None:
    answer = make_client(net).post("/v1/probabilities", json={"sets": sets * 50})
    assert len(answer.request.content) > 100_000
    assert len(answer.json()["sets"]) == 50 * len(sets)
