"""One Ray for all tests of this folder, stopped at the end; and small tables."""

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
    "RAY_num_workers_soft_limit": "8",  # processes that have loaded PyTorch are kept for the next test
}


def child_commands(process: int) -> dict[int, str]:
    """Return the commands of all descendants of a process."""
    addresses: dict[int, tuple[int, str]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (OSError, ValueError):  # it has ended in the meantime
                continue
            addresses[int(folder.name)] = parent, command
    reached: dict[int, str] = {}
    waiting = [process]
    while waiting:
        above = waiting.pop()
        new = {number: command for number, (parent, command) in addresses.items() if parent == above}
        reached |= new
        waiting += new
    return reached


def workers(kind: str) -> list[int]:
    """Return the Ray workers of this process that do this kind of work."""
    return sorted(
        n for n, command in child_commands(os.getpid()).items() if command.startswith("ray::") and kind in command
    )


def external_addresses(process: int) -> set[tuple[str, str]]:
    """Return the non-loopback addresses that a process or a descendant listens on, with its command."""
    listening: dict[str, str] = {}
    for family, file in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        for line in Path("/proc/net", file).read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            words = np.frombuffer(bytes.fromhex(local.partition(":")[0]), ">u4")
            address = ip_address(socket.inet_ntop(family, words.astype("=u4").tobytes()))
            address = getattr(address, "ipv4_mapped", None) or address
            if state == "0A" and not address.is_loopback:
                listening[f"socket:[{rest[5]}]"] = str(address)
    addresses = set()
    for number, command in {process: "this process", **child_commands(process)}.items():
        with suppress(OSError):  # it has ended in the meantime
            for file in Path(f"/proc/{number}/fd").iterdir():
                with suppress(OSError):
                    if (link := str(file.readlink())) in listening:
                        addresses.add((listening[link], command.strip()))
    return addresses


def kill(process: int) -> None:
    """Kill a process, as the system does if it runs out of memory."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings of Ray about its own use of deprecated features."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"))


@pytest.fixture(scope="package")
def local_ray() -> Iterator[None]:
    """Start a local Ray with two CPUs; check at the end that none of its processes is left."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:
        patch.delenv("RAY_ADDRESS", raising=False)
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        before = child_commands(os.getpid())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # raised by Ray at its start
            start_local_ray(ray, 2, object_store_memory=100_000_000, _temp_dir=folder)
        yield
        ray.shutdown()
        for _ in range(100):  # up to 10 seconds: processes need time to end
            now = child_commands(os.getpid())
            left = [command for number, command in now.items() if number not in before and "ray" in command]
            if not left:
                break
            time.sleep(0.1)
        assert not left


@pytest.fixture
def listening() -> Callable[[], set[tuple[str, str]]]:
    """Return the addresses of this process and its descendants that other machines can connect to."""
    return lambda: external_addresses(os.getpid())


@pytest.fixture
def observed_addresses() -> Iterator[set[tuple[str, str]]]:
    """Collect, during a test, the addresses that other machines can connect to."""
    observed, stop = set[tuple[str, str]](), threading.Event()

    def watch() -> None:
        while not stop.wait(1.0):  # a look takes time
            observed.update(external_addresses(os.getpid()))

    thread = threading.Thread(target=watch)
    thread.start()
    yield observed
    stop.set()
    thread.join()


@pytest.fixture(scope="session")
def table() -> pa.Table:
    """Return 200 choice sets of itineraries."""
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
    """Return a function that kills workers of a kind whenever a condition holds, and lists them."""
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def start(kind: str, conditions: Iterator[Callable[[], bool]], seed: int = 0) -> list[int]:
        killed: list[int] = []
        rng = np.random.default_rng(seed)

        def run() -> None:
            for condition in conditions:
                while not (condition() and (addresses := workers(kind))):
                    if stop.wait(0.02):
                        return
                killed.append(int(rng.choice(addresses)))
                kill(killed[-1])

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return killed

    yield start
    stop.set()
    for thread in threads:
        thread.join()
