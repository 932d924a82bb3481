"""Chains with factored rates on one large set: time and memory of a training step, and accuracy of the solution.

    python -m benchmarks.factored [--device cuda] [--json FILE] [SECTION ...]

A step is an epoch of one set, with the default network: forward, backward, and the optimiser. Its time is the shortest
of five, because other programs may run at the same time. The individual has as many features as an alternative: 5, or
39 as in the airline table. On a CPU, a step uses two threads of a separate process, whose peak memory includes Python
and its libraries; the exponent is that of the CPU time of one thread. On a CUDA device, the peak is that of PyTorch's
allocations. ``accuracy`` compares float32 with an elimination of all n states (Grassmann, Taksar & Heyman) in 50
digits, on rates that span 20 orders of magnitude.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import torch

from benchmarks.gpu import paper_scale
from benchmarks.harness import RUNS, Row, Section, Table, run
from benchmarks.shapes import NETWORK, WIDE
from pcmcnet import PCMCNet, factored_distribution

RANK = 16
LARGE = 100_000  # alternatives
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)  # up to 1,000 alternatives, a CPU takes compiled steps
THREADS = 2
STEPS, SKIPPED = 8, 3  # the first steps allocate memory, and compile and record the kernels of a GPU
FEW_FEATURES = 5  # features of the sets of up to 1,000,000 alternatives
ORDERS = 20
STEP_COLUMNS = {"one set of": ",", "features": "", "ms a step": ",.1f", "CPU ms": ",.1f", "peak GiB": ".2f"}


# -- a training step ---------------------------------------------------------------------------------------------------


def training_step(size: int, features: int, device: str) -> tuple[float, float]:
    """Run training steps with one set; return the fewest seconds, and CPU seconds in all threads, of a step."""
    data = replace(WIDE, size=size, features=features, individual=features).data(1)
    options: dict[str, Any] = {**NETWORK, "rank": RANK, "utility": "linear"}
    model = PCMCNet(batch_size=1, epochs=STEPS, members=1, **options)
    clock: list[float] = []
    model.fit(data, device=device, progress=False, on_epoch=lambda _: clock.append(time.process_time()))
    wall = min(entry["seconds"] for entry in model.history[SKIPPED:])
    return wall, min(b - a for a, b in pairwise(clock[SKIPPED - 1 :]))


def measured_step(size: int, features: int, device: str, threads: int = THREADS) -> Row:
    """Return time and peak memory of a training step."""
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        wall, cpu = training_step(size, features, device)
        peak = torch.cuda.max_memory_allocated() / 2**30
    else:
        command = [sys.executable, "-c", "from benchmarks.factored import alone; alone()"]
        command += map(str, (size, features, threads))
        wall, cpu, peak = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return {"one set of": size, "features": features, "ms a step": 1e3 * wall, "CPU ms": 1e3 * cpu, "peak GiB": peak}


def alone() -> None:
    """Run steps in this process, with the arguments of the command line, and print seconds and peak memory."""
    size, features, threads = map(int, sys.argv[1:])
    torch.set_num_threads(threads)
    times = training_step(size, features, "cpu")
    print(json.dumps([*times, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20]))  # KiB on Linux


def step(device: str = "cpu") -> list[Row]:
    """Measure a step of 100,000 alternatives, with few features and with those of the airline table."""
    table = Table(f"one training step with one set, rank {RANK}, {_where(device)}", STEP_COLUMNS)
    for features in (FEW_FEATURES, WIDE.features):
        table.add(measured_step(LARGE, features, device))
    return table.rows


def exponent(device: str = "cpu") -> list[Row]:
    """Measure steps of growing sets, and the exponent of their time in the number of alternatives."""
    where = "GPU" if device == "cuda" else "one thread"
    table = Table(f"one training step by size of the set, rank {RANK}, {where}", STEP_COLUMNS)
    for size in SIZES:
        table.add(measured_step(size, FEW_FEATURES, device, threads=1))
    clock = "ms a step" if device == "cuda" else "CPU ms"  # other programs of the machine do not add to CPU time
    logs = np.log([[row["one set of"], row[clock]] for row in table.rows])
    slope = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    steepest = float((np.diff(logs[:, 1]) / np.diff(logs[:, 0])).max())
    print(f"{clock}: grows with n to the power {slope:.3f}; between two sizes, to the power {steepest:.3f} at most")
    return [*table.rows, {"exponent": slope, "steepest": steepest}]


# -- accuracy ----------------------------------------------------------------------------------------------------------


def exact_distribution(log_u: np.ndarray, log_v: np.ndarray) -> list[mpmath.mpf]:
    """Return the stationary distribution of all n states, by elimination in the working precision of mpmath."""
    u, v = ([[mpmath.exp(mpmath.mpf(float(x))) for x in row] for row in logs] for logs in (log_u, log_v))
    n = len(u)
    q = [[mpmath.fdot(u[i], v[j]) for j in range(n)] for i in range(n)]
    for k in range(n - 1, 0, -1):
        total = mpmath.fsum(q[k][:k])
        for i in range(k):
            q[i][k] /= total
            for j in range(k):
                q[i][j] += q[i][k] * q[k][j]
    p = [mpmath.mpf(1)]
    for k in range(1, n):
        p.append(mpmath.fsum(p[i] * q[i][k] for i in range(k)))
    total = mpmath.fsum(p)
    return [x / total for x in p]


def accuracy(device: str = "cpu") -> list[Row]:
    """Compare probabilities in float32 with 50 digits."""
    columns = {"alternatives": "", "rank": "", "smallest p": ".1e", "relative error": ".1e"}
    table = Table(f"float32 against 50 digits, rates over {ORDERS} orders of magnitude, {_where(device)}", columns)
    for n, rank in ((10, 1), (10, 4), (60, 16), (60, 32), (120, 16)):
        rng = np.random.default_rng(n + rank)
        # each logarithm spans half of the orders, and the extremes occur
        half = ORDERS * np.log(10) / 2
        logs = rng.uniform(0, half, (2, n, rank))
        logs[:, 0], logs[:, -1] = 0, half
        log_u, log_v = torch.from_numpy(logs).float()
        with mpmath.workdps(50):
            exact = exact_distribution(log_u.numpy(), log_v.numpy())
            p = factored_distribution(log_u.to(device), log_v.to(device)).tolist()
            error = max(abs(mpmath.mpf(ours) / other - 1) for ours, other in zip(p, exact, strict=True))
            smallest = min(exact)
        table.add({"alternatives": n, "rank": rank, "smallest p": float(smallest), "relative error": float(error)})
    return table.rows


# -- the sections ------------------------------------------------------------------------------------------------------


def scale_of_the_paper() -> list[Row]:
    """Time the paper's airline experiment with all pairs, and with factors."""
    return [row for rank in (None, RANK) for row in paper_scale(rank=rank)]


def sections_on(device: str) -> dict[str, Section]:
    """Return the sections that run on a device."""
    measures: dict[str, Callable[[str], list[Row]]] = {"step": step, "exponent": exponent, "accuracy": accuracy}
    sections: dict[str, Section] = {name: partial(measure, device) for name, measure in measures.items()}
    return sections | ({"paper_scale": scale_of_the_paper} if device == "cuda" else {})


def on_cpu() -> list[Row]:
    """Run all sections on a CPU."""
    return [row for section in sections_on("cpu").values() for row in section()]


def _where(device: str) -> str:
    return "GPU" if device == "cuda" else f"{THREADS} threads"


def main() -> None:
    """Run the sections of the command line."""
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    known, arguments = options.parse_known_args()
    run(
        "benchmarks.factored",
        sections_on(known.device),
        description=__doc__ or "",
        json_file=RUNS / f"bench-factored-{known.device}.json",
        device=known.device,
        arguments=arguments,
    )


if __name__ == "__main__":
    main()
