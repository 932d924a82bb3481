"""The running server: many clients, hostile connections, and a shutdown that lets requests finish."""

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

import h11
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
TIMEOUT = 60  # seconds, for a busy machine


@pytest.fixture(scope="module")
def folders(net: PCMCNet, logit: MNL, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    return net.save(folder / "net"), logit.save(folder / "logit")


class ServerProcess:
    """A server in a separate process."""

    def __init__(self, *words: object, **environment: str) -> None:
        reader, writer = os.pipe()
        command = ["serve", *map(str, words), "--port", "0"]
        self.process = Forked(COMMAND, command, stdout=writer, stderr=writer, env={**os.environ, **environment})
        os.close(writer)
        self.said = os.fdopen(reader)
        self.greeting = self.said.readline()
        result = re.search(r"http://\S+", self.greeting)
        assert result, self.greeting + self.said.read()
        self.address = result[0]
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
def served(folders: Any) -> Iterator[ServerProcess]:
    """Start one server for all tests. Check that Ctrl-C stops it, and that its log has no errors and no token."""
    server = ServerProcess(folders[0], "--baseline", folders[1], "--max-body", 10_000, PCMCNET_TOKEN=TOKEN)
    try:
        yield server
        assert server.stop(signal.SIGINT) == 0
        assert server.log == ""
        assert TOKEN not in server.greeting
    finally:
        if server.process.poll() is None:
            server.process.send_signal(signal.SIGKILL)
            server.process.wait(TIMEOUT)


def test_parallel_clients_get_the_probabilities_of_the_model(
    served: ServerProcess, net: PCMCNet, logit: MNL, make_trips: Any, as_requests: Any
) -> None:
    """Each of 16 clients sends its own sets to both models repeatedly; no response belongs to another client."""
    models = {"main": net, "baseline": logit}

    def client(k: int) -> float:
        table = make_trips(1 + k % 5, seed=100 + k)
        sets, name = as_requests(table), ("main", "baseline")[k % 3 == 2]
        expected, worst = models[name].predict_proba(table), 0.0
        with httpx.Client(base_url=served.address, headers=BEARER, timeout=TIMEOUT) as http:
            for _ in range(3):
                answer = http.post("/v1/probabilities", json={"sets": sets, "model": name})
                assert answer.status_code == 200, answer.text
                result = np.concatenate([entry["probabilities"] for entry in answer.json()["sets"]])
                worst = max(worst, float(np.abs(result - expected).max()))
        return worst

    with ThreadPoolExecutor(16) as pool:
        assert max(pool.map(client, range(16))) < 1e-6
    metrics = httpx.get(f"{served.address}/metrics", headers=BEARER, timeout=TIMEOUT).text
    assert 'pcmcnet_requests_total{route="/v1/probabilities",status="200"} 48' in metrics


def test_the_token_is_read_from_the_environment(served: ServerProcess) -> None:
    assert httpx.get(f"{served.address}/v1/schema", timeout=TIMEOUT).status_code == 401
    assert httpx.get(f"{served.address}/v1/schema", headers=BEARER, timeout=TIMEOUT).status_code == 200
    assert served.host == "127.0.0.1"


def test_a_rejected_request_gets_its_response_and_keeps_the_connection(served: ServerProcess) -> None:
    """The rest of a body that is too large is discarded: closing the connection would reset it, and lose the response.

    A client that sends the whole body before it reads gets status 413, and uses the same connection again.
    """
    head = f"POST /v1/rates HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer {TOKEN}\r\n"
    large = f"{head}Content-Length: 5000000\r\n\r\n".encode() + b" " * 5_000_000
    with socket.create_connection((served.host, served.port), timeout=TIMEOUT) as connection:
        stream = connection.makefile("rb")
        for part, status in ((large, b"413"), (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"200")) * 2:
            connection.sendall(part)
            assert stream.readline().split()[1] == status
            lines = iter(lambda: stream.readline().strip().lower(), b"")
            length = next(int(line.split()[1]) for line in [*lines] if line.startswith(b"content-length"))
            stream.read(length)


def exchange(served: ServerProcess, *parts: bytes) -> bytes:
    """Send bytes, and read until the server closes the connection."""
    with socket.create_connection((served.host, served.port), timeout=TIMEOUT) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except OSError:  # closed before everything was sent
            pass
        result = b""
        try:
            while (chunk := connection.recv(65_536)) and b"HTTP/1.1 413" not in result:  # it discards the rest first
                result += chunk
        except ConnectionResetError:
            pass
        return result


def test_hostile_connections_are_closed(served: ServerProcess) -> None:
    head = b"POST /v1/rates HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {TOKEN}\r\n".encode()
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
    endless = exchange(served, head + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 500)
    assert endless.startswith(b"HTTP/1.1 413 ")
    assert exchange(served, head + b"Content-Length: 99999999999\r\n\r\n").startswith(b"HTTP/1.1 413 ")
    assert exchange(served, b"\x16\x03\x01\x00 nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    twice = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert exchange(served, head + twice).startswith(b"HTTP/1.1 400 ")
    assert exchange(served, b"GET /health HTTP/2.0\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 505 ")
    assert exchange(served, b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000).startswith(b"HTTP/1.1 400 ")
    with socket.create_connection((served.host, served.port), timeout=TIMEOUT) as connection:
        connection.sendall(head + b"Content-Length: 100\r\n\r\n{")  # and disconnects
    one = {"alternatives": []}
    answer = httpx.post(f"{served.address}/v1/rates", json={"set": one}, headers=BEARER, timeout=TIMEOUT)
    assert answer.status_code == 422


class BlockedServer:
    """A server in a thread whose model blocks until it may continue."""

    def __init__(self, net: PCMCNet, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        import uvicorn

        self.begun, self.may_go = threading.Event(), threading.Event()
        predict, init, servers = net.predict_log_proba, uvicorn.Server.__init__, []

        def held(data: Any) -> Any:
            self.begun.set()
            assert self.may_go.wait(TIMEOUT)
            return predict(data)

        def record(server: Any, config: Any) -> None:
            init(server, config)
            servers.append(server)

        monkeypatch.setattr(net, "predict_log_proba", held, raising=False)
        monkeypatch.setattr(uvicorn.Server, "__init__", record)
        self.app = create_app(net, settings=ServeSettings(**settings))
        self.listening = bind("127.0.0.1", 0)
        self.address = server_url(self.listening)
        self.thread = threading.Thread(target=run, args=(self.app, self.listening))
        self.thread.start()
        wait_until(lambda: bool(servers) and servers[0].started)
        self.server = servers[0]

    def ask(self, sets: Any, answers: list[httpx.Response]) -> threading.Thread:
        """Send a request in a new thread."""
        where, body = f"{self.address}/v1/probabilities", {"sets": sets}
        client = threading.Thread(target=lambda: answers.append(httpx.post(where, json=body, timeout=TIMEOUT)))
        client.start()
        return client

    def stop(self) -> None:
        """Stop the server as a signal does."""
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


def test_running_requests_finish_and_new_ones_get_503(net: PCMCNet, sets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is blocked until the server is told to stop; the response still arrives."""
    running = BlockedServer(net, monkeypatch)
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


def test_unfinished_requests_get_503_at_shutdown(
    net: PCMCNet, sets: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One request waits for a model that never returns, another has an endless body. Neither is logged."""
    running = BlockedServer(net, monkeypatch, drain=0.01)
    answers: list[httpx.Response] = []
    client = running.ask(sets, answers)
    assert running.begun.wait(TIMEOUT)
    with socket.create_connection(running.listening.getsockname(), timeout=TIMEOUT) as slow:
        slow.sendall(b"POST /v1/rates HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        slow.sendall(b"Content-Length: 100\r\n\r\n{")
        wait_until(lambda: len(running.server.server_state.tasks) == 2)
        running.stop()
        client.join(TIMEOUT)
        result = slow.recv(65_536)
    running.join()
    running.may_go.set()
    assert answers[0].status_code == 503
    assert answers[0].json() == {"error": "the server is stopping: try again in a moment."}
    assert result.startswith(b"HTTP/1.1 503 ")
    assert caplog.messages == []


def test_slow_heads_and_bodies_get_408(net: PCMCNet, monkeypatch: pytest.MonkeyPatch) -> None:
    running = BlockedServer(net, monkeypatch, head_timeout=0.01, body_timeout=0.01)
    head = b"POST /v1/rates HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n"
    for sent in (head, head + b"\r\n{"):
        with socket.create_connection(running.listening.getsockname(), timeout=TIMEOUT) as slow:
            slow.sendall(sent)
            assert slow.recv(65_536).startswith(b"HTTP/1.1 408 ")
    running.stop()
    running.join()


@pytest.mark.parametrize("only_sending", [False, True], ids=["closed", "half-closed"])
def test_a_disconnect_is_noticed_over_a_real_connection(
    only_sending: bool, net: PCMCNet, sets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that has closed only its sending side cannot be told from one that has left."""
    running = BlockedServer(net, monkeypatch)
    worker = running.app.state.service.worker
    body = json.dumps({"sets": sets}).encode()
    head = b"POST /v1/probabilities HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with socket.create_connection(running.listening.getsockname(), timeout=TIMEOUT) as client:
        client.sendall(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert running.begun.wait(TIMEOUT)
        if only_sending:
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
        else:
            client.close()
        wait_until(lambda: worker.in_flight == 0)
    assert 'route="/v1/probabilities",status="499"} 1' in worker.metrics.text()
    running.may_go.set()
    running.stop()
    running.join()


def test_sigterm_stops_the_program(folders: Any) -> None:
    server = ServerProcess(folders[0])
    assert httpx.get(f"{server.address}/ready", timeout=TIMEOUT).status_code == 200
    assert server.stop(signal.SIGTERM) == 0
    assert server.log == ""


def test_an_unavailable_address_is_reported() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1:{port}: .* Choose another --host or"):
            bind("127.0.0.1", port)
    with pytest.raises(ConfigError, match=r"cannot listen on no-such-host.invalid:80"):
        bind("no-such-host.invalid", 80)


def test_nagles_algorithm_is_off() -> None:
    """asyncio switches it off only if the socket declares TCP; accepted sockets inherit this."""
    with bind("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP


def test_the_url_works_in_a_browser() -> None:
    with bind("127.0.0.1", 0) as listening:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", server_url(listening))
    try:
        with bind("::1", 0) as listening:
            assert re.fullmatch(r"http://\[::1\]:\d+", server_url(listening))
    except ConfigError:
        pytest.skip("this machine has no IPv6")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_a_local_server_needs_no_token(host: str) -> None:
    names = loopback_names(host)
    assert names is not None
    assert {"localhost", "127.0.0.1", "[::1]"} <= set(names)
    require_token(host, None, insecure=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.0.7", "example.org", "localhost.example.org"])
def test_a_public_server_needs_a_token_or_an_opt_out(host: str) -> None:
    assert loopback_names(host) is None
    with pytest.raises(ConfigError, match=r"without a token: set .* PCMCNET_TOKEN, or add --insecure"):
        require_token(host, None, insecure=False)
    require_token(host, None, insecure=True)
    require_token(host, "secret", insecure=False)


# -- Protocol ----------------------------------------------------------------------------------------------------------
# Timeouts of connections, with a clock that the test controls.


HEAD = b"GET /health HTTP/1.1\r\nHost: x\r\n"


class Timer:
    def __init__(self, at: float, call: Any, *given: Any) -> None:
        self.at, self.call, self.given, self.over = at, call, given, False

    def cancel(self) -> None:
        self.over = True


class Clock:
    """An event loop with only a clock; it keeps its tasks."""

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
    result: Any = protocol.transport
    return result


def test_a_slow_head_gets_408(protocol: TimedProtocol, clock: Clock) -> None:
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


def test_a_complete_head_stops_the_timeout(protocol: TimedProtocol, clock: Clock) -> None:
    protocol.data_received(HEAD)
    clock.pass_(9)
    protocol.data_received(b"\r\n")
    clock.pass_(100)
    assert (transport_of(protocol).state, clock.requests) == ("open", 1)


def test_a_response_that_is_not_read_is_cut_off(protocol: TimedProtocol, clock: Clock) -> None:
    protocol.data_received(HEAD + b"\r\n")
    protocol.pause_writing()
    clock.pass_(9)
    protocol.resume_writing()
    clock.pass_(9)
    assert transport_of(protocol).state == "open", "the client reads on"
    protocol.pause_writing()
    clock.pass_(10)
    assert transport_of(protocol).state == "aborted"


def test_a_response_that_is_read_slowly_is_not_cut_off(protocol: TimedProtocol, clock: Clock) -> None:
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


def reject(protocol: TimedProtocol, length: int) -> Transport:
    """Send the headers of a request with a body, and respond before the body has arrived."""
    protocol.data_received(f"POST /v1/rates HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode())
    protocol.conn.send(h11.Response(status_code=503, headers=[("Content-Length", "0")]))
    protocol.conn.send(h11.EndOfMessage())
    protocol.on_response_complete()
    return transport_of(protocol)


def test_the_rest_of_a_rejected_body_is_discarded_within_limits(protocol: TimedProtocol, clock: Clock) -> None:
    """At most 32 MB in ten seconds; after a complete body, the next request starts without a timeout."""
    transport = reject(protocol, 30_000_000)
    for _ in range(3):
        clock.pass_(3)
        protocol.data_received(b" " * 10_000_000)
    protocol.data_received(HEAD + b"\r\n")
    clock.pass_(9)
    assert (transport.state, clock.requests) == ("open", 2)


def test_a_request_right_after_a_rejected_body_has_its_own_time(protocol: TimedProtocol, clock: Clock) -> None:
    """The end of the first body arrives with the start of the second request, whose body is then slow."""
    transport = reject(protocol, 10)
    protocol.data_received(b" " * 10 + b"POST /v1/rates HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n ")
    clock.pass_(100)
    assert (transport.state, clock.requests) == ("open", 2)


def test_a_rejected_body_that_is_too_long_or_too_slow_is_cut_off(protocol: TimedProtocol, clock: Clock) -> None:
    transport = reject(protocol, 99_000_000)
    for _ in range(3):
        protocol.data_received(b" " * 10_000_000)
        assert transport.state == "open"
    protocol.data_received(b" " * 10_000_000)
    assert transport.state == "aborted"
    transport.state = "open"
    clock.pass_(10)
    assert transport.state == "aborted"


def test_a_lost_connection_cancels_its_timers(protocol: TimedProtocol, clock: Clock) -> None:
    protocol.pause_writing()
    protocol.connection_lost(None)
    transport_of(protocol).state = "open"  # a timer would change it
    clock.pass_(100)
    assert transport_of(protocol).state == "open"
