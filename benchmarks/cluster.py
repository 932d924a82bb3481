"""Time per epoch in one process, and with 1 and 2 Ray workers that share each batch.

    python -m benchmarks.cluster [--json FILE] [workers] [wide]

``workers`` uses a network of 64 and 64 units, ``wide`` one of 256 and 256.

The first worker times the epochs of a fit. The start of Ray and of the workers is not included; it has a separate
column. Fits take turns, and the best epoch of each counts. Every worker computes on one thread. On one machine, workers
share the cores, the memory and the caches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pcmcnet as pn
from benchmarks.harness import RUNS, Row, Table, run
from benchmarks.shapes import NETWORK
from pcmcnet import cluster
from pcmcnet.datasets import airline

SETS, BATCH, EPOCHS, ROUNDS = 1200, 64, 4, 2


def in_one_process(model: pn.PCMCNet, data: pn.ChoiceData) -> Any:
    return model.fit(data, device="cpu", progress=False)


def epochs(hidden: tuple[int, ...]) -> list[Row]:
    """Time all ways in turn."""
    data = pn.ChoiceData.from_long(airline.simulate(SETS, seed=0), **airline.ROLES)
    ways: dict[str, Callable[..., Any]] = {
        "one process": in_one_process,
        "Ray, 1 worker": partial(cluster.fit, workers=1, device="cpu", progress=False),
        "Ray, 2 workers": partial(cluster.fit, workers=2, device="cpu", progress=False),
    }
    columns = {
        "way": "",
        "hidden": "",
        "parameters": ",",
        "s/epoch": ".2f",
        "sets/s": ",.0f",
        "speed": ".2f",
        "start s": ".1f",
    }
    table = Table(f"airline shape, {SETS:,} sets, batches of {BATCH}", columns)
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, fit in ways.items():
            model = pn.PCMCNet(hidden=hidden, batch_size=BATCH, epochs=EPOCHS, **NETWORK)
            began = time.perf_counter()
            fit(model, data)
            taken = [entry["seconds"] for entry in model.history]
            results[name].append((min(taken), time.perf_counter() - began - sum(taken)))
    alone = min(results["one process"])[0]
    for name, times in results.items():
        best, start = min(times)
        row = {"way": name, "hidden": "x".join(map(str, hidden)), "parameters": model.num_parameters}
        table.add({**row, "s/epoch": best, "sets/s": SETS / best, "speed": alone / best, "start s": start})
    return table.rows


if __name__ == "__main__":
    run(
        "benchmarks.cluster",
        {"workers": lambda: epochs((64, 64)), "wide": lambda: epochs((256, 256))},
        description=__doc__ or "",
        json_file=RUNS / "cluster.json",
        device="cpu",
    )
