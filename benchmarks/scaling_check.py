"""One fit of a million choice sets from disk on one GPU, compared with the plan.

    python -m benchmarks.scaling_check [--sets 1_000_000] [--workers N] [--device cuda] [--json FILE]

The table has the set sizes of the airline shape and 15 columns, as in the plan: 40 Parquet files in a temporary folder.
A quarter of it is scanned by one, two and more processes in turn, which must give the same shards. Then all processes
scan the whole table and learn its encoder, and it is fitted for three epochs. On a GPU, the first epoch compiles
kernels and records steps, which is not in the plan; the mean of the other epochs is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import pcmcnet as pn
from benchmarks.harness import RUNS, Row, Table, surroundings
from benchmarks.scaling_fit import HIDDEN, figures, on_gpu
from benchmarks.scaling_model import Job, epoch_seconds, learn_seconds, parts, scan_seconds
from benchmarks.shapes import AIRLINE, NETWORK
from pcmcnet.data.scan import learn_or_load_encoder

FILES, EPOCHS, BATCH = 40, 3, 512
FEATURES = tuple(f"x{k}" for k in range(10))
WHO = ("who0", "who1", "who2")
ROLES: dict[str, Any] = {
    "choice_set": "set",
    "chosen": "chosen",
    "individual": [*WHO, "market"],
    "features": [*FEATURES, "airline"],
}
MEMORY = "4 GiB"


def write_file(folder: Path, sets: int, file: int) -> None:
    """Write sets with choices drawn from a logit."""
    rng = np.random.default_rng(file)
    sizes = AIRLINE.sizes(sets, rng)
    owner, n = np.repeat(np.arange(sets), sizes), int(sizes.sum())
    x = rng.standard_normal((len(FEATURES), n), np.float32)
    np.exp(x[3:6], out=x[3:6])  # some columns have long tails and are transformed
    utility = (2 * x[0] - x[1] + rng.gumbel(size=n)).astype(np.float32)
    chosen = np.zeros(n, bool)
    chosen[np.lexsort((-utility, owner))[np.cumsum(sizes) - sizes]] = True
    names = {"market": ("M", 200, sets), "airline": ("A", 60, n)}
    words = {
        name: pa.DictionaryArray.from_arrays(rng.integers(0, k, m).astype(np.int32), [f"{a}{j:03d}" for j in range(k)])
        for name, (a, k, m) in names.items()
    }
    table = pa.table(
        {
            "set": owner + file * sets,
            "chosen": chosen,
            **dict(zip(FEATURES, x, strict=True)),
            **{name: rng.standard_normal(sets, np.float32)[owner] for name in WHO},
            "market": words["market"].take(pa.array(owner)).cast(pa.string()),
            "airline": words["airline"].cast(pa.string()),
        }
    )
    pyarrow.parquet.write_table(table, folder / f"part-{file:03d}.parquet")


def write_table(folder: Path, sets: int) -> None:
    """Write all files in parallel."""
    folder.mkdir()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(partial(write_file, folder, sets // FILES), range(FILES)))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call and its seconds."""
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def scans(folder: Path, cache: Path, workers: int) -> list[Row]:
    """Scan a table with one, two and more processes; the shards must be the same."""
    table = Table("scans of a quarter of the table", {"workers": "", "seconds": ".1f", "x one": ".2f"})
    prints = set()
    for count in sorted({1, 2, workers}):
        data, seconds = timed(
            lambda count=count: pn.ChoiceData.scan(folder, cache=cache, memory=MEMORY, workers=count, **ROLES)
        )
        prints.add(data.manifest.fingerprint)
        first = table.rows[0]["seconds"] if table.rows else seconds
        table.add({"workers": count, "seconds": seconds, "x one": first / seconds, "rows": data.n_rows})
        shutil.rmtree(cache)
    assert len(prints) == 1, "shards depend on the number of workers"
    return table.rows


def measured(folder: Path, workers: int, device: str) -> tuple[Row, Job]:
    """Scan, learn and fit; return seconds by part, and the properties of the table for the plan."""
    data, scan = timed(lambda: pn.ChoiceData.scan(folder, memory=MEMORY, workers=workers, **ROLES))
    _, learn = timed(lambda: learn_or_load_encoder(data, bend=True))
    options = {"hidden": HIDDEN, "batch_size": BATCH, "epochs": EPOCHS, "pair_budget": 4_000_000, "dropout": 0.5}
    model = pn.PCMCNet(**options, **NETWORK)
    _, fit = timed(lambda: model.fit(data, device=device, progress=False))
    epochs = [entry["seconds"] for entry in model.history]
    sizes = AIRLINE.sizes(100_000, np.random.default_rng(0)).astype(float)
    job = Job(
        sets=len(data),
        alternatives=data.n_alternatives / len(data),
        mean_square=data.tally.pairs / len(data),
        mean_cube=float((sizes**3).mean()),
        batch=BATCH,
        columns=len(FEATURES) + len(WHO) + 2,
        parameters=model.num_parameters,
        memory=data.memory,
        shards=len(data.manifest.shards),
    )
    later = float(np.mean(epochs[1:]))
    results = {"scan": scan, "learn": learn, "first epoch": epochs[0], "epoch": later, "fit": fit}
    return {**results, "epochs": epochs, "rows": data.n_rows, "shards": job.shards, "buffers": len(data.buffers())}, job


def check(sets: int, workers: int, device: str) -> dict[str, list[Row]]:
    """Measure the fit and compare it with the plan."""
    rates, shown = on_gpu(figures()), dict[str, list[Row]]()
    with tempfile.TemporaryDirectory() as place:
        folder, quarter = Path(place) / "table", Path(place) / "quarter"
        _, seconds = timed(lambda: write_table(folder, sets))
        print(f"{sets:,} sets written in {seconds:.0f} s")
        quarter.mkdir()
        for file in sorted(folder.iterdir())[: FILES // 4]:
            (quarter / file.name).hardlink_to(file)
        shown["scans"] = scans(quarter, Path(place) / "cache", workers)
        results, job = measured(folder, workers, device)
    planned_seconds = {
        "scan": scan_seconds(job, rates) / workers,
        "learn": learn_seconds(job, rates) / workers,
        "epoch": epoch_seconds(job, rates),
    }
    print()
    columns = {"part": "", "planned": ".2f", "measured": ".2f", "error": "+.0%"}
    table = Table(
        f"{job.sets:,} sets of {job.alternatives:.1f}, {results['shards']} shards, {results['buffers']} buffers; "
        f"seconds, scan and learn with {workers} processes",
        columns,
    )
    for name, planned in planned_seconds.items():
        table.add({"part": name, "planned": planned, "measured": results[name], "error": planned / results[name] - 1})
    print(f"epochs: {', '.join(f'{t:.2f}' for t in results['epochs'])} s; fit in total {results['fit']:.1f} s")
    print("parts of the planned epoch: " + ", ".join(f"{k} {v:.2f}" for k, v in parts(job, rates)._asdict().items()))
    shown["check"] = [{**row, "found": results} for row in table.rows]
    return shown


def main() -> None:
    """Compare the plan with a fit and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=1_000_000, help="choice sets (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=min(os.cpu_count() or 1, 12), help="processes of the scan")
    parser.add_argument("--device", default="cuda", help="device of the fit (default: %(default)s)")
    parser.add_argument("--json", type=Path, default=RUNS / "scaling-check.json", help="file of the results")
    arguments = parser.parse_args()
    record = surroundings("python -m benchmarks.scaling_check")
    print(f"{record['machine']}; {', '.join(f'{k} {v}' for k, v in record['versions'].items())}")
    record["figures"], seconds = timed(lambda: check(arguments.sets, arguments.workers, arguments.device))
    print(f"({seconds:.0f} s in total)")
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
