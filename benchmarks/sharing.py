"""Fits beside other work: on all cores alone, and beside as many busy loops as there are cores.

Who shares the cores fairly takes twice its time then, or less. The loops are processes of the same priority. Times of
the processor tell whether threads wait by keeping a core busy: they must not grow.
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
    "all": ".2f",
    "beside": ".2f",
    "x one": ".2f",
    "x beside": ".2f",
    "x CPU": ".2f",
}


def main() -> list[Row]:
    """Fit on one thread, on all, and on all beside busy loops, in turns."""
    before = torch.get_num_threads()
    table = Table(
        f"seconds of fits, {CORES} cores, on all of them also beside {CORES} busy loops; best of {ROUNDS}", COLUMNS
    )
    try:
        for name, fit in fits().items():
            table.add({"fit": name, **measured(fit)})
    finally:
        torch.set_num_threads(before)
    return table.rows


def fits() -> dict[str, Callable[[], Any]]:
    """Fits by default options, whose steps are compiled, and one of a wide network, by PyTorch."""
    made: dict[str, Callable[[], Any]] = {}
    for name in ("mode-canada", "mtc-work"):
        rows, schema = packaged.long_form(name)
        data = ChoiceData.from_schema(rows, schema)
        made[name] = lambda data=data: PCMCNet().fit(data, device="cpu", progress=False)
    simulated = ChoiceData.from_long(mlba.simulate(8_000, seed=0), **ROLES)
    made["mlba 3x16"] = lambda: PCMCNet(hidden=(16, 16, 16)).fit(simulated, device="cpu", progress=False)
    wide, options = (
        AIRLINE.data(96),
        {"hidden": AIRLINE.hidden, "dropout": AIRLINE.dropout, "batch_size": 16, "epochs": 2},
    )
    made["airline 2x512"] = lambda: PCMCNet(**options, **NETWORK).fit(wide, device="cpu", progress=False)
    return made


def measured(fit: Callable[[], Any]) -> Row:
    """Time a fit in all ways; ratios are to the fit on all cores alone."""
    cpu: dict[str, list[float]] = {"all": [], "beside": []}

    def timed(name: str, threads: int, loops: int) -> float:
        torch.set_num_threads(threads)
        with busy(loops):
            wall, spent = time.perf_counter(), time.process_time()
            fit()
            cpu.setdefault(name, []).append(time.process_time() - spent)
            return time.perf_counter() - wall

    ways = {"one thread": (1, 0), "all": (CORES, 0), "beside": (CORES, CORES)}
    found = in_turn({name: lambda name=name, way=way: timed(name, *way) for name, way in ways.items()}, ROUNDS)
    best = {name: min(times) for name, times in found.items()}
    ratios = {"x one": best["all"] / best["one thread"], "x beside": best["beside"] / best["all"]}
    return {**best, **ratios, "x CPU": min(cpu["beside"]) / min(cpu["all"])}


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Keep cores busy by so many processes."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
