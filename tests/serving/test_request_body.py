"""Bodies are limited in length, time and total size while they arrive; slow senders block no one."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from starlette.requests import Request

from pcmcnet.models import PCMCNet
from pcmcnet.serving.request_body import (
    LARGE_BODY_BYTES,
    BodyReader,
    JsonSize,
    RequestError,
    json_by_rows,
    json_size,
    parse_strict_json,
)
from pcmcnet.serving.settings import ServeSettings

JSON = {"Content-Type": "application/json"}


def arriving(*chunks: bytes, end: str = "http.request") -> Request:
    """Return a request whose body arrives in chunks, and is complete or cut off."""
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    messages.append({"type": end, "body": b""})

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    return Request({"type": "http", "headers": [(b"content-type", b"application/json")]}, receive)


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "é"])
def test_another_content_type_is_rejected(kind: str | None, net: PCMCNet, make_client: Any) -> None:
    """Another site can send these types without a preflight request, so they must have no effect."""
    headers = {} if kind is None else {"Content-Type": kind.encode("latin-1")}
    answer = make_client(net).post("/v1/probabilities", content=b'{"sets": []}', headers=headers)
    assert answer.status_code == 415
    assert "expected application/json" in answer.json()["error"]


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/problem+json"])
def test_a_content_type_may_have_parameters(kind: str, net: PCMCNet, make_client: Any) -> None:
    answer = make_client(net).post("/v1/probabilities", content=b'{"sets": []}', headers={"Content-Type": kind})
    assert answer.status_code == 422


def test_the_length_of_a_body_is_limited(net: PCMCNet, make_client: Any) -> None:
    client = make_client(net, max_body=1_000)
    message = "the body is larger than 1,000 bytes: send fewer choice sets, or raise --max-body."
    sent = []

    async def chunks() -> AsyncIterator[bytes]:
        for k in range(1_000):
            sent.append(k)
            yield b" " * 100

    for content in (b" " * 1_001, chunks()):
        answer = client.post("/v1/probabilities", content=content, headers=JSON)
        assert (answer.status_code, answer.json()["error"]) == (413, message)
        assert "connection" not in answer.headers, "the server discards the rest"
    assert len(sent) <= 12, "the rest of the body is not asked for"
    assert client.post("/v1/probabilities", content=b" " * 1_000, headers=JSON).status_code == 400


def test_a_body_that_does_not_arrive_times_out(net: PCMCNet, make_client: Any) -> None:
    client = make_client(net, body_timeout=0.01)

    async def chunks() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    answer = client.post("/v1/probabilities", content=chunks(), headers=JSON)
    assert (answer.status_code, answer.json()["error"]) == (408, "the body did not arrive within 0.01 seconds.")
    assert client.app.state.service.worker.in_flight == 0


def test_a_client_that_disconnects_is_handled() -> None:
    bodies = BodyReader(ServeSettings())
    with bodies.slot() as slot, pytest.raises(RequestError, match="the connection was closed"):
        asyncio.run(slot.read(arriving(b"{", end="http.disconnect")))


def test_slow_senders_do_not_block_other_requests(net: PCMCNet, make_client: Any, sets: Any) -> None:
    """Three bodies never end on a server with one request at a time; a fourth request is still answered."""
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
        assert client.app.state.service.worker.in_flight == 0
        answer = await ask("/v1/probabilities", json={"sets": sets})
        for task in slow:
            task.cancel()
        return int(answer.status_code)

    assert client.runner.run(run()) == 200


def test_the_total_size_of_large_bodies_is_limited() -> None:
    bodies = BodyReader(ServeSettings(max_body=3 * LARGE_BODY_BYTES, max_bodies=5 * LARGE_BODY_BYTES))
    large, small = b" " * 2 * LARGE_BODY_BYTES, b" " * LARGE_BODY_BYTES

    def read(slot: Any, *chunks: bytes) -> int:
        return len(asyncio.run(slot.read(arriving(*chunks))))

    with ExitStack() as stack:
        for _ in range(2):
            assert (
                read(stack.enter_context(bodies.slot()), large[:LARGE_BODY_BYTES], large[LARGE_BODY_BYTES:])
                == 2 * LARGE_BODY_BYTES
            )
        with bodies.slot() as third, pytest.raises(RequestError, match="reading too many large requests") as refusal:
            read(third, large)
        assert refusal.value.status == 503
        for _ in range(10):
            assert read(stack.enter_context(bodies.slot()), small) == LARGE_BODY_BYTES
        assert bodies.held == 4 * LARGE_BODY_BYTES
    assert bodies.held == 0


def test_one_body_of_the_largest_size_is_always_accepted() -> None:
    bodies = BodyReader(ServeSettings(max_body=3 * LARGE_BODY_BYTES, max_bodies=1))
    with bodies.slot() as slot:
        assert len(asyncio.run(slot.read(arriving(b" " * 3 * LARGE_BODY_BYTES)))) == 3 * LARGE_BODY_BYTES


def test_a_large_body_is_parsed_outside_the_event_loop(net: PCMCNet, make_client: Any, sets: Any) -> None:
    answer = make_client(net).post("/v1/probabilities", json={"sets": sets * 50})
    assert len(answer.request.content) > 100_000
    assert len(answer.json()["sets"]) == 50 * len(sets)


# -- Strict json -------------------------------------------------------------------------------------------------------
# JSON is strict, and its size is checked before parsing.


LARGEST_SIZE = JsonSize(ServeSettings().max_depth, 1_000_000)

texts = st.text(alphabet=st.sampled_from('[]{},:"\\\\/ aé😀'), max_size=8)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
)


def count_size(value: Any) -> JsonSize:
    """Return the levels and values of a parsed object."""
    if not isinstance(value, dict | list):
        return JsonSize(0, 1)
    inside = [count_size(one) for one in (value.values() if isinstance(value, dict) else value)]
    return JsonSize(1 + max((one.depth for one in inside), default=0), 1 + sum(one.values for one in inside))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the body is not valid JSON: Expecting value (line 1, column 1)."),
        (b'{"a": 1,}', "the body is not valid JSON"),
        (b'{"a": 1} x', "the body is not valid JSON: Extra data (line 1, column 10)."),
        (b'{"a": NaN}', "the body contains NaN, which is not valid JSON: use null, or omit the value."),
        (b"[-Infinity]", "the body contains -Infinity, which is not valid JSON"),
        (b'{"a": 1, "b": 2, "a": 3}', "'a' occurs twice in one object: remove one of them."),
        (b'{"x": {"\\ud800": 1, "\\ud800": 2}}', r"'\ud800' occurs twice in one object"),
        (b"\xff\xfe", "the body is not valid Unicode: expected JSON in UTF-8."),
        (b'["\\ud800"]', "the body is not valid Unicode: expected JSON in UTF-8."),
        (b"[" * 100_000, "the body is nested too deeply: expected at most 100 levels."),
        (b'{"a":' * 100_000, "the body is nested too deeply: expected at most 100 levels."),
        (b"9" * 5_000, "the body contains a number with too many digits."),
    ],
)
def test_invalid_json_is_rejected(content: bytes, message: str) -> None:
    with pytest.raises(RequestError) as refusal:
        parse_strict_json(content, LARGEST_SIZE)
    assert refusal.value.status == 400
    assert refusal.value.message.startswith(message)


def test_duplicate_names_are_found_quickly() -> None:
    """One look-up per name; counting each name would take minutes for this body."""
    names = ",".join(f'"{k}": 0' for k in range(200_000))
    with pytest.raises(RequestError, match="'199999' occurs twice"):
        parse_strict_json(f'{{{names}, "199999": 0}}'.encode(), LARGEST_SIZE)


def test_a_surrogate_pair_is_one_character() -> None:
    assert parse_strict_json(b'["\\ud83d\\ude00"]', LARGEST_SIZE) == ["😀"]


# -- size -----------------------------------------------------------------------------------------------------------


@given(value=anything, ascii_=st.booleans(), indent=st.none() | st.just(1))
def test_the_size_does_not_depend_on_texts(value: Any, ascii_: bool, indent: int | None) -> None:
    """An empty list counts as one value, so the size is an upper bound."""
    size = json_size(json.dumps(value, ensure_ascii=ascii_, indent=indent).encode())
    depth, values = count_size(value)
    assert size.depth == depth
    assert values <= size.values <= 2 * values


@given(content=st.binary(max_size=30) | st.text(alphabet='[]{}",\\\\1', max_size=30).map(str.encode))
def test_any_bytes_have_a_size(content: bytes) -> None:
    assert json_size(content).depth <= len(content)


def test_brackets_and_commas_in_texts_do_not_count() -> None:
    text = '[{,"' * 1_000 + "\\"
    assert parse_strict_json(json.dumps([text]).encode(), JsonSize(depth=1, values=2)) == [text]


@pytest.mark.parametrize(
    "content",
    [b"[" + b"[]," * 50_000 + b"[]]", b"[" + b"{}," * 50_000 + b"{}]", b"[" + b"0," * 100_000 + b"0]", b"," * 100_001],
)
def test_too_many_values_are_rejected_before_parsing(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("objects were made"))
    with pytest.raises(RequestError, match=r"has more than 100,000 values: .* raise --max-values") as refusal:
        parse_strict_json(content, JsonSize(depth=10, values=100_000))
    assert refusal.value.status == 413


def test_the_limits_of_a_server_come_from_its_settings(net: PCMCNet, make_client: Any, sets: Any) -> None:
    client = make_client(net, max_values=200, max_depth=6)
    assert client.post("/v1/probabilities", json={"sets": sets[:1]}).status_code == 200
    assert client.post("/v1/probabilities", json={"sets": sets * 10}).status_code == 413
    answer = client.post("/v1/probabilities", content="[" * 7 + "]" * 7, headers={"Content-Type": "application/json"})
    assert answer.json() == {"error": "the body is nested too deeply: expected at most 6 levels."}
    limits = client.get("/v1/schema").json()["limits"]
    assert (limits["values"], limits["depth"], limits["seconds"]) == (200, 6, 30)


@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 4), st.integers(1, 4)),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    )
)
def test_a_matrix_is_read_back_unchanged(matrix: Any) -> None:
    response = parse_strict_json(json_by_rows({"rates": matrix, "exact": True}), JsonSize(10, 100))
    assert np.array_equal(np.array(response["rates"], np.float64), matrix)
    assert response["exact"] is True
