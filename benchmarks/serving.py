"""Load test of the server: the server in one process, clients in another, for a limited time.

Each client sends a request, waits for the response and sends the next. Results: latencies seen by the clients,
throughput, responses by status, and the memory of the server before and after, which should not grow.

    python -m benchmarks.serving --seconds 20
    python -m benchmarks.serving --hostile --seconds 60
    python -m benchmarks.serving --large --seconds 60

With ``--hostile``, 64 clients send requests for ``--seconds`` without hostile clients, and for the same time with a
tenth of hostile clients. Both alternate every ten seconds, so that other load on the machine affects both. Hostile
clients abandon large requests, send four megabytes of brackets or broken JSON, or send a head or a body byte by byte.

With ``--large``, ten clients send requests for one set for ``--seconds`` per kind: in turn without other clients, while
ten more clients ask for offers from 50 alternatives, for the rates of a set of 500, for the probabilities of 500 sets,
or for a market of 1,000 sets as CSV text, and while all forty of them do.
"""

from __future__ import annotations

import argparse
import asyncio
import io
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
from queue import Empty
from typing import Any

import httpx
import numpy as np
import pyarrow.csv

from pcmcnet.data import ChoiceData
from pcmcnet.datasets import airline
from pcmcnet.models import PCMCNet

CLIENTS, HOSTILE, TURN = 64, 7, 10.0  # TURN: seconds
RESET = 0  # status of a request whose connection was closed without a response
PER_KIND = 10  # clients with small requests, and clients with each kind of large request
MARKET_SETS = 1_000  # in a market: 3 MB, so that the bodies of all clients are accepted at the same time
SHAPES = {"1 set": (1, 1), "20 sets": (20, 1), "1 set, 8 clients": (1, 8), "1 set, 32 clients": (1, 32)}


def make_model(folder: Path, sets: int = 300) -> list[dict[str, Any]]:
    """Fit and save the default network on itineraries; return choice sets for requests."""
    data = ChoiceData.from_long(airline.simulate(sets, seed=0), **airline.ROLES)
    PCMCNet(epochs=1).fit(data, progress=False).save(folder)
    bodies = []
    for s in range(100):
        one = data.subset([s])
        individual = {name: column.plain()[0] for name, column in one.individual.items()}
        columns = {name: column.plain() for name, column in one.features.items()}
        if one.labels is not None:
            columns[str(one.schema.alternative)] = one.labels.plain()
        rows = [{name: values[i] for name, values in columns.items()} for i in range(int(one.sizes[0]))]
        bodies.append({"individual": individual, "alternatives": rows})
    plain: list[dict[str, Any]] = json.loads(json.dumps(bodies, default=lambda value: value.item()))
    return plain


def start(folder: Path, *options: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "pcmcnet", "serve", str(folder), *options, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    greeting = process.stderr.readline()
    url = re.search(r"http://\S+", greeting)
    if url is None:
        raise SystemExit(greeting + process.stderr.read())
    return process, url[0]


def memory(pid: int) -> float:
    """Return the resident memory of a process, in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu(pid: int) -> float:
    """Return the CPU seconds of a process; on a busy machine they are more reliable than latencies."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(address: str, bodies: list[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """Send requests from several clients, each with its own connection, for some seconds."""
    host, port = address.removeprefix("http://").split(":")
    latencies: list[float] = []
    statuses: Counter[int] = Counter()

    async def client(k: int, until: float) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        turn = k
        while (began := time.perf_counter()) < until:
            turn += clients
            try:
                writer.write(bodies[turn % len(bodies)])
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
            except (ConnectionError, asyncio.IncompleteReadError):
                statuses[RESET] += 1
                reader, writer = await asyncio.open_connection(host, int(port))
                continue
            latencies.append(time.perf_counter() - began)
            statuses[int(head.split()[1])] += 1
        writer.close()
        await writer.wait_closed()

    began = time.perf_counter()
    await asyncio.gather(*(client(k, began + seconds) for k in range(clients)))
    return {"latencies": latencies, "statuses": statuses, "seconds": time.perf_counter() - began}


def request(sets: list[dict[str, Any]]) -> bytes:
    """Return a complete HTTP request for probabilities."""
    return message("probabilities", {"sets": sets})


def message(query: str, content: dict[str, Any]) -> bytes:
    """Return a complete HTTP request; a client library would be slower than the server."""
    body = json.dumps(content).encode()
    head = f"POST /v1/{query} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def attack(address: str, large: bytes, clients: int, seconds: float) -> dict[str, Any]:
    """Run hostile clients, each of one kind, for some seconds; return statuses by kind."""
    host, port = address.removeprefix("http://").split(":")
    statuses: dict[str, Counter[str]] = {"abandoned": Counter(), "malformed": Counter(), "slow": Counter()}
    head = b"POST /v1/probabilities HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    bad = [b"[" + b"[]," * 1_300_000 + b"[]]", b"[" + b"{}," * 1_300_000 + b"{}]", b"[" * 100_000, b'{"sets": [{"a"']

    async def abandoned(turn: int, writer: Any, reader: Any) -> str:
        writer.write(large)
        await writer.drain()
        await asyncio.sleep(0.2)
        return "left"

    async def malformed(turn: int, writer: Any, reader: Any) -> str:
        body = bad[turn % len(bad)]
        writer.write(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return str((await reader.readline()).decode().split()[1])

    async def slow(turn: int, writer: Any, reader: Any) -> str:
        begin = head if turn % 2 else head + b"Content-Length: 1000000\r\n\r\n"
        for k in range(len(begin) + 50):
            writer.write(begin[k : k + 1] or b" ")
            await asyncio.sleep(0.02)
        return "left"

    async def client(k: int, until: float) -> None:
        name, way = [("abandoned", abandoned), ("malformed", malformed), ("slow", slow)][k % 3]
        turn = k
        while time.perf_counter() < until:
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                async with asyncio.timeout_at(asyncio.get_running_loop().time() + until - time.perf_counter()):
                    statuses[name][await way(turn, writer, reader)] += 1
            except (TimeoutError, OSError, IndexError):
                statuses[name]["cut off"] += 1
            writer.transport.abort()
            turn += 1

    until = time.perf_counter() + seconds
    await asyncio.gather(*(client(k, until) for k in range(clients)))
    return {name: dict(counts) for name, counts in statuses.items()}


def in_own_process(queue: Any, what: Any, *arguments: Any) -> None:
    queue.put(asyncio.run(what(*arguments)))


class ClientProcess:
    """Runs clients in a separate process."""

    def __init__(self, what: Any, *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.queue = context.Queue()
        self.process = context.Process(target=in_own_process, args=(self.queue, what, *arguments))
        self.process.start()

    def result(self) -> Any:
        """Wait for the result. Raise SystemExit if the process ends without one."""
        while True:
            try:
                result = self.queue.get(timeout=1)
            except Empty:
                if self.process.exitcode:
                    raise SystemExit("the process of the clients failed") from None
                continue
            self.process.join()
            return result


def measure(address: str, bodies: list[bytes], clients: int, seconds: float) -> dict[str, Any]:
    result: dict[str, Any] = ClientProcess(load, address, bodies, clients, seconds).result()
    return result


def with_hostile(process: subprocess.Popen[str], address: str, sets: list[dict[str, Any]], seconds: float) -> None:
    """Send requests with and without hostile clients, in turn, and print the latencies of the normal clients."""
    bodies = [request([one]) for one in sets]
    widest = max(sets, key=lambda one: len(one["alternatives"]))
    wide = {**widest, "alternatives": (widest["alternatives"] * 10)[:400]}
    large = request([wide] * 12)  # 1.9 million pairs, 1.0 MB
    asyncio.run(load(address, bodies, CLIENTS, 2))  # warm
    latencies: dict[str, list[float]] = {"calm": [], "hostile": []}
    statuses = {name: Counter[int]() for name in latencies}
    megabytes: dict[str, list[float]] = {name: [memory(process.pid)] for name in latencies}
    for _ in range(round(seconds / TURN)):
        for name in latencies:
            enemy = ClientProcess(attack, address, large, HOSTILE, TURN + 4) if name == "hostile" else None
            if enemy is not None:
                time.sleep(3)  # until the hostile clients have started
            result = measure(address, bodies, CLIENTS, TURN)
            latencies[name] += result["latencies"]
            statuses[name] += result["statuses"]
            attacks = "" if enemy is None else f"; hostile clients: {enemy.result()}"
            megabytes[name].append(memory(process.pid))
            p99 = 1e3 * np.quantile(result["latencies"], 0.99)
            summary = f"{len(result['latencies'])} responses, p99 {p99:.0f} ms, {megabytes[name][-1]:.0f} MB"
            print(f"{name}: {summary}{attacks}", flush=True)
    print(f"{CLIENTS} clients, 1 set each; with and without {HOSTILE} hostile clients")
    slowest = []
    for name, times in latencies.items():
        p50, p99 = 1e3 * np.quantile(np.array(times), [0.5, 0.99])
        slowest.append(p99)
        print(
            f"{name:<8} p50 {p50:.0f} ms, p99 {p99:.0f} ms, {len(times) / seconds:.0f} requests/s, statuses "
            f"{dict(statuses[name])}, MB {megabytes[name][0]:.0f} to {megabytes[name][-1]:.0f}"
        )
    print(f"p99 with / without hostile clients: {slowest[1] / slowest[0]:.2f}")


def large_requests(sets: list[dict[str, Any]]) -> dict[str, list[bytes]]:
    """Return large requests of each kind."""

    def wide(k: int, n: int) -> dict[str, Any]:
        """Return a set with n alternatives of sets from the k-th on."""
        several = [row for j in range(len(sets)) for row in sets[(k + j) % len(sets)]["alternatives"]]
        return {**sets[k], "alternatives": (several * 10)[:n]}

    def market(k: int) -> dict[str, Any]:
        """Return a market of which the server does not know the table."""
        text = io.BytesIO()
        pyarrow.csv.write_csv(airline.simulate(MARKET_SETS, seed=1 + k), text)
        return {"csv": text.getvalue().decode(), "scenarios": [["totalPrice *= 1.1"]]}

    return {
        "offers": [message("offer", {"set": wide(k, 50), "revenue": "totalPrice"}) for k in range(PER_KIND)],
        "rates": [message("rates", {"set": wide(k, 500)}) for k in range(PER_KIND)],
        "probabilities": [request((sets[k:] + sets[:k]) * 5) for k in range(PER_KIND)],
        "markets": [message("market", market(k)) for k in range(PER_KIND)],
    }


def with_large(address: str, sets: list[dict[str, Any]], seconds: float) -> None:
    """Send requests for one set, with each kind of large request and without, and print the latencies by kind."""
    small, large = [request([one]) for one in sets], large_requests(sets)
    kinds = {"none": [], **{name: [name] for name in large}, "all": list(large)}
    latencies: dict[str, list[float]] = {name: [] for name in kinds}
    answers = {name: {kind: Counter[int]() for kind in of} for name, of in kinds.items()}
    statuses = Counter[int]()
    asyncio.run(load(address, small, PER_KIND, 2))  # warm
    asyncio.run(load(address, large["offers"][:1], 1, 1))
    for _ in range(max(1, round(seconds / TURN))):
        for name, of in kinds.items():
            others = [ClientProcess(load, address, large[kind], PER_KIND, TURN + 4) for kind in of]
            if others:
                time.sleep(3)  # until they have started
            result = measure(address, small, PER_KIND, TURN)
            latencies[name] += result["latencies"]
            statuses += result["statuses"]
            for kind, other in zip(of, others, strict=True):
                answers[name][kind] += other.result()["statuses"]
            print(f"{name}: p99 {1e3 * np.quantile(result['latencies'], 0.99):.0f} ms", flush=True)
    print(
        f"{PER_KIND} clients with 1 set, statuses {dict(statuses)}; {PER_KIND} clients for each kind of large request"
    )
    base = np.quantile(latencies["none"], 0.99)
    for name, times in latencies.items():
        p50, p99, slowest = 1e3 * np.quantile(times, [0.5, 0.99, 1.0])
        texts = "; ".join(f"{kind} {dict(counts)}" for kind, counts in answers[name].items())
        ratio = p99 / (1e3 * base)
        print(f"{name:<15}{p50:>8.0f}{p99:>8.0f}{slowest:>8.0f}{ratio:>8.2f}{len(times):>8}  {texts}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="total time, shared by the rows of the table")
    parser.add_argument("--hostile", action="store_true", help="64 clients, with and without hostile clients")
    parser.add_argument("--large", action="store_true", help="10 clients, with and without large requests of others")
    arguments = parser.parse_args()
    seconds = arguments.seconds / len(SHAPES)
    with tempfile.TemporaryDirectory() as folder:
        sets = make_model(Path(folder) / "model")
        mean = np.mean([len(one["alternatives"]) for one in sets])
        process, address = start(Path(folder) / "model")
        print(f"itineraries, {mean:.0f} alternatives a set; network (64, 64)")
        if arguments.hostile or arguments.large:
            try:
                if arguments.hostile:
                    with_hostile(process, address, sets, arguments.seconds)
                if arguments.large:
                    with_large(address, sets, arguments.seconds)
            finally:
                process.terminate()
                process.wait()
            return
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
                result = measure(address, bodies, clients, seconds)
                p50, p99 = 1e3 * np.quantile(result["latencies"], [0.5, 0.99])
                spent = 1e3 * (cpu(process.pid) - used) / len(result["latencies"])
                rate = len(result["latencies"]) / result["seconds"]
                print(
                    f"{name:<20}{p50:>8.1f}{p99:>8.1f}{rate:>12.0f}{rate * size:>8.0f}{spent:>16.1f}{before:>11.0f}"
                    f"{memory(process.pid):>7.0f}  {dict(result['statuses'])}",
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
