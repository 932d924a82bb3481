"""Connections that take too long for a head, or do not read: by a clock that the test moves."""

from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from pcmcnet.serving.protocol import TimedProtocol, timed

HEAD = b"GET /health HTTP/1.1\r\nHost: x\r\n"


class Timer:
    def __init__(self, at: float, call: Any, *given: Any) -> None:
        self.at, self.call, self.given, self.over = at, call, given, False

    def cancel(self) -> None:
        self.over = True


class Clock:
    """An event loop that knows only the time, and keeps the applications it is given."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []
        self.requests = 0

    def call_later(self, seconds: float, call: Any, *given: Any) -> Timer:
        self.timers.append(Timer(self.now + seconds, call, *given))
        return self.timers[-1]

    def create_task(self, work: Any, **_: Any) -> Any:
        work.close()
        self.requests += 1
        return self

    def add_done_callback(self, _: Any) -> None:
        pass

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        for timer in list(self.timers):
            if timer.at <= self.now and not timer.over:
                timer.over = True
                timer.call(*timer.given)


class Transport:
    def __init__(self) -> None:
        self.written, self.state, self.unread = b"", "open", 0

    def get_write_buffer_size(self) -> int:
        return self.unread

    def get_extra_info(self, _: str) -> None:
        return None

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.state != "open"

    def close(self) -> None:
        self.state = "closed"

    def abort(self) -> None:
        self.state = "aborted"

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def protocol(clock: Clock) -> TimedProtocol:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError

    config = uvicorn.Config(app, log_config=None)
    protocol = timed(10.0)(config, ServerState(), {}, clock)
    protocol.connection_made(Transport())  # type: ignore[arg-type]
    return protocol


def transport_of(protocol: TimedProtocol) -> Transport:
    found: Any = protocol.transport
    return found


def test_a_head_that_comes_byte_by_byte_is_answered_with_408(protocol: TimedProtocol, clock: Clock) -> None:
    for byte in HEAD[:9]:
        protocol.data_received(bytes([byte]))
        clock.pass_(1)
        assert transport_of(protocol).state == "open"
    clock.pass_(1)
    assert transport_of(protocol).state == "closed"
    assert transport_of(protocol).written.startswith(b"HTTP/1.1 408 ")
    assert transport_of(protocol).written.endswith(
        b'{"error": "the head of the request did not arrive within 10 seconds."}'
    )
    assert clock.requests == 0


def test_a_connection_that_sends_nothing_is_closed(protocol: TimedProtocol, clock: Clock) -> None:
    clock.pass_(10)
    assert (transport_of(protocol).state, transport_of(protocol).written) == ("closed", b"")


def test_with_its_head_complete_a_request_is_waited_for_no_longer(protocol: TimedProtocol, clock: Clock) -> None:
    protocol.data_received(HEAD)
    clock.pass_(9)
    protocol.data_received(b"\r\n")
    clock.pass_(100)
    assert (transport_of(protocol).state, clock.requests) == ("open", 1)


def test_an_answer_that_is_not_read_is_cut_off(protocol: TimedProtocol, clock: Clock) -> None:
    protocol.data_received(HEAD + b"\r\n")
    protocol.pause_writing()
    clock.pass_(9)
    protocol.resume_writing()
    clock.pass_(9)
    assert transport_of(protocol).state == "open", "the client reads on"
    protocol.pause_writing()
    clock.pass_(10)
    assert transport_of(protocol).state == "aborted"


def test_a_long_answer_that_is_read_slowly_is_not_cut_off(protocol: TimedProtocol, clock: Clock) -> None:
    transport = transport_of(protocol)
    protocol.data_received(HEAD + b"\r\n")
    transport.unread = 1_000_000
    protocol.pause_writing()
    for _ in range(9):
        transport.unread -= 100_000
        clock.pass_(10)
        assert transport.state == "open"
    transport.unread -= 1
    clock.pass_(10)
    assert transport.state == "aborted", "one byte in ten seconds is not enough"


def test_nothing_is_waited_for_once_the_connection_is_lost(protocol: TimedProtocol, clock: Clock) -> None:
    protocol.pause_writing()
    protocol.connection_lost(None)
    transport_of(protocol).state = "open"  # were anything done to it, this would show
    clock.pass_(100)
    assert transport_of(protocol).state == "open"
