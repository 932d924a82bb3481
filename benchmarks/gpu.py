"""The benchmarks on a CUDA device, and the paper's airline experiment from a file to a saved model.

    python -m benchmarks.gpu [--json FILE] [SECTION ...]

A training speed is the median over the last ten of twenty epochs of one fit. In the first epochs, kernels are compiled,
steps are recorded, and the clocks settle at the power limit. The bound is that of 512 sets with the mean number of
pairs of the whole table, in bfloat16 if the network uses it. ``paper_scale`` times two processes from their start: one
compiles all kernels, the other finds them in Triton's cache. One epoch before them is not timed; it compiles the
bytecode of all Python modules, as an installation with pip does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from benchmarks import kernels, stationary, training, wide
from benchmarks.harness import RUNS, Row, Section, Table, run, seconds
from benchmarks.precision import learnt
from benchmarks.prediction import compare as compare_prediction
from benchmarks.prediction import from_tables
from benchmarks.shapes import AIRLINE, MLBA, NETWORK
from benchmarks.training import Case

PAPER_SETS = 27_160  # training sets of the paper
BATCHES = (16, 64, 256, 512, 1_024)
FIT = {"sets": PAPER_SETS, "epochs": 20, "skipped": 10, "bound_sets": 512}
CHAINS = ((512, 33), (512, 50), (16, 33), (4_096, 3), (64, 128), (16, 300), (2, 1_024))


def stationary_layer() -> list[Row]:
    """Time the layer and LU, for rates of one and of many orders of magnitude."""
    table = Table("stationary layer, float32, forward and backward; rates log-normal", stationary.COLUMNS)
    for sets, n, sigma in (*((sets, n, 1.0) for sets, n in CHAINS), (512, 8, 10.0), (64, 50, 5.0)):
        table.add(stationary.measure(sets, n, sigma, device="cuda", rounds=20))
    return table.rows


def training_speed() -> list[Row]:
    """Measure sets per second at both shapes, by batch size."""
    cases = [Case(MLBA, size, paper_steps=100, lu_steps=20, **FIT) for size in (64, 1_024)]
    cases += [Case(AIRLINE, size, paper_steps=10, lu_steps=max(5, 320 // size), **FIT) for size in BATCHES]
    table = Table("training, choice sets per second", training.COLUMNS)
    for case in cases:
        training.compare(case, table, rounds=2, device="cuda")
    print(f"(batch size of the paper's way: {MLBA.paper_batch} for mlba, {AIRLINE.paper_batch} for airline)")
    return table.rows


def prediction_speed() -> list[Row]:
    """Measure prediction against matrix products alone, and prediction from tables."""
    rows = compare_prediction("prediction at the airline shape", PAPER_SETS, rounds=5, device="cuda")
    for sets in (PAPER_SETS, 4 * PAPER_SETS):
        rows += from_tables(f"from a table to probabilities, {sets:,} sets", sets, rounds=4, device="cuda")
    return rows


def precision() -> list[Row]:
    """Compare the NLL in float32 and bfloat16."""
    return learnt(sets=12_000, seeds=3, device="cuda")


def large_set() -> list[Row]:
    """Measure time and memory of training steps on one large set."""
    table = Table("one training step with one set, airline features and network", wide.COLUMNS)
    for size in (1_000, 2_000):
        table.add(wide.on_device(size))
    return table.rows


def paper_scale(
    sets: int = PAPER_SETS, epochs: int = 66, hidden: str = "512,512", device: str = "cuda", rank: int | None = None
) -> list[Row]:
    """Time the paper's airline experiment twice, each in a process, from a Parquet file to a saved model."""
    table = Table(
        f"pcmcnet fit of the paper's network, rank {rank}, from a Parquet file to a saved model",
        {"kernels": "", "sets": ",", "epochs": "", "seconds": ".1f"},
    )
    with tempfile.TemporaryDirectory() as folder:
        file, kernels = Path(folder) / "airline.parquet", Path(folder) / "kernels"
        pa.parquet.write_table(pa.table(AIRLINE.table(sets)), file)
        roles = {name: value if isinstance(value, str) else ",".join(value) for name, value in AIRLINE.roles.items()}
        command = [sys.executable, "-m", "pcmcnet", "fit", str(file), "--device", device]
        command += [word for name, value in roles.items() for word in (f"--{name.replace('_', '-')}", value)]
        options = {**NETWORK, "rank": rank, "hidden": hidden, "dropout": 0.5, "batch_size": 256}
        command += [word for name, value in options.items() for word in ("--set", f"{name}={str(value).lower()}")]
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode")}
        for run, count in (("before", 1), ("compiled", epochs), ("cached", epochs)):
            arguments = [*command, "--set", f"epochs={count}", "-o", str(Path(folder) / run)]
            env["TRITON_CACHE_DIR"] = str(kernels / ("before" if run == "before" else "timed"))
            taken = seconds(partial(subprocess.run, arguments, check=True, stdout=subprocess.DEVNULL, env=env))
            assert (Path(folder) / run / "weights.safetensors").exists()
            if run != "before":
                table.add({"kernels": run, "sets": sets, "epochs": epochs, "seconds": taken})
    return table.rows


SECTIONS: dict[str, Section] = {
    "stationary": stationary_layer,
    "training": training_speed,
    "prediction": prediction_speed,
    "precision": precision,
    "wide": large_set,
    "paper_scale": paper_scale,
    "kernels": kernels.main,
}

if __name__ == "__main__":
    run("benchmarks.gpu", SECTIONS, description=__doc__, json_file=RUNS / "bench-gpu.json", device="cuda")
