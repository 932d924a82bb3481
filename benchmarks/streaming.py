"""Scan, fit (one epoch) and predict a table larger than the memory limit, and measure the peak memory.

    python -m benchmarks.streaming [steps] [scanners] [throughput] [folders]

A separate process writes the table to a temporary folder (20 million rows by default; set PCMCNET_ROWS for another
number); it is removed at the end. ``steps`` runs all steps on one table in a new process. ``scanners`` scans a table
and learns its encoder with one process and with two, which must give the same bytes. ``throughput`` compares an epoch
from memory with an epoch from disk on all cores, in turn. ``folders`` predicts a table with adjacent rows per set into
a folder, with and without a scan, in turn.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Row, Table, in_turn, run

ROWS = int(os.environ.get("PCMCNET_ROWS", "20_000_000"))
MEMORY = os.environ.get("PCMCNET_MEMORY", "512 MiB")
FITS = int(os.environ.get("PCMCNET_ROWS_THAT_FIT", "1_000_000"))
SHARED = int(os.environ.get("PCMCNET_ROWS_SHARED", "40_000_000"))
ROUNDS = 5
TURNS = 2  # rounds of one process and of two
FILES = 40
ROLES: dict[str, Any] = {
    "choice_set": "search",
    "chosen": "booked",
    "individual": ["days_ahead", "market"],
    "features": ["price", "duration", "stops", "airline"],
}
OPTIONS: dict[str, Any] = {"hidden": (16, 16), "epochs": 1, "batch_size": 256, "utility": "none", "weight_decay": 0.03}


def write_tables(folder: Path, rows: int) -> None:
    """Write searches with 5 to 20 offers, shuffled within a file; a search may span two files."""
    import pyarrow as pa
    import pyarrow.parquet

    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    markets, airlines = (np.array([f"{kind}{k:03d}" for k in range(n)]) for kind, n in (("M", 200), ("A", 60)))
    per_file, first, left = rows // FILES, 0, None
    for file in range(FILES):
        sizes = rng.integers(5, 21, per_file // 12)
        n, sets = int(sizes.sum()), len(sizes)
        of = np.repeat(np.arange(sets), sizes)
        price, duration, stops = rng.lognormal(5, 0.8, n), rng.normal(8, 3, n), rng.integers(0, 4, n)
        utility = -price / 100 - duration / 4 - stops / 2 + rng.gumbel(size=n)
        best = np.lexsort((utility, of))[np.cumsum(sizes) - 1]
        table = pa.table(
            {
                "search": of + first,
                "booked": np.isin(np.arange(n), best),
                "days_ahead": rng.integers(0, 300, sets)[of],
                "market": pa.array(markets[rng.integers(0, 200, sets)[of]]),
                "price": price,
                "duration": duration,
                "stops": stops,
                "airline": pa.array(airlines[rng.integers(0, 60, n)]),
            }
        ).take(pa.array(rng.permutation(n)))
        last = pa.array(np.asarray(table["search"]) == first + sets - 1)  # the last search continues in the next file
        whole = table if left is None else pa.concat_tables([left, table])
        if file < FILES - 1:
            left = table.filter(last).slice(0, 2)
            keep = np.ones(whole.num_rows, bool)
            keep[(whole.num_rows - n) + np.flatnonzero(last)[:2]] = False
            whole = whole.filter(pa.array(keep))
        pyarrow.parquet.write_table(whole, folder / f"part-{file:03d}.parquet")
        first += sets


@contextmanager
def tables(rows: int) -> Iterator[Path]:
    """Yield a folder with the table, written by another process."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "table"
        code = (
            f"from pathlib import Path; from benchmarks.streaming import *; write_tables(Path({str(folder)!r}), {rows})"
        )
        subprocess.run([sys.executable, "-c", code], check=True)
        yield folder


def peak_mib(*, reset: bool = False) -> float:
    """Return the largest resident size of this process so far, or since it was last reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    return peak


def take_steps(folder: Path, out: Path) -> list[Row]:
    """Scan, fit and predict; return time and peak memory of each step."""
    import torch

    import pcmcnet as pn
    from pcmcnet.models.interface.prediction_files import predict_folder

    torch.set_num_threads(1)
    rows: list[Row] = [{"step": "import", "seconds": None, "peak": peak_mib(reset=True)}]
    state: dict[str, Any] = {}

    def scan() -> None:
        state["data"] = pn.ChoiceData.scan(folder, memory=MEMORY, **ROLES)

    def fit() -> None:
        state["model"] = pn.PCMCNet(**OPTIONS).fit(state["data"], device="cpu", progress=False)
        state["model"].save(out / "model")

    def predict() -> None:
        p = state["model"].predict_proba(state["data"])
        assert len(p) == state["data"].n_rows
        assert abs(p.sum() - len(state["data"])) < 1e-6 * len(p)  # probabilities of each set sum to one

    def command() -> None:
        n = predict_folder(pn.load(out / "model"), folder, out / "predicted", memory=MEMORY)
        assert n == state["data"].n_rows
        assert len(list((out / "predicted").glob("*.parquet"))) == FILES

    names = {
        "scan": scan,
        "scan again": scan,
        "fit, 1 epoch": fit,
        "predict_proba": predict,
        "pcmcnet predict": command,
    }
    for name, step in names.items():
        began = time.perf_counter()
        step()
        rows.append({"step": name, "seconds": time.perf_counter() - began, "peak": peak_mib(reset=True)})
    data = state["data"]
    for row in rows:
        row |= {"rows": data.n_rows, "sets": len(data), "shards": len(data.manifest.shards), "memory": MEMORY}
        row |= {"buffers": len(data.buffers()), "epoch": state["model"].history[-1]["seconds"]}
    return rows


def steps() -> list[Row]:
    """Run all steps on a large table."""
    with tables(ROWS) as folder:
        size = sum(file.stat().st_size for file in folder.iterdir()) / 2**20
        shown = Table(
            f"{ROWS:,} rows requested, {size:,.0f} MiB of Parquet in {FILES} files, memory={MEMORY!r}",
            {"step": "", "seconds": ".1f", "peak": ",.0f"},
        )
        out = folder.parent / "out"
        out.mkdir()
        code = (
            "import json, sys; from pathlib import Path; from benchmarks.streaming import take_steps;"
            f"print(json.dumps(take_steps(Path({str(folder)!r}), Path({str(out)!r}))))"
        )
        done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
        for row in json.loads(done.stdout.splitlines()[-1]):
            shown.add(row)
    last = shown.rows[-1]
    print(f"{last['rows']:,} rows, {last['sets']:,} sets, {last['shards']} shards, {last['buffers']} buffers per epoch")
    print(f"peak memory of the process: {max(row['peak'] for row in shown.rows):,.0f} MiB")
    return shown.rows


def scanners() -> list[Row]:
    """Scan a large table and learn its encoder with one process and with two, in turn."""
    shown = Table(
        f"{SHARED:,} rows requested, memory={MEMORY!r}; wall time in seconds, best of {TURNS}; CPU time of both steps "
        f"and of the start of a worker",
        {"workers": "", "scan": ".1f", "learn": ".1f", "x scan": ".2f", "x learn": ".2f", "cpu": ".1f"},
    )
    with tables(SHARED) as folder:
        taken: dict[int, list[Row]] = {1: [], 2: []}
        for _ in range(TURNS):
            for count, rows in taken.items():
                rows.append(_scanned_by(count, folder))
        for count, rows in taken.items():
            assert {row["made"] for row in rows} == {taken[1][0]["made"]}, "bytes depend on the number of workers"
            row: Row = {name: min(each[name] for each in rows) for name in ("scan", "learn", "cpu")}
            first = (shown.rows or [row])[0]
            gains = {f"x {part}": first[part] / row[part] for part in ("scan", "learn")}
            turns = {f"all {name}": [each[name] for each in rows] for name in row}
            shown.add({"workers": count, **row, **gains, **turns, "rows": rows[0]["rows"]})
    return shown.rows


def _scanned_by(count: int, folder: Path) -> Row:
    """Scan a table and learn its encoder with some processes; return the times and a hash of the results."""
    from pcmcnet.data import Encoder, ScannedData, Schema
    from pcmcnet.data.scan.workers import Processes

    cpu, began = sum(os.times()[:4]), time.perf_counter()
    with tempfile.TemporaryDirectory(dir=folder.parent) as cache:
        with Processes(count) as shared:  # a worker is started once for both steps
            options = {"cache": Path(cache), "memory": MEMORY, "workers": shared}
            data = ScannedData.of(folder, Schema.from_dict(ROLES), **options)
            scanned = time.perf_counter()
            encoder = Encoder.learn(data, bend=True)
            learnt = time.perf_counter()
        cpu = sum(os.times()[:4]) - cpu  # also of workers, which have ended
    fingerprint = data.manifest.fingerprint + json.dumps(encoder.to_dict())
    return {"scan": scanned - began, "learn": learnt - scanned, "cpu": cpu, "made": fingerprint, "rows": data.n_rows}


def throughput() -> list[Row]:
    """Compare an epoch from disk with an epoch from memory."""
    import torch

    import pcmcnet as pn

    torch.set_num_threads(os.cpu_count() or 1)
    with tables(FITS) as folder:
        memory = pn.ChoiceData.from_long(folder, **ROLES)
        disk = pn.ChoiceData.scan(folder, memory="16 MiB", **ROLES)
        assert not disk.fits

        def epoch(data: Any) -> float:
            model = pn.PCMCNet(**OPTIONS).fit(data, device="cpu", progress=False)
            return float(model.history[-1]["seconds"])

        times_by_source = in_turn({"memory": lambda: epoch(memory), "disk": lambda: epoch(disk)}, ROUNDS)
    about = f"{len(disk.manifest.shards)} shards, {len(disk.buffers())} buffers"
    shown = Table(
        f"{len(memory):,} sets, {disk.n_rows:,} rows; on disk {about}; best of {ROUNDS}",
        {"sets from": "", "seconds": ".1f", "sets/s": ",.0f", "share": ".2f"},
    )
    for name, times in times_by_source.items():
        best = min(times)
        share = min(times_by_source["memory"]) / best
        row = {"sets from": name, "seconds": best, "sets/s": len(memory) / best, "share": share}
        shown.add(row | {"all": times})
    return shown.rows


def folders() -> list[Row]:
    """Predict into a folder with a scan (needed for a cache) and in one pass, for a logit and a default network."""
    import pyarrow as pa
    import pyarrow.parquet

    import pcmcnet as pn
    from pcmcnet.models.interface.prediction_files import predict_folder

    with tables(FITS) as shuffled:
        table = pyarrow.parquet.read_table(shuffled).sort_by("search")
        folder = shuffled.with_name("sorted")
        folder.mkdir()
        for k in range(FILES):
            begin, end = (table.num_rows * at // FILES for at in (k, k + 1))
            pa.parquet.write_table(table.slice(begin, end - begin), folder / f"{k:02d}.parquet")
        some = pn.ChoiceData.from_long(table.slice(0, 100_000).filter(pa.compute.field("search") < 5_000), **ROLES)
        shown = Table(
            f"{table.num_rows:,} rows in {FILES} files; best of {ROUNDS}", {"model": "", "way": "", "s": ".1f"}
        )
        for model in (pn.MNL(), pn.PCMCNet(epochs=1, weight_decay=0.03)):
            model.fit(some, device="cpu", progress=False)

            def seconds(scan: bool, model: Any = model) -> float:
                with tempfile.TemporaryDirectory(dir=shuffled.parent) as place:
                    began = time.perf_counter()
                    predict_folder(model, folder, Path(place) / "out", cache=Path(place) / "cache" if scan else None)
                    return time.perf_counter() - began

            ways = {"scan": lambda: seconds(True), "one pass": lambda: seconds(False)}
            for way, times in in_turn(ways, ROUNDS).items():
                shown.add({"model": type(model).__name__, "way": way, "s": min(times), "all": times})
    return shown.rows


if __name__ == "__main__":
    run(
        "benchmarks.streaming",
        {"steps": steps, "scanners": scanners, "throughput": throughput, "folders": folders},
        description=__doc__ or "",
        json_file=Path("runs/streaming.json"),
        device="cpu",
    )
