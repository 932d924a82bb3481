"""The server under load: a server in one process, clients in another, for a bounded time.

Each client sends a request, waits for the answer and sends the next. Reported are latencies as the clients see them,
throughput, answers by status, and the server's memory before and after: it should not grow.

    python -m benchmarks.serving --seconds 20
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from pcmcnet.data import ChoiceData
from pcmcnet.datasets import airline
from pcmcnet.models import PCMCNet

SHAPES = {"1 set": (1, 1), "20 sets": (20, 1), "1 set, 8 clients": (1, 8), "1 set, 32 clients": (1, 32)}


def make_model(folder: Path, sets: int = 300) -> list[dict[str, Any]]:
    """Fit and save the default network on itineraries, and return choice sets as requests."""
    data = ChoiceData.from_long(airline.simulate(sets, seed=0), **airline.ROLES)
    PCMCNet(epochs=1).fit(data, progress=False).save(folder)
    found = []
    for s in range(100):
        one = data.subset([s])
        individual = {name: column.plain()[0] for name, column in one.individual.items()}
        columns = {name: column.plain() for name, column in one.features.items()}
        if one.labels is not None:
            columns[str(one.schema.alternative)] = one.labels.plain()
        rows = [{name: values[i] for name, values in columns.items()} for i in range(int(one.sizes[0]))]
        found.append({"individual": individual, "alternatives": rows})
    plain: list[dict[str, Any]] = json.loads(json.dumps(found, default=lambda value: value.item()))
    return plain


def start(folder: Path) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "pcmcnet.cli", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    greeting = process.stderr.readline()
    found = re.search(r"http://\S+", greeting)
    if found is None:
        raise SystemExit(greeting + process.stderr.read())
    return process, found[0]


def memory(pid: int) -> float:
    """Resident memory of a process, in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu(pid: int) -> float:
    """Seconds of processor time that a process has used: on a busy machine they say more than latencies."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(address: str, bodies: list[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """Ask from several clients, each over a connection of its own, until the time is over."""
    host, port = address.removeprefix("http://").split(":")
    latencies: list[float] = []
    statuses: Counter[int] = Counter()

    async def client(k: int, until: float) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        turn = k
        while (began := time.perf_counter()) < until:
            writer.write(bodies[turn % len(bodies)])
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
            latencies.append(time.perf_counter() - began)
            statuses[int(head.split()[1])] += 1
            turn += clients
        writer.close()
        await writer.wait_closed()

    began = time.perf_counter()
    await asyncio.gather(*(client(k, began + seconds) for k in range(clients)))
    return {"latencies": latencies, "statuses": statuses, "seconds": time.perf_counter() - began}


def request(sets: list[dict[str, Any]]) -> bytes:
    """Write a whole request: a library for clients would be slower than the server."""
    body = json.dumps({"sets": sets}).encode()
    head = "POST /v1/probabilities HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def in_own_process(queue: Any, *arguments: Any) -> None:
    queue.put(asyncio.run(load(*arguments)))


def measure(address: str, bodies: list[bytes], clients: int, seconds: float) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=in_own_process, args=(queue, address, bodies, clients, seconds))
    process.start()
    found: dict[str, Any] = queue.get()
    process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="in all, shared by the rows of the table")
    seconds = parser.parse_args().seconds / len(SHAPES)
    with tempfile.TemporaryDirectory() as folder:
        sets = make_model(Path(folder) / "model")
        mean = np.mean([len(one["alternatives"]) for one in sets])
        process, address = start(Path(folder) / "model")
        print(f"itineraries, {mean:.0f} alternatives a set; network (64, 64)")
        widths = {
            "p50 ms": 8,
            "p99 ms": 8,
            "requests/s": 12,
            "sets/s": 8,
            "CPU ms/request": 16,
            "MB before": 11,
            "after": 7,
        }
        print(f"{'request':<20}" + "".join(f"{name:>{width}}" for name, width in widths.items()) + "  statuses")
        try:
            for name, (size, clients) in SHAPES.items():
                bodies = [request((sets * 2)[k : k + size]) for k in range(len(sets))]
                asyncio.run(load(address, bodies, 1, 0.5))  # warm
                before, used = memory(process.pid), cpu(process.pid)
                found = measure(address, bodies, clients, seconds)
                p50, p99 = 1e3 * np.quantile(found["latencies"], [0.5, 0.99])
                spent = 1e3 * (cpu(process.pid) - used) / len(found["latencies"])
                rate = len(found["latencies"]) / found["seconds"]
                print(
                    f"{name:<20}{p50:>8.1f}{p99:>8.1f}{rate:>12.0f}{rate * size:>8.0f}{spent:>16.1f}{before:>11.0f}"
                    f"{memory(process.pid):>7.0f}  {dict(found['statuses'])}",
                    flush=True,
                )
            batches = re.findall(
                r"pcmcnet_batch_(?:sets|requests)_(?:sum|count) \S+", httpx.get(f"{address}/metrics").text
            )
            print("; ".join(batches))
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
