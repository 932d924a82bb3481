"""The program itself: many clients at once, hostile connections, and an end that lets requests finish."""

import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from uvicorn.server import ServerState

from forked import COMMAND, Forked
from pcmcnet.errors import ConfigError
from pcmcnet.models import MNL, PCMCNet
from pcmcnet.serving.app import create_app
from pcmcnet.serving.server import TimedProtocol, bind, loopback_names, require_token, run, server_url, timed_protocol
from pcmcnet.serving.settings import ServeSettings

TOKEN = "a-token-to-look-for"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
TIMEOUT = 60  # seconds, for a machine that does much else


@pytest.fixture(scope="module")
def folders(net: PCMCNet, logit: MNL, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    return net.save(folder / "net"), logit.save(folder / "logit")


class Served:
    """A server in a process of its own."""

    def __init__(self, *words: object, **environment: str) -> None:
        reader, writer = os.pipe()
        command = ["serve", *map(str, words), "--port", "0"]
        self.process = Forked(COMMAND, command, stdout=writer, stderr=writer, env={**os.environ, **environment})
        os.close(writer)
        self.said = os.fdopen(reader)
        self.greeting = self.said.readline()
        found = re.search(r"http://\S+", self.greeting)
        assert found, self.greeting + self.said.read()
        self.address = found[0]
        self.host, port = self.address.removeprefix("http://").rsplit(":", 1)
        self.port = int(port)

    def stop(self, signal_: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal_)
        status = self.process.wait(TIMEOUT)
        self.log = self.said.read()
        self.said.close()
        return status


@pytest.fixture(scope="module")
def served(folders: Any) -> Iterator[Served]:
    """One server for all tests; stopped as from a keyboard, it ends well, and its log holds no trouble and no token."""
    server = Served(folders[0], "--baseline", folders[1], "--max-body", 10_000, PCMCNET_TOKEN=TOKEN)
    try:
        yield server
        assert server.stop(signal.SIGINT) == 0
        assert server.log == ""
        assert TOKEN not in server.greeting
    finally:
        if server.process.poll() is None:
            server.process.send_signal(signal.SIGKILL)
            server.process.wait(TIMEOUT)


def test_many_clients_at_once_get_the_probabilities_of_the_model(
    served: Served, net: PCMCNet, logit: MNL, make_trips: Any, as_requests: Any
) -> None:
    """Each of 16 clients asks about sets of its own, of both models, again and again: no answer is another's."""
    models = {"main": net, "baseline": logit}

    def client(k: int) -> float:
        table = make_trips(1 + k % 5, seed=100 + k)
        sets, name = as_requests(table), ("main", "baseline")[k % 3 == 2]
        expected, worst = models[name].predict_proba(table), 0.0
        with httpx.Client(base_url=served.address, headers=BEARER, timeout=TIMEOUT) as http:
            for _ in range(3):
                answer = http.post("/v1/probabilities", json={"sets": sets, "model": name})
                assert answer.status_code == 200, answer.text
                found = np.concatenate([entry["probabilities"] for entry in answer.json()["sets"]])
                worst = max(worst, float(np.abs(found - expected).max()))
        return worst

    with ThreadPoolExecutor(16) as pool:
        assert max(pool.map(client, range(16))) < 1e-6
    metrics = httpx.get(f"{served.address}/metrics", headers=BEARER, timeout=TIMEOUT).text
    assert 'pcmcnet_requests_total{route="/v1/probabilities",status="200"} 48' in metrics


def test_the_token_comes_from_the_environment_and_the_address_is_local(served: Served) -> None:
    assert httpx.get(f"{served.address}/v1/schema", timeout=TIMEOUT).status_code == 401
    assert httpx.get(f"{served.address}/v1/schema", headers=BEARER, timeout=TIMEOUT).status_code == 200
    assert served.host == "127.0.0.1"


def exchange(served: Served, *parts: bytes) -> bytes:
    """Send bytes as they are, and read until the server closes the connection."""
    with socket.create_connection((served.host, served.port), timeout=TIMEOUT) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except OSError:  # closed while there is more to send
            pass
        found = b""
        try:
            while chunk := connection.recv(65_536):
                found += chunk
        except ConnectionResetError:
            pass
        return found


def test_hostile_connections_are_closed_and_the_server_goes_on(served: Served) -> None:
    head = b"POST /v1/rates HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {TOKEN}\r\n".encode()
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
    endless = exchange(served, head + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 500)
    assert endless.startswith(b"HTTP/1.1 413 ")
    assert exchange(served, head + b"Content-Length: 99999999999\r\n\r\n").startswith(b"HTTP/1.1 413 ")
    assert exchange(served, b"\x16\x03\x01\x00 nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert exchange(served, b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000).startswith(b"HTTP/1.1 400 ")
    with socket.create_connection((served.host, served.port), timeout=TIMEOUT) as connection:
        connection.sendall(head + b"Content-Length: 100\r\n\r\n{")  # and goes away
    one = {"alternatives": []}
    answer = httpx.post(f"{served.address}/v1/rates", json={"set": one}, headers=BEARER, timeout=TIMEOUT)
    assert answer.status_code == 422


class Running:
    """A server in a thread, whose model is held until it may go on."""

    def __init__(self, net: PCMCNet, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        import uvicorn

        self.begun, self.may_go = threading.Event(), threading.Event()
        predict, init, servers = net.predict_log_proba, uvicorn.Server.__init__, []

        def held(data: Any) -> Any:
            self.begun.set()
            assert self.may_go.wait(TIMEOUT)
            return predict(data)

        def kept(server: Any, config: Any) -> None:
            init(server, config)
            servers.append(server)

        monkeypatch.setattr(net, "predict_log_proba", held, raising=False)
        monkeypatch.setattr(uvicorn.Server, "__init__", kept)
        self.app = create_app(net, settings=ServeSettings(**settings))
        self.listening = bind("127.0.0.1", 0)
        self.address = server_url(self.listening)
        self.thread = threading.Thread(target=run, args=(self.app, self.listening))
        self.thread.start()
        wait_until(lambda: bool(servers) and servers[0].started)
        self.server = servers[0]

    def ask(self, sets: Any, answers: list[httpx.Response]) -> threading.Thread:
        """Ask in a thread of its own."""
        where, body = f"{self.address}/v1/probabilities", {"sets": sets}
        client = threading.Thread(target=lambda: answers.append(httpx.post(where, json=body, timeout=TIMEOUT)))
        client.start()
        return client

    def stop(self) -> None:
        """Tell the server to stop, as a signal does."""
        self.server.should_exit = True
        wait_until(lambda: self.app.state.service.worker.stopping)

    def join(self) -> None:
        self.thread.join(TIMEOUT)
        assert not self.thread.is_alive()
        self.listening.close()


def wait_until(true: Any) -> None:
    until = time.monotonic() + TIMEOUT
    while not true():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_requests_under_way_finish_before_the_end_and_those_that_come_get_503(
    net: PCMCNet, sets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is held until the server has been told to stop; the answer comes all the same."""
    running = Running(net, monkeypatch)
    answers: list[httpx.Response] = []
    client = running.ask(sets, answers)
    assert running.begun.wait(TIMEOUT)
    assert httpx.get(f"{running.address}/ready", timeout=TIMEOUT).status_code == 200
    running.stop()
    late = httpx.post(f"{running.address}/v1/probabilities", json={"sets": sets}, timeout=TIMEOUT)
    assert (late.status_code, late.headers["connection"], late.headers["retry-after"]) == (503, "close", "1")
    assert late.json() == {"error": "the server is stopping: try again in a moment."}
    assert httpx.get(f"{running.address}/ready", timeout=TIMEOUT).status_code == 503
    assert httpx.get(f"{running.address}/live", timeout=TIMEOUT).status_code == 200
    running.may_go.set()
    client.join(TIMEOUT)
    running.join()
    assert answers[0].status_code == 200


def test_what_does_not_finish_in_time_is_cut_off_with_503(
    net: PCMCNet, sets: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A question whose model never answers, and a body that never ends; nothing of it is logged."""
    running = Running(net, monkeypatch, drain=0.01)
    answers: list[httpx.Response] = []
    client = running.ask(sets, answers)
    assert running.begun.wait(TIMEOUT)
    with socket.create_connection(running.listening.getsockname(), timeout=TIMEOUT) as slow:
        slow.sendall(b"POST /v1/rates HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        slow.sendall(b"Content-Length: 100\r\n\r\n{")
        wait_until(lambda: len(running.server.server_state.tasks) == 2)
        running.stop()
        client.join(TIMEOUT)
        found = slow.recv(65_536)
    running.join()
    running.may_go.set()
    assert answers[0].status_code == 503
    assert answers[0].json() == {"error": "the server is stopping: try again in a moment."}
    assert found.startswith(b"HTTP/1.1 503 ")
    assert caplog.messages == []


def test_an_unfinished_head_is_closed_and_a_slow_body_is_refused(net: PCMCNet, monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(net, monkeypatch, head_timeout=0.01, body_timeout=0.01)
    head = b"POST /v1/rates HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n"
    for sent in (head, head + b"\r\n{"):
        with socket.create_connection(running.listening.getsockname(), timeout=TIMEOUT) as slow:
            slow.sendall(sent)
            assert slow.recv(65_536).startswith(b"HTTP/1.1 408 ")
    running.stop()
    running.join()


def test_a_client_that_leaves_is_noticed_over_a_real_connection(
    net: PCMCNet, sets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(net, monkeypatch)
    worker = running.app.state.service.worker
    body = json.dumps({"sets": sets}).encode()
    head = b"POST /v1/probabilities HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with socket.create_connection(running.listening.getsockname(), timeout=TIMEOUT) as client:
        client.sendall(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert running.begun.wait(TIMEOUT)
    wait_until(lambda: worker.in_flight == 0)
    assert 'route="/v1/probabilities",status="499"} 1' in worker.metrics.text()
    running.may_go.set()
    running.stop()
    running.join()


def test_sigterm_ends_the_program_well(folders: Any) -> None:
    server = Served(folders[0])
    assert httpx.get(f"{server.address}/ready", timeout=TIMEOUT).status_code == 200
    assert server.stop(signal.SIGTERM) == 0
    assert server.log == ""


def test_an_address_that_cannot_be_had_is_named() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1:{port}: .* Choose another --host or"):
            bind("127.0.0.1", port)
    with pytest.raises(ConfigError, match=r"cannot listen on no-such-host.invalid:80"):
        bind("no-such-host.invalid", 80)


def test_answers_are_sent_without_delay() -> None:
    """asyncio switches Nagle's algorithm off where a socket says that it is TCP, and so do those it accepts."""
    with bind("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP


def test_an_address_can_be_typed_into_a_browser() -> None:
    with bind("127.0.0.1", 0) as listening:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", server_url(listening))
    try:
        with bind("::1", 0) as listening:
            assert re.fullmatch(r"http://\[::1\]:\d+", server_url(listening))
    except ConfigError:
        pytest.skip("this machine has no IPv6")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_on_this_machine_alone_the_server_goes_by_its_own_names_and_needs_no_token(host: str) -> None:
    names = loopback_names(host)
    assert names is not None
    assert {"localhost", "127.0.0.1", "[::1]"} <= set(names)
    require_token(host, None, insecure=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.0.7", "example.org", "localhost.example.org"])
def test_for_other_machines_a_token_is_needed_or_a_word_that_none_is(host: str) -> None:
    assert loopback_names(host) is None
    with pytest.raises(ConfigError, match=r"without a token: set .* PCMCNET_TOKEN, or add --insecure"):
        require_token(host, None, insecure=False)
    require_token(host, None, insecure=True)
    require_token(host, "secret", insecure=False)


# -- Protocol ----------------------------------------------------------------------------------------------------------
# Connections that take too long for a head, or do not read: by a clock that the test moves.


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
    protocol = timed_protocol(10.0)(config, ServerState(), {}, clock)
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
        b'{"error": "the headers of the request did not arrive within 10 seconds."}'
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
