"""The n^2 part alone: what one large set takes in time and memory, and one set of 50 beside its bare products.

A large set is one training step of a process of its own, whose peak memory is that of the step and of Python with its
libraries. Predictions and products take turns, on one CPU thread, and the best of each counts.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from benchmarks.shapes import AIRLINE, WIDE, Shape
from pcmcnet import ChoiceData, PCMCNet

ROUNDS = 30


def fitted(shape: Shape, data: ChoiceData) -> PCMCNet:
    """Train for one epoch."""
    model = PCMCNet(hidden=shape.hidden, dropout=shape.dropout, batch_size=16, epochs=1)
    return model.fit(data, device="cpu", progress=False)


def one_step(size: int) -> None:
    """Take one training step with one set; prints seconds and GiB."""
    torch.set_num_threads(1)
    shape = replace(WIDE, size=size)
    model = fitted(shape, shape.data(1))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # from KiB, as Linux counts
    print(json.dumps([model.history[0]["seconds"], peak]))


def large_set(size: int) -> tuple[float, float]:
    """Seconds and peak memory in GiB of one training step, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.pairs", str(size)]
    seconds, peak = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return seconds, peak


def latency() -> dict[str, float]:
    """Milliseconds: the products of one set of 50, the network on its batch, and a prediction from its columns."""
    shape = replace(AIRLINE, size=50)
    model, one = fitted(shape, shape.data(8)), shape.data(1)
    network, batch = model.network_.eval(), model.encoder_.encode(one).batch(np.arange(1))
    x, weight = torch.randn(50**2, shape.hidden[0]), torch.randn(shape.hidden)
    ways: dict[str, Callable[[], object]] = {
        "bare products": lambda: x @ weight,
        "network": lambda: network(batch),
        "predict_proba": lambda: model.predict_proba(one),
    }
    best = dict.fromkeys(ways, float("inf"))
    with torch.no_grad():
        for _ in range(ROUNDS):
            for name, way in ways.items():
                began = time.perf_counter()
                way()
                best[name] = min(best[name], (time.perf_counter() - began) * 1e3)
    return best


def main() -> None:
    """Print both tables."""
    torch.set_num_threads(1)
    print("one set of 50 at the airline shape, one CPU thread")
    times = latency()
    for name, value in times.items():
        print(f"{name:<14} {value:>6.1f} ms {value / times['bare products']:>6.2f}")
    print("\none training step with one set, airline features and network, one CPU thread")
    print(f"{'n':>6} {'seconds':>8} {'peak GiB':>9}")
    for size in (1_000, 2_000):
        seconds, peak = large_set(size)
        print(f"{size:>6,} {seconds:>8.1f} {peak:>9.2f}")


if __name__ == "__main__":
    one_step(int(sys.argv[1])) if len(sys.argv) > 1 else main()
