"""One large set: time and memory of a training step at the airline network, for which nothing of n^2 units may be kept.

On a CPU a step runs in a process of its own, whose peak memory is that of the step and of Python with its libraries;
on a CUDA device the peak is that of what PyTorch has allocated.
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
    """Take training steps with one set; returns the median of their seconds."""
    data = replace(WIDE, size=size).data(1)
    model = PCMCNet(hidden=WIDE.hidden, dropout=WIDE.dropout, batch_size=1, epochs=epochs, **NETWORK)
    model.fit(data, device=device, progress=False)
    return statistics.median(entry["seconds"] for entry in model.history[skipped:])


def alone(size: int) -> Row:
    """Take a step on the CPU in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.wide", str(size)]
    taken, peak = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return {"one set of": size, "seconds a step": taken, "peak GiB": peak}


def on_device(size: int) -> Row:
    """Take steps on a CUDA device."""
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
        print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20]))  # from KiB, on Linux
    else:
        main()
