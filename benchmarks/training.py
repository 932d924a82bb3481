"""Training throughput on one CPU thread: pcmcnet beside the paper's way of computing, in one run."""

from __future__ import annotations

import torch

from benchmarks.paper_way import sets_per_second
from benchmarks.shapes import AIRLINE, MLBA, Shape
from pcmcnet import ChoiceData, PCMCNet

ROUNDS = 3  # the two ways take turns, and the best of each counts: machines are noisy


def ours(shape: Shape, data: ChoiceData, batch_size: int) -> float:
    """Sets per second of one epoch through the public interface."""
    model = PCMCNet(hidden=shape.hidden, dropout=shape.dropout, batch_size=batch_size, epochs=1)
    model.fit(data, device="cpu", progress=False)
    return len(data) / model.history[0]["seconds"]


def compare(shape: Shape, *, steps: int, sets: int, batch_size: int) -> None:
    """Print the best speeds of both ways and their ratio."""
    data, few = shape.data(sets), shape.data(steps * shape.paper_batch)
    speeds = [(sets_per_second(shape, few, steps=steps), ours(shape, data, batch_size)) for _ in range(ROUNDS)]
    theirs, mine = map(max, zip(*speeds, strict=True))
    print(f"{shape.name:<9} {batch_size:>6} {theirs:>10,.0f} {mine:>10,.0f} {mine / theirs:>7.1f}")


def main() -> None:
    """Compare at the shapes of both experiments."""
    torch.set_num_threads(1)
    print("training, choice sets per second, one CPU thread")
    print(f"{'shape':<9} {'batch':>6} {'paper way':>10} {'pcmcnet':>10} {'ratio':>7}")
    compare(MLBA, steps=400, sets=1_000, batch_size=1)
    compare(MLBA, steps=400, sets=20_000, batch_size=64)
    compare(AIRLINE, steps=4, sets=128, batch_size=16)
    print(f"(the paper's way always has its own batch: {MLBA.paper_batch} for mlba, {AIRLINE.paper_batch} for airline)")


if __name__ == "__main__":
    main()
