"""Products in float32 and in bfloat16: NLL of the fit, and training speed on a CPU against the paper's way."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

import torch

from benchmarks import paper_way
from benchmarks.harness import Row, Table, in_turn
from benchmarks.shapes import AIRLINE
from benchmarks.training import ROOM, Case, cached_data, ours
from pcmcnet import ChoiceData, PCMCNet
from pcmcnet.datasets import airline

KINDS = ("float32", "bfloat16")
CASE = Case(AIRLINE, 16, sets=64, paper_steps=4, lu_steps=0)


def learnt(*, sets: int, seeds: int, device: str) -> list[Row]:
    """Compare the NLL on fresh sets after 5 epochs on simulated airline choices."""
    data = ChoiceData.from_long(airline.simulate(sets, seed=0), **airline.ROLES)
    train, test = data.split((0.8, 0.2), seed=0)
    columns = {"products in": "", "mean NLL": ".4f", **{f"seed {seed}": ".4f" for seed in range(seeds)}}
    table = Table(f"NLL on fresh sets after 5 epochs on {len(train):,} simulated airline choices", columns)
    for kind in KINDS:
        options = {"hidden": (512, 512), "dropout": 0.5, "batch_size": 64, "lr": 0.001, "epochs": 5, **ROOM}
        models = [PCMCNet(precision=kind, **options) for _ in range(seeds)]
        values = [-m.fit(train, seed=s, device=device, progress=False).score(test) for s, m in enumerate(models)]
        row = {f"seed {seed}": value for seed, value in enumerate(values)}
        table.add({"products in": kind, "mean NLL": statistics.mean(values), **row})
    return table.rows


def speed() -> list[Row]:
    """Measure the training speed at the airline shape on one CPU thread."""
    data, few = cached_data(AIRLINE, CASE.sets), cached_data(AIRLINE, CASE.paper_steps * AIRLINE.paper_batch)
    ways = {"paper way": lambda: paper_way.sets_per_second(AIRLINE, few, steps=CASE.paper_steps, device="cpu")}
    ways |= {kind: lambda kind=kind: ours(CASE, data, precision=kind) for kind in KINDS}
    best = {name: max(found) for name, found in in_turn(ways, 3).items()}
    columns = {"products in": "", "sets/s": ".1f", "x paper way": ".1f"}
    table = Table("training at the airline shape, batches of 16, one CPU thread", columns)
    for name, found in best.items():
        table.add({"products in": name, "sets/s": found, "x paper way": found / best["paper way"]})
    return table.rows


def main() -> list[Row]:
    """Compare both on a CPU with matrix instructions for bfloat16; the NLL is measured on all cores."""
    info = Path("/proc/cpuinfo")
    if not info.exists() or "amx_bf16" not in info.read_text():
        print("(skipped: this processor has no matrix instructions for bfloat16)")
        return []
    rows, threads = speed(), torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    try:
        return rows + learnt(sets=1_000, seeds=2, device="cpu")
    finally:
        torch.set_num_threads(threads)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
