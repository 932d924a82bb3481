"""Time of the parts of a training step at the airline shape, on one CPU thread: batched LU and this library.

Self times of PyTorch operations under its profiler, over a few steps after a warm-up step. An operation counts for the
stationary distribution or for the optimiser if it runs inside of it, otherwise by its name. The overhead of the
profiler is included.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks import batched_lu
from benchmarks.harness import Row, Table
from benchmarks.shapes import AIRLINE, NETWORK
from pcmcnet import PCMCNet

BATCH, STEPS = 16, 4
INSIDE = {"stationary distribution": r"pcmcnet::|linalg|LinalgSolve", "optimiser": r"[Oo]ptimizer|adam"}
NAMED = {
    "products": r"aten::(mm|addmm_?|mv|addmv_?|bmm|linear)$",
    "dropout": r"dropout|bernoulli|random_|aten::(mul_?|ge_?|_to_copy)$",
    "activation": r"leaky_relu|aten::relu|threshold",
    "sums and copies": r"aten::(add_?|sum|copy_|cat|fill_|zero_|index(_select|_add_|_copy_)?)$",
}


def kind(event: Any) -> str:
    """Return the part of a step that an event of the profiler belongs to."""
    around, names = event, []
    while around is not None:
        names.append(around.name)
        around = around.cpu_parent
    for name, pattern in INSIDE.items():
        if any(re.search(pattern, word) for word in names):
            return name
    return next((name for name, pattern in NAMED.items() if re.search(pattern, event.name)), "other")


def milliseconds(run: Callable[[], Any], sets: int) -> Counter[str]:
    """Profile a call that trains on ``sets`` choice sets; return milliseconds per set by part."""
    run()
    with profile(activities=[ProfilerActivity.CPU]) as watch:
        run()
    total: Counter[str] = Counter()
    for event in watch.events():
        total[kind(event)] += event.self_cpu_time_total / 1e3 / sets
    return total


def main() -> list[Row]:
    """Print milliseconds per set of both implementations."""
    torch.set_num_threads(1)
    data = AIRLINE.data(STEPS * BATCH)
    model = PCMCNet(hidden=AIRLINE.hidden, dropout=AIRLINE.dropout, batch_size=BATCH, epochs=1, **NETWORK)
    before = milliseconds(
        lambda: batched_lu.sets_per_second(AIRLINE, data, steps=STEPS, batch_size=BATCH), sets=len(data)
    )
    after = milliseconds(lambda: model.fit(data, device="cpu", progress=False), sets=len(data))
    columns = {"part of a step": "", "batched LU": ".1f", "ours": ".1f"}
    table = Table(f"milliseconds per set at the airline shape, batches of {BATCH}, one CPU thread", columns)
    for name in (*NAMED, *INSIDE, "other"):
        table.add({"part of a step": name, "batched LU": before[name], "ours": after[name]})
    table.add({"part of a step": "all", "batched LU": before.total(), "ours": after.total()})
    return table.rows


if __name__ == "__main__":
    main()
