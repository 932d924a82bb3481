"""Training speed at the airline shape by number of CPU threads, compared with the matrix products alone."""

from __future__ import annotations

import os

import torch

from benchmarks.harness import Row, Table, in_turn
from benchmarks.shapes import AIRLINE
from benchmarks.training import Case, bound, cached_data, ours

BATCH, ROUNDS = 64, 2
COLUMNS = {"threads": ",", "bound": ",.0f", "float32": ",.0f", "x one thread": ".1f", "ours / bound": ".2f"}


def main() -> list[Row]:
    """Double the number of threads until all cores are in use."""
    before = torch.get_num_threads()
    table = Table(f"training at the airline shape, batches of {BATCH}, choice sets per second", COLUMNS)
    threads = 1
    try:
        while threads <= (os.cpu_count() or 1):
            torch.set_num_threads(threads)
            table.add(measured(threads, one=table.rows[0]["float32"] if table.rows else None))
            threads *= 2
    finally:
        torch.set_num_threads(before)
    return table.rows


def measured(threads: int, one: float | None) -> Row:
    """Measure the speed on half as many batches as threads, but at least two."""
    sets = BATCH * max(2, threads // 2)
    data, case = cached_data(AIRLINE, sets), Case(AIRLINE, BATCH, sets=sets, paper_steps=0, lu_steps=0)
    ways = {"bound": lambda: bound(AIRLINE, data, sets=BATCH), "float32": lambda: ours(case, data, precision="float32")}
    best = {name: max(speeds) for name, speeds in in_turn(ways, ROUNDS).items()}
    return {
        "threads": threads,
        **best,
        "x one thread": best["float32"] / (one or best["float32"]),
        "ours / bound": best["float32"] / best["bound"],
    }
