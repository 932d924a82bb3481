"""Fits on a busy machine: on all cores alone, and with as many busy loops as cores.

With a fair share of the cores, a fit takes at most twice as long. The loops are processes of the same priority. The CPU
time shows whether waiting threads keep a core busy: it must not grow.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from benchmarks.accuracy import ROLES
from benchmarks.harness import Row, Table, in_turn
from benchmarks.shapes import AIRLINE, NETWORK
from pcmcnet import ChoiceData, PCMCNet
from pcmcnet.datasets import mlba, packaged

ROUNDS = 3
CORES = os.cpu_count() or 1
COLUMNS = {
    "fit": "",
    "one thread": ".2f",
    "all cores": ".2f",
    "busy": ".2f",
    "all / one": ".2f",
    "wall, busy / idle": ".2f",
    "CPU, busy / idle": ".2f",
}


def main() -> list[Row]:
    """Fit on one thread, on all cores, and on all cores with busy loops, in turn."""
    before = torch.get_num_threads()
    table = Table(f"seconds per fit, {CORES} cores; busy: with {CORES} busy loops; best of {ROUNDS}", COLUMNS)
    try:
        for name, fit in fits().items():
            table.add({"fit": name, **measured(fit)})
    finally:
        torch.set_num_threads(before)
    return table.rows


def fits() -> dict[str, Callable[[], Any]]:
    """Return fits with default options, which use compiled steps, and a fit of a wide network with PyTorch."""
    fits_by_name: dict[str, Callable[[], Any]] = {}
    for name in ("mode-canada", "mtc-work"):
        rows, schema = packaged.long_form(name)
        data = ChoiceData.from_schema(rows, schema)
        fits_by_name[name] = lambda data=data: PCMCNet().fit(data, device="cpu", progress=False)
    simulated = ChoiceData.from_long(mlba.simulate(8_000, seed=0), **ROLES)
    fits_by_name["mlba 3x16"] = lambda: PCMCNet(hidden=(16, 16, 16)).fit(simulated, device="cpu", progress=False)
    wide, options = (
        AIRLINE.data(96),
        {"hidden": AIRLINE.hidden, "dropout": AIRLINE.dropout, "batch_size": 16, "epochs": 2},
    )
    fits_by_name["airline 2x512"] = lambda: PCMCNet(**options, **NETWORK).fit(wide, device="cpu", progress=False)
    return fits_by_name


def measured(fit: Callable[[], Any]) -> Row:
    """Time a fit in all ways."""
    cpu: dict[str, list[float]] = {"all cores": [], "busy": []}

    def timed(name: str, threads: int, loops: int) -> float:
        torch.set_num_threads(threads)
        with busy(loops):
            wall, spent = time.perf_counter(), time.process_time()
            fit()
            cpu.setdefault(name, []).append(time.process_time() - spent)
            return time.perf_counter() - wall

    ways = {"one thread": (1, 0), "all cores": (CORES, 0), "busy": (CORES, CORES)}
    times_by_way = in_turn({name: lambda name=name, way=way: timed(name, *way) for name, way in ways.items()}, ROUNDS)
    best = {name: min(times) for name, times in times_by_way.items()}
    idle = best["all cores"]
    ratios = {"all / one": idle / best["one thread"], "wall, busy / idle": best["busy"] / idle}
    return {**best, **ratios, "CPU, busy / idle": min(cpu["busy"]) / min(cpu["all cores"])}


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Keep cores busy with this many processes."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
