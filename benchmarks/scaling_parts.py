"""The parts of an epoch one by one: what `benchmarks.scaling_plan` reckons with.

    python -m benchmarks.scaling_parts [--json FILE] [tables] [steps] [group] [shared] [own] [checkpoint] [stream]

tables      scan, look at hashes, learn the encoder, read and encode shards, look at sizes alone, plan batches; and
            read as one of two workers, which is not a part, but what these are held against
steps       training steps on one CPU thread, by the number of sets of a batch
group       sums over two processes by gloo, by the number of bytes
shared      epochs of one and of two workers: not a part, but what the sum of the parts is held against
own         the same, of workers that read their own shards of a table on disk
checkpoint  writing the state of a run
stream      a large table scanned and fitted for one epoch: likewise

Times are given twice. Wall time is what passes, and on a shared machine mostly that of others; CPU time is what this
process was given of it, all its threads together. The least of some rounds counts.
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
NOBODY = 10**6  # a worker among so many has no shard of its own
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
    """Seconds that passed, and seconds of the processor."""

    wall: float
    cpu: float


def spent(work: Callable[[], Any]) -> Spent:
    """Time one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def least(work: Callable[[], Any], rounds: int = ROUNDS) -> Spent:
    """Time some calls; the least of each kind of time."""
    found = [spent(work) for _ in range(rounds)]
    return Spent(min(s.wall for s in found), min(s.cpu for s in found))


@contextmanager
def itineraries(sets: int = 30_000) -> Iterator[Path]:
    """Yield a folder with simulated searches of flights, of 33 itineraries or so."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "table"
        folder.mkdir()
        pa.parquet.write_table(pa.table(airline.simulate(sets, seed=0)), folder / "all.parquet")
        yield folder


def tables() -> list[Row]:
    """What the host does with two tables, per row."""
    shown = Table(
        f"parts of an epoch on the host, one thread; CPU time, least of {ROUNDS}",
        {"part": "", "table": "", "seconds": ".3f", "rows/s": ",.0f", "sets/s": ",.0f", "wall": ".3f"},
        first=12,
    )
    searches = ("searches", streaming.tables(1_000_000), streaming.ROLES)
    for name, made, roles in (searches, ("airline", itineraries(), airline.ROLES)):
        with made as folder, tempfile.TemporaryDirectory() as cache:
            numbers = iter(range(100))

            def scan(
                memory: str = "64 MiB", folder: Path = folder, roles: Any = roles, cache: str = cache, k: Any = numbers
            ) -> Any:
                return pn.ChoiceData.scan(folder, memory=memory, cache=Path(cache) / str(next(k)), **roles)

            data, large = scan(), scan(memory="1 GiB")
            encoder = Encoder.learn(data, bend=True)  # also looks at the hashes of all shards
            stream = EncodedStream(data, encoder, torch.device("cpu"))
            few = replace(stream, data=large)  # shards, for what opening a shard takes is not a matter of its sets
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
                "sizes": lambda stream=few: _sizes(stream, rank=NOBODY, size=NOBODY + 1),
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
    """Go through an epoch as one of several workers."""
    return [len(part.sizes) for part in replace(stream, **which).parts((0, 1))]


def _planned(part: EncodedSets) -> int:
    return len(plan_batches(part.sizes, batch_size=512, pair_budget=10**7, rng=np.random.default_rng(0)))


def steps() -> list[Row]:
    """Seconds of a training step by the sets of its batch, for the shapes that fits are held against."""
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
        found: list[tuple[float, int]] = []
        for _ in range(2):
            model = pn.PCMCNet(hidden=hidden, batch_size=batch, epochs=1, **NETWORK)
            model.fit(data.subset(np.arange(2 * batch)), device="cpu", progress=False)  # what is slow only once
            marks: list[float] = []
            model = pn.PCMCNet(hidden=hidden, batch_size=batch, epochs=3, **NETWORK)
            model.fit(
                data, device="cpu", progress=False, on_epoch=lambda _, marks=marks: marks.append(time.process_time())
            )
            found.append((float(np.diff(marks).min()), model.num_parameters))
        (seconds, parameters), taken = min(found), -(-len(data) // batch)
        row = {"table": name, "hidden": "x".join(map(str, hidden)), "batch": batch, "ms a step": 1e3 * seconds / taken}
        pairs = float((data.sizes**2).mean())
        shown.add({**row, "sets/s": len(data) / seconds, "parameters": parameters, "pairs": pairs})
    return shown.rows


def group() -> list[Row]:
    """Seconds to add up a message over two processes."""
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
    """Processor's seconds of an epoch of each of some workers: not a part, but what the model is held against."""
    columns = {"workers": "", "cpu": ".2f", "wall": ".2f", "parameters": ","}
    shown = Table("an epoch of 1,200 airline sets, 64x64, batches of 64; of each worker, the mean", columns)
    for size in (1, 2):
        shown.add({"workers": size, **_by_workers(size), "sets": 1200})
    return shown.rows


def own() -> list[Row]:
    """Likewise of workers that read their own shards."""
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
    """Train by some processes; seconds of an epoch of each, the mean."""
    with tempfile.TemporaryDirectory() as folder:
        commands = [[sys.executable, "-c", SHARED, str(rank), str(size), folder, *table] for rank in range(size)]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
        found = np.array([[float(x) for x in each.communicate()[0].split()] for each in running])
    cpu, wall, parameters = found.mean(0)
    return {"cpu": cpu, "wall": wall, "parameters": int(parameters)}


def checkpoint() -> list[Row]:
    """Seconds to write the state of a run with a million parameters: weights and two moments each."""
    shown = Table("writing a checkpoint", {"parameters": ",", "ms": ".1f", "MB/s": ",.0f"})
    size = 1_000_000
    state = RunState(module={"w": torch.randn(size)}, optimiser={0: {"m": torch.randn(size), "v": torch.randn(size)}})
    with tempfile.TemporaryDirectory() as folder:
        taken = least(lambda: Checkpoint(Path(folder) / "checkpoint.safetensors", {}).write(state)).wall
    shown.add({"parameters": size, "ms": 1e3 * taken, "MB/s": 12 * size / taken / 1e6})
    return shown.rows


def stream() -> list[Row]:
    """Scan a large table and fit for one epoch, in CPU time and in wall time."""
    shown = Table(
        f"{BIG:,} rows asked for, memory={streaming.MEMORY!r}", {"part": "", "cpu": ",.1f", "wall": ",.1f", "rows": ","}
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
