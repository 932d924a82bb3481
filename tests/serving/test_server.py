"""The program itself: many clients at once, hostile connections, and an end that lets requests finish."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from pcmcnet.errors import ConfigError
from pcmcnet.models import MNL, PCMCNet
from pcmcnet.serving.app import create_app
from pcmcnet.serving.server import address_of, bind, own_names, run

SRC = Path(__file__).parents[2] / "src"
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
        command = [sys.executable, "-m", "pcmcnet.cli", "serve", *map(str, words), "--port", "0"]
        more = {"PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", **environment}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **more})
        assert self.process.stderr is not None
        self.greeting = self.process.stderr.readline()
        found = re.search(r"http://\S+", self.greeting)
        assert found, self.greeting + self.process.stderr.read()
        self.address = found[0]
        self.host, port = self.address.removeprefix("http://").rsplit(":", 1)
        self.port = int(port)

    def stop(self, signal_: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal_)
        status = self.process.wait(TIMEOUT)
        assert self.process.stderr is not None
        self.log = self.process.stderr.read()
        self.process.stderr.close()
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
            server.process.kill()
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
            for _ in range(6):
                answer = http.post("/v1/probabilities", json={"sets": sets, "model": name})
                assert answer.status_code == 200, answer.text
                found = np.concatenate([entry["probabilities"] for entry in answer.json()["sets"]])
                worst = max(worst, float(np.abs(found - expected).max()))
        return worst

    with ThreadPoolExecutor(16) as pool:
        assert max(pool.map(client, range(16))) < 1e-6
    metrics = httpx.get(f"{served.address}/metrics", headers=BEARER, timeout=TIMEOUT).text
    assert 'pcmcnet_requests_total{route="/v1/probabilities",status="200"} 96' in metrics


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


def test_requests_under_way_finish_before_the_end(net: PCMCNet, sets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is held until the server has been told to stop; the answer comes all the same."""
    import uvicorn

    begun, may_go, servers = threading.Event(), threading.Event(), []
    predict, init = net.predict_log_proba, uvicorn.Server.__init__

    def held(data: Any) -> Any:
        begun.set()
        assert may_go.wait(TIMEOUT)
        return predict(data)

    def kept(self: Any, config: Any) -> None:
        init(self, config)
        servers.append(self)

    monkeypatch.setattr(net, "predict_log_proba", held, raising=False)
    monkeypatch.setattr(uvicorn.Server, "__init__", kept)
    app, answers = create_app(net), []
    with bind("127.0.0.1", 0) as listening:
        address = address_of(listening)
        server = threading.Thread(target=run, args=(app, listening))
        server.start()
        ask = lambda: answers.append(httpx.post(f"{address}/v1/probabilities", json={"sets": sets}, timeout=TIMEOUT))  # noqa: E731
        client = threading.Thread(target=ask)
        client.start()
        assert begun.wait(TIMEOUT)
        servers[0].should_exit = True
        while servers[0].servers and any(each.is_serving() for each in servers[0].servers):
            time.sleep(0.01)
        assert server.is_alive()
        may_go.set()
        client.join(TIMEOUT)
        server.join(TIMEOUT)
    assert not server.is_alive()
    assert answers[0].status_code == 200


def test_an_address_that_cannot_be_had_is_named() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot listen at 127.0.0.1:{port}: .* Choose another by --host and"):
            bind("127.0.0.1", port)
    with pytest.raises(ConfigError, match=r"cannot listen at no-such-host.invalid:80"):
        bind("no-such-host.invalid", 80)


def test_answers_are_sent_without_delay() -> None:
    """asyncio switches Nagle's algorithm off where a socket says that it is TCP, and so do those it accepts."""
    with bind("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP


def test_an_address_can_be_typed_into_a_browser() -> None:
    with bind("127.0.0.1", 0) as listening:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", address_of(listening))
    try:
        with bind("::1", 0) as listening:
            assert re.fullmatch(r"http://\[::1\]:\d+", address_of(listening))
    except ConfigError:
        pytest.skip("this machine has no IPv6")


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)]
)
def test_on_this_machine_alone_the_server_goes_by_its_own_names(host: str, local: bool) -> None:
    assert (own_names(host) is not None) == local
