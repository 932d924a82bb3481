"""One Ray for all tests of this folder, which is gone when they are done; and small tables."""

import os
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pcmcnet as pn
from pcmcnet.cluster.engine import start_local_ray
from pcmcnet.datasets import airline

if sys.platform != "linux":
    pytest.skip("these tests look into /proc", allow_module_level=True)
ray = pytest.importorskip("ray")

ROLES: dict[str, Any] = {
    "choice_set": "individual",
    "chosen": "choice",
    "individual": ["dtd"],
    "features": ["totalPrice", "totalTripDurationMinutes", "nFlights", "outDepTime"],
    "categorical": [],
}
SETTINGS = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_num_workers_soft_limit": "8",  # processes that have loaded PyTorch wait for the next test
}


def below(process: int) -> dict[int, str]:
    """Return the commands of all processes that a process has started, and they in turn."""
    found: dict[int, tuple[int, str]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (OSError, ValueError):  # it has ended meanwhile
                continue
            found[int(folder.name)] = parent, command
    reached: dict[int, str] = {}
    waiting = [process]
    while waiting:
        above = waiting.pop()
        new = {number: command for number, (parent, command) in found.items() if parent == above}
        reached |= new
        waiting += new
    return reached


def workers(kind: str) -> list[int]:
    """Return the workers of Ray that do this kind of work for this process."""
    return sorted(n for n, command in below(os.getpid()).items() if command.startswith("ray::") and kind in command)


def open_to_others(process: int) -> set[tuple[str, str]]:
    """Return the addresses beyond the loopback that a process, or one below it, listens on, with its command."""
    listening: dict[str, str] = {}
    for family, file in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        for line in Path("/proc/net", file).read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            words = np.frombuffer(bytes.fromhex(local.partition(":")[0]), ">u4")
            address = ip_address(socket.inet_ntop(family, words.astype("=u4").tobytes()))
            address = getattr(address, "ipv4_mapped", None) or address
            if state == "0A" and not address.is_loopback:
                listening[f"socket:[{rest[5]}]"] = str(address)
    found = set()
    for number, command in {process: "this process", **below(process)}.items():
        with suppress(OSError):  # it has ended meanwhile
            for file in Path(f"/proc/{number}/fd").iterdir():
                with suppress(OSError):
                    if (link := str(file.readlink())) in listening:
                        found.add((listening[link], command.strip()))
    return found


def kill(process: int) -> None:
    """End a process as the system does that has no memory left."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ray warns of its own use of what it has deprecated."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"))


@pytest.fixture(scope="package")
def local_ray() -> Iterator[None]:
    """A Ray of this machine with two places for workers; at the end none of its processes is left."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:
        patch.delenv("RAY_ADDRESS", raising=False)
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        before = below(os.getpid())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own, of its start
            start_local_ray(ray, 2, object_store_memory=100_000_000, _temp_dir=folder)
        yield
        ray.shutdown()
        for _ in range(100):  # up to 10 seconds, as processes take their time to end
            now = below(os.getpid())
            left = [command for number, command in now.items() if number not in before and "ray" in command]
            if not left:
                break
            time.sleep(0.1)
        assert not left


@pytest.fixture
def openings() -> Callable[[], set[tuple[str, str]]]:
    """What this process and those below it let other machines connect to."""
    return lambda: open_to_others(os.getpid())


@pytest.fixture
def seen_open() -> Iterator[set[tuple[str, str]]]:
    """What the processes of a test let other machines connect to, gathered while it runs."""
    seen, stop = set[tuple[str, str]](), threading.Event()

    def look() -> None:
        while not stop.wait(1.0):  # to look takes time
            seen.update(open_to_others(os.getpid()))

    thread = threading.Thread(target=look)
    thread.start()
    yield seen
    stop.set()
    thread.join()


@pytest.fixture(scope="session")
def table() -> pa.Table:
    """200 choice sets among itineraries."""
    return airline.simulate(200, seed=0)


@pytest.fixture(scope="session")
def data(table: pa.Table) -> pn.ChoiceData:
    return pn.ChoiceData.from_long(table, **ROLES)


@pytest.fixture(scope="session")
def fitted(data: pn.ChoiceData) -> pn.PCMCNet:
    model: pn.PCMCNet = pn.PCMCNet(hidden=(8,), epochs=1, weight_decay=0.0).fit(data, device="cpu", progress=False)
    return model


@pytest.fixture
def kill_workers() -> Iterator[Callable[..., list[int]]]:
    """Start killing workers of a kind whenever a condition comes true; returns the list of those killed."""
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def start(kind: str, conditions: Iterator[Callable[[], bool]], seed: int = 0) -> list[int]:
        killed: list[int] = []
        rng = np.random.default_rng(seed)

        def run() -> None:
            for condition in conditions:
                while not (condition() and (found := workers(kind))):
                    if stop.wait(0.02):
                        return
                killed.append(int(rng.choice(found)))
                kill(killed[-1])

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return killed

    yield start
    stop.set()
    for thread in threads:
        thread.join()
