"""Measure the parts of an epoch separately, as rates for `benchmarks.scaling_plan`.

    python -m benchmarks.scaling_parts [--json FILE] [tables] [steps] [group] [shared] [own] [checkpoint] [stream]

tables      scan, check hashes, learn the encoder, read and encode shards, read sizes only, plan batches;
            also reading as one of two workers, for validation
steps       training steps on one CPU thread, by batch size
group       sums over two processes with gloo, by number of bytes
shared      epochs of one and of two workers, for validation
own         the same with workers that read their own shards of a table on disk
checkpoint  writing the state of a run
stream      scanning a large table and fitting it for one epoch, for validation

Times are given twice. Wall time depends on the load of a shared machine. CPU time is that of this process and all its
threads. The minimum of some rounds counts.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch

import pcmcnet as pn
from benchmarks import streaming
from benchmarks.harness import RUNS, Row, Section, Table, run
from benchmarks.shapes import NETWORK
from pcmcnet.data import EncodedStream, Encoder
from pcmcnet.data.batches import EncodedSets, plan_batches
from pcmcnet.data.scan import learn_or_load_encoder
from pcmcnet.data.scan.cache import hash_file
from pcmcnet.datasets import airline
from pcmcnet.training.checkpoint import Checkpoint, RunState

ROUNDS = 4
LAST_RANK = 10**6  # a worker with this rank has no shards
BIG = streaming.ROWS
MESSAGES = (1_000, 16_000, 64_000, 256_000, 1_000_000)  # parameters
BOTH = """
import sys, time, torch, torch.distributed as dist
rank, folder, *sizes = sys.argv[1:]
torch.set_num_threads(1)
dist.init_process_group("gloo", f"file://{folder}/meet", rank=int(rank), world_size=2)
for size in map(int, sizes):
    x, least = torch.zeros(size), 1e9
    for _ in range(60):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(x)
        least = min(least, time.perf_counter() - began)
    if rank == "0":
        print(size, least)
"""

SHARED = """
import sys, time, numpy as np, torch, torch.distributed as dist
import pcmcnet as pn
from pcmcnet.datasets import airline
from pcmcnet.training.data_parallel import ProcessGroup, training_in_group
rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo", f"file://{folder}/meet-{size}", rank=rank, world_size=size)
if len(sys.argv) > 4:
    from benchmarks import streaming
    data = pn.ChoiceData.scan(sys.argv[4], memory="64 MiB", **streaming.ROLES)
    model = pn.PCMCNet(**{**streaming.OPTIONS, "epochs": 3})
else:
    data = pn.ChoiceData.from_long(airline.simulate(1200, seed=0), **airline.ROLES)
    model = pn.PCMCNet(hidden=(64, 64), batch_size=64, epochs=5, **NETWORK)
marks = []
with training_in_group(ProcessGroup(rank, size, dist.all_reduce)):
    model.fit(data, device="cpu", progress=False, on_epoch=lambda entry: marks.append(time.process_time()))
print(np.diff(marks).min(), min(entry["seconds"] for entry in model.history), model.num_parameters)
"""


class Spent(NamedTuple):
    """Wall time and CPU time, in seconds."""

    wall: float
    cpu: float


def spent(work: Callable[[], Any]) -> Spent:
    """Time one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def least(work: Callable[[], Any], rounds: int = ROUNDS) -> Spent:
    """Time several calls; return the minimum of each kind of time."""
    times = [spent(work) for _ in range(rounds)]
    return Spent(min(s.wall for s in times), min(s.cpu for s in times))


@contextmanager
def itineraries(sets: int = 30_000) -> Iterator[Path]:
    """Yield a folder with simulated flight searches of about 33 itineraries."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "table"
        folder.mkdir()
        pa.parquet.write_table(pa.table(airline.simulate(sets, seed=0)), folder / "all.parquet")
        yield folder


def tables() -> list[Row]:
    """Measure the work of the host on two tables, per row."""
    shown = Table(
        f"parts of an epoch on the host, one thread; CPU time, least of {ROUNDS}",
        {"part": "", "table": "", "seconds": ".3f", "rows/s": ",.0f", "sets/s": ",.0f", "wall": ".3f"},
        first=12,
    )
    searches = ("searches", streaming.tables(1_000_000), streaming.ROLES)
    for name, table, roles in (searches, ("airline", itineraries(), airline.ROLES)):
        with table as folder, tempfile.TemporaryDirectory() as cache:
            numbers = iter(range(100))

            def scan(
                memory: str = "64 MiB", folder: Path = folder, roles: Any = roles, cache: str = cache, k: Any = numbers
            ) -> Any:
                return pn.ChoiceData.scan(folder, memory=memory, cache=Path(cache) / str(next(k)), **roles)

            data, large = scan(), scan(memory="1 GiB")
            encoder = Encoder.learn(data, bend=True)  # also checks the hashes of all shards
            stream = EncodedStream(data, encoder, torch.device("cpu"))
            few = replace(stream, data=large)  # shards: the time to open a shard does not depend on its sets
            parts = list(stream.parts((0, 1)))
            about = {
                "table": name,
                "sets": len(data),
                "rows": data.n_rows,
                "columns": len(data.schema.features) + len(data.schema.individual),
                "table_bytes": sum(f.stat().st_size for f in folder.iterdir()) / data.n_rows,
                "shard_bytes": sum(shard.bytes for shard in data.manifest.shards) / data.n_rows,
                "encoded_bytes": sum(part.nbytes for part in parts) / data.n_rows,
                "pairs": data.tally.pairs / len(data),
                "half": -(-len(large.manifest.shards) // 2) / len(large.manifest.shards),
            }
            works: dict[str, Callable[[], Any]] = {
                "scan": scan,
                "check": lambda data=data: [hash_file(data.folder / shard.name) for shard in data.manifest.shards],
                "learn": lambda data=data: Encoder.learn(data, bend=True),
                "read": lambda stream=stream: [len(part.sizes) for part in stream.parts((0, 1))],
                "sizes": lambda stream=few: _sizes(stream, rank=LAST_RANK, size=LAST_RANK + 1),
                "read, 1 of 2": lambda stream=few: _sizes(stream, rank=0, size=2),
                "plan": lambda parts=parts: [_planned(part) for part in parts],
            }
            for part, work in works.items():
                time_ = least(work)
                figures = {"seconds": time_.cpu, "wall": time_.wall}
                rates = {"rows/s": data.n_rows / time_.cpu, "sets/s": len(data) / time_.cpu}
                shown.add({"part": part, **figures, **rates, **about})
    return shown.rows


def _sizes(stream: EncodedStream, **which: int) -> list[int]:
    """Read an epoch as one of several workers."""
    return [len(part.sizes) for part in replace(stream, **which).parts((0, 1))]


def _planned(part: EncodedSets) -> int:
    return len(plan_batches(part.sizes, batch_size=512, pair_budget=10**7, rng=np.random.default_rng(0)))


def steps() -> list[Row]:
    """Measure seconds of a training step by batch size, for the shapes of the validation fits."""
    shown = Table(
        "training steps on one CPU thread, CPU time",
        {"table": "", "hidden": "", "batch": ",", "ms a step": ".2f", "sets/s": ",.0f", "parameters": ","},
        first=12,
    )
    with streaming.tables(500_000) as folder:
        searches = pn.ChoiceData.from_long(folder, **streaming.ROLES)
    flights = pn.ChoiceData.from_long(airline.simulate(600, seed=0), **airline.ROLES)
    cases = [("searches", searches, streaming.OPTIONS["hidden"], batch) for batch in (64, 256)]
    cases += [("airline", flights, hidden, batch) for hidden in ((64, 64), (256, 256)) for batch in (16, 32, 64)]
    for name, data, hidden, batch in cases:
        timings: list[tuple[float, int]] = []
        for _ in range(2):
            model = pn.PCMCNet(hidden=hidden, batch_size=batch, epochs=1, **NETWORK)
            model.fit(data.subset(np.arange(2 * batch)), device="cpu", progress=False)  # warm up
            marks: list[float] = []
            model = pn.PCMCNet(hidden=hidden, batch_size=batch, epochs=3, **NETWORK)
            model.fit(
                data, device="cpu", progress=False, on_epoch=lambda _, marks=marks: marks.append(time.process_time())
            )
            timings.append((float(np.diff(marks).min()), model.num_parameters))
        (seconds, parameters), taken = min(timings), -(-len(data) // batch)
        row = {"table": name, "hidden": "x".join(map(str, hidden)), "batch": batch, "ms a step": 1e3 * seconds / taken}
        pairs = float((data.sizes**2).mean())
        shown.add({**row, "sets/s": len(data) / seconds, "parameters": parameters, "pairs": pairs})
    return shown.rows


def group() -> list[Row]:
    """Measure seconds of a sum over two processes."""
    shown = Table("sums over two processes, gloo on one machine", {"numbers": ",", "ms": ".3f", "MB/s": ",.0f"})
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", BOTH]
        sizes = [str(size) for size in MESSAGES]
        other = subprocess.Popen([*command, "1", folder, *sizes])
        done = subprocess.run([*command, "0", folder, *sizes], check=True, stdout=subprocess.PIPE, text=True)
        other.wait()
    for line in done.stdout.splitlines():
        size, seconds = int(line.split()[0]), float(line.split()[1])
        shown.add({"numbers": size, "ms": 1e3 * seconds, "MB/s": 4 * size / seconds / 1e6})
    return shown.rows


def shared() -> list[Row]:
    """Measure CPU seconds of an epoch per worker, to validate the model."""
    columns = {"workers": "", "cpu": ".2f", "wall": ".2f", "parameters": ","}
    shown = Table("an epoch of 1,200 airline sets, 64x64, batches of 64; of each worker, the mean", columns)
    for size in (1, 2):
        shown.add({"workers": size, **_by_workers(size), "sets": 1200})
    return shown.rows


def own() -> list[Row]:
    """Measure CPU seconds of an epoch per worker, for workers that read their own shards."""
    columns = {"workers": "", "cpu": ".2f", "wall": ".2f", "parameters": ",", "shards": "", "buffers": ""}
    with streaming.tables(1_000_000) as folder:
        data = pn.ChoiceData.scan(folder, memory="64 MiB", **streaming.ROLES)
        learn_or_load_encoder(data, bend=True)
        shown = Table(f"an epoch of {len(data):,} sets from disk, 16x16, batches of 256; of each worker", columns)
        about = {"shards": len(data.manifest.shards), "buffers": len(data.buffers()), "memory": data.memory}
        about |= {"sets": len(data), "rows": data.n_rows, "pairs": data.tally.pairs}
        for size in (1, 2):
            shown.add({"workers": size, **_by_workers(size, str(folder)), **about})
    return shown.rows


def _by_workers(size: int, *table: str) -> Row:
    """Train with several processes; return the mean seconds of an epoch."""
    with tempfile.TemporaryDirectory() as folder:
        commands = [[sys.executable, "-c", SHARED, str(rank), str(size), folder, *table] for rank in range(size)]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
        timings = np.array([[float(x) for x in each.communicate()[0].split()] for each in running])
    cpu, wall, parameters = timings.mean(0)
    return {"cpu": cpu, "wall": wall, "parameters": int(parameters)}


def checkpoint() -> list[Row]:
    """Measure seconds to write the state of a run with a million parameters: weights and two moments each."""
    shown = Table("writing a checkpoint", {"parameters": ",", "ms": ".1f", "MB/s": ",.0f"})
    size = 1_000_000
    state = RunState(module={"w": torch.randn(size)}, optimiser={0: {"m": torch.randn(size), "v": torch.randn(size)}})
    with tempfile.TemporaryDirectory() as folder:
        taken = least(lambda: Checkpoint(Path(folder) / "checkpoint.safetensors", {}).write(state)).wall
    shown.add({"parameters": size, "ms": 1e3 * taken, "MB/s": 12 * size / taken / 1e6})
    return shown.rows


def stream() -> list[Row]:
    """Measure the scan of a large table and a fit for one epoch, in CPU time and wall time."""
    shown = Table(
        f"{BIG:,} rows requested, memory={streaming.MEMORY!r}", {"part": "", "cpu": ",.1f", "wall": ",.1f", "rows": ","}
    )
    with streaming.tables(BIG) as folder:
        state: dict[str, Any] = {}

        def scan() -> None:
            state["data"] = pn.ChoiceData.scan(folder, memory=streaming.MEMORY, **streaming.ROLES)

        def fit() -> None:
            state["model"] = pn.PCMCNet(**streaming.OPTIONS).fit(state["data"], device="cpu", progress=False)

        for name, work in {"scan": scan, "fit": fit}.items():
            taken = spent(work)
            data = state["data"]
            about = {"rows": data.n_rows, "sets": len(data), "buffers": len(data.buffers()), "memory": data.memory}
            shown.add({"part": name, "cpu": taken.cpu, "wall": taken.wall, **about, "pairs": data.tally.pairs})
    return shown.rows


SECTIONS: dict[str, Section] = {
    "tables": tables,
    "steps": steps,
    "group": group,
    "shared": shared,
    "own": own,
    "checkpoint": checkpoint,
    "stream": stream,
}

if __name__ == "__main__":
    run(
        "benchmarks.scaling_parts",
        SECTIONS,
        description=__doc__ or "",
        json_file=RUNS / "scaling-parts.json",
        device="cpu",
    )
