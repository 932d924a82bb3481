"""Time and memory of a training step with one large set and the airline network.

A step must not store n^2 hidden units.

On a CPU a step runs in a separate process; the peak memory includes Python and its libraries. On a CUDA device the peak
is that of PyTorch's allocations.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
from dataclasses import replace

import torch

from benchmarks.harness import Row, Table
from benchmarks.shapes import NETWORK, WIDE
from pcmcnet import PCMCNet

COLUMNS = {"one set of": ",", "seconds a step": ".3f", "peak GiB": ".2f"}


def step(size: int, *, epochs: int = 1, skipped: int = 0, device: str = "cpu") -> float:
    """Run training steps with one set; return the median of their seconds."""
    data = replace(WIDE, size=size).data(1)
    model = PCMCNet(hidden=WIDE.hidden, dropout=WIDE.dropout, batch_size=1, epochs=epochs, **NETWORK)
    model.fit(data, device=device, progress=False)
    return statistics.median(entry["seconds"] for entry in model.history[skipped:])


def alone(size: int) -> Row:
    """Run a step on the CPU in a separate process."""
    command = [sys.executable, "-m", "benchmarks.wide", str(size)]
    taken, peak = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return {"one set of": size, "seconds a step": taken, "peak GiB": peak}


def on_device(size: int) -> Row:
    """Run steps on a CUDA device."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    taken = step(size, epochs=5, skipped=2, device="cuda")
    peak = torch.cuda.max_memory_allocated() / 2**30
    return {"one set of": size, "seconds a step": taken, "peak GiB": peak}


def main() -> list[Row]:
    """Measure sets of 1,000 and 2,000 alternatives on one CPU thread."""
    table = Table("one training step with one set, airline features and network, one CPU thread", COLUMNS)
    for size in (1_000, 2_000):
        table.add(alone(size))
    return table.rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        seconds = step(int(sys.argv[1]))
        print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20]))  # KiB on Linux
    else:
        main()
