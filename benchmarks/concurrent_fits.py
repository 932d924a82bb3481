"""Default fits that run at the same time on one machine, each in its own process.

    python -m benchmarks.concurrent_fits [--counts 1,4,8,16] [--sets 1000] [--limit 90] [--threads 1]

If nothing is shared but the cores, a fit takes as long beside fifteen others as alone. The table shows what a slow fit
waits for: *CPU* is the time on a core, *system* the part of it in the kernel, *voluntary* and *involuntary* are the
context switches per fit, and *faults* the page faults. Fits that do not end within the limit are stopped (``-``). Two
loops that use only arithmetic, and only memory, are measured for comparison: they slow down with the machine. All
processes have loaded PyTorch before the first measurement.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import resource
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch

from benchmarks.harness import Row, Table, machine
from pcmcnet import ChoiceData, PCMCNet
from pcmcnet.training import compiled_steps

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
FEATURES = ("price", "time", "comfort", "changes")
COLUMNS = {
    "at once": "",
    "work": "",
    "wall, s": ".2f",
    "slowest": ".2f",
    "CPU, s": ".2f",
    "system": ".2f",
    "voluntary": ",.0f",
    "involuntary": ",.0f",
    "faults": ",.0f",
    "threads": ".0f",
    "MiB": ",.0f",
}


def ten_alternatives(sets: int) -> ChoiceData:
    """Draw choices from sets of ten alternatives, with a threshold in the price and an interaction."""
    rng = np.random.default_rng(0)
    x = rng.gamma(2.0, 1.0, (sets, 10, 4))
    utility = -1.5 * np.maximum(x[..., 0] - 2, 0) - 0.5 * x[..., 1] + (x[..., 2] > 2) * x[..., 3]
    utility += rng.gumbel(size=(sets, 10))
    columns = {name: x[..., k].ravel() for k, name in enumerate(FEATURES)}
    chosen = utility == utility.max(1, keepdims=True)
    table = {"choice_set": np.repeat(np.arange(sets), 10), "chosen": chosen.ravel(), **columns}
    return ChoiceData.from_long(table, choice_set="choice_set", chosen="chosen", features=list(FEATURES))


def arithmetic(sets: int) -> None:
    """Run a loop of the interpreter, which uses no memory beyond the caches of a core."""
    total = 0
    for k in range(10_000 * sets):
        total += k & 7


def memory(sets: int) -> None:
    """Copy arrays that are larger than the caches of a core."""
    source = np.ones(2**22)  # 32 MiB
    target = np.empty_like(source)
    for _ in range(max(sets // 10, 1)):
        np.copyto(target, source)


def compiled_fit(sets: int) -> None:
    """Fit PCMC-Net with its default options."""
    PCMCNet().fit(ten_alternatives(sets), device="cpu", progress=False)


def torch_fit(sets: int) -> None:
    """Fit one network with PyTorch instead of compiled steps, to fewer sets."""
    compiled_steps.compiled_library = lambda: None
    PCMCNet(members=1, epochs=5, weight_decay=0.25).fit(ten_alternatives(sets // 2), device="cpu", progress=False)


WORK: dict[str, Callable[[int], None]] = {
    "arithmetic": arithmetic,
    "memory": memory,
    "fit": compiled_fit,
    "PyTorch fit": torch_fit,
}


def serve_work(connection: Connection, threads: int) -> None:
    """Do the work that arrives, and report what it used, until the connection is closed."""
    if threads:
        torch.set_num_threads(threads)
    library = compiled_steps.compiled_library()
    compiled_fit(20)  # the first fit imports modules
    connection.send("PyTorch" if library is None else str(compiled_steps.LIBRARY_FILE))
    while True:
        work, sets = connection.recv()
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        WORK[work](sets)
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
        system = after.ru_stime - before.ru_stime
        report = {
            "wall, s": wall,
            "CPU, s": after.ru_utime - before.ru_utime + system,
            "system": system,
            "voluntary": after.ru_nvcsw - before.ru_nvcsw,
            "involuntary": after.ru_nivcsw - before.ru_nivcsw,
            "faults": after.ru_minflt - before.ru_minflt,
            "threads": threading.active_count(),
            "MiB": after.ru_maxrss / 1024,
        }
        connection.send(report)


def measure(connections: Sequence[Connection], work: str, sets: int, end: float) -> Row:
    """Do the work in all these processes at once, and return the means over those that ended in time."""
    for connection in connections:
        connection.send((work, sets))
    reports: list[Row] = [c.recv() for c in connections if c.poll(max(end - time.perf_counter(), 0))]
    ended = "" if len(reports) == len(connections) else f", {len(reports)} ended"
    row: Row = {"at once": f"{len(connections)}{ended}", "work": work}
    if reports:
        row |= {name: float(np.mean([report[name] for report in reports])) for name in reports[0]}
        row["slowest"] = max(report["wall, s"] for report in reports)
    return row


def limits_of_the_machine() -> list[str]:
    """Return the usable cores, and the quota of CPU time of this container if it has one."""
    lines = [f"{len(os.sched_getaffinity(0))} usable cores, load {os.getloadavg()[0]:.1f}"]
    files = map(Path, ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"))
    return [*lines, *(f"{file}: {' '.join(file.read_text().split())}" for file in files if file.exists())]


def main(counts: Sequence[int], sets: int, limit: float, threads: int) -> list[Row]:
    """Measure every kind of work with every number of processes, until the time is up."""
    print(f"{machine()}; torch {torch.__version__}, numpy {np.__version__}", *limits_of_the_machine(), sep="\n")
    if threads:  # the started processes read these variables when they load numpy and PyTorch
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    context, end = multiprocessing.get_context("spawn"), time.perf_counter() + limit
    pipes = [context.Pipe() for _ in range(max(counts))]
    processes = [context.Process(target=serve_work, args=(theirs, threads), daemon=True) for _, theirs in pipes]
    for process in processes:
        process.start()
    connections = [ours for ours, _ in pipes]
    print("compiled steps:", *{connection.recv() for connection in connections})
    title = f"work at once, {threads or 'default'} threads each; fits to {sets:,} sets of ten alternatives"
    table = Table(title, COLUMNS, first=14)
    try:
        for work, count in itertools.product(WORK, counts):
            if time.perf_counter() < end:
                table.add(measure(connections[:count], work, sets, end))
    finally:
        for process in processes:
            process.terminate()
            process.join()
    print(*limits_of_the_machine(), sep="\n")
    return table.rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="1,4,8,16", help="comma-separated numbers of processes")
    parser.add_argument("--sets", type=int, default=1000, help="choice sets of a fit (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=90, help="seconds of the whole run (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each process; 0: as many as PyTorch wants")
    arguments = parser.parse_args()
    main([int(count) for count in arguments.counts.split(",")], arguments.sets, arguments.limit, arguments.threads)
